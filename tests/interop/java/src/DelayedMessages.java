import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends COUNT messages, the N-th with the delay level N modulo LEVELS + 1, and receives them.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP COUNT LEVELS SECONDS. Each delivery is a line
 * "received KEY LEVEL BORN_TIMESTAMP STORE_TIMESTAMP ARRIVAL_TIMESTAMP".
 */
public final class DelayedMessages {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        int levels = Integer.parseInt(args[4]);
        CountDownLatch received = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        Run.patient(consumer).setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener(
                new MessageListenerConcurrently() {
                    @Override
                    public ConsumeConcurrentlyStatus consumeMessage(
                            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                        for (MessageExt message : messages) {
                            report(message);
                            received.countDown();
                        }
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    }
                });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "-producer");
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(Run.REQUEST_MS);
        producer.start();
        for (int i = 0; i < count; i++) {
            byte[] body = ("body of " + i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(args[1], "A", "d-" + i, body);
            message.setDelayTimeLevel(i % levels + 1);
            producer.send(message);
        }
        boolean all = received.await(Long.parseLong(args[5]), TimeUnit.SECONDS);
        // A second delivery would arrive now.
        Thread.sleep(1_000);
        consumer.shutdown();
        producer.shutdown();
        System.exit(all ? 0 : 1);
    }

    private static synchronized void report(MessageExt message) {
        System.out.println(
                "received " + message.getKeys()
                        + " " + message.getDelayTimeLevel()
                        + " " + message.getBornTimestamp()
                        + " " + message.getStoreTimestamp()
                        + " " + System.currentTimeMillis());
    }

    private DelayedMessages() {}
}
