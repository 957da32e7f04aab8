// Sends of Apache's Java client, for bench/client.py: the same arguments and answers as bench/client_grpc.py.

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public final class ClientSends {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench_producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        int threads = Integer.parseInt(args[3]);
        byte[] body = new byte[Integer.parseInt(args[4])];
        Arrays.fill(body, (byte) 'x');
        // Long enough for the compiler of the virtual machine.
        send(producer, topic, body, 5000);
        System.out.println("ready");
        OperatingSystemMXBean machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            CountDownLatch left = new CountDownLatch(threads);
            long began = System.nanoTime();
            long cpu = machine.getProcessCpuTime();
            for (int i = 0; i < threads; i++) {
                new Thread(() -> {
                    try {
                        send(producer, topic, body, count / threads);
                    } catch (Exception error) {
                        error.printStackTrace();
                        System.exit(1);
                    }
                    left.countDown();
                }).start();
            }
            left.await();
            double seconds = (System.nanoTime() - began) / 1e9;
            double used = (machine.getProcessCpuTime() - cpu) / 1e9;
            System.out.println(String.format(Locale.ROOT, "{\"seconds\": %.6f, \"cpu_s\": %.6f}", seconds, used));
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, byte[] body, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            Message message = new Message(topic, "TagA", "key-1", body);
            producer.send(message);
        }
    }
}
