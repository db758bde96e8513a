//! What can go wrong in the lab.

use crate::room;
use std::io;
use std::path::{Path, PathBuf};

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
    /// There is no system of that name.
    #[error("there is no system {name:?}: choose from {known}")]
    UnknownSystem {
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
    /// A result in which `model` finds nothing to compare its predictions with.
    #[error("{what} has no counts of durable writes: name a result of `icecore lab run shock`")]
    NoCounts {
        /// The document.
        what: String,
    },
    /// A file that is no trace of writes.
    #[error("{} is not a trace: {reason} (`icecore lab size --help` says how to record one)", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What does not fit, and where.
        reason: String,
    },
    /// Two results that have nothing to compare.
    #[error("cannot compare {before} with {after}: {reason}")]
    Incomparable {
        /// The first.
        before: String,
        /// The second.
        after: String,
        /// What is in the way, and what to do.
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
    /// Something is not what it has to be.
    #[error("{what} is wrong: {detail}")]
    Mismatch {
        /// What was compared.
        what: String,
        /// How it differs.
        detail: String,
    },
    /// Something failed, and what it left behind is worth a look.
    #[error("{source}; what it worked on is kept in {}", folder.display())]
    Kept {
        /// What failed.
        #[source]
        source: Box<Error>,
        /// Where everything is.
        folder: PathBuf,
    },
    /// One of two sides failed.
    #[error("{side} failed: {source}{detail}")]
    Side {
        /// Which of them.
        side: &'static str,
        /// What it answered.
        #[source]
        source: Box<Error>,
        /// What else is known about it.
        detail: String,
    },
    /// A program that an experiment runs is not there.
    #[error("{experiment} needs {program}, which is not there: {advice}")]
    Missing {
        /// The experiment.
        experiment: &'static str,
        /// The program.
        program: String,
        /// How one gets it.
        advice: String,
    },
    /// The disk has too little room for what is to begin.
    #[error(
        "{what} needs {} MiB in {}, and {} MiB are free there: choose another folder, or a larger disk",
        bytes >> 20,
        folder.display(),
        free >> 20
    )]
    NoRoom {
        /// What is to begin.
        what: String,
        /// Where.
        folder: PathBuf,
        /// Bytes that it needs.
        bytes: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A path that a program of the lab would take for something else.
    #[error("cannot use {path:?}: fio and others read {what} in a path in their own way. Choose another one")]
    UnusablePath {
        /// The path.
        path: PathBuf,
        /// What in it.
        what: String,
    },
    /// A device that the lab must not use, or cannot.
    #[error("cannot use {}: {reason}", device.display())]
    UnusableDevice {
        /// Its node.
        device: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A program takes longer than it may.
    #[error("`{program}` did not end within {} s (--time-limit)", limit.as_secs_f64())]
    TooLong {
        /// The program and its first arguments.
        program: String,
        /// How long it may take.
        limit: std::time::Duration,
    },
    /// The run was to stop: see [`Options::stop`](crate::Options::stop).
    #[error("the run was stopped before its end, and there is no result")]
    Stopped,
    /// A worker thread panicked.
    #[error("a thread of {what} panicked")]
    Panicked {
        /// What the thread was doing.
        what: String,
    },
}

impl Error {
    /// Says which side failed, and what the circumstances are: SQLite's own errors leave out both.
    pub(crate) fn of_side(self, side: &'static str, folder: &Path) -> Self {
        let mut detail = String::new();
        if side == STORED
            && let Some(sentence) = icecore_sqlite::last_error()
        {
            detail.push_str(&format!("; the store says: {sentence}"));
        }
        if let Ok(free) = room::free(folder) {
            detail.push_str(&format!("; {} MiB are free in {}", free >> 20, folder.display()));
        }
        Self::Side { side, source: Box::new(self), detail }
    }
}

/// How errors call the side with the store.
pub(crate) const STORED: &str = "the side with icecore";
/// How errors call the other side.
pub(crate) const PLAIN: &str = "the plain side";

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
