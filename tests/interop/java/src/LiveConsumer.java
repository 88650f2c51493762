import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that runs until the end of standard input, for requests meanwhile.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP, and ACCESS_KEY SECRET_KEY for an account. Lines: "ready" once it has a
 * queue, "received KEY" for each delivery.
 */
public final class LiveConsumer {
    /** By default a client fetches routes every half minute, and rebalances queues every 20 s. */
    private static final int ROUTES_MS = 500, REBALANCE_MS = 1_000;

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", String.valueOf(REBALANCE_MS));
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(
                        args[2],
                        args.length > 3 ? SignedProducer.hook(args[3], args[4]) : null,
                        new AllocateMessageQueueAveragely());
        Run.patient(consumer).setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setPollNameServerInterval(ROUTES_MS);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            for (MessageExt message : messages) {
                                say("received " + message.getKeys());
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        while (!hasQueue(consumer, args[1])) {
            Thread.sleep(20);
        }
        say("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        System.exit(0);
    }

    private static boolean hasQueue(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
                .stream().anyMatch(queue -> queue.getTopic().equals(topic));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private LiveConsumer() {}
}
