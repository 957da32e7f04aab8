package golden;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.GroupList;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchResponseBody;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicList;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Bodies in Apache's JSON dialect, as RemotingSerializable writes them. */
final class Bodies {
    static final long TIME = 1700000000000L;

    private Bodies() {
    }

    static void write() throws Exception {
        Map<String, byte[]> lines = new LinkedHashMap<>();
        for (Map.Entry<String, Object> entry : objects().entrySet()) {
            byte[] once = RemotingSerializable.encode(entry.getValue());
            Object again = RemotingSerializable.decode(once, entry.getValue().getClass());
            byte[] twice = RemotingSerializable.encode(again);
            if (once.length != twice.length) {
                throw new IllegalStateException(entry.getKey() + " does not survive Apache's own reading");
            }
            lines.put(entry.getKey(), once);
            Out.write("bodies/" + entry.getKey() + ".json", once);
        }
        lines.put("register_broker_compressed", register().encode(true));
        Out.lines("bodies.hex", lines);
    }

    private static Map<String, Object> objects() {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("route", route());
        all.put("heartbeat", heartbeat());
        all.put("register_broker", register());
        all.put("topic_stats", topicStats());
        all.put("consume_stats", consumeStats());
        all.put("cluster_info", clusterInfo());
        all.put("topic_config", topicConfig());
        all.put("subscription_group", subscriptionGroup());
        all.put("lock_batch", lockBatch());
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.setLockOKMQSet(new HashSet<>(Arrays.asList(queue(1))));
        all.put("lock_batch_response", locked);
        GetConsumerListByGroupResponseBody ids = new GetConsumerListByGroupResponseBody();
        ids.setConsumerIdList(Arrays.asList("10.0.0.1@100", "10.0.0.2@200"));
        all.put("consumer_list", ids);
        all.put("consumer_connection", consumerConnection());
        KVTable table = new KVTable();
        table.setTable(new HashMap<>(java.util.Collections.singletonMap("brokerVersionDesc", "V5_5_0")));
        all.put("kv_table", table);
        TopicList topics = new TopicList();
        topics.setTopicList(new HashSet<>(Arrays.asList("TopicTest", "%RETRY%group")));
        topics.setBrokerAddr("10.0.0.1:10911");
        all.put("topic_list", topics);
        GroupList groups = new GroupList();
        groups.setGroupList(new HashSet<>(Arrays.asList("group")));
        all.put("group_list", groups);
        ResetOffsetBody reset = new ResetOffsetBody();
        Map<MessageQueue, Long> offsets = new HashMap<>();
        offsets.put(queue(0), 5L);
        offsets.put(queue(1), 4294967296L);
        reset.setOffsetTable(offsets);
        all.put("reset_offset", reset);
        all.put("data_version", version(12));
        return all;
    }

    static MessageQueue queue(int id) {
        return new MessageQueue("TopicTest", "broker-a", id);
    }

    static DataVersion version(long counter) {
        DataVersion version = new DataVersion();
        version.setTimestamp(TIME);
        version.setCounter(new AtomicLong(counter));
        version.setStateVersion(3);
        return version;
    }

