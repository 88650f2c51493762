import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends a message with each of the given accounts.
 *
 * <p>Arguments: NAMESRV, then TOPIC ACCESS_KEY SECRET_KEY for each account. Lines: "send STATUS", or "send CODE"
 * with the response code of a rejection.
 */
public final class Accounts {
    public static void main(String[] args) throws Exception {
        for (int i = 1; i + 2 < args.length; i += 3) {
            String group = "accounts-" + i;
            DefaultMQProducer producer =
                    new DefaultMQProducer(group, SignedProducer.hook(args[i + 1], args[i + 2]));
            Run.patient(producer).setNamesrvAddr(args[0]);
            producer.setInstanceName(group);
            producer.setSendMsgTimeout(Run.REQUEST_MS);
            producer.setRetryTimesWhenSendFailed(0);
            producer.start();
            byte[] body = "body".getBytes(StandardCharsets.UTF_8);
            String outcome;
            try {
                outcome = producer.send(new Message(args[i], "A", "k", body)).getSendStatus().name();
            } catch (Exception refused) {
                outcome = String.valueOf(SignedProducer.codeOf(refused));
            }
            System.out.println("send " + outcome);
            producer.shutdown();
        }
        System.exit(0);
    }

    private Accounts() {}
}
