import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer and a push consumer that continue whatever happens to the broker, and record their operations:
 * the records of tools/faults/operations.py, one a line.
 *
 * <p>Arguments: NAMESRV TOPIC GROUP HISTORY SEED SECONDS DELAY_MS PAUSE_MS. DELAY_MS is the duration of delay level 1. It
 * sends for SECONDS or until a line of input, with PAUSE_MS between two, prints "rests", and consumes until the end of
 * input.
 *
 * <p>Each attempt of a send has two records: before its bytes leave, and with its answer. System.nanoTime is
 * CLOCK_MONOTONIC, the clock of all histories of a machine.
 */
public final class Recorder {
    private static final int INTERVAL_MS = 1_000;
    private static final int SERVICE_NOT_AVAILABLE = 14;
    private static final int BODY_MAX = 700;

    private final OutputStream history;
    private final String topic;
    private final String group;
    private final String name;
    private final long delayNanos;
    private final int pauseMs;
    private final Map<SendMessageContext, Long> invoked = new ConcurrentHashMap<>();
    private final Map<String, String> shares = new HashMap<>();
    private int sessions;
    private int again;

    public static void main(String[] args) throws Exception {
        // A consumer whose queues were lost with its registration polls for them as often.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "" + INTERVAL_MS);
        try (OutputStream history = new FileOutputStream(args[3], true)) {
            Recorder recorder = new Recorder(history, args);
            DefaultMQPushConsumer consumer = recorder.consumer(args[0]);
            consumer.start();
            TransactionMQProducer producer = recorder.producer(args[0]);
            producer.start();
            recorder.send(producer, new Random(Long.parseLong(args[4])), Long.parseLong(args[5]));
            System.out.println("rests");
            while (System.in.read() >= 0) {
                continue;
            }
            consumer.shutdown();
            producer.shutdown();
        }
        System.exit(0);
    }

    private Recorder(OutputStream history, String[] args) {
        this.history = history;
        topic = args[1];
        group = args[2];
        name = "java-" + args[4];
        // Records have times in whole milliseconds, so a second may seem one millisecond shorter.
        delayNanos = (Long.parseLong(args[6]) - 1) * 1_000_000L;
        pauseMs = Integer.parseInt(args[7]);
    }

