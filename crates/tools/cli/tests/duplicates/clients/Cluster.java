// Jedis's and lettuce's cluster clients: what they must be able to do, then counters without end.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;

import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.cluster.RedisClusterClient;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.RedisClusterClient.Builder;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.util.JedisClusterCRC16;

public class Cluster {
    static String library;

    static void check(String name, Object came, Object expected) {
        if (!Objects.equals(came, expected)) {
            System.out.println(library + ": " + name + ": " + came + ", expected " + expected);
            System.exit(1);
        }
    }

    static List<String> numbers() {
        List<String> all = new ArrayList<>();
        for (int n = 0; n < 64; n++) all.add(Integer.toString(n));
        return all;
    }

    static List<String> values(Function<String, String> get, String of) {
        return numbers().stream().map(n -> get.apply(of + ":" + n)).collect(Collectors.toList());
    }

    static String refusal(Runnable act) {
        try {
            act.run();
            return "nothing";
        } catch (RuntimeException error) {
            return String.valueOf(error.getMessage());
        }
    }

    static Function<String, Long> jedis(String[] nodes) throws Exception {
        Set<HostAndPort> at = Arrays.stream(nodes).map(HostAndPort::from).collect(Collectors.toSet());
        var client = new redis.clients.jedis.JedisCluster(at, 2000, 10);
        for (String n : numbers()) client.set("jedis:" + n, n);
        check("get", values(client::get, "jedis"), numbers());
        client.mset("{jedis}a", "1", "{jedis}b", "2");
        check("mget", client.mget("{jedis}a", "{jedis}b"), List.of("1", "2"));
        String script = "return redis.call('incr', KEYS[1])";
        check("eval", client.eval(script, 1, "{jedis}a"), 2L);
        try (var pipe = client.pipelined()) {
            var incr = pipe.incr("{jedis}a");
            pipe.sync();
            check("pipeline", incr.get(), 3L);
        }
        // The library has no transactions of its cluster client: they are a connection's.
        int slot = JedisClusterCRC16.getSlot("{jedis}a");
        try (var connection = client.getConnectionFromSlot(slot);
                var transaction = new Transaction(connection)) {
            transaction.incr("{jedis}a");
            transaction.get("{jedis}b");
            check("transaction", transaction.exec(), List.of(4L, "2"));
        }
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        var listener = new JedisShardedPubSub() {
            @Override
            public void onSSubscribe(String channel, int count) {
                heard.add("subscribed " + count);
            }

            @Override
            public void onSMessage(String channel, String message) {
                heard.add(channel + " " + message);
            }
        };
        var ends = CompletableFuture.runAsync(() -> client.ssubscribe(listener, "jedis:channel"));
        check("ssubscribe", heard.poll(5, TimeUnit.SECONDS), "subscribed 1");
        client.spublish("jedis:channel", "hello");
        check("smessage", heard.poll(5, TimeUnit.SECONDS), "jedis:channel hello");
        listener.sunsubscribe();
        ends.get(5, TimeUnit.SECONDS);
        return client::incr;
    }

    static Function<String, Long> lettuce(String[] nodes) throws Exception {
        List<RedisURI> at =
            Arrays.stream(nodes).map(it -> RedisURI.create("redis://" + it)).toList();
        at.forEach(it -> it.setTimeout(java.time.Duration.ofSeconds(2)));
        RedisClusterClient library = RedisClusterClient.create(at);
        var connection = library.connect();
        var client = connection.sync();
        for (String n : numbers()) client.set("lettuce:" + n, n);
        check("get", values(client::get, "lettuce"), numbers());
        client.mset(Map.of("{lettuce}a", "1", "{lettuce}b", "2"));
        check("mget", client.mget("{lettuce}a", "{lettuce}b").get(1).getValue(), "2");
        String script = "return redis.call('incr', KEYS[1])";
        Long two = client.eval(script, ScriptOutputType.INTEGER, "{lettuce}a");
        check("eval", two, 2L);
        var listener = library.connectPubSub();
        CompletableFuture<String> came = new CompletableFuture<>();
        listener.addListener(new io.lettuce.core.cluster.pubsub.RedisClusterPubSubAdapter<>() {
            @Override
            public void smessage(
                    io.lettuce.core.cluster.models.partitions.RedisClusterNode node,
                    String channel, String message) {
                came.complete(message);
            }
        });
        listener.sync().ssubscribe("lettuce:channel");
        client.spublish("lettuce:channel", "hello");
        check("smessage", came.get(5, TimeUnit.SECONDS), "hello");
        listener.close();
        try (var readers = library.connect()) {
            readers.setReadFrom(ReadFrom.ANY_REPLICA);
            check("reads at replicas", values(readers.sync()::get, "lettuce"), numbers());
        }
        return client::incr;
    }

    public static void main(String[] arguments) throws Exception {
        library = arguments[0];
        String[] nodes = Arrays.copyOfRange(arguments, 1, arguments.length);
        Function<String, Long> incr = library.equals("jedis") ? jedis(nodes) : lettuce(nodes);
        System.out.println("ready");
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException error) {
                // it has ended too
            }
            System.out.println("done");
            Runtime.getRuntime().halt(0);
        });
        ending.start();
        for (int n = 1; ; n++) {
            String key = "count:" + library + ":" + n % 50;
            try {
                System.out.println("ok " + key + " " + incr.apply(key));
            } catch (RuntimeException error) {
                System.out.println("error " + String.valueOf(error).replace('\n', ' '));
            }
            Thread.sleep(20);
        }
    }
}
