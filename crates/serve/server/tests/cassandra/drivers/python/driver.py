"""What the driver for Python sees of a cluster: driver.py HOST PORT VERSION COMPRESSION KEYSPACE.

Prints one line for each thing tried. Lines that begin with `~` may rightly differ between a node
and a proxy; all others may not.
"""

import datetime
import decimal
import logging
import sys
import time
import uuid

from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType, SimpleStatement, UNSET_VALUE

HOST, PORT, VERSION, COMPRESSION, KEYSPACE = sys.argv[1:6]


def say(*words):
    print(*words, flush=True)


def attempt(what, error, *arguments, **named):
    try:
        try:
            what(*arguments, **named)
            say(error.__name__, "did not come")
        except NoHostAvailable as none:
            # The driver asks the next host, and a proxy is alone.
            raise next(iter(none.errors.values())) from none
    except error as raised:
        told = {"Unavailable": lambda: (raised.consistency, raised.required_replicas, raised.alive_replicas)}
        say(error.__name__, told.get(error.__name__, lambda: str(raised).splitlines()[0])())


def connected():
    policy = TokenAwarePolicy(DCAwareRoundRobinPolicy("east"))
    profile = ExecutionProfile(
        load_balancing_policy=policy, consistency_level=ConsistencyLevel.LOCAL_QUORUM, request_timeout=30)
    cluster = Cluster(
        [HOST], port=int(PORT), protocol_version=int(VERSION),
        compression=COMPRESSION if COMPRESSION != "none" else False,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile}, connect_timeout=20, control_connection_timeout=20,
        max_schema_agreement_wait=60)
    return cluster, cluster.connect()


def schema(session):
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'east': 1, 'west': 1}")
    session.set_keyspace(KEYSPACE)
    session.execute("CREATE TYPE place (street text, number int)")
    session.execute(
        "CREATE TABLE many (k text, c int, a ascii, b bigint, bl blob, bo boolean, d date, de decimal, "
        "do double, f float, i inet, l frozen<list<int>>, m map<text, int>, s set<int>, sm smallint, t time, "
        "ts timestamp, ti tinyint, tu timeuuid, u uuid, v varint, p frozen<place>, x tuple<int, text>, "
        "st int static, PRIMARY KEY (k, c))")
    session.execute("CREATE TABLE counts (k text PRIMARY KEY, n counter)")
    session.execute("CREATE TABLE plain (k int PRIMARY KEY, v text)")
    session.execute("CREATE TABLE pairs (a int, b text, c int, v int, PRIMARY KEY ((a, b), c))")
    session.execute("CREATE INDEX by_v ON plain (v)")


def types(session):
    names = ("k, c, a, b, bl, bo, d, de, do, f, i, l, m, s, sm, t, ts, ti, tu, u, v, p, x, st")
    marks = ", ".join("?" * 24)
    insert = session.prepare(f"INSERT INTO many ({names}) VALUES ({marks})")
    say("bind", [(column.name, str(column.type)) for column in insert.column_metadata])
    say("routing", insert.routing_key_indexes)
    values = [
        "key", 1, "ascii", 2**40, b"\0\xff", True, datetime.date(2020, 2, 29), decimal.Decimal("1.25"),
        2.5, 0.5, "192.0.2.7", [1, 2], {"a": 1}, {3, 4}, 300, datetime.time(1, 2, 3),
        datetime.datetime(2021, 3, 4, 5, 6, 7), 7, uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"),
        uuid.UUID("123e4567-e89b-42d3-a456-426614174000"), 2**70, ("road", 5), (9, "x"), 77]
    session.execute(insert, values)
    select = session.prepare("SELECT * FROM many WHERE k = ?")
    for row in session.execute(select, ["key"]):
        say("row", row)
    for version in range(2, 4):
        session.execute(insert, ["key", version] + [None] * 21 + [UNSET_VALUE])
    for row in session.execute(select, ["key"]):
        say("nulls", row.c, row.a, row.st)
    named = session.prepare("SELECT c FROM many WHERE k = :key AND c > :least")
    say("named", [row.c for row in session.execute(named, {"key": "key", "least": 1})])
    simple = session.execute("SELECT c FROM many WHERE k = %(key)s", {"key": "key"})
    say("simple", [row.c for row in simple])
    pairs = session.prepare("INSERT INTO pairs (a, b, c, v) VALUES (?, ?, ?, ?)")
    for number in range(50):
        session.execute(pairs, [number % 5, "x" * (number % 3), number, number])
    read = session.prepare("SELECT v FROM pairs WHERE a = ? AND b = ?")
    say("composite", [[row.v for row in session.execute(read, [a, "x"])] for a in range(5)])


def paging(session):
    insert = session.prepare("INSERT INTO plain (k, v) VALUES (?, ?)")
    futures = [session.execute_async(insert, (k, f"value {k % 10}")) for k in range(500)]
    for future in futures:
        future.result()
    select = session.prepare("SELECT k FROM plain")
    select.fetch_size = 37
    pages, rows, result = [], [], session.execute(select)
    while True:
        pages.append(len(result.current_rows))
        rows.extend(row.k for row in result.current_rows)
        if not result.has_more_pages:
            break
        result.fetch_next_page()
    say("pages", pages, "rows", rows == sorted(rows), sorted(rows) == list(range(500)))
    say("order", rows[:20])
    say("index", sorted(row.k for row in session.execute("SELECT k FROM plain WHERE v = 'value 3'"))[:9])
    first = session.execute(SimpleStatement("SELECT k FROM plain", fetch_size=10))
    state = first.paging_state
    again = session.execute(SimpleStatement("SELECT k FROM plain", fetch_size=10), paging_state=state)
    say("resumed", [row.k for row in again.current_rows])


