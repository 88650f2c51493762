import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a push consumer that write traces, with enableMsgTrace.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP COUNT. Each message consumed is a line "received KEY QUEUE_ID
 * QUEUE_OFFSET STORE_TIMESTAMP". Ends at the end of input, once the traces are stored: clients send
 * them in the background, and drop them on exit.
 */
public final class TracedClients {
    private static final String TRACES = "RMQ_SYS_TRACE_TOPIC";

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "-producer", true, TRACES);
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2], true, TRACES);
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
                        }
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    }
                });
        consumer.start();
        for (int i = 0; i < count; i++) {
            byte[] body = "traced".getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(args[1], "TagA", "traced-" + i, body));
        }
        while (System.in.read() >= 0) {
            // It gets no input.
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static synchronized void report(MessageExt message) {
        System.out.println(
                "received " + message.getKeys()
                        + " " + message.getQueueId()
                        + " " + message.getQueueOffset()
                        + " " + message.getStoreTimestamp());
    }

    private TracedClients() {}
}
