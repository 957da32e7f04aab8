package golden;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Where golden files go, and how bytes are shown in them. */
final class Out {
    private static Path root;

    private Out() {
    }

    static void into(Path directory) {
        root = directory;
    }

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> result = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            result.put((String) pairs[i], pairs[i + 1]);
        }
        return result;
    }

    static String hex(byte[] bytes) {
        if (bytes == null) {
            return "";
        }
        StringBuilder text = new StringBuilder(bytes.length * 2);
        for (byte b : bytes) {
            text.append(String.format("%02x", b & 0xff));
        }
        return text.toString();
    }

    /** Everything up to the last byte that is not zero: files are mostly empty. */
    static byte[] trimmed(byte[] bytes) {
        int end = bytes.length;
        while (end > 0 && bytes[end - 1] == 0) {
            end--;
        }
        return Arrays.copyOf(bytes, end);
    }

    static void json(String name, Object value) throws IOException {
        String text = JSON.toJSONString(value, JSONWriter.Feature.PrettyFormat, JSONWriter.Feature.WriteMapNullValue);
        write(name, (text + "\n").getBytes(StandardCharsets.UTF_8));
    }

    /** One `name hex` pair to a line. */
    static void lines(String name, Map<String, byte[]> values) throws IOException {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, byte[]> entry : values.entrySet()) {
            text.append(entry.getKey()).append(' ').append(hex(entry.getValue())).append('\n');
        }
        write(name, text.toString().getBytes(StandardCharsets.UTF_8));
    }

    static void write(String name, byte[] bytes) throws IOException {
        Path target = root.resolve(name);
        Files.createDirectories(target.getParent());
        Files.write(target, bytes);
    }

    static List<Path> files(Path directory) throws IOException {
        List<Path> result = new ArrayList<>();
        if (Files.isDirectory(directory)) {
            Files.walk(directory).filter(Files::isRegularFile).sorted().forEach(result::add);
        }
        return result;
    }
}
