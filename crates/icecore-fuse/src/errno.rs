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
    /// The number of an error. A pool that turned read-only after a failure is EIO for the first caller, who must learn
    /// that writes may be lost, and EROFS for those after it.
    pub(crate) fn number(&self, error: &Error) -> Errno {
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
            crate::log(&error.to_string());
        }
        Errno(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::FileFault;

    #[test]
    fn a_failed_pool_is_an_error_once_and_read_only_after_that() {
        let faults = Faults::default();
        let failure = || Error::ReadOnlyAfterFailure { reason: "a disk".to_owned() };
        assert_eq!(faults.number(&failure()), Errno(libc::EIO));
        assert_eq!(faults.number(&failure()), Errno(libc::EROFS));
        assert_eq!(faults.number(&FileFault::NotEmpty.into()), Errno(libc::ENOTEMPTY));
        assert_eq!(faults.number(&Error::NoSpace { detail: String::new() }), Errno(libc::ENOSPC));
    }
}
