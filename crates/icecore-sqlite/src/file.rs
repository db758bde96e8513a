//! The callbacks that SQLite makes for an open file.

use crate::bindings::{Connection, File, IoMethods, code, control, device, lock};
use crate::database::{Database, Source};
use crate::errors::{Fault, Result, panic_text, report};
use crate::journal::SideFile;
use crate::locks::Level;
use crate::pragma;
use crate::temporary::TemporaryFile;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What we keep in the memory that SQLite reserves for a file.
#[repr(C)]
pub struct Slot {
    head: File,
    object: *mut c_void,
}

impl Slot {
    /// Makes the file an open one.
    ///
    /// # Safety
    /// `file` must have room for a [`Slot`], not be open, and `methods` be those for a `T`.
    pub unsafe fn fill<T>(file: *mut File, methods: &'static IoMethods, object: Box<T>) {
        let slot = Self { head: File { methods }, object: Box::into_raw(object).cast() };
        // SAFETY: the caller's promise.
        unsafe { file.cast::<Self>().write(slot) };
    }

    /// # Safety
    /// The file must have been filled with a `T`, and be used by no other thread meanwhile.
    unsafe fn object<'file, T>(file: *mut File) -> &'file mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *(*file.cast::<Self>()).object.cast::<T>() }
    }

    /// # Safety
    /// As for [`Slot::object`]; the file is not open afterwards.
    unsafe fn empty<T>(file: *mut File) -> Box<T> {
        // SAFETY: the caller's promise; the box was given away in `fill`.
        unsafe {
            let object = Box::from_raw((*file.cast::<Self>()).object.cast::<T>());
            (*file).methods = std::ptr::null();
            object
        }
    }
}

/// The methods of a database file.
pub static DATABASE_METHODS: IoMethods = IoMethods {
    version: 1,
    close: database_close,
    read: database_read,
    write: database_write,
    truncate: database_truncate,
    sync: database_sync,
    file_size: database_file_size,
    lock: database_lock,
    unlock: database_unlock,
    check_reserved_lock: database_check_reserved_lock,
    file_control: database_file_control,
    sector_size,
    device_characteristics: database_device_characteristics,
};

/// The methods of every other file.
pub static SIDE_METHODS: IoMethods = IoMethods {
    version: 1,
    close: side_close,
    read: side_read,
    write: side_write,
    truncate: side_truncate,
    sync: side_sync,
    file_size: side_file_size,
    lock: side_lock,
    unlock: side_lock,
    check_reserved_lock: side_check_reserved_lock,
    file_control: side_file_control,
    sector_size,
    device_characteristics: side_device_characteristics,
};

/// What is true of every file here: whatever part of a transaction was written, all of it or none survives a
/// crash. So bytes beside those written never change, an appended file never holds garbage, and the order of
/// writes is kept; with that SQLite neither syncs journals nor journals whole sectors.
const CHARACTERISTICS: c_int =
    device::POWERSAFE_OVERWRITE | device::SAFE_APPEND | device::SEQUENTIAL | device::SUBPAGE_READ;
/// The block of the store. SQLite uses it for nothing as long as overwriting is safe.
const SECTOR_BYTES: c_int = 4096;

unsafe extern "C" fn sector_size(_: *mut File) -> c_int {
    SECTOR_BYTES
}

/// Runs a callback on a database: faults become numbers; after a panic the handle answers nothing but errors.
///
/// # Safety
/// As for [`Slot::object`], with a [`Database`].
unsafe fn on_database(file: *mut File, body: impl FnOnce(&mut Database) -> Result<()>) -> c_int {
    // SAFETY: the caller's promise.
    let database: &mut Database = unsafe { Slot::object(file) };
    if database.broken {
        return code::IOERR;
    }
    // SAFETY: the caller's promise.
    unsafe { on_any_database(file, body) }
}

/// The same also for a handle that a panic has broken.
///
/// # Safety
/// As for [`Slot::object`], with a [`Database`].
unsafe fn on_any_database(file: *mut File, body: impl FnOnce(&mut Database) -> Result<()>) -> c_int {
    // SAFETY: the caller's promise.
    let database: &mut Database = unsafe { Slot::object(file) };
    match catch_unwind(AssertUnwindSafe(|| body(database))) {
        Ok(Ok(())) => code::OK,
        Ok(Err(fault)) => report(database.api, &fault),
        Err(panic) => {
            database.broken = true;
            let text = format!("a bug in icecore: {}", panic_text(&*panic));
            report(database.api, &Fault::new(code::IOERR, text))
        }
    }
}

fn offset_of(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Fault::new(code::IOERR, "SQLite asked for a negative offset"))
}

/// # Safety
/// `data` must have room for `length` bytes for as long as the result is used.
unsafe fn buffer<'data>(data: *mut c_void, length: c_int) -> &'data mut [u8] {
    // SAFETY: the caller's promise; SQLite never passes negative lengths.
    unsafe { std::slice::from_raw_parts_mut(data.cast(), usize::try_from(length).unwrap_or(0)) }
}

