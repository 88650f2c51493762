import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Everything that a single client can do, in steps that check the results.
 *
 * <p>Arguments: NAMESRV BROKER_ADDRESS. Each step is a line "step NAME: FACTS", without times, ports and
 * ids in the facts; a failed step is "step NAME: broke off, EXCEPTION". The topics "read-only",
 * "write-only" and, with the client's version "4" or "5" as a suffix, "start-first", "start-last",
 * "start-time" and "start-young" must exist, each with one queue.
 */
public final class Steps {
    private static final String BROKER = "broker-a";
    private static final String TRACES = "RMQ_SYS_TRACE_TOPIC";
    private static final int AT_ONE_TIME = 16;
    /** A wait ends as soon as its condition holds, so it can exceed a machine's stalls and a lock's expiry. */
    private static final long WAIT_MS = 100_000;
    /** How long no further message may arrive. */
    private static final long QUIET_MS = 1_000;
    /** As long as a polling consumer waits after a rejection. */
    private static final long REFUSED_MS = 8_000;
    private static final long SEEK_MS = 30_000;
    private static final int ATTEMPTS = 3;
    private static final int LITE_PULL_MESSAGE = 361;
    private static final int NOT_SUPPORTED = 3;
    /** A pull waits for fifteen seconds unless woken; RocketMQ checks after five by itself. */
    private static final long AT_ONCE_MS = 10_000;

    private final String namesrv;
    private final String broker;
    private final String version;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer reader;

    private interface Condition {
        boolean holds() throws Exception;
    }

    /** A step that creates a topic and a group of that name. */
    private interface NamedStep {
        String take(String name) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        // Where broadcasting consumers store their offsets: a directory that no other run uses.
        System.setProperty(
                "rocketmq.client.localOffsetStoreDir", Files.createTempDirectory("places").toString());
        new Steps(args[0], args[1]).run();
        System.exit(0);
    }

    private Steps(String namesrv, String broker) {
        this.namesrv = namesrv;
        this.broker = broker;
        String of = DefaultMQProducer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        this.version = of.contains("-5.") ? "5" : "4";
    }

