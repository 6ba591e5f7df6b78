// The middleware under express 5 and 4, over real sockets.
import assert from 'node:assert/strict';
import http from 'node:http';
import { createRequire } from 'node:module';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import brownout, { current, optional, outgoingHeaders } from '@evenkeel/brownout';
import compression from 'compression';
import express5 from 'express';
import express4 from 'express4';

import { canBeSent, get, serve, TABLE, textOf } from './client.js';

const CACHEABLE = {
  etag: '"1"',
  'last-modified': 'Wed, 21 Oct 2015 07:28:00 GMT',
  'cache-control': 'public, max-age=60',
  'cdn-cache-control': 'max-age=600',
};
const require = createRequire(import.meta.url);
const THIS_FILE = require('node:url').fileURLToPath(import.meta.url);

/** Deep code: knows no request. */
async function ask(parts) {
  await sleep(1);
  return Object.fromEntries(parts.map((part) => [part, optional(part)]));
}

function shop(express) {
  const app = express();
  app.use(brownout());
  app.use(express.json());
  app.get('/page', async (request, response) => {
    const asked = request.query.ask;
    const answers = asked === undefined ? {} : await ask(asked.split(','));
    response.set(CACHEABLE).json({ answers, outgoing: outgoingHeaders() });
  });
  app.get('/request', (request, response) => {
    assert.equal(request.brownout, current());
    for (const part of ['comments', 'ratings', 'comments']) request.brownout.optional(part);
    response.json(request.brownout.refused);
  });
  app.post('/body', async (request, response) => {
    response.json({ body: request.body.number, ...(await ask(['comments'])) });
  });
  app.get('/slow', async (request, response) => {
    const answers = [optional('comments')];
    await sleep(Math.random() * 20);
    answers.push(optional('comments'), request.brownout.optional('comments'));
    response.json(answers);
  });
  app.get('/stream', async (request, response) => {
    response.set(CACHEABLE);
    response.write(`${optional('first')} `);
    await sleep(5);
    response.end(`${optional('second')}`);
  });
  app.get('/events', async (request, response) => {
    optional('comments');
    response.type('text/event-stream').flushHeaders();
    app.once('release', () => response.end('data: 1\n\n'));
  });
  app.get('/release', (request, response) => {
    app.emit('release');
    response.end('released');
  });
  app.get('/file', (request, response) => {
    optional('comments');
    response.sendFile(THIS_FILE);
  });
  app.get('/own-word', (request, response) => {
    if (request.query.ask !== undefined) optional('comments');
    response.set({ ...CACHEABLE, 'Brownout-Served': request.query.served }).end('x');
  });
  app.get('/fails', () => {
    optional('comments');
    throw new Error('the page is broken');
  });
  app.use((error, request, response, next) => {
    response.status(500).send(error.message);
  });
  return app;
}

