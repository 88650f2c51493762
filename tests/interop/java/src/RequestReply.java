import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Asks COUNT questions and, in a second client, answers them; the last one is left without an answer.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP COUNT. Lines: "replied KEY BODY", "timeout KEY".
 */
public final class RequestReply {
    private static final long TIMEOUT_MS = 10_000;
    private static final long SHORT_TIMEOUT_MS = 1_000;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        DefaultMQProducer replying = producer(args[0], args[2] + "-replying");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2] + "-consumer");
        consumer.setInstanceName("consumer");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener(
                new MessageListenerConcurrently() {
                    @Override
                    public ConsumeConcurrentlyStatus consumeMessage(
                            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
                        for (MessageExt message : messages) {
                            if (message.getKeys().equals("q-" + (count - 1))) {
                                continue;
                            }
                            byte[] body = ("answer-to-" + message.getKeys()).getBytes(StandardCharsets.UTF_8);
                            try {
                                replying.send(MessageUtil.createReplyMessage(message, body), 3_000);
                            } catch (Exception error) {
                                error.printStackTrace();
                            }
                        }
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    }
                });
        consumer.start();
        DefaultMQProducer asking = producer(args[0], args[2] + "-asking");
        for (int i = 0; i < count; i++) {
            String key = "q-" + i;
            Message question = new Message(args[1], "A", key, key.getBytes(StandardCharsets.UTF_8));
            try {
                Message answer = asking.request(question, i < count - 1 ? TIMEOUT_MS : SHORT_TIMEOUT_MS);
                String body = new String(answer.getBody(), StandardCharsets.UTF_8);
                System.out.println("replied " + key + " " + body);
            } catch (RequestTimeoutException expected) {
                System.out.println("timeout " + key);
            }
        }
        consumer.shutdown();
        replying.shutdown();
        asking.shutdown();
        System.exit(0);
    }

    private static DefaultMQProducer producer(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setInstanceName(group);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        return producer;
    }

    private RequestReply() {}
}
