//! INSERT, UPDATE, DELETE and batches of them, read whole.
//!
//! Only what is read to its last token can be called idempotent; where reading fails, the rest is
//! still searched for IF, so that no conditional statement passes for a plain one.

use super::cursor::{Cursor, Unreadable};
use super::idempotence::{Findings, Place, Stamp, Why};
use super::term::{DEPTH_MAX, Term, is_literal, marker, term};
use super::token::Token;
use super::{Kind, Statement, Table};

/// A write on its way from text to [`Statement`].
struct Reader<'a> {
    cursor: Cursor<'a>,
    findings: Findings,
    is_conditional: bool,
    table: Option<Table>,
}

/// Reads one part of a statement with a reader.
type Part<'a> = fn(&mut Reader<'a>) -> Result<(), Unreadable>;

pub(super) fn insert(cursor: Cursor<'_>) -> Statement {
    whole(Kind::Insert, cursor, |reader| reader.part(Stamp::None))
}

pub(super) fn update(cursor: Cursor<'_>) -> Statement {
    whole(Kind::Update, cursor, |reader| reader.part(Stamp::None))
}

pub(super) fn delete(cursor: Cursor<'_>) -> Statement {
    whole(Kind::Delete, cursor, |reader| reader.part(Stamp::None))
}

pub(super) fn batch(cursor: Cursor<'_>) -> Statement {
    whole(Kind::Batch, cursor, Reader::batch)
}

fn whole<'a>(kind: Kind, cursor: Cursor<'a>, part: Part<'a>) -> Statement {
    let findings = Findings::default();
    let mut reader = Reader { cursor, findings, is_conditional: false, table: None };
    if part(&mut reader).and_then(|()| reader.cursor.expect_end()).is_err() {
        reader.give_up();
        // Of a batch that was not read to its end nobody knows what else it writes.
        reader.table = reader.table.filter(|_| kind != Kind::Batch);
    }
    let Reader { mut findings, is_conditional, table, .. } = reader;
    findings.open.shrink_to_fit();
    Statement { kind, table, is_conditional, system: None, findings }
}

