//! The VFS named `icecore`: opening, deleting and asking for files.

use crate::arrival::{self, HotEnd};
use crate::bindings::{File, Vfs, code, open};
use crate::doors::Door;
use crate::errors::{Fault, Result, forget_last_error, guard, last_errno, last_error};
use crate::file::{DATABASE_METHODS, SIDE_METHODS, Slot};
use crate::journal::{RealJournal, SideFile};
use crate::memory::MemoryFile;
use crate::opening;
use crate::path::{self, JOURNAL_SUFFIX, Place};
use crate::recent::{self, HotJournal, Known};
use crate::registry::{self, PoolUse};
use crate::store::{self, Wish};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// The name to use in `?vfs=`.
pub const NAME: &CStr = c"icecore";
/// Longest path: pool directory, names of 255 bytes, directories.
const PATH_BYTES_MAX: c_int = 4096;
/// Files that are never part of a pool.
const TEMPORARY: c_int = open::TEMP_DB | open::TRANSIENT_DB | open::TEMP_JOURNAL | open::SUBJOURNAL;

/// Makes a VFS over SQLite's default one.
///
/// # Safety
/// `base` must be registered for as long as SQLite runs, and `door` live as long.
pub unsafe fn make(door: *const Door, base: *mut Vfs) -> Vfs {
    // SAFETY: the caller's promise.
    let base = unsafe { &*base };
    let slot_bytes = c_int::try_from(size_of::<Slot>()).unwrap_or(c_int::MAX);
    Vfs {
        version: 2,
        // Files of the default VFS are opened in place, without a wrapper.
        file_bytes: slot_bytes.max(base.file_bytes),
        path_bytes_max: PATH_BYTES_MAX.max(base.path_bytes_max),
        next: ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: door.cast_mut().cast(),
        open: Some(x_open),
        delete: Some(x_delete),
        access: Some(x_access),
        full_pathname: Some(x_full_pathname),
        // None of these has anything to do with files; the default VFS's functions ignore which VFS they get,
        // but are handed their own all the same.
        dl_open: base.dl_open.map(|_| x_dl_open as _),
        dl_error: base.dl_error.map(|_| x_dl_error as _),
        dl_sym: base.dl_sym.map(|_| x_dl_sym as _),
        dl_close: base.dl_close.map(|_| x_dl_close as _),
        randomness: base.randomness.map(|_| x_randomness as _),
        sleep: base.sleep.map(|_| x_sleep as _),
        current_time: base.current_time.map(|_| x_current_time as _),
        get_last_error: Some(x_get_last_error),
        current_time_int64: current_time_int64(base),
        set_system_call: None,
        get_system_call: None,
        next_system_call: None,
    }
}

fn current_time_int64(base: &Vfs) -> Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int> {
    if base.version < 2 {
        return None;
    }
    base.current_time_int64.map(|_| x_current_time_int64 as _)
}

/// # Safety
/// `vfs` must be one that [`make`] made.
unsafe fn door(vfs: *mut Vfs) -> &'static Door {
    // SAFETY: set when the VFS was made, and never freed.
    unsafe { &*(*vfs).app_data.cast::<Door>() }
}

/// # Safety
/// `name` must be null or text that ends in a zero byte.
unsafe fn text<'name>(name: *const c_char) -> Result<&'name str> {
    // SAFETY: the caller's promise, with the null excluded.
    let bytes = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
    bytes.to_str().map_err(|_| Fault::new(code::CANTOPEN, format!("the path {bytes:?} is not UTF-8")))
}

