//! The calls of SQLite's C interface that a script makes, without the conveniences of a wrapper: numbers and
//! texts arrive here as SQLite answers them.
//!
//! Statements, blobs and backups keep their connection open (`Rc`), so none of them can outlive it.

use rusqlite::ffi;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::Once;

/// An extended result code, the message, and the number of the operating system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub code: c_int,
    pub message: String,
    pub errno: c_int,
}

/// A connection.
pub struct Link {
    db: *mut ffi::sqlite3,
}

/// What a connection says about itself after a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    pub changes: c_int,
    pub total_changes: c_int,
    pub last_rowid: i64,
    pub autocommit: bool,
    /// 0 nothing, 1 a read transaction, 2 a write transaction.
    pub transaction: c_int,
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("no zero in a script")
}

/// # Safety
/// `text` must be null or end in a zero byte.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Interrupts whatever is running.
unsafe extern "C" fn interrupt(_: *mut c_void) -> c_int {
    1
}

thread_local! {
    /// How many first phases of a commit, of this thread, succeed before one fails.
    static PHASES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Where SQLite simulates faults: the first phase of a file's commit, after the super-journal is there.
const COMMIT_PHASE_ONE: c_int = 400;

/// Whether SQLite is to fail at this point.
unsafe extern "C" fn fault(place: c_int) -> c_int {
    if place != COMMIT_PHASE_ONE {
        return 0;
    }
    let left = PHASES_LEFT.get();
    PHASES_LEFT.set(left.and_then(|left| left.checked_sub(1)));
    c_int::from(left == Some(0))
}

/// Runs `work`, and lets the commit of a file fail after so many others.
pub fn with_failing_commit<T>(after: u32, work: impl FnOnce() -> T) -> T {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let fault = fault as unsafe extern "C" fn(c_int) -> c_int;
        // SAFETY: the argument that SQLite wants for it; the function only looks at its own thread.
        let code = unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_FAULT_INSTALL, fault) };
        assert_eq!(code, 0);
    });
    PHASES_LEFT.set(Some(after));
    let result = work();
    PHASES_LEFT.set(None);
    result
}

impl Link {
    /// Opens a database by its URI, with extended codes and without waiting for locks.
    pub fn open(uri: &str, flags: c_int) -> Result<Rc<Self>, Failure> {
        let mut db = null_mut();
        // SAFETY: a path that ends in a zero byte, and room for the answer.
        let code = unsafe { ffi::sqlite3_open_v2(c_text(uri).as_ptr(), &raw mut db, flags, null()) };
        let link = Rc::new(Self { db });
        if code != ffi::SQLITE_OK {
            return Err(link.failure());
        }
        // SAFETY: an open connection.
        unsafe { ffi::sqlite3_extended_result_codes(db, 1) };
        Ok(link)
    }

    /// The failure of the last call.
    pub fn failure(&self) -> Failure {
        // SAFETY: a connection, open or failed to open.
        unsafe {
            Failure {
                code: ffi::sqlite3_extended_errcode(self.db),
                message: text_of(ffi::sqlite3_errmsg(self.db)),
                errno: ffi::sqlite3_system_errno(self.db),
            }
        }
    }