impl Reader<'_> {
    fn give_up(&mut self) {
        self.findings.refuse(Why::Unknown);
        loop {
            self.is_conditional |= self.cursor.is_word("IF");
            if self.cursor.advance() == Token::End {
                return;
            }
        }
    }

    fn batch(&mut self) -> Result<(), Unreadable> {
        self.cursor.expect_word("BEGIN")?;
        if self.cursor.takes_word("COUNTER") {
            self.findings.refuse(Why::Counter);
        } else {
            self.cursor.takes_word("UNLOGGED");
        }
        self.cursor.expect_word("BATCH")?;
        let stamp = self.using()?;
        let mut first: Option<Table> = None;
        let mut is_one_keyspace = true;
        while !self.cursor.takes_words(&["APPLY", "BATCH"]) {
            self.part(stamp)?;
            self.cursor.takes(";");
            let table = self.table.take();
            let keyspace = table.as_ref().map(|table| &table.keyspace);
            is_one_keyspace &= first.as_ref().is_none_or(|first| Some(&first.keyspace) == keyspace);
            first = first.or(table);
        }
        self.table = first.filter(|_| is_one_keyspace);
        Ok(())
    }

    /// One INSERT, UPDATE or DELETE; `around` is the timestamp that its batch has.
    fn part(&mut self, around: Stamp) -> Result<(), Unreadable> {
        let own = if self.cursor.takes_word("INSERT") {
            self.insert()?
        } else if self.cursor.takes_word("UPDATE") {
            self.update()?
        } else {
            self.cursor.expect_word("DELETE")?;
            self.delete()?
        };
        self.findings.stamp = self.findings.stamp.max(own.min(around));
        Ok(())
    }

    fn insert(&mut self) -> Result<Stamp, Unreadable> {
        self.cursor.expect_word("INTO")?;
        self.table = Some(self.cursor.table()?);
        if self.cursor.takes_word("JSON") {
            self.json()?;
        } else {
            self.columns()?;
            self.cursor.expect_word("VALUES")?;
            self.cursor.expect("(")?;
            loop {
                let value = self.term()?;
                self.writes(Place::Whole, value);
                if self.cursor.takes(")") {
                    break;
                }
                self.cursor.expect(",")?;
            }
        }
        if self.cursor.takes_words(&["IF", "NOT", "EXISTS"]) {
            self.condition();
        }
        self.using()
    }

    /// A column list in parentheses.
    fn columns(&mut self) -> Result<(), Unreadable> {
        self.cursor.expect("(")?;
        loop {
            self.cursor.skip_name()?;
            if self.cursor.takes(")") {
                return Ok(());
            }
            self.cursor.expect(",")?;
        }
    }

    fn json(&mut self) -> Result<(), Unreadable> {
        self.findings.refuse(Why::Json);
        if let Token::Text { .. } = self.cursor.token() {
            self.cursor.advance();
        } else {
            marker(&mut self.cursor, &mut self.findings)?;
        }
        let has_default = self.cursor.takes_word("DEFAULT");
        if has_default && !self.cursor.takes_word("NULL") {
            self.cursor.expect_word("UNSET")?;
        }
        Ok(())
    }

    fn update(&mut self) -> Result<Stamp, Unreadable> {
        self.table = Some(self.cursor.table()?);
        let stamp = self.using()?;
        self.cursor.expect_word("SET")?;
        loop {
            self.assignment()?;
            if !self.cursor.takes(",") {
                break;
            }
        }
        self.conditions()?;
        Ok(stamp)
    }

    fn delete(&mut self) -> Result<Stamp, Unreadable> {
        while !self.cursor.takes_word("FROM") {
            self.cursor.skip_name()?;
            self.element()?;
            if !self.cursor.takes(",") {
                self.cursor.expect_word("FROM")?;
                break;
            }
        }
        self.table = Some(self.cursor.table()?);
        let stamp = self.using()?;
        self.conditions()?;
        Ok(stamp)
    }

    /// `[key]` or `.field` behind a column, if there is one; returns whether.
    fn element(&mut self) -> Result<bool, Unreadable> {
        if self.cursor.takes("[") {
            let key = self.term()?;
            self.writes(Place::Element, key);
            self.cursor.expect("]")?;
            return Ok(true);
        }
        if self.cursor.takes(".") {
            self.cursor.skip_name()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn assignment(&mut self) -> Result<(), Unreadable> {
        self.cursor.skip_name()?;
        if self.element()? {
            self.cursor.expect("=")?;
            // An element's or a field's value is frozen: what it is does not matter.
            self.term()?;
            return Ok(());
        }
        if self.cursor.takes("+=") || self.cursor.takes("-=") {
            return self.change();
        }
        self.cursor.expect("=")?;
        if self.is_column() {
            self.cursor.advance();
            if let Token::Integer(_) = self.cursor.token() {
                // c = c -1, where the sign belongs to the number.
                return self.change();
            }
            if !self.cursor.takes("+") {
                self.cursor.expect("-")?;
            }
            return self.change();
        }
        let value = self.term()?;
        if self.cursor.takes("+") {
            // A value before the column: only lists have a front.
            self.findings.refuse(Why::ListOperation);
            return self.cursor.skip_name();
        }
        self.writes(Place::Whole, value);
        Ok(())
    }

    /// Whether the name of a column is here, and no literal or function.
    fn is_column(&self) -> bool {
        let is_name = match self.cursor.token() {
            Token::Word(word) => !is_literal(word),
            Token::Quoted(_) => true,
            _ => false,
        };
        is_name && !matches!(self.cursor.following(), Token::Symbol("(" | "."))
    }

    /// What is added to a column or taken from it.
    fn change(&mut self) -> Result<(), Unreadable> {
        let value = self.term()?;
        self.writes(Place::Change, value);
        Ok(())
    }

    /// Each pair is named: a new kind of value is idempotent nowhere until it is said to be.
    fn writes(&mut self, place: Place, value: Term) {
        match (place, value) {
            (_, Term::Marker(marker)) => self.findings.open.push((marker, place)),
            (Place::Whole, Term::List) => self.findings.refuse(Why::ListWhole),
            (Place::Change, Term::List) => self.findings.refuse(Why::ListOperation),
            (Place::Change, Term::Integer | Term::Tuple | Term::Constant) => {
                self.findings.refuse(Why::Counter);
            }
            // A position; or a map's key that is an integer, which looks the same.
            (Place::Element, Term::Integer) => self.findings.refuse(Why::ListElement),
            (Place::Whole, Term::Braces | Term::Integer | Term::Tuple | Term::Constant)
            | (Place::Change, Term::Braces)
            | (Place::Element, Term::List | Term::Braces | Term::Tuple | Term::Constant) => {}
        }
    }

    fn term(&mut self) -> Result<Term, Unreadable> {
        term(&mut self.cursor, &mut self.findings, DEPTH_MAX)
    }

    /// USING, if it is here.
    fn using(&mut self) -> Result<Stamp, Unreadable> {
        let mut stamp = Stamp::None;
        if !self.cursor.takes_word("USING") {
            return Ok(stamp);
        }
        loop {
            let is_timestamp = self.cursor.takes_word("TIMESTAMP");
            if !is_timestamp {
                // A copy only makes what it writes live longer by as much as it comes later.
                self.cursor.expect_word("TTL")?;
            }
            let source = if let Token::Integer(_) = self.cursor.token() {
                self.cursor.advance();
                Stamp::Text
            } else {
                marker(&mut self.cursor, &mut self.findings)?;
                Stamp::Marker
            };
            if is_timestamp {
                stamp = source;
            }
            if !self.cursor.takes_word("AND") {
                return Ok(stamp);
            }
        }
    }

    /// WHERE and, if it is here, IF.
    fn conditions(&mut self) -> Result<(), Unreadable> {
        self.cursor.expect_word("WHERE")?;
        loop {
            self.relation()?;
            if !self.cursor.takes_word("AND") {
                break;
            }
        }
        if self.cursor.takes_word("IF") {
            self.condition();
            if !self.cursor.takes_word("EXISTS") {
                loop {
                    self.cursor.skip_name()?;
                    self.element()?;
                    self.comparison()?;
                    if !self.cursor.takes_word("AND") {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn condition(&mut self) {
        self.is_conditional = true;
        self.findings.refuse(Why::Conditional);
    }

    /// A column, or several in parentheses, and what it is compared with.
    fn relation(&mut self) -> Result<(), Unreadable> {
        if self.cursor.is_symbol("(") {
            self.columns()?;
        } else {
            self.cursor.skip_name()?;
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<(), Unreadable> {
        if self.cursor.takes_word("BETWEEN") {
            self.term()?;
            self.cursor.expect_word("AND")?;
        } else if !self.cursor.takes_word("IN") {
            let comparisons = ["=", "<", "<=", ">", ">=", "!="];
            if !comparisons.iter().any(|symbol| self.cursor.takes(symbol)) {
                return Err(Unreadable);
            }
        }
        // What IN is followed by has the form of a tuple, or is a marker.
        self.term()?;
        Ok(())
    }
}
