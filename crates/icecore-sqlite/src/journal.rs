//! The files that SQLite puts beside a database for a transaction: emulated, except for those that came
//! along.

use crate::arrival::{self, HotEnd};
use crate::bindings::{Vfs, code};
use crate::errors::{Fault, Result};
use crate::locks::FileState;
use crate::memory::MemoryFile;
use crate::recent::HotJournal;
use crate::registry::PoolUse;
use crate::superjournal::{NOT_TOGETHER, SuperJournal, names_in};
use std::sync::Arc;

/// A file that is not a database.
pub enum SideFile {
    /// A rollback journal of our own transaction: no other connection sees it, and it is gone after a crash.
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
    /// The database's entry in the lock table, if a connection has the database open.
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
                pool.end_other_super_journals(journal, data);
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
            Self::Memory(file) => Ok(file.size()),
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

    /// The first change to a real journal is the end of it: SQLite has rolled it back. What SQLite keeps
    /// using under its name is emulated from then on.
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
            return Err(Fault::new(code::IOERR_WRITE, "a journal was to be ended that was not rolled back"));
        }
        *self = Self::Memory(MemoryFile::new(real.base));
        Ok(())
    }
}

/// A transaction over several files must have all of them in one pool: only then is there one record for it.
fn check_child(pool: &PoolUse, names: &[u8]) -> Result<()> {
    for name in names_in(names) {
        let name = String::from_utf8_lossy(name);
        if pool.behind(&name).is_none() {
            let database = name.strip_suffix(crate::path::JOURNAL_SUFFIX).unwrap_or(&name);
            let text = format!(
                "a file in pool {} cannot be committed together with {database}, {NOT_TOGETHER}",
                pool.name
            );
            return Err(Fault::new(code::MISUSE, text));
        }
    }
    Ok(())
}
