//! From SQLite's writes to a committed version.
//!
//! SQLite syncs a database file before it has decided to commit, and not at all with `synchronous=OFF`. So
//! the writes collect in a group that no other connection sees, and a sync only notes that the commit is to
//! be durable. The commit itself is SQLite's announcement that phase two is done, when nothing can follow any
//! more. Then the group, with every truncation that came after the sync, is appended as one record, made
//! durable, and published. Unlocking without that announcement is a rollback, and costs nothing.

use crate::bindings::code;
use crate::database::{Database, Source};
use crate::errors::{Fault, Result, forget_last_error};
use crate::locks::{FileVersion, Level};
use crate::prepared::{self, Prepared};
use crate::registry::ConnectionState;
use crate::store::Group;
use crate::superjournal::{NOT_TOGETHER, Outcome, SuperJournal};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Offset of the read and write versions in a database's header: 1 for a rollback journal, 2 for WAL.
const FORMAT_VERSIONS: u64 = 18;

/// What a handle is writing.
#[derive(Default)]
pub enum Transaction {
    /// Nothing.
    #[default]
    Idle,
    /// Writes that no other connection sees.
    Open {
        /// The writes.
        group: Group,
        /// A sync was asked for.
        durable: bool,
    },
    /// The writes wait for the commit of several files.
    Parked(Arc<SuperJournal>),
    /// SQLite is rolling back a journal that came with the file; the end of the journal will commit it.
    RollingBack {
        /// The writes, until they are parked in the lock table for the connection that ends the journal.
        group: Option<Group>,
        /// They have been parked.
        parked: bool,
    },
    /// A write failed: everything goes back to the base version, and what SQLite still writes to get there
    /// is not needed.
    Doomed {
        /// The failure.
        fault: Fault,
        /// SQLite has written back what it wanted to. The next write belongs to another transaction.
        played_back: bool,
    },
}

impl Transaction {
    /// The state in which the end of a journal commits.
    pub fn rolling_back() -> Self {
        Self::RollingBack { group: None, parked: false }
    }

    fn doomed(fault: &Fault) -> Self {
        Self::Doomed { fault: fault.clone(), played_back: false }
    }
}

