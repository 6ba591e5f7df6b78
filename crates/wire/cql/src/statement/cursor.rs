//! A place in a statement's text: the token there, and what may follow.

use super::Table;
use super::token::{self, Token};

/// Where reading has come to; copied to look ahead.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a str,
    token: Token<'a>,
}

/// What is there is none of the forms that are known; nothing after it is understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreadable;

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut cursor = Self { rest: text, token: Token::End };
        cursor.advance();
        cursor
    }

    pub(super) fn token(&self) -> Token<'a> {
        self.token
    }

    pub(super) fn advance(&mut self) -> Token<'a> {
        let here = self.token;
        let (token, length) = token::next(self.rest);
        self.token = token;
        self.rest = &self.rest[length..];
        here
    }

    /// The token after this one.
    pub(super) fn following(&self) -> Token<'a> {
        token::next(self.rest).0
    }

    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        self.token == Token::Symbol(symbol)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(here) if here.eq_ignore_ascii_case(word))
    }

    /// Goes past a symbol if it is here.
    pub(super) fn takes(&mut self, symbol: &str) -> bool {
        let is_here = self.is_symbol(symbol);
        if is_here {
            self.advance();
        }
        is_here
    }

    /// Goes past a keyword if it is here.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is_here = self.is_word(word);
        if is_here {
            self.advance();
        }
        is_here
    }

    /// Goes past several keywords if all are here.
    pub(super) fn takes_words(&mut self, words: &[&str]) -> bool {
        let mut ahead = *self;
        let are_here = words.iter().all(|word| ahead.takes_word(word));
        if are_here {
            *self = ahead;
        }
        are_here
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Result<(), Unreadable> {
        self.takes(symbol).then_some(()).ok_or(Unreadable)
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<(), Unreadable> {
        self.takes_word(word).then_some(()).ok_or(Unreadable)
    }

    /// A name as CQL means it: lower case unless it is quoted.
    pub(super) fn name(&mut self) -> Result<String, Unreadable> {
        let name = match self.token {
            Token::Word(word) => word.to_ascii_lowercase(),
            Token::Quoted(raw) => token::undoubled(raw, "\""),
            _ => return Err(Unreadable),
        };
        self.advance();
        Ok(name)
    }

    /// Goes past a name that nobody wants to know.
    pub(super) fn skip_name(&mut self) -> Result<(), Unreadable> {
        match self.advance() {
            Token::Word(_) | Token::Quoted(_) => Ok(()),
            _ => Err(Unreadable),
        }
    }

    pub(super) fn table(&mut self) -> Result<Table, Unreadable> {
        let first = self.name()?;
        if self.takes(".") {
            let name = self.name()?;
            return Ok(Table { keyspace: Some(first), name });
        }
        Ok(Table { keyspace: None, name: first })
    }

    /// The end of the statement, with or without semicolons.
    pub(super) fn expect_end(&mut self) -> Result<(), Unreadable> {
        while self.takes(";") {}
        if self.token == Token::End { Ok(()) } else { Err(Unreadable) }
    }
}
