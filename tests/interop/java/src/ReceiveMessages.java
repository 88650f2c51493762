import java.nio.charset.StandardCharsets;
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
 * A push consumer that reports each delivery.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP EXPRESSION COUNT QUIET_MS SECONDS. It ends when COUNT messages arrived
 * and then none for QUIET_MS (a duplicate would arrive in that time), or after SECONDS. A delivery is a
 * line "received KEY TAG QUEUE_ID QUEUE_OFFSET MSG_ID BODY", where "-" is a missing value.
 */
public final class ReceiveMessages {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[4]);
        long quietMs = Long.parseLong(args[5]);
        long endNanos = System.nanoTime() + Long.parseLong(args[6]) * 1_000_000_000L;
        AtomicInteger received = new AtomicInteger();
        AtomicLong lastNanos = new AtomicLong(System.nanoTime());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        Run.patient(consumer).setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], args[3]);
        consumer.registerMessageListener(
                new MessageListenerConcurrently() {
                    @Override
                    public ConsumeConcurrentlyStatus consumeMessage(
                            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                        for (MessageExt message : messages) {
                            report(message);
                            received.incrementAndGet();
                        }
                        lastNanos.set(System.nanoTime());
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
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
        // Writes the current offsets to the broker.
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void report(MessageExt message) {
        System.out.println(
                "received " + orNone(message.getKeys())
                        + " " + orNone(message.getTags())
                        + " " + message.getQueueId()
                        + " " + message.getQueueOffset()
                        + " " + message.getMsgId()
                        + " " + new String(message.getBody(), StandardCharsets.UTF_8));
    }

    private static String orNone(String text) {
        return text == null || text.isEmpty() ? "-" : text;
    }

    private ReceiveMessages() {}
}
