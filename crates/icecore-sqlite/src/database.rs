//! An open database file: which version it holds, and how it moves from one to the next.

use crate::arrival;
use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::locks::{FileState, FileVersion, HandleId, Level, Pinned};
use crate::opening::Request;
use crate::overlay::Overlay;
use crate::recent::{self, HotJournal, Names};
use crate::registry::{ConnectionState, PoolUse};
use crate::sqlite::Api;
use crate::store::{HeadFile, View};
use crate::transaction::Transaction;
use crate::turns::Refusals;
use icecore::units::InodeNumber;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// An open database file.
pub struct Database {
    /// The SQLite that uses it.
    pub api: &'static Api,
    /// Its names.
    pub names: Arc<Names>,
    /// Its number in its dataset.
    pub inode: InodeNumber,
    /// Nothing may be written through this handle.
    pub read_only: bool,
    /// Head or fixed version.
    pub source: Source,
    /// This handle in the lock table.
    pub id: HandleId,
    /// What is held of the lock.
    pub level: Level,
    /// Since when RESERVED was refused.
    pub refusals: Refusals,
    /// The version read from; there is none while nothing is locked.
    pub pin: Option<Pin>,
    /// Length as SQLite has to see it, its own writes included.
    pub size: u64,
    /// The version that SQLite's page cache belongs to.
    pub seen: Option<FileVersion>,
    /// What this handle is writing.
    pub transaction: Transaction,
    /// What it wrote is not in all what SQLite has in its page cache.
    pub page_cache_differs: bool,
    /// The locking mode, and what else pragmas have set.
    pub modes: Modes,
    /// A panic left it in a state that the code does not expect.
    pub broken: bool,
    /// What it was opened with: it is found again in a pool that was opened anew.
    pub request: Request,
    /// Last, so that the pool is closed after everything else has let go of it.
    pub pool: PoolUse,
}

/// Where a database's content comes from.
pub enum Source {
    /// The head of a dataset: it moves on.
    Head {
        /// The file.
        file: Arc<HeadFile>,
        /// Its entry in the lock table.
        state: Arc<FileState>,
    },
    /// A snapshot, or the head at the moment of opening with `immutable=1`: [`Database::pin`] is set for
    /// good.
    Fixed {
        /// The name of the dataset.
        dataset: String,
    },
}

/// A pinned version and what lies over it.
pub struct Pin {
    /// The version.
    pub pinned: Pinned,
    /// Contents of a journal or write-ahead log that came with the file, where it cannot be written.
    pub overlay: Option<Arc<Overlay>>,
    /// A real journal that SQLite is about to roll back.
    pub hot: Option<HotJournal>,
}

/// What pragmas have set.
#[derive(Default)]
pub struct Modes {
    /// `locking_mode=EXCLUSIVE` was set on this file.
    pub exclusive: bool,
    /// What the files of the connection share, once SQLite has said which connection it is.
    pub connection: Option<Arc<ConnectionState>>,
    /// The connection that counts this handle as one that is locked for writing.
    pub writing: Option<Arc<ConnectionState>>,
    /// The lock table counts this handle as a reader in exclusive mode.
    pub counted: bool,
    /// The journal mode asked for last, in lower case.
    pub journal: Option<String>,
    /// `SQLITE_FCNTL_POWERSAFE_OVERWRITE` was switched off: SQLite journals whole sectors.
    pub sectors_torn: bool,
    /// `SQLITE_FCNTL_PERSIST_WAL` was switched on.
    pub persist_wal: bool,
}