impl Database {
    /// `xWrite`
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let inode = self.inode;
        let Some(group) = self.group_for_writing()? else { return Ok(()) };
        let changed = without_wal_mode(offset, data);
        let written = group.write(inode, offset, changed.as_deref().unwrap_or(data));
        self.page_cache_differs |= changed.is_some();
        match written {
            Ok(()) => {
                self.size = self.size.max(offset + data.len() as u64);
                Ok(())
            }
            Err(error) => Err(self.doom(error.into())),
        }
    }

    /// `xTruncate`
    pub fn truncate(&mut self, size: u64) -> Result<()> {
        let inode = self.inode;
        let outcome = match self.truncate_parked(size) {
            Some(outcome) => outcome,
            None => match self.group_for_writing()? {
                Some(group) => group.truncate(inode, size),
                None => return Ok(()),
            },
        };
        match outcome {
            Ok(()) => {
                self.size = size;
                Ok(())
            }
            Err(error) => Err(self.doom(error.into())),
        }
    }

    /// Truncates a file that waits for a commit without a super-journal. SQLite truncates a file that shrinks
    /// after its sync, just before it announces the end of phase two: the file must not leave the
    /// transaction. `None`: it does not wait.
    fn truncate_parked(&self, size: u64) -> Option<icecore::Result<()>> {
        let Transaction::Parked(together) = &self.transaction else { return None };
        if !together.is_unnamed() {
            return None;
        }
        let outcome = together.with_parked(self.id, |prepared| prepared.group.truncate(self.inode, size));
        if let Some(Err(_)) = outcome {
            // No other file may commit a part of it.
            drop(together.take_back(self.id));
        }
        outcome
    }

    /// The group that a write goes to. `None` if the write has no effect, as the transaction has failed.
    fn group_for_writing(&mut self) -> Result<Option<&mut Group>> {
        if self.level < Level::Reserved {
            return Err(Fault::new(
                code::IOERR_WRITE,
                "a database is written only under a lock: a VFS on top that splits it into several files cannot be used",
            ));
        }
        self.take_back_parked()?;
        self.notice_end_of_roll_back()?;
        if let Transaction::Doomed { played_back: true, .. } = self.transaction {
            self.transaction = Transaction::Idle;
        }
        if let Transaction::Idle = self.transaction {
            self.check()?;
            self.transaction = Transaction::Open { group: self.begin()?, durable: false };
        }
        if let Transaction::RollingBack { group: None, .. } = self.transaction {
            self.transaction = Transaction::RollingBack { group: Some(self.begin()?), parked: false };
        }
        Ok(match &mut self.transaction {
            Transaction::Open { group, .. } | Transaction::RollingBack { group: Some(group), .. } => {
                Some(group)
            }
            _ => None,
        })
    }

    fn begin(&self) -> Result<Group> {
        // No other connection has written since: that was looked at when RESERVED was taken.
        self.head()?.0.begin(&self.pinned()?.view)
    }

    /// A write after the file was parked under a super-journal: SQLite is rolling back, or truncates after
    /// the commit.
    fn take_back_parked(&mut self) -> Result<()> {
        let Transaction::Parked(super_journal) = &self.transaction else { return Ok(()) };
        match super_journal.outcome() {
            Outcome::Waiting | Outcome::GivenUp => {
                self.transaction = match super_journal.take_back(self.id) {
                    Some(prepared) => Transaction::Open { group: prepared.group, durable: true },
                    None => Transaction::Idle,
                };
            }
            Outcome::Committed => {
                self.transaction = Transaction::Idle;
                self.adopt_published()?;
                self.note_commit();
            }
            Outcome::Failed(fault) => self.transaction = Transaction::doomed(&fault),
        }
        Ok(())
    }

    fn doom(&mut self, fault: Fault) -> Fault {
        self.transaction = Transaction::doomed(&fault);
        self.size = self.pin.as_ref().map_or(0, crate::database::Pin::size);
        fault
    }

    /// `xSync`: the commit to come has to survive a crash.
    pub fn sync(&mut self) -> Result<()> {
        self.pool.registry().check_process()?;
        match &mut self.transaction {
            Transaction::Open { durable, .. } => *durable = true,
            // SQLite announces a sync, at which the writes were parked, before it asks for it.
            Transaction::Parked(together) => together.make_durable(),
            _ => {}
        }
        Ok(())
    }

    /// `SQLITE_FCNTL_SYNC`: SQLite has written all that it means to write before its sync. With the name of a
    /// super-journal, the file is one of several.
    pub fn seal(&mut self, super_journal: Option<&str>) -> Result<()> {
        match &mut self.transaction {
            Transaction::Doomed { played_back, .. } => *played_back = true,
            Transaction::RollingBack { group, parked } => {
                let group = group.take();
                *parked = true;
                self.park_roll_back(group)?;
            }
            Transaction::Open { .. } => {
                if let Some(super_journal) = self.joint_transaction(super_journal)? {
                    self.park(super_journal)?;
                }
            }
            Transaction::Idle | Transaction::Parked(_) => {}
        }
        Ok(())
    }

    /// What the writes to this file and to others are committed by: SQLite's super-journal, or one without a
    /// name where SQLite has none. `None` if no other file of the connection is being written.
    fn joint_transaction(&self, name: Option<&str>) -> Result<Option<Arc<SuperJournal>>> {
        let Some(name) = name else {
            let several = |state: &&Arc<ConnectionState>| state.writers.load(Ordering::Relaxed) > 1;
            let connection = self.modes.writing.as_ref().filter(several);
            return Ok(connection.map(|state| state.unnamed_transaction(&self.pool)));
        };
        let known = self.pool.behind(name).and_then(|rest| self.pool.super_journal(rest));
        known.map(Some).ok_or_else(|| {
            let database = &self.names.database;
            Fault::new(code::MISUSE, format!("{database} cannot be committed together with {NOT_TOGETHER}"))
        })
    }

    fn park(&mut self, super_journal: Arc<SuperJournal>) -> Result<()> {
        let Transaction::Open { group, durable } = std::mem::take(&mut self.transaction) else {
            return Ok(());
        };
        // SQLite makes a super-journal only for what has to survive a crash.
        super_journal.park(self.id, self.prepare(group)?, durable || !super_journal.is_unnamed());
        self.transaction = Transaction::Parked(super_journal);
        Ok(())
    }

    fn park_roll_back(&self, group: Option<Group>) -> Result<()> {
        let group = match group {
            Some(group) => group,
            None => self.begin()?,
        };
        self.head()?.1.park(self.prepare(group)?);
        Ok(())
    }

    fn prepare(&self, group: Group) -> Result<Prepared> {
        let (head, state) = self.head()?;
        let former = self.pinned()?.clone();
        Ok(Prepared { group, head: Arc::clone(head), state: Arc::clone(state), former })
    }

    /// `SQLITE_FCNTL_COMMIT_PHASETWO`: the commit.
    pub fn commit(&mut self) -> Result<()> {
        if let Transaction::Parked(together) = &self.transaction
            && together.is_unnamed()
        {
            // The first file commits all of them. Each learns the outcome below.
            let _ = together.commit(&self.pool);
        }
        self.take_back_parked()?;
        self.notice_end_of_roll_back()?;
        match std::mem::take(&mut self.transaction) {
            Transaction::Open { group, durable } => self.commit_group(group, durable),
            Transaction::Doomed { fault, played_back } => {
                // In exclusive locking mode this may be the next transaction already, with nothing in it.
                if played_back && self.in_exclusive_mode() {
                    return Ok(());
                }
                self.transaction = Transaction::doomed(&fault);
                Err(fault)
            }
            Transaction::Idle | Transaction::Parked(_) | Transaction::RollingBack { .. } => Ok(()),
        }
    }

    fn commit_group(&mut self, group: Group, durable: bool) -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        let committed = self.prepare(group).and_then(|prepared| {
            // Of a dataset that was rolled back meanwhile, the store itself refuses it.
            prepared::commit(&self.pool, vec![prepared], durable)
        });
        match committed {
            Ok(published) => {
                published.into_iter().for_each(|pinned| self.adopt(pinned));
                self.note_commit();
                Ok(())
            }
            Err(fault) => Err(self.doom(fault)),
        }
    }

    /// SQLite's page cache is that of the version that was just committed, but for a header that was changed
    /// on its way: that has to be read again.
    fn note_commit(&mut self) {
        let differs = std::mem::take(&mut self.page_cache_differs);
        self.seen = Some(if differs { FileVersion::NONE } else { self.pinned_version() });
        forget_last_error();
    }

    /// Ends a transaction at an unlock: what is not committed by now never will be.
    pub fn discard_transaction(&mut self) -> Result<()> {
        let result = match std::mem::take(&mut self.transaction) {
            Transaction::Parked(super_journal) => match super_journal.outcome() {
                // Without phase two SQLite's page cache is not that of the new version: `seen` stays behind.
                Outcome::Committed => self.adopt_published(),
                Outcome::Waiting | Outcome::GivenUp | Outcome::Failed(_) => {
                    drop(super_journal.take_back(self.id));
                    // SQLite has restored its pages from the journal. What it kept nevertheless is not used.
                    self.seen = Some(FileVersion::NONE);
                    Ok(())
                }
            },
            Transaction::RollingBack { .. } => self.end_roll_back(),
            Transaction::Idle | Transaction::Open { .. } | Transaction::Doomed { .. } => Ok(()),
        };
        self.size = self.pin.as_ref().map_or(0, crate::database::Pin::size);
        result
    }

    /// In exclusive locking mode no unlock says that the roll-back is over, and committed.
    pub fn notice_end_of_roll_back(&mut self) -> Result<()> {
        let Transaction::RollingBack { group: None, parked: true } = self.transaction else { return Ok(()) };
        if self.head()?.1.has_parked() {
            return Ok(());
        }
        self.transaction = Transaction::Idle;
        self.adopt_published()
    }

    /// A journal that came with the file was rolled back, and ended, or not.
    fn end_roll_back(&mut self) -> Result<()> {
        let Source::Head { state, .. } = &self.source else { return Ok(()) };
        if state.take_parked().is_some() {
            // Going on would mean reading what the roll-back was to repair.
            return Err(Fault::new(
                code::IOERR,
                format!("{} was rolled back but not ended", self.names.journal),
            ));
        }
        self.adopt_published()
    }

    /// Whether what is being written can be read through `read`; runs it if so.
    pub fn with_open_group<T>(&self, read: impl FnOnce(&Group) -> T) -> Option<T> {
        match &self.transaction {
            Transaction::Open { group, .. } | Transaction::RollingBack { group: Some(group), .. } => {
                Some(read(group))
            }
            Transaction::Parked(super_journal) => {
                super_journal.with_parked(self.id, |prepared| read(&prepared.group))
            }
            _ => None,
        }
    }
}

/// A first page that would switch the file to WAL mode, changed so that it does not: the copy of a database
/// in WAL mode arrives like this.
fn without_wal_mode(offset: u64, data: &[u8]) -> Option<Vec<u8>> {
    let versions = FORMAT_VERSIONS as usize;
    if offset != 0 || data.len() < versions + 2 || (data[versions] != 2 && data[versions + 1] != 2) {
        return None;
    }
    let mut changed = data.to_vec();
    changed[versions..versions + 2].copy_from_slice(&[1, 1]);
    Some(changed)
}
