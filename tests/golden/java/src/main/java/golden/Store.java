package golden;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A message store of Apache's on a clock that stands where we put it, and every file it leaves. */
final class Store {
    private static final int LOG_FILE_SIZE = 4096;
    private static long now = Bodies.TIME;

    private Store() {
    }

    static void write(Path scratch) throws Exception {
        one(scratch.resolve("plain"), "store", false);
        one(scratch.resolve("crc"), "store_crc", true);
    }

    private static final class FixedClockStore extends DefaultMessageStore {
        private final SystemClock clock = new SystemClock() {
            @Override
            public long now() {
                return now;
            }
        };

        FixedClockStore(MessageStoreConfig config, BrokerConfig broker) throws Exception {
            super(config, new BrokerStatsManager("DefaultCluster", false), (t, q, o, c, m, b, p) -> { }, broker, new ConcurrentHashMap<>());
        }

        @Override
        public SystemClock getSystemClock() {
            return clock;
        }
    }

    private static void one(Path root, String name, boolean crc) throws Exception {
        now = Bodies.TIME;
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setMappedFileSizeCommitLog(LOG_FILE_SIZE);
        config.setMappedFileSizeConsumeQueue(20 * 6);
        config.setMaxHashSlotNum(16);
        config.setMaxIndexNum(64);
        config.setEnabledAppendPropCRC(crc);
        config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        try (ServerSocket socket = new ServerSocket(0)) {
            config.setHaListenPort(socket.getLocalPort());
        }
        FixedClockStore store = new FixedClockStore(config, new BrokerConfig());
        check(store.load(), "load");
        store.start();
        List<String> names = new ArrayList<>();
        put(store, names);
        long end = store.getMaxPhyOffset();
        for (int i = 0; store.dispatchBehindBytes() > 0 && i < 500; i++) {
            Thread.sleep(10);
        }
        check(store.dispatchBehindBytes() == 0, "dispatch");
        List<Object> records = records(store, names, end, crc);
        store.shutdown();
        Out.json(name + ".json", Out.map("logFileSize", LOG_FILE_SIZE, "queueFileSize", 20 * 6, "hashSlots", 16, "indexEntries", 64,
            "crc", crc, "endOffset", end, "records", records, "files", files(root)));
    }

    private static void put(DefaultMessageStore store, List<String> names) throws Exception {
        MessageExtBrokerInner plain = message("Plain", 0, "127.0.0.1", "127.0.0.1", "hello");
        put(store, names, "plain", plain);
        MessageExtBrokerInner full = message("Full", 3, "10.1.2.3", "10.4.5.6", "körper 日本語 😀");
        full.setFlag(-7);
        full.setReconsumeTimes(2);
        full.setTags("TagA");
        full.setKeys("k1 k2");
        full.putUserProperty("user", "值😀");
        MessageAccessor.putProperty(full, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "7F00000100002A139A556C1D2E3F0000");
        put(store, names, "full", full);
        MessageExtBrokerInner empty = message("Plain", 0, "127.0.0.1", "127.0.0.1", "");
        put(store, names, "empty_body", empty);
        StringBuilder topic = new StringBuilder();
        for (int i = 0; i < 20; i++) {
            topic.append("long-topic");
        }
        MessageExtBrokerInner second = message(topic.toString(), 1, "127.0.0.1", "127.0.0.1", "version two");
        second.setTags("非BMP😀");
        put(store, names, "v2", second);
        put(store, names, "born_v6", message("Plain", 0, "2001:db8::1", "127.0.0.1", "born v6"));
        put(store, names, "store_v6", message("Plain", 0, "127.0.0.1", "::1", "store v6"));
        MessageExtBrokerInner both = message("Plain", 1, "fe80::1", "2001:db8::2", "both v6");
        both.setKeys("v6key");
        put(store, names, "both_v6", both);
        MessageExtBrokerInner prepared = message("RMQ_SYS_TRANS_HALF_TOPIC", 0, "127.0.0.1", "127.0.0.1", "prepared");
        prepared.setSysFlag(MessageSysFlag.TRANSACTION_PREPARED_TYPE);
        put(store, names, "prepared", prepared);
        MessageExtBrokerInner commit = message("Plain", 0, "127.0.0.1", "127.0.0.1", "commit");
        commit.setSysFlag(MessageSysFlag.TRANSACTION_COMMIT_TYPE);
        commit.setPreparedTransactionOffset(1234567890123L);
        put(store, names, "commit", commit);
        MessageExtBrokerInner rollback = message("Plain", 0, "127.0.0.1", "127.0.0.1", "rollback");
        rollback.setSysFlag(MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
        put(store, names, "rollback", rollback);
        MessageExtBrokerInner delayed = message("SCHEDULE_TOPIC_XXXX", 2, "127.0.0.1", "127.0.0.1", "delayed");
        delayed.setTags("TagA");
        delayed.setDelayTimeLevel(3);
        put(store, names, "delayed", delayed);
        MessageExtBrokerInner multi = message("Plain", 0, "127.0.0.1", "127.0.0.1", "many keys");
        multi.setKeys("a bb  ccc 鍵");
        multi.setTags("TagB");
        put(store, names, "many_keys", multi);
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, "Batch", 2, "127.0.0.1", "127.0.0.1", new byte[0]);
        batch.setBody(MessageDecoder.encodeMessages(Values.batchMessages()));
        now += 1000;
        PutMessageResult result = store.putMessages(batch);
        check(result.isOk(), "batch " + result);
        for (int i = 0; i < 3; i++) {
            names.add("batch_" + i);
        }
        // Over the end of the first file: a blank record, then the next file; and over the end of a queue's first file.
        for (int i = 0; i < 12; i++) {
            MessageExtBrokerInner more = message("Plain", 0, "127.0.0.1", "127.0.0.1", "more-" + i + repeat('x', 100));
            more.setKeys("more" + i);
            put(store, names, "more_" + i, more);
        }
    }

