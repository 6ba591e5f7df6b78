//! Requests of ZooKeeper's client protocol that a store needs, and their answers: bytes only.
//!
//! Source: `zookeeper.jute` and `ZooDefs.OpCode` of ZooKeeper 3.8. What begins a session and a
//! reply is shared with [`crate::placement::act::zookeeper::wire`].

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
    let mut message = Message::of(xid, DATA);
    message.bytes(path.as_bytes()).byte(0); // no watch
    message.end()
}

pub(super) fn children(xid: i32, path: &str) -> Vec<u8> {
    let mut message = Message::of(xid, CHILDREN);
    message.bytes(path.as_bytes()).byte(0);
    message.end()
}

/// How many nodes there are below this one, at any depth (3.6 and later).
pub(super) fn count(xid: i32, path: &str) -> Vec<u8> {
    let mut message = Message::of(xid, COUNT);
    message.bytes(path.as_bytes());
    message.end()
}

/// Waits until the server has what the leader has now.
pub(super) fn sync(xid: i32, path: &str) -> Vec<u8> {
    let mut message = Message::of(xid, SYNC);
    message.bytes(path.as_bytes());
    message.end()
}

pub(super) fn create(xid: i32, path: &str) -> Vec<u8> {
    let mut message = Message::of(xid, CREATE);
    message.node(path, &[]);
    message.end()
}

/// All of them or none.
pub(super) fn multi(xid: i32, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut message = Message::of(xid, MULTI);
    for operation in operations {
        match *operation {
            Operation::Create(path, data) => {
                message.head(CREATE, false).node(path, data);
            }
            Operation::Set(path, data) => {
                message.head(SET, false).bytes(path.as_bytes()).bytes(data).int(ANY);
            }
            Operation::Delete(path) => {
                message.head(DELETE, false).bytes(path.as_bytes()).int(ANY);
            }
            Operation::Check(path, version) => {
                message.head(CHECK, false).bytes(path.as_bytes()).int(version);
            }
        }
    }
    message.head(ERROR, true);
    message.end()
}

/// Why none of [`multi`]'s operations was done: the error of the first that could not be.
pub(super) fn multi_error(body: &[u8]) -> Result<Option<i32>, String> {
    let mut reader = Reader(body);
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
pub(super) fn read_data(body: &[u8]) -> Result<(&[u8], i32), String> {
    let mut reader = Reader(body);
    let data = reader.bytes()?;
    for _ in 0..4 {
        reader.take(8)?; // transactions and times of its creation and last change
    }
    Ok((data, reader.int()?))
}

/// The answer to [`children`].
pub(super) fn read_children(body: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut reader = Reader(body);
    let count = reader.int()?;
    let mut names = Vec::new();
    for _ in 0..count.max(0) {
        names.push(reader.bytes()?);
    }
    Ok(names)
}

/// The answer to [`count`].
pub(super) fn read_count(body: &[u8]) -> Result<i32, String> {
    Reader(body).int()
}

struct Message(Vec<u8>);

impl Message {
    fn of(xid: i32, kind: i32) -> Self {
        let mut message = Self(vec![0; 4]); // for its length
        message.int(xid).int(kind);
        message
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).expect("requests are bounded"));
        self.0.extend_from_slice(bytes);
        self
    }

    /// The beginning of one part of a [`multi`].
    fn head(&mut self, kind: i32, is_end: bool) -> &mut Self {
        self.int(kind).byte(u8::from(is_end)).int(ERROR)
    }

    /// A node that stays, and that anybody may read and write (all five bits for `world:anyone`).
    fn node(&mut self, path: &str, data: &[u8]) -> &mut Self {
        self.bytes(path.as_bytes()).bytes(data);
        self.int(1).int(31).bytes(b"world").bytes(b"anyone").int(0)
    }

    fn end(mut self) -> Vec<u8> {
        let length = i32::try_from(self.0.len() - 4).expect("requests are bounded");
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| {
            format!("an answer of {} bytes too few (is it ZooKeeper?)", length - self.0.len())
        })?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32, String> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.int()?.max(0); // −1 is none
        self.take(length.unsigned_abs() as usize)
    }
}
