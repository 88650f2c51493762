import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends COUNT messages in each of the MODES, with a key and one of the TAGS each.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP MODES COUNT TAGS PREFIX; modes and tags are separated by commas. An
 * acknowledged message is a line "sent KEY QUEUE_ID QUEUE_OFFSET MSG_ID"; a message in a batch or a oneway
 * message has no location, and is "sent KEY". Exit code 1 means that a message was rejected.
 */
public final class SendMessages {
    private static final int BATCH = 50;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[4]);
        String[] tags = args[5].split(",");
        DefaultMQProducer producer = new DefaultMQProducer(args[2]);
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(Run.REQUEST_MS);
        producer.start();
        try {
            for (String mode : args[3].split(",")) {
                List<Message> messages = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    String key = args[6] + "-" + mode + "-" + i;
                    byte[] body = ("body of " + key).getBytes(StandardCharsets.UTF_8);
                    messages.add(new Message(topic, tags[i % tags.length], key, body));
                }
                send(producer, mode, messages);
            }
        } finally {
            producer.shutdown();
        }
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String mode, List<Message> messages)
            throws Exception {
        switch (mode) {
            case "sync":
                for (Message message : messages) {
                    report(message, producer.send(message));
                }
                break;
            case "async":
                sendAsync(producer, messages);
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                    System.out.println("sent " + message.getKeys());
                }
                // A oneway request has no answer, so an answered one follows on the same connection.
                Message last = new Message(messages.get(0).getTopic(), "flush", "flush", new byte[1]);
                producer.send(last);
                break;
            case "batch":
                for (int from = 0; from < messages.size(); from += BATCH) {
                    List<Message> batch =
                            messages.subList(from, Math.min(from + BATCH, messages.size()));
                    SendResult result = producer.send(batch);
                    for (Message message : batch) {
                        require(result);
                        System.out.println("sent " + message.getKeys());
                    }
                }
                break;
            default:
                throw new IllegalArgumentException(mode);
        }
    }

    private static void sendAsync(DefaultMQProducer producer, List<Message> messages)
            throws Exception {
        CountDownLatch answered = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(
                    message,
                    new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            report(message, result);
                            answered.countDown();
                        }

                        @Override
                        public void onException(Throwable error) {
                            fail(error);
                        }
                    });
        }
        if (!answered.await(60, TimeUnit.SECONDS)) {
            fail(new IllegalStateException(answered.getCount() + " asynchronous sends unanswered"));
        }
    }

    private static synchronized void report(Message message, SendResult result) {
        require(result);
        System.out.println(
                "sent " + message.getKeys()
                        + " " + result.getMessageQueue().getQueueId()
                        + " " + result.getQueueOffset()
                        + " " + result.getMsgId());
    }

    private static void require(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            fail(new IllegalStateException(result.toString()));
        }
    }

    private static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private SendMessages() {}
}
