package golden;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Who gets which queues, by every strategy, for clusters of several shapes. */
final class Allocations {
    private static final String[][] BROKERS = {{"broker-a"}, {"broker-b", "broker-a"}, {"r1@a", "r2@b", "r1@c"}, {"r3@z", "r1@a"}};

    private Allocations() {
    }

    static void write() throws Exception {
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("averagely", new AllocateMessageQueueAveragely());
        strategies.put("averagely_by_circle", new AllocateMessageQueueAveragelyByCircle());
        strategies.put("consistent_hash", new AllocateMessageQueueConsistentHash());
        strategies.put("consistent_hash_3", new AllocateMessageQueueConsistentHash(3));
        AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
        rooms.setConsumeridcs(new HashSet<>(Arrays.asList("r1", "r3")));
        strategies.put("machine_room", rooms);
        strategies.put("machine_room_nearby", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new ByPrefix()));
        strategies.put("machine_room_nearby_circle", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), new ByPrefix()));
        AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
        config.setMessageQueueList(Collections.singletonList(new MessageQueue("T", "broker-a", 1)));
        strategies.put("config", config);
        List<Object> rows = new ArrayList<>();
        for (String[] brokers : BROKERS) {
            for (int queues : new int[] {1, 3, 4}) {
                for (int consumers : new int[] {1, 2, 3, 5, 7}) {
                    rows.add(row(strategies, brokers, queues, consumers));
                }
            }
        }
        Out.json("allocations.json", rows);
    }

    private static Object row(Map<String, AllocateMessageQueueStrategy> strategies, String[] brokers, int queues, int consumers) {
        List<MessageQueue> all = new ArrayList<>();
        for (String broker : brokers) {
            for (int i = 0; i < queues; i++) {
                all.add(new MessageQueue("T", broker, i));
            }
        }
        List<String> clients = new ArrayList<>();
        for (int i = 0; i < consumers; i++) {
            clients.add("r" + (i % 2 + 1) + "@10.0.0." + (17 * i % 11) + "@" + i);
        }
        Collections.sort(all);
        Collections.sort(clients);
        Map<String, Object> results = new LinkedHashMap<>();
        for (Map.Entry<String, AllocateMessageQueueStrategy> entry : strategies.entrySet()) {
            List<Object> shares = new ArrayList<>();
            for (String client : clients) {
                List<String> share = new ArrayList<>();
                for (MessageQueue queue : entry.getValue().allocate("G", client, all, clients)) {
                    share.add(queue.getBrokerName() + ":" + queue.getQueueId());
                }
                shares.add(String.join(" ", share));
            }
            results.put(entry.getKey(), shares);
        }
        return Out.map("brokers", brokers, "queues", queues, "clients", clients, "results", results);
    }

    /** The room is what stands before the `@`. */
    private static final class ByPrefix implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String client) {
            return client.split("@")[0];
        }
    }
}
