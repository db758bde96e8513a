//! Errors of the store as error numbers: the one table.

use crate::protocol::Errno;
use icecore::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// Turns errors into numbers, and logs those that have no meaning for a program.
#[derive(Default)]
pub(crate) struct Faults {
    /// The failure of the pool was reported as EIO once.
    failed: AtomicBool,
}

impl Faults {
    /// The number of an error. A pool that turned read-only after a failure is EIO for the first caller, who
    /// must learn that writes may be lost, and EROFS for those after it. The log has the failure once.
    /// `failure`: that of the pool, if there was one, as [`Error::ReadOnlyAfterFailure`].
    pub(crate) fn number(&self, error: &Error, failure: impl FnOnce() -> Option<Error>) -> Errno {
        let number = match error {
            Error::File(fault) => fault.errno(),
            Error::NoSpace { .. } => libc::ENOSPC,
            Error::QuotaExceeded { .. } => libc::EDQUOT,
            Error::ReadOnly | Error::SnapshotIsReadOnly { .. } => libc::EROFS,
            Error::ReadOnlyAfterFailure { .. } if self.failed.swap(true, Ordering::Relaxed) => libc::EROFS,
            Error::NotFound { .. } | Error::StaleHandle { .. } => libc::ESTALE,
            Error::Exists { .. } => libc::EEXIST,
            Error::Busy { .. } => libc::EBUSY,
            Error::BadName { .. } => libc::EINVAL,
            _ => libc::EIO,
        };
        if number == libc::EIO {
            self.report(error, failure);
        }
        Errno(number)
    }

    fn report(&self, error: &Error, failure: impl FnOnce() -> Option<Error>) {
        // What failed the pool is part of the reason of its failure. Anything else, as a read, is reported
        // for itself.
        let cause = error.to_string();
        let failed = failure().filter(|failure| failure.to_string().contains(&cause));
        match failed {
            None => crate::log(&cause),
            Some(failure) => {
                // The caller learns of the failure by this error: it is not EIO for the next one again.
                let is_known = self.failed.swap(true, Ordering::Relaxed);
                if !is_known || matches!(error, Error::ReadOnlyAfterFailure { .. }) {
                    crate::log(&failure.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::FileFault;

    #[test]
    fn a_failed_pool_is_an_error_once_and_read_only_after_that() {
        let failure = || Error::ReadOnlyAfterFailure { reason: "cannot write f: a disk".to_owned() };
        let cannot =
            |action| Error::Io { action, what: "f".to_owned(), source: std::io::Error::other("a disk") };
        let failed = || Some(failure());
        let faults = Faults::default();
        assert_eq!(faults.number(&failure(), failed), Errno(libc::EIO));
        assert_eq!(faults.number(&failure(), failed), Errno(libc::EROFS));
        // The write that failed was an error itself. A read that fails is none of the failure of the pool.
        let faults = Faults::default();
        assert_eq!(faults.number(&cannot("read"), failed), Errno(libc::EIO));
        assert_eq!(faults.number(&cannot("write"), failed), Errno(libc::EIO));
        assert_eq!(faults.number(&failure(), failed), Errno(libc::EROFS));
    }

    #[test]
    fn other_errors_have_their_numbers() {
        let faults = Faults::default();
        assert_eq!(faults.number(&FileFault::NotEmpty.into(), || None), Errno(libc::ENOTEMPTY));
        assert_eq!(faults.number(&Error::NoSpace { detail: String::new() }, || None), Errno(libc::ENOSPC));
    }
}
