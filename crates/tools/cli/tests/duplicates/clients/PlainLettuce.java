// lettuce as a plain client or one of Sentinel.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.Consumer;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.XAddArgs;
import io.lettuce.core.XAutoClaimArgs;
import io.lettuce.core.XGroupCreateArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

class PlainLettuce extends Plain {
    RedisClient library;
    StatefulRedisConnection<String, String> connection;
    RedisCommands<String, String> client;
    RedisCommands<String, String> waiting;
    StatefulRedisPubSubConnection<String, String> listener;
    final BlockingQueue<String> heard = new LinkedBlockingQueue<>();

    @Override
    void connect(int protocol) {
        var all = nodes.stream().map(it -> RedisURI.create("redis://" + it)).toList();
        RedisURI to = all.get(0);
        if (bySentinel) {
            var builder = RedisURI.builder().withSentinelMasterId("chaos");
            all.forEach(it -> builder.withSentinel(it.getHost(), it.getPort()));
            to = builder.build();
        }
        library = RedisClient.create(to);
        var version = protocol == 3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
        library.setOptions(ClientOptions.builder().protocolVersion(version).build());
        connection = library.connect();
        client = connection.sync();
    }

    @Override
    void pipeline() throws Exception {
        connection.setAutoFlushCommands(false);
        var commands = connection.async();
        var set = commands.set(key("n"), "1");
        var incr = commands.incr(key("n"));
        var get = commands.get(key("n"));
        connection.flushCommands();
        var came = List.of(set.get(5, TimeUnit.SECONDS), incr.get(), get.get());
        check("pipeline", came, List.of("OK", 2L, "2"));
        connection.setAutoFlushCommands(true);
    }

    @Override
    void transaction() {
        client.multi();
        client.incr(key("n"));
        client.get(key("n"));
        var came = client.exec();
        check("transaction", List.of(came.get(0), came.get(1)), List.of(3L, "3"));
    }

    @Override
    void watch() {
        var other = library.connect();
        client.watch(key("n"));
        other.sync().set(key("n"), "10");
        client.multi();
        client.incr(key("n"));
        check("watch", client.exec().wasDiscarded(), true);
        client.watch(key("n"));
        client.multi();
        client.incr(key("n"));
        check("watch again", client.exec().get(0), 11L);
        other.close();
    }

    @Override
    void script() throws Exception {
        String[] keys = {key("n")};
        var kind = ScriptOutputType.MULTI;
        String digest = sha1(body());
        String refused = refusal(() -> client.evalsha(digest, kind, keys, "a"));
        check("unknown script", refused.split(" ")[0], "NOSCRIPT");
        check("EVAL", client.eval(body(), kind, keys, "a"), List.of(12L, "a", key("script")));
        check("EVALSHA", client.evalsha(digest, kind, keys, "b"), List.of(13L, "b", key("script")));
    }

    @Override
    void pop() throws Exception {
        var other = library.connect();
        var came = other.async().blpop(4, key("list"));
        while (!client.clientList().contains("cmd=blpop")) pause(10);
        check("push", client.rpush(key("list"), "x"), 1L);
        check("pop", came.get(5, TimeUnit.SECONDS), KeyValue.just(key("list"), "x"));
        other.close();
    }

    @Override
    void channels() throws Exception {
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        var connection = library.connectPubSub();
        connection.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String text) {
                came.add("message " + channel + " " + text);
            }

            @Override
            public void message(String pattern, String channel, String text) {
                came.add("pmessage " + pattern + " " + channel + " " + text);
            }
        });
        connection.sync().subscribe(key("channel"));
        connection.sync().psubscribe(key("chan*"));
        check("publish", client.publish(key("channel"), "hello"), 2L);
        String end = key("channel") + " hello";
        check("message", came.poll(5, TimeUnit.SECONDS), "message " + end);
        check("pmessage", came.poll(5, TimeUnit.SECONDS), "pmessage " + key("chan*") + " " + end);
        connection.close();
    }

    List<String> read(String consumer, int count) {
        var from = XReadArgs.StreamOffset.lastConsumed(key("s"));
        var who = Consumer.from("group", consumer);
        var came = client.xreadgroup(who, XReadArgs.Builder.count(count), from);
        return came.stream().map(it -> it.getId() + " " + it.getBody()).toList();
    }

    @Override
    void stream() {
        for (int n = 1; n <= 3; n++) {
            String id = n + "-0";
            var with = new XAddArgs().id(id);
            check("XADD", client.xadd(key("s"), with, Map.of("n", "" + n)), id);
        }
        var from = XReadArgs.StreamOffset.from(key("s"), "0");
        client.xgroupCreate(from, "group", new XGroupCreateArgs());
        check("XREADGROUP", read("a", 2), List.of("1-0 {n=1}", "2-0 {n=2}"));
        check("XACK", client.xack(key("s"), "group", "1-0"), 1L);
        check("XREADGROUP of another", read("b", 9), List.of("3-0 {n=3}"));
        check("XPENDING", client.xpending(key("s"), "group").getCount(), 2L);
        var to = Consumer.from("group", "b");
        var claim = XAutoClaimArgs.Builder.justid(to, Duration.ZERO, "0");
        var claimed = client.xautoclaim(key("s"), claim).getMessages();
        check("XAUTOCLAIM", claimed.stream().map(it -> it.getId()).toList(), List.of("2-0", "3-0"));
    }

    @Override
    void scan() throws Exception {
        var commands = connection.async();
        var last = scanned().stream().map(it -> commands.set(it, "1")).toList();
        for (var each : last) each.get(10, TimeUnit.SECONDS);
        var found = new TreeSet<String>();
        var of = ScanArgs.Builder.matches(key("scan:*")).limit(500);
        KeyScanCursor<String> page = client.scan(of);
        found.addAll(page.getKeys());
        while (!page.isFinished()) {
            page = client.scan(page, of);
            found.addAll(page.getKeys());
        }
        check("scan", List.copyOf(found), scanned());
    }

    @Override
    void maps() {
        client.hset(key("hash"), Map.of("a", "1", "b", "2"));
        check("hash", client.hgetall(key("hash")), Map.of("a", "1", "b", "2"));
        client.zadd(key("sorted"), 1.5, "x");
        var came = client.zrangeWithScores(key("sorted"), 0, -1);
        check("sorted set", came, List.of(ScoredValue.just(1.5, "x")));
    }

    @Override
    void large() throws Exception {
        client.set(key("large"), LARGE);
        check("large", client.get(key("large")).equals(LARGE), true);
        var came = connection.async().get(key("large")).get(5, TimeUnit.SECONDS);
        check("large in a pipeline", came.equals(LARGE), true);
    }

    @Override
    long incr(String key) {
        return client.incr(key);
    }

    @Override
    void tell(String channel, String queue, String text) {
        client.publish(channel, text);
        client.rpush(queue, text);
    }

    @Override
    boolean hear(String channel) throws Exception {
        if (listener == null) {
            listener = library.connectPubSub();
            listener.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String text) {
                    heard.add(text);
                }
            });
            listener.sync().subscribe(channel);
        }
        return heard.poll(1, TimeUnit.SECONDS) != null;
    }

    @Override
    boolean popNext(String queue) {
        if (waiting == null) waiting = library.connect().sync();
        return waiting.blpop(1, queue) != null;
    }
}