    private void run() throws Exception {
        producer = started(new DefaultMQProducer("steps"));
        reader = patient(new DefaultMQPullConsumer("steps-reader"));
        reader.setInstanceName("steps-reader");
        reader.setConsumerPullTimeoutMillis(Run.REQUEST_MS);
        reader.start();
        // Without an answer to a heartbeat a client assumes a broker without SQL92 support.
        eventually(() -> {
            reader.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                    .sendHeartbeatToAllBrokerWithLock();
            return reader.pull(queue("read-only", 0), MessageSelector.bySql("TRUE"), 0, 1);
        });
        // A process-wide setting, so before the others.
        report("a header with long names", this::longHeader);
        Map<String, Callable<String>> steps = new LinkedHashMap<>();
        steps.put("rebalance", () -> inTime("rebalance", this::rebalance));
        steps.put("orderly", () -> inTime("orderly", this::orderly));
        steps.put("broadcasting", this::broadcasting);
        steps.put("message trace", this::messageTrace);
        steps.put("first start, from the first",
                () -> firstStart("start-first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        steps.put("first start, from the last",
                () -> firstStart("start-last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        steps.put("first start, from a time",
                () -> firstStart("start-time", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP));
        steps.put("first start, from the last of a young queue",
                () -> firstStart("start-young", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        steps.put("lite pull, subscribed", this::litePullSubscribed);
        steps.put("lite pull, assigned", () -> inTime("lite-assigned", this::litePullAssigned));
        steps.put("long polling", () -> inTime("long-polling", this::longPolling));
        steps.put("push by tags", this::pushByTags);
        steps.put("push by SQL92", this::pushBySql);
        steps.put("an invalid SQL92 expression", this::badSql);
        steps.put("a waiting pull", () -> inTime("a-pull-that-waits", this::pullThatWaits));
        steps.put("single", this::single);
        steps.put("batch", this::batch);
        steps.put("oneway", this::oneway);
        steps.put("asynchronous", this::asynchronous);
        steps.put("a long property", this::longProperty);
        steps.put("ordered by queue", this::orderedByQueue);
        steps.put("a write queue below 0", this::anyQueue);
        steps.put("unique keys", this::uniqueKeys);
        steps.put("compression", () -> compression(null));
        if (version.equals("5")) {
            steps.put("compression by LZ4", () -> compression("LZ4"));
            steps.put("compression by Zstandard", () -> compression("ZSTD"));
        }
        steps.put("topic creation by a client", this::topicCreation);
        steps.put("automatic topic creation", this::automaticCreation);
        steps.put("rejected topics", this::refusedTopics);
        steps.put("a topic without write permission", this::readOnly);
        steps.put("a topic without read permission", this::writeOnly);
        steps.put("query by offset id", this::byOffsetId);
        steps.put("query by key", this::byKey);
        steps.put("query by unique key", this::byUniqueKey);
        steps.put("pull", this::pull);
        steps.put("a pull consumer's offsets", this::pullOffsets);
        steps.put("a returned message", this::givenBack);
        steps.put("offset by time", this::offsetByTime);
        steps.put("offset by a future time", this::offsetByTimeToCome);
        steps.put("consume queue", this::consumeQueue);
        steps.put("VIP port", this::vip);
        steps.put("TLS", this::tls);
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONE_TIME);
        List<Future<?>> running = new ArrayList<>();
        steps.forEach((name, step) -> running.add(pool.submit(() -> report(name, step))));
        for (Future<?> each : running) {
            each.get();
        }
    }

    private static void report(String name, Callable<String> step) {
        String facts;
        long startNanos = System.nanoTime();
        try {
            facts = step.call();
        } catch (Throwable error) {
            error.printStackTrace();
            facts = "broke off, " + error;
        }
        System.err.println(name + " took " + (System.nanoTime() - startNanos) / 1_000_000 + " ms");
        synchronized (System.out) {
            System.out.println("step " + name + ": " + facts);
            System.out.flush();
        }
    }

    // Producers.

    private String longHeader() throws Exception {
        Field isShort = MQClientAPIImpl.class.getDeclaredField("sendSmartMsg");
        isShort.setAccessible(true);
        isShort.setBoolean(null, false);
        try {
            return single("long-header");
        } finally {
            isShort.setBoolean(null, true);
        }
    }

    private String single() throws Exception {
        return single("single");
    }

    private String single(String name) throws Exception {
        String topic = topic(name, 2);
        List<String> facts = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            SendResult result = producer.send(message(topic, "A", "k" + i), queue(topic, 1));
            facts.add(result.getSendStatus() + " at " + result.getQueueOffset() + " of queue "
                    + result.getMessageQueue().getQueueId() + " " + result.getRegionId()
                    + (result.isTraceOn() ? " traced" : ""));
        }
        MessageExt last = stored(topic, 2, 3).get(2);
        return facts + ", stored " + last.getKeys() + " " + last.getTags() + " " + text(last) + " flag "
                + last.getFlag() + " mine " + last.getProperty("mine");
    }

    private String batch() throws Exception {
        String topic = topic("batch", 1);
        List<Message> messages = messages(topic, 10);
        SendResult result = producer.send(messages);
        List<MessageExt> stored = stored(topic, 1, 10);
        List<String> ids = Arrays.asList(result.getMsgId().split(","));
        List<String> theirs = stored.stream().map(MessageExt::getMsgId).collect(Collectors.toList());
        return result.getSendStatus() + " at " + result.getQueueOffset() + ", stored " + keys(stored)
                + ", " + ids.size() + " ids, the messages' " + ids.equals(theirs);
    }

    private String oneway() throws Exception {
        String topic = topic("oneway", 1);
        for (Message message : messages(topic, 5)) {
            producer.sendOneway(message);
        }
        SendResult last = producer.send(message(topic, "A", "last"));
        return "stored " + new TreeSet<>(keys(stored(topic, 1, 6))) + ", the answered one " + last.getSendStatus();
    }

    private String asynchronous() throws Exception {
        String topic = topic("asynchronous", 1);
        Set<Long> places = Collections.synchronizedSet(new TreeSet<>());
        CountDownLatch answered = new CountDownLatch(20);
        for (Message message : messages(topic, 20)) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    places.add(result.getQueueOffset());
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                }
            });
        }
        boolean all = answered.await(WAIT_MS, TimeUnit.MILLISECONDS);
        return (all ? "all answered" : "some unanswered") + ", at " + places;
    }

    /** A send with a header that must not make the broker close the connection, with others in flight on it. */
    private String longProperty() throws Exception {
        String topic = topic("long-property", 1);
        int others = 200;
        CountDownLatch answered = new CountDownLatch(others);
        Set<String> failures = Collections.synchronizedSet(new TreeSet<>());
        Message tooLong = message(topic, "A", "long");
        tooLong.putUserProperty("long", "中".repeat(20_000));
        String refusal = null;
        List<Message> messages = messages(topic, others);
        for (int i = 0; i < others; i++) {
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failures.add(error.getClass().getSimpleName());
                    answered.countDown();
                }
            });
            if (i == others / 2) {
                refusal = outcome(() -> producer.send(tooLong).getSendStatus().name());
            }
        }
        boolean all = answered.await(WAIT_MS, TimeUnit.MILLISECONDS);
        return refusal + ", of the others " + (all ? "all answered" : "some unanswered") + ", failed " + failures
                + ", stored " + stored(topic, 1, others).size();
    }

    private String orderedByQueue() throws Exception {
        String topic = topic("ordered-by-queue", 4);
        for (int i = 0; i < 12; i++) {
            producer.send(
                    message(topic, "A", "k" + i),
                    (queues, of, order) -> queues.get((Integer) order % queues.size()),
                    i % 3);
        }
        Map<Integer, List<String>> queues = new TreeMap<>();
        for (MessageExt each : stored(topic, 4, 12)) {
            queues.computeIfAbsent(each.getQueueId(), key -> new ArrayList<>()).add(each.getKeys());
        }
        return queues.toString();
    }

    private String anyQueue() throws Exception {
        String topic = topic("any-queue", 2);
        Set<Integer> queues = new TreeSet<>();
        for (int i = 0; i < 40; i++) {
            SendResult result = producer.send(message(topic, "A", "k" + i), queue(topic, -1));
            queues.add(result.getMessageQueue().getQueueId());
        }
        List<MessageExt> stored = stored(topic, 2, 40);
        boolean both = stored.stream().map(MessageExt::getQueueId).distinct().count() == 2;
        return stored.size() + " stored, " + (both ? "some in each queue" : "all in one queue") + ", answered " + queues;
    }

    private String uniqueKeys() throws Exception {
        String topic = topic("unique-keys", 1);
        SendResult result = producer.send(message(topic, "A", "k"));
        MessageExt stored = stored(topic, 1, 1).get(0);
        boolean isSame = result.getMsgId().equals(
                stored.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        boolean isShown = stored.getMsgId().equals(result.getMsgId());
        return "the answer's id is the stored key " + isSame + ", and what a consumer shows " + isShown;
    }

    private String compression(String type) throws Exception {
        String topic = topic("compression" + (type == null ? "" : "-" + type), 1);
        DefaultMQProducer sending = producer;
        if (type != null) {
            sending = new DefaultMQProducer("steps-" + type);
            sending.setInstanceName("steps-" + type);
            Method setter = Arrays.stream(DefaultMQProducer.class.getMethods())
                    .filter(method -> method.getName().equals("setCompressType"))
                    .findFirst().orElseThrow();
            setter.invoke(sending, constant(setter.getParameterTypes()[0], type));
            sending = started(sending);
        }
        char[] body = new char[20_000];
        Arrays.fill(body, 'x');
        sending.send(new Message(topic, "A", "k", new String(body).getBytes(StandardCharsets.UTF_8)));
        MessageExt stored = stored(topic, 1, 1).get(0);
        if (sending != producer) {
            sending.shutdown();
        }
        return "received " + stored.getBody().length + " bytes, stored "
                + (stored.getStoreSize() < 2_000 ? "fewer" : "as many") + ", flags " + stored.getSysFlag();
    }

    private String topicCreation() throws Exception {
        String topic = topic("made-by-a-client", 3);
        return eventually(() -> producer.fetchPublishMessageQueues(topic).size() + " queues to write, "
                + reader.fetchSubscribeMessageQueues(topic).size() + " to read");
    }

    private String automaticCreation() throws Exception {
        SendResult result = producer.send(message("made-by-a-send" + version, "A", "k"));
        return result.getSendStatus() + ", "
                + eventually(() -> reader.fetchSubscribeMessageQueues("made-by-a-send" + version).size())
                + " queues";
    }

    private String refusedTopics() throws Exception {
        List<String> facts = new ArrayList<>();
        Map<String, String> topics = new LinkedHashMap<>();
        topics.put("illegal", "with~tilde");
        topics.put("empty", "");
        topics.put("long", "x".repeat(128));
        topics.put("the broker's own", "SCHEDULE_TOPIC_XXXX");
        for (String what : topics.keySet()) {
            Message refused = message(topics.get(what), "A", "k");
            facts.add(what + " " + outcome(() -> producer.send(refused).getSendStatus().name()));
        }
        facts.add("too much " + outcome(() ->
                producer.send(new Message("x", new byte[5 << 20])).getSendStatus().name()));
        return facts.toString();
    }

    private String readOnly() throws Exception {
        String found = outcome(() -> producer.send(message("read-only", "A", "k")).getSendStatus().name());
        String told = outcome(() ->
                producer.send(message("read-only", "A", "k"), queue("read-only", 0)).getSendStatus().name());
        return "by the route " + found + ", to a queue of it " + told;
    }

    private String writeOnly() throws Exception {
        producer.send(message("write-only", "A", "k"), queue("write-only", 0));
        return "a pull " + outcome(() -> reader.pull(queue("write-only", 0), "*", 0, 1).getPullStatus().name());
    }

    // Queries.

    private String byOffsetId() throws Exception {
        String topic = topic("by-offset-id", 1);
        SendResult sent = producer.send(message(topic, "A", "k"));
        MessageExt found = eventually(() -> producer.viewMessage(topic, sent.getOffsetMsgId()));
        String absent = sent.getOffsetMsgId().substring(0, 16) + "000000000F000000";
        return "found " + found.getKeys() + " " + text(found) + ", a missing one "
                + outcome(() -> producer.viewMessage(topic, absent).getKeys());
    }

    private String byKey() throws Exception {
        String topic = topic("by-key", 1);
        for (String key : List.of("one", "two", "one", "two three")) {
            producer.send(message(topic, "A", key));
        }
        long now = System.currentTimeMillis();
        List<String> facts = new ArrayList<>();
        // RocketMQ writes its index after the answer, in order.
        for (String key : List.of("three", "one")) {
            facts.add(0, key + " " + eventually(() -> offsetsByKey(topic, key, now)));
        }
        facts.add("absent " + outcome(() -> offsetsByKey(topic, "absent", now)));
        return facts.toString();
    }

    private String offsetsByKey(String topic, String key, long now) throws Exception {
        return producer.queryMessage(topic, key, 32, now - 600_000, now + 600_000).getMessageList().stream()
                .map(MessageExt::getQueueOffset).sorted().collect(Collectors.toList()).toString();
    }

    private String byUniqueKey() throws Exception {
        String topic = topic("by-unique-key", 1);
        SendResult sent = producer.send(message(topic, "A", "k"));
        return "found " + outcome(() -> eventually(() -> producer.viewMessage(topic, sent.getMsgId()).getKeys()));
    }

    // Consumers.

    private String pull() throws Exception {
        String topic = topic("pull", 1);
        for (int i = 0; i < 10; i++) {
            producer.send(message(topic, i % 2 == 0 ? "A" : "B", "k" + i));
        }
        stored(topic, 1, 10);
        MessageQueue queue = queue(topic, 0);
        List<String> facts = new ArrayList<>();
        facts.add(shown(reader.pull(queue, "*", 2, 3)));
        facts.add(shown(reader.pull(queue, "B", 0, 32)));
        facts.add(shown(reader.pull(queue, MessageSelector.bySql("number > 6"), 0, 32)));
        facts.add(shown(reader.pull(queue, "C", 0, 32)));
        facts.add(shown(reader.pull(queue, "*", 10, 32)));
        facts.add(shown(reader.pull(queue, "*", 99, 32)));
        return String.join("; ", facts);
    }

    private String pullThatWaits(String name) throws Exception {
        String topic = topic(name, 1);
        producer.send(message(topic, "A", "first"));
        stored(topic, 1, 1);
        long[] sentNanos = {0};
        Thread sending = new Thread(() -> {
            try {
                // The pull is waiting by then.
                Thread.sleep(1_500);
                sentNanos[0] = System.nanoTime();
                producer.send(message(topic, "A", "k"));
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        sending.start();
        PullResult result = reader.pullBlockIfNotFound(queue(topic, 0), "*", 1, 32);
        long foundNanos = System.nanoTime();
        sending.join();
        return shown(result) + (foundNanos - sentNanos[0] < AT_ONCE_MS * 1_000_000 ? ", at once" : ", late");
    }

    private String pullOffsets() throws Exception {
        String topic = topic("pull-offsets", 1);
        MessageQueue queue = queue(topic, 0);
        // Values below -1 mean no answer from the broker.
        long before = eventually(() -> {
            long offset = reader.fetchConsumeOffset(queue, true);
            if (offset < -1) {
                throw new IllegalStateException("no answer");
            }
            return offset;
        });
        producer.send(messages(topic, 9));
        reader.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, 7);
        reader.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        until(() -> reader.fetchConsumeOffset(queue, true) == 7);
        return "before " + before + ", then 7";
    }

    private String givenBack() throws Exception {
        String topic = topic("given-back", 1);
        String group = "given-back" + version;
        producer.send(message(topic, "A", "k"));
        // Straight to the dead-letter topic, without a delay.
        reader.sendMessageBack(stored(topic, 1, 1).get(0), -1, BROKER, group);
        MessageExt dead = eventually(() -> stored("%DLQ%" + group, 1, 1).get(0));
        return "dead " + dead.getKeys() + " " + text(dead) + " of " + named(dead.getProperty("RETRY_TOPIC"))
                + ", attempts " + dead.getReconsumeTimes() + ", delay " + dead.getDelayTimeLevel();
    }

    private String litePullSubscribed() throws Exception {
        String topic = topic("lite-subscribed", 4);
        for (Message message : messages(topic, 20)) {
            producer.send(message);
        }
        DefaultLitePullConsumer consumer = lite("lite-subscribed");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        Set<String> received = new HashSet<>();
        int[] deliveries = {0};
        until(() -> consumer.assignment().size() == 4);
        within(pollsMs(), () -> {
            List<MessageExt> polled = consumer.poll(500);
            polled.forEach(each -> received.add(each.getKeys()));
            deliveries[0] += polled.size();
            return received.size() >= 20;
        });
        Set<MessageQueue> assigned = consumer.assignment();
        consumer.commitSync();
        long committed = 0;
        for (MessageQueue queue : assigned) {
            committed += consumer.committed(queue);
        }
        consumer.shutdown();
        return received.size() + " messages in " + deliveries[0] + " deliveries of " + assigned.size()
                + " queues, committed " + committed;
    }

    private String litePullAssigned(String name) throws Exception {
        String topic = topic(name, 1);
        producer.send(messages(topic, 10));
        // An offset that isn't readable yet can't be a target.
        stored(topic, 1, 10);
        MessageQueue queue = queue(topic, 0);
        DefaultLitePullConsumer consumer = lite(name);
        consumer.setAutoCommit(false);
        consumer.start();
        consumer.assign(List.of(queue));
        List<String> facts = new ArrayList<>();
        consumer.seek(queue, 7);
        if (pollsMs() == REFUSED_MS) {
            List<String> refused = polled(consumer, 3, REFUSED_MS);
            consumer.shutdown();
            return "from 7 " + refused + ", and no more";
        }
        facts.add("from 7 " + sought(consumer, 3));
        consumer.seekToBegin(queue);
        facts.add("from the begin " + sought(consumer, 10));
        consumer.seekToEnd(queue);
        producer.send(message(topic, "A", "new"));
        facts.add("from the end " + sought(consumer, 1));
        facts.add("offset of long ago " + consumer.offsetForTimestamp(queue, 1L));
        consumer.shutdown();
        return String.join("; ", facts);
    }

    private String pushByTags() throws Exception {
        String topic = topic("by-tags", 2);
        // "BB" and "Aa" have the same hash.
        int number = 0;
        for (String tag : List.of("Aa", "BB", "C", "Aa", "D", "BB", "C")) {
            producer.send(message(topic, tag, "k" + number++ + "-" + tag));
        }
        return received(topic, "by-tags", "Aa || C", null, 4);
    }

    private String pushBySql() throws Exception {
        String topic = topic("by-sql", 2);
        for (Message message : messages(topic, 10)) {
            producer.send(message);
        }
        return received(topic, "by-sql", null, "number BETWEEN 3 AND 6 AND NOT (mine <> 'x') OR TAGS IN ('Z')", 4);
    }

    private String badSql() throws Exception {
        String topic = topic("bad-sql", 1);
        Received consumer = new Received("bad-sql");
        consumer.client.subscribe(topic, MessageSelector.bySql("number > "));
        String start = outcome(() -> {
            consumer.client.start();
            return "accepted";
        });
        consumer.client.shutdown();
        producer.send(message(topic, "A", "k"));
        stored(topic, 1, 1);
        return "start " + start + ", pull "
                + outcome(() -> shown(reader.pull(queue(topic, 0), MessageSelector.bySql("number > "), 0, 32)));
    }

    private String longPolling(String name) throws Exception {
        String topic = topic(name, 1);
        Received consumer = new Received(name).start(topic);
        until(() -> consumer.queues(topic) == 1);
        // RocketMQ is slow with the first message of a queue that it hasn't created yet.
        producer.send(message(topic, "A", "first"));
        until(() -> consumer.keys.contains("first"));
        // The next pull has found nothing and waits.
        Thread.sleep(2_000);
        List<String> facts = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            int number = i;
            long startNanos = System.nanoTime();
            producer.send(message(topic, "A", "k" + i));
            until(() -> consumer.keys.contains("k" + number));
            facts.add("k" + i + (isAtOnce(startNanos) ? " at once" : " late"));
        }
        consumer.client.shutdown();
        return facts.toString();
    }

    private String firstStart(String name, ConsumeFromWhere where) throws Exception {
        String topic = name + version;
        MessageQueue queue = eventually(() -> reader.fetchSubscribeMessageQueues(topic).iterator().next());
        producer.send(message(topic, "A", "old"));
        Thread.sleep(4_000);
        producer.send(message(topic, "A", "young"));
        long youngMs = stored(List.of(queue), 2).get(1).getStoreTimestamp();
        Received consumer = new Received(name);
        consumer.client.setConsumeFromWhere(where);
        // Consumers use whole seconds; RocketMQ begins at the nearest message.
        consumer.client.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(youngMs - 500));
        consumer.start(topic);
        // Once it has its queue, it has its starting offset.
        until(() -> consumer.queues(topic) == 1);
        producer.send(message(topic, "A", "new"));
        // Separate threads consume them, so the last may finish before the first.
        until(() -> consumer.keys.contains("new") && consumer.client.getDefaultMQPushConsumerImpl()
                .getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) == 3);
        consumer.client.shutdown();
        return "received " + new TreeSet<>(consumer.keys);
    }

    private String orderly(String group) throws Exception {
        String topic = topic(group, 3);
        for (int i = 0; i < 15; i++) {
            producer.send(message(topic, "A", "k" + i), queue(topic, i % 3));
        }
        Map<Integer, List<String>> queues = new TreeMap<>();
        Set<String> refused = new HashSet<>();
        DefaultMQPushConsumer first = orderlyConsumer(group, "1", topic, queues, refused);
        until(() -> distinct(queues) == 15);
        first.shutdown();
        for (int i = 15; i < 18; i++) {
            producer.send(message(topic, "A", "k" + i), queue(topic, i % 3));
        }
        long startNanos = System.nanoTime();
        DefaultMQPushConsumer second = orderlyConsumer(group, "2", topic, queues, refused);
        // A lock that wasn't released expires after a minute.
        until(() -> distinct(queues) == 18);
        boolean isSoon = System.nanoTime() - startNanos < 35_000_000_000L;
        second.shutdown();
        if (queues.values().stream().mapToInt(List::size).sum() > 18) {
            // A lock that a stalled client doesn't renew expires, and then a queue is read again from its offset.
            throw new IllegalStateException("some came again: " + queues);
        }
        return queues + ", refused once " + new TreeSet<>(refused) + ", taken over " + (isSoon ? "soon" : "late");
    }

    private DefaultMQPushConsumer orderlyConsumer(
            String group, String instance, String topic, Map<Integer, List<String>> queues, Set<String> refused)
            throws Exception {
        DefaultMQPushConsumer consumer = patient(new DefaultMQPushConsumer(group + version));
        consumer.setInstanceName(group + instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            synchronized (queues) {
                for (MessageExt each : messages) {
                    if (each.getKeys().equals("k6") && refused.add("k6")) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    queues.computeIfAbsent(each.getQueueId(), key -> new ArrayList<>()).add(each.getKeys());
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private String broadcasting() throws Exception {
        String topic = topic("broadcasting", 2);
        List<Received> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Received consumer = new Received("broadcasting", "broadcasting" + i);
            for (Method method : DefaultMQPushConsumer.class.getMethods()) {
                if (method.getName().equals("setMessageModel")) {
                    method.invoke(consumer.client, constant(method.getParameterTypes()[0], "BROADCASTING"));
                }
            }
            consumers.add(consumer.start(topic));
        }
        for (Received each : consumers) {
            until(() -> each.queues(topic) == 2);
        }
        for (Message message : messages(topic, 10)) {
            producer.send(message);
        }
        List<String> facts = new ArrayList<>();
        for (Received each : consumers) {
            until(() -> each.keys.size() >= 10);
            facts.add(each.keys.size() + " messages of " + each.queues(topic) + " queues");
        }
        Thread.sleep(QUIET_MS);
        int deliveries = consumers.stream().mapToInt(each -> each.deliveries).sum();
        consumers.forEach(each -> each.client.shutdown());
        return facts + ", " + deliveries + " deliveries";
    }

    private String rebalance(String name) throws Exception {
        String topic = topic(name, 4);
        Received first = new Received(name, name + "-1").start(topic);
        until(() -> first.queues(topic) == 4);
        List<String> facts = new ArrayList<>();
        facts.add("alone " + first.queues(topic));
        long startNanos = System.nanoTime();
        Received second = new Received(name, name + "-2").start(topic);
        until(() -> first.queues(topic) == 2 && second.queues(topic) == 2);
        // Without a notification, a consumer checks after twenty seconds.
        facts.add("two " + first.queues(topic) + " and " + second.queues(topic)
                + (isSoon(startNanos) ? " soon" : " late"));
        for (Message message : messages(topic, 20)) {
            producer.send(message);
        }
        until(() -> {
            Set<String> keys = new HashSet<>(List.of(first.keys.toArray(new String[0])));
            keys.addAll(List.of(second.keys.toArray(new String[0])));
            return keys.size() == 20;
        });
        facts.add("deliveries " + (first.deliveries + second.deliveries));
        startNanos = System.nanoTime();
        second.client.shutdown();
        until(() -> first.queues(topic) == 4);
        facts.add("alone again " + first.queues(topic) + (isSoon(startNanos) ? " soon" : " late"));
        first.client.shutdown();
        return String.join("; ", facts);
    }

    private String messageTrace() throws Exception {
        String topic = topic("traced", 1);
        // Traces of all clients go to one topic.
        String key = "k-" + topic;
        DefaultMQProducer tracing = new DefaultMQProducer("traced-producer", true, TRACES);
        started(tracing);
        tracing.send(message(topic, "A", key));
        DefaultMQPushConsumer client = new DefaultMQPushConsumer("traced" + version, true, TRACES);
        Received consumer = new Received(client, "traced");
        consumer.start(topic);
        until(() -> consumer.keys.contains(key));
        // A 5.x consumer created this way writes no traces.
        until(() -> tracesOf(key).size() >= (version.equals("4") ? 3 : 1));
        Thread.sleep(QUIET_MS);
        consumer.client.shutdown();
        tracing.shutdown();
        return "kinds " + tracesOf(key);
    }

    /** The kinds of traces that contain a key. */
    private Set<String> tracesOf(String key) throws Exception {
        Set<String> kinds = new TreeSet<>();
        for (MessageExt each : stored(TRACES, 1, 1)) {
            for (String record : text(each).split("\u0002")) {
                if (record.contains(key)) {
                    kinds.add(record.split("\u0001")[0]);
                }
            }
        }
        return kinds;
    }

    // Offsets.

    private String offsetByTime() throws Exception {
        String topic = topic("offset-by-time", 1);
        MessageQueue queue = queue(topic, 0);
        producer.send(messages(topic, 3));
        Thread.sleep(1_000);
        producer.send(messages(topic, 3));
        List<MessageExt> stored = stored(topic, 1, 6);
        // RocketMQ answers with the nearest message, which is the later one.
        long middle = stored.get(3).getStoreTimestamp() - 20;
        return eventually(() -> "begin " + reader.minOffset(queue) + ", end " + reader.maxOffset(queue)
                + ", long ago " + producer.searchOffset(queue, 1)
                + ", between " + producer.searchOffset(queue, middle)
                + ", the first message is " + recency(stored.get(0), producer.earliestMsgStoreTime(queue)));
    }

    private static String recency(MessageExt first, long storeTime) {
        return first.getStoreTimestamp() == storeTime ? "recent" : String.valueOf(storeTime);
    }

    private String offsetByTimeToCome() throws Exception {
        String topic = topic("offset-by-time-to-come", 1);
        producer.send(messages(topic, 3));
        stored(topic, 1, 3);
        return eventually(() ->
                String.valueOf(producer.searchOffset(queue(topic, 0), System.currentTimeMillis() + 600_000)));
    }

    private String consumeQueue() throws Exception {
        String topic = topic("consume-queue", 1);
        producer.send(messages(topic, 4));
        stored(topic, 1, 4);
        var body = eventually(() -> reader.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                .getMQClientAPIImpl().queryConsumeQueue(broker, topic, 0, 1, 2, "", 10_000));
        List<String> units = new ArrayList<>();
        body.getQueueData().forEach(unit -> units.add("tag " + unit.getTagsCode()));
        return "from " + body.getMinQueueIndex() + " to " + body.getMaxQueueIndex() + ", units " + units;
    }

    // Ways to connect.

    private String vip() throws Exception {
        String topic = topic("vip", 1);
        DefaultMQProducer sending = new DefaultMQProducer("steps-vip");
        sending.setInstanceName("steps-vip");
        sending.setVipChannelEnabled(true);
        started(sending);
        SendStatus status = sending.send(message(topic, "A", "k")).getSendStatus();
        sending.shutdown();
        Received consumer = new Received("vip");
        consumer.client.setVipChannelEnabled(true);
        consumer.start(topic);
        until(() -> consumer.keys.contains("k"));
        consumer.client.shutdown();
        return "sent " + status + ", received " + consumer.keys;
    }

    private String tls() throws Exception {
        String topic = topic("tls", 1);
        DefaultMQProducer sending = new DefaultMQProducer("steps-tls");
        sending.setInstanceName("steps-tls");
        sending.setUseTLS(true);
        started(sending);
        SendStatus status = sending.send(message(topic, "A", "k")).getSendStatus();
        sending.shutdown();
        Received consumer = new Received("tls");
        consumer.client.setUseTLS(true);
        consumer.start(topic);
        until(() -> consumer.keys.contains("k"));
        consumer.client.shutdown();
        return "sent " + status + ", received " + consumer.keys;
    }

    // Helpers of the steps.

    /** A push consumer with its received messages. */
    private final class Received {
        final DefaultMQPushConsumer client;
        final List<String> keys = Collections.synchronizedList(new ArrayList<>());
        volatile int deliveries;

        Received(String group) {
            this(group, group);
        }

        Received(String group, String instance) {
            this(new DefaultMQPushConsumer(group + version), instance);
        }

        Received(DefaultMQPushConsumer client, String instance) {
            this.client = patient(client);
            client.setInstanceName(instance);
            client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            client.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                synchronized (this) {
                    deliveries += messages.size();
                    messages.stream().map(MessageExt::getKeys).filter(key -> !keys.contains(key))
                            .forEach(keys::add);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }

        Received start(String topic) throws Exception {
            client.subscribe(topic, "*");
            client.start();
            return this;
        }

        int queues(String topic) {
            return (int) client.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                    .keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count();
        }
    }

    private String received(String topic, String group, String tags, String sql, int count) throws Exception {
        Received consumer = new Received(group);
        if (sql == null) {
            consumer.client.subscribe(topic, tags);
        } else {
            consumer.client.subscribe(topic, MessageSelector.bySql(sql));
        }
        consumer.client.start();
        until(() -> consumer.keys.size() >= count);
        Thread.sleep(QUIET_MS);
        consumer.client.shutdown();
        return "received " + new TreeSet<>(consumer.keys) + " in " + consumer.deliveries + " deliveries";
    }

    private DefaultMQProducer started(DefaultMQProducer made) throws Exception {
        // A send that times out is repeated, and then exists twice.
        patient(made).setSendMsgTimeout(Run.REQUEST_MS);
        made.start();
        return made;
    }

    private <C extends ClientConfig> C patient(C client) {
        client.setNamesrvAddr(namesrv);
        return Run.patient(client);
    }

    private DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer consumer = patient(new DefaultLitePullConsumer(group + version));
        consumer.setInstanceName(group);
        return consumer;
    }

    private String topic(String name, int queues) throws Exception {
        return topic(name, queues, name + version);
    }

    private String topic(String name, int queues, String topic) throws Exception {
        return eventually(() -> created(queues, topic));
    }

    private String created(int queues, String topic) throws Exception {
        for (Method method : DefaultMQProducer.class.getMethods()) {
            // 5.x has one more argument.
            if (method.getName().equals("createTopic") && method.getParameterTypes()[2] == int.class) {
                if (method.getParameterCount() == 3) {
                    method.invoke(producer, "TBW102", topic, queues);
                } else if (method.getParameterCount() == 4 && method.getParameterTypes()[3] == Map.class) {
                    method.invoke(producer, "TBW102", topic, queues, Map.of());
                }
            }
        }
        until(() -> producer.fetchPublishMessageQueues(topic).size() == queues);
        return topic;
    }

    /** Without the suffix that separates the topics of the two client versions. */
    private String named(String topic) {
        return topic.endsWith(version) ? topic.substring(0, topic.length() - 1) : topic;
    }

    private static MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, BROKER, queueId);
    }

    private static Message message(String topic, String tag, String key) {
        Message message = new Message(topic, tag, key, ("body of " + key).getBytes(StandardCharsets.UTF_8));
        message.setFlag(5);
        message.putUserProperty("mine", "x");
        return message;
    }

    private static List<Message> messages(String topic, int count) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = message(topic, "A", "k" + i);
            message.putUserProperty("number", String.valueOf(i));
            messages.add(message);
        }
        return messages;
    }

    private List<MessageExt> stored(String topic, int queues, int count) throws Exception {
        List<MessageQueue> all = new ArrayList<>();
        for (int queueId = 0; queueId < queues; queueId++) {
            all.add(queue(topic, queueId));
        }
        return stored(all, count);
    }

    /** Read queues once they have enough messages: RocketMQ writes its queues after the answer. */
    private List<MessageExt> stored(List<MessageQueue> queues, int count) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        until(() -> {
            found.clear();
            for (MessageQueue queue : queues) {
                long offset = 0;
                PullResult result = reader.pull(queue, "*", offset, 32);
                while (result.getPullStatus() == PullStatus.FOUND) {
                    found.addAll(result.getMsgFoundList());
                    offset = result.getNextBeginOffset();
                    result = reader.pull(queue, "*", offset, 32);
                }
            }
            return found.size() >= count;
        });
        return found;
    }

    /** How long to poll: a 5.x client pulls with a different code, which RocketMQ 4.x rejects. */
    private long pollsMs() throws Exception {
        if (version.equals("4")) {
            return WAIT_MS;
        }
        RemotingCommand answer = eventually(() -> reader.getDefaultMQPullConsumerImpl().getRebalanceImpl()
                .getmQClientFactory().getMQClientAPIImpl().getRemotingClient().invokeSync(
                        broker, RemotingCommand.createRequestCommand(LITE_PULL_MESSAGE, null), 10_000));
        return answer.getCode() == NOT_SUPPORTED ? REFUSED_MS : WAIT_MS;
    }

    /** The messages from a seeked offset: the client may interrupt the pull that has just used that offset. */
    private static List<String> sought(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<String> keys = polled(consumer, count, SEEK_MS);
        if (keys.size() < count) {
            consumer.shutdown();
            throw new IllegalStateException("from the place that was sought came only " + keys);
        }
        return keys;
    }

    private static List<String> polled(DefaultLitePullConsumer consumer, int count, long waitMs) throws Exception {
        List<String> keys = new ArrayList<>();
        within(waitMs, () -> {
            consumer.poll(500).forEach(each -> keys.add(each.getKeys()));
            return keys.size() >= count;
        });
        return keys;
    }

    private static String shown(PullResult result) {
        List<MessageExt> found = result.getMsgFoundList();
        return result.getPullStatus() + " " + (found == null ? "" : keys(found) + " ")
                + "next " + result.getNextBeginOffset()
                + " of " + result.getMinOffset() + " to " + result.getMaxOffset();
    }

    private static List<String> keys(Collection<MessageExt> messages) {
        return messages.stream().map(Message::getKeys).collect(Collectors.toList());
    }

    private static long distinct(Map<Integer, List<String>> queues) {
        synchronized (queues) {
            return queues.values().stream().flatMap(List::stream).distinct().count();
        }
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object constant(Class<?> type, String name) {
        return Enum.valueOf((Class<Enum>) type, name);
    }

    /** The result: its status, or its error. */
    private static String outcome(Callable<String> step) throws InterruptedException {
        for (int attempt = 1; ; attempt++) {
            try {
                return step.call();
            } catch (RemotingException unheard) {
                // A missing answer isn't a rejection.
                if (attempt == ATTEMPTS) {
                    return "refused " + unheard.getClass().getSimpleName();
                }
                Thread.sleep(1_000);
            } catch (Exception refused) {
                int code = SignedProducer.codeOf(refused);
                return "refused " + refused.getClass().getSimpleName() + (code < 0 ? "" : " " + code);
            }
        }
    }

    /**
     * A step's result. A late or failed step is repeated with a new name, because a machine may stall and
     * releasing a lock has no answer. A real failure fails again.
     */
    private static String inTime(String name, NamedStep step) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                String facts = step.take(name + attempt);
                if (!facts.contains("late") || attempt == ATTEMPTS) {
                    return facts;
                }
                System.err.println(name + " was late: " + facts);
            } catch (Exception error) {
                if (attempt == ATTEMPTS) {
                    throw error;
                }
                error.printStackTrace();
            }
        }
    }

    private static boolean isAtOnce(long startNanos) {
        return System.nanoTime() - startNanos < AT_ONCE_MS * 1_000_000L;
    }

    private static boolean isSoon(long startNanos) {
        return System.nanoTime() - startNanos < 15_000_000_000L;
    }

    private interface Attempt<T> {
        T make() throws Exception;
    }

    /** Retry operations that don't work yet, or not on a busy machine. */
    private static <T> T eventually(Attempt<T> attempt) throws Exception {
        List<T> made = new ArrayList<>();
        until(() -> made.add(attempt.make()));
        return made.get(0);
    }

    private static void until(Condition condition) throws Exception {
        if (!within(WAIT_MS, condition)) {
            throw new IllegalStateException("it did not come about");
        }
    }

    /** Whether the condition holds in time; an error counts as false. */
    private static boolean within(long waitMs, Condition condition) throws Exception {
        long endNanos = System.nanoTime() + waitMs * 1_000_000L;
        while (true) {
            try {
                if (condition.holds()) {
                    return true;
                }
                if (System.nanoTime() > endNanos) {
                    return false;
                }
            } catch (Exception error) {
                if (System.nanoTime() > endNanos) {
                    throw error;
                }
            }
            Thread.sleep(20);
        }
    }
}
