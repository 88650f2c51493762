import java.lang.reflect.InvocationTargetException;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * Runs one of the programs and exits with it: after an exception in main, client threads would keep running.
 *
 * <p>Arguments: PROGRAM and its arguments.
 */
public final class Run {
    /** Longer than any stall of the machine: by default a client gives up a request after three seconds. */
    static final int REQUEST_MS = 60_000;

    public static void main(String[] args) throws Exception {
        String[] own = new String[args.length - 1];
        System.arraycopy(args, 1, own, 0, own.length);
        try {
            Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) own);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.out.flush();
            System.err.flush();
            Runtime.getRuntime().halt(1);
        }
    }

    static <C extends ClientConfig> C patient(C client) {
        client.setMqClientApiTimeout(REQUEST_MS);
        if (client instanceof DefaultMQProducer) {
            ((DefaultMQProducer) client).setSendMsgTimeout(REQUEST_MS);
        }
        return client;
    }

    private Run() {}
}
