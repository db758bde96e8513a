//! An allocator for SQLite that fails when a test asks for it.

use rusqlite::ffi;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Once;

thread_local! {
    /// Allocations of this thread until one fails; negative: none fails.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
    static MADE: Cell<u64> = const { Cell::new(0) };
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Has SQLite allocate here. Only before SQLite is used for the first time.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let methods = ffi::sqlite3_mem_methods {
            xMalloc: Some(allocate),
            xFree: Some(release),
            xRealloc: Some(change),
            xSize: Some(size_of_allocation),
            xRoundup: Some(round_up),
            xInit: Some(begin),
            xShutdown: Some(end),
            pAppData: std::ptr::null_mut(),
        };
        // SAFETY: SQLite is not initialised yet, and copies the structure. Without lookaside memory every
        // allocation comes here.
        unsafe {
            assert_eq!(ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods), ffi::SQLITE_OK);
            assert_eq!(ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOOKASIDE, 0, 0), ffi::SQLITE_OK);
        }
    });
}

/// Allocations of this thread so far.
pub fn made() -> u64 {
    MADE.get()
}

/// The allocation after the next `count` ones of this thread fails, once.
pub fn fail_after(count: u64) {
    FAILED.set(false);
    LEFT.set(i64::try_from(count).expect("a small number"));
}

/// No allocation fails any more. Whether one did.
pub fn disarm() -> bool {
    LEFT.set(-1);
    FAILED.replace(false)
}

fn fails() -> bool {
    MADE.set(MADE.get() + 1);
    let left = LEFT.get();
    if left >= 0 {
        LEFT.set(left - 1);
    }
    FAILED.set(FAILED.get() || left == 0);
    left == 0
}

/// Bytes before each allocation, where its size is kept.
const HEAD: usize = 16;

unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    let Ok(bytes) = usize::try_from(bytes) else { return std::ptr::null_mut() };
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: the size fits, and the head of the new memory is ours.
    unsafe {
        let memory = libc_malloc(bytes + HEAD).cast::<u8>();
        if memory.is_null() {
            return memory.cast();
        }
        memory.cast::<usize>().write(bytes);
        memory.add(HEAD).cast()
    }
}

unsafe extern "C" fn release(memory: *mut c_void) {
    if !memory.is_null() {
        // SAFETY: SQLite frees what `allocate` or `change` gave it.
        unsafe { libc_free(memory.cast::<u8>().sub(HEAD).cast()) }
    }
}

unsafe extern "C" fn change(memory: *mut c_void, bytes: c_int) -> *mut c_void {
    let Ok(bytes) = usize::try_from(bytes) else { return std::ptr::null_mut() };
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: as above.
    unsafe {
        let changed = libc_realloc(memory.cast::<u8>().sub(HEAD).cast(), bytes + HEAD).cast::<u8>();
        if changed.is_null() {
            return changed.cast();
        }
        changed.cast::<usize>().write(bytes);
        changed.add(HEAD).cast()
    }
}

unsafe extern "C" fn size_of_allocation(memory: *mut c_void) -> c_int {
    if memory.is_null() {
        return 0;
    }
    // SAFETY: memory of ours, with its size in front.
    let bytes = unsafe { memory.cast::<u8>().sub(HEAD).cast::<usize>().read() };
    c_int::try_from(bytes).expect("SQLite asked for so many as a c_int")
}

unsafe extern "C" fn round_up(bytes: c_int) -> c_int {
    (bytes + 7) & !7
}

unsafe extern "C" fn begin(_: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn end(_: *mut c_void) {}

unsafe extern "C" {
    #[link_name = "malloc"]
    fn libc_malloc(bytes: usize) -> *mut c_void;
    #[link_name = "free"]
    fn libc_free(memory: *mut c_void);
    #[link_name = "realloc"]
    fn libc_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
}