unsafe extern "C" fn x_open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls us with the VFS that was registered.
    let door = unsafe { door(vfs) };
    // SAFETY: room for a file of ours; null means "not open, do not close".
    unsafe { (*file).methods = ptr::null() };
    if name.is_null() || flags & TEMPORARY != 0 {
        // SAFETY: the same arguments, for a file that fits in the same memory.
        return unsafe { open_with_base(door, name, file, flags, flags_out) };
    }
    let mut to_base = false;
    let result = guard(door.api, || {
        // SAFETY: SQLite's file names end in a zero byte.
        let path = unsafe { text(name) }?;
        if flags & open::MAIN_DB != 0 {
            // SAFETY: the name of a main database, so it may be asked for URI parameters.
            let database = unsafe { opening::open(door, name, path, flags) }.map_err(Fault::while_opening)?;
            let Some(database) = database else {
                to_base = true;
                return Ok(());
            };
            if !flags_out.is_null() {
                // SAFETY: not null, so it points to where the flags are wanted.
                unsafe { *flags_out = granted(flags, database.read_only) };
            }
            // SAFETY: the memory of a file that is not open yet.
            unsafe { Slot::fill(file, &DATABASE_METHODS, Box::new(database)) };
            forget_last_error();
            return Ok(());
        }
        match open_side_file(door, path, flags)? {
            // SAFETY: as above.
            Some(side) => unsafe { Slot::fill(file, &SIDE_METHODS, Box::new(side)) },
            None => {
                to_base = true;
                return Ok(());
            }
        }
        if !flags_out.is_null() {
            // SAFETY: as above.
            unsafe { *flags_out = flags };
        }
        Ok(())
    });
    if to_base {
        // SAFETY: as above.
        return unsafe { open_with_base(door, name, file, flags, flags_out) };
    }
    result
}

/// # Safety
/// The arguments must be those of a call of `xOpen`.
unsafe fn open_with_base(
    door: &Door,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: the base VFS is registered; the caller vouches for the rest.
    unsafe {
        match (*door.base).open {
            Some(opener) => opener(door.base, name, file, flags, flags_out),
            None => code::CANTOPEN,
        }
    }
}

fn granted(flags: c_int, read_only: bool) -> c_int {
    if read_only { (flags & !(open::READWRITE | open::CREATE)) | open::READONLY } else { flags }
}

/// Opens what is not a database. `None` if it lies in no pool.
fn open_side_file(door: &Door, path: &str, flags: c_int) -> Result<Option<SideFile>> {
    let creates = flags & open::CREATE != 0;
    // The usual case, without looking the path up: the journal of a database that this thread has locked.
    if creates && flags & open::MAIN_JOURNAL != 0 && recent::look_up(path).is_some() {
        return Ok(Some(SideFile::Memory(MemoryFile::new(door.base))));
    }
    let Some((pool, rest)) = pool_of(path) else { return Ok(None) };
    if flags & open::WAL != 0 {
        let text = "WAL mode is neither needed nor possible in icecore: readers and writers do not block each \
                    other in any journal mode";
        return Err(Fault::new(code::CANTOPEN, text));
    }
    if flags & open::MAIN_JOURNAL != 0 {
        if creates {
            return Ok(Some(SideFile::Memory(MemoryFile::new(door.base))));
        }
        return open_real(door, path).map(Some);
    }
    if creates {
        let journal = (flags & open::SUPER_JOURNAL != 0).then(|| pool.make_super_journal(rest)).flatten();
        let journal = journal.ok_or(Fault::quiet(code::CANTOPEN))?;
        return Ok(Some(SideFile::Super { journal, pool }));
    }
    match pool.super_journal(&rest) {
        Some(journal) => Ok(Some(SideFile::Super { journal, pool })),
        None => open_real(door, path).map(Some),
    }
}

/// A journal that came along: in the version that this thread has just pinned, else in the head.
fn open_real(door: &Door, path: &str) -> Result<SideFile> {
    let missing = || Fault::quiet(code::CANTOPEN);
    let (pool, place) = locate(path).ok_or_else(missing)?;
    let hot = match recent::look_up(path) {
        Some(Known::HotJournal(hot)) => hot,
        _ => {
            let view = store::head_view(&pool.pool, &place.dataset)?;
            let inode = store::find_file(&view, &place.parts())?.ok_or_else(missing)?;
            HotJournal { view, inode }
        }
    };
    let state = state_of_journal(&pool, &place)?;
    Ok(SideFile::Real(Box::new(RealJournal { hot, state, pool, base: door.base })))
}

