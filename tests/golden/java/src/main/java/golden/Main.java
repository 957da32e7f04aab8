package golden;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Writes every golden file below the directory named by the first argument. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            generate(Paths.get(args[0]));
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        // The broker's classes leave threads behind.
        System.exit(status);
    }

    private static void generate(Path target) throws Exception {
        Out.into(target);
        Path scratch = Files.createTempDirectory("golden");
        Values.write();
        Frames.write();
        Bodies.write();
        Allocations.write();
        Filters.write();
        Store.write(scratch);
        Configs.write(scratch);
    }
}
