// Redisson: locks with a watchdog, that several processes and threads take in turn.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public final class Locks {
    static final int THREADS = 2;
    static final int LOCKS = 2;
    /** Of the usual rate. */
    static final double PACE = Double.parseDouble(System.getenv().getOrDefault("PACE", "1"));

    /** A connection to the server that no fault reaches. */
    static final class Trace implements AutoCloseable {
        final Socket socket = new Socket("127.0.0.1", Integer.parseInt(env("TRACE_PORT")));
        final BufferedReader in = new BufferedReader(
                new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));

        Trace() throws IOException {}

        /** Of a command whose answer is a number. */
        long ask(String... words) throws IOException {
            StringBuilder out = new StringBuilder("*" + words.length + "\r\n");
            for (String word : words) {
                int length = word.getBytes(StandardCharsets.UTF_8).length;
                out.append("$" + length + "\r\n" + word + "\r\n");
            }
            socket.getOutputStream().write(out.toString().getBytes(StandardCharsets.UTF_8));
            return Long.parseLong(in.readLine().substring(1));
        }

        void add(String what, String job) throws IOException {
            ask("HINCRBY", what, job, "1");
        }

        void error(String where, Throwable error) throws IOException {
            String text = where + ": " + error.getClass().getSimpleName() + ": " + error.getMessage();
            text = text.replaceAll("0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}", "X").replaceAll("[0-9]+", "N");
            add("errors", text.substring(0, Math.min(text.length(), 200)).replace('\n', ' '));
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    static String env(String name) {
        String value = System.getenv(name);
        return value == null ? "" : value;
    }

    static RedissonClient connect() {
        Config config = new Config();
        config.setLockWatchdogTimeout(10_000);
        if (env("SENTINEL_PORTS").isEmpty()) {
            config.useSingleServer().setAddress(env("REDIS_URL").replaceAll("/0$", ""))
                    .setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
        } else {
            // It wants three Sentinels; two fronts are two.
            var servers = config.useSentinelServers().setMasterName("apps")
                    .setCheckSentinelsList(false)
                    .setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(8);
            for (String port : env("SENTINEL_PORTS").split(" ")) {
                servers.addSentinelAddress("redis://127.0.0.1:" + port);
            }
        }
        return Redisson.create(config);
    }

    /** Takes a lock, is alone within it, and gives it back. */
    static void turn(RedissonClient client, Trace trace, String job, int which) throws Exception {
        String name = "lock-" + which;
        RLock lock = client.getLock(name);
        trace.add("given", job);
        lock.lock();
        try {
            trace.add("runs", job);
            if (trace.ask("INCR", "holders-" + which) != 1) {
                trace.add("twice", job);
            }
            Thread.sleep(20);
            trace.ask("DECR", "holders-" + which);
        } finally {
            lock.unlock();
        }
        trace.add("acknowledged", job);
        Thread.sleep((long) (50 / PACE));
    }

    static void work(RedissonClient client, String name) {
        try (Trace trace = new Trace()) {
            for (int job = 1; trace.ask("EXISTS", "stop") == 0; job += 1) {
                try {
                    turn(client, trace, name + "-" + job, job % LOCKS);
                } catch (Exception error) {
                    trace.error("lock", error);
                    Thread.sleep(200);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    static RedissonClient connectAtLast() throws Exception {
        while (true) {
            try {
                return connect();
            } catch (Exception error) {
                try (Trace trace = new Trace()) {
                    trace.error("connect", error);
                    if (trace.ask("EXISTS", "stop") == 1) {
                        System.exit(0);
                    }
                }
                Thread.sleep(1000);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        RedissonClient client = connectAtLast();
        Thread[] threads = new Thread[THREADS];
        for (int index = 0; index < THREADS; index += 1) {
            String name = arguments[0] + "-" + index;
            threads[index] = new Thread(() -> work(client, name));
            threads[index].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(0);
    }
}
