// A server on a loopback socket, and a client that sends exactly the headers it is given.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { after } from 'node:test';

const table = new URL('../../conformance/headers.json', import.meta.url);
export const TABLE = JSON.parse(readFileSync(table, 'utf8'));

/** Serves until the tests of this file are over; the base of its addresses. */
export async function serve(handler) {
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** One request; each decision is a line of Brownout-Optional of its own. */
export function get(url, decision = [], { headers = {}, method = 'GET', body } = {}) {
  const lines = decision.length === 0 ? {} : { 'Brownout-Optional': decision };
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method, headers: { ...headers, ...lines } });
    request.on('error', reject);
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => (text += chunk));
      response.on('error', reject);
      response.on('end', () => {
        const { statusCode: status, statusMessage, headers: got, rawHeaders } = response;
        resolve({ status, statusMessage, headers: got, rawHeaders, text });
      });
    });
    request.end(body);
  });
}

/** A line of the table of cases, as bytes in a string, the way node hands headers on. */
export function textOf(line) {
  const text =
    typeof line === 'string' ? line : line.begin + line.fill.repeat(line.times) + line.end;
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** Control characters but the tab are refused by clients and servers. */
export function canBeSent(lines) {
  return lines.every((line) => /^[\t\x20-\x7e\x80-\xff]*$/.test(line));
}
