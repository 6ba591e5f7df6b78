// node-redis as a plain client or one of Sentinel.

import { createRequire } from "node:module";
import { check, count, digest, forever, how, nodes, run } from "./plain_shared.mjs";
import { large, script, sleep } from "./plain_shared.mjs";

const require = createRequire(process.env.EVENKEEL_NODE_MODULES + "/");
const { WatchError, createClient, createSentinel } = require("redis");

async function connect(protocol) {
  const client =
    how === "sentinel"
      ? createSentinel({
          name: "chaos",
          RESP: protocol,
          sentinelRootNodes: nodes,
          scanInterval: 500,
          masterPoolSize: 4,
        })
      : createClient({ RESP: protocol, socket: nodes[0] });
  client.on("error", () => {});
  return client.connect();
}

const sorted = (all) => [...all].sort();
const plain = (map) => ({ ...(map instanceof Map ? Object.fromEntries(map) : map) });

// A connection of its own for what is about a connection.
async function alone(client, act) {
  if (how === "sentinel") return client.use(act);
  const other = await client.duplicate().connect();
  const came = await act(other);
  other.destroy();
  return came;
}

// The words of a transaction that does nothing as something was written.
const conflict = (error) => (error instanceof WatchError ? "conflict" : String(error));

const steps = {
  async pipeline(client, key) {
    const pipe = client.multi().set(key("n"), 1).incr(key("n")).get(key("n"));
    check("pipeline", await pipe.execAsPipeline(), ["OK", 2, "2"]);
  },
  async transaction(client, key) {
    check("transaction", await client.multi().incr(key("n")).get(key("n")).exec(), [3, "3"]);
  },
  async watch(client, key) {
    await alone(client, async (one) => {
      await one.watch(key("n"));
      await client.set(key("n"), 10);
      check("watch", await one.multi().incr(key("n")).exec().catch(conflict), "conflict");
      await one.watch(key("n"));
      check("watch again", await one.multi().incr(key("n")).exec(), [11]);
    });
  },
  async script(client, key) {
    const body = `${script}${key("script")}'}`;
    const of = (word) => ({ keys: [key("n")], arguments: [word] });
    const refused = await client.evalSha(digest(body), of("a")).catch((error) => error.message);
    check("unknown script", String(refused).split(" ")[0], "NOSCRIPT");
    check("EVAL", await client.eval(body, of("a")), [12, "a", key("script")]);
    check("EVALSHA", await client.evalSha(digest(body), of("b")), [13, "b", key("script")]);
  },
  async pop(client, key) {
    const came = alone(client, (one) => one.blPop(key("list"), 4));
    const words = how === "sentinel" ? [false, ["CLIENT", "LIST"]] : [["CLIENT", "LIST"]];
    const list = (one) => one.sendCommand(...words);
    while (!(await alone(client, list)).includes("cmd=blpop")) await sleep(10);
    check("push", await client.rPush(key("list"), "x"), 1);
    check("pop", plain(await came), { key: key("list"), element: "x" });
  },
  async channels(client, key) {
    const listener = how === "sentinel" ? client : await client.duplicate().connect();
    const came = [];
    let done;
    const both = new Promise((resolve) => (done = resolve));
    const note = (kind) => (text, channel) => came.push([kind, channel, text]) === 2 && done();
    await listener.subscribe(key("channel"), note("message"));
    await listener.pSubscribe(key("chan*"), note("pmessage"));
    check("publish", await client.publish(key("channel"), "hello"), 2);
    await both;
    check("messages", sorted(came), [
      ["message", key("channel"), "hello"],
      ["pmessage", key("channel"), "hello"],
    ]);
    await listener.unsubscribe(key("channel"));
    await listener.pUnsubscribe(key("chan*"));
    if (how !== "sentinel") listener.destroy();
  },
  async stream(client, key) {
    for (const n of ["1", "2", "3"]) {
      check("XADD", await client.xAdd(key("s"), `${n}-0`, { n }), `${n}-0`);
    }
    await client.xGroupCreate(key("s"), "group", "0");
    const read = async (consumer, COUNT) => {
      const from = { key: key("s"), id: ">" };
      const came = await client.xReadGroup("group", consumer, from, { COUNT });
      const entries = Array.isArray(came) ? came[0].messages : plain(came)[key("s")];
      return entries.map((it) => [it.id, plain(it.message)]);
    };
    check("XREADGROUP", await read("a", 2), [["1-0", { n: "1" }], ["2-0", { n: "2" }]]);
    check("XACK", await client.xAck(key("s"), "group", "1-0"), 1);
    check("XREADGROUP of another", await read("b", 9), [["3-0", { n: "3" }]]);
    check("XPENDING", (await client.xPending(key("s"), "group")).pending, 2);
    const claimed = await client.xAutoClaimJustId(key("s"), "group", "b", 0, "0");
    check("XAUTOCLAIM", claimed.messages, ["2-0", "3-0"]);
  },
  async scan(client, key) {
    const keys = Array.from({ length: 3000 }, (_, n) => key(`scan:${n}`));
    // By Sentinel 3,000 commands at once stay in the library, also at Redis' own Sentinel.
    const pipe = client.multi();
    for (const it of keys) pipe.set(it, "1");
    await pipe.execAsPipeline();
    const found = new Set();
    await alone(client, async (one) => {
      let cursor = "0";
      do {
        const page = await one.scan(cursor, { MATCH: key("scan:*"), COUNT: 500 });
        page.keys.forEach((it) => found.add(it));
        cursor = page.cursor;
      } while (cursor !== "0");
    });
    check("scan", sorted(found), sorted(keys));
  },
  async maps(client, key) {
    await client.hSet(key("hash"), { a: "1", b: "2" });
    check("hash", plain(await client.hGetAll(key("hash"))), { a: "1", b: "2" });
    await client.zAdd(key("sorted"), { score: 1.5, value: "x" });
    const came = await client.zRangeWithScores(key("sorted"), 0, -1);
    check("sorted set", came.map((it) => [it.value, it.score]), [["x", 1.5]]);
  },
  async large(client, key) {
    await client.set(key("large"), large);
    check("large", (await client.get(key("large"))) === large, true);
    const [came] = await client.multi().get(key("large")).execAsPipeline();
    check("large in a pipeline", came === large, true);
  },
};

await run("node-redis", "node", connect, steps);
const [client, listener, waiting] = [await connect(3), await connect(3), await connect(3)];
await listener.subscribe("{node}:channel", () => console.log("heard"));
forever(() => waiting.blPop("{node}:queue", 2), "popped");
await count("node", (key) => client.incr(key), async (n) => {
  await client.publish("{node}:channel", String(n));
  await client.rPush("{node}:queue", String(n));
});
