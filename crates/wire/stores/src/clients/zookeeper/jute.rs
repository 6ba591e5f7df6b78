//! How ZooKeeper writes records (Jute): numbers with the highest byte first, strings and buffers
//! after their length, −1 for none. A message is its length in four bytes and a record.

use super::error::WireError;

/// A record being written, after room for its length.
pub(crate) struct Record(Vec<u8>);

impl Record {
    pub(crate) fn new() -> Self {
        Self(vec![0; 4])
    }

    pub(crate) fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).expect("what is sent is short"));
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.buffer(text.as_bytes()),
            None => self.int(-1),
        }
    }

    pub(crate) fn message(self) -> Vec<u8> {
        let mut bytes = self.0;
        let length = u32::try_from(bytes.len() - 4).expect("what is sent is short");
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }
}

/// A record being read.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What is not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let cut = || WireError::Short { left: self.0.len(), expected: length };
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as were asked for"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn int(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    /// `None` for a length of −1.
    pub(crate) fn buffer(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        match self.int()? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| WireError::NegativeLength(length))?;
                self.take(length).map(Some)
            }
        }
    }
}
