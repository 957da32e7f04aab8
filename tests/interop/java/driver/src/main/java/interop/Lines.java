package interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageClientExt;

/** JSON lines on standard output, each flushed, so that a reader of a killed process loses none. */
final class Lines {
    private static final PrintStream OUT;

    static {
        try {
            OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        } catch (java.io.UnsupportedEncodingException e) {
            throw new IllegalStateException(e);
        }
    }

    private Lines() {
    }

    static synchronized void print(Object... pairs) {
        StringBuilder text = new StringBuilder("{");
        for (int i = 0; i < pairs.length; i += 2) {
            if (i > 0) {
                text.append(',');
            }
            string(text, (String) pairs[i]);
            text.append(':');
            value(text, pairs[i + 1]);
        }
        OUT.println(text.append('}'));
    }

    static Object[] fields(MessageExt message) throws Exception {
        // An empty body arrives as null.
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        String offsetId = message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
        return new Object[] {"event", "message", "topic", message.getTopic(), "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
            "commitLogOffset", message.getCommitLogOffset(), "msgId", message.getMsgId(), "offsetMsgId", offsetId,
            "tags", message.getTags(), "keys", message.getKeys(), "bodySize", body.length, "bodyHash", hash(body),
            "reconsumeTimes", message.getReconsumeTimes(), "flag", message.getFlag(), "sysFlag", message.getSysFlag(),
            "bornTimestamp", message.getBornTimestamp(), "storeTimestamp", message.getStoreTimestamp(),
            "bornHost", String.valueOf(message.getBornHost()), "storeHost", String.valueOf(message.getStoreHost()),
            "storeSize", message.getStoreSize(), "sequence", sequence(body), "properties", message.getProperties()};
    }

    /** The number a body of `produce` begins with; -1 for others. */
    private static int sequence(byte[] body) {
        int number = 0;
        for (int i = 0; i < body.length && i < 9; i++) {
            if (body[i] == ':') {
                return i == 0 ? -1 : number;
            }
            if (body[i] < '0' || body[i] > '9') {
                return -1;
            }
            number = number * 10 + body[i] - '0';
        }
        return -1;
    }

    static String hash(byte[] body) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-1").digest(body)) {
            text.append(String.format("%02x", b & 0xff));
        }
        return text.toString();
    }

    private static void value(StringBuilder text, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            text.append(value);
        } else if (value instanceof Map) {
            text.append('{');
            boolean first = true;
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                if (!first) {
                    text.append(',');
                }
                first = false;
                string(text, String.valueOf(entry.getKey()));
                text.append(':');
                value(text, entry.getValue());
            }
            text.append('}');
        } else {
            string(text, String.valueOf(value));
        }
    }

    private static void string(StringBuilder text, String value) {
        text.append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 32) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }
}
