//! The pools that this process has open through the door: each once, however many files of it are in use.
//!
//! A forked child starts with an empty registry of its own. What it inherited stays in memory but is never
//! touched again, neither pools nor locks, as its parent goes on using them.

use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::idle::{self, Folder, LINGER, Slots};
use crate::locks::FileState;
use crate::path::REGISTERED;
use crate::store::{self, FileKey, Pool, Wish};
use crate::superjournal::SuperJournal;
use icecore::{Condvar, ProcessMark};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long a connection that is opened waits for another process to let go of the pool.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is tried within that time.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A pool, or the store's error from opening it.
type Outcome = std::result::Result<PoolUse, icecore::Error>;

/// Everything the door knows, for one process.
pub struct Registry {
    mark: ProcessMark,
    pub pools: Mutex<Slots>,
    /// A pool is idle, or is to be closed at once.
    pub idle_changed: Condvar,
    /// Whether there is a thread that closes idle pools; unset before it is needed.
    pub has_closer: OnceLock<bool>,
    connections: Mutex<HashMap<usize, Weak<ConnectionState>>>,
}

/// A pool of a registry.
pub struct Slot {
    /// The pool.
    pub pool: Arc<OpenPool>,
    uses: usize,
    /// Registered by the program, which also closes it.
    kept: bool,
    /// How long it stays open when nothing uses it.
    pub linger: Duration,
    /// Nothing uses it, and it is closed then.
    pub idle_until: Option<Instant>,
    /// Where it was found.
    folder: Option<Folder>,
}

impl Slot {
    fn new(pool: &Arc<OpenPool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            uses: 0,
            kept: false,
            linger: LINGER,
            idle_until: None,
            folder: Folder::at(&pool.name),
        }
    }

    /// Whether the pool is good for this; else it is to be opened anew.
    fn serves(&self, wish: Wish) -> Result<bool> {
        let pool = &self.pool;
        match (pool.opened_for, wish) {
            _ if pool.pool.is_outdated() && self.kept => {
                let text = "another process has opened the pool for writing since it was registered";
                Err(Fault::new(code::IOERR, text))
            }
            (Wish::Read, Wish::Write) => Err(Fault::new(
                code::CANTOPEN,
                format!(
                    "pool {} is open in this process for reading only: close what was opened with pool=ro first",
                    pool.name
                ),
            )),
            (Wish::Share, Wish::Write | Wish::Read) => Ok(false),
            _ => Ok(!pool.pool.is_outdated()),
        }
    }

    fn take_up(&mut self) -> Arc<OpenPool> {
        self.uses += 1;
        if self.idle_until.take().is_some() {
            self.pool.pool.set_idle(None);
        }
        Arc::clone(&self.pool)
    }

    /// Whether an idle pool cannot be used again: its folder was replaced, it takes no more writes, or, where
    /// it was only read, another process has written to it.
    fn is_spent(&self) -> bool {
        let is_elsewhere = || self.folder != Folder::at(&self.pool.name);
        let pool = &self.pool;
        let is_useless = || if pool.is_shared() { pool.pool.is_outdated() } else { pool.pool.is_read_only() };
        self.idle_until.is_some() && (is_elsewhere() || is_useless())
    }
}

/// An open pool and what its files have in common.
pub struct OpenPool {
    /// The pool.
    pub pool: Pool,
    /// Directory or `/@NAME`.
    pub name: String,
    /// What it was opened for.
    opened_for: Wish,
    /// The super-journals that are not committed, by their paths behind the pool. One that was given up stays
    /// until one of its files takes part in the next: a file is rolled back only while its super-journal
    /// exists.
    super_journals: Mutex<HashMap<String, Arc<SuperJournal>>>,
    files: Mutex<HashMap<FileKey, Weak<FileState>>>,
    /// Files whose last commit may not be on disk: what is held back of them stays so, whichever connection
    /// opens them next.
    held_back: Mutex<Vec<Arc<FileState>>>,
}

