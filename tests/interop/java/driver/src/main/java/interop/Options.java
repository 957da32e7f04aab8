package interop;

import java.util.HashMap;
import java.util.Map;

/** `--name value` pairs. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        for (int i = 1; i + 1 < args.length; i += 2) {
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

    boolean is(String name) {
        return Boolean.parseBoolean(values.getOrDefault(name, "false"));
    }
}
