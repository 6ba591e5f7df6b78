// ioredis as a plain client or one of Sentinel.

import { createRequire } from "node:module";
import { check, count, digest, forever, how, nodes, run } from "./plain_shared.mjs";
import { large, script, sleep } from "./plain_shared.mjs";

const require = createRequire(process.env.EVENKEEL_NODE_MODULES + "/");
const { Redis } = require("ioredis");

function connect(protocol) {
  const client =
    how === "sentinel"
      ? new Redis({ sentinels: nodes, name: "chaos", protocol })
      : new Redis({ ...nodes[0], protocol });
  client.on("error", () => {});
  return client;
}

const sorted = (all) => [...all].sort();

const steps = {
  async protocol(client, key, protocol) {
    const said = JSON.stringify(await client.call("HELLO"));
    const proto = [`"proto",${protocol}`, `"proto":${protocol}`];
    check("HELLO", proto.some((it) => said.includes(it)), true);
  },
  async pipeline(client, key) {
    const pipe = client.pipeline().set(key("n"), 1).incr(key("n")).get(key("n"));
    check("pipeline", await pipe.exec(), [[null, "OK"], [null, 2], [null, "2"]]);
  },
  async transaction(client, key) {
    const done = await client.multi().incr(key("n")).get(key("n")).exec();
    check("transaction", done, [[null, 3], [null, "3"]]);
  },
  async watch(client, key) {
    const other = client.duplicate();
    await client.watch(key("n"));
    await other.set(key("n"), 10);
    check("watch", await client.multi().incr(key("n")).exec(), null);
    await client.watch(key("n"));
    check("watch again", await client.multi().incr(key("n")).exec(), [[null, 11]]);
    other.disconnect();
  },
  async script(client, key) {
    const body = `${script}${key("script")}'}`;
    const refused = await client.evalsha(digest(body), 1, key("n"), "a").catch((it) => it.message);
    check("unknown script", String(refused).split(" ")[0], "NOSCRIPT");
    check("EVAL", await client.eval(body, 1, key("n"), "a"), [12, "a", key("script")]);
    const again = await client.evalsha(digest(body), 1, key("n"), "b");
    check("EVALSHA", again, [13, "b", key("script")]);
  },
  async pop(client, key) {
    const other = client.duplicate();
    const came = other.blpop(key("list"), 4);
    while (!(await client.client("LIST")).includes("cmd=blpop")) await sleep(10);
    check("push", await client.rpush(key("list"), "x"), 1);
    check("pop", await came, [key("list"), "x"]);
    other.disconnect();
  },
  async channels(client, key) {
    const listener = client.duplicate();
    const came = [];
    const both = new Promise((done) => {
      const note = (...all) => came.push(all) === 2 && done();
      listener.on("message", (channel, text) => note("message", channel, text));
      listener.on("pmessage", (...all) => note("pmessage", ...all));
    });
    check("subscribe", await listener.subscribe(key("channel")), 1);
    check("psubscribe", await listener.psubscribe(key("chan*")), 2);
    check("publish", await client.publish(key("channel"), "hello"), 2);
    await both;
    const expected = [
      ["message", key("channel"), "hello"],
      ["pmessage", key("chan*"), key("channel"), "hello"],
    ];
    check("messages", came, expected);
    listener.disconnect();
  },
  async stream(client, key) {
    for (const n of [1, 2, 3]) {
      check("XADD", await client.xadd(key("s"), `${n}-0`, "n", n), `${n}-0`);
    }
    await client.xgroup("CREATE", key("s"), "group", "0");
    const read = async (consumer, most) => {
      const to = ["GROUP", "group", consumer, "COUNT", most, "STREAMS", key("s"), ">"];
      const came = await client.xreadgroup(...to);
      return Array.isArray(came) ? came[0][1] : came[key("s")];
    };
    check("XREADGROUP", await read("a", 2), [["1-0", ["n", "1"]], ["2-0", ["n", "2"]]]);
    check("XACK", await client.xack(key("s"), "group", "1-0"), 1);
    check("XREADGROUP of another", await read("b", 9), [["3-0", ["n", "3"]]]);
    check("XPENDING", (await client.xpending(key("s"), "group"))[0], 2);
    const claimed = await client.xautoclaim(key("s"), "group", "b", 0, "0", "JUSTID");
    check("XAUTOCLAIM", claimed[1], ["2-0", "3-0"]);
  },
  async scan(client, key) {
    const keys = Array.from({ length: 3000 }, (_, n) => key(`scan:${n}`));
    const pipe = client.pipeline();
    for (const it of keys) pipe.set(it, 1);
    await pipe.exec();
    const found = new Set();
    for await (const page of client.scanStream({ match: key("scan:*"), count: 500 })) {
      page.forEach((it) => found.add(it));
    }
    check("scan", sorted(found), sorted(keys));
  },
  async maps(client, key) {
    await client.hset(key("hash"), { a: "1", b: "2" });
    check("hash", await client.hgetall(key("hash")), { a: "1", b: "2" });
    await client.zadd(key("sorted"), 1.5, "x");
    const came = await client.zrange(key("sorted"), 0, -1, "WITHSCORES");
    check("sorted set", came.flat().map(String), ["x", "1.5"]);
  },
  async large(client, key) {
    await client.set(key("large"), large);
    check("large", (await client.get(key("large"))) === large, true);
    const [[, came]] = await client.pipeline().get(key("large")).exec();
    check("large in a pipeline", came === large, true);
  },
};

await run("ioredis", "io", connect, steps);
const [client, listener, waiting] = [connect(3), connect(3), connect(3)];
listener.on("message", () => console.log("heard"));
await listener.subscribe("{io}:channel");
forever(() => waiting.blpop("{io}:queue", 2), "popped");
await count("io", (key) => client.incr(key), async (n) => {
  await client.publish("{io}:channel", n);
  await client.rpush("{io}:queue", n);
});
