// The table of cases that every implementation reads.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import test from 'node:test';

import brownout, * as module from '@evenkeel/brownout';
import { Decision } from '@evenkeel/brownout';

import { TABLE, textOf } from './client.js';

for (const { name, lines, parts, others, passes_on: passesOn } of TABLE.cases) {
  test(`the table: ${name}`, () => {
    const decision = Decision.read(lines.map(textOf));
    for (const [part, allowed] of Object.entries(parts)) {
      assert.equal(decision.allows(part), allowed, part);
    }
    assert.equal(decision.allows('not-in-the-table'), others);
    assert.equal(decision.allows(), others);
    assert.equal(decision.value, passesOn === null ? null : textOf(passesOn));
  });
}

test('the table is whole', () => {
  assert.ok(TABLE.cases.length >= 100);
  assert.equal(TABLE.value_bytes_max, 4096);
});

test('spaces around do not count', () => {
  assert.equal(Decision.read(['  ?0;comments  ']).value, '?0;comments');
  assert.equal(Decision.read(['\t?0']).item, true);
});

test('the time is linear', () => {
  const begin = performance.now();
  for (const prefix of ['?0;a=', '?0;a="', '?0;a=%"', '?0;a=:', '?0;', '?0', '?0;a=1']) {
    for (const fill of [';a', '"', '\\\\', '1', 'a', ':', '%', '%41', ' ', '@', '?', '.']) {
      Decision.read([(prefix + fill.repeat(4096)).slice(0, 4096)]);
    }
  }
  assert.ok(performance.now() - begin < 1_000);
});

test('import and require give the same module', () => {
  const required = createRequire(import.meta.url)('@evenkeel/brownout');
  assert.equal(required, brownout);
  assert.equal(module.brownout, brownout);
  for (const name of ['optional', 'current', 'outgoingHeaders', 'Decision']) {
    assert.equal(required[name], module[name], name);
    assert.equal(typeof module[name], 'function', name);
  }
});

test('outside of a request everything is computed', () => {
  assert.equal(brownout.optional('comments'), true);
  assert.equal(brownout.current(), undefined);
  assert.deepEqual(brownout.outgoingHeaders(), {});
});
