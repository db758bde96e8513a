//! What goes wrong, twice: as the number that SQLite understands and as the sentence that a person needs.
//!
//! SQLite hands numbers through to its users but no text of a VFS. The text therefore goes to SQLite's log
//! (`sqlite3_log`) and is kept for the SQL function `icecore_last_error()`, which any connection can ask,
//! until something succeeds: a database is opened, a transaction committed, or a snapshot taken.

use crate::bindings::code;
use crate::sqlite::Api;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// A refusal or failure on its way to SQLite.
#[derive(Clone, Debug)]
pub struct Fault {
    /// SQLite's number for it.
    pub code: c_int,
    /// What happened, to what, and the way out. Empty for what is no error (busy, not there): not logged.
    pub text: String,
    /// The operating system's number for it, where it is another one than the code implies.
    errno: Option<Errno>,
}

/// Short for a result with [`Fault`].
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A fault that is worth a sentence.
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), errno: None }
    }

    /// An answer that SQLite expects as part of normal work.
    pub const fn quiet(code: c_int) -> Self {
        Self { code, text: String::new(), errno: None }
    }

    /// The same with another number: what fits depends on which call failed.
    #[must_use]
    pub fn with_code(self, code: c_int) -> Self {
        Self { code, ..self }
    }

    /// The same with a number of the operating system, for `sqlite3_system_errno()`.
    #[must_use]
    pub fn with_errno(self, errno: Errno) -> Self {
        Self { errno: Some(errno), ..self }
    }

    /// Whether another process has the pool.
    pub fn is_in_use(&self) -> bool {
        self.errno == Some(Errno::BUSY)
    }

    fn errno(&self) -> Errno {
        self.errno.unwrap_or(match self.code & 0xff {
            code::CANTOPEN => Errno::NOENT,
            code::FULL => Errno::NOSPC,
            code::NOMEM => Errno::NOMEM,
            code::READONLY => Errno::ROFS,
            _ => Errno::IO,
        })
    }

    /// The same while a file is being opened: "cannot open" is what applications expect of that, but for what
    /// has a number that they act upon. A file may have to be made, for which there may be no room; SQLite
    /// hands the number of `xOpen` through.
    #[must_use]
    pub fn while_opening(self) -> Self {
        match self.code {
            code::NOMEM | code::CANTOPEN | code::FULL => self,
            _ => self.with_code(code::CANTOPEN),
        }
    }
}

impl From<icecore::Error> for Fault {
    fn from(error: icecore::Error) -> Self {
        use icecore::{Error, FileFault};
        let number = match &error {
            Error::NoSpace { .. }
            | Error::QuotaExceeded { .. }
            | Error::File(FileFault::NoInodes | FileFault::TooLarge) => code::FULL,
            Error::ReadOnly | Error::SnapshotIsReadOnly { .. } => code::READONLY,
            Error::Damaged { .. } => code::IOERR_DATA,
            Error::PoolInUse { .. }
            | Error::NotAPool { .. }
            | Error::NewerFormat { .. }
            | Error::NeedsRecovery { .. }
            | Error::NotFound { .. }
            | Error::BadName { .. } => code::CANTOPEN,
            _ => code::IOERR,
        };
        let fault = Self::new(number, error.to_string());
        match error {
            Error::Io { source, .. } => match source.raw_os_error() {
                Some(raw) => fault.with_errno(Errno::from_raw_os_error(raw)),
                None => fault,
            },
            Error::PoolInUse { .. } => fault.with_errno(Errno::BUSY),
            _ => fault,
        }
    }
}

thread_local! {
    /// The last fault of this thread.
    static LAST_HERE: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Faults of the process before the last success of this thread.
    static PASSED: Cell<u64> = const { Cell::new(0) };
    /// The operating system's number for the last fault of this thread.
    static LAST_ERRNO: Cell<c_int> = const { Cell::new(0) };
}
/// The last fault of the process, for another thread that asks.
static LAST_ANYWHERE: Mutex<Option<String>> = Mutex::new(None);
/// Faults of the process so far.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// Logs a fault, keeps its text for `icecore_last_error()` and answers its number.
pub fn report(api: &Api, fault: &Fault) -> c_int {
    let _ = LAST_ERRNO.try_with(|last| last.set(fault.errno().raw_os_error()));
    if !fault.text.is_empty() {
        api.log(fault.code, &format!("icecore: {}", fault.text));
        remember(&fault.text);
    }
    fault.code
}

/// Keeps a text for `icecore_last_error()`.
pub fn remember(text: &str) {
    // A thread that is ending has no place of its own any more; the process still has.
    let _ = LAST_HERE.try_with(|last| *last.borrow_mut() = Some(text.to_owned()));
    // After a fork the lock may be held by a thread that the child does not have.
    if let Some(mut last) = LAST_ANYWHERE.try_lock() {
        *last = Some(text.to_owned());
        FAULTS.fetch_add(1, Ordering::Release);
    }
}

/// Something succeeded: this thread has no last error any more.
pub fn forget_last_error() {
    let faults = FAULTS.load(Ordering::Acquire);
    // A thread without faults has nothing to forget.
    if PASSED.try_with(|passed| passed.replace(faults)).is_ok_and(|passed| passed != faults) {
        let _ = LAST_HERE.try_with(|last| last.take());
    }
}

/// The sentence for the last refusal or failure of the door since something succeeded in this thread: its
/// own, else that of the process. SQLite hands through no more than a number.
#[must_use]
pub fn last_error() -> Option<String> {
    let here = LAST_HERE.try_with(|last| last.borrow().clone()).ok().flatten();
    here.or_else(|| {
        let passed = PASSED.try_with(Cell::get).unwrap_or(0);
        let last = LAST_ANYWHERE.try_lock()?;
        if FAULTS.load(Ordering::Acquire) > passed { last.clone() } else { None }
    })
}

/// The operating system's number for the last fault of this thread.
pub fn last_errno() -> c_int {
    LAST_ERRNO.try_with(Cell::get).unwrap_or(0)
}

/// Runs the body of a callback: faults become numbers, and no panic reaches C.
pub fn guard(api: &Api, body: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => code::OK,
        Ok(Err(fault)) => report(api, &fault),
        Err(panic) => {
            report(api, &Fault::new(code::INTERNAL, format!("a bug in icecore: {}", panic_text(&*panic))))
        }
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
