package golden;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclSigner;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Small values: hashes, ids, property strings, checksums, compressed bodies, signatures, batch bodies. */
final class Values {
    private Values() {
    }

    static void write() throws Exception {
        hashes();
        ids();
        properties();
        checksums();
        compression();
        signatures();
        batch();
    }

    private static void hashes() throws Exception {
        List<Object> rows = new ArrayList<>();
        String[] texts = {
            "", "a", "TagA", "TagB", "tag-with-some-length-0123456789", "*", "TagA || TagB", " TagA ", "é", "ß", "日本語", "标签",
            "😀", "𝒯ag", "a😀b", "\ud800\udc00", "\udbff\udfff", "polygenelubricants", "GydZG_", "DESIGNING WORKHOUSES",
            "\u0000", "\u0001x", "\uffff", "ﬀ", "topic#key",
        };
        for (String text : texts) {
            rows.add(Out.map("text", text, "utf8", Out.hex(text.getBytes(StandardCharsets.UTF_8)), "hashCode", text.hashCode(),
                "tagsCode", MessageExtBrokerInner.tagsString2tagsCode(text)));
        }
        Out.json("hashes.json", rows);
    }

    private static void ids() throws Exception {
        List<Object> offsetIds = new ArrayList<>();
        Object[][] cases = {
            {"127.0.0.1", 10911, 0L}, {"10.20.30.40", 65535, 123456789012L}, {"255.255.255.254", 1, Long.MAX_VALUE},
            {"::1", 10911, 42L}, {"2001:db8::ff00:42:8329", 30911, 1099511627776L},
        };
        for (Object[] row : cases) {
            InetAddress address = InetAddress.getByName((String) row[0]);
            int port = (Integer) row[1];
            byte[] host = ByteBuffer.allocate(address.getAddress().length + 4).put(address.getAddress()).putInt(port).array();
            ByteBuffer input = ByteBuffer.allocate(host.length + 8);
            String id = MessageDecoder.createMessageId(input, ByteBuffer.wrap(host), (Long) row[2]);
            MessageId decoded = MessageDecoder.decodeMessageId(id);
            InetSocketAddress back = (InetSocketAddress) decoded.getAddress();
            offsetIds.add(Out.map("id", id, "host", Out.hex(host), "address", back.getAddress().getHostAddress(),
                "port", back.getPort(), "offset", decoded.getOffset()));
        }
        List<Object> clientIds = new ArrayList<>();
        String[] uniqueIds = {
            // IPv4 (16 bytes) and IPv6 (28 bytes): address, process id, loader hash, milliseconds of the month, counter
            "7F00000100002A139A556C1D2E3F0000", "0A141E280BB818B4AAC27F00112233FF",
            "20010DB8000000000000FF00004283291F9018B4AAC20000ABCD0001",
        };
        for (String id : uniqueIds) {
            clientIds.add(Out.map("id", id, "ip", MessageClientIDSetter.getIPStrFromID(id), "pid", MessageClientIDSetter.getPidFromID(id)));
        }
        Out.json("ids.json", Out.map("offset", offsetIds, "client", clientIds));
    }

    private static void properties() throws Exception {
        List<Map<String, String>> all = new ArrayList<>();
        all.add(new LinkedHashMap<>());
        all.add(pairs("TAGS", "TagA"));
        all.add(pairs("KEYS", "k1 k2", "UNIQ_KEY", "7F00000100002A139A556C1D2E3F0000", "WAIT", "true", "TAGS", "TagA", "CLUSTER", "DefaultCluster"));
        all.add(pairs("名", "值😀", "empty", "", "spaces", " a b ", "quote", "\"{}\\/"));
        List<Object> rows = new ArrayList<>();
        for (Map<String, String> map : all) {
            String text = MessageDecoder.messageProperties2String(map);
            rows.add(Out.map("encoded", Out.hex(text.getBytes(StandardCharsets.UTF_8)), "given", map,
                "decoded", MessageDecoder.string2messageProperties(text)));
        }
        // What Apache reads out of strings that others wrote: no last separator, repeated names, no separator at all, empty parts.
        String[] odd = {"A\u0001b", "A\u0001b\u0002A\u0001c\u0002", "A\u0001\u0002B\u0001c\u0002", "A\u0002B\u0001c\u0002",
            "\u0001x\u0002B\u0001c\u0002", "\u0002\u0002B\u0001c", "A\u0001b\u0001c\u0002", "A\u0001b\u0002B\u0001"};
        List<Object> read = new ArrayList<>();
        for (String text : odd) {
            read.add(Out.map("encoded", Out.hex(text.getBytes(StandardCharsets.UTF_8)), "decoded", MessageDecoder.string2messageProperties(text)));
        }
        Out.json("properties.json", Out.map("written", rows, "read", read));
    }

