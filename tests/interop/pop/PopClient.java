import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer that leaves queue assignment to the broker; prints its messages, sorted. */
public class PopClient {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        String group = args[2];
        int count = Integer.parseInt(args[3]);
        ConcurrentSkipListSet<String> seen = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPopInvisibleTime(10_000);
        consumer.subscribe(topic, "keep || again");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                boolean isPopped = message.getProperty("POP_CK") != null;
                seen.add(message.getTopic() + " " + body + " attempt " + message.getReconsumeTimes()
                    + (isPopped ? " popped" : " pulled"));
                if (body.startsWith("again") && message.getReconsumeTimes() < 1) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("pop-client-producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        for (int n = 0; n < count; n++) {
            producer.send(new Message(topic, "keep", ("keep-" + n).getBytes()));
        }
        producer.send(new Message(topic, "drop", "drop".getBytes()));
        producer.send(new Message(topic, "again", "again".getBytes()));
        long end = System.currentTimeMillis() + 120_000;
        while (seen.size() < count + 2 && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
        Thread.sleep(1_000);
        for (String line : List.copyOf(seen)) {
            System.out.println(line);
        }
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }
}
