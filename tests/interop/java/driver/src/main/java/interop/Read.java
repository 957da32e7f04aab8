package interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What can be read without a running consumer group: every message, offsets, one message by id, messages by key. */
final class Read {
    private interface Work {
        void with(DefaultMQPullConsumer consumer) throws Exception;
    }

    private Read() {
    }

    /** pull-all --namesrv A --topic T [--tags EXPR] [--batch 32] */
    static void pullAll(Options options) throws Exception {
        with(options, consumer -> {
            long count = 0;
            for (MessageQueue queue : queues(consumer, options)) {
                count += drain(consumer, queue, options);
            }
            options.print("event", "done", "count", count);
        });
    }

    private static long drain(DefaultMQPullConsumer consumer, MessageQueue queue, Options options) throws Exception {
        long count = 0;
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, options.text("tags", "*"), offset, options.number("batch", 32), 20000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    options.message(message);
                    count++;
                }
            } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG) {
                throw new IllegalStateException("no message at " + offset + " of " + queue + " that ends at " + end);
            }
            offset = result.getNextBeginOffset();
        }
        return count;
    }

    /** offsets --namesrv A --topic T [--group G] [--time MS] */
    static void offsets(Options options) throws Exception {
        with(options, consumer -> {
            for (MessageQueue queue : queues(consumer, options)) {
                long time = Long.parseLong(options.text("time", "0"));
                options.print("event", "offsets", "brokerName", queue.getBrokerName(), "queueId", queue.getQueueId(),
                    "min", consumer.minOffset(queue), "max", consumer.maxOffset(queue),
                    "consumer", consumer.fetchConsumeOffset(queue, true),
                    "search", consumer.searchOffset(queue, time),
                    "earliest", consumer.earliestMsgStoreTime(queue));
            }
            options.print("event", "done");
        });
    }

    /** view --namesrv A --topic T --id OFFSET_OR_UNIQUE_ID */
    static void view(Options options) throws Exception {
        with(options, consumer -> options.message(consumer.viewMessage(options.need("topic"), options.need("id"))));
    }

    /** query --namesrv A --topic T --key K [--max 32] [--begin MS] [--end MS] */
    static void query(Options options) throws Exception {
        with(options, consumer -> {
            QueryResult result = consumer.queryMessage(options.need("topic"), options.need("key"), options.number("max", 32),
                Long.parseLong(options.text("begin", "0")), Long.parseLong(options.text("end", String.valueOf(Long.MAX_VALUE))));
            for (MessageExt message : result.getMessageList()) {
                options.message(message);
            }
            options.print("event", "done", "count", result.getMessageList().size());
        });
    }

    private static List<MessageQueue> queues(DefaultMQPullConsumer consumer, Options options) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(options.need("topic")));
        Collections.sort(queues);
        return queues;
    }

    private static void with(Options options, Work work) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group", "interop-reader"), Login.hook());
        consumer.setNamesrvAddr(options.need("namesrv"));
        consumer.setVipChannelEnabled(options.is("vip"));
        consumer.setPollNameServerInterval(1000);
        consumer.start();
        try {
            work.with(consumer);
        } finally {
            consumer.shutdown();
        }
    }
}
