package interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Sends messages of each kind and consumes them by the 5.x client. Prints one line for each thing that was done. */
public final class Clients {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int COUNT = 20;

    private final ClientConfiguration configuration;

    private Clients(String endpoints) {
        // The default of 3 s is over sooner than a loaded machine answers.
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(20)).build();
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        for (int at = 1; at < arguments.length; at++) {
            clients.run(arguments[at]);
            System.out.println("done " + arguments[at]);
            System.out.flush();
        }
        System.exit(0);
    }

    private void run(String what) throws Exception {
        if (what.equals("NORMAL") || what.equals("FIFO") || what.equals("DELAY") || what.equals("PRIORITY")) {
            send(what);
        } else if (what.equals("TRANSACTION")) {
            transactions();
        } else if (what.startsWith("push:")) {
            push(what.substring(5));
        } else {
            simple(what.substring(7));
        }
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setTag("A").setKeys(body)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String bodyOf(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private void send(String topic) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics(topic).build()) {
            for (int number = 0; number < COUNT; number++) {
                MessageBuilder one = message(topic, topic + "-" + number);
                if (topic.equals("FIFO")) {
                    one.setMessageGroup("group-" + number % 3);
                } else if (topic.equals("DELAY")) {
                    one.setDeliveryTimestamp(System.currentTimeMillis() + 1500);
                } else if (topic.equals("PRIORITY")) {
                    one.setPriority(number % 4);
                }
                producer.send(one.build());
            }
        }
    }

    private void transactions() throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        try (Producer producer = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics("TRANSACTION")
                .setTransactionChecker(view -> {
                    asked.countDown();
                    return TransactionResolution.COMMIT;
                }).build()) {
            for (int number = 0; number < COUNT; number++) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message("TRANSACTION", "TRANSACTION-" + number).build(), transaction);
                if (number > 0) {
                    transaction.commit();
                }
            }
            Transaction rolled = producer.beginTransaction();
            producer.send(message("TRANSACTION", "rolled back").build(), rolled);
            rolled.rollback();
            if (!asked.await(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no check-back came");
            }
            Thread.sleep(500);
        }
    }

    /** Fails each message once, so that it comes again. */
    private void push(String topic) throws Exception {
        Set<String> failed = ConcurrentHashMap.newKeySet();
        Set<String> done = ConcurrentHashMap.newKeySet();
        CountDownLatch all = new CountDownLatch(COUNT);
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(configuration).setConsumerGroup("push-" + topic)
                .setSubscriptionExpressions(Collections.singletonMap(topic,
                    new FilterExpression("A", FilterExpressionType.TAG)))
                .setMessageListener(view -> {
                    String body = bodyOf(view);
                    if (body.endsWith("-7") && failed.add(body)) {
                        return ConsumeResult.FAILURE;
                    }
                    if (done.add(body)) {
                        all.countDown();
                    }
                    return ConsumeResult.SUCCESS;
                }).build()) {
            if (!all.await(40, TimeUnit.SECONDS)) {
                throw new IllegalStateException("came: " + done);
            }
        }
        if (failed.size() != 1) {
            throw new IllegalStateException("failed: " + failed);
        }
    }

    private void simple(String topic) throws Exception {
        Set<String> done = ConcurrentHashMap.newKeySet();
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration).setConsumerGroup("simple-" + topic)
                .setAwaitDuration(Duration.ofSeconds(6))
                .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build()) {
            for (int round = 0; round < 10 && done.size() < COUNT; round++) {
                List<MessageView> found = consumer.receive(16, Duration.ofSeconds(20));
                for (MessageView view : found) {
                    consumer.changeInvisibleDuration(view, Duration.ofSeconds(30));
                    consumer.ack(view);
                    done.add(bodyOf(view));
                }
            }
        }
        if (done.size() != COUNT) {
            throw new IllegalStateException("came: " + done);
        }
    }
}
