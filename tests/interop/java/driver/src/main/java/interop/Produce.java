package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * produce --namesrv A --topic T --count N [--size B] [--from I] [--tags a,b] [--keys prefix] [--properties true] [--mode sync|async|oneway]
 * [--batch K] [--delay LEVEL] [--shards S (ordered: queue by sequence modulo S)] [--compress BYTES] [--carry-on true]
 * [--pause-ms MS (between two sends)] [--max-size BYTES (the client's own limit)] [--vip true (the VIP channel; every command takes it)]
 * [--trace true (write traces; consume, transact and timed take it, too)]
 */
final class Produce {
    private Produce() {
    }

    static void run(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(
            options.text("group", "interop-producer"), Login.hook(), options.is("trace"), null);
        producer.setNamesrvAddr(options.need("namesrv"));
        producer.setVipChannelEnabled(options.is("vip"));
        producer.setPollNameServerInterval(1000);
        producer.setSendMsgTimeout(options.number("timeout-ms", 3000));
        producer.setMqClientApiTimeout(options.number("timeout-ms", 3000));
        producer.setRetryTimesWhenSendFailed(options.number("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(options.number("compress", 4096));
        producer.setMaxMessageSize(options.number("max-size", 4 * 1024 * 1024));
        producer.start();
        try {
            send(producer, options);
        } finally {
            producer.shutdown();
        }
    }

    private static void send(DefaultMQProducer producer, Options options) throws Exception {
        int from = options.number("from", 0);
        int end = from + options.number("count", 1);
        int batch = options.number("batch", 1);
        String mode = options.text("mode", "sync");
        int pause = options.number("pause-ms", 0);
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch pending = new CountDownLatch(end - from);
        for (int sequence = from; sequence < end && !options.stopped(); sequence += batch) {
            if (pause > 0) {
                Thread.sleep(pause);
            }
            try {
                if (batch > 1) {
                    List<Message> messages = new ArrayList<>();
                    for (int i = sequence; i < Math.min(end, sequence + batch); i++) {
                        messages.add(message(options, i));
                    }
                    sent(options, sequence, messages, producer.send(messages));
                } else if (mode.equals("oneway")) {
                    producer.sendOneway(message(options, sequence));
                } else if (mode.equals("async")) {
                    async(producer, options, sequence, failed, pending);
                } else {
                    one(producer, options, sequence);
                }
            } catch (Exception e) {
                failed.incrementAndGet();
                options.print("event", "failed", "sequence", sequence, "class", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
                if (!options.is("carry-on")) {
                    throw e;
                }
            }
        }
        if (mode.equals("async") && !pending.await(options.number("wait-ms", 60000), TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("async sends unanswered: " + pending.getCount());
        }
        if (mode.equals("oneway")) {
            // Nothing answers a oneway send: let the channel drain before it is closed.
            Thread.sleep(500);
        }
        options.print("event", "done", "failed", failed.get());
    }

    private static void one(DefaultMQProducer producer, Options options, int sequence) throws Exception {
        Message message = message(options, sequence);
        int shards = options.number("shards", 0);
        SendResult result = shards > 0
            ? producer.send(message, (queues, m, arg) -> queues.get((Integer) arg % queues.size()), sequence % shards)
            : producer.send(message);
        sent(options, sequence, Arrays.asList(message), result);
    }

    private static void async(DefaultMQProducer producer, Options options, int sequence, AtomicInteger failed, CountDownLatch pending)
        throws Exception {
        Message message = message(options, sequence);
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                try {
                    sent(options, sequence, Arrays.asList(message), result);
                } catch (Exception e) {
                    failed.incrementAndGet();
                }
                pending.countDown();
            }

            @Override
            public void onException(Throwable e) {
                failed.incrementAndGet();
                options.print("event", "failed", "sequence", sequence, "class", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
                pending.countDown();
            }
        });
    }

    private static void sent(Options options, int sequence, List<Message> messages, SendResult result) throws Exception {
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < messages.size(); i++) {
            options.print("event", "sent", "sequence", sequence + i, "status", result.getSendStatus().name(), "msgId", ids[Math.min(i, ids.length - 1)],
                "offsetMsgId", offsetIds[Math.min(i, offsetIds.length - 1)], "brokerName", result.getMessageQueue().getBrokerName(),
                "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset() + i,
                "tags", messages.get(i).getTags(), "keys", messages.get(i).getKeys(),
                "bodyHash", Lines.hash(messages.get(i).getBody()));
        }
    }

    private static Message message(Options options, int sequence) {
        byte[] head = (sequence + ":").getBytes(StandardCharsets.UTF_8);
        byte[] body = Arrays.copyOf(head, Math.max(head.length, options.number("size", 64)));
        for (int i = head.length; i < body.length; i++) {
            body[i] = (byte) ('a' + (sequence + i) % 26);
        }
        Message message = new Message(options.need("topic"), body);
        String tags = options.text("tags", "");
        if (!tags.isEmpty()) {
            String[] all = tags.split(",");
            message.setTags(all[sequence % all.length]);
        }
        String keys = options.text("keys", "");
        if (!keys.isEmpty()) {
            message.setKeys(keys + sequence + " " + keys + "even" + sequence / 2);
        }
        if (options.is("properties")) {
            message.putUserProperty("sequence", String.valueOf(sequence));
            message.putUserProperty("text", "值😀 " + sequence);
            message.setFlag(sequence);
        }
        if (options.number("delay", 0) > 0) {
            message.setDelayTimeLevel(options.number("delay", 0));
        }
        return message;
    }
}
