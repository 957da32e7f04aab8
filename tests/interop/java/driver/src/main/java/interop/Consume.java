package interop;

import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * consume --namesrv A --topic T --group G [--tags EXPR | --sql EXPR] [--orderly true] [--broadcast true] [--expect N] [--idle-ms 0 (off)] [--limit-ms 60000]
 * [--fail-times K (each message fails K times before it is taken)] [--from first|last] [--instance NAME] [--max-retries M]
 * [--pop true (balancing is the broker's)]
 *
 * Ends when N messages were taken, when none came for idle-ms, or at limit-ms. Shuts the consumer down, which commits its offsets.
 * lite-consume takes the same of topic, group, tags, sql, expect and limit-ms.
 */
final class Consume {
    private final Options options;
    private final int failTimes;
    private final AtomicInteger taken = new AtomicInteger();
    private final AtomicLong lastNanos = new AtomicLong(System.nanoTime());
    private final Map<String, Integer> failed = new ConcurrentHashMap<>();

    Consume(Options options) {
        this.options = options;
        this.failTimes = options.number("fail-times", 0);
    }

    void push() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.need("group"), Login.hook(), new AllocateMessageQueueAveragely(), options.is("trace"), null);
        consumer.setNamesrvAddr(options.need("namesrv"));
        consumer.setVipChannelEnabled(options.is("vip"));
        consumer.setPollNameServerInterval(1000);
        // A broker that came back refuses pulls until it knows the group again, by default for up to 30 s.
        consumer.setHeartbeatBrokerInterval(2000);
        consumer.setInstanceName(options.text("instance", "DEFAULT"));
        consumer.setConsumeFromWhere(options.text("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setMaxReconsumeTimes(options.number("max-retries", -1));
        if (options.is("broadcast")) {
            broadcast(consumer);
        }
        if (options.is("pop")) {
            leaveBalancingToTheBroker(consumer);
        }
        if (options.text("sql", "").isEmpty()) {
            consumer.subscribe(options.need("topic"), options.text("tags", "*"));
        } else {
            consumer.subscribe(options.need("topic"), MessageSelector.bySql(options.need("sql")));
        }
        if (options.is("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                take(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        options.print("event", "started", "client", consumer.buildMQClientId());
        await();
        consumer.shutdown();
        options.print("event", "done", "count", taken.get());
    }

    void lite() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.need("group"), Login.hook());
        consumer.setNamesrvAddr(options.need("namesrv"));
        consumer.setVipChannelEnabled(options.is("vip"));
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (options.text("sql", "").isEmpty()) {
            consumer.subscribe(options.need("topic"), options.text("tags", "*"));
        } else {
            consumer.subscribe(options.need("topic"), MessageSelector.bySql(options.need("sql")));
        }
        consumer.start();
        options.print("event", "started", "client", consumer.buildMQClientId());
        long end = System.nanoTime() + options.number("limit-ms", 60000) * 1000000L;
        while (!options.stopped() && System.nanoTime() < end && taken.get() < options.number("expect", Integer.MAX_VALUE)) {
            take(consumer.poll(500));
            consumer.commitSync();
        }
        consumer.shutdown();
        options.print("event", "done", "count", taken.get());
    }

    private boolean take(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            try {
                if (failed.merge(message.getMsgId(), 1, Integer::sum) <= failTimes) {
                    options.print("event", "refused", "msgId", message.getMsgId(), "topic", message.getTopic(),
                        "reconsumeTimes", message.getReconsumeTimes());
                    return false;
                }
                options.message(message);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            lastNanos.set(System.nanoTime());
            taken.incrementAndGet();
        }
        return true;
    }

    /** The class of the message model lives in another package in 4.9 than in 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    /** Only 5.x has it: the broker then says whether the group pulls or pops. */
    private static void leaveBalancingToTheBroker(DefaultMQPushConsumer consumer) throws Exception {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
    }

    private void await() throws InterruptedException {
        long idleNanos = options.number("idle-ms", 0) * 1000000L;
        long end = System.nanoTime() + options.number("limit-ms", 60000) * 1000000L;
        int expect = options.number("expect", Integer.MAX_VALUE);
        lastNanos.set(System.nanoTime());
        while (!options.stopped() && System.nanoTime() < end && taken.get() < expect) {
            if (idleNanos > 0 && System.nanoTime() - lastNanos.get() > idleNanos) {
                return;
            }
            Thread.sleep(50);
        }
    }
}