    fn check(&self, code: c_int) -> Result<(), Failure> {
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(Failure { code, ..self.failure() }) }
    }

    pub fn facts(&self) -> Facts {
        // SAFETY: an open connection.
        unsafe {
            Facts {
                changes: ffi::sqlite3_changes(self.db),
                total_changes: ffi::sqlite3_total_changes(self.db),
                last_rowid: ffi::sqlite3_last_insert_rowid(self.db),
                autocommit: ffi::sqlite3_get_autocommit(self.db) != 0,
                transaction: ffi::sqlite3_txn_state(self.db, null()),
            }
        }
    }

    /// The first statement in `sql`, and how many bytes of the text it took. No statement is white space.
    pub fn prepare(self: &Rc<Self>, sql: &str) -> Result<(Option<Statement>, usize), Failure> {
        let text = c_text(sql);
        let (mut statement, mut tail) = (null_mut(), null());
        // SAFETY: an open connection, a text that ends in a zero byte, and room for both answers.
        let code =
            unsafe { ffi::sqlite3_prepare_v2(self.db, text.as_ptr(), -1, &raw mut statement, &raw mut tail) };
        self.check(code)?;
        let used = tail.addr() - text.as_ptr().addr();
        let statement = (!statement.is_null()).then(|| Statement { link: Rc::clone(self), statement });
        Ok((statement, used))
    }

    /// Whatever runs is interrupted after so many steps of SQLite's machine; zero ends that.
    pub fn interrupt_after(&self, steps: c_int) {
        let handler = (steps > 0).then_some(interrupt as unsafe extern "C" fn(*mut c_void) -> c_int);
        // SAFETY: an open connection and a function that uses nothing.
        unsafe { ffi::sqlite3_progress_handler(self.db, steps, handler, null_mut()) };
    }

    /// A file control that takes and answers an `int`.
    pub fn control_number(&self, schema: &str, operation: c_int, value: c_int) -> (c_int, c_int) {
        let mut value = value;
        // SAFETY: an open connection, and an operation whose argument is an `int`.
        let code = unsafe {
            let argument = (&raw mut value).cast();
            ffi::sqlite3_file_control(self.db, c_text(schema).as_ptr(), operation, argument)
        };
        (code, value)
    }

    /// `SQLITE_FCNTL_TEMPFILENAME`: the code, and whether there is a name.
    pub fn has_temporary_name(&self, schema: &str) -> (c_int, bool) {
        let mut name: *mut c_char = null_mut();
        // SAFETY: an open connection, and room for the name, which has to be freed.
        unsafe {
            let (schema, argument) = (c_text(schema), (&raw mut name).cast());
            let operation = ffi::SQLITE_FCNTL_TEMPFILENAME;
            let code = ffi::sqlite3_file_control(self.db, schema.as_ptr(), operation, argument);
            let has_name = !name.is_null() && *name != 0;
            ffi::sqlite3_free(name.cast());
            (code, has_name)
        }
    }

    pub fn open_blob(self: &Rc<Self>, place: &BlobPlace<'_>) -> Result<Blob, Failure> {
        let [schema, table, column] = [place.schema, place.table, place.column].map(c_text);
        let mut blob = null_mut();
        // SAFETY: an open connection, texts that end in a zero byte, and room for the answer.
        let code = unsafe {
            ffi::sqlite3_blob_open(
                self.db,
                schema.as_ptr(),
                table.as_ptr(),
                column.as_ptr(),
                place.row,
                c_int::from(place.for_writing),
                &raw mut blob,
            )
        };
        self.check(code)?;
        Ok(Blob { link: Rc::clone(self), blob })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: everything that used the connection held it, so it is gone.
        let code = unsafe { ffi::sqlite3_close(self.db) };
        assert!(code == ffi::SQLITE_OK || std::thread::panicking(), "closing a connection: {code}");
    }
}

/// A prepared statement.
pub struct Statement {
    link: Rc<Link>,
    statement: *mut ffi::sqlite3_stmt,
}

impl Statement {
    /// The next row. `None` at the end.
    pub fn step(&mut self) -> Result<Option<String>, Failure> {
        // SAFETY: a statement of an open connection.
        match unsafe { ffi::sqlite3_step(self.statement) } {
            ffi::SQLITE_ROW => Ok(Some(self.row())),
            ffi::SQLITE_DONE => Ok(None),
            code => Err(Failure { code, ..self.link.failure() }),
        }
    }

    fn row(&self) -> String {
        // SAFETY: a statement of an open connection.
        let columns = unsafe { ffi::sqlite3_column_count(self.statement) };
        (0..columns).map(|column| self.cell(column)).collect::<Vec<_>>().join("|")
    }

    fn cell(&self, column: c_int) -> String {
        // SAFETY: a statement with a row, and a column that it has.
        unsafe {
            match ffi::sqlite3_column_type(self.statement, column) {
                ffi::SQLITE_NULL => "NULL".to_owned(),
                ffi::SQLITE_INTEGER => ffi::sqlite3_column_int64(self.statement, column).to_string(),
                ffi::SQLITE_FLOAT => format!("{:?}", ffi::sqlite3_column_double(self.statement, column)),
                kind => {
                    // A text in the encoding of the database would not be one of UTF-8.
                    let data = match kind {
                        ffi::SQLITE_TEXT => ffi::sqlite3_column_text(self.statement, column),
                        _ => ffi::sqlite3_column_blob(self.statement, column).cast::<u8>(),
                    };
                    let length = ffi::sqlite3_column_bytes(self.statement, column);
                    let length = usize::try_from(length).expect("a length");
                    let bytes = if data.is_null() { &[] } else { std::slice::from_raw_parts(data, length) };
                    if kind == ffi::SQLITE_TEXT { text_cell(bytes) } else { summary(bytes) }
                }
            }
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: a statement of an open connection, finalised once. Its code is that of the last step.
        unsafe { ffi::sqlite3_finalize(self.statement) };
    }
}

/// Long texts would make a failed comparison unreadable.
fn text_cell(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= 300 { format!("'{text}'") } else { format!("text of {}", summary(bytes)) }
}

/// Length and a sum that depends on the order.
pub fn summary(bytes: &[u8]) -> String {
    let step = |sum: u64, &byte: &u8| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte);
    format!("{} bytes #{:x}", bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Which cell to open as a blob.
pub struct BlobPlace<'name> {
    pub schema: &'name str,
    pub table: &'name str,
    pub column: &'name str,
    pub row: i64,
    pub for_writing: bool,
}

/// A cell that is read and written in parts.
pub struct Blob {
    link: Rc<Link>,
    blob: *mut ffi::sqlite3_blob,
}

impl Blob {
    pub fn link(&self) -> &Rc<Link> {
        &self.link
    }

