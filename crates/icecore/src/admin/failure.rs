//! Errors as they travel: a stable code and the sentence that a local caller would have read.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Why a request was not done. The message is the one that [`Error`] prints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it is.
    pub code: ErrorCode,
    /// One sentence: what happened, to what, and the way out.
    pub message: String,
}

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        /// The kind of a failure. On the wire it is the name, so that an older program meets a newer one's
        /// codes without misreading them.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$meta])* $name),*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The stable name, as in JSON documents and on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),*
                }
            }
        }
    };
}

codes! {
    /// The operating system refused something.
    Io,
    /// The disk, or the filesystem on it, failed: it cannot give back or take what is there.
    DiskError,
    /// The directory holds no pool.
    NotAPool,
    /// A pool cannot be made there.
    CannotInit,
    /// The pool, or the other end of the socket, is of a newer version.
    NewerFormat,
    /// Another process holds the pool and does not answer on its socket.
    PoolInUse,
    /// Opened read-only but not cleanly closed.
    NeedsRecovery,
    /// Stored bytes do not match their checksum.
    Damaged,
    /// A write failed earlier; the pool takes no more writes.
    ReadOnlyAfterFailure,
    /// The pool was opened read-only.
    ReadOnly,
    /// A snapshot cannot be written.
    SnapshotIsReadOnly,
    /// No space is left.
    NoSpace,
    /// A quota is used up.
    QuotaExceeded,
    /// A dataset, snapshot, hold or property does not exist.
    NotFound,
    /// The name is taken.
    Exists,
    /// The name cannot be used.
    BadName,
    /// Something is in the way; it is named.
    Busy,
    /// A request that makes no sense.
    Invalid,
    /// A file operation failed.
    File,
    /// The pool belongs to the process from which this one was forked.
    Forked,
    /// The handle belongs to a state that a rollback has replaced.
    StaleHandle,
    /// The owner is closing the pool, or ended the connection; what was asked was not begun.
    Closing,
    /// The other end of the socket spoke nonsense, or went away before it answered.
    Protocol,
    /// A code that this program does not know.
    Unknown,
}

impl ErrorCode {
    /// The code of that name; [`ErrorCode::Unknown`] for a name of a newer program.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        Self::ALL.iter().copied().find(|code| code.name() == name).unwrap_or(Self::Unknown)
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from_name(&name))
    }
}

impl Failure {
    /// A failure of this kind.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A failure of the conversation itself.
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Protocol, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Io { source, .. } if is_full(source) => ErrorCode::NoSpace,
            Error::Io { source, .. } if is_of_disk(source) => ErrorCode::DiskError,
            Error::Io { .. } => ErrorCode::Io,
            Error::NotAPool { .. } => ErrorCode::NotAPool,
            Error::CannotInit { .. } => ErrorCode::CannotInit,
            Error::NewerFormat { .. } => ErrorCode::NewerFormat,
            Error::PoolInUse { .. } => ErrorCode::PoolInUse,
            Error::NeedsRecovery { .. } => ErrorCode::NeedsRecovery,
            Error::Damaged { .. } => ErrorCode::Damaged,
            Error::ReadOnlyAfterFailure { .. } => ErrorCode::ReadOnlyAfterFailure,
            Error::ReadOnly => ErrorCode::ReadOnly,
            Error::SnapshotIsReadOnly { .. } => ErrorCode::SnapshotIsReadOnly,
            Error::NoSpace { .. } => ErrorCode::NoSpace,
            Error::QuotaExceeded { .. } => ErrorCode::QuotaExceeded,
            Error::NotFound { .. } => ErrorCode::NotFound,
            Error::Exists { .. } => ErrorCode::Exists,
            Error::BadName { .. } => ErrorCode::BadName,
            Error::Busy { .. } => ErrorCode::Busy,
            Error::Invalid(_) => ErrorCode::Invalid,
            Error::File(_) => ErrorCode::File,
            Error::Forked { .. } => ErrorCode::Forked,
            Error::StaleHandle { .. } => ErrorCode::StaleHandle,
        };
        Self { code, message: error.to_string() }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the medium is at fault, and neither the process, its rights nor what it asks for: EIO, ENXIO,
/// ENODEV, EBADMSG, EUCLEAN (which filesystems answer that found themselves damaged) and EREMOTEIO.
fn is_of_disk(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let faults = [Errno::IO, Errno::NXIO, Errno::NODEV, Errno::BADMSG, Errno::UCLEAN, Errno::REMOTEIO];
    Errno::from_io_error(error).is_some_and(|errno| faults.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_travel_by_name_and_unknown_ones_do_no_harm() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.name()), *code);
        }
        let newer = postcard::to_stdvec(&("SomethingNew", "a sentence")).unwrap();
        let read: Failure = postcard::from_bytes(&newer).unwrap();
        assert_eq!(read, Failure::new(ErrorCode::Unknown, "a sentence"));
    }

    #[test]
    fn the_message_is_the_one_of_the_error() {
        let failure = Failure::from(Error::NotFound { what: "snapshot a@x".into() });
        assert_eq!(
            (failure.code, failure.message.as_str()),
            (ErrorCode::NotFound, "snapshot a@x does not exist")
        );
        let full = Error::io("write", "pool", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(Failure::from(full).code, ErrorCode::NoSpace);
    }

    #[test]
    fn what_the_disk_refuses_is_distinguished_from_what_the_system_refuses() {
        let of = |number| {
            Failure::from(Error::io("read", "segment.00000001", io::Error::from_raw_os_error(number)))
        };
        for number in [5, 6, 19, 74, 117, 121] {
            assert_eq!(of(number).code, ErrorCode::DiskError, "{number}");
        }
        for number in [1, 2, 12, 13, 24, 30] {
            assert_eq!(of(number).code, ErrorCode::Io, "{number}");
        }
    }
}
