// Jedis as a plain client or one of Sentinel.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XReadGroupParams;

class PlainJedis extends Plain {
    UnifiedJedis client;

    @Override
    void connect(int protocol) {
        var builder = DefaultJedisClientConfig.builder();
        var config = (protocol == 3 ? builder.resp3() : builder.resp2()).build();
        var at = nodes.stream().map(HostAndPort::from).collect(Collectors.toSet());
        if (bySentinel) {
            var sentinel = RedisSentinelClient.builder().masterName("chaos").sentinels(at);
            client = sentinel.clientConfig(config).build();
        } else {
            var plain = RedisClient.builder().hostAndPort(at.iterator().next());
            client = plain.clientConfig(config).build();
        }
    }

    @Override
    void pipeline() {
        try (var pipe = client.pipelined()) {
            var set = pipe.set(key("n"), "1");
            var incr = pipe.incr(key("n"));
            var get = pipe.get(key("n"));
            pipe.sync();
            check("pipeline", List.of(set.get(), incr.get(), get.get()), List.of("OK", 2L, "2"));
        }
    }

    @Override
    void transaction() {
        try (var transaction = client.multi()) {
            transaction.incr(key("n"));
            transaction.get(key("n"));
            check("transaction", transaction.exec(), List.of(3L, "3"));
        }
    }

    @Override
    void watch() {
        try (var transaction = client.transaction(false)) {
            transaction.watch(key("n"));
            client.set(key("n"), "10");
            transaction.multi();
            transaction.incr(key("n"));
            check("watch", transaction.exec(), null);
            transaction.watch(key("n"));
            transaction.multi();
            transaction.incr(key("n"));
            check("watch again", transaction.exec(), List.of(11L));
        }
    }

    @Override
    void script() throws Exception {
        String digest = sha1(body());
        String refused = refusal(() -> client.evalsha(digest, 1, key("n"), "a"));
        check("unknown script", refused.split(" ")[0], "NOSCRIPT");
        check("EVAL", client.eval(body(), 1, key("n"), "a"), List.of(12L, "a", key("script")));
        var again = client.evalsha(digest, 1, key("n"), "b");
        check("EVALSHA", again, List.of(13L, "b", key("script")));
    }

    static String text(Object said) {
        return said instanceof byte[] bytes ? new String(bytes) : String.valueOf(said);
    }

    @Override
    void pop() throws Exception {
        var came = CompletableFuture.supplyAsync(() -> client.blpop(4, key("list")));
        while (!text(client.sendCommand(Protocol.Command.CLIENT, "LIST")).contains("cmd=blpop")) {
            pause(10);
        }
        check("push", client.rpush(key("list"), "x"), 1L);
        check("pop", came.get(5, TimeUnit.SECONDS), List.of(key("list"), "x"));
    }

    /** Notes what is heard. */
    static class Listener extends JedisPubSub {
        final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        final String patterns;

        Listener(String patterns) {
            this.patterns = patterns;
        }

        @Override
        public void onSubscribe(String channel, int count) {
            heard.add("subscribe " + count);
            if (patterns != null) psubscribe(patterns);
        }

        @Override
        public void onPSubscribe(String pattern, int count) {
            heard.add("psubscribe " + count);
        }

        @Override
        public void onMessage(String channel, String text) {
            heard.add("message " + channel + " " + text);
        }

        @Override
        public void onPMessage(String pattern, String channel, String text) {
            heard.add("pmessage " + pattern + " " + channel + " " + text);
        }
    }

    static List<String> next(Listener listener) throws Exception {
        List<String> all = new ArrayList<>();
        for (int n = 0; n < 2; n++) all.add(listener.heard.poll(5, TimeUnit.SECONDS));
        return all;
    }

    @Override
    void channels() throws Exception {
        Listener listener = new Listener(key("chan*"));
        var ends = CompletableFuture.runAsync(() -> client.subscribe(listener, key("channel")));
        check("subscribe", next(listener), List.of("subscribe 1", "psubscribe 2"));
        check("publish", client.publish(key("channel"), "hello"), 2L);
        String end = key("channel") + " hello";
        var expected = List.of("message " + end, "pmessage " + key("chan*") + " " + end);
        check("messages", next(listener), expected);
        listener.unsubscribe();
        listener.punsubscribe();
        ends.get(5, TimeUnit.SECONDS);
    }

    List<String> read(String consumer, int count) {
        var of = Map.of(key("s"), StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        var most = XReadGroupParams.xReadGroupParams().count(count);
        var came = client.xreadGroup("group", consumer, most, of);
        var entries = came.get(0).getValue().stream();
        return entries.map(it -> it.getID() + " " + it.getFields()).toList();
    }

    @Override
    void stream() {
        for (int n = 1; n <= 3; n++) {
            var id = new StreamEntryID(n, 0);
            check("XADD", client.xadd(key("s"), id, Map.of("n", "" + n)), id);
        }
        client.xgroupCreate(key("s"), "group", new StreamEntryID(0, 0), false);
        check("XREADGROUP", read("a", 2), List.of("1-0 {n=1}", "2-0 {n=2}"));
        check("XACK", client.xack(key("s"), "group", new StreamEntryID(1, 0)), 1L);
        check("XREADGROUP of another", read("b", 9), List.of("3-0 {n=3}"));
        check("XPENDING", client.xpending(key("s"), "group").getTotal(), 2L);
        var all = new XAutoClaimParams();
        var from = new StreamEntryID(0, 0);
        var claimed = client.xautoclaimJustId(key("s"), "group", "b", 0, from, all).getValue();
        var expected = List.of(new StreamEntryID(2, 0), new StreamEntryID(3, 0));
        check("XAUTOCLAIM", claimed, expected);
    }

    @Override
    void scan() {
        try (var pipe = client.pipelined()) {
            scanned().forEach(it -> pipe.set(it, "1"));
            pipe.sync();
        }
        var found = new TreeSet<String>();
        var of = new ScanParams().match(key("scan:*")).count(500);
        String cursor = "0";
        do {
            var page = client.scan(cursor, of);
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals("0"));
        check("scan", List.copyOf(found), scanned());
    }

    @Override
    void maps() {
        client.hset(key("hash"), Map.of("a", "1", "b", "2"));
        check("hash", client.hgetAll(key("hash")), Map.of("a", "1", "b", "2"));
        client.zadd(key("sorted"), 1.5, "x");
        var member = client.zrangeWithScores(key("sorted"), 0, -1).get(0);
        check("sorted set", member.getElement() + " " + member.getScore(), "x 1.5");
    }

    @Override
    void large() {
        client.set(key("large"), LARGE);
        check("large", client.get(key("large")).equals(LARGE), true);
        try (var pipe = client.pipelined()) {
            var get = pipe.get(key("large"));
            pipe.sync();
            check("large in a pipeline", get.get().equals(LARGE), true);
        }
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
    boolean hear(String channel) {
        client.subscribe(new JedisPubSub() {
            @Override
            public void onMessage(String channel, String text) {
                System.out.println("heard");
            }
        }, channel);
        return false;
    }

    @Override
    boolean popNext(String queue) {
        return client.blpop(1, queue) != null;
    }
}
