"""redis-py's RedisCluster: what it must be able to do, then counters without end."""

import sys
import threading
import time

import redis
from redis.cluster import ClusterNode, RedisCluster

nodes = [ClusterNode(*node.rsplit(":", 1)) for node in sys.argv[1:]]
client = RedisCluster(startup_nodes=nodes, socket_timeout=2, decode_responses=True)


def check(name, came, expected):
    if came != expected:
        sys.exit(f"redis-py: {name}: {came!r}, expected {expected!r}")


keys = [f"py:{n}" for n in range(64)]
for n, key in enumerate(keys):
    client.set(key, n)
check("get", [client.get(key) for key in keys], [str(n) for n in range(64)])
client.mset({"{py}a": "1", "{py}b": "2"})
check("mget", client.mget("{py}a", "{py}b"), ["1", "2"])
check("eval", client.eval("return redis.call('incr', KEYS[1])", 1, "{py}a"), 2)
pipe = client.pipeline()
pipe.incr("{py}a")
pipe.get("{py}b")
check("pipeline", pipe.execute(), [3, "2"])
check("keyslot", client.cluster_keyslot("foo"), 12182)
check("keys in slot", client.cluster_countkeysinslot(client.keyslot("{py}a")), 2)
check("scan", sum(1 for _ in client.scan_iter("py:*", count=1000)), 64)
try:
    client.get_redis_connection(client.get_primaries()[0]).mget("a", "b")
    sys.exit("redis-py: keys of two slots were taken")
except redis.ResponseError as error:
    check("CROSSSLOT", str(error).split(" ")[0], "Keys")  # the library cuts off the code
listener = client.pubsub()
listener.ssubscribe("py:channel")
check("ssubscribe", listener.get_sharded_message(timeout=5)["type"], "ssubscribe")
client.spublish("py:channel", "hello")
check("smessage", listener.get_sharded_message(timeout=5)["data"], "hello")
listener.close()
readers = RedisCluster(
    startup_nodes=nodes, read_from_replicas=True, socket_timeout=2, decode_responses=True
)
check("reads at replicas", [readers.get(key) for key in keys], [str(n) for n in range(64)])
readers.close()
print("ready", flush=True)

ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
n = 0
while not ended.is_set():
    n += 1
    key = f"count:py:{n % 50}"
    try:
        print("ok", key, client.incr(key), flush=True)
    except Exception as error:
        print("error", repr(error).replace("\n", " "), flush=True)
    time.sleep(0.02)
print("done", flush=True)
