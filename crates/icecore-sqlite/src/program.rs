//! For Rust programs that link SQLite in.

use crate::bindings::{ApiRoutines, Connection, code};
use crate::store::Pool;
use crate::{doors, registry, sqlite};
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

/// Registers the VFS `icecore`, and the SQL functions for every connection opened from now on. Any number of
/// times is as good as once.
///
/// # Errors
/// A sentence, if the linked SQLite refuses, or is too old.
pub fn register() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(|| {
        // SAFETY: a table filled from the linked library.
        unsafe { doors::open(sqlite::linked_routines(), connect_linked) }.map(|_| ())
    })
    .clone()
}

unsafe extern "C" fn connect_linked(
    connection: *mut Connection,
    _: *mut *mut c_char,
    _: *const ApiRoutines,
) -> c_int {
    // SAFETY: a table filled from the linked library, and the connection that SQLite is opening.
    unsafe {
        match doors::open(sqlite::linked_routines(), connect_linked) {
            Ok(opened) => opened.connect(connection),
            Err(_) => code::ERROR,
        }
    }
}

/// The URI of a database file in a pool, or of what it was in a snapshot: to be opened by any connection of
/// this program after [`register`]. `path` is `POOL/DATASET/FILE`.
#[must_use]
pub fn uri(path: &Path, snapshot: Option<&str>) -> String {
    let mut uri = String::from("file:");
    escape(&path.to_string_lossy(), &mut uri);
    uri.push_str("?vfs=icecore");
    if let Some(snapshot) = snapshot {
        uri.push_str("&snapshot=");
        escape(snapshot, &mut uri);
    }
    uri
}

/// Everything that could mean something in a URI, or in quotes around it.
fn escape(text: &str, uri: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'@' | b':' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// A pool that the program has open itself. Dropping this ends that; files that are open stay usable, and the
/// pool stays open as long as the program or a file holds it.
#[must_use = "the pool can be reached only as long as this is kept"]
pub struct Registration {
    prefix: String,
}

impl Registration {
    /// What the paths of this pool begin with: `/@NAME`, or its directory.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.prefix.clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        registry::current().unregister(&self.prefix);
    }
}

/// Makes a pool that the program has open reachable under `/@NAME/DATASET/FILE`: one on a simulated disk, or
/// one that another part of the program uses as well. A pool must not be registered twice at a time, nor
/// opened by its directory meanwhile: each way has lock tables of its own.
///
/// # Errors
/// A sentence, if the name is taken or cannot be part of a path.
pub fn register_pool(name: &str, pool: Pool) -> Result<Registration, String> {
    let prefix = registry::current().register(name, pool).map_err(|fault| fault.text)?;
    Ok(Registration { prefix })
}

/// As [`register_pool`], under the directory that the pool was opened in: paths of SQL lead to the pool that
/// the program has open.
///
/// # Errors
/// A sentence, if the directory is missing, its path is not UTF-8, or its pool is in use through the door.
pub fn register_pool_at(folder: &Path, pool: Pool) -> Result<Registration, String> {
    let folder = folder.to_str().ok_or_else(|| format!("the path {} is not UTF-8", folder.display()))?;
    let prefix = registry::current().register_at(folder, pool).map_err(|fault| fault.text)?;
    Ok(Registration { prefix })
}
