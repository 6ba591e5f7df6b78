"""redis-py as a plain client or one of Sentinel: each step in RESP2 and RESP3, then counters,
messages and pops without end. `plain.py plain|sentinel ADDRESS...`"""

import sys
import threading
import time

import redis
from redis.sentinel import Sentinel

how, nodes = sys.argv[1], [tuple(node.rsplit(":", 1)) for node in sys.argv[2:]]


def connect(protocol, **more):
    more = {"socket_timeout": 5, "decode_responses": True, "protocol": protocol, **more}
    if how == "sentinel":
        return Sentinel(nodes, socket_timeout=2).master_for("chaos", **more)
    return redis.Redis(host=nodes[0][0], port=int(nodes[0][1]), **more)


def check(name, came, expected):
    if came != expected:
        sys.exit(f"redis-py: {name}: {came!r}, expected {expected!r}")


def pipeline(client, key):
    pipe = client.pipeline(transaction=False)
    pipe.set(key("n"), 1).incr(key("n")).get(key("n"))
    check("pipeline", pipe.execute(), [True, 2, "2"])


def transaction(client, key):
    pipe = client.pipeline(transaction=True)
    pipe.incr(key("n")).get(key("n"))
    check("transaction", pipe.execute(), [3, "3"])


def watch(client, key):
    with client.pipeline() as pipe:
        pipe.watch(key("n"))
        client.set(key("n"), 10)
        pipe.multi()
        pipe.incr(key("n"))
        try:
            check("watch", pipe.execute(), "a conflict")
        except redis.WatchError:
            pass
        pipe.watch(key("n"))
        pipe.multi()
        pipe.incr(key("n"))
        check("watch again", pipe.execute(), [11])


def script(client, key):
    body = f"return {{redis.call('incr', KEYS[1]), ARGV[1], '{key('script')}'}}"
    digest = __import__("hashlib").sha1(body.encode()).hexdigest()
    try:
        check("script", client.evalsha(digest, 1, key("n"), "a"), "NOSCRIPT")
    except redis.exceptions.NoScriptError:
        pass
    check("EVAL", client.eval(body, 1, key("n"), "a"), [12, "a", key("script")])
    check("EVALSHA", client.evalsha(digest, 1, key("n"), "b"), [13, "b", key("script")])


def pop(client, key):
    came = []
    waiting = threading.Thread(target=lambda: came.append(client.blpop([key("list")], 4)))
    waiting.start()
    while "cmd=blpop" not in str(client.execute_command("CLIENT", "LIST")):
        time.sleep(0.01)
    check("push", client.rpush(key("list"), "x"), 1)
    waiting.join()
    check("pop", [tuple(it) for it in came], [(key("list"), "x")])


def channels(client, key):
    listener = client.pubsub(ignore_subscribe_messages=False)
    listener.subscribe(key("channel"))
    listener.psubscribe(key("chan*"))
    came = [listener.get_message(timeout=4)["type"] for _ in range(2)]
    check("subscribe", came, ["subscribe", "psubscribe"])
    check("publish", client.publish(key("channel"), "hello"), 2)
    came = [listener.get_message(timeout=4) for _ in range(2)]
    came = [(it["type"], it["pattern"], it["channel"], it["data"]) for it in came]
    expected = [
        ("message", None, key("channel"), "hello"),
        ("pmessage", key("chan*"), key("channel"), "hello"),
    ]
    check("messages", came, expected)
    listener.close()


def stream(client, key):
    ids = [client.xadd(key("stream"), {"n": n}, id=f"{n}-0") for n in (1, 2, 3)]
    check("XADD", ids, ["1-0", "2-0", "3-0"])
    client.xgroup_create(key("stream"), "group", id="0")

    def read(consumer, count):
        came = client.xreadgroup("group", consumer, {key("stream"): ">"}, count=count)
        came = came if isinstance(came, list) else list(came.items())
        # RESP3 has one list more around the entries of a stream, as redis-py hands it on.
        entries = [entry for _, all in came for entry in all]
        return entries[0] if entries and isinstance(entries[0], list) else entries

    check("XREADGROUP", read("a", 2), [("1-0", {"n": "1"}), ("2-0", {"n": "2"})])
    check("XACK", client.xack(key("stream"), "group", "1-0"), 1)
    check("XREADGROUP of another", read("b", 9), [("3-0", {"n": "3"})])
    check("XPENDING", client.xpending(key("stream"), "group")["pending"], 2)
    claimed = client.xautoclaim(key("stream"), "group", "b", 0, justid=True)
    check("XAUTOCLAIM", claimed, ["2-0", "3-0"])


def scan(client, key):
    pipe = client.pipeline(transaction=False)
    for n in range(3_000):
        pipe.set(key(f"scan:{n}"), n)
    pipe.execute()
    found = set(client.scan_iter(key("scan:*"), count=500))
    check("scan", found, {key(f"scan:{n}") for n in range(3_000)})


def maps(client, key):
    client.hset(key("hash"), mapping={"a": "1", "b": "2"})
    check("hash", client.hgetall(key("hash")), {"a": "1", "b": "2"})
    client.zadd(key("sorted"), {"x": 1.5})
    came = [tuple(it) for it in client.zrange(key("sorted"), 0, -1, withscores=True)]
    check("sorted set", came, [("x", 1.5)])


def large(client, key):
    value = "x" * (1 << 20)
    client.set(key("large"), value)
    check("large", client.get(key("large")) == value, True)
    check("large in a pipeline", client.pipeline().get(key("large")).execute() == [value], True)


for protocol in (2, 3):
    client = connect(protocol)
    said = str(client.execute_command("HELLO"))
    check("protocol", said.count(f"proto', {protocol}") + said.count(f"proto': {protocol}"), 1)
    for step in (
        pipeline, transaction, watch, script, pop, channels, stream, scan, maps, large,
    ):
        step(client, lambda name: f"{{py{protocol}}}:{name}")
        print(f"did {step.__name__} in RESP{protocol}", flush=True)
print("ready", flush=True)

ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()


def forever(act, word):
    """What waits for others: its errors are those of waiting, and it goes on."""
    while not ended.is_set():
        try:
            if act():
                print(word, flush=True)
        except redis.RedisError as error:
            print("waited", repr(error).replace("\n", " "), flush=True)
            time.sleep(0.05)


listener = connect(3).pubsub(ignore_subscribe_messages=True)
listener.subscribe("{py}:channel")
waiting = connect(3)
for act, word in (
    (lambda: listener.get_message(timeout=1), "heard"),
    (lambda: waiting.blpop(["{py}:queue"], 2), "popped"),
):
    threading.Thread(target=forever, args=(act, word), daemon=True).start()
n = 0
while not ended.is_set():
    n += 1
    key = f"count:py:{n % 50}"
    try:
        print("ok", key, client.incr(key), flush=True)
        if n % 10 == 0:
            client.publish("{py}:channel", n)
            client.rpush("{py}:queue", n)
    except Exception as error:
        print("error", repr(error).replace("\n", " "), flush=True)
    time.sleep(0.02)
print("done", flush=True)