/// # Safety
/// As for [`buffer`], for reading.
unsafe fn data_of<'data>(data: *const c_void, length: c_int) -> &'data [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), usize::try_from(length).unwrap_or(0)) }
}

fn complete_or_short(complete: bool) -> Result<()> {
    if complete { Ok(()) } else { Err(Fault::quiet(code::IOERR_SHORT_READ)) }
}

unsafe extern "C" fn database_close(file: *mut File) -> c_int {
    // SAFETY: SQLite closes an open file once.
    let database: Box<Database> = unsafe { Slot::empty(file) };
    let api = database.api;
    if !database.pool.registry().is_here() {
        // A forked child: everything in it is the parent's.
        std::mem::forget(database);
        return code::OK;
    }
    crate::errors::guard(api, || {
        drop(database);
        Ok(())
    })
}

unsafe extern "C" fn database_read(file: *mut File, data: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: an open database file, used by one thread at a time, and a buffer of that length.
    unsafe {
        on_database(file, |database| {
            complete_or_short(database.read(offset_of(offset)?, buffer(data, length))?)
        })
    }
}

unsafe extern "C" fn database_write(
    file: *mut File,
    data: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: an open database file, used by one thread at a time, and data of that length.
    unsafe { on_database(file, |database| database.write(offset_of(offset)?, data_of(data, length))) }
}

unsafe extern "C" fn database_truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: an open database file, used by one thread at a time.
    unsafe { on_database(file, |database| database.truncate(offset_of(size)?)) }
}

unsafe extern "C" fn database_sync(file: *mut File, _: c_int) -> c_int {
    // SAFETY: an open database file, used by one thread at a time.
    unsafe { on_database(file, Database::sync) }
}

unsafe extern "C" fn database_file_size(file: *mut File, size: *mut i64) -> c_int {
    // SAFETY: an open database file, used by one thread at a time, and room for the answer.
    unsafe {
        on_database(file, |database| {
            *size = i64::try_from(database.file_size()?).unwrap_or(i64::MAX);
            Ok(())
        })
    }
}

fn level_of(level: c_int) -> Level {
    match level {
        lock::NONE => Level::None,
        lock::SHARED => Level::Shared,
        lock::RESERVED => Level::Reserved,
        _ => Level::Exclusive,
    }
}

unsafe extern "C" fn database_lock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: an open database file, used by one thread at a time.
    unsafe { on_database(file, |database| database.lock(level_of(level))) }
}

unsafe extern "C" fn database_unlock(file: *mut File, level: c_int) -> c_int {
    // Whatever happened, others must be able to go on.
    // SAFETY: an open database file, used by one thread at a time.
    unsafe { on_any_database(file, |database| database.unlock(level_of(level))) }
}

unsafe extern "C" fn database_check_reserved_lock(file: *mut File, result: *mut c_int) -> c_int {
    // SAFETY: an open database file, used by one thread at a time, and room for the answer.
    unsafe {
        on_database(file, |database| {
            *result = c_int::from(database.has_writer());
            Ok(())
        })
    }
}

unsafe extern "C" fn database_device_characteristics(file: *mut File) -> c_int {
    // SAFETY: an open database file.
    let database = unsafe { Slot::object::<Database>(file) };
    let refused = if database.modes.sectors_torn { device::POWERSAFE_OVERWRITE } else { 0 };
    match database.source {
        Source::Head { .. } => CHARACTERISTICS & !refused,
        // A snapshot never changes: SQLite neither locks it nor doubts its page cache.
        Source::Fixed { .. } => CHARACTERISTICS | device::IMMUTABLE,
    }
}

unsafe extern "C" fn database_file_control(
    file: *mut File,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: an open database file, used by one thread at a time, and an argument that suits the operation.
    unsafe { on_database(file, |database| control_database(database, operation, argument)) }
}