/// What the files of one connection have in common.
#[derive(Default)]
pub struct ConnectionState {
    /// `PRAGMA locking_mode=EXCLUSIVE` was given without a schema, or may have been.
    pub exclusive: AtomicBool,
    /// Files that are locked for writing.
    pub writers: AtomicUsize,
    /// By pool, the transaction that files without a super-journal take part in.
    unnamed: Mutex<BTreeMap<String, Arc<SuperJournal>>>,
}

impl ConnectionState {
    /// The transaction of this connection in a pool that further files may join.
    pub fn unnamed_transaction(&self, pool: &OpenPool) -> Arc<SuperJournal> {
        let mut unnamed = self.unnamed.lock();
        if let Some(known) = unnamed.get(&pool.name)
            && known.is_waiting()
        {
            return Arc::clone(known);
        }
        let fresh = Arc::new(SuperJournal::unnamed());
        unnamed.insert(pool.name.clone(), Arc::clone(&fresh));
        fresh
    }
}

/// Keeps a pool open. When the last use of a pool that the door opened ends, the pool is idle, and closed
/// some time later.
pub struct PoolUse {
    registry: &'static Registry,
    pool: Arc<OpenPool>,
}

static CURRENT: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());

/// The registry of this process, if there is one.
pub fn current_if_any() -> Option<&'static Registry> {
    let known = CURRENT.load(Ordering::Acquire);
    // SAFETY: a registry that was published here is never freed.
    unsafe { known.as_ref() }.filter(|registry| registry.mark.is_here())
}

/// The registry of this process.
pub fn current() -> &'static Registry {
    static AT_EXIT: Once = Once::new();
    let known = CURRENT.load(Ordering::Acquire);
    if let Some(registry) = current_if_any() {
        return registry;
    }
    AT_EXIT.call_once(idle::close_at_exit);
    let fresh = Box::into_raw(Box::new(Registry {
        mark: ProcessMark::current(),
        pools: Mutex::default(),
        idle_changed: Condvar::new(),
        has_closer: OnceLock::new(),
        connections: Mutex::default(),
    }));
    match CURRENT.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: published now, so it lives for ever.
        Ok(_) => unsafe { &*fresh },
        Err(winner) => {
            // SAFETY: made above and never shown to another thread.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: another thread of this process published it.
            unsafe { &*winner }
        }
    }
}

impl Registry {
    /// Whether this process is the one that the registry belongs to.
    pub fn is_here(&self) -> bool {
        self.mark.is_here()
    }

    /// An error in a forked child: what the registry holds is its parent's.
    pub fn check_process(&self) -> Result<()> {
        if self.mark.is_here() {
            return Ok(());
        }
        Err(icecore::Error::Forked { owner: self.mark.process() }.into())
    }