/// The lock table's entry of the database that a journal belongs to.
fn state_of_journal(pool: &PoolUse, place: &Place) -> Result<Option<Arc<crate::locks::FileState>>> {
    let mut parts = place.parts();
    let Some(database) = parts.pop().and_then(|name| name.strip_suffix(JOURNAL_SUFFIX)) else {
        return Ok(None);
    };
    parts.push(database);
    Ok(store::file_key(&pool.pool, &place.dataset, &parts)?.map(|key| pool.file_state(key)))
}

/// The pool in use that a path lies in.
fn pool_of(path: &str) -> Option<(PoolUse, String)> {
    let registry = registry::current();
    registry.pool_of(path).or_else(|| {
        let cut = path::cut(path)?;
        // Of a pool that was only read, and is outdated, no more than that is wanted.
        let wish = if registry.is_used(cut.pool) { Wish::Share } else { Wish::Write };
        let pool = registry.use_pool(cut.pool, wish, Duration::ZERO, None).ok()?;
        Some((pool, cut.rest.to_owned()))
    })
}

/// Where a file other than a database lies.
fn locate(path: &str) -> Option<(PoolUse, Place)> {
    let (pool, rest) = pool_of(path)?;
    let cut = path::Cut { pool: &pool.name, rest: &rest };
    let place = Place::find(&pool.pool, cut, None).ok()?;
    Some((pool, place))
}

unsafe extern "C" fn x_delete(vfs: *mut Vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: SQLite calls us with the VFS that was registered.
    let door = unsafe { door(vfs) };
    let mut to_base = false;
    let result = guard(door.api, || {
        // SAFETY: SQLite's file names end in a zero byte.
        to_base = !delete(unsafe { text(name) }?, sync_directory != 0)?;
        Ok(())
    });
    if to_base {
        // SAFETY: the base VFS with arguments that SQLite has given.
        return unsafe {
            (*door.base).delete.map_or(code::OK, |delete| delete(door.base, name, sync_directory))
        };
    }
    result
}

/// Deletes a file of a pool. False if the path lies in no pool. `durable`: SQLite wants the deletion to
/// survive.
fn delete(path: &str, durable: bool) -> Result<bool> {
    if let Some(Known::Nothing) = recent::look_up(path) {
        // An emulated journal: closing it was all there is to do.
        return Ok(true);
    }
    let Some((pool, rest)) = pool_of(path) else { return Ok(false) };
    if let Some(super_journal) = pool.super_journal(&rest) {
        // Deleting it in a rollback need not survive a crash, and SQLite does not ask for that.
        if durable {
            pool.commit_super_journal(&rest, &super_journal)?;
        }
        return Ok(true);
    }
    let cut = path::Cut { pool: &pool.name, rest: &rest };
    let Ok(place) = Place::find(&pool.pool, cut, None) else { return Ok(true) };
    if end_journal(&pool, &place)? {
        return Ok(true);
    }
    if place.snapshot.is_none() {
        store::remove_file(&pool.pool, &place.dataset, &place.parts())?;
    }
    Ok(true)
}

/// Ends a real journal that was rolled back. False if it is none.
fn end_journal(pool: &PoolUse, place: &Place) -> Result<bool> {
    let Some(state) = state_of_journal(pool, place)? else { return Ok(false) };
    let view = store::head_view(&pool.pool, &place.dataset)?;
    let Some(journal) = store::find_file(&view, &place.parts())? else { return Ok(false) };
    arrival::end_journal(&HotEnd { pool, state: &state, journal })
}

unsafe extern "C" fn x_access(vfs: *mut Vfs, name: *const c_char, flags: c_int, result: *mut c_int) -> c_int {
    // SAFETY: SQLite calls us with the VFS that was registered.
    let door = unsafe { door(vfs) };
    let mut answer = None;
    let outcome = guard(door.api, || {
        // SAFETY: SQLite's file names end in a zero byte.
        answer = exists(unsafe { text(name) }?)?;
        Ok(())
    });
    if outcome != code::OK {
        return outcome;
    }
    match answer {
        Some(answer) => {
            // SAFETY: SQLite wants the answer there.
            unsafe { *result = c_int::from(answer) };
            code::OK
        }
        // SAFETY: the base VFS with arguments that SQLite has given.
        None => unsafe {
            (*door.base).access.map_or(code::OK, |access| access(door.base, name, flags, result))
        },
    }
}