    pub fn length(&self) -> c_int {
        // SAFETY: an open blob.
        unsafe { ffi::sqlite3_blob_bytes(self.blob) }
    }

    pub fn read(&mut self, offset: c_int, length: c_int) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; usize::try_from(length).expect("a length")];
        // SAFETY: an open blob and a buffer of that length.
        let code = unsafe { ffi::sqlite3_blob_read(self.blob, bytes.as_mut_ptr().cast(), length, offset) };
        self.link.check(code)?;
        Ok(bytes)
    }

    pub fn write(&mut self, offset: c_int, bytes: &[u8]) -> Result<(), Failure> {
        let length = c_int::try_from(bytes.len()).expect("a length");
        // SAFETY: an open blob and data of that length.
        let code = unsafe { ffi::sqlite3_blob_write(self.blob, bytes.as_ptr().cast(), length, offset) };
        self.link.check(code)
    }

    pub fn reopen(&mut self, row: i64) -> Result<(), Failure> {
        // SAFETY: an open blob.
        let code = unsafe { ffi::sqlite3_blob_reopen(self.blob, row) };
        self.link.check(code)
    }

    pub fn close(mut self) -> Result<(), Failure> {
        let blob = std::mem::replace(&mut self.blob, null_mut());
        // SAFETY: an open blob, closed once: the null pointer that stays is none.
        let code = unsafe { ffi::sqlite3_blob_close(blob) };
        self.link.check(code)
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        // SAFETY: an open blob or null, for which SQLite does nothing.
        unsafe { ffi::sqlite3_blob_close(self.blob) };
    }
}

/// An online backup. As SQLite demands, nothing else may use the destination meanwhile: the world sees to it.
pub struct Backup {
    destination: Rc<Link>,
    /// Only to keep it open.
    _source: Rc<Link>,
    backup: *mut ffi::sqlite3_backup,
}

impl Backup {
    pub fn begin(from: (&Rc<Link>, &str), to: (&Rc<Link>, &str)) -> Result<Self, Failure> {
        let (source_schema, schema) = (c_text(from.1), c_text(to.1));
        // SAFETY: two open connections and texts that end in a zero byte.
        let backup =
            unsafe { ffi::sqlite3_backup_init(to.0.db, schema.as_ptr(), from.0.db, source_schema.as_ptr()) };
        if backup.is_null() {
            return Err(to.0.failure());
        }
        Ok(Self { destination: Rc::clone(to.0), _source: Rc::clone(from.0), backup })
    }

    /// Whether the connection is the destination.
    pub fn goes_to(&self, link: &Rc<Link>) -> bool {
        Rc::ptr_eq(&self.destination, link)
    }

    /// Whether the connection takes part.
    pub fn uses(&self, link: &Rc<Link>) -> bool {
        self.goes_to(link) || Rc::ptr_eq(&self._source, link)
    }

    /// The code of a step, the pages that remain and all pages.
    pub fn step(&mut self, pages: c_int) -> (c_int, c_int, c_int) {
        // SAFETY: a backup that has not ended.
        unsafe {
            let code = ffi::sqlite3_backup_step(self.backup, pages);
            let remaining = ffi::sqlite3_backup_remaining(self.backup);
            (code, remaining, ffi::sqlite3_backup_pagecount(self.backup))
        }
    }

    /// Ends it; the message is the destination's.
    pub fn finish(mut self) -> Result<(), Failure> {
        let backup = std::mem::replace(&mut self.backup, null_mut());
        // SAFETY: a backup that has not ended; it ends once, as the null pointer that stays is none.
        let code = unsafe { ffi::sqlite3_backup_finish(backup) };
        self.destination.check(code)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        // SAFETY: a backup that has not ended, or null, for which SQLite does nothing.
        unsafe { ffi::sqlite3_backup_finish(self.backup) };
    }
}
