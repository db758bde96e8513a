//! Calling into SQLite: through the table that a loading program hands over, or through linked symbols.
//!
//! Both come down to one [`Api`] of typed function pointers, so that the rest of the door does not know which
//! form it was built into. There is one `Api` for every SQLite library in the process, as a program may well
//! contain two (its own, and one inside another extension).

use crate::bindings::{ApiRoutines, Connection, Context, Module, Mutex, Symbol, Value, Vfs, slot};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// An SQL function.
pub type SqlFunction = unsafe extern "C" fn(*mut Context, c_int, *mut *mut Value);
/// What SQLite calls to free something.
pub type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
/// What SQLite calls for each new connection, and for an extension that is loaded.
pub type EntryPoint = unsafe extern "C" fn(*mut Connection, *mut *mut c_char, *const ApiRoutines) -> c_int;

type CreateFunction = unsafe extern "C" fn(
    *mut Connection,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
    Option<SqlFunction>,
    Option<SqlFunction>,
    Option<unsafe extern "C" fn(*mut Context)>,
    Destructor,
) -> c_int;
type CreateModule =
    unsafe extern "C" fn(*mut Connection, *const c_char, *const Module, *mut c_void, Destructor) -> c_int;

/// Oldest SQLite that does everything the door relies on (3.31.0 of January 2020).
const VERSION_MIN: c_int = 3_031_000;

/// The functions of one SQLite library. They live as long as it does, which outlives its extensions.
#[derive(Clone)]
pub struct Api {
    declare_vtab: unsafe extern "C" fn(*mut Connection, *const c_char) -> c_int,
    free: unsafe extern "C" fn(*mut c_void),
    malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    result_error: unsafe extern "C" fn(*mut Context, *const c_char, c_int),
    result_int64: unsafe extern "C" fn(*mut Context, i64),
    result_null: unsafe extern "C" fn(*mut Context),
    result_text: unsafe extern "C" fn(*mut Context, *const c_char, c_int, Destructor),
    value_bytes: unsafe extern "C" fn(*mut Value) -> c_int,
    value_text: unsafe extern "C" fn(*mut Value) -> *const u8,
    value_type: unsafe extern "C" fn(*mut Value) -> c_int,
    create_module: CreateModule,
    file_control: unsafe extern "C" fn(*mut Connection, *const c_char, c_int, *mut c_void) -> c_int,
    mutex_alloc: unsafe extern "C" fn(c_int) -> *mut Mutex,
    mutex_enter: unsafe extern "C" fn(*mut Mutex),
    mutex_leave: unsafe extern "C" fn(*mut Mutex),
    vfs_find: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    vfs_register: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    context_db_handle: unsafe extern "C" fn(*mut Context) -> *mut Connection,
    create_function: CreateFunction,
    log: unsafe extern "C" fn(c_int, *const c_char, ...),
    uri_boolean: unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int,
    uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    auto_extension: unsafe extern "C" fn(Symbol) -> c_int,
}

impl Api {
    /// Reads a table of routines.
    ///
    /// # Safety
    /// `routines` must be what SQLite handed to an extension's entry point, or a table with at least the used
    /// slots filled with the functions of these names.
    pub unsafe fn from_routines(routines: *const ApiRoutines) -> Result<Self, String> {
        if routines.is_null() {
            return Err("SQLite was built without support for extensions".to_owned());
        }
        // SAFETY: the caller vouches for the table; the version function is in every table ever made.
        let version = unsafe {
            let entry = (&raw const (*routines).slots).cast::<Symbol>().add(slot::LIBVERSION_NUMBER).read();
            let function = std::mem::transmute::<Symbol, Option<unsafe extern "C" fn() -> c_int>>(entry);
            function.map_or(0, |function| function())
        };
        if version < VERSION_MIN {
            return Err(format!(
                "icecore needs SQLite {} or newer, and this is {}",
                version_text(VERSION_MIN),
                version_text(version)
            ));
        }
        // SAFETY: a SQLite that new has more slots than we know, all of them filled with functions of the
        // types that `sqlite3ext.h` gives them; `Api` repeats those types.
        unsafe { Self::cast(routines) }.ok_or_else(|| "SQLite's table of routines has holes".to_owned())
    }

