import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer that runs until the end of standard input, and sends the messages requested there.
 *
 * <p>Arguments: NAMESRV GROUP ACCESS_KEY SECRET_KEY; "-" for an access key means no account. Lines of its
 * input are "TOPIC KEY"; each is answered by a line "sent STATUS", or "sent CODE" with the response code of
 * a rejection, -1 if the client had no queue to send to.
 */
public final class AskedProducer {
    /** By default a client fetches routes every half minute. */
    private static final int ROUTES_MS = 500;

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer =
                new DefaultMQProducer(args[1], SignedProducer.hook(args[2], args[3]));
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(ROUTES_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        BufferedReader asked =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] words = line.split(" ");
            System.out.println("sent " + outcome(producer, words[0], words[1]));
            System.out.flush();
        }
        producer.shutdown();
        System.exit(0);
    }

    private static String outcome(DefaultMQProducer producer, String topic, String key) {
        byte[] body = ("{\"key\": \"" + key + "\"}").getBytes(StandardCharsets.UTF_8);
        try {
            return producer.send(new Message(topic, "A", key, body)).getSendStatus().name();
        } catch (Exception refused) {
            return String.valueOf(SignedProducer.codeOf(refused));
        }
    }

    private AskedProducer() {}
}