/// # Safety
/// `argument` must be what SQLite documents for the operation.
unsafe fn control_database(database: &mut Database, operation: c_int, argument: *mut c_void) -> Result<()> {
    // SAFETY: for each operation, the type that SQLite documents.
    unsafe {
        match operation {
            control::SYNC => {
                let name = argument.cast::<c_char>();
                let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy());
                database.seal(name.as_deref())?;
            }
            control::COMMIT_PHASETWO => database.commit()?,
            control::PRAGMA => return pragma::run(database, argument.cast()),
            control::PDB => {
                let connection = *argument.cast::<*mut Connection>();
                database.modes.connection = Some(database.pool.registry().connection(connection.addr()));
            }
            control::HAS_MOVED => *argument.cast::<c_int>() = c_int::from(database.is_unlinked()),
            control::MMAP_SIZE => *argument.cast::<i64>() = 0,
            control::LOCKSTATE => *argument.cast::<c_int>() = lock_number(database.level),
            control::LAST_ERRNO => *argument.cast::<c_int>() = 0,
            control::VFSNAME => *argument.cast::<*mut c_char>() = database.api.owned_text("icecore"),
            control::POWERSAFE_OVERWRITE => {
                let mut powersafe = !database.modes.sectors_torn;
                mode_bit(&mut powersafe, argument.cast());
                database.modes.sectors_torn = !powersafe;
            }
            // There is no write-ahead log, so no process reads one.
            control::EXTERNAL_READER => *argument.cast::<c_int>() = 0,
            // It is kept for the answer alone: there is no write-ahead log.
            control::PERSIST_WAL => mode_bit(&mut database.modes.persist_wal, argument.cast()),
            control::TEMPFILENAME => {
                let base = database.api.find_vfs(None);
                TemporaryFile::open(base)?.control(operation, argument)?;
            }
            control::DATABASE => *argument.cast::<*mut Database>() = database,
            // Space is not a matter of hints here: a group has what it needs, or fails as a whole.
            control::SIZE_HINT | control::CHUNK_SIZE => {}
            _ => return Err(Fault::quiet(code::NOTFOUND)),
        }
    }
    Ok(())
}

/// Answers how a bit is set, after setting it unless the argument is negative.
///
/// # Safety
/// `argument` must point to an integer.
unsafe fn mode_bit(bit: &mut bool, argument: *mut c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        match *argument {
            0 => *bit = false,
            1.. => *bit = true,
            _ => *argument = c_int::from(*bit),
        }
    }
}

fn lock_number(level: Level) -> c_int {
    match level {
        Level::None => lock::NONE,
        Level::Shared => lock::SHARED,
        Level::Reserved => lock::RESERVED,
        Level::Exclusive => lock::EXCLUSIVE,
    }
}

/// Runs a callback on another file. What goes wrong there needs no sentence of its own in the log: it
/// has one, or is SQLite's own temporary file.
///
/// # Safety
/// As for [`Slot::object`], with a [`SideFile`].
unsafe fn on_side_file(file: *mut File, body: impl FnOnce(&mut SideFile) -> Result<()>) -> c_int {
    // SAFETY: the caller's promise.
    let side: &mut SideFile = unsafe { Slot::object(file) };
    if side.is_inherited() {
        return code::IOERR;
    }
    match catch_unwind(AssertUnwindSafe(|| body(side))) {
        Ok(Ok(())) => code::OK,
        Ok(Err(fault)) => {
            if !fault.text.is_empty() {
                crate::errors::remember(&fault.text);
            }
            fault.code
        }
        Err(panic) => {
            crate::errors::remember(&format!("a bug in icecore: {}", panic_text(&*panic)));
            code::IOERR
        }
    }
}

unsafe extern "C" fn side_close(file: *mut File) -> c_int {
    // SAFETY: SQLite closes an open file once.
    let side: Box<SideFile> = unsafe { Slot::empty(file) };
    if side.is_inherited() {
        std::mem::forget(side);
        return code::OK;
    }
    match catch_unwind(AssertUnwindSafe(|| drop(side))) {
        Ok(()) => code::OK,
        Err(_) => code::IOERR,
    }
}

unsafe extern "C" fn side_read(file: *mut File, data: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: an open side file, used by one thread at a time, and a buffer of that length.
    unsafe {
        on_side_file(file, |side| complete_or_short(side.read(offset_of(offset)?, buffer(data, length))?))
    }
}

unsafe extern "C" fn side_write(file: *mut File, data: *const c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: an open side file, used by one thread at a time, and data of that length.
    unsafe { on_side_file(file, |side| side.write(offset_of(offset)?, data_of(data, length))) }
}

unsafe extern "C" fn side_truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: an open side file, used by one thread at a time.
    unsafe { on_side_file(file, |side| side.truncate(offset_of(size)?)) }
}

unsafe extern "C" fn side_sync(_: *mut File, _: c_int) -> c_int {
    // Private files need not survive anything, and the end of a real journal is durable already.
    code::OK
}

unsafe extern "C" fn side_file_size(file: *mut File, size: *mut i64) -> c_int {
    // SAFETY: an open side file, used by one thread at a time, and room for the answer.
    unsafe {
        on_side_file(file, |side| {
            *size = i64::try_from(side.size()?).unwrap_or(i64::MAX);
            Ok(())
        })
    }
}

unsafe extern "C" fn side_lock(_: *mut File, _: c_int) -> c_int {
    code::OK
}

unsafe extern "C" fn side_check_reserved_lock(_: *mut File, result: *mut c_int) -> c_int {
    // SAFETY: room for the answer.
    unsafe { *result = 0 };
    code::OK
}

unsafe extern "C" fn side_file_control(_: *mut File, _: c_int, _: *mut c_void) -> c_int {
    code::NOTFOUND
}

unsafe extern "C" fn side_device_characteristics(_: *mut File) -> c_int {
    CHARACTERISTICS
}