    /// # Safety
    /// As for [`Api::from_routines`], and the table must be complete up to the last slot.
    #[expect(clippy::missing_transmute_annotations, reason = "the type of each field is the annotation")]
    unsafe fn cast(routines: *const ApiRoutines) -> Option<Self> {
        // SAFETY: the caller vouches for the length of the table.
        let slots = unsafe { &(*routines).slots };
        macro_rules! function {
            ($slot:ident) => {
                // SAFETY: both are function pointers of one size; the field names the type in the header.
                unsafe { std::mem::transmute(slots[slot::$slot]?) }
            };
        }
        Some(Self {
            declare_vtab: function!(DECLARE_VTAB),
            free: function!(FREE),
            malloc: function!(MALLOC),
            result_error: function!(RESULT_ERROR),
            result_int64: function!(RESULT_INT64),
            result_null: function!(RESULT_NULL),
            result_text: function!(RESULT_TEXT),
            value_bytes: function!(VALUE_BYTES),
            value_text: function!(VALUE_TEXT),
            value_type: function!(VALUE_TYPE),
            create_module: function!(CREATE_MODULE_V2),
            file_control: function!(FILE_CONTROL),
            mutex_alloc: function!(MUTEX_ALLOC),
            mutex_enter: function!(MUTEX_ENTER),
            mutex_leave: function!(MUTEX_LEAVE),
            vfs_find: function!(VFS_FIND),
            vfs_register: function!(VFS_REGISTER),
            context_db_handle: function!(CONTEXT_DB_HANDLE),
            create_function: function!(CREATE_FUNCTION_V2),
            log: function!(LOG),
            uri_boolean: function!(URI_BOOLEAN),
            uri_parameter: function!(URI_PARAMETER),
            auto_extension: function!(AUTO_EXTENSION),
        })
    }

    /// Puts a line into the log that the program may have set up with `SQLITE_CONFIG_LOG`.
    pub fn log(&self, code: c_int, text: &str) {
        let text = c_string(text);
        // SAFETY: "%s" takes exactly one string that ends in a zero byte.
        unsafe { (self.log)(code, c"%s".as_ptr(), text.as_ptr()) }
    }

