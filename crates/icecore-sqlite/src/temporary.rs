//! Temporary files of the default VFS.

use crate::bindings::{File, Vfs, code, open};
use crate::errors::{Fault, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::ptr;

/// No VFS is made for more at a time than one page, and the one for Unix writes no more than 128 KiB.
const PART_BYTES: usize = 65536;

/// A temporary file of the default VFS, where SQLite's settings for temporary files apply. Unlinked at once.
pub struct TemporaryFile {
    file: *mut File,
    layout: Layout,
}

impl TemporaryFile {
    /// A new one, empty.
    pub fn open(base: *mut Vfs) -> Result<Self> {
        // SAFETY: the default VFS, registered as long as SQLite runs.
        let (bytes, opener) = unsafe { ((*base).file_bytes, (*base).open) };
        let size = usize::try_from(bytes).unwrap_or(0).max(size_of::<File>());
        let failed =
            |number| Fault::new(number, "a journal outgrew memory, and no temporary file could be made");
        let layout = Layout::from_size_align(size, 16).map_err(|_| failed(code::NOMEM))?;
        let opener = opener.ok_or_else(|| failed(code::CANTOPEN))?;
        // SAFETY: the size is not zero.
        let file = unsafe { alloc_zeroed(layout) }.cast::<File>();
        if file.is_null() {
            return Err(failed(code::NOMEM));
        }
        let this = Self { file, layout };
        let flags =
            open::READWRITE | open::CREATE | open::EXCLUSIVE | open::DELETEONCLOSE | open::TEMP_JOURNAL;
        // SAFETY: memory of the size that this VFS asks for, zeroed, and no name: a temporary file.
        let result = unsafe { opener(base, ptr::null(), file, flags, ptr::null_mut()) };
        if result == code::OK { Ok(this) } else { Err(failed(result)) }
    }

    fn methods(&self) -> &crate::bindings::IoMethods {
        // SAFETY: the file was opened successfully, so its methods are set, for as long as it is open.
        unsafe { &*(*self.file).methods }
    }

    fn check(result: i32) -> Result<()> {
        if result == code::OK {
            return Ok(());
        }
        Err(Fault::new(result, "a journal's temporary file failed"))
    }

    /// Hands a file control to it.
    ///
    /// # Safety
    /// The argument must suit the operation.
    pub unsafe fn control(&self, operation: c_int, argument: *mut c_void) -> Result<()> {
        // SAFETY: the open file, and the caller's promise.
        match unsafe { (self.methods().file_control)(self.file, operation, argument) } {
            code::OK => Ok(()),
            refused => Err(Fault::quiet(refused)),
        }
    }

    /// Fills the buffer; the file has to be long enough.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        for (index, part) in buffer.chunks_mut(PART_BYTES).enumerate() {
            let (length, position) = (part.len() as i32, offset + (index * PART_BYTES) as u64);
            let target = part.as_mut_ptr().cast();
            // SAFETY: the open file, and a buffer of the length given.
            let result = unsafe { (self.methods().read)(self.file, target, length, position.cast_signed()) };
            Self::check(result)?;
        }
        Ok(())
    }

    /// Writes all of `data`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        for (index, part) in data.chunks(PART_BYTES).enumerate() {
            let (length, position) = (part.len() as i32, offset + (index * PART_BYTES) as u64);
            let source = part.as_ptr().cast();
            // SAFETY: the open file, and data of the length given.
            let result = unsafe { (self.methods().write)(self.file, source, length, position.cast_signed()) };
            Self::check(result)?;
        }
        Ok(())
    }

    /// Cuts the file.
    pub fn truncate(&self, size: u64) -> Result<()> {
        // SAFETY: the open file.
        Self::check(unsafe { (self.methods().truncate)(self.file, size.cast_signed()) })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // SAFETY: allocated in `open` with this layout; methods are null if opening failed.
        unsafe {
            if let Some(methods) = (*self.file).methods.as_ref() {
                (methods.close)(self.file);
            }
            dealloc(self.file.cast(), self.layout);
        }
    }
}
