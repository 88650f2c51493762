import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A push consumer with an account and an SQL92 expression.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP ACCESS_KEY SECRET_KEY EXPRESSION COUNT QUIET_MS SECONDS. It ends when
 * COUNT messages arrived and then none for QUIET_MS, or after SECONDS. The first line is "started", or
 * "refused CODE"; the last one is "received" with the keys in order.
 */
public final class SelectingConsumer {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[6]);
        long quietMs = Long.parseLong(args[7]);
        long endNanos = System.nanoTime() + Long.parseLong(args[8]) * 1_000_000_000L;
        Set<String> keys = new ConcurrentSkipListSet<>();
        AtomicLong lastNanos = new AtomicLong(System.nanoTime());
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(
                        args[2],
                        SignedProducer.hook(args[3], args[4]),
                        new AllocateMessageQueueAveragely());
        Run.patient(consumer).setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], MessageSelector.bySql(args[5]));
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            messages.forEach(message -> keys.add(message.getKeys()));
                            lastNanos.set(System.nanoTime());
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        try {
            consumer.start();
        } catch (MQClientException refused) {
            System.out.println("refused " + SignedProducer.codeOf(refused));
            System.exit(0);
        }
        System.out.println("started");
        while (System.nanoTime() < endNanos) {
            boolean quiet = System.nanoTime() - lastNanos.get() > quietMs * 1_000_000L;
            if (keys.size() >= count && quiet) {
                break;
            }
            Thread.sleep(50);
        }
        consumer.shutdown();
        System.out.println("received " + String.join(" ", keys));
        System.exit(0);
    }

    private SelectingConsumer() {}
}
