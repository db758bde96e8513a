//! What can go wrong in the lab.

use std::io;

/// Short for a result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that an experiment or the demonstration can answer instead of a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store answered an error.
    #[error(transparent)]
    Store(#[from] icecore::Error),
    /// SQLite answered an error.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The SQLite door refused something.
    #[error("{0}")]
    Door(String),
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, with its object.
        action: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no experiment of that name.
    #[error("there is no experiment {name:?}: choose one of {known}")]
    UnknownExperiment {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A process started by the lab failed.
    #[error("the process for {job} failed: {reason}")]
    Child {
        /// What it was to do.
        job: String,
        /// How it ended.
        reason: String,
    },
    /// A result document that cannot be read.
    #[error("{what} is not a result of `icecore lab run`: {reason}")]
    NotAResult {
        /// The document.
        what: String,
        /// What does not fit.
        reason: String,
    },
    /// A measurement that cannot mean anything.
    #[error("nothing to conclude from {what}: {reason}")]
    Inconclusive {
        /// The measurement.
        what: String,
        /// Why.
        reason: String,
    },
    /// A worker thread panicked.
    #[error("a thread of {what} panicked")]
    Panicked {
        /// What the thread was doing.
        what: String,
    },
}

/// Adds what was being tried to an operating system error.
pub(crate) trait Doing<T> {
    /// Names the action; computed only for errors.
    fn doing(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { action: action(), source: source.into() })
    }
}
