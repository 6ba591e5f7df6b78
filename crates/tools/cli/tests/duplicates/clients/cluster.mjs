// ioredis's Cluster: what it must be able to do, then counters without end.

import { once } from "node:events";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(process.env.EVENKEEL_NODE_MODULES + "/");
const { Cluster } = require("ioredis");

const nodes = process.argv.slice(2).map((node) => {
  const at = node.lastIndexOf(":");
  return { host: node.slice(0, at), port: Number(node.slice(at + 1)) };
});
const settings = { redisOptions: { commandTimeout: 2000, maxRetriesPerRequest: 1 } };
const client = new Cluster(nodes, settings);
client.on("error", () => {});

function check(name, came, expected) {
  if (JSON.stringify(came) !== JSON.stringify(expected)) {
    console.log(`ioredis: ${name}: ${JSON.stringify(came)}, expected ${JSON.stringify(expected)}`);
    process.exit(1);
  }
  console.log("did", name);
}

const keys = Array.from({ length: 64 }, (_, n) => `io:${n}`);
const numbers = keys.map((_, n) => String(n));
for (const [n, key] of keys.entries()) await client.set(key, n);
check("get", await Promise.all(keys.map((key) => client.get(key))), numbers);
await client.mset("{io}a", 1, "{io}b", 2);
check("mget", await client.mget("{io}a", "{io}b"), ["1", "2"]);
check("eval", await client.eval("return redis.call('incr', KEYS[1])", 1, "{io}a"), 2);
const done = await client.multi().incr("{io}a").get("{io}b").exec();
check("multi", done, [[null, 3], [null, "2"]]);
const refused = await client.nodes("master")[0].mget("a", "b").catch((error) => error.message);
check("CROSSSLOT", String(refused).split(" ")[0], "CROSSSLOT");
if (!process.env.EVENKEEL_GROUPS) {
  const listener = new Cluster(nodes, settings);
  listener.on("error", () => {});
  const came = new Promise((resolve) => listener.on("message", (_, text) => resolve(text)));
  await listener.subscribe("io:channel");
  await client.publish("io:channel", "hello");
  check("message", await came, "hello");
  listener.disconnect();
}
const sharded = new Cluster(nodes, { ...settings, shardedSubscribers: true });
sharded.on("error", () => {});
// The library begins its subscribers apart from the cluster's connections.
await once(sharded, "ready");
const smessage = new Promise((resolve) => {
  sharded.on("smessage", (channel, text) => resolve([channel, text]));
});
await sharded.ssubscribe("io:shard");
await sharded.spublish("io:shard", "hello");
check("smessage", await smessage, ["io:shard", "hello"]);
sharded.disconnect();
const readers = new Cluster(nodes, { ...settings, scaleReads: "slave" });
readers.on("error", () => {});
check("reads at replicas", await Promise.all(keys.map((key) => readers.get(key))), numbers);
readers.disconnect();
console.log("ready");

let ended = false;
process.stdin.on("end", () => (ended = true)).resume();
for (let n = 1; !ended; n++) {
  const key = `count:io:${n % 50}`;
  try {
    console.log("ok", key, await client.incr(key));
  } catch (error) {
    console.log("error", String(error).replaceAll("\n", " "));
  }
  await sleep(20);
}
console.log("done");
process.exit(0);
