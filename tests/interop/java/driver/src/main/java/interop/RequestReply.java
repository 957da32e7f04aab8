package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** request --topic T --count N, answered by reply --topic T --group G --expect N. */
final class RequestReply {
    private RequestReply() {
    }

    static void request(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group", "interop-requester"), Login.hook());
        producer.setNamesrvAddr(options.need("namesrv"));
        producer.setVipChannelEnabled(options.is("vip"));
        producer.setPollNameServerInterval(1000);
        producer.start();
        for (int i = 0; i < options.number("count", 1); i++) {
            byte[] body = ("request-" + i).getBytes(StandardCharsets.UTF_8);
            Message answer = producer.request(new Message(options.need("topic"), body), options.number("timeout-ms", 10000));
            options.print("event", "reply", "sequence", i, "body", new String(answer.getBody(), StandardCharsets.UTF_8));
        }
        producer.shutdown();
        options.print("event", "done");
    }

    static void reply(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-replier", Login.hook());
        producer.setNamesrvAddr(options.need("namesrv"));
        producer.setVipChannelEnabled(options.is("vip"));
        producer.setPollNameServerInterval(1000);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.need("group"), Login.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(options.need("namesrv"));
        consumer.setVipChannelEnabled(options.is("vip"));
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.need("topic"), "*");
        AtomicInteger answered = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String text = new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, ("answer to " + text).getBytes(StandardCharsets.UTF_8)), 3000);
                    answered.incrementAndGet();
                } catch (Exception e) {
                    options.print("event", "failed", "class", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        options.print("event", "started");
        long end = System.nanoTime() + options.number("limit-ms", 60000) * 1000000L;
        while (!options.stopped() && System.nanoTime() < end && answered.get() < options.number("expect", 1)) {
            Thread.sleep(50);
        }
        consumer.shutdown();
        producer.shutdown();
        options.print("event", "done", "count", answered.get());
    }
}
