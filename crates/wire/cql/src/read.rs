//! The protocol's notations (section 3 of the specification), read without copying.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{Malformed, Problem};
use evenkeel_core::request::ring::Consistency;

/// An address and a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Inet {
    /// The address.
    pub address: IpAddr,
    /// The port; the protocol has four bytes for it.
    pub port: u32,
}

/// What is bound to a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Nothing: a null.
    Null,
    /// Nothing, and what is stored stays as it is.
    Unset,
}

impl<'a> Value<'a> {
    /// Its bytes, if it has any.
    pub const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Null | Self::Unset => None,
        }
    }
}

/// Reads a body from its front to its end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }

    /// How many bytes were read.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.body[self.at..]
    }

    /// What was read since this position.
    ///
    /// # Panics
    /// When the position is behind what was read.
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.body[start..self.at]
    }

    /// An error about what is read here.
    pub const fn wrong(&self, what: &'static str, problem: Problem) -> Malformed {
        Malformed { what, at: self.at, problem }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// Fewer are left; so do all the others.
    pub fn take(&mut self, what: &'static str, length: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.rest();
        let Some(taken) = rest.get(..length) else {
            return Err(self.wrong(what, Problem::Short { needed: length, left: rest.len() }));
        };
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let bytes = self.take(what, N)?;
        Ok(bytes.try_into().expect("as many were taken"))
    }

    /// `[byte]`.
    ///
    /// # Errors
    /// It is not all there.
    pub fn byte(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array(what).map(u8::from_be_bytes)
    }

    /// `[short]`.
    ///
    /// # Errors
    /// It is not all there.
    pub fn short(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// `[int]`.
    ///
    /// # Errors
    /// It is not all there.
    pub fn int(&mut self, what: &'static str) -> Result<i32, Malformed> {
        self.array(what).map(i32::from_be_bytes)
    }

    /// `[long]`.
    ///
    /// # Errors
    /// It is not all there.
    pub fn long(&mut self, what: &'static str) -> Result<i64, Malformed> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// `[uuid]`.
    ///
    /// # Errors
    /// It is not all there.
    pub fn uuid(&mut self, what: &'static str) -> Result<[u8; 16], Malformed> {
        self.array(what)
    }

    /// An `[int]` that is a length or a count.
    ///
    /// # Errors
    /// It is below zero or not all there.
    pub fn count(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let at = self.at;
        let count = self.int(what)?;
        let problem = Problem::Negative(count);
        usize::try_from(count).map_err(|_| Malformed { what, at, problem })
    }

    /// `[string]`.
    ///
    /// # Errors
    /// It is not all there or not UTF-8.
    pub fn string(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let at = self.at;
        let length = self.short(what)?;
        let bytes = self.take(what, usize::from(length))?;
        text(what, at, bytes)
    }

    /// `[long string]`.
    ///
    /// # Errors
    /// It is not all there, not UTF-8 or its length is below zero.
    pub fn long_string(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let at = self.at;
        let length = self.count(what)?;
        let bytes = self.take(what, length)?;
        text(what, at, bytes)
    }

    /// `[bytes]`: none where the length is below zero.
    ///
    /// # Errors
    /// They are not all there.
    pub fn bytes(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        match usize::try_from(self.int(what)?) {
            Ok(length) => self.take(what, length).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[value]`.
    ///
    /// # Errors
    /// It is not all there, or its length is neither −1, −2 nor a length.
    pub fn value(&mut self, what: &'static str) -> Result<Value<'a>, Malformed> {
        let at = self.at;
        match self.int(what)? {
            -1 => Ok(Value::Null),
            -2 => Ok(Value::Unset),
            length => {
                let problem = Problem::Negative(length);
                let length =
                    usize::try_from(length).map_err(|_| Malformed { what, at, problem })?;
                self.take(what, length).map(Value::Bytes)
            }
        }
    }

    /// `[short bytes]`.
    ///
    /// # Errors
    /// They are not all there.
    pub fn short_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.short(what)?;
        self.take(what, usize::from(length))
    }

    /// `[string list]`.
    ///
    /// # Errors
    /// It is not all there or not UTF-8.
    pub fn string_list(&mut self, what: &'static str) -> Result<Vec<&'a str>, Malformed> {
        let count = self.short(what)?;
        (0..count).map(|_| self.string(what)).collect()
    }

    /// `[string map]`, in the order it is written.
    ///
    /// # Errors
    /// It is not all there or not UTF-8.
    pub fn string_map(&mut self, what: &'static str) -> Result<Vec<(&'a str, &'a str)>, Malformed> {
        let count = self.short(what)?;
        (0..count).map(|_| Ok((self.string(what)?, self.string(what)?))).collect()
    }

    /// `[string multimap]`, in the order it is written.
    ///
    /// # Errors
    /// It is not all there or not UTF-8.
    pub fn string_multimap(
        &mut self,
        what: &'static str,
    ) -> Result<Vec<(&'a str, Vec<&'a str>)>, Malformed> {
        let count = self.short(what)?;
        (0..count).map(|_| Ok((self.string(what)?, self.string_list(what)?))).collect()
    }

    /// `[inetaddr]`.
    ///
    /// # Errors
    /// It is not all there or its length is neither 4 nor 16.
    pub fn address(&mut self, what: &'static str) -> Result<IpAddr, Malformed> {
        let at = self.at;
        match self.byte(what)? {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(self.array::<4>(what)?))),
            16 => Ok(IpAddr::V6(Ipv6Addr::from(self.array::<16>(what)?))),
            other => Err(Malformed { what, at, problem: Problem::Unknown(u32::from(other)) }),
        }
    }

    /// `[inet]`.
    ///
    /// # Errors
    /// It is not all there or the length of its address is neither 4 nor 16.
    pub fn inet(&mut self, what: &'static str) -> Result<Inet, Malformed> {
        let address = self.address(what)?;
        let port = u32::from_be_bytes(self.array(what)?);
        Ok(Inet { address, port })
    }

    /// `[consistency]`.
    ///
    /// # Errors
    /// It is not all there or has no meaning.
    pub fn consistency(&mut self, what: &'static str) -> Result<Consistency, Malformed> {
        let at = self.at;
        let number = self.short(what)?;
        let problem = Problem::Unknown(u32::from(number));
        Consistency::of(number).ok_or(Malformed { what, at, problem })
    }
}

fn text<'a>(what: &'static str, at: usize, bytes: &'a [u8]) -> Result<&'a str, Malformed> {
    core::str::from_utf8(bytes).map_err(|_| Malformed { what, at, problem: Problem::NotText })
}