    private static String repeat(char c, int count) {
        char[] chars = new char[count];
        java.util.Arrays.fill(chars, c);
        return new String(chars);
    }

    private static void put(DefaultMessageStore store, List<String> names, String name, MessageExtBrokerInner message) {
        now += 1000;
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = store.putMessage(message);
        check(result.isOk(), name + " " + result);
        names.add(name);
    }

    private static MessageExtBrokerInner message(String topic, int queueId, String born, String stored, String body) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, topic, queueId, born, stored, body.getBytes(StandardCharsets.UTF_8));
        return message;
    }

    private static void fill(MessageExt message, String topic, int queueId, String born, String stored, byte[] body) throws Exception {
        MessageAccessor.setProperties(message, new java.util.HashMap<>());
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornTimestamp(Bodies.TIME - 500);
        message.setBornHost(new InetSocketAddress(InetAddress.getByName(born), 50505));
        message.setStoreHost(new InetSocketAddress(InetAddress.getByName(stored), 10911));
    }

    private static List<Object> records(DefaultMessageStore store, List<String> names, long end, boolean crc) {
        List<Object> rows = new ArrayList<>();
        int index = 0;
        for (long offset = 0; offset < end;) {
            SelectMappedBufferResult whole = store.getCommitLog().getData(offset);
            ByteBuffer buffer = whole.getByteBuffer();
            DispatchRequest request = store.getCommitLog().checkMessageAndReturnSize(buffer.duplicate(), true, false, true);
            check(request.isSuccess(), "record at " + offset);
            if (request.getMsgSize() == 0) {
                offset += LOG_FILE_SIZE - offset % LOG_FILE_SIZE;
                whole.release();
                continue;
            }
            byte[] bytes = new byte[request.getMsgSize()];
            buffer.duplicate().get(bytes);
            MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(bytes), true, false);
            Map<String, Object> row = Out.map("name", names.get(index++), "bytes", Out.hex(bytes), "topic", request.getTopic(),
                "queueId", request.getQueueId(), "flag", message.getFlag(), "sysFlag", request.getSysFlag(),
                "queueOffset", message.getQueueOffset(), "physicalOffset", request.getCommitLogOffset(), "size", request.getMsgSize(),
                "bornTimestamp", message.getBornTimestamp(), "bornHost", Out.hex(message.getBornHostBytes().array()),
                "storeTimestamp", request.getStoreTimestamp(), "storeHost", Out.hex(message.getStoreHostBytes().array()),
                "reconsumeTimes", message.getReconsumeTimes(), "preparedTransactionOffset", request.getPreparedTransactionOffset(),
                "bodyCrc", message.getBodyCRC(), "body", Out.hex(message.getBody()), "tagsCode", request.getTagsCode(),
                "keys", request.getKeys(), "uniqKey", request.getUniqKey(), "msgId", message.getMsgId(),
                "properties", request.getPropertiesMap());
            rows.add(row);
            offset += request.getMsgSize();
            whole.release();
        }
        check(index == names.size(), "names");
        return rows;
    }

    private static Map<String, Object> files(Path root) throws Exception {
        Map<String, Object> result = new LinkedHashMap<>();
        for (Path file : Out.files(root)) {
            String name = root.relativize(file).toString();
            if (name.startsWith("rocksdb") || name.startsWith("compaction") || name.equals("abort.bak") || name.contains("/LOCK") || name.equals("lock")) {
                continue;
            }
            byte[] bytes = Files.readAllBytes(file);
            // An index file is named by the wall clock of its making; its name means nothing.
            String shown = name.startsWith("index/") ? "index/0" : name;
            result.put(shown, Out.map("size", bytes.length, "bytes", Out.hex(Out.trimmed(bytes))));
        }
        return result;
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException(what);
        }
    }
}
