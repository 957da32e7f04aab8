package golden;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.schedule.ScheduleMessageService;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** config/*.json as a broker's own managers persist them. */
final class Configs {
    private Configs() {
    }

    static void write(Path scratch) throws Exception {
        Path root = scratch.resolve("broker");
        BrokerConfig brokerConfig = new BrokerConfig();
        brokerConfig.setBrokerName("broker-a");
        brokerConfig.setBrokerClusterName("DefaultCluster");
        brokerConfig.setBrokerIP1("127.0.0.1");
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        storeConfig.setStorePathRootDir(root.toString());
        storeConfig.setStorePathCommitLog(root.resolve("commitlog").toString());
        BrokerController controller = new BrokerController(brokerConfig, new NettyServerConfig(), new NettyClientConfig(), storeConfig,
            new org.apache.rocketmq.auth.config.AuthConfig());
        for (TopicConfig config : Bodies.topics().values()) {
            controller.getTopicConfigManager().getTopicConfigTable().put(config.getTopicName(), config);
        }
        controller.getTopicConfigManager().getDataVersion().assignNewOne(Bodies.version(3));
        controller.getTopicConfigManager().persist();
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("group");
        group.setRetryMaxTimes(3);
        group.setConsumeMessageOrderly(true);
        group.getAttributes().put("priority.factor", "2");
        controller.getSubscriptionGroupManager().getSubscriptionGroupTable().put("group", group);
        controller.getSubscriptionGroupManager().getForbiddenTable().computeIfAbsent("group", k -> new java.util.concurrent.ConcurrentHashMap<>()).put("TopicTest", 1);
        controller.getSubscriptionGroupManager().getDataVersion().assignNewOne(Bodies.version(4));
        controller.getSubscriptionGroupManager().persist();
        for (int queueId : Arrays.asList(0, 1, 7)) {
            controller.getConsumerOffsetManager().commitOffset("client", "group", "TopicTest", queueId, 4294967296L + queueId);
        }
        controller.getConsumerOffsetManager().commitOffset("client", "group", "%RETRY%group", 0, 5);
        controller.getConsumerOffsetManager().getDataVersion().assignNewOne(Bodies.version(5));
        controller.getConsumerOffsetManager().persist();
        ScheduleMessageService schedule = controller.getScheduleMessageService();
        schedule.getOffsetTable().put(1, 10L);
        schedule.getOffsetTable().put(3, 4294967297L);
        schedule.getOffsetTable().put(18, 0L);
        schedule.getDataVersion().assignNewOne(Bodies.version(6));
        Out.write("config/delayOffset.json", schedule.encode(true).getBytes(StandardCharsets.UTF_8));
        filters(controller);
        for (String name : Arrays.asList("topics.json", "subscriptionGroup.json", "consumerOffset.json")) {
            Out.write("config/" + name, Files.readAllBytes(root.resolve("config").resolve(name)));
        }
    }

    /** Three filters, one of a group that has gone; the times are made to stand still. */
    private static void filters(BrokerController controller) throws Exception {
        ConsumerFilterManager filters = controller.getConsumerFilterManager();
        filters.register("TopicTest", "group", "a > 5 AND b = 'it''s'", "SQL92", 1700000000001L);
        filters.register("TopicTest", "another_group_with_a_long_name", "TRUE", "SQL92", 1700000000002L);
        filters.register("OrderTopic", "group", "region IN ('hangzhou', '\u676d\u5dde')", "SQL92", 1700000000003L);
        long born = 1700000000000L;
        for (String topic : Arrays.asList("TopicTest", "OrderTopic")) {
            for (ConsumerFilterData data : filters.get(topic)) {
                data.setBornTime(born++);
            }
        }
        // Dead, and not yet for so long that it is dropped when written.
        filters.get("OrderTopic", "group").setDeadTime(4000000000000L);
        Out.write("consumerFilter.json", filters.encode(true).getBytes(StandardCharsets.UTF_8));
    }
}
