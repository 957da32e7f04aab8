package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * transact --namesrv A --topic T --group G --states commit,rollback,unknown (one message each, body = its number and state)
 * [--answer commit|rollback|unknown (to every check)] [--hold true (stay until told to stop)]
 */
final class Transact {
    private Transact() {
    }

    static void run(Options options) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(
            null, options.need("group"), Login.hook(), options.is("trace"), null);
        producer.setNamesrvAddr(options.need("namesrv"));
        producer.setVipChannelEnabled(options.is("vip"));
        producer.setInstanceName(options.text("instance", "DEFAULT"));
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return state((String) state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String answer = options.text("answer", "unknown");
                options.print("event", "check", "body", new String(message.getBody(), StandardCharsets.UTF_8), "msgId", message.getMsgId(),
                    "transactionId", message.getTransactionId(), "topic", message.getTopic(),
                    "times", message.getUserProperty("TRANSACTION_CHECK_TIMES"));
                return state(answer);
            }
        });
        producer.start();
        try {
            options.print("event", "started");
            String[] states = options.text("states", "").split(",");
            for (int i = 0; i < states.length && !states[i].isEmpty(); i++) {
                Message message = new Message(options.need("topic"), (i + ":" + states[i]).getBytes(StandardCharsets.UTF_8));
                TransactionSendResult result = producer.sendMessageInTransaction(message, states[i]);
                options.print("event", "sent", "body", i + ":" + states[i], "status", result.getSendStatus().name(), "msgId", result.getMsgId(),
                    "transactionId", result.getTransactionId(), "state", result.getLocalTransactionState().name());
            }
            if (options.is("hold")) {
                // A producer without a send knows no broker: it would not be found by a check.
                producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
                while (!options.stopped()) {
                    TimeUnit.MILLISECONDS.sleep(50);
                }
            }
            options.print("event", "done");
        } finally {
            producer.shutdown();
        }
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
