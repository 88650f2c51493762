import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin in one JVM. Reads a line "seconds TAB argument TAB argument ..." for each command, runs it
 * as `mqadmin` would, prints "BEGIN", the output of both streams, "END OK" or "END RUNNING".
 *
 * <p>An endless command keeps running on its thread after its seconds, or after its first line if the
 * seconds are negative; its later output is lost.
 */
public class MqAdmin {
    public static void main(String[] arguments) throws Exception {
        PrintStream real = new PrintStream(System.out, true, "UTF-8");
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] parts = line.split("\t", -1);
            String[] command = new String[parts.length - 1];
            System.arraycopy(parts, 1, command, 0, command.length);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(said, true, "UTF-8");
            System.setOut(stream);
            System.setErr(stream);
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Thread thread = new Thread(() -> {
                try {
                    MQAdminStartup.main0(command, null);
                } catch (Throwable error) {
                    failure.set(error);
                }
            });
            thread.setDaemon(true);
            thread.start();
            double seconds = Double.parseDouble(parts[0]);
            long endNanos = System.nanoTime() + (long) (Math.abs(seconds) * 1e9);
            while (thread.isAlive() && System.nanoTime() < endNanos) {
                thread.join(100);
                if (seconds < 0 && said.toString("UTF-8").contains("\n")) {
                    break;
                }
            }
            boolean isRunning = thread.isAlive();
            stream.flush();
            real.println("BEGIN");
            real.println(said.toString("UTF-8"));
            if (failure.get() != null) {
                real.println("THROWN " + failure.get());
            }
            real.println("END " + (isRunning ? "RUNNING" : "OK"));
        }
        System.exit(0);
    }
}
