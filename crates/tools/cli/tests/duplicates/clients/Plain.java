// What plain clients of Jedis and lettuce have in common: steps in RESP2 and RESP3, then counters,
// messages and pops without end. `Plain jedis|lettuce plain|sentinel ADDRESS...`

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;

abstract class Plain {
    interface Step {
        void act() throws Exception;
    }

    static final String LARGE = "x".repeat(1 << 20);
    static String library;
    static boolean bySentinel;
    static List<String> nodes;
    static volatile boolean ended;
    String prefix;

    abstract void connect(int protocol);

    abstract void pipeline() throws Exception;

    abstract void transaction() throws Exception;

    abstract void watch() throws Exception;

    abstract void script() throws Exception;

    abstract void pop() throws Exception;

    abstract void channels() throws Exception;

    abstract void stream() throws Exception;

    abstract void scan() throws Exception;

    abstract void maps() throws Exception;

    abstract void large() throws Exception;

    abstract long incr(String key);

    abstract void tell(String channel, String queue, String text);

    /** Hears messages until it fails. */
    abstract boolean hear(String channel) throws Exception;

    abstract boolean popNext(String queue) throws Exception;

    static void check(String name, Object came, Object expected) {
        if (!Objects.equals(came, expected)) {
            String text = String.valueOf(came);
            text = text.substring(0, Math.min(text.length(), 500));
            System.out.println(library + ": " + name + ": " + text + ", expected " + expected);
            System.out.flush();
            Runtime.getRuntime().halt(1);
        }
    }

    String key(String name) {
        return prefix + name;
    }

    String body() {
        return "return {redis.call('incr', KEYS[1]), ARGV[1], '" + key("script") + "'}";
    }

    static String sha1(String text) throws Exception {
        byte[] sum = java.security.MessageDigest.getInstance("SHA-1").digest(text.getBytes());
        return java.util.HexFormat.of().formatHex(sum);
    }

    static String refusal(Callable<?> act) {
        try {
            act.call();
            return "nothing";
        } catch (Exception error) {
            return String.valueOf(error.getMessage());
        }
    }

    List<String> scanned() {
        List<String> all = new ArrayList<>();
        for (int n = 0; n < 3000; n++) all.add(key("scan:" + n));
        return all.stream().sorted().toList();
    }

    void steps(int protocol) throws Exception {
        prefix = "{" + library + protocol + "}:";
        connect(protocol);
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("pipeline", this::pipeline);
        steps.put("transaction", this::transaction);
        steps.put("watch", this::watch);
        steps.put("script", this::script);
        steps.put("pop", this::pop);
        steps.put("channels", this::channels);
        steps.put("stream", this::stream);
        steps.put("scan", this::scan);
        steps.put("maps", this::maps);
        steps.put("large", this::large);
        for (var step : steps.entrySet()) {
            try {
                step.getValue().act();
            } catch (Exception error) {
                error.printStackTrace();
                check(step.getKey(), line(error), "no error");
            }
            System.out.println("did " + step.getKey() + " in RESP" + protocol);
        }
    }

    static String line(Exception error) {
        return String.valueOf(error).replace('\n', ' ');
    }

    /** What waits for others: its errors are those of waiting, and it goes on. */
    static void forever(Callable<Boolean> act, String word) {
        Thread thread = new Thread(() -> {
            while (!ended) {
                try {
                    if (act.call()) System.out.println(word);
                } catch (Exception error) {
                    System.out.println("waited " + line(error));
                    pause(50);
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    static void pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        library = arguments[0];
        bySentinel = arguments[1].equals("sentinel");
        nodes = Arrays.asList(arguments).subList(2, arguments.length);
        Plain client = library.equals("jedis") ? new PlainJedis() : new PlainLettuce();
        client.steps(2);
        client.steps(3);
        System.out.println("ready");
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException error) {
                // it has ended too
            }
            ended = true;
        });
        ending.start();
        String channel = "{" + library + "}:channel";
        String queue = "{" + library + "}:queue";
        forever(() -> client.hear(channel), "heard");
        forever(() -> client.popNext(queue), "popped");
        for (int n = 1; !ended; n++) {
            String key = "count:" + library + ":" + n % 50;
            try {
                System.out.println("ok " + key + " " + client.incr(key));
                if (n % 10 == 0) client.tell(channel, queue, Integer.toString(n));
            } catch (RuntimeException error) {
                System.out.println("error " + line(error));
            }
            pause(20);
        }
        System.out.println("done");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
