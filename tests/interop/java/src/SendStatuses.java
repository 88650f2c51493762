import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends one message, then COUNT messages as one batch, and prints the client's result for each answer.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP COUNT. A line for each answer: "answered STATUS QUEUE_ID QUEUE_OFFSET
 * OFFSET_MSG_IDS", the ids separated by commas.
 */
public final class SendStatuses {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[2]);
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        try {
            report(producer.send(message(args[1], "single")));
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(args[3]); i++) {
                batch.add(message(args[1], "batch-" + i));
            }
            report(producer.send(batch));
        } finally {
            producer.shutdown();
        }
        System.exit(0);
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void report(SendResult result) {
        System.out.printf(
                "answered %s %d %d %s%n",
                result.getSendStatus(),
                result.getMessageQueue().getQueueId(),
                result.getQueueOffset(),
                result.getOffsetMsgId());
    }
}