    /// Uses the pool in `name` (a directory, or `/@NAME` of a registered one), opening it if need be. Another
    /// process that has it open is waited for as long as the patience lasts: it may be a command that is
    /// about to end. `linger`: how long the pool stays open when nothing uses it, if that is to change.
    pub fn use_pool(
        &'static self,
        name: &str,
        wish: Wish,
        patience: Duration,
        linger: Option<Duration>,
    ) -> Result<PoolUse> {
        let name = canonical(name)?;
        let deadline = Instant::now() + patience;
        loop {
            match self.try_use_pool(&name, wish, linger)? {
                Err(icecore::Error::PoolInUse { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// The inner error is the store's, from opening the pool.
    fn try_use_pool(&'static self, name: &str, wish: Wish, linger: Option<Duration>) -> Result<Outcome> {
        let mut pools = self.pools.lock();
        if pools.get(name).is_some_and(Slot::is_spent) {
            idle::close(&mut pools, name);
        }
        if let Some(slot) = pools.get_mut(name)
            && slot.serves(wish)?
        {
            slot.linger = linger.unwrap_or(slot.linger);
            return Ok(Ok(PoolUse { registry: self, pool: slot.take_up() }));
        }
        if name.starts_with(REGISTERED) {
            return Err(Fault::new(code::CANTOPEN, format!("no pool is registered as {name}")));
        }
        // Under the lock: a second opening of the same pool must not find it "in use" by ourselves.
        Ok(store::open_pool(Path::new(name), wish).map(|(pool, opened_for)| {
            let pool = Arc::new(OpenPool { opened_for, ..OpenPool::new(pool, name.to_owned()) });
            let slot = Slot { linger: linger.unwrap_or(LINGER), uses: 1, ..Slot::new(&pool) };
            // Handles of one that was shared follow, or go on with what it was.
            pools.insert(name.to_owned(), slot);
            PoolUse { registry: self, pool }
        }))
    }

    #[cfg(feature = "static")]
    /// Makes a pool reachable as `/@NAME/...`. It stays open until it is taken out again. Answers what its
    /// paths begin with.
    pub fn register(&self, name: &str, pool: Pool) -> Result<String> {
        if name.is_empty() || name.contains('/') {
            return Err(Fault::new(
                code::MISUSE,
                format!("{name:?} cannot name a pool: it must be one part of a path"),
            ));
        }
        self.keep(format!("{REGISTERED}{name}"), pool)
    }

    #[cfg(feature = "static")]
    /// The same by its directory, which then has no other way in.
    pub fn register_at(&self, folder: &str, pool: Pool) -> Result<String> {
        self.keep(canonical(folder)?, pool)
    }

    #[cfg(feature = "static")]
    fn keep(&self, key: String, pool: Pool) -> Result<String> {
        let mut pools = self.pools.lock();
        if pools.contains_key(&key) {
            return Err(Fault::new(code::MISUSE, format!("a pool is registered as {key} already")));
        }
        let pool = Arc::new(OpenPool::new(pool, key.clone()));
        pools.insert(key.clone(), Slot { kept: true, ..Slot::new(&pool) });
        Ok(key)
    }

    #[cfg(feature = "static")]
    /// Takes a registered pool out again. Files that are open stay usable.
    pub fn unregister(&self, key: &str) {
        self.pools.lock().remove(key);
    }

    /// The pool that a path lies in, if it is in use, and what follows it in the path.
    pub fn pool_of(&'static self, path: &str) -> Option<(PoolUse, String)> {
        let mut pools = self.pools.lock();
        let below = |name: &str| path.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
        let name = pools.keys().filter(|name| below(name).is_some()).max_by_key(|name| name.len())?.clone();
        let rest = below(&name)?.to_owned();
        let slot = pools.get_mut(&name)?;
        (!slot.pool.pool.is_outdated()).then(|| (PoolUse { registry: self, pool: slot.take_up() }, rest))
    }

    /// Whether a pool is in use.
    pub fn is_used(&self, name: &str) -> bool {
        canonical(name).is_ok_and(|name| self.pools.lock().contains_key(&name))
    }

    #[cfg(feature = "static")]
    /// What the paths of a pool begin with that is in use already, so that no caller opens a second way into
    /// it.
    pub fn name_of(&self, pool: &Pool) -> Option<String> {
        let pools = self.pools.lock();
        pools
            .iter()
            .find(|(_, slot)| slot.pool.pool.id() == pool.id() && !slot.pool.is_shared())
            .map(|(name, _)| name.clone())
    }

    /// What the files of the connection at this address share.
    pub fn connection(&self, address: usize) -> Arc<ConnectionState> {
        let mut connections = self.connections.lock();
        if let Some(flags) = connections.get(&address).and_then(Weak::upgrade) {
            return flags;
        }
        connections.retain(|_, flags| flags.strong_count() > 0);
        let flags = Arc::new(ConnectionState::default());
        connections.insert(address, Arc::downgrade(&flags));
        flags
    }

    /// Ends one use; with the last one a pool that the door opened is idle, or closed.
    fn release(&'static self, pool: &Arc<OpenPool>) {
        let mut pools = self.pools.lock();
        let Some(slot) = pools.get_mut(&pool.name).filter(|slot| Arc::ptr_eq(&slot.pool, pool)) else {
            return;
        };
        slot.uses -= 1;
        if slot.uses > 0 || slot.kept || self.keep_idle(slot) {
            return;
        }
        // Under the lock, so that the next thread that opens the pool finds it closed.
        if let Err(error) = pool.pool.close() {
            crate::errors::remember(&Fault::from(error).text);
        }
        pools.remove(&pool.name);
    }
}

/// The one name of a pool, whatever links led to it.
fn canonical(name: &str) -> Result<String> {
    if name.starts_with(REGISTERED) {
        return Ok(name.to_owned());
    }
    let path = std::fs::canonicalize(name)
        .map_err(|error| Fault::new(code::CANTOPEN, format!("cannot find the pool {name}: {error}")))?;
    let not_text = |path: std::ffi::OsString| {
        Fault::new(code::CANTOPEN, format!("the path {} is not UTF-8", Path::new(&path).display()))
    };
    path.into_os_string().into_string().map_err(not_text)
}

impl OpenPool {
    fn new(pool: Pool, name: String) -> Self {
        Self {
            pool,
            name,
            opened_for: Wish::Write,
            super_journals: Mutex::default(),
            files: Mutex::default(),
            held_back: Mutex::default(),
        }
    }

    /// Whether it is only read, and no writer has to wait for that.
    pub fn is_shared(&self) -> bool {
        self.opened_for == Wish::Share
    }

    /// What follows the pool in a path; `None` if the path leads elsewhere.
    pub fn behind<'path>(&self, path: &'path str) -> Option<&'path str> {
        let direct = path.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('/'));
        direct.or_else(|| {
            let cut = crate::path::cut(path)?;
            (canonical(cut.pool).ok()? == self.name).then_some(cut.rest)
        })
    }

    /// A super-journal of that name that is not committed.
    pub fn super_journal(&self, path: &str) -> Option<Arc<SuperJournal>> {
        self.super_journals.lock().get(path).map(Arc::clone)
    }

    /// A new super-journal. `None` if there is one of that name.
    pub fn make_super_journal(&self, path: String) -> Option<Arc<SuperJournal>> {
        let mut journals = self.super_journals.lock();
        if journals.contains_key(&path) {
            return None;
        }
        let journal = Arc::new(SuperJournal::default());
        journals.insert(path, Arc::clone(&journal));
        Some(journal)
    }

    /// These journals belong to `journal` now: a file is in one transaction at a time, so others are over.
    pub fn end_other_super_journals(&self, journal: &Arc<SuperJournal>, names: &[u8]) {
        self.super_journals.lock().retain(|_, other| Arc::ptr_eq(other, journal) || !other.names(names));
    }

    /// Commits what is parked under a super-journal, which does not exist any more after that.
    pub fn commit_super_journal(&self, path: &str, journal: &SuperJournal) -> Result<()> {
        journal.commit(self)?;
        self.super_journals.lock().remove(path);
        Ok(())
    }

    /// Remembers for as long as the pool is open that the head of these files is not to be shown.
    pub fn keep_held_back(&self, files: impl Iterator<Item = Arc<FileState>>) {
        self.held_back.lock().extend(files);
    }

    /// The lock table's entry for a file; the same one for everybody who has the file open.
    pub fn file_state(&self, key: FileKey) -> Arc<FileState> {
        let mut files = self.files.lock();
        if let Some(state) = files.get(&key).and_then(Weak::upgrade) {
            return state;
        }
        files.retain(|_, state| state.strong_count() > 0);
        let state = Arc::new(FileState::default());
        files.insert(key, Arc::downgrade(&state));
        state
    }
}

impl std::ops::Deref for PoolUse {
    type Target = OpenPool;

    fn deref(&self) -> &OpenPool {
        &self.pool
    }
}

impl PoolUse {
    /// The registry that the pool is in.
    pub fn registry(&self) -> &'static Registry {
        self.registry
    }
}

impl Drop for PoolUse {
    fn drop(&mut self) {
        if self.registry.is_here() {
            self.registry.release(&self.pool);
        } else {
            // The parent's: not even its reference counts may trigger anything here.
            std::mem::forget(Arc::clone(&self.pool));
        }
    }
}
