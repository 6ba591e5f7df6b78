"""RQ: a producer; workers are `rq worker` itself."""

import sys
import time

import trace_jobs as trace


def job(number):
    trace.add("runs", number)
    time.sleep(0.01)


if trace.SENTINELS:
    # Read by `rq worker -c rq_load`.
    SENTINEL = {"INSTANCES": trace.SENTINELS, "MASTER_NAME": trace.MASTER}

if __name__ == "__main__":
    import redis
    from rq import Queue

    import rq_load

    queue = Queue(connection=redis.Redis.from_url(trace.URL))
    if sys.argv[1:] == ["look-back"]:
        # RQ takes up a job whose worker lost it as failed: an operator requeues it.
        failed = queue.failed_job_registry.get_job_ids(cleanup=False)
        for job_id in failed + queue.intermediate_queue.get_job_ids():
            trace.add("set_aside", queue.fetch_job(job_id).args[0])
        sys.exit(0)
    trace.produce("rq", 8, lambda number: queue.enqueue(rq_load.job, number))
