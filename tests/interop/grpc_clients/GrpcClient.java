import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Steps of the gRPC Java client: GrpcClient HOST:PORT cleartext|tls [ACCESS_KEY SECRET_KEY] STEP... */
public final class GrpcClient {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final int PATIENCE_S = 60;
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
    private static ClientConfiguration configuration;

    private interface Step {
        String run() throws Exception;
    }

    public static void main(String[] arguments) {
        configuration = configured(arguments, arguments[3]);
        Map<String, Step> steps = Map.ofEntries(
            Map.entry("send", GrpcClient::send),
            Map.entry("tags", GrpcClient::tags),
            Map.entry("sql92", GrpcClient::sql92),
            Map.entry("fifo", GrpcClient::fifo),
            Map.entry("delay", GrpcClient::delay),
            Map.entry("transaction", GrpcClient::transaction),
            Map.entry("invisible", GrpcClient::invisible),
            Map.entry("push", GrpcClient::push),
            Map.entry("fifo push", GrpcClient::fifoPush),
            Map.entry("dead letter", GrpcClient::deadLetter),
            Map.entry("tls", () -> sendAndReceive("java-tls")),
            Map.entry("wrong secret", () -> wrongSecret(configured(arguments, "wrong secret"))));
        for (int i = 4; i < arguments.length; i++) {
            String outcome;
            try {
                outcome = steps.get(arguments[i]).run();
            } catch (Throwable error) {
                outcome = "broke off: " + error;
            }
            System.out.println("OUTCOME " + arguments[i] + ": " + outcome.replace('\n', ' '));
        }
        // The client leaves threads behind.
        System.exit(0);
    }

