import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that fails to consume a message FAILURES times.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP FAILURES MAX_RECONSUME_TIMES COUNT QUIET_MS SECONDS. Each delivery is a
 * line "received KEY RECONSUME_TIMES STORE_TIMESTAMP TOPIC ORIGIN_MESSAGE_ID". It ends when COUNT
 * deliveries arrived and then none for QUIET_MS, or after SECONDS.
 */
public final class RetryConsumer {
    public static void main(String[] args) throws Exception {
        int failures = Integer.parseInt(args[3]);
        int count = Integer.parseInt(args[5]);
        long quietMs = Long.parseLong(args[6]);
        long endNanos = System.nanoTime() + Long.parseLong(args[7]) * 1_000_000_000L;
        AtomicInteger received = new AtomicInteger();
        AtomicLong lastNanos = new AtomicLong(System.nanoTime());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        Run.patient(consumer).setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(Integer.parseInt(args[4]));
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener(
                new MessageListenerConcurrently() {
                    @Override
                    public ConsumeConcurrentlyStatus consumeMessage(
                            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                        boolean all = true;
                        for (MessageExt message : messages) {
                            report(message);
                            all &= message.getReconsumeTimes() >= failures;
                            received.incrementAndGet();
                        }
                        lastNanos.set(System.nanoTime());
                        return all
                                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                });
        consumer.start();
        System.out.println("started");
        while (System.nanoTime() < endNanos) {
            boolean quiet = System.nanoTime() - lastNanos.get() > quietMs * 1_000_000L;
            if (received.get() >= count && quiet) {
                break;
            }
            Thread.sleep(50);
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void report(MessageExt message) {
        String origin = message.getProperty("ORIGIN_MESSAGE_ID");
        System.out.println(
                "received " + message.getKeys()
                        + " " + message.getReconsumeTimes()
                        + " " + message.getStoreTimestamp()
                        + " " + message.getTopic()
                        + " " + (origin == null ? "-" : origin));
    }

    private RetryConsumer() {}
}