    private void send(TransactionMQProducer producer, Random dice, long seconds) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        for (int number = 1; System.nanoTime() < end && System.in.available() == 0; number++) {
            String id = name + "-" + number;
            byte[] body = Arrays.copyOf(bytes(id), Math.max(id.length(), dice.nextInt(BODY_MAX)));
            Arrays.fill(body, id.length(), body.length, (byte) '.');
            Message message = new Message(topic, "recorded", id, body);
            try {
                if (number % 10 == 3) {
                    producer.sendMessageInTransaction(message, null);
                } else {
                    message.setDelayTimeLevel(number % 10 == 7 ? 1 : 0);
                    producer.send(message);
                }
            } catch (Exception error) {
                // The record says so.
                Thread.sleep(pauseMs);
            }
            Thread.sleep(pauseMs);
        }
    }

    private TransactionMQProducer producer(String namesrv) {
        TransactionMQProducer producer = new TransactionMQProducer(group + "-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setPollNameServerInterval(INTERVAL_MS);
        producer.setHeartbeatBrokerInterval(INTERVAL_MS);
        producer.setTransactionListener(
                new TransactionListener() {
                    @Override
                    public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                        // It leaves some undecided, for the broker to check.
                        boolean decides = numberOf(message.getKeys()) % 150 != 23;
                        return decides ? end(message.getKeys()) : LocalTransactionState.UNKNOW;
                    }

                    @Override
                    public LocalTransactionState checkLocalTransaction(MessageExt message) {
                        return end(message.getKeys());
                    }
                });
        producer.getDefaultMQProducerImpl()
                .registerSendMessageHook(
                        new SendMessageHook() {
                            @Override
                            public String hookName() {
                                return "recorder";
                            }

                            @Override
                            public void sendMessageBefore(SendMessageContext context) {
                                invoked.put(context, System.nanoTime());
                                writeSent(context, invoked.get(context), "");
                            }

                            @Override
                            public void sendMessageAfter(SendMessageContext context) {
                                writeSent(context, invoked.remove(context), answer(context));
                            }
                        });
        return producer;
    }

    /** Decide a transaction by its id, with the same outcome each time. */
    private LocalTransactionState end(String id) {
        boolean commits = numberOf(id) % 30 != 13;
        write("ended", "id", id, "outcome", commits ? "commit" : "rollback", "invoked", System.nanoTime());
        return commits ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    private static String answer(SendMessageContext context) {
        Exception error = context.getException();
        if (error == null) {
            boolean isOk = context.getSendResult().getSendStatus() == SendStatus.SEND_OK;
            long offset = isOk ? context.getSendResult().getQueueOffset() : -1;
            return ",\"returned\":" + System.nanoTime()
                    + ",\"status\":\"" + (isOk ? "ok" : "maybe") + "\",\"queue_offset\":" + offset;
        }
        // Sends that waited for a failed flush are answered with this, and may be stored.
        boolean isRefused =
                error instanceof MQBrokerException
                        && ((MQBrokerException) error).getResponseCode() != SERVICE_NOT_AVAILABLE;
        return isRefused ? ",\"returned\":" + System.nanoTime() + ",\"status\":\"refused\"" : "";
    }

    private void writeSent(SendMessageContext context, long when, String answer) {
        Message message = context.getMessage();
        boolean isHalf = "true".equals(message.getProperty(MessageConst.PROPERTY_TRANSACTION_PREPARED));
        boolean isDelayed = message.getDelayTimeLevel() > 0;
        write(
                "sent",
                "client", name,
                "id", message.getKeys(),
                "digest", digest(message.getBody()),
                "topic", topic,
                "queue_id", context.getMq().getQueueId(),
                "invoked", when,
                "kind", isHalf ? "half" : isDelayed ? "delayed" : "plain",
                "delay_ns", isDelayed ? delayNanos : 0,
                "server", context.getBrokerAddr(),
                "wall_ms", System.currentTimeMillis(),
                answer);
    }

    private DefaultMQPushConsumer consumer(String namesrv) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setPollNameServerInterval(INTERVAL_MS);
        consumer.setHeartbeatBrokerInterval(INTERVAL_MS);
        consumer.setPersistConsumerOffsetInterval(INTERVAL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // One thread, so that a queue's messages are consumed in order.
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setAllocateMessageQueueStrategy(
                new AllocateMessageQueueAveragely() {
                    @Override
                    public List<MessageQueue> allocate(
                            String group, String own, List<MessageQueue> all, List<String> members) {
                        List<MessageQueue> share = super.allocate(group, own, all, members);
                        noteShare(all.get(0).getTopic(), share.toString());
                        return share;
                    }
                });
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            ConsumeConcurrentlyStatus status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                            for (MessageExt message : messages) {
                                if (!take(message, context)) {
                                    status = ConsumeConcurrentlyStatus.RECONSUME_LATER;
                                }
                            }
                            return status;
                        });
        return consumer;
    }

    private synchronized void noteShare(String of, String share) {
        if (!share.equals(shares.put(of, share))) {
            sessions++;
            write("happened", "cause", "rebalance", "at", System.nanoTime(), "group", group);
        }
    }

    /** Record a delivery and its result; the batches have one message each. */
    private synchronized boolean take(MessageExt message, ConsumeConcurrentlyContext context) {
        String id = message.getKeys();
        int times = message.getReconsumeTimes();
        String place = context.getMessageQueue().getTopic();
        // If the client can't return a message, it delivers it again itself, between others.
        String session = name + (times > 0 ? "-again-" + again++ : "-" + sessions);
        write(
                "delivered",
                "group", group,
                "session", session,
                "id", id,
                "digest", digest(message.getBody()),
                "topic", place,
                "queue_id", context.getMessageQueue().getQueueId(),
                "queue_offset", message.getQueueOffset(),
                "at", System.nanoTime(),
                "reconsume_times", times,
                "stored_ms", message.getStoreTimestamp(),
                "wall_ms", System.currentTimeMillis());
        boolean isDead = numberOf(id) % 60 == 31;
        if (isDead || (numberOf(id) % 30 == 11 && times < 2)) {
            context.setDelayLevelWhenNextConsume(isDead ? -1 : 1);
            write(
                    "gave-back",
                    "group", group,
                    "id", id,
                    "at", System.nanoTime(),
                    "delay_ns", isDead ? 0 : delayNanos,
                    "status", "maybe",
                    isDead ? ",\"is_dead\":true" : "");
            return false;
        }
        write("consumed", "group", group, "id", id, "at", System.nanoTime());
        return true;
    }

    /** Write a line: alternating names and values, then optional extra fields. */
    private synchronized void write(String type, Object... words) {
        StringBuilder line = new StringBuilder("{\"type\":\"" + type + "\"");
        for (int i = 0; i + 1 < words.length; i += 2) {
            line.append(",\"").append(words[i]).append("\":");
            line.append(words[i + 1] instanceof String ? "\"" + words[i + 1] + "\"" : words[i + 1].toString());
        }
        line.append(words.length % 2 == 1 ? words[words.length - 1] : "").append("}\n");
        try {
            history.write(bytes(line.toString()));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static int numberOf(String id) {
        return Integer.parseInt(id.substring(id.lastIndexOf('-') + 1));
    }

    private static String digest(byte[] body) {
        try {
            byte[] all = MessageDigest.getInstance("SHA-256").digest(body);
            return String.format("%016x", java.nio.ByteBuffer.wrap(all).getLong());
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
