import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer and a push consumer that stay connected until the standard input ends. Sends `count`
 * messages with keys k0, k1, ... to queue 0, waits until all were consumed, and prints for each
 * "sent KEY UNIQUE_ID OFFSET_ID", then "ready".
 */
public class LiveClients {
    private static final int PATIENCE_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        // Otherwise the clients' threads would keep running.
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            if (thread.getName().equals("main")) {
                Runtime.getRuntime().halt(1);
            }
        });
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        String namesrv = arguments[0];
        String topic = arguments[1];
        String broker = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        CountDownLatch consumed = new CountDownLatch(count);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("live-consumer");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setInstanceName("live");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> consumed.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        DefaultMQProducer producer = new DefaultMQProducer("live-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setInstanceName("live");
        producer.start();
        for (int i = 0; i < count; i++) {
            byte[] body = ("body " + i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, i % 2 == 0 ? "A" : "B", "k" + i, body);
            SendResult result = producer.send(message, new MessageQueue(topic, broker, 0));
            out.println("sent k" + i + " " + result.getMsgId() + " " + result.getOffsetMsgId());
        }
        consumed.await();
        // A client stores its offsets after ten seconds, that of its retry topic after fifteen.
        Thread.sleep(18000);
        out.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }
}
