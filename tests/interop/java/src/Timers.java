import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends timer messages, recalls some, and prints the outcome of each.
 *
 * <p>Arguments: NAMESRV TOPIC MAX_DELAY_SECONDS. Prints lines "NAME: ANSWER; delivered with PROPERTIES". Lines
 * that begin with "late" hold the milliseconds between a message's due time and its delivery.
 *
 * <p>Calls methods that only 5.x has by reflection, because this file is compiled against 4.9 too.
 */
public final class Timers {
    private static final int WAIT_MS = 6_000;

    private final Map<String, MessageExt> delivered = new ConcurrentHashMap<>();
    private final Map<String, String> answers = new java.util.LinkedHashMap<>();
    private final Map<String, Long> due = new java.util.LinkedHashMap<>();
    private final DefaultMQProducer producer;
    private final String topic;

    private Timers(DefaultMQProducer producer, String topic) {
        this.producer = producer;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        DefaultMQProducer producer = Run.patient(new DefaultMQProducer("timers-producer"));
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        TransactionMQProducer transactional = Run.patient(new TransactionMQProducer("timers-transactional"));
        transactional.setNamesrvAddr(args[0]);
        transactional.setTransactionListener(
                new TransactionListener() {
                    @Override
                    public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                        return (LocalTransactionState) outcome;
                    }

                    @Override
                    public LocalTransactionState checkLocalTransaction(MessageExt message) {
                        return LocalTransactionState.UNKNOW;
                    }
                });
        transactional.start();
        Timers timers = new Timers(producer, topic);
        producer.send(new Message(topic, "first".getBytes(StandardCharsets.UTF_8)));
        DefaultMQPushConsumer consumer = timers.consumer(args[0]);
        timers.until("first");
        timers.sends(Long.parseLong(args[2]));
        timers.transactions(transactional);
        timers.recalls();
        Thread.sleep(WAIT_MS);
        timers.lateRecalls();
        timers.print();
        consumer.shutdown();
        transactional.shutdown();
        producer.shutdown();
    }

    private DefaultMQPushConsumer consumer(String namesrv) throws Exception {
        DefaultMQPushConsumer consumer = Run.patient(new DefaultMQPushConsumer("timers-consumer"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            for (MessageExt message : messages) {
                                delivered.put(new String(message.getBody(), StandardCharsets.UTF_8), message);
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        return consumer;
    }

    private void until(String name) throws InterruptedException {
        for (int i = 0; i < 600 && !delivered.containsKey(name); i++) {
            Thread.sleep(100);
        }
    }

    private void sends(long maxSeconds) throws Exception {
        long now = System.currentTimeMillis();
        timed("delay in milliseconds", now + 1_500, "setDelayTimeMs", 1_500L);
        timed("delay in seconds", now + 2_000, "setDelayTimeSec", 2L);
        timed("delivery time", now + 1_777, "setDeliverTimeMs", now + 1_777);
        timed("delivery time on a second", (now / 1_000 + 3) * 1_000, "setDeliverTimeMs", (now / 1_000 + 3) * 1_000);
        timed("past delivery time", null, "setDeliverTimeMs", now - 5_000);
        timed("zero delay", null, "setDelayTimeMs", 0L);
        timed("negative delay", null, "setDelayTimeMs", -5L);
        timed("too far away", null, "setDelayTimeSec", maxSeconds + 2);
        Message both = message("seconds and milliseconds");
        call(both, "setDelayTimeSec", 1L);
        call(both, "setDelayTimeMs", 86_400_000L);
        send("seconds and milliseconds", both);
        Message level = message("level and delay");
        level.setDelayTimeLevel(1);
        call(level, "setDelayTimeMs", 86_400_000L);
        send("level and delay", level);
        for (String bad : new String[] {"x", "1.5", "99999999999"}) {
            for (String property : new String[] {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"}) {
                Message message = message(property + "=" + bad);
                MessageAccessor.putProperty(message, property, bad);
                send(property + "=" + bad, message);
            }
        }
        Message overflow = message("seconds that overflow");
        MessageAccessor.putProperty(overflow, "TIMER_DELAY_SEC", "2147484");
        send("seconds that overflow", overflow);
        Message deliveredBefore = message("delivered before");
        MessageAccessor.putProperty(deliveredBefore, "TIMER_OUT_MS", "1");
        call(deliveredBefore, "setDelayTimeMs", 86_400_000L);
        send("delivered before", deliveredBefore);
        List<Message> batch = new ArrayList<>();
        for (String name : new String[] {"batch 1", "batch 2"}) {
            batch.add(message(name));
        }
        call(batch.get(0), "setDelayTimeMs", 86_400_000L);
        try {
            answers.put("batch 1", producer.send(batch).getSendStatus().name());
        } catch (Exception refused) {
            answers.put("batch 1", refusal(refused));
        }
    }

    private void transactions(TransactionMQProducer transactional) throws Exception {
        for (LocalTransactionState outcome :
                new LocalTransactionState[] {
                    LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
                }) {
            for (String property : new String[] {"setDelayTimeMs", "setDeliverTimeMs", "level"}) {
                String name = "transaction " + outcome + " " + property;
                Message message = message(name);
                if (property.equals("level")) {
                    message.setDelayTimeLevel(1);
                } else {
                    long value = property.equals("setDelayTimeMs") ? 1_500L : System.currentTimeMillis() + 1_500;
                    call(message, property, value);
                }
                try {
                    answers.put(name, transactional.sendMessageInTransaction(message, outcome).getSendStatus().name());
                } catch (Exception refused) {
                    answers.put(name, refusal(refused));
                }
            }
        }
    }

    private void recalls() throws Exception {
        long now = System.currentTimeMillis();
        String handle = timed("recalled", null, "setDeliverTimeMs", now + 3_500);
        answers.put("recall", recall(topic, handle));
        answers.put("recall with another topic", recall(topic + "-none", handle));
        answers.put("recall with a malformed handle", recall(topic, "x"));
        String kept = timed("kept", null, "setDeliverTimeMs", now + 4_500);
        String[] fields = new String(Base64.getUrlDecoder().decode(kept), StandardCharsets.UTF_8).split(" ");
        answers.put(
                "fields of a handle",
                fields.length + " " + fields[0] + " " + fields[1].equals(topic) + " " + fields[2]);
        answers.put("recall with a topic that differs from the handle", recall(topic, forged(fields, 1, topic + "x")));
        answers.put("recall at an unknown broker", recall(topic, forged(fields, 2, "broker-x")));
        answers.put("recall with a past time", recall(topic, forged(fields, 3, String.valueOf(now - 5_000))));
        answers.put("recall with a malformed time", recall(topic, forged(fields, 3, "x")));
        answers.put("recall of an unknown message", recall(topic, forged(fields, 4, "7F0000010000000000000000")));
        answers.put("recall of another version", recall(topic, forged(fields, 0, "v2")));
    }

    private void lateRecalls() throws Exception {
        for (String name : new String[] {"recalled", "kept"}) {
            answers.put("overdue recall: " + name, recall(topic, handles.get(name)));
        }
    }

    private final Map<String, String> handles = new ConcurrentHashMap<>();

    private String timed(String name, Long dueMs, String setter, long value) throws Exception {
        Message message = message(name);
        call(message, setter, value);
        if (dueMs != null) {
            due.put(name, dueMs);
        }
        String handle = send(name, message);
        if (handle != null) {
            handles.put(name, handle);
        }
        return handle;
    }

    private Message message(String name) {
        return new Message(topic, name.getBytes(StandardCharsets.UTF_8));
    }

    private String send(String name, Message message) throws Exception {
        try {
            SendResult result = producer.send(message);
            String handle = (String) SendResult.class.getMethod("getRecallHandle").invoke(result);
            answers.put(name, result.getSendStatus() + (handle == null ? "" : " with a handle"));
            return handle;
        } catch (Exception refused) {
            answers.put(name, refusal(refused));
            return null;
        }
    }

    private String recall(String topic, String handle) throws Exception {
        try {
            Object found =
                    DefaultMQProducer.class
                            .getMethod("recallMessage", String.class, String.class)
                            .invoke(producer, topic, handle);
            return found == null || ((String) found).isEmpty() ? "nothing" : "a message";
        } catch (InvocationTargetException refused) {
            return refusal((Exception) refused.getCause());
        }
    }

    private static void call(Message message, String setter, long value) throws Exception {
        Message.class.getMethod(setter, long.class).invoke(message, value);
    }

    private static String forged(String[] fields, int index, String value) {
        String[] copy = fields.clone();
        copy[index] = value;
        return Base64.getUrlEncoder().encodeToString(String.join(" ", copy).getBytes(StandardCharsets.UTF_8));
    }

    private static String refusal(Throwable error) {
        if (error instanceof MQBrokerException) {
            MQBrokerException refused = (MQBrokerException) error;
            return refused.getResponseCode() + " " + refused.getErrorMessage();
        }
        if (error instanceof MQClientException && error.getCause() != null) {
            return refusal(error.getCause());
        }
        return error.getClass().getSimpleName();
    }

    private void print() {
        for (Map.Entry<String, String> each : answers.entrySet()) {
            MessageExt found = delivered.get(each.getKey());
            String what = "";
            if (found != null) {
                TreeSet<String> names = new TreeSet<>(found.getProperties().keySet());
                what = "; delivered with " + String.join(" ", names);
            }
            System.out.println(each.getKey() + ": " + each.getValue() + what);
        }
        for (Map.Entry<String, Long> each : due.entrySet()) {
            MessageExt found = delivered.get(each.getKey());
            if (found != null) {
                System.out.println("late " + (found.getStoreTimestamp() - each.getValue()) + " " + each.getKey());
            }
        }
    }
}