/// Whether a file of a pool exists. `None` if the path lies in no pool.
fn exists(path: &str) -> Result<Option<bool>> {
    if let Some(known) = recent::look_up(path) {
        return Ok(Some(matches!(known, Known::HotJournal(_))));
    }
    let Some((pool, rest)) = pool_of(path) else { return Ok(None) };
    if pool.super_journal(&rest).is_some() {
        return Ok(Some(true));
    }
    let cut = path::Cut { pool: &pool.name, rest: &rest };
    let Ok(place) = Place::find(&pool.pool, cut, None) else { return Ok(Some(false)) };
    let view = match &place.snapshot {
        Some(snapshot) => store::snapshot_view(&pool.pool, &place.dataset, snapshot)?,
        None => store::head_view(&pool.pool, &place.dataset)?,
    };
    Ok(Some(store::find_file(&view, &place.parts())?.is_some()))
}

unsafe extern "C" fn x_full_pathname(
    vfs: *mut Vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite calls us with the VFS that was registered.
    let door = unsafe { door(vfs) };
    let mut full = None;
    let result = guard(door.api, || {
        // SAFETY: SQLite's file names end in a zero byte.
        full = path::full(unsafe { text(name) }?);
        Ok(())
    });
    if result != code::OK {
        return result;
    }
    if let Some(full) = full {
        if full.len() >= usize::try_from(bytes).unwrap_or(0) {
            return code::CANTOPEN;
        }
        // SAFETY: the output has room for `bytes` bytes, the zero at the end included.
        unsafe {
            ptr::copy_nonoverlapping(full.as_ptr().cast(), out, full.len());
            *out.add(full.len()) = 0;
        }
        return code::OK;
    }
    // SAFETY: the base VFS with arguments that SQLite has given.
    unsafe { (*door.base).full_pathname.map_or(code::CANTOPEN, |full| full(door.base, name, bytes, out)) }
}

unsafe extern "C" fn x_get_last_error(vfs: *mut Vfs, bytes: c_int, out: *mut c_char) -> c_int {
    let _ = vfs;
    let Ok(room) = usize::try_from(bytes) else { return 0 };
    if room > 0 && !out.is_null() {
        let text = last_error().unwrap_or_default();
        let length = text.len().min(room - 1);
        // SAFETY: the output has room for `bytes` bytes, the zero at the end included.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), out, length);
            *out.add(length) = 0;
        }
    }
    last_errno()
}

macro_rules! pass_on {
    ($name:ident, $field:ident, ($($argument:ident: $type:ty),*) $(-> $result:ty)?, $missing:expr) => {
        unsafe extern "C" fn $name(vfs: *mut Vfs, $($argument: $type),*) $(-> $result)? {
            // SAFETY: SQLite calls us with the VFS that was registered, and arguments that suit any VFS.
            unsafe {
                let base = door(vfs).base;
                match (*base).$field {
                    Some(function) => function(base, $($argument),*),
                    None => $missing,
                }
            }
        }
    };
}

pass_on!(x_dl_open, dl_open, (path: *const c_char) -> *mut c_void, ptr::null_mut());
pass_on!(x_dl_error, dl_error, (bytes: c_int, out: *mut c_char), ());
pass_on!(x_dl_sym, dl_sym, (library: *mut c_void, name: *const c_char) -> crate::bindings::Symbol, None);
pass_on!(x_dl_close, dl_close, (library: *mut c_void), ());
pass_on!(x_randomness, randomness, (bytes: c_int, out: *mut c_char) -> c_int, 0);
pass_on!(x_sleep, sleep, (microseconds: c_int) -> c_int, 0);
pass_on!(x_current_time, current_time, (out: *mut f64) -> c_int, code::ERROR);
pass_on!(x_current_time_int64, current_time_int64, (out: *mut i64) -> c_int, code::ERROR);
