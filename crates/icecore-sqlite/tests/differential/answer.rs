//! What an action answers: everything that the two sides are compared by.

use crate::raw::{Facts, Failure, Link};
use std::fmt;

/// The answer of one side to one action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The extended result code.
    pub code: i32,
    pub message: String,
    /// The number of the operating system, where the file could not be opened.
    pub errno: i32,
    pub rows: Vec<String>,
    pub facts: Facts,
}

impl Answer {
    /// Success, as the connection describes itself.
    pub fn of(link: &Link) -> Self {
        Self { facts: link.facts(), ..Self::default() }
    }

    /// A failure without a connection.
    pub fn failed(failure: Failure) -> Self {
        Self::default().with(failure)
    }

    /// Only a remark.
    pub fn note(text: &str) -> Self {
        Self { rows: vec![text.to_owned()], ..Self::default() }
    }

    #[must_use]
    pub fn with(self, failure: Failure) -> Self {
        let Failure { code, message, errno } = failure;
        // Elsewhere the number is whatever an earlier call has left.
        let errno = if code & 0xff == rusqlite::ffi::SQLITE_CANTOPEN { errno } else { 0 };
        Self { code, message, errno, ..self }
    }

    /// The answer to what was done next. The first failure stays.
    pub fn append(&mut self, next: Self) {
        let code = next.code;
        self.rows.extend(next.rows);
        if code != 0 {
            self.rows.push(format!("error {code}: {}", next.message));
        }
        self.facts = next.facts;
        if self.code == 0 {
            (self.code, self.message, self.errno) = (code, next.message, next.errno);
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code != 0 {
            write!(f, "error {} ({}), ", self.code, self.message)?;
        }
        if self.errno != 0 {
            write!(f, "errno {}, ", self.errno)?;
        }
        let Facts { changes, total_changes, last_rowid, autocommit, transaction } = self.facts;
        write!(
            f,
            "changes {changes} of {total_changes}, last rowid {last_rowid}, autocommit {autocommit}, \
             transaction {transaction}"
        )?;
        self.rows.iter().take(400).try_for_each(|row| write!(f, "\n      {row}"))
    }
}
