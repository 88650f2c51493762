import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a push consumer that continue whatever happens to the broker.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP. It sends until a line of input, then it consumes until another one
 * arrives. Lines: "sent KEY STATUS", "failed KEY", "received KEY".
 */
public final class ThroughPromotion {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        MessageListenerConcurrently listener =
                (messages, context) -> {
                    for (MessageExt message : messages) {
                        say("received " + message.getKeys());
                    }
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                };
        consumer.registerMessageListener(listener);
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "-producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        for (int i = 0; System.in.available() == 0; i++) {
            String key = "k" + i;
            try {
                byte[] body = ("body of " + key).getBytes(StandardCharsets.UTF_8);
                say("sent " + key + " " + producer.send(new Message(args[1], "", key, body)).getSendStatus());
            } catch (Exception error) {
                say("failed " + key);
            }
            Thread.sleep(50);
        }
        System.in.read();
        System.in.read();
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    private ThroughPromotion() {}
}
