// What the driver for Node sees of a cluster: driver.js HOST PORT VERSION COMPRESSION KEYSPACE.
//
// Prints one line for each thing tried. Lines that begin with `~` may rightly differ between a node
// and a proxy; all others may not. This driver compresses nothing, whatever is asked.

'use strict';

const cassandra = require('cassandra-driver');

const { types } = cassandra;
const [host, port, version, , keyspace] = process.argv.slice(2);
const say = (...words) => console.log(...words.map((word) => typeof word === 'string' ? word : JSON.stringify(word)));
const prepare = true;

async function connected() {
  const client = new cassandra.Client({
    contactPoints: [host],
    localDataCenter: 'east',
    protocolOptions: {
      port: Number(port), maxVersion: Number(version), maxSchemaAgreementWaitSeconds: 60,
    },
    queryOptions: { consistency: types.consistencies.localQuorum },
    socketOptions: { connectTimeout: 20000, readTimeout: 30000 },
    isMetadataSyncEnabled: true,
  });
  await client.connect();
  return client;
}

async function schema(client) {
  await client.execute(`DROP KEYSPACE IF EXISTS ${keyspace}`);
  await client.execute(`CREATE KEYSPACE ${keyspace} WITH replication = ` +
    `{'class': 'NetworkTopologyStrategy', 'east': 1, 'west': 1}`);
  await client.execute(`USE ${keyspace}`);
  for (const statement of [
    'CREATE TYPE place (street text, number int)',
    'CREATE TABLE many (k text, c int, b bigint, bl blob, bo boolean, d date, de decimal, do double, ' +
      'i inet, l frozen<list<int>>, m map<text, int>, s set<int>, t time, ts timestamp, tu timeuuid, ' +
      'u uuid, v varint, p frozen<place>, x tuple<int, text>, st int static, PRIMARY KEY (k, c))',
    'CREATE TABLE counts (k text PRIMARY KEY, n counter)',
    'CREATE TABLE plain (k int PRIMARY KEY, v text)',
    'CREATE TABLE pairs (a int, b text, c int, v int, PRIMARY KEY ((a, b), c))',
  ]) {
    await client.execute(statement);
  }
}

async function kinds(client) {
  const names = 'k, c, b, bl, bo, d, de, do, i, l, m, s, t, ts, tu, u, v, p, x, st'.split(', ');
  const insert = `INSERT INTO many (${names}) VALUES (${names.map(() => '?')})`;
  const values = [
    'key', 1, types.Long.fromString('1099511627776'), Buffer.from([0, 255]), true,
    types.LocalDate.fromString('2020-02-29'), types.BigDecimal.fromString('1.25'), 2.5,
    types.InetAddress.fromString('192.0.2.7'), [1, 2], { a: 1 }, [3, 4],
    types.LocalTime.fromString('01:02:03'), new Date(1614834367000),
    types.TimeUuid.fromString('50554d6e-29bb-11e5-b345-feff819cdc9f'),
    types.Uuid.fromString('123e4567-e89b-42d3-a456-426614174000'),
    types.Integer.fromString('1180591620717411303424'), { street: 'road', number: 5 },
    new types.Tuple(9, 'x'), 77,
  ];
  await client.execute(insert, values, { prepare });
  const select = await client.execute('SELECT * FROM many WHERE k = ?', ['key'], { prepare });
  say('columns', select.columns.map((column) => [column.name, column.type.code]));
  say('row', select.rows);
  await client.execute('INSERT INTO many (k, c, b, st) VALUES (?, ?, ?, ?)', ['key', 2, null, types.unset], { prepare });
  say('nulls', (await client.execute("SELECT c, b, st FROM many WHERE k = 'key'")).rows);
  const named = 'SELECT c FROM many WHERE k = :key AND c > :least';
  say('named', (await client.execute(named, { key: 'key', least: 1 }, { prepare })).rows);
  say('simple', (await client.execute('SELECT c FROM many WHERE k = ?', ['key'])).rows);
  for (let number = 0; number < 50; number++) {
    const values = [number % 5, 'x'.repeat(number % 3), number, number];
    await client.execute('INSERT INTO pairs (a, b, c, v) VALUES (?, ?, ?, ?)', values, { prepare });
  }
  for (let a = 0; a < 5; a++) {
    const read = await client.execute('SELECT v FROM pairs WHERE a = ? AND b = ?', [a, 'x'], { prepare });
    say('composite', read.rows.map((row) => row.v));
  }
}

async function paging(client) {
  const insert = (k) => client.execute('INSERT INTO plain (k, v) VALUES (?, ?)', [k, `value ${k}`], { prepare });
  await Promise.all(Array.from({ length: 500 }, (_, k) => insert(k)));
  const pages = [];
  const rows = [];
  let pageState;
  do {
    const page = await client.execute('SELECT k FROM plain', [], { prepare, fetchSize: 37, pageState });
    pages.push(page.rows.length);
    rows.push(...page.rows.map((row) => row.k));
    pageState = page.pageState;
  } while (pageState);
  say('pages', pages, 'order', rows.slice(0, 20), rows.length);
  let sum = 0;
  for await (const row of await client.execute('SELECT k FROM plain', [], { prepare, fetchSize: 50 })) {
    sum += row.k;
  }
  say('iterated', sum);
}

