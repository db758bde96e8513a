//! The part of SQLite's C interface that the door uses, written down by hand.
//!
//! Layouts follow `sqlite3.h` and `sqlite3ext.h`; they are frozen by SQLite's compatibility promise: fields
//! are only ever added at the end. `tests/layout.rs` compares every size, offset and number here with what a
//! C compiler makes of the system's headers.

use std::ffi::{c_char, c_int, c_uchar, c_void};

/// A database connection, opaque.
#[repr(C)]
pub struct Connection {
    _opaque: [u8; 0],
}

/// The context of a running SQL function, opaque.
#[repr(C)]
pub struct Context {
    _opaque: [u8; 0],
}

/// An SQL value, opaque.
#[repr(C)]
pub struct Value {
    _opaque: [u8; 0],
}

/// A mutex, opaque.
#[repr(C)]
pub struct Mutex {
    _opaque: [u8; 0],
}

/// `sqlite3_file`: the head of every open file; what follows belongs to the VFS.
#[repr(C)]
pub struct File {
    /// Null while the file is not open.
    pub methods: *const IoMethods,
}

/// `sqlite3_io_methods`, version 1: no shared memory, hence no new WAL mode, and no memory mapping.
#[repr(C)]
#[allow(missing_docs)]
pub struct IoMethods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut File) -> c_int,
    pub read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub check_reserved_lock: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub file_control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub device_characteristics: unsafe extern "C" fn(*mut File) -> c_int,
}

/// What `xDlSym` answers: a function, to be cast by the caller.
pub type Symbol = Option<unsafe extern "C" fn()>;

/// `sqlite3_vfs`. We register version 2; the fields of version 3 are there to have the full size.
#[repr(C)]
#[allow(missing_docs)]
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub path_bytes_max: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub app_data: *mut c_void,
    pub open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int>,
    pub delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub access: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub full_pathname: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub dl_sym: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Symbol>,
    pub dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub randomness: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub sleep: Option<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub current_time: Option<unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub current_time_int64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
    pub set_system_call: Option<unsafe extern "C" fn()>,
    pub get_system_call: Option<unsafe extern "C" fn()>,
    pub next_system_call: Option<unsafe extern "C" fn()>,
}

/// `sqlite3_vtab`
#[repr(C)]
#[allow(missing_docs)]
pub struct VirtualTable {
    pub module: *const Module,
    pub references: c_int,
    pub error: *mut c_char,
}

/// `sqlite3_vtab_cursor`
#[repr(C)]
#[allow(missing_docs)]
pub struct VirtualCursor {
    pub table: *mut VirtualTable,
}

/// The constructor of a virtual table.
pub type ConnectTable = unsafe extern "C" fn(
    *mut Connection,
    *mut c_void,
    c_int,
    *const *const c_char,
    *mut *mut VirtualTable,
    *mut *mut c_char,
) -> c_int;

/// `sqlite3_module`, version 1: the methods of a table that can only be read.
#[repr(C)]
#[allow(missing_docs)]
pub struct Module {
    pub version: c_int,
    pub create: Option<ConnectTable>,
    pub connect: Option<ConnectTable>,
    pub best_index: Option<unsafe extern "C" fn(*mut VirtualTable, *mut IndexInfo) -> c_int>,
    pub disconnect: Option<unsafe extern "C" fn(*mut VirtualTable) -> c_int>,
    pub destroy: Option<unsafe extern "C" fn(*mut VirtualTable) -> c_int>,
    pub open: Option<unsafe extern "C" fn(*mut VirtualTable, *mut *mut VirtualCursor) -> c_int>,
    pub close: Option<unsafe extern "C" fn(*mut VirtualCursor) -> c_int>,
    pub filter: Option<
        unsafe extern "C" fn(*mut VirtualCursor, c_int, *const c_char, c_int, *mut *mut Value) -> c_int,
    >,
    pub next: Option<unsafe extern "C" fn(*mut VirtualCursor) -> c_int>,
    pub eof: Option<unsafe extern "C" fn(*mut VirtualCursor) -> c_int>,
    pub column: Option<unsafe extern "C" fn(*mut VirtualCursor, *mut Context, c_int) -> c_int>,
    pub rowid: Option<unsafe extern "C" fn(*mut VirtualCursor, *mut i64) -> c_int>,
    /// `xUpdate` to `xShadowName`: writing, transactions, renaming. All null.
    pub unused: [Option<unsafe extern "C" fn()>; 11],
}

