package interop;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** `--name value` pairs of one run of a command; its lines go out through here, marked with the run in a session. */
final class Options {
    private final Map<String, String> values = new HashMap<>();
    private final String run;
    private volatile boolean stopped;

    Options(String[] args) {
        this(args, 1, null);
    }

    Options(String[] args, int from, String run) {
        this.run = run;
        for (int i = from; i + 1 < args.length; i += 2) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("not an option: " + args[i]);
            }
            values.put(args[i].substring(2), args[i + 1]);
        }
    }

    String text(String name, String fallback) {
        return values.getOrDefault(name, fallback);
    }

    String need(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing --" + name);
        }
        return value;
    }

    int number(String name, int fallback) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : fallback;
    }

    void print(Object... pairs) {
        if (run == null) {
            Lines.print(pairs);
            return;
        }
        Object[] marked = Arrays.copyOf(pairs, pairs.length + 2);
        marked[pairs.length] = "run";
        marked[pairs.length + 1] = run;
        Lines.print(marked);
    }

    void message(MessageExt message) throws Exception {
        print(Lines.fields(message));
    }

    void failed(Throwable e) {
        print("event", "error", "class", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
    }

    /** A session's `stop`: the run ends as if its time were over. */
    void stop() {
        stopped = true;
    }

    boolean stopped() {
        return stopped;
    }

    boolean is(String name) {
        return Boolean.parseBoolean(values.getOrDefault(name, "false"));
    }
}