    private static ClientConfiguration configured(String[] arguments, String secret) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0])
            .enableSsl(arguments[1].equals("tls"));
        if (!arguments[2].isEmpty()) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(arguments[2], secret));
        }
        return builder.build();
    }

    private static String wrongSecret(ClientConfiguration wrong) {
        configuration = wrong;
        try (Producer producer = producer("java-tls", null)) {
            producer.send(message("java-tls", "hello").build());
            return "sent";
        } catch (Throwable error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                Matcher code = CODE.matcher(String.valueOf(cause.getMessage()));
                if (cause instanceof ClientException && code.find()) {
                    return cause.getClass().getSimpleName() + " " + code.group(1);
                }
            }
            return "broke off: " + error;
        }
    }

    private static String send() throws Exception {
        return sendAndReceive("java-send");
    }

    private static String sendAndReceive(String topic) throws Exception {
        try (Producer producer = producer(topic, null)) {
            producer.send(message(topic, "hello").setTag("A").setKeys("k1", "k2")
                .addProperty("colour", "red").build());
        }
        try (SimpleConsumer consumer = consumer(topic + "-group", topic, FilterExpression.SUB_ALL)) {
            MessageView got = receive(consumer, 1).get(0);
            consumer.ack(got);
            return text(got) + " " + got.getTag().orElse("") + " " + got.getKeys() + " "
                + new TreeMap<>(got.getProperties()) + " attempt " + got.getDeliveryAttempt();
        }
    }

    private static String tags() throws Exception {
        return filtered("java-tags", new FilterExpression("A || B"));
    }

    private static String sql92() throws Exception {
        return filtered("java-sql92",
            new FilterExpression("number >= 2 AND TAGS <> 'D'", FilterExpressionType.SQL92));
    }

    private static String filtered(String topic, FilterExpression expression) throws Exception {
        try (Producer producer = producer(topic, null);
                SimpleConsumer consumer = consumer(topic + "-group", topic, expression)) {
            int number = 0;
            for (String tag : List.of("A", "B", "C", "D")) {
                producer.send(message(topic, tag).setTag(tag)
                    .addProperty("number", String.valueOf(++number)).build());
            }
            return sorted(acknowledged(consumer, 2));
        }
    }

    private static String fifo() throws Exception {
        try (Producer producer = producer("java-fifo", null)) {
            for (int i = 0; i < 6; i++) {
                producer.send(message("java-fifo", String.valueOf(i)).setMessageGroup("g" + i % 2).build());
            }
        }
        Map<String, List<String>> groups = new TreeMap<>();
        try (SimpleConsumer consumer = consumer("java-fifo-group", "java-fifo", FilterExpression.SUB_ALL)) {
            for (int count = 0; count < 6; count++) {
                MessageView got = receive(consumer, 1).get(0);
                groups.computeIfAbsent(got.getMessageGroup().orElse(""), key -> new ArrayList<>()).add(text(got));
                consumer.ack(got);
            }
        }
        return groups.toString();
    }

    private static String delay() throws Exception {
        try (Producer producer = producer("java-delay", null);
                SimpleConsumer consumer = consumer("java-delay-group", "java-delay", FilterExpression.SUB_ALL)) {
            long due = System.currentTimeMillis() + 4_000;
            SendReceipt recalled = producer.send(message("java-delay", "recalled").setDeliveryTimestamp(due).build());
            producer.send(message("java-delay", "delivered").setDeliveryTimestamp(due).build());
            boolean same = producer.recallMessage("java-delay", recalled.getRecallHandle())
                .getMessageId().toString().equals(recalled.getMessageId().toString());
            List<String> bodies = acknowledged(consumer, 1);
            boolean early = System.currentTimeMillis() < due - 1_000;
            return bodies + (early ? " early" : " in time") + ", the recalled message has the same ID: " + same;
        }
    }

    private static String transaction() throws Exception {
        ConcurrentLinkedQueue<String> checked = new ConcurrentLinkedQueue<>();
        TransactionChecker checker = message -> {
            checked.add(text(message));
            return TransactionResolution.COMMIT;
        };
        try (Producer producer = producer("java-half", checker);
                SimpleConsumer consumer = consumer("java-half-group", "java-half", FilterExpression.SUB_ALL)) {
            for (String body : List.of("committed", "rolled back", "forgotten")) {
                Transaction begun = producer.beginTransaction();
                producer.send(message("java-half", body).build(), begun);
                if (body.equals("committed")) {
                    begun.commit();
                } else if (body.equals("rolled back")) {
                    begun.rollback();
                }
            }
            return sorted(acknowledged(consumer, 2)) + " checked " + List.copyOf(checked);
        }
    }

    private static String invisible() throws Exception {
        try (Producer producer = producer("java-invisible", null);
                SimpleConsumer consumer = consumer("java-invisible-group", "java-invisible", FilterExpression.SUB_ALL)) {
            producer.send(message("java-invisible", "postponed").build());
            MessageView first = receive(consumer, 1).get(0);
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(1));
            MessageView again = receive(consumer, 1).get(0);
            consumer.ack(again);
            return text(again) + " attempts " + first.getDeliveryAttempt() + ", " + again.getDeliveryAttempt();
        }
    }

    private static String push() throws Exception {
        return pushed("java-push", "java-push-group", null, 2, message -> message.getDeliveryAttempt() > 1);
    }

    private static String fifoPush() throws Exception {
        return pushed("java-fifo-push", "java-fifo-push-group", "g", 3,
            message -> !text(message).equals("first") || message.getDeliveryAttempt() > 1);
    }

    private static String deadLetter() throws Exception {
        return pushed("java-dead", "java-dead-group", "g", 3, message -> !text(message).equals("first"));
    }

    private interface Success {
        boolean of(MessageView message);
    }

    /** Send one message, or two of a message group, and consume until `count` calls have been made. */
    private static String pushed(String topic, String group, String messageGroup, int count, Success success)
            throws Exception {
        ConcurrentLinkedQueue<String> calls = new ConcurrentLinkedQueue<>();
        CountDownLatch left = new CountDownLatch(count);
        MessageListener listener = message -> {
            calls.add(text(message) + " attempt " + message.getDeliveryAttempt());
            left.countDown();
            return success.of(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        };
        try (Producer producer = producer(topic, null)) {
            for (String body : messageGroup == null ? List.of("first") : List.of("first", "second")) {
                MessageBuilder built = message(topic, body);
                producer.send((messageGroup == null ? built : built.setMessageGroup(messageGroup)).build());
            }
        }
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(configuration)
                .setConsumerGroup(group)
                .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
                .setMessageListener(listener)
                .build()) {
            left.await(PATIENCE_S, TimeUnit.SECONDS);
        }
        return List.copyOf(calls).toString();
    }

    private static Producer producer(String topic, TransactionChecker checker) throws Exception {
        var builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    private static SimpleConsumer consumer(String group, String topic, FilterExpression expression)
            throws Exception {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, expression))
            .build();
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static List<MessageView> receive(SimpleConsumer consumer, int count) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (System.nanoTime() < end) {
            List<MessageView> found = consumer.receive(count, INVISIBLE);
            if (!found.isEmpty()) {
                return found;
            }
        }
        throw new IllegalStateException("no message within " + PATIENCE_S + " s");
    }

    private static List<String> acknowledged(SimpleConsumer consumer, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        while (bodies.size() < count) {
            for (MessageView each : receive(consumer, 32)) {
                bodies.add(text(each));
                consumer.ack(each);
            }
        }
        return bodies;
    }

    private static String sorted(List<String> bodies) {
        return bodies.stream().sorted().toList().toString();
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private GrpcClient() {
    }
}
