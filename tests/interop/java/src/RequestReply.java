import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends COUNT requests and replies to them in a second client; the last one gets no reply.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP COUNT. Lines: "replied KEY BODY", "timeout KEY".
 */
public final class RequestReply {
    private static final int ATTEMPTS = 3;
    private static final long TIMEOUT_MS = 15_000;
    private static final long SHORT_TIMEOUT_MS = 1_000;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        DefaultMQProducer replying = producer(args[0], args[2] + "-replying");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2] + "-consumer");
        consumer.setInstanceName("consumer");
        Run.patient(consumer).setNamesrvAddr(args[0]);
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
                                replying.send(MessageUtil.createReplyMessage(message, body), Run.REQUEST_MS);
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
            String answer = null;
            // The consumer may not have its queues yet when the first request arrives.
            for (int attempt = 0; answer == null && attempt < ATTEMPTS; attempt++) {
                answer = ask(asking, args[1], key, i < count - 1 ? TIMEOUT_MS : SHORT_TIMEOUT_MS);
            }
            System.out.println(answer == null ? "timeout " + key : "replied " + key + " " + answer);
        }
        consumer.shutdown();
        replying.shutdown();
        asking.shutdown();
        System.exit(0);
    }

    /** Returns null after a timeout. The library's own waiting call is broken in 5.3.3. */
    private static String ask(DefaultMQProducer asking, String topic, String key, long timeoutMs)
            throws Exception {
        CompletableFuture<String> answered = new CompletableFuture<>();
        asking.request(
                new Message(topic, "A", key, key.getBytes(StandardCharsets.UTF_8)),
                new RequestCallback() {
                    @Override
                    public void onSuccess(Message answer) {
                        answered.complete(new String(answer.getBody(), StandardCharsets.UTF_8));
                    }

                    @Override
                    public void onException(Throwable error) {
                        if (error instanceof RequestTimeoutException) {
                            answered.complete(null);
                        } else {
                            answered.completeExceptionally(error);
                        }
                    }
                },
                timeoutMs);
        return answered.get();
    }

    private static DefaultMQProducer producer(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setInstanceName(group);
        Run.patient(producer).setNamesrvAddr(namesrv);
        producer.start();
        return producer;
    }

    private RequestReply() {}
}
