package interop;

/** The official Java client as a command: one sub-command, options, JSON lines out, exit 0 when it did what was asked. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) {
        int status = 0;
        Options options = new Options(args);
        try {
            if (args[0].equals("session")) {
                Session.serve();
            } else {
                run(args[0], options);
            }
        } catch (Throwable e) {
            options.failed(e);
            e.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }

    static void run(String command, Options options) throws Exception {
        switch (command) {
            case "produce":
                Produce.run(options);
                break;
            case "timed":
                Timed.run(options);
                break;
            case "transact":
                Transact.run(options);
                break;
            case "pull-all":
                Read.pullAll(options);
                break;
            case "consume":
                new Consume(options).push();
                break;
            case "lite-consume":
                new Consume(options).lite();
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
