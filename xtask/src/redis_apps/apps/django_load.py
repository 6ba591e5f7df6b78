"""django-redis: a cache with counters, locks and sessions, as views use them."""

import time

import trace_jobs as trace
from django.conf import settings

options = {}
if trace.SENTINELS:
    location = f"redis://{trace.MASTER}/0"
    options = {
        "CLIENT_CLASS": "django_redis.client.SentinelClient",
        "SENTINELS": trace.SENTINELS,
        "CONNECTION_POOL_CLASS": "redis.sentinel.SentinelConnectionPool",
    }
    settings.configure(
        DJANGO_REDIS_CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory"
    )
else:
    location = trace.URL
    settings.configure()
settings.CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": location,
        "OPTIONS": options,
    }
}
settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache  # noqa: E402

RATE = 25


def expect(what, expected, found):
    if found != expected:
        trace.error(what, AssertionError(f"{found!r} instead of {expected!r}"))
        trace.add("wrong", what)


def session(number):
    """A session of one request is there in the next one."""
    store = SessionStore()
    store["number"] = number
    store.save()
    trace.TRACE.hset("sessions", number, store.session_key)
    trace.add("runs", number)


def locked(number):
    """One at a time holds the lock."""
    with cache.lock("lock", timeout=30, blocking_timeout=20):
        expect("holders", 1, trace.TRACE.incr("holders"))
        try:
            cache.set("last", number, timeout=60)
            expect("read under the lock", number, cache.get("last"))
        finally:
            trace.TRACE.decr("holders")
    trace.add("runs", number)


def counted(number):
    """A counter counts each once."""
    cache.add("counter", 0, timeout=None)
    trace.add("counts_tried", "all")
    cache.incr("counter")
    trace.add("counts", "all")
    trace.add("runs", number)


def plain(number):
    cache.set_many({f"many-{number}": number, f"more-{number}": number}, timeout=60)
    found = cache.get_many([f"many-{number}", f"more-{number}"])
    expect("many", [number, number], sorted(found.values()))
    expect("or set", number, cache.get_or_set(f"or-{number}", number, timeout=60))
    cache.touch(f"or-{number}", 120)
    cache.delete_pattern(f"m*-{number}")
    expect("deleted", None, cache.get(f"many-{number}"))
    trace.add("runs", number)


def look_back():
    """What was acknowledged is there."""
    for number, key in trace.TRACE.hgetall("sessions").items():
        if SessionStore(key.decode()).get("number") != number.decode():
            trace.add("lost", number.decode())
    tried = int(trace.TRACE.hget("counts_tried", "all") or 0)
    counts = int(trace.TRACE.hget("counts", "all") or 0)
    value = cache.get("counter", 0)
    for what, excess in [("lost", counts - value), ("twice", value - tried)]:
        if excess > 0:
            trace.TRACE.hincrby(what, "counter", excess)
    print(f"counter {value}, acknowledged {counts}, tried {tried}", flush=True)


if __name__ == "__main__":
    import sys

    works = [session, locked, counted, plain]
    name = sys.argv[1]
    if name == "look-back":
        sys.exit(look_back())
    turn = iter(range(1 << 62))
    trace.produce(name, RATE, lambda number: works[next(turn) % len(works)](number))