/// `sqlite3_index_info` up to `estimatedRows`, the last field that every supported SQLite has and we set.
#[repr(C)]
#[allow(missing_docs)]
pub struct IndexInfo {
    pub constraint_count: c_int,
    pub constraints: *const IndexConstraint,
    pub order_count: c_int,
    pub orders: *const c_void,
    pub usages: *mut IndexConstraintUsage,
    pub index_number: c_int,
    pub index_text: *mut c_char,
    pub free_index_text: c_int,
    pub order_consumed: c_int,
    pub estimated_cost: f64,
    pub estimated_rows: i64,
}

/// `sqlite3_index_constraint`
#[repr(C)]
#[allow(missing_docs)]
pub struct IndexConstraint {
    pub column: c_int,
    pub operator: c_uchar,
    pub usable: c_uchar,
    pub term_offset: c_int,
}

/// `sqlite3_index_constraint_usage`
#[repr(C)]
#[allow(missing_docs)]
pub struct IndexConstraintUsage {
    pub argument_index: c_int,
    pub omit: c_uchar,
}

/// `sqlite3_api_routines`: a table of function pointers, by position.
///
/// The length is what we may touch; every SQLite since 3.31 has more entries.
#[repr(C)]
pub struct ApiRoutines {
    /// The functions, to be cast to their types.
    pub slots: [Symbol; slot::COUNT],
}

/// Positions in [`ApiRoutines`], in units of one pointer. Named like the fields in `sqlite3ext.h`.
#[allow(missing_docs)]
pub mod slot {
    pub const DECLARE_VTAB: usize = 50;
    pub const FREE: usize = 58;
    pub const LIBVERSION_NUMBER: usize = 67;
    pub const MALLOC: usize = 68;
    pub const RESULT_ERROR: usize = 80;
    pub const RESULT_INT64: usize = 83;
    pub const RESULT_NULL: usize = 84;
    pub const RESULT_TEXT: usize = 85;
    pub const VALUE_BYTES: usize = 103;
    pub const VALUE_TEXT: usize = 109;
    pub const VALUE_TYPE: usize = 113;
    pub const CREATE_MODULE_V2: usize = 119;
    pub const FILE_CONTROL: usize = 127;
    pub const MUTEX_ALLOC: usize = 130;
    pub const MUTEX_ENTER: usize = 131;
    pub const MUTEX_LEAVE: usize = 133;
    pub const VFS_FIND: usize = 141;
    pub const VFS_REGISTER: usize = 142;
    pub const CONTEXT_DB_HANDLE: usize = 149;
    pub const CREATE_FUNCTION_V2: usize = 162;
    pub const LOG: usize = 167;
    pub const URI_BOOLEAN: usize = 187;
    pub const URI_PARAMETER: usize = 189;
    pub const AUTO_EXTENSION: usize = 192;
    pub const COUNT: usize = 193;
}

