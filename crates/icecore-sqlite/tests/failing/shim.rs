//! A VFS over the one under test whose calls fail when a test asks for it.

use rusqlite::ffi;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

/// What follows `vfs=` to use it.
pub const NAME: &CStr = c"failing";

#[derive(Clone, Copy, Default)]
struct Plan {
    /// Calls so far.
    made: u64,
    /// The call that fails.
    fails: Option<u64>,
    /// Every call after it fails, too.
    for_good: bool,
    struck: bool,
}

thread_local! {
    static PLAN: Cell<Plan> = const { Cell::new(Plan { made: 0, fails: None, for_good: false, struck: false }) };
}

/// Calls that this thread has made so far.
pub fn made() -> u64 {
    PLAN.get().made
}

/// The call after the next `count` ones of this thread fails, and those after it if `for_good`.
pub fn fail_after(count: u64, for_good: bool) {
    let made = made();
    PLAN.set(Plan { made, fails: Some(made + count), for_good, struck: false });
}

/// No call fails any more. Whether one did.
pub fn disarm() -> bool {
    let plan = PLAN.get();
    PLAN.set(Plan { made: plan.made, ..Plan::default() });
    plan.struck
}

fn fails() -> bool {
    let mut plan = PLAN.get();
    let number = plan.made;
    plan.made += 1;
    let strikes = plan.fails.is_some_and(|at| if plan.for_good { number >= at } else { number == at });
    plan.struck |= strikes;
    PLAN.set(plan);
    strikes
}

/// The file of SQLite, and behind it in memory that of the VFS below.
#[repr(C, align(16))]
struct Shim {
    head: ffi::sqlite3_file,
}

/// # Safety
/// `file` must have been opened here.
unsafe fn below(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the memory continues behind the shim.
    unsafe { file.cast::<Shim>().add(1).cast() }
}

/// Registers it, once.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        icecore_sqlite::register().expect("the VFS below");
        // SAFETY: the VFS below is registered for good, and so is ours, which is leaked.
        unsafe {
            let base = ffi::sqlite3_vfs_find(c"icecore".as_ptr());
            assert!(!base.is_null());
            let mut vfs = *base;
            vfs.szOsFile += size_of::<Shim>() as c_int;
            vfs.zName = NAME.as_ptr();
            vfs.pNext = std::ptr::null_mut();
            vfs.pAppData = base.cast();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            vfs.xAccess = Some(access);
            vfs.xFullPathname = Some(full_pathname);
            vfs.xDlOpen = None;
            vfs.xRandomness = Some(randomness);
            vfs.xSleep = Some(sleep);
            vfs.xCurrentTime = Some(current_time);
            vfs.xCurrentTimeInt64 = None;
            vfs.xGetLastError = None;
            let vfs = Box::leak(Box::new(vfs));
            assert_eq!(ffi::sqlite3_vfs_register(vfs, 0), ffi::SQLITE_OK);
        }
    });
}

/// # Safety
/// `vfs` must be ours.
unsafe fn base(vfs: *mut ffi::sqlite3_vfs) -> &'static mut ffi::sqlite3_vfs {
    // SAFETY: set in `install`, and registered for good.
    unsafe { &mut *(*vfs).pAppData.cast() }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: arguments of SQLite, handed down; the file has room for both.
    unsafe {
        (*file).pMethods = std::ptr::null();
        if fails() {
            return ffi::SQLITE_CANTOPEN;
        }
        let base = base(vfs);
        let result = base.xOpen.expect("every VFS opens")(base, name, below(file), flags, out);
        if result == ffi::SQLITE_OK {
            (*file).pMethods = &METHODS;
        }
        result
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_DELETE;
    }
    // SAFETY: arguments of SQLite, handed down.
    unsafe { base(vfs).xDelete.expect("it deletes")(base(vfs), name, sync) }
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_ACCESS;
    }
    // SAFETY: arguments of SQLite, handed down.
    unsafe { base(vfs).xAccess.expect("it looks")(base(vfs), name, flags, out) }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: arguments of SQLite, handed down.
    unsafe { base(vfs).xFullPathname.expect("it names")(base(vfs), name, bytes, out) }
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, bytes: c_int, out: *mut c_char) -> c_int {
    // SAFETY: arguments of SQLite, handed down.
    unsafe { base(vfs).xRandomness.expect("it has some")(base(vfs), bytes, out) }
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: arguments of SQLite, handed down.
    unsafe { base(vfs).xSleep.expect("it sleeps")(base(vfs), microseconds) }
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: arguments of SQLite, handed down.
    unsafe { base(vfs).xCurrentTime.expect("it has a clock")(base(vfs), out) }
}

/// A method that fails on demand, and else is that of the file below.
macro_rules! method {
    ($name:ident, $field:ident, $failure:expr, ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
            if fails() {
                return $failure;
            }
            // SAFETY: an open file of ours, and arguments of SQLite that are handed down.
            unsafe {
                let file = below(file);
                (*(*file).pMethods).$field.expect("the file below has it")(file $(, $argument)*)
            }
        }
    };
}

method!(read, xRead, ffi::SQLITE_IOERR_READ, (data: *mut c_void, length: c_int, offset: i64));
method!(write, xWrite, ffi::SQLITE_FULL, (data: *const c_void, length: c_int, offset: i64));
method!(truncate, xTruncate, ffi::SQLITE_IOERR_TRUNCATE, (size: i64));
method!(sync, xSync, ffi::SQLITE_IOERR_FSYNC, (flags: c_int));
method!(file_size, xFileSize, ffi::SQLITE_IOERR_FSTAT, (out: *mut i64));
method!(lock, xLock, ffi::SQLITE_BUSY, (level: c_int));
method!(check_reserved, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, (out: *mut c_int));

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: an open file of ours, closed once.
    unsafe {
        let file = below(file);
        (*(*file).pMethods).xClose.expect("it closes")(file)
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file of ours.
    unsafe {
        let file = below(file);
        (*(*file).pMethods).xUnlock.expect("it unlocks")(file, level)
    }
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // Others are hints and questions, of which SQLite does not expect that they fail.
    let matters = matches!(operation, ffi::SQLITE_FCNTL_SYNC | ffi::SQLITE_FCNTL_COMMIT_PHASETWO);
    if matters && fails() {
        return ffi::SQLITE_IOERR;
    }
    // SAFETY: an open file of ours, and arguments of SQLite that are handed down.
    unsafe {
        let file = below(file);
        (*(*file).pMethods).xFileControl.expect("it has controls")(file, operation, argument)
    }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: an open file of ours.
    unsafe {
        let file = below(file);
        (*(*file).pMethods).xSectorSize.expect("it has sectors")(file)
    }
}

unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: an open file of ours.
    unsafe {
        let file = below(file);
        (*(*file).pMethods).xDeviceCharacteristics.expect("it has characteristics")(file)
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};
