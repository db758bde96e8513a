//! One door for every SQLite library in the process.
//!
//! Usually there is one library and one copy of this extension. But a program may hold two libraries (its
//! own, and one in a language's package), and may load the extension from two files: then the second copy
//! finds the first one's VFS, registers nothing, and lets the first copy serve the connection.

use crate::bindings::{ApiRoutines, Connection, Vfs, code, number};
use crate::sqlite::{Api, EntryPoint};
use crate::{functions, tables, vfs};
use std::ffi::c_int;
use std::sync::OnceLock;

/// How copies of this library recognise each other.
const MAGIC: [u8; 16] = *b"icecore-sqlite 1";
/// SQLite libraries that one copy of this extension can serve.
pub const LIBRARIES_MAX: usize = 4;

/// What a registered VFS points at. The first three fields are an agreement between copies of this library.
#[repr(C)]
pub struct Door {
    magic: [u8; 16],
    /// Gives a connection the SQL functions and tables.
    connect: unsafe extern "C" fn(*mut Connection, *const Door) -> c_int,
    /// Its place in the list of doors.
    pub library: usize,
    /// The SQLite that it is registered with.
    pub api: &'static Api,
    /// SQLite's default VFS, for all that is not in a pool.
    pub base: *mut Vfs,
}

// SAFETY: nothing in it changes, and the VFS it points to may be used from any thread.
unsafe impl Send for Door {}
// SAFETY: as above.
unsafe impl Sync for Door {}

static DOORS: [OnceLock<Door>; LIBRARIES_MAX] = [const { OnceLock::new() }; LIBRARIES_MAX];

/// The door with that number.
pub fn by_number(library: usize) -> Option<&'static Door> {
    DOORS.get(library)?.get()
}

/// Opens the door to a SQLite, if it is not open: registers the VFS, and has `entry` called for every new
/// connection.
///
/// # Safety
/// As for [`Api::from_routines`].
pub unsafe fn open(routines: *const ApiRoutines, entry: EntryPoint) -> Result<Opened, String> {
    // SAFETY: the caller's promise.
    let api = unsafe { Api::from_routines(routines) }?;
    // Two threads may be loading two copies at this moment: only SQLite has a lock that both know.
    let locked = Api::clone(&api);
    locked.under_mutex(number::MUTEX_STATIC_VFS3, || {
        let known = api.find_vfs(Some(vfs::NAME));
        // SAFETY: a VFS in SQLite's list stays there.
        if let Some(known) = unsafe { known.as_ref() } {
            return recognise(known);
        }
        let base = api.find_vfs(None);
        if base.is_null() {
            return Err("this SQLite has no VFS at all".to_owned());
        }
        let door = store_door(api, base)?;
        // SAFETY: the default VFS stays registered; doors live for ever.
        let vfs = Box::leak(Box::new(unsafe { vfs::make(door, base) }));
        // SAFETY: complete, and never freed.
        let result = unsafe { door.api.register_vfs(vfs) };
        if result != code::OK {
            return Err(format!("SQLite refuses to register the VFS (code {result})"));
        }
        let result = door.api.auto_extension(entry);
        if result != code::OK {
            return Err(format!("SQLite refuses to register an automatic extension (code {result})"));
        }
        Ok(Opened { connect: door.connect, door })
    })
}

/// A door that connections can be led to.
pub struct Opened {
    connect: unsafe extern "C" fn(*mut Connection, *const Door) -> c_int,
    door: *const Door,
}

impl Opened {
    /// Gives a connection the SQL functions and tables.
    ///
    /// # Safety
    /// The connection must be open and used by this thread.
    pub unsafe fn connect(&self, connection: *mut Connection) -> c_int {
        // SAFETY: function and door belong together; the caller vouches for the connection.
        unsafe { (self.connect)(connection, self.door) }
    }
}

/// A VFS of our name: ours, or that of another copy.
fn recognise(known: &Vfs) -> Result<Opened, String> {
    let door = known.app_data.cast::<Door>().cast_const();
    // SAFETY: sixteen bytes of whatever another VFS keeps there, where there is anything.
    let ours = !door.is_null() && unsafe { (&raw const (*door).magic).read_unaligned() } == MAGIC;
    if !ours {
        return Err("another VFS is registered under the name icecore".to_owned());
    }
    // SAFETY: the mark says that the fields up to `connect` are as in this copy.
    Ok(Opened { connect: unsafe { (*door).connect }, door })
}

fn store_door(api: Api, base: *mut Vfs) -> Result<&'static Door, String> {
    let free = || DOORS.iter().enumerate().find(|(_, door)| door.get().is_none());
    let Some((library, place)) = free() else {
        return Err(format!("more than {LIBRARIES_MAX} SQLite libraries in one process"));
    };
    let api: &'static Api = Box::leak(Box::new(api));
    let door = Door { magic: MAGIC, connect, library, api, base };
    place.set(door).map_err(|_| "two SQLite libraries are loading icecore at once: try again".to_owned())?;
    place.get().ok_or_else(|| "a door was lost".to_owned())
}

unsafe extern "C" fn connect(connection: *mut Connection, door: *const Door) -> c_int {
    // SAFETY: doors live for ever, and this function is called with one of its own copy.
    let door: &'static Door = unsafe { &*door };
    let work = || {
        // SAFETY: SQLite hands us a connection to set up.
        let result = unsafe { functions::register(connection, door) };
        if result != code::OK {
            return result;
        }
        // SAFETY: as above.
        unsafe { tables::register(connection, door) }
    };
    std::panic::catch_unwind(work).unwrap_or(code::INTERNAL)
}
