"""Writes what the Python driver sends, for the tests beside this file.

    python3 -m venv venv && venv/bin/pip install cassandra-driver==3.30.1 lz4 python-snappy
    venv/bin/python python_driver.py > python_driver.txt

One line each: a name and bytes in hex. The driver's own encoders make them; no server is asked.
"""

import io

from cassandra import ConsistencyLevel
from cassandra import protocol
from cassandra.connection import locally_supported_compressions
from cassandra.query import BatchType
from cassandra.segment import SegmentCodec, compute_crc24, compute_crc32, CRC32_INITIAL

LZ4 = locally_supported_compressions["lz4"]
SNAPPY = locally_supported_compressions["snappy"]
TEXT = "SELECT v, grüße FROM ks.t WHERE k = ?"


def say(name, data):
    print(name, data.hex())


def encode(message, version, stream=5, compressor=None, payload=None, tracing=False):
    message.custom_payload = payload
    message.tracing = tracing
    return protocol.ProtocolHandler.encode_message(message, stream, version, compressor, False)


def messages(version):
    one = ConsistencyLevel.LOCAL_QUORUM
    prepared = {"result_metadata_id": b"\xaa" * 16} if version == 5 else {}
    keyspace = {"keyspace": "ks"} if version == 5 else {}
    options = {"COMPRESSION": "lz4", "NO_COMPACT": "true"}
    yield "startup", protocol.StartupMessage("3.4.7", options)
    yield "options", protocol.OptionsMessage()
    yield "auth_response", protocol.AuthResponseMessage(b"\0user\0secret")
    kinds = ["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"]
    yield "register", protocol.RegisterMessage(kinds)
    yield "query.plain", protocol.QueryMessage(TEXT, ConsistencyLevel.ONE)
    yield "query.full", protocol.QueryMessage(
        TEXT, one, ConsistencyLevel.LOCAL_SERIAL, 5000, b"\x01\x02page", 1700000000000001, **keyspace)
    yield "prepare", protocol.PrepareMessage(TEXT, **keyspace)
    yield "prepare.plain", protocol.PrepareMessage(TEXT)
    yield "execute.empty", protocol.ExecuteMessage(b"\x11" * 16, [], one, **prepared)
    yield "execute.full", protocol.ExecuteMessage(
        b"\x11" * 16, [b"key", None, protocol._UNSET_VALUE, b""], one, ConsistencyLevel.SERIAL, 100,
        b"\xff" * 40, 1, **prepared)
    yield "batch.logged", protocol.BatchMessage(
        BatchType.LOGGED,
        [(False, TEXT, []), (True, b"\x22" * 16, [b"a", None]), (False, "DELETE", [b"x" * 300])],
        one, ConsistencyLevel.SERIAL, 1700000000000002, **keyspace)
    yield "batch.counter", protocol.BatchMessage(BatchType.COUNTER, [], ConsistencyLevel.QUORUM)


def envelopes():
    for version in (4, 5):
        for name, message in messages(version):
            say(f"v{version}.{name}", encode(message, version))
        message = protocol.QueryMessage(TEXT, ConsistencyLevel.ONE)
        payload = {"a": b"1", "evenkeel": b"\0\xff"}
        say(f"v{version}.payload", encode(message, version, 32767, payload=payload, tracing=True))


def compressed():
    message = protocol.QueryMessage("SELECT " + "column, " * 500 + "k FROM t", ConsistencyLevel.ONE)
    say("v4.lz4", encode(message, 4, compressor=LZ4[0]))
    say("v4.snappy", encode(message, 4, compressor=SNAPPY[0]))


def segments():
    plain, lz4 = SegmentCodec(), SegmentCodec(*LZ4)
    small = encode(protocol.QueryMessage(TEXT, ConsistencyLevel.ONE), 5)
    options = encode(protocol.OptionsMessage(), 5, 6)
    long = encode(protocol.QueryMessage("SELECT " + "column, " * 40000, ConsistencyLevel.ONE), 5)
    for name, codec in (("plain", plain), ("lz4", lz4)):
        out = io.BytesIO()
        codec.encode(out, small + options)
        say(f"segment.{name}.small", out.getvalue())
        out = io.BytesIO()
        codec.encode(out, options)
        say(f"segment.{name}.options", out.getvalue())
        out = io.BytesIO()
        codec.encode(out, long)
        data = out.getvalue()
        if name == "lz4":
            say("segment.lz4.long", data)
            continue
        # 320 kB: of each segment its header, its first bytes and its checksum
        while data:
            header = int.from_bytes(data[:3], "little")
            length = 6 + (header & 0x1FFFF) + 4
            say("segment.plain.long", data[:16] + data[length - 4:length])
            data = data[length:]


def checksums():
    plain = (b"\0\0\0", b"\x01\x02\x03", b"\xff\xff\x03")
    for bytes_ in plain + (b"\0\0\0\0\0", b"\x10\x20\x30\x40\x05"):
        crc = compute_crc24(int.from_bytes(bytes_, "little"), len(bytes_))
        say("crc24", bytes_ + crc.to_bytes(3, "little"))
    for bytes_ in (b"", b"a", bytes(range(256))):
        say("crc32", bytes_ + compute_crc32(bytes_, CRC32_INITIAL).to_bytes(4, "little"))


print("# made by python_driver.py with cassandra-driver 3.30.1")
envelopes()
compressed()
segments()
checksums()