for (const [name, express] of [['express 5', express5], ['express 4', express4]]) {
  describe(name, async () => {
    const base = await serve(shop(express));

    test('is the version it says', () => {
      const { version } = require(`${name.replace(' 5', '').replace(' ', '')}/package.json`);
      assert.equal(version.split('.')[0], name.at(-1));
    });

    test('the table over a socket', async () => {
      let sent = 0;
      for (const { name: title, lines: table, parts, others } of TABLE.cases) {
        const lines = table.map(textOf);
        if (!canBeSent(lines)) continue;
        sent += 1;
        const expected = Object.keys(parts).length === 0 ? { 'some-other': others } : parts;
        const url = `${base}/page?ask=${encodeURIComponent(Object.keys(expected).join(','))}`;
        const { text, headers } = await get(url, lines);
        // Compared as text: __proto__ is one of the names.
        const answers = Object.entries(JSON.parse(text).answers);
        assert.deepEqual(answers, Object.entries(expected), title);
        const full = answers.every(([, allowed]) => allowed);
        assert.equal(headers['brownout-served'], full ? '?1' : '?0', title);
      }
      assert.ok(sent >= 90);
    });

    test('full content keeps its caching', async () => {
      for (const decision of [[], ['?1'], ['?0;comments'], ['garbage'], ['?0', '?0']]) {
        const { headers } = await get(`${base}/page?ask=comments`, decision);
        assert.equal(headers['brownout-served'], '?1');
        for (const key of Object.keys(CACHEABLE)) assert.equal(headers[key], CACHEABLE[key]);
      }
    });

    test('lean content is a 200 that no cache keeps', async () => {
      const url = `${base}/page?ask=comments,ratings`;
      const { status, headers, text } = await get(url, ['?0;comments']);
      assert.equal(status, 200);
      assert.equal(headers['brownout-served'], '?0');
      assert.equal(headers['cache-control'], 'no-store');
      for (const key of ['etag', 'last-modified', 'cdn-cache-control', 'vary']) {
        assert.equal(headers[key], undefined, key);
      }
      assert.equal(Number(headers['content-length']), text.length);
    });

    test('an application that never asks sees nothing change', async () => {
      const { headers, text } = await get(`${base}/page`, ['?0']);
      assert.equal(headers['brownout-served'], undefined);
      for (const key of Object.keys(CACHEABLE)) assert.equal(headers[key], CACHEABLE[key]);
      assert.deepEqual(JSON.parse(text).outgoing, { 'Brownout-Optional': '?0' });
    });

    test('the decision is passed on as it came, if it could be read', async () => {
      const passedOn = async (decision) =>
        JSON.parse((await get(`${base}/page`, decision)).text).outgoing;
      assert.deepEqual(await passedOn(['?0; a="x"']), { 'Brownout-Optional': '?0; a="x"' });
      for (const decision of [[], ['?0;'], ['?0', '?0']]) {
        assert.deepEqual(await passedOn(decision), {});
      }
    });

    test('the request knows what was refused', async () => {
      assert.equal((await get(`${base}/request`, ['?0'])).text, '["comments","ratings"]');
      assert.equal((await get(`${base}/request`, ['?0;ratings'])).text, '["comments"]');
      assert.equal((await get(`${base}/request`)).text, '[]');
    });

    test("the application's own word stays", async () => {
      const partly = await get(`${base}/own-word?served=%3F0;comments`, ['?1']);
      assert.equal(partly.headers['brownout-served'], '?0;comments');
      assert.equal(partly.headers['cache-control'], 'no-store');
      // It was refused a part, and found another way to serve it: believed, but not cached.
      const full = await get(`${base}/own-word?served=%3F1&ask=1`, ['?0']);
      assert.equal(full.headers['brownout-served'], '?1');
      assert.equal(full.headers['cache-control'], 'no-store');
      const unasked = await get(`${base}/own-word?served=%3F1`, ['?0']);
      assert.equal(unasked.headers.etag, '"1"');
    });

    test('who has the full page is not told that the lean one is the same', async () => {
      const url = `${base}/slow`;
      const tag = (await get(url)).headers.etag;
      assert.ok(tag);
      const headers = { 'If-None-Match': tag };
      assert.equal((await get(url, [], { headers })).status, 304);
      assert.equal((await get(url, ['?0'], { headers })).status, 200);
      assert.equal((await get(url, ['?0'])).headers.etag, undefined);
    });

    test('a stream is marked when it begins, and stays what it said', async () => {
      const lean = await get(`${base}/stream`, ['?0']);
      assert.equal(lean.text, 'false false');
      assert.equal(lean.headers['brownout-served'], '?0');
      assert.equal(lean.headers['transfer-encoding'], 'chunked');
      assert.equal(lean.headers.etag, undefined);
      const promised = await get(`${base}/stream`, ['?0;first']);
      assert.equal(promised.text, 'true true');
      assert.equal(promised.headers['brownout-served'], '?1');
      assert.equal(promised.headers.etag, '"1"');
    });

    test('a flushed head leaves before the body', async () => {
      const headers = { 'Brownout-Optional': '?0' };
      const request = http.get(`${base}/events`, { headers });
      const response = await new Promise((resolve) => request.on('response', resolve));
      assert.equal(response.headers['brownout-served'], '?0');
      await get(`${base}/release`);
      const chunks = await response.setEncoding('utf8').toArray();
      assert.equal(chunks.join(''), 'data: 1\n\n');
    });

    test('a file is sent lean', async () => {
      const { status, headers, text } = await get(`${base}/file`, ['?0']);
      assert.equal(status, 200);
      assert.equal(headers['brownout-served'], '?0');
      assert.equal(headers['cache-control'], 'no-store');
      assert.equal(headers.etag ?? headers['last-modified'], undefined);
      assert.match(text, /a file is sent lean/);
      assert.ok((await get(`${base}/file`, ['?1'])).headers.etag);
    });

    test('errors stay errors', async () => {
      const failed = await get(`${base}/fails`, ['?0']);
      assert.deepEqual([failed.status, failed.text], [500, 'the page is broken']);
      assert.equal(failed.headers['cache-control'], 'no-store');
      assert.equal((await get(`${base}/fails`)).status, 500);
      assert.equal((await get(`${base}/nowhere`, ['?0'])).status, 404);
    });

    test('the context survives the parser of the body', async () => {
      const body = (number) => ({
        method: 'POST',
        body: JSON.stringify({ number }),
        headers: { 'Content-Type': 'application/json' },
      });
      const requests = Array.from({ length: 40 }, async (_, number) => {
        const { text } = await get(`${base}/body`, [number % 2 ? '?1' : '?0'], body(number));
        assert.deepEqual(JSON.parse(text), { body: number, comments: number % 2 === 1 });
      });
      await Promise.all(requests);
    });

    test("concurrent requests do not see each other's decision", async () => {
      const decisions = [
        ['?0', false],
        ['?1', true],
        ['?0;comments', true],
        ['?1;comments=?0', false],
      ];
      const requests = Array.from({ length: 200 }, async (_, number) => {
        const [value, expected] = decisions[number % decisions.length];
        const { text, headers } = await get(`${base}/slow`, [value]);
        assert.deepEqual(JSON.parse(text), [expected, expected, expected]);
        assert.equal(headers['brownout-served'], expected ? '?1' : '?0');
      });
      await Promise.all(requests);
      assert.equal(current(), undefined);
    });

    test('inner services obey the decision of the edge', async () => {
      const edge = express();
      edge.use(brownout());
      edge.get('/', async (request, response) => {
        const inner = await fetch(`${base}/page?ask=comments`, { headers: outgoingHeaders() });
        const { answers } = await inner.json();
        response.set('Brownout-Served', inner.headers.get('Brownout-Served')).json(answers);
      });
      const server = http.createServer(edge);
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      after(() => server.close());
      const url = `http://127.0.0.1:${server.address().port}/`;
      for (const [decision, comments] of [[['?0'], false], [['?0;comments'], true], [[], true]]) {
        const { text, headers } = await get(url, decision);
        assert.deepEqual(JSON.parse(text), { comments });
        assert.equal(headers['cache-control'], comments ? undefined : 'no-store');
      }
    });

    test('compression, inside and outside', async () => {
      for (const order of [
        [brownout(), compression({ threshold: 0 })],
        [compression({ threshold: 0 }), brownout()],
      ]) {
        const app = express();
        app.use(...order);
        app.get('/', (request, response) => {
          response.set(CACHEABLE).type('text').send(`${optional('comments')} `.repeat(100));
        });
        const url = await serve(app);
        const lean = await get(url, ['?0'], { headers: { 'Accept-Encoding': 'gzip' } });
        assert.equal(lean.headers['content-encoding'], 'gzip');
        assert.equal(lean.headers['brownout-served'], '?0');
        assert.equal(lean.headers['cache-control'], 'no-store');
        assert.equal(lean.headers.etag, undefined);
      }
    });
  });
}
