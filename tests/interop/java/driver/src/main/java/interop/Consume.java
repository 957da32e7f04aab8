package interop;

import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * consume --namesrv A --topic T --group G [--tags EXPR] [--orderly true] [--broadcast true] [--expect N] [--idle-ms 0 (off)] [--limit-ms 60000]
 * [--fail-times K (each message fails K times before it is taken)] [--from first|last] [--instance NAME] [--max-retries M]
 *
 * Ends when N messages were taken, when none came for idle-ms, or at limit-ms. Shuts the consumer down, which commits its offsets.
 */
final class Consume {
    private static final AtomicInteger TAKEN = new AtomicInteger();
    private static final AtomicLong LAST_NANOS = new AtomicLong(System.nanoTime());
    private static final Map<String, Integer> FAILED = new ConcurrentHashMap<>();

    private Consume() {
    }

    static void push(Options options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.need("group"));
        consumer.setNamesrvAddr(options.need("namesrv"));
        consumer.setPollNameServerInterval(1000);
        consumer.setInstanceName(options.text("instance", "DEFAULT"));
        consumer.setConsumeFromWhere(options.text("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setMaxReconsumeTimes(options.number("max-retries", -1));
        if (options.is("broadcast")) {
            broadcast(consumer);
        }
        consumer.subscribe(options.need("topic"), options.text("tags", "*"));
        int failTimes = options.number("fail-times", 0);
        if (options.is("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                taken(messages, failTimes) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                taken(messages, failTimes) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        Lines.print("event", "started");
        await(options);
        consumer.shutdown();
        Lines.print("event", "done", "count", TAKEN.get());
    }

    static void lite(Options options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.need("group"));
        consumer.setNamesrvAddr(options.need("namesrv"));
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(options.need("topic"), options.text("tags", "*"));
        consumer.start();
        Lines.print("event", "started");
        long end = System.nanoTime() + options.number("limit-ms", 60000) * 1000000L;
        while (System.nanoTime() < end && TAKEN.get() < options.number("expect", Integer.MAX_VALUE)) {
            taken(consumer.poll(500), 0);
            consumer.commitSync();
        }
        consumer.shutdown();
        Lines.print("event", "done", "count", TAKEN.get());
    }

    private static boolean taken(List<MessageExt> messages, int failTimes) {
        for (MessageExt message : messages) {
            try {
                if (FAILED.merge(message.getMsgId(), 1, Integer::sum) <= failTimes) {
                    Lines.print("event", "refused", "msgId", message.getMsgId(), "reconsumeTimes", message.getReconsumeTimes());
                    return false;
                }
                Lines.message(message);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            LAST_NANOS.set(System.nanoTime());
            TAKEN.incrementAndGet();
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

    private static void await(Options options) throws InterruptedException {
        long idleNanos = options.number("idle-ms", 0) * 1000000L;
        long end = System.nanoTime() + options.number("limit-ms", 60000) * 1000000L;
        int expect = options.number("expect", Integer.MAX_VALUE);
        LAST_NANOS.set(System.nanoTime());
        while (System.nanoTime() < end && TAKEN.get() < expect) {
            if (idleNanos > 0 && System.nanoTime() - LAST_NANOS.get() > idleNanos) {
                return;
            }
            Thread.sleep(50);
        }
    }
}
