"""Celery: broker and result backend. Workers are `celery -A celery_load worker`."""

import queue
import sys
import threading
import time

import trace_jobs as trace
from celery import Celery

if trace.SENTINELS:
    url = ";".join(f"sentinel://{host}:{port}/0" for host, port in trace.SENTINELS)
    options = {"master_name": trace.MASTER}
else:
    url, options = trace.URL, {}

app = Celery("celery_load", broker=url, backend=url)
app.conf.update(
    # Jobs that a broken connection took with it come again after this; an hour by default.
    broker_transport_options=options | {"visibility_timeout": 15},
    result_backend_transport_options=options,
    broker_connection_retry_on_startup=True,
    # A worker that loses the broker goes on trying; by default it gives up after 100 times.
    broker_connection_max_retries=None,
)


@app.task
def job(number):
    trace.add("runs", number)
    time.sleep(0.01)
    return number


def look(asked):
    """Waits for results, as an application does."""
    while True:
        number, result = asked.get()
        try:
            said = result.get(timeout=60)
            trace.add("results", number)
            if said != number:
                trace.add("wrong", number)
        except Exception as what:
            trace.error("result", what)
            trace.add("unanswered", number)


def produce():
    asked = queue.Queue()
    threading.Thread(target=look, args=(asked,), daemon=True).start()
    given = 0

    def give(number):
        nonlocal given
        result = job.delay(number)
        given += 1
        if given % 5 == 0:
            trace.add("asked", number)
            asked.put((number, result))

    trace.produce("celery", 20, give)


if __name__ == "__main__":
    import celery_load

    sys.exit(celery_load.produce())
