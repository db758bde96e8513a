//! Faults have names: one enum for everything that can go wrong, each message saying what happened,
//! to what, and where there is one, the way out.

use crate::units::ByteLength;
use std::io;

/// Short for a result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that an operation on a pool can answer instead of a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {action} {what}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file, or the place in it.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The directory holds no pool.
    #[error("{path} is not an icecore pool: {reason}")]
    NotAPool {
        /// The directory.
        path: String,
        /// What is missing.
        reason: String,
    },
    /// There is a pool, or something else, where one was to be made.
    #[error("{path} cannot become a pool: {reason}")]
    CannotInit {
        /// The directory.
        path: String,
        /// What is in the way.
        reason: String,
    },
    /// The pool was written by a newer program.
    #[error("{path} has format {found}, and this program reads up to {supported}: use a newer icecore")]
    NewerFormat {
        /// The directory.
        path: String,
        /// Format or feature found.
        found: String,
        /// What this program knows.
        supported: String,
    },
    /// Another process holds the pool.
    #[error("pool {path} is in use by {owner}: {way_out}")]
    PoolInUse {
        /// The directory.
        path: String,
        /// Process number and command of the owner, where known.
        owner: String,
        /// What to do instead.
        way_out: String,
    },
    /// Opened read-only but not cleanly closed.
    #[error("pool {path} was not closed cleanly: open it for writing once to recover it")]
    NeedsRecovery {
        /// The directory.
        path: String,
    },
    /// Stored bytes do not match their checksum, or contradict each other.
    #[error("damage in {place}: {detail}")]
    Damaged {
        /// File and offset, and the snapshot where known.
        place: String,
        /// What does not fit.
        detail: String,
    },
    /// A write or flush failed earlier; the pool takes no more writes.
    #[error("pool is read-only since a failure: {reason}; close it, mend the disk and open it again")]
    ReadOnlyAfterFailure {
        /// The failure.
        reason: String,
    },
    /// The pool was opened read-only.
    #[error("pool was opened read-only")]
    ReadOnly,
    /// A snapshot cannot be written.
    #[error("{name} is a snapshot and never changes: `icecore clone` makes a writable copy")]
    SnapshotIsReadOnly {
        /// The snapshot.
        name: String,
    },
    /// No space is left.
    #[error("no space left in pool: {detail}")]
    NoSpace {
        /// What was asked, and what would help.
        detail: String,
    },
    /// A quota is used up; nothing was changed.
    #[error(
        "{dataset} has a {limit} of {}, of which {} are used, and {} more are needed: {way_out}",
        .bytes.as_option(), .used.as_option(), .asked.as_option()
    )]
    QuotaExceeded {
        /// The dataset that has the quota.
        dataset: String,
        /// `quota` or `refquota`.
        limit: &'static str,
        /// What it allows.
        bytes: ByteLength,
        /// What is used of it.
        used: ByteLength,
        /// What the change would add.
        asked: ByteLength,
        /// What to do.
        way_out: String,
    },
    /// A dataset, snapshot or hold of that name does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// Its name.
        what: String,
    },
    /// The name is taken.
    #[error("{what} exists already")]
    Exists {
        /// Its name.
        what: String,
    },
    /// The name cannot be used.
    #[error("{name:?} is not a usable name: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// The rule it breaks.
        reason: String,
    },
    /// Something is in the way; it is named.
    #[error("{what} is busy: {blockers}")]
    Busy {
        /// What was to be changed.
        what: String,
        /// What keeps it, and the way out.
        blockers: String,
    },
    /// A request that makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A file operation failed in a way that POSIX has a number for.
    #[error("{0}")]
    File(#[from] FileFault),
    /// The pool was opened by another process, from which this one was forked.
    #[error("this process was forked from the owner of the pool (process {owner}): open the pool anew")]
    Forked {
        /// Process number of the owner.
        owner: u32,
    },
    /// The handle belongs to a state of the dataset that a rollback has replaced.
    #[error("{dataset} was rolled back since this handle was opened: open it again")]
    StaleHandle {
        /// The dataset.
        dataset: String,
    },
}

/// Errors of files and directories, each with the number that POSIX gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// ENAMETOOLONG
    #[error("name too long (255 bytes at most)")]
    NameTooLong,
    /// EINVAL
    #[error("invalid argument")]
    Invalid,
    /// EFBIG
    #[error("file too large (16 TiB at most)")]
    TooLarge,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// ENODATA
    #[error("no such extended attribute")]
    NoSuchAttribute,
    /// ERANGE or E2BIG
    #[error("extended attribute too large (64 KiB at most)")]
    AttributeTooLarge,
    /// ESTALE
    #[error("the file is gone: it was deleted, or its dataset was rolled back or destroyed")]
    Stale,
    /// EPERM: a second name for a directory
    #[error("operation not permitted")]
    NotPermitted,
    /// ENOSPC: too many names of one hash in a directory, or extended attributes of a file
    #[error("no room for this name: 256 others have its hash")]
    DirectoryFull,
    /// ENOSPC: no inode numbers left
    #[error("no inode numbers left in this dataset")]
    NoInodes,
}

impl FileFault {
    /// The number in `errno.h` on Linux.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NotFound => 2,
            Self::Exists => 17,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::Invalid => 22,
            Self::TooLarge => 27,
            Self::NoInodes | Self::DirectoryFull => 28,
            Self::TooManyLinks => 31,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::NoSuchAttribute => 61,
            Self::AttributeTooLarge => 7,
            Self::Stale => 116,
        }
    }
}

impl Error {
    /// Wraps an error of the operating system.
    pub(crate) fn io(action: &'static str, what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { action, what: what.into(), source }
    }

    /// Stored bytes that contradict themselves.
    pub(crate) fn damaged(place: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), detail: detail.into() }
    }
}

/// The first ten of what is in the way, and how many more there are.
pub(crate) fn listed(blockers: &[String], separator: &str) -> String {
    let shown = 10.min(blockers.len());
    let text = blockers[..shown].join(separator);
    match blockers.len() - shown {
        0 => text,
        more => format!("{text}{separator}and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_blockers_ends_with_their_number() {
        let blockers: Vec<String> = (1..=12).map(|number| format!("b{number}")).collect();
        assert_eq!(listed(&blockers[..2], "; "), "b1; b2");
        assert!(listed(&blockers[..10], ", ").ends_with(", b10"));
        assert!(listed(&blockers, "; ").ends_with("; b10; and 2 more"));
    }
}
