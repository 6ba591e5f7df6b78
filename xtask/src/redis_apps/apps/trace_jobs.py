"""What a load leaves behind, at a Redis of its own that no fault reaches."""

import os
import re
import sys
import time

import redis

TRACE = redis.Redis(port=int(os.environ["TRACE_PORT"]))
# Of the usual rate.
PACE = float(os.environ.get("PACE", "1"))
URL = os.environ.get("REDIS_URL", "")
# Instead of the URL, for a client that asks Sentinel who leads.
SENTINELS = [("127.0.0.1", int(port)) for port in os.environ.get("SENTINEL_PORTS", "").split()]
MASTER = "apps"


def add(what, job):
    """Counts it in the table `what`."""
    return TRACE.hincrby(what, str(job), 1)


def error(where, error):
    text = re.sub(r"[0-9]+(\.[0-9]+)?", "N", f"{where}: {type(error).__name__}: {error}")
    add("errors", " ".join(text.split())[:200])


def is_over():
    return bool(TRACE.exists("stop"))


def produce(name, rate, give):
    """Gives jobs with numbers that are never used twice, until it is told to stop."""
    job = 0
    while not is_over():
        began = time.monotonic()
        job += 1
        add("given", f"{name}-{job}")
        try:
            give(f"{name}-{job}")
        except Exception as what:
            # Nobody knows whether it was taken.
            error("give", what)
            time.sleep(0.2)
        else:
            add("acknowledged", f"{name}-{job}")
        time.sleep(max(0, 1 / (rate * PACE) - (time.monotonic() - began)))
    sys.exit(0)
