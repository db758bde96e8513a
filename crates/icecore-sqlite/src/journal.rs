//! The files that SQLite puts beside a database for a transaction: emulated, except for those that came along.

use crate::arrival::{self, HotEnd};
use crate::bindings::{File, Vfs, code, open};
use crate::errors::{Fault, Result};
use crate::locks::FileState;
use crate::recent::HotJournal;
use crate::registry::PoolUse;
use crate::superjournal::SuperJournal;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

/// Above this size a journal goes to a temporary file.
const MEMORY_BYTES_MAX: u64 = 1 << 20;

/// No VFS is made for more at a time than one page, and the one for Unix writes no more than 128 KiB.
const PART_BYTES: usize = 65536;

/// A file that is not a database.
pub enum SideFile {
    /// A rollback journal of our own transaction: nobody else sees it, and it is gone after a crash.
    Memory(MemoryFile),
    /// A super-journal.
    Super {
        /// What it is.
        journal: Arc<SuperJournal>,
        /// The pool that the transaction is in.
        pool: PoolUse,
    },
    /// A real journal, being read, and ended by the first write.
    Real(Box<RealJournal>),
}

/// A journal that came along with a database file.
pub struct RealJournal {
    /// It, in the version that is being rolled back.
    pub hot: HotJournal,
    /// The database's entry in the lock table, if somebody has the database open.
    pub state: Option<Arc<FileState>>,
    /// The pool.
    pub pool: PoolUse,
    /// Where temporary files come from.
    pub base: *mut Vfs,
}

impl SideFile {
    /// `xRead`. Returns false if the file ends before; the rest of the buffer is zero then.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let length = match self {
            Self::Memory(file) => file.read(offset, buffer)?,
            Self::Super { journal, .. } => journal.read(offset, buffer),
            Self::Real(real) => real.hot.view.read(real.hot.inode, offset, buffer)?,
        };
        buffer[length..].fill(0);
        Ok(length == buffer.len())
    }

    /// `xWrite`
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.end_real()?;
        match self {
            Self::Memory(file) => file.write(offset, data),
            Self::Super { journal, pool } => {
                check_child(pool, data)?;
                journal.append(offset, data)
            }
            Self::Real(_) => Ok(()),
        }
    }

    /// `xTruncate`
    pub fn truncate(&mut self, size: u64) -> Result<()> {
        self.end_real()?;
        match self {
            Self::Memory(file) => file.truncate(size),
            Self::Super { journal, .. } => {
                journal.truncate(size);
                Ok(())
            }
            Self::Real(_) => Ok(()),
        }
    }

    /// `xFileSize`
    pub fn size(&self) -> Result<u64> {
        match self {
            Self::Memory(file) => Ok(file.size),
            Self::Super { journal, .. } => Ok(journal.size()),
            Self::Real(real) => Ok(real.hot.view.attributes(real.hot.inode)?.size),
        }
    }

    /// Whether the file belongs to a process that this one was forked from.
    pub fn is_inherited(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Super { pool, .. } => !pool.registry().is_here(),
            Self::Real(real) => !real.pool.registry().is_here(),
        }
    }

    /// The first change to a real journal is the end of it: SQLite has rolled it back. What SQLite keeps using
    /// under its name is emulated from then on.
    fn end_real(&mut self) -> Result<()> {
        let Self::Real(real) = self else { return Ok(()) };
        let state = real.state.as_deref();
        let ended = match state {
            Some(state) => {
                arrival::end_journal(&HotEnd { pool: &real.pool, state, journal: real.hot.inode })?
            }
            None => false,
        };
        if !ended {
            return Err(Fault::new(
                code::IOERR_WRITE,
                "a journal was to be ended that nobody has rolled back",
            ));
        }
        *self = Self::Memory(MemoryFile::new(real.base));
        Ok(())
    }
}

/// A transaction over several files must have all of them in one pool: only then is there one record for it.
fn check_child(pool: &PoolUse, names: &[u8]) -> Result<()> {
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name);
        if pool.behind(&name).is_none() {
            let database = name.strip_suffix(crate::path::JOURNAL_SUFFIX).unwrap_or(&name);
            return Err(Fault::new(
                code::IOERR_WRITE,
                format!(
                    "{database} lies outside pool {} and cannot be committed together with a file in it, as no \
                     crash-proof way exists: write to them in separate transactions",
                    pool.name
                ),
            ));
        }
    }
    Ok(())
}

thread_local! {
    /// The memory of the last journal, for the next one: most transactions are small, and many.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A private file: in memory while it is small, in an unlinked temporary file when it is not.
pub struct MemoryFile {
    bytes: Vec<u8>,
    size: u64,
    spilled: Option<TemporaryFile>,
    /// Where temporary files come from.
    base: *mut Vfs,
}

// SAFETY: the VFS pointer is only used to open files, which SQLite allows from any thread.
unsafe impl Send for MemoryFile {}

impl MemoryFile {
    /// An empty file.
    pub fn new(base: *mut Vfs) -> Self {
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        Self { bytes, size: 0, spilled: None, base }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length =
            usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let target = &mut buffer[..length];
        if let Some(file) = &self.spilled {
            file.read(offset, target)?;
        } else if length > 0 {
            let start = offset as usize;
            target.copy_from_slice(&self.bytes[start..start + length]);
        }
        Ok(length)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        if self.spilled.is_none() && end > MEMORY_BYTES_MAX {
            self.spill()?;
        }
        if let Some(file) = &self.spilled {
            file.write(offset, data)?;
        } else {
            let (start, end) = (offset as usize, end as usize);
            if start == self.bytes.len() {
                self.bytes.extend_from_slice(data);
            } else {
                if self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                self.bytes[start..end].copy_from_slice(data);
            }
        }
        self.size = self.size.max(end);
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        if size >= self.size {
            return Ok(());
        }
        self.size = size;
        if size == 0 {
            self.spilled = None;
        }
        match &self.spilled {
            Some(file) => file.truncate(size),
            None => {
                self.bytes.truncate(size as usize);
                Ok(())
            }
        }
    }

    fn spill(&mut self) -> Result<()> {
        let file = TemporaryFile::open(self.base)?;
        file.write(0, &self.bytes)?;
        self.bytes = Vec::new();
        self.spilled = Some(file);
        Ok(())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() > 0 && bytes.capacity() as u64 <= 2 * MEMORY_BYTES_MAX {
            let _ = SPARE.try_with(|spare| spare.set(bytes));
        }
    }
}

/// A temporary file of the default VFS, where SQLite's settings for temporary files apply. Unlinked at once.
struct TemporaryFile {
    file: *mut File,
    layout: Layout,
}

impl TemporaryFile {
    fn open(base: *mut Vfs) -> Result<Self> {
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

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        for (index, part) in buffer.chunks_mut(PART_BYTES).enumerate() {
            let (length, position) = (part.len() as i32, offset + (index * PART_BYTES) as u64);
            let target = part.as_mut_ptr().cast();
            // SAFETY: the open file, and a buffer of the length given.
            let result = unsafe { (self.methods().read)(self.file, target, length, position.cast_signed()) };
            Self::check(result)?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        for (index, part) in data.chunks(PART_BYTES).enumerate() {
            let (length, position) = (part.len() as i32, offset + (index * PART_BYTES) as u64);
            let source = part.as_ptr().cast();
            // SAFETY: the open file, and data of the length given.
            let result = unsafe { (self.methods().write)(self.file, source, length, position.cast_signed()) };
            Self::check(result)?;
        }
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
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
