package interop;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/**
 * timed --namesrv A --topic T --delays-ms 1000,2000 (one message each, body = its delay) [--property TIMER_DELAY_MS|TIMER_DELAY_SEC|TIMER_DELIVER_MS]
 * [--recall true (each message is recalled at once; clients of 5.4 and later)]
 */
final class Timed {
    private Timed() {
    }

    static void run(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(
            options.text("group", "interop-timed"), Login.hook(), options.is("trace"), null);
        producer.setNamesrvAddr(options.need("namesrv"));
        producer.setVipChannelEnabled(options.is("vip"));
        producer.setPollNameServerInterval(1000);
        producer.start();
        try {
            String property = options.text("property", "TIMER_DELAY_MS");
            for (String delay : options.need("delays-ms").split(",")) {
                Message message = new Message(options.need("topic"), delay.getBytes(StandardCharsets.UTF_8));
                MessageAccessor.putProperty(message, property, value(property, Long.parseLong(delay)));
                SendResult result = producer.send(message);
                options.print("event", "sent", "body", delay, "status", result.getSendStatus().name(), "msgId", result.getMsgId());
                if (options.is("recall")) {
                    // By name: the clients before 5.4 have neither method.
                    Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
                    Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                        .invoke(producer, options.need("topic"), handle);
                    options.print("event", "recalled", "msgId", id);
                }
            }
            options.print("event", "done");
        } finally {
            producer.shutdown();
        }
    }

    private static String value(String property, long delayMs) {
        switch (property) {
            case "TIMER_DELAY_SEC":
                return String.valueOf(delayMs / 1000);
            case "TIMER_DELIVER_MS":
                return String.valueOf(System.currentTimeMillis() + delayMs);
            default:
                return String.valueOf(delayMs);
        }
    }
}