    /// A copy of `text` that SQLite will free; null when memory is short.
    pub fn owned_text(&self, text: &str) -> *mut c_char {
        let text = c_string(text);
        let bytes = text.as_bytes_with_nul();
        // SAFETY: the new memory has room for the bytes copied.
        unsafe {
            let memory = (self.malloc)(c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)).cast::<u8>();
            if !memory.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
            }
            memory.cast()
        }
    }

    /// Frees what [`Api::owned_text`] or SQLite allocated.
    ///
    /// # Safety
    /// `text` must be null or come from this library's allocator, and not be used afterwards.
    pub unsafe fn free_text(&self, text: *mut c_char) {
        // SAFETY: the caller's promise.
        unsafe { (self.free)(text.cast()) }
    }

    /// The VFS of that name, the default one for `None`; null if there is none.
    pub fn find_vfs(&self, name: Option<&CStr>) -> *mut Vfs {
        // SAFETY: null or a string that ends in a zero byte.
        unsafe { (self.vfs_find)(name.map_or(std::ptr::null(), CStr::as_ptr)) }
    }

    /// Adds a VFS to the list; it does not become the default.
    ///
    /// # Safety
    /// `vfs` must be complete and stay where it is for ever.
    pub unsafe fn register_vfs(&self, vfs: *mut Vfs) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.vfs_register)(vfs, 0) }
    }

    /// Has `entry` called for every new connection.
    pub fn auto_extension(&self, entry: EntryPoint) -> c_int {
        // SAFETY: SQLite stores the pointer and calls it with the arguments of an entry point.
        unsafe {
            (self.auto_extension)(Some(std::mem::transmute::<EntryPoint, unsafe extern "C" fn()>(entry)))
        }
    }

    /// Runs `work` while no other thread runs code under one of SQLite's static mutexes.
    pub fn under_mutex<T>(&self, number: c_int, work: impl FnOnce() -> T) -> T {
        // SAFETY: static mutexes always exist (null in a library without threads, which is allowed below).
        let mutex = unsafe { (self.mutex_alloc)(number) };
        // SAFETY: entered and left in pairs by one thread; `work` does not unwind out of its callers' guard
        // without the process having reported a bug, and then the mutex stays taken rather than the list
        // broken.
        unsafe { (self.mutex_enter)(mutex) };
        let result = work();
        // SAFETY: entered above.
        unsafe { (self.mutex_leave)(mutex) };
        result
    }

    /// Sends a file control to one schema of a connection (`None`: main).
    ///
    /// # Safety
    /// The connection must be open and used by this thread, and `argument` fit the operation.
    pub unsafe fn file_control(
        &self,
        connection: *mut Connection,
        schema: Option<&CStr>,
        operation: c_int,
        argument: *mut c_void,
    ) -> c_int {
        let schema = schema.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: the caller's promise.
        unsafe { (self.file_control)(connection, schema, operation, argument) }
    }

    /// The value of a URI parameter.
    ///
    /// # Safety
    /// `name` must be a file name that SQLite handed to `xOpen` for a main database.
    pub unsafe fn uri_parameter(&self, name: *const c_char, key: &CStr) -> Option<String> {
        // SAFETY: the caller's promise; the answer is null or text that lives as long as `name`.
        unsafe {
            let value = (self.uri_parameter)(name, key.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }
    }

    /// Whether a URI parameter is set to something that means yes.
    ///
    /// # Safety
    /// As for [`Api::uri_parameter`].
    pub unsafe fn uri_boolean(&self, name: *const c_char, key: &CStr) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (self.uri_boolean)(name, key.as_ptr(), 0) != 0 }
    }

    /// Registers an SQL function of a connection, for any number of arguments.
    ///
    /// # Safety
    /// The connection must be open and used by this thread.
    pub unsafe fn create_function(
        &self,
        connection: *mut Connection,
        name: &CStr,
        flags: c_int,
        function: SqlFunction,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            (self.create_function)(
                connection,
                name.as_ptr(),
                -1,
                flags,
                std::ptr::null_mut(),
                Some(function),
                None,
                None,
                None,
            )
        }
    }

    /// Registers a virtual table of a connection.
    ///
    /// # Safety
    /// As for [`Api::create_function`]; `module` and `data` must live for ever.
    pub unsafe fn create_module(
        &self,
        connection: *mut Connection,
        name: &CStr,
        module: *const Module,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.create_module)(connection, name.as_ptr(), module, data, None) }
    }

    /// Declares the columns of a virtual table to SQLite.
    ///
    /// # Safety
    /// Only from within the table's constructor.
    pub unsafe fn declare_table(&self, connection: *mut Connection, statement: &CStr) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.declare_vtab)(connection, statement.as_ptr()) }
    }

    /// The connection that runs the function.
    ///
    /// # Safety
    /// Only from within an SQL function, with its context.
    pub unsafe fn connection_of(&self, context: *mut Context) -> *mut Connection {
        // SAFETY: the caller's promise.
        unsafe { (self.context_db_handle)(context) }
    }

    /// The text of an argument; `None` for NULL.
    ///
    /// # Safety
    /// `value` must be an argument of the running function or filter.
    pub unsafe fn text_of(&self, value: *mut Value) -> Option<String> {
        // SAFETY: the text is valid for the length that is asked for after it, until the next conversion.
        unsafe {
            if (self.value_type)(value) == crate::bindings::number::VALUE_NULL {
                return None;
            }
            let text = (self.value_text)(value);
            let length = usize::try_from((self.value_bytes)(value)).unwrap_or(0);
            if text.is_null() {
                return None;
            }
            Some(String::from_utf8_lossy(std::slice::from_raw_parts(text, length)).into_owned())
        }
    }

    /// Answers with text.
    ///
    /// # Safety
    /// As for [`Api::connection_of`].
    pub unsafe fn answer_text(&self, context: *mut Context, text: &str) {
        let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        // SAFETY: -1 (`SQLITE_TRANSIENT`) makes SQLite copy the text before this returns.
        unsafe {
            let transient = std::mem::transmute::<isize, Destructor>(-1);
            (self.result_text)(context, text.as_ptr().cast(), length, transient);
        }
    }

    /// Answers with a number.
    ///
    /// # Safety
    /// As for [`Api::connection_of`].
    pub unsafe fn answer_integer(&self, context: *mut Context, number: i64) {
        // SAFETY: the caller's promise.
        unsafe { (self.result_int64)(context, number) }
    }

    /// Answers with NULL.
    ///
    /// # Safety
    /// As for [`Api::connection_of`].
    pub unsafe fn answer_null(&self, context: *mut Context) {
        // SAFETY: the caller's promise.
        unsafe { (self.result_null)(context) }
    }

    /// Answers with an error.
    ///
    /// # Safety
    /// As for [`Api::connection_of`].
    pub unsafe fn answer_error(&self, context: *mut Context, text: &str) {
        let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        // SAFETY: SQLite copies the text.
        unsafe { (self.result_error)(context, text.as_ptr().cast(), length) }
    }
}

