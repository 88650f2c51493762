import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transactional producer. Message number N of a PREFIX has the key PREFIX-N and ends by N modulo 4:
 * 0 is committed at once, 1 rolled back at once, 2 committed and 3 rolled back when the broker checks it.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP COUNT PREFIX CHECKED SECONDS. It sends COUNT half messages ("half KEY"
 * each), answers the broker's checks ("checked KEY" each), and ends when CHECKED transactions were checked and
 * a second has passed, or after SECONDS.
 */
public final class Transactions {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        int wanted = Integer.parseInt(args[5]);
        long endNanos = System.nanoTime() + Long.parseLong(args[6]) * 1_000_000_000L;
        Set<String> checked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = new TransactionMQProducer(args[2]);
        Run.patient(producer).setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(Run.REQUEST_MS);
        producer.setTransactionListener(
                new TransactionListener() {
                    @Override
                    public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                        switch (numberOf(message) % 4) {
                            case 0:
                                return LocalTransactionState.COMMIT_MESSAGE;
                            case 1:
                                return LocalTransactionState.ROLLBACK_MESSAGE;
                            default:
                                return LocalTransactionState.UNKNOW;
                        }
                    }

                    @Override
                    public LocalTransactionState checkLocalTransaction(MessageExt message) {
                        String key = message.getKeys();
                        String body = new String(message.getBody(), StandardCharsets.UTF_8);
                        if (!body.equals("body of " + key) || !message.getTopic().equals(args[1])) {
                            throw new IllegalStateException(message.toString());
                        }
                        if (checked.add(key)) {
                            System.out.println("checked " + key);
                        }
                        return numberOf(message) % 2 == 0
                                ? LocalTransactionState.COMMIT_MESSAGE
                                : LocalTransactionState.ROLLBACK_MESSAGE;
                    }
                });
        producer.start();
        // Registered with the broker before it checks: a producer that sends nothing has no route yet.
        producer.getDefaultMQProducerImpl()
                .getMqClientFactory()
                .updateTopicRouteInfoFromNameServer(args[1]);
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        for (int i = 0; i < count; i++) {
            String key = args[4] + "-" + i;
            byte[] body = ("body of " + key).getBytes(StandardCharsets.UTF_8);
            TransactionSendResult result =
                    producer.sendMessageInTransaction(new Message(args[1], "A", key, body), null);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(result.toString());
            }
            System.out.println("half " + key);
        }
        while (System.nanoTime() < endNanos && checked.size() < wanted) {
            Thread.sleep(50);
        }
        // Outcomes are sent oneway.
        Thread.sleep(1_000);
        producer.shutdown();
        System.exit(0);
    }

    private static int numberOf(Message message) {
        String key = message.getKeys();
        return Integer.parseInt(key.substring(key.lastIndexOf('-') + 1));
    }

    private Transactions() {}
}
