// BullMQ: `node bullmq_load.mjs work` and `node bullmq_load.mjs give`.

import { Queue, Worker } from "bullmq";
import Redis from "ioredis";

const trace = new Redis({ port: Number(process.env.TRACE_PORT) });
const ports = (process.env.SENTINEL_PORTS ?? "").split(" ").filter((port) => port);
const sentinels = ports.map((port) => ({ host: "127.0.0.1", port: Number(port) }));
// Of the usual rate.
const pace = Number(process.env.PACE ?? 1);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const add = (what, job) => trace.hincrby(what, job, 1);

function noteError(where, error) {
  const text = `${where}: ${error.name}: ${error.message}`.replace(/[0-9]+(\.[0-9]+)?/g, "N");
  return add("errors", text.slice(0, 200));
}

function connection(options) {
  const redis = sentinels.length
    ? new Redis({ sentinels, name: "apps", ...options })
    : new Redis(process.env.REDIS_URL, options);
  redis.on("error", (error) => noteError("connection", error));
  return redis;
}

async function work() {
  const run = async (job) => {
    await add("runs", job.data.number);
    await add("jobs", `${job.data.number} ${job.id}`);
    await sleep(10);
    return job.data.number;
  };
  // A worker's connection has to try for ever: BullMQ's own rule.
  const worker = new Worker("jobs", run, {
    connection: connection({ maxRetriesPerRequest: null }),
    concurrency: 4,
  });
  worker.on("error", (error) => noteError("work", error));
  worker.on("failed", (job, error) => noteError("failed", error));
  worker.on("stalled", () => add("stalled", "all"));
}

async function give() {
  const queue = new Queue("jobs", { connection: connection({}) });
  queue.on("error", (error) => noteError("queue", error));
  for (let job = 1; !(await trace.exists("stop")); job += 1) {
    const number = `bullmq-${job}`;
    const began = Date.now();
    await add("given", number);
    try {
      await queue.add("job", { number }, { removeOnComplete: 1000 });
      await add("acknowledged", number);
    } catch (error) {
      await noteError("give", error);
      await sleep(200);
    }
    await sleep(Math.max(0, 50 / pace - (Date.now() - began)));
  }
  process.exit(0);
}

// A job that stalled twice is failed: an operator retries it.
async function lookBack() {
  const queue = new Queue("jobs", { connection: connection({}) });
  for (const job of await queue.getFailed()) {
    await add("set_aside", job.data.number);
  }
  process.exit(0);
}

await { work, give, "look-back": lookBack }[process.argv[2]]();
