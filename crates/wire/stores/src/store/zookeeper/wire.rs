//! Requests of ZooKeeper's client protocol that a store needs, and their answers: bytes only.
//!
//! Source: `zookeeper.jute` and `ZooDefs.OpCode` of ZooKeeper 3.8. What begins a session and a
//! reply is shared with [`crate::clients::zookeeper::wire`].

use crate::clients::zookeeper::WireError;
use crate::clients::zookeeper::jute::{Reader, Record};

/// What is asked for one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation<'a> {
    Create(&'a str, &'a [u8]),
    Set(&'a str, &'a [u8]),
    Delete(&'a str),
    /// The version must be this one.
    Check(&'a str, i32),
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const DATA: i32 = 4;
const SET: i32 = 5;
const CHILDREN: i32 = 8;
const SYNC: i32 = 9;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const COUNT: i32 = 104;
const ERROR: i32 = -1;
/// Any version.
const ANY: i32 = -1;

/// The data of a node, and its version.
pub(super) fn data(xid: i32, path: &str) -> Vec<u8> {
    let mut record = of(xid, DATA);
    record.buffer(path.as_bytes()).byte(0); // no watch
    record.message()
}

pub(super) fn children(xid: i32, path: &str) -> Vec<u8> {
    let mut record = of(xid, CHILDREN);
    record.buffer(path.as_bytes()).byte(0);
    record.message()
}

/// How many nodes there are below this one, at any depth (3.6 and later).
pub(super) fn count(xid: i32, path: &str) -> Vec<u8> {
    let mut record = of(xid, COUNT);
    record.buffer(path.as_bytes());
    record.message()
}

/// Waits until the server has what the leader has now.
pub(super) fn sync(xid: i32, path: &str) -> Vec<u8> {
    let mut record = of(xid, SYNC);
    record.buffer(path.as_bytes());
    record.message()
}

pub(super) fn create(xid: i32, path: &str) -> Vec<u8> {
    let mut record = of(xid, CREATE);
    node(&mut record, path, &[]);
    record.message()
}

/// All of them or none.
pub(super) fn multi(xid: i32, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut record = of(xid, MULTI);
    for operation in operations {
        match *operation {
            Operation::Create(path, data) => {
                node(part(&mut record, CREATE, false), path, data);
            }
            Operation::Set(path, data) => {
                part(&mut record, SET, false).buffer(path.as_bytes()).buffer(data).int(ANY);
            }
            Operation::Delete(path) => {
                part(&mut record, DELETE, false).buffer(path.as_bytes()).int(ANY);
            }
            Operation::Check(path, version) => {
                part(&mut record, CHECK, false).buffer(path.as_bytes()).int(version);
            }
        }
    }
    part(&mut record, ERROR, true);
    record.message()
}

/// Why none of [`multi`]'s operations was done: the error of the first that could not be.
pub(super) fn multi_error(body: &[u8]) -> Result<Option<i32>, WireError> {
    let mut reader = Reader::new(body);
    // When one fails, the results of all are errors, 0 for those before it.
    loop {
        let (kind, is_end, _error) = (reader.int()?, reader.byte()? != 0, reader.int()?);
        if kind != ERROR || is_end {
            return Ok(None);
        }
        let error = reader.int()?;
        if error != 0 {
            return Ok(Some(error));
        }
    }
}

/// The answer to [`data`].
pub(super) fn read_data(body: &[u8]) -> Result<(&[u8], i32), WireError> {
    let mut reader = Reader::new(body);
    let data = reader.buffer()?.unwrap_or_default();
    for _ in 0..4 {
        reader.take(8)?; // transactions and times of its creation and last change
    }
    Ok((data, reader.int()?))
}

/// The answer to [`children`].
pub(super) fn read_children(body: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let mut reader = Reader::new(body);
    let count = reader.int()?;
    let mut names = Vec::new();
    for _ in 0..count.max(0) {
        names.push(reader.buffer()?.unwrap_or_default());
    }
    Ok(names)
}

/// The answer to [`count`].
pub(super) fn read_count(body: &[u8]) -> Result<i32, WireError> {
    Reader::new(body).int()
}

/// The beginning of a request.
fn of(xid: i32, kind: i32) -> Record {
    let mut record = Record::new();
    record.int(xid).int(kind);
    record
}

/// The beginning of one part of a [`multi`].
fn part(record: &mut Record, kind: i32, is_end: bool) -> &mut Record {
    record.int(kind).byte(u8::from(is_end)).int(ERROR)
}

/// A node that stays, and that anybody may read and write (all five bits for `world:anyone`).
fn node(record: &mut Record, path: &str, data: &[u8]) {
    record.buffer(path.as_bytes()).buffer(data);
    record.int(1).int(31).buffer(b"world").buffer(b"anyone").int(0);
}
