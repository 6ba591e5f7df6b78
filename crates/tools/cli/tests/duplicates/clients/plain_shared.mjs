// What ioredis.mjs and node_redis.mjs have in common: steps in RESP2 and RESP3, then counters,
// messages and pops without end. `NAME.mjs plain|sentinel ADDRESS...`

import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

export { sleep };
export const how = process.argv[2];
export const nodes = process.argv.slice(3).map((node) => {
  const at = node.lastIndexOf(":");
  return { host: node.slice(0, at), port: Number(node.slice(at + 1)) };
});
export const script = "return {redis.call('incr', KEYS[1]), ARGV[1], '";
export const digest = (text) => createHash("sha1").update(text).digest("hex");
export const large = "x".repeat(1 << 20);
const line = (error) => String(error).replaceAll("\n", " ");
let library;

export function check(name, came, expected) {
  if (JSON.stringify(came) !== JSON.stringify(expected)) {
    const text = JSON.stringify(came)?.slice(0, 500);
    console.log(`${library}: ${name}: ${text}, expected ${JSON.stringify(expected)}`);
    process.exit(1);
  }
}

export async function run(name, short, connect, steps) {
  library = name;
  for (const protocol of [2, 3]) {
    const client = await connect(protocol);
    for (const [step, act] of Object.entries(steps)) {
      await act(client, (key) => `{${short}${protocol}}:${key}`, protocol).catch((error) => {
        console.log(`${library}: ${step}: ${error.stack}`);
        process.exit(1);
      });
      console.log(`did ${step} in RESP${protocol}`);
    }
  }
  console.log("ready");
}

let ended = false;

// What waits for others: its errors are those of waiting, and it goes on.
export async function forever(act, word) {
  while (!ended) {
    try {
      if (await act()) console.log(word);
    } catch (error) {
      console.log("waited", line(error));
      await sleep(50);
    }
  }
}

export async function count(short, incr, tell) {
  process.stdin.on("end", () => (ended = true)).resume();
  for (let n = 1; !ended; n++) {
    const key = `count:${short}:${n % 50}`;
    try {
      console.log("ok", key, await incr(key));
      if (n % 10 === 0) await tell(n);
    } catch (error) {
      console.log("error", line(error));
    }
    await sleep(20);
  }
  console.log("done");
  process.exit(0);
}
