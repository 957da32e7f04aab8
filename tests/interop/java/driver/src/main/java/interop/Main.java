package interop;

/** The official Java client as a command: one sub-command, options, JSON lines out, exit 0 when it did what was asked. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            run(args[0], new Options(args));
        } catch (Throwable e) {
            Lines.print("event", "error", "class", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
            e.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }

    private static void run(String command, Options options) throws Exception {
        switch (command) {
            case "produce":
                Produce.run(options);
                break;
            case "pull-all":
                Read.pullAll(options);
                break;
            case "consume":
                Consume.push(options);
                break;
            case "lite-consume":
                Consume.lite(options);
                break;
            case "offsets":
                Read.offsets(options);
                break;
            case "view":
                Read.view(options);
                break;
            case "query":
                Read.query(options);
                break;
            case "request":
                RequestReply.request(options);
                break;
            case "reply":
                RequestReply.reply(options);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }
}