/// `text` up to its first zero byte, for C.
fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

fn version_text(version: c_int) -> String {
    format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000)
}

/// The table of the SQLite that is linked into this program.
#[cfg(feature = "static")]
pub fn linked_routines() -> *const ApiRoutines {
    use rusqlite::ffi;
    use std::sync::OnceLock;
    static TABLE: OnceLock<ApiRoutines> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut slots: [Symbol; slot::COUNT] = [None; slot::COUNT];
        macro_rules! fill {
            ($($slot:ident = $function:ident),* $(,)?) => {
                // SAFETY: a function's address; it is cast back to the type of that very function.
                $(slots[slot::$slot] = unsafe {
                    std::mem::transmute::<*const (), Symbol>(ffi::$function as *const ())
                };)*
            };
        }
        fill! {
            DECLARE_VTAB = sqlite3_declare_vtab,
            FREE = sqlite3_free,
            LIBVERSION_NUMBER = sqlite3_libversion_number,
            MALLOC = sqlite3_malloc,
            RESULT_ERROR = sqlite3_result_error,
            RESULT_INT64 = sqlite3_result_int64,
            RESULT_NULL = sqlite3_result_null,
            RESULT_TEXT = sqlite3_result_text,
            VALUE_BYTES = sqlite3_value_bytes,
            VALUE_TEXT = sqlite3_value_text,
            VALUE_TYPE = sqlite3_value_type,
            CREATE_MODULE_V2 = sqlite3_create_module_v2,
            FILE_CONTROL = sqlite3_file_control,
            MUTEX_ALLOC = sqlite3_mutex_alloc,
            MUTEX_ENTER = sqlite3_mutex_enter,
            MUTEX_LEAVE = sqlite3_mutex_leave,
            VFS_FIND = sqlite3_vfs_find,
            VFS_REGISTER = sqlite3_vfs_register,
            CONTEXT_DB_HANDLE = sqlite3_context_db_handle,
            CREATE_FUNCTION_V2 = sqlite3_create_function_v2,
            LOG = sqlite3_log,
            URI_BOOLEAN = sqlite3_uri_boolean,
            URI_PARAMETER = sqlite3_uri_parameter,
            AUTO_EXTENSION = sqlite3_auto_extension,
        }
        ApiRoutines { slots }
    })
}