def batches(session):
    insert = session.prepare("INSERT INTO plain (k, v) VALUES (?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(batch_type=kind)
        for k in range(1000, 1015):
            batch.add(insert, (k, str(kind)))
        batch.add("DELETE FROM plain WHERE k = 1003")
        batch.add(SimpleStatement("INSERT INTO plain (k, v) VALUES (%s, %s)"), (1020, "simple"))
        result = session.execute(batch)
        say("warnings", result.response_future.warnings)
        rows = session.execute("SELECT k, v FROM plain WHERE k IN (1000, 1003, 1020)")
        say("batch", sorted((row.k, row.v) for row in rows))
    count = session.prepare("UPDATE counts SET n = n + ? WHERE k = ?")
    batch = BatchStatement(batch_type=BatchType.COUNTER)
    for number in range(4):
        batch.add(count, (number, f"c{number % 2}"))
    session.execute(batch)
    session.execute("UPDATE counts SET n = n - 1 WHERE k = 'c0'")
    say("counts", sorted((row.k, row.n) for row in session.execute("SELECT * FROM counts")))


def conditions(session):
    statement = "INSERT INTO plain (k, v) VALUES (5000, 'first') IF NOT EXISTS"
    say("applied", session.execute(statement).was_applied, session.execute(statement).one())
    update = session.prepare("UPDATE plain SET v = ? WHERE k = 5000 IF v = ?")
    say("update", session.execute(update, ("second", "wrong")).one(), session.execute(update, ("second", "first")).one())
    serial = SimpleStatement(
        "SELECT v FROM plain WHERE k = 5000", consistency_level=ConsistencyLevel.LOCAL_SERIAL)
    say("serial", session.execute(serial).one())


def extras(session):
    traced = session.execute("SELECT v FROM plain WHERE k = 5000", trace=True)
    trace = traced.get_query_trace(max_wait_sec=30)
    say("trace", trace.request_type, trace.duration is not None, len(trace.events) > 0)
    payload = {"evenkeel-test": b"\x01\x02"}
    future = session.execute_async("SELECT v FROM plain WHERE k = 5000", custom_payload=payload)
    future.result()
    say("payload", future.custom_payload)
    stamped = "INSERT INTO plain (k, v) VALUES (6000, 'x') USING TIMESTAMP 1234567"
    session.execute(stamped)
    say("writetime", session.execute("SELECT WRITETIME(v) AS w, TTL(v) AS t FROM plain WHERE k = 6000").one())
    say("json", session.execute("SELECT JSON * FROM plain WHERE k = 6000").one())
    large = session.prepare("INSERT INTO many (k, c, bl) VALUES (?, ?, ?)")
    session.execute(large, ("large", 1, b"large " * 100_000))
    say("large", len(session.execute("SELECT bl FROM many WHERE k = 'large'").one().bl))


def errors(session):
    attempt(session.execute, SyntaxException, "SELEKT 1")
    attempt(session.execute, InvalidRequest, "SELECT nothing FROM plain")
    attempt(session.execute, InvalidRequest, "SELECT * FROM no_such_table")
    attempt(session.prepare, InvalidRequest, "INSERT INTO no_such_table (k) VALUES (?)")
    attempt(session.execute, AlreadyExists, "CREATE TABLE plain (k int PRIMARY KEY)")
    three = SimpleStatement("SELECT * FROM plain WHERE k = 1", consistency_level=ConsistencyLevel.THREE)
    attempt(session.execute, Unavailable, three)
    attempt(session.execute, InvalidRequest, "SELECT * FROM plain WHERE v > 'a'")
    attempt(session.execute, InvalidRequest, "USE no_such_keyspace")


def metadata(cluster, session):
    keyspace = cluster.metadata.keyspaces[KEYSPACE]
    say("tables", sorted(keyspace.tables), sorted(keyspace.user_types))
    say("schema", keyspace.tables["pairs"].as_cql_query())
    other, second = connected()
    second.execute(f"CREATE TABLE {KEYSPACE}.later (k int PRIMARY KEY)")
    ends = time.monotonic() + 20
    while "later" not in cluster.metadata.keyspaces[KEYSPACE].tables and time.monotonic() < ends:
        time.sleep(0.05)
    say("schema event", "later" in cluster.metadata.keyspaces[KEYSPACE].tables)
    second.execute(f"ALTER TABLE {KEYSPACE}.plain ADD more int")
    select = session.prepare("SELECT * FROM plain WHERE k = ?")
    say("altered", session.execute(select, (6000,)).one())
    second.execute(f"ALTER TABLE {KEYSPACE}.plain ADD most int")
    say("altered again", len(session.execute(select, (6000,)).one()))
    other.shutdown()


def main():
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    cluster, session = connected()
    for host in sorted(cluster.metadata.all_hosts(), key=str):
        say("~host", host.endpoint, host.datacenter, host.rack, host.release_version, host.host_id)
    say("cluster", cluster.metadata.cluster_name, cluster.metadata.partitioner, cluster.protocol_version)
    say("versions", sorted({host.release_version for host in cluster.metadata.all_hosts()}))
    schema(session)
    for part in (types, paging, batches, conditions, extras, errors):
        say("==", part.__name__)
        part(session)
    say("== metadata")
    metadata(cluster, session)
    session.execute(f"DROP KEYSPACE {KEYSPACE}")
    cluster.shutdown()
    say("done")


main()