/// Result codes.
#[allow(missing_docs)]
pub mod code {
    use std::ffi::c_int;
    pub const OK: c_int = 0;
    pub const ERROR: c_int = 1;
    pub const INTERNAL: c_int = 2;
    pub const BUSY: c_int = 5;
    pub const NOMEM: c_int = 7;
    pub const READONLY: c_int = 8;
    pub const IOERR: c_int = 10;
    pub const NOTFOUND: c_int = 12;
    pub const FULL: c_int = 13;
    pub const CANTOPEN: c_int = 14;
    pub const CONSTRAINT: c_int = 19;
    pub const MISUSE: c_int = 21;
    pub const NOTICE: c_int = 27;
    pub const BUSY_SNAPSHOT: c_int = BUSY | (2 << 8);
    pub const OK_LOAD_PERMANENTLY: c_int = 1 << 8;
    pub const IOERR_READ: c_int = IOERR | (1 << 8);
    pub const IOERR_SHORT_READ: c_int = IOERR | (2 << 8);
    pub const IOERR_WRITE: c_int = IOERR | (3 << 8);
    pub const IOERR_DELETE_NOENT: c_int = IOERR | (23 << 8);
    pub const IOERR_DATA: c_int = IOERR | (32 << 8);
}

/// Flags of `xOpen`.
#[allow(missing_docs)]
pub mod open {
    use std::ffi::c_int;
    pub const READONLY: c_int = 0x1;
    pub const READWRITE: c_int = 0x2;
    pub const CREATE: c_int = 0x4;
    pub const DELETEONCLOSE: c_int = 0x8;
    pub const EXCLUSIVE: c_int = 0x10;
    pub const MAIN_DB: c_int = 0x100;
    pub const TEMP_DB: c_int = 0x200;
    pub const TRANSIENT_DB: c_int = 0x400;
    pub const MAIN_JOURNAL: c_int = 0x800;
    pub const TEMP_JOURNAL: c_int = 0x1000;
    pub const SUBJOURNAL: c_int = 0x2000;
    pub const SUPER_JOURNAL: c_int = 0x4000;
    pub const WAL: c_int = 0x0008_0000;
}

/// Lock levels, in the order in which they are taken.
#[allow(missing_docs)]
pub mod lock {
    use std::ffi::c_int;
    pub const NONE: c_int = 0;
    pub const SHARED: c_int = 1;
    pub const RESERVED: c_int = 2;
    pub const PENDING: c_int = 3;
    pub const EXCLUSIVE: c_int = 4;
}

/// Operation codes of `xFileControl`.
#[allow(missing_docs)]
pub mod control {
    use std::ffi::c_int;
    pub const LOCKSTATE: c_int = 1;
    pub const LAST_ERRNO: c_int = 4;
    pub const SIZE_HINT: c_int = 5;
    pub const CHUNK_SIZE: c_int = 6;
    pub const PERSIST_WAL: c_int = 10;
    pub const VFSNAME: c_int = 12;
    pub const POWERSAFE_OVERWRITE: c_int = 13;
    pub const PRAGMA: c_int = 14;
    pub const TEMPFILENAME: c_int = 16;
    pub const MMAP_SIZE: c_int = 18;
    pub const HAS_MOVED: c_int = 20;
    pub const SYNC: c_int = 21;
    pub const COMMIT_PHASETWO: c_int = 22;
    pub const PDB: c_int = 30;
    pub const EXTERNAL_READER: c_int = 40;
    /// Our own: stores a pointer to the door's database. SQLite keeps numbers below 100 for itself; a VFS on
    /// top hands others down.
    pub const DATABASE: c_int = 0x1CE_C0DE;
}

/// Bits of `xDeviceCharacteristics`.
#[allow(missing_docs)]
pub mod device {
    use std::ffi::c_int;
    pub const SAFE_APPEND: c_int = 0x200;
    pub const SEQUENTIAL: c_int = 0x400;
    pub const POWERSAFE_OVERWRITE: c_int = 0x1000;
    pub const IMMUTABLE: c_int = 0x2000;
    /// Since SQLite 3.48; older ones ignore it.
    pub const SUBPAGE_READ: c_int = 0x8000;
}

/// Numbers that fit nowhere else.
#[allow(missing_docs)]
pub mod number {
    use std::ffi::c_int;
    pub const UTF8: c_int = 1;
    pub const DIRECTONLY: c_int = 0x0008_0000;
    pub const VALUE_NULL: c_int = 5;
    pub const INDEX_CONSTRAINT_EQ: u8 = 2;
    pub const MUTEX_STATIC_VFS3: c_int = 13;
}