async function batches(client) {
  for (const logged of [true, false]) {
    const query = 'INSERT INTO plain (k, v) VALUES (?, ?)';
    const all = Array.from({ length: 15 }, (_, index) => ({ query, params: [1000 + index, `${logged}`] }));
    all.push({ query: 'DELETE FROM plain WHERE k = ?', params: [1003] });
    const done = await client.batch(all, { prepare, logged });
    say('warnings', done.info.warnings || null);
    say('batch', (await client.execute('SELECT k, v FROM plain WHERE k IN (1000, 1003)')).rows);
  }
  const query = 'UPDATE counts SET n = n + ? WHERE k = ?';
  const counted = [0, 1, 2, 3].map((number) => ({ query, params: [number, `c${number % 2}`] }));
  await client.batch(counted, { prepare, counter: true });
  await client.execute("UPDATE counts SET n = n - 1 WHERE k = 'c0'");
  say('counts', (await client.execute('SELECT * FROM counts')).rows);
}

async function conditions(client) {
  for (let turn = 0; turn < 2; turn++) {
    const done = await client.execute("INSERT INTO plain (k, v) VALUES (5000, 'first') IF NOT EXISTS");
    say('applied', done.wasApplied(), done.rows);
  }
  for (const expected of ['wrong', 'first']) {
    const update = 'UPDATE plain SET v = ? WHERE k = 5000 IF v = ?';
    say('update', (await client.execute(update, ['second', expected], { prepare })).rows);
  }
  const consistency = types.consistencies.localSerial;
  say('serial', (await client.execute('SELECT v FROM plain WHERE k = 5000', [], { consistency })).rows);
}

async function extras(client) {
  const select = 'SELECT v FROM plain WHERE k = 5000';
  const traced = await client.execute(select, [], { traceQuery: true });
  say('traced', traced.info.traceId !== undefined);
  const trace = await client.metadata.getTrace(traced.info.traceId);
  say('trace', trace.requestType, trace.duration !== undefined, trace.events.length > 0);
  const customPayload = { 'evenkeel-test': Buffer.from([1, 2]) };
  say('payload', (await client.execute(select, [], { customPayload })).info.customPayload || null);
  await client.execute('INSERT INTO plain (k, v) VALUES (?, ?)', [6000, 'x'], { prepare, timestamp: 1234567 });
  say('writetime', (await client.execute('SELECT WRITETIME(v) FROM plain WHERE k = 6000')).rows);
  await client.execute('INSERT INTO plain (k, v) VALUES (?, ?)', [7000, 'large '.repeat(100000)], { prepare });
  say('large', (await client.execute('SELECT v FROM plain WHERE k = 7000')).rows[0].v.length);
}

async function failures(client) {
  const three = { consistency: types.consistencies.three };
  for (const [statement, values, options] of [
    ['SELEKT 1'], ['SELECT nothing FROM plain'], ['SELECT * FROM no_such_table'],
    ['CREATE TABLE plain (k int PRIMARY KEY)'], ["SELECT * FROM plain WHERE v = 'x'"],
    ['INSERT INTO no_such_table (k) VALUES (?)', [1], { prepare }], ['SELECT * FROM plain WHERE k = 1', [], three],
  ]) {
    try {
      await client.execute(statement, values || [], options || {});
      say('no error', statement);
    } catch (thrown) {
      // With one host, which has answered, the driver finds no other and says so around it.
      const inner = Object.values(thrown.innerErrors || {});
      const error = inner.length === 1 ? inner[0] : thrown;
      say('error', error.name, error.code, error.message, error.required || '', error.alive || '');
    }
  }
}

async function metadata(client) {
  await client.metadata.refreshKeyspace(keyspace);
  const table = await client.metadata.getTable(keyspace, 'pairs');
  say('table', table.partitionKeys.map((column) => column.name), table.columns.map((column) => column.name));
  say('replicas', client.getReplicas(keyspace, Buffer.from([0, 0, 0, 1])) !== null);
  const other = await connected();
  const events = [];
  client.on('hostDown', (down) => events.push(down.address));
  await other.execute(`ALTER TABLE ${keyspace}.plain ADD more int`);
  const ends = Date.now() + 20000;
  let seen = false;
  while (!seen && Date.now() < ends) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    seen = 'more' in (await client.metadata.getTable(keyspace, 'plain')).columnsByName;
  }
  say('schema event', seen, events);
  say('altered', (await client.execute('SELECT * FROM plain WHERE k = ?', [6000], { prepare })).rows);
  await other.shutdown();
}

async function main() {
  const client = await connected();
  client.hosts.forEach((one) => say('~host', one.address, one.datacenter, one.rack, one.cassandraVersion, one.tokens.length));
  say('protocol', client.controlConnection.protocolVersion, client.metadata.tokenizer.constructor.name);
  await schema(client);
  for (const part of [kinds, paging, batches, conditions, extras, failures, metadata]) {
    say('==', part.name);
    await part(client);
  }
  await client.execute(`DROP KEYSPACE ${keyspace}`);
  await client.shutdown();
  say('done');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
