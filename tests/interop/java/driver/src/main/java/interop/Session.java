package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Many commands in one JVM. A line of standard input is RUN, COMMAND and arguments, separated by tabs; each runs in a thread of its own, its
 * lines carry "run", the last of them is {"event":"end","status":0 or 1}. `stop` of a run ends it in good order; `mqadmin` runs
 * Apache's admin command, one at a time, and prints {"event":"output","text":...}. Ends with standard input.
 */
final class Session {
    private static final Map<String, Options> RUNS = new ConcurrentHashMap<>();

    private Session() {
    }

    static void serve() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Lines.print("event", "serving");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[1].equals("stop")) {
                RUNS.get(words[0]).stop();
            } else if (words[1].equals("mqadmin")) {
                start(new Options(new String[0], 0, words[0]), o -> admin(o, Arrays.copyOfRange(words, 2, words.length)));
            } else {
                Options options = new Options(words, 2, words[0]);
                RUNS.put(words[0], options);
                start(options, o -> Main.run(words[1], o));
            }
        }
    }

    /** Some of Apache's commands keep a client that they have shut down: `main` makes new ones when the list is empty. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (field.getType() == List.class) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private interface Work {
        void with(Options options) throws Exception;
    }

    private static void start(Options options, Work work) {
        new Thread(() -> {
            int status = 0;
            try {
                work.with(options);
            } catch (Throwable e) {
                options.failed(e);
                status = 1;
            }
            options.print("event", "end", "status", status);
        }).start();
    }

    private static synchronized void admin(Options options, String[] words) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(said, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        try {
            forgetCommands();
            MQAdminStartup.main(words);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        options.print("event", "output", "text", said.toString("UTF-8"));
    }
}