impl Modes {
    fn begin_writing(&mut self) {
        self.end_writing();
        self.writing.clone_from(&self.connection);
        if let Some(connection) = &self.writing {
            connection.writers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn end_writing(&mut self) {
        if let Some(connection) = self.writing.take() {
            connection.writers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Pin {
    /// A version with nothing over it.
    pub fn plain(pinned: Pinned) -> Self {
        Self { pinned, overlay: None, hot: None }
    }

    /// The same version, found again somewhere else by a handle that only reads.
    pub fn moved_to(&self, pinned: Pinned) -> Self {
        Self { pinned, overlay: self.overlay.clone(), hot: None }
    }

    /// Length of the file in this version.
    pub fn size(&self) -> u64 {
        self.overlay.as_ref().map_or(self.pinned.facts.size, |overlay| overlay.size())
    }
}

impl Database {
    /// Whether the locking mode is EXCLUSIVE, as far as one can tell.
    pub fn in_exclusive_mode(&self) -> bool {
        let connection = || self.modes.connection.as_ref();
        self.modes.exclusive || connection().is_some_and(|flags| flags.exclusive.load(Ordering::Relaxed))
    }

    /// File and lock table entry. An error for fixed versions: they are never written.
    pub fn head(&self) -> Result<(&Arc<HeadFile>, &Arc<FileState>)> {
        match &self.source {
            Source::Head { file, state } => Ok((file, state)),
            Source::Fixed { .. } => Err(self.refuse_writing()),
        }
    }

    /// The name of the dataset.
    pub fn dataset(&self) -> Result<String> {
        match &self.source {
            Source::Head { file, .. } => file.dataset(),
            Source::Fixed { dataset } => Ok(dataset.clone()),
        }
    }

    /// The refusal of any write.
    pub fn refuse_writing(&self) -> Fault {
        Fault::new(code::READONLY, format!("{} is open for reading only", self.names.database))
    }

    /// An error unless the handle may be used: it belongs to this process, and its file was not rolled back.
    pub fn check(&self) -> Result<()> {
        self.check_process()?;
        match &self.source {
            Source::Head { file, .. } => file.check_generation(),
            Source::Fixed { .. } => Ok(()),
        }
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        self.pool.registry().check_process()
    }

    /// `xLock`
    pub fn lock(&mut self, level: Level) -> Result<()> {
        if self.level >= level || matches!(self.source, Source::Fixed { .. }) {
            self.check_process()?;
            self.level = self.level.max(level);
            return Ok(());
        }
        if self.level > Level::None {
            self.check_process()?;
            return self.lock_head(level);
        }
        self.follow_pool()?;
        loop {
            // What SHARED finds in order stays so: a commit fails if the dataset was rolled back since.
            let locked = self.check().and_then(|()| self.lock_head(level));
            // What failed on a pool that is outdated need not fail on the present one.
            if locked.is_ok() || !self.follow_pool()? {
                return locked;
            }
        }
    }

    fn lock_head(&mut self, level: Level) -> Result<()> {
        match level {
            Level::None => Ok(()),
            Level::Shared => self.lock_shared(),
            Level::Reserved => self.lock_reserved(),
            Level::Exclusive => self.lock_exclusive(),
        }
    }

    fn lock_shared(&mut self) -> Result<()> {
        let exclusive_mode = self.in_exclusive_mode();
        let (file, state) = self.head()?;
        if self.refusals.are_many(Instant::now) {
            state.await_turn(self.id);
        }
        let pinned = state.share(self.id, exclusive_mode, file)?;
        let settled = pinned.settled;
        self.pin = Some(Pin::plain(pinned));
        self.level = Level::Shared;
        self.modes.counted = exclusive_mode;
        if !settled && let Err(fault) = arrival::settle(self) {
            self.unlock(Level::None)?;
            return Err(fault);
        }
        let pin = self.pin.as_ref();
        self.size = pin.map_or(0, Pin::size);
        recent::remember(&self.names, pin.and_then(|pin| pin.hot.clone()));
        Ok(())
    }

    fn lock_reserved(&mut self) -> Result<()> {
        if self.read_only {
            return Err(self.refuse_writing());
        }
        let (file, state) = self.head()?;
        let Pinned { view, facts, version, .. } = self.pinned()?;
        if let Err(fault) = state.reserve(self.id, *version, || file.facts_since(view, *facts)) {
            self.refusals.add(Instant::now());
            return Err(fault);
        }
        file.set_writing(true);
        self.refusals.clear();
        self.level = Level::Reserved;
        self.modes.begin_writing();
        Ok(())
    }

    fn lock_exclusive(&mut self) -> Result<()> {
        let before = self.level;
        if before < Level::Reserved {
            // SQLite does so only to roll a journal back.
            self.lock_reserved()?;
        }
        let (_, state) = self.head()?;
        if let Err(fault) = state.exclude(self.id, self.in_exclusive_mode(), self.modes.counted) {
            if before < Level::Reserved {
                state.release(self.id, Level::Reserved, Level::Shared, self.modes.counted);
                self.level = Level::Shared;
                self.end_writing();
            }
            return Err(fault);
        }
        self.level = Level::Exclusive;
        if before < Level::Reserved && self.pin.as_ref().is_some_and(|pin| pin.hot.is_some()) {
            self.transaction = Transaction::rolling_back();
        }
        Ok(())
    }

    /// `xUnlock`, to none or SHARED. Whatever was not committed is gone.
    pub fn unlock(&mut self, keep: Level) -> Result<()> {
        self.pool.registry().check_process()?;
        if self.level <= keep {
            return Ok(());
        }
        if let Source::Fixed { .. } = self.source {
            self.level = keep;
            return Ok(());
        }
        let discarded = self.discard_transaction();
        let counted = self.modes.counted;
        let (_, state) = self.head()?;
        state.release(self.id, self.level, keep, counted);
        self.level = keep;
        self.end_writing();
        if keep == Level::None {
            self.refusals.end_of_lock();
            if self.pin.take().is_some_and(|pin| pin.hot.is_some()) {
                recent::forget_journal(&self.names);
            }
            self.modes.counted = false;
        }
        // Only a reader that goes on has to know.
        if keep == Level::Shared { discarded } else { Ok(()) }
    }

    fn end_writing(&mut self) {
        self.modes.end_writing();
        if let Source::Head { file, .. } = &self.source {
            file.set_writing(false);
        }
    }

    /// Moves on to the version that is published now: that of a transaction of our own.
    pub fn adopt_published(&mut self) -> Result<()> {
        let (file, state) = self.head()?;
        let pinned = state.pin_again(file)?;
        self.adopt(pinned);
        recent::forget_journal(&self.names);
        Ok(())
    }

    /// Moves on to a version that was committed through this handle.
    pub fn adopt(&mut self, pinned: Pinned) {
        self.size = pinned.facts.size;
        self.pin = Some(Pin::plain(pinned));
    }

    /// The version pinned; a number that fits nothing while there is none.
    pub fn pinned_version(&self) -> FileVersion {
        self.pin.as_ref().map(|pin| pin.pinned.version).unwrap_or_default()
    }

    /// The pinned version; an error if nothing is locked.
    pub fn pinned(&self) -> Result<&Pinned> {
        let missing = || Fault::new(code::IOERR, "the database file is not locked");
        self.pin.as_ref().map(|pin| &pin.pinned).ok_or_else(missing)
    }

    /// `xCheckReservedLock`: whether another connection's transaction explains a journal. It never explains
    /// one in the version that is pinned here: that came with the file.
    pub fn has_writer(&self) -> bool {
        let hot = self.pin.as_ref().is_some_and(|pin| pin.hot.is_some());
        match &self.source {
            Source::Head { state, .. } => !hot && state.has_writer(),
            Source::Fixed { .. } => false,
        }
    }

    /// Whether the file has lost its name.
    pub fn is_unlinked(&self) -> bool {
        self.pin.as_ref().is_some_and(|pin| pin.pinned.facts.links == 0)
    }

    /// `xFileSize`
    pub fn file_size(&mut self) -> Result<u64> {
        self.notice_end_of_roll_back()?;
        match &self.pin {
            Some(_) => Ok(self.size),
            None => {
                self.follow_pool()?;
                Ok(self.unpinned()?.1)
            }
        }
    }

    /// What is published now, for the few reads that SQLite makes without a lock.
    pub fn unpinned(&self) -> Result<(View, u64)> {
        let (file, state) = self.head()?;
        let (view, facts) = state.published(|| file.now())?;
        Ok((view, facts.size))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Never in a forked child: there a handle is leaked before it comes to this.
        let _ = self.unlock(Level::None);
        recent::forget(&self.names);
    }
}