    private static Map<String, String> pairs(String... values) {
        Map<String, String> result = new LinkedHashMap<>();
        for (int i = 0; i < values.length; i += 2) {
            result.put(values[i], values[i + 1]);
        }
        return result;
    }

    private static void checksums() throws Exception {
        List<Object> rows = new ArrayList<>();
        for (String text : new String[] {"", "a", "hello", "123456789", "日本語"}) {
            byte[] body = text.getBytes(StandardCharsets.UTF_8);
            rows.add(Out.map("bytes", Out.hex(body), "crc32", UtilAll.crc32(body)));
        }
        Out.json("checksums.json", rows);
    }

    private static void compression() throws Exception {
        byte[] body = new byte[600];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) ("RocketMQ".charAt(i % 8) + (i / 100));
        }
        List<Object> rows = new ArrayList<>();
        for (CompressionType type : CompressionType.values()) {
            byte[] packed = CompressorFactory.getCompressor(type).compress(body, 5);
            rows.add(Out.map("type", type.name(), "value", type.getValue(), "flag", type.getCompressionFlag(),
                "compressed", Out.hex(packed)));
        }
        Out.json("compression.json", Out.map("body", Out.hex(body), "packed", rows));
    }

    private static void signatures() throws Exception {
        List<Object> rows = new ArrayList<>();
        SortedMap<String, String> fields = new TreeMap<>();
        fields.put("AccessKey", "aerobee");
        fields.put("topic", "TopicTest");
        fields.put("queueId", "3");
        fields.put("Signature", "left out");
        fields.put("unicode", "值😀");
        byte[] body = "body".getBytes(StandardCharsets.UTF_8);
        for (byte[] each : new byte[][] {null, body}) {
            RemotingCommand command = RemotingCommand.createRequestCommand(10, null);
            command.setBody(each);
            byte[] content = AclUtils.combineRequestContent(command, fields);
            rows.add(Out.map("fields", fields, "body", Out.hex(each), "content", Out.hex(content), "secretKey", "12345678",
                "signature", AclUtils.calSignature(content, "12345678")));
        }
        List<Object> plain = new ArrayList<>();
        for (String[] pair : new String[][] {{"abc", "key"}, {"日本語", "秘密"}, {"x", "a-longer-secret-key-that-exceeds-the-sixty-four-byte-hash-block-size!"}}) {
            plain.add(Out.map("data", pair[0], "key", pair[1], "signature", AclSigner.calSignature(pair[0], pair[1])));
        }
        Out.json("signatures.json", Out.map("requests", rows, "plain", plain));
    }

    static List<Message> batchMessages() {
        Message first = new Message("Batch", "TagA", "k1", "first".getBytes(StandardCharsets.UTF_8));
        Message second = new Message("Batch", "TagB", "k2 k3", "second".getBytes(StandardCharsets.UTF_8));
        second.setFlag(7);
        Message third = new Message("Batch", new byte[] {0, 1, 2, (byte) 0xff});
        third.getProperties().clear();
        return Arrays.asList(first, second, third);
    }

    private static void batch() throws Exception {
        List<Object> rows = new ArrayList<>();
        for (Message message : batchMessages()) {
            rows.add(Out.map("body", Out.hex(message.getBody()), "flag", message.getFlag(), "properties", message.getProperties()));
        }
        Out.json("batch.json", Out.map("encoded", Out.hex(MessageDecoder.encodeMessages(batchMessages())), "messages", rows));
    }
}
