// Without a framework: every way in which a head can leave.
import assert from 'node:assert/strict';
import http2 from 'node:http2';
import test, { after } from 'node:test';

import brownout, { optional } from '@evenkeel/brownout';

import { get, serve } from './client.js';

/** Serves one response, after asking for a part if `asks`. */
function serveOnce(respond, asks = true) {
  const middleware = brownout();
  return serve((request, response) =>
    middleware(request, response, () => {
      if (asks) optional('comments');
      response.setHeader('X-Set', 'kept');
      respond(response);
    }),
  );
}

const COOKIES = ['a=1', 'b=2'];
const WAYS = {
  'an object': (response) =>
    response.writeHead(200, { ETag: '"1"', 'cache-control': 'public', 'Set-Cookie': COOKIES }),
  'an object after a message': (response) =>
    response.writeHead(200, 'Fine', { ETag: '"1"', 'Set-Cookie': COOKIES }),
  'an object after no message': (response) =>
    response.writeHead(200, undefined, { ETag: '"1"', 'Set-Cookie': COOKIES }),
  'a flat list': (response) =>
    response.writeHead(200, ['ETag', '"1"', 'Set-Cookie', 'a=1', 'Set-Cookie', 'b=2']),
  'a list of pairs': (response) =>
    response.writeHead(200, [['ETag', '"1"'], ...COOKIES.map((text) => ['Set-Cookie', text])]),
  'headers set before': (response) =>
    response.setHeader('ETag', '"1"').setHeader('Set-Cookie', COOKIES),
};

for (const [way, respond] of Object.entries(WAYS)) {
  test(`writeHead() with ${way}`, async () => {
    const base = await serveOnce((response) => {
      respond(response);
      response.end('x');
    });
    const lean = await get(base, ['?0']);
    assert.equal(lean.status, 200);
    assert.equal(lean.statusMessage, way === 'an object after a message' ? 'Fine' : 'OK');
    assert.equal(lean.headers['brownout-served'], '?0');
    assert.equal(lean.headers['cache-control'], 'no-store');
    assert.equal(lean.headers.etag, undefined);
    assert.equal(lean.headers['x-set'], 'kept');
    assert.deepEqual(lean.headers['set-cookie'], COOKIES);
    const full = await get(base, ['?1']);
    assert.equal(full.headers['brownout-served'], '?1');
    assert.equal(full.headers.etag, '"1"');
    assert.deepEqual(full.headers['set-cookie'], COOKIES);
  });
}

test('an application that never asks sees nothing change', async () => {
  const respond = (response) => response.writeHead(200, { 'X-Its': 'own' }).end('x');
  const base = await serveOnce(respond, false);
  const { headers } = await get(base, ['?0']);
  assert.equal(headers['brownout-served'], undefined);
  assert.equal(headers['cache-control'], undefined);
});

test('a second head is still an error', async () => {
  const base = await serveOnce((response) => {
    response.writeHead(200);
    assert.throws(() => response.writeHead(201), { code: 'ERR_HTTP_HEADERS_SENT' });
    response.end('x');
  });
  assert.equal((await get(base, ['?0'])).status, 200);
});

test('a head that was refused can be written again', async () => {
  const base = await serveOnce((response) => {
    assert.throws(() => response.writeHead(9_999), { code: 'ERR_HTTP_INVALID_STATUS_CODE' });
    response.writeHead(200, { ETag: '"1"' }).end('x');
  });
  const { status, headers } = await get(base, ['?0']);
  assert.equal(status, 200);
  assert.equal(headers['brownout-served'], '?0');
  assert.equal(headers.etag, undefined);
});

test('an empty body and HEAD', async () => {
  const base = await serveOnce((response) => response.writeHead(204).end());
  assert.equal((await get(base, ['?0'])).headers['brownout-served'], '?0');
  const head = await get(base, ['?0'], { method: 'HEAD' });
  assert.equal(head.headers['cache-control'], 'no-store');
});

test('HTTP/2', async () => {
  const middleware = brownout();
  const server = http2.createServer((request, response) =>
    middleware(request, response, () => {
      optional('comments');
      response.setHeader('ETag', '"1"');
      response.end('x');
    }),
  );
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = http2.connect(`http://127.0.0.1:${server.address().port}`);
  after(() => {
    client.close();
    server.close();
  });
  const stream = client.request({ ':path': '/', 'brownout-optional': '?0' });
  const headers = await new Promise((resolve) => stream.on('response', resolve));
  stream.resume();
  assert.equal(headers['brownout-served'], '?0');
  assert.equal(headers['cache-control'], 'no-store');
  assert.equal(headers.etag, undefined);
});

test('a request made by hand has no raw headers', () => {
  const request = { headers: { 'brownout-optional': '?0' } };
  brownout()(request, { writeHead() {} }, () => assert.equal(optional(), false));
  const repeated = { headers: { 'brownout-optional': '?0, ?0' }, rawHeaders: [] };
  brownout()(repeated, { writeHead() {} }, () => assert.equal(optional(), true));
});