    static TopicRouteData route() {
        TopicRouteData route = new TopicRouteData();
        QueueData queues = new QueueData();
        queues.setBrokerName("broker-a");
        queues.setReadQueueNums(4);
        queues.setWriteQueueNums(8);
        queues.setPerm(6);
        queues.setTopicSysFlag(0);
        route.setQueueDatas(Arrays.asList(queues));
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "10.0.0.1:10911");
        addresses.put(1L, "10.0.0.2:10911");
        addresses.put(4294967297L, "[2001:db8::1]:10911");
        route.setBrokerDatas(Arrays.asList(new BrokerData("DefaultCluster", "broker-a", addresses)));
        route.setOrderTopicConf("broker-a:4");
        route.setFilterServerTable(new HashMap<>());
        return route;
    }

    static HeartbeatData heartbeat() {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@100#x");
        ProducerData producer = new ProducerData();
        producer.setGroupName("producer");
        heartbeat.getProducerDataSet().add(producer);
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("group");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.getSubscriptionDataSet().add(subscription());
        heartbeat.getConsumerDataSet().add(consumer);
        heartbeat.setHeartbeatFingerprint(0);
        return heartbeat;
    }

    private static SubscriptionData subscription() {
        SubscriptionData subscription = new SubscriptionData("TopicTest", "TagA || 标签😀");
        subscription.setSubVersion(TIME);
        subscription.getTagsSet().addAll(Arrays.asList("TagA", "标签😀"));
        subscription.getCodeSet().addAll(Arrays.asList("TagA".hashCode(), "标签😀".hashCode()));
        return subscription;
    }

    static ConcurrentHashMap<String, TopicConfig> topics() {
        ConcurrentHashMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        TopicConfig plain = new TopicConfig("TopicTest", 4, 8, 6);
        TopicConfig ordered = new TopicConfig("Ordered", 1, 1, 6);
        ordered.setOrder(true);
        ordered.setTopicSysFlag(1);
        TopicConfig typed = new TopicConfig("Typed", 2, 2, 4);
        typed.getAttributes().put("message.type", "FIFO");
        for (TopicConfig config : Arrays.asList(plain, ordered, typed)) {
            table.put(config.getTopicName(), config);
        }
        return table;
    }

    static RegisterBrokerBody register() {
        RegisterBrokerBody body = new RegisterBrokerBody();
        body.getTopicConfigSerializeWrapper().setTopicConfigTable(topics());
        body.getTopicConfigSerializeWrapper().setDataVersion(version(2));
        body.getTopicConfigSerializeWrapper().setMappingDataVersion(version(0));
        body.setFilterServerList(Arrays.asList("10.0.0.9:1"));
        return body;
    }

    private static TopicConfigSerializeWrapper topicConfig() {
        TopicConfigSerializeWrapper wrapper = new TopicConfigSerializeWrapper();
        wrapper.setTopicConfigTable(topics());
        wrapper.setDataVersion(version(2));
        return wrapper;
    }

    private static SubscriptionGroupWrapper subscriptionGroup() {
        SubscriptionGroupWrapper wrapper = new SubscriptionGroupWrapper();
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName("group");
        config.setConsumeBroadcastEnable(false);
        config.setRetryMaxTimes(3);
        wrapper.getSubscriptionGroupTable().put("group", config);
        wrapper.setDataVersion(version(1));
        return wrapper;
    }

    private static TopicStatsTable topicStats() {
        TopicStatsTable table = new TopicStatsTable();
        Map<MessageQueue, TopicOffset> offsets = new HashMap<>();
        for (int id = 0; id < 2; id++) {
            TopicOffset offset = new TopicOffset();
            offset.setMinOffset(id);
            offset.setMaxOffset(100 + id);
            offset.setLastUpdateTimestamp(TIME + id);
            offsets.put(queue(id), offset);
        }
        table.setOffsetTable(offsets);
        return table;
    }

    private static ConsumeStats consumeStats() {
        ConsumeStats stats = new ConsumeStats();
        Map<MessageQueue, OffsetWrapper> offsets = new HashMap<>();
        OffsetWrapper offset = new OffsetWrapper();
        offset.setBrokerOffset(100);
        offset.setConsumerOffset(90);
        offset.setPullOffset(95);
        offset.setLastTimestamp(TIME);
        offsets.put(queue(0), offset);
        stats.setOffsetTable(offsets);
        stats.setConsumeTps(1.5);
        return stats;
    }

    private static ClusterInfo clusterInfo() {
        ClusterInfo info = new ClusterInfo();
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "10.0.0.1:10911");
        addresses.put(1L, "10.0.0.2:10911");
        Map<String, BrokerData> brokers = new HashMap<>();
        brokers.put("broker-a", new BrokerData("DefaultCluster", "broker-a", addresses));
        info.setBrokerAddrTable(brokers);
        Map<String, Set<String>> clusters = new HashMap<>();
        clusters.put("DefaultCluster", new HashSet<>(Arrays.asList("broker-a")));
        info.setClusterAddrTable(clusters);
        return info;
    }

    private static LockBatchRequestBody lockBatch() {
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setConsumerGroup("group");
        body.setClientId("10.0.0.1@100");
        body.getMqSet().addAll(Arrays.asList(queue(0), queue(1)));
        return body;
    }

    private static ConsumerConnection consumerConnection() {
        ConsumerConnection body = new ConsumerConnection();
        Connection connection = new Connection();
        connection.setClientId("10.0.0.1@100");
        connection.setClientAddr("10.0.0.1:55555");
        connection.setLanguage(LanguageCode.JAVA);
        connection.setVersion(500);
        body.getConnectionSet().add(connection);
        body.getSubscriptionTable().put("TopicTest", subscription());
        body.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        body.setMessageModel(MessageModel.CLUSTERING);
        body.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return body;
    }
}
