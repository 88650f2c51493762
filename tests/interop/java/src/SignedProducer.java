import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Runs a producer's operations with an account, and prints the result of each.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP ACCESS_KEY SECRET_KEY COUNT; "-" for an access key means no account. The
 * COUNT messages have the properties price (0 to 9) and region (eu or us), keys "k-0" and so on. Lines are
 * "send OK", or "send CODE" with the response code of a rejection; then "view" and "batch" likewise, and
 * "query COUNT" by key.
 */
public final class SignedProducer {
    /** Codes from here on are the client's own. */
    private static final int CLIENT_CODES = 10_000;

    private interface Step {
        String run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer(args[2], hook(args[3], args[4]));
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(Run.REQUEST_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        List<SendResult> sent = new ArrayList<>();
        report("send", () -> {
            for (int i = sent.size(); i < count; i++) {
                sent.add(producer.send(message(topic, i)));
            }
            return "OK";
        });
        if (!sent.isEmpty()) {
            report("view", () -> {
                String id = sent.get(0).getOffsetMsgId();
                return producer.viewMessage(topic, id).getKeys();
            });
        }
        report("batch", () -> {
            List<Message> batch = new ArrayList<>();
            for (int i = count; i < count + 5; i++) {
                batch.add(message(topic, i));
            }
            producer.send(batch);
            return "OK";
        });
        if (!sent.isEmpty()) {
            report("query", () -> {
                long now = System.currentTimeMillis();
                int found = producer.queryMessage(topic, "k-1", 32, now - 600_000, now + 600_000)
                        .getMessageList().size();
                return String.valueOf(found);
            });
            report("query-unique", () -> {
                String id = sent.get(1).getMsgId();
                return producer.viewMessage(topic, id).getKeys();
            });
        }
        producer.shutdown();
        System.exit(0);
    }

    static RPCHook hook(String accessKey, String secretKey) {
        return accessKey.equals("-")
                ? null
                : new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }

    /** Returns the response code of a rejection, or -1 without one. */
    static int codeOf(Throwable thrown) {
        for (Throwable each = thrown; each != null; each = each.getCause()) {
            if (each instanceof MQBrokerException) {
                return ((MQBrokerException) each).getResponseCode();
            }
            if (each instanceof MQClientException && ((MQClientException) each).getResponseCode() > 0) {
                return ((MQClientException) each).getResponseCode();
            }
        }
        return -1;
    }

    private static Message message(String topic, int number) {
        String key = "k-" + number;
        Message message = new Message(topic, "A", key, key.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("price", String.valueOf(number % 10));
        message.putUserProperty("region", number % 2 == 0 ? "eu" : "us");
        return message;
    }

    private static void report(String name, Step step) {
        long endNanos = System.nanoTime() + Run.REQUEST_MS * 1_000_000L;
        while (true) {
            String outcome;
            boolean isAnswer = true;
            try {
                outcome = step.run();
            } catch (Exception refused) {
                int code = codeOf(refused);
                outcome = String.valueOf(code);
                // A client that waits too long for its own lock has no route, which isn't a rejection by the broker.
                isAnswer = code > 0 && code < CLIENT_CODES || !name.equals("send");
            }
            if (isAnswer || System.nanoTime() > endNanos) {
                System.out.println(name + " " + outcome);
                return;
            }
        }
    }

    private SignedProducer() {}
}
