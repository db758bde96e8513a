//! Who may do what with one database file: the lock table of this process.
//!
//! Readers hold a version and never wait; one writer at a time prepares the next version. Only a connection
//! in `locking_mode=EXCLUSIVE` excludes others in the classic way, as it keeps its picture for good.

use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::prepared::Prepared;
use crate::store::{Facts, HeadFile, View};
use crate::turns::{self, Next};
use arc_swap::ArcSwapOption;
use icecore::Condvar;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// One open handle, unique within the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleId(u64);

impl HandleId {
    /// A new one.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How much of a lock a handle holds. The order is the order in which SQLite takes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing.
    None,
    /// A pinned version.
    Shared,
    /// The right to write the next version.
    Reserved,
    /// The right to commit it.
    Exclusive,
}

/// Counts the contents that a file has had: equal numbers mean equal contents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FileVersion(u64);

impl FileVersion {
    /// No contents that a file has had.
    pub const NONE: Self = Self(u64::MAX);
}

/// A version that a reader holds.
#[derive(Clone)]
pub struct Pinned {
    /// The dataset as it was.
    pub view: View,
    /// The file's facts in it.
    pub facts: Facts,
    /// Which contents these are.
    pub version: FileVersion,
    /// No journal, write-ahead log or WAL header is waiting to be dealt with.
    pub settled: bool,
}

/// The lock table's entry for one file. Readers come and go without its lock, as long as they find what they
/// get: a reader that is preempted must not make a writer wait.
#[derive(Default)]
pub struct FileState {
    /// Handles that hold SHARED or more.
    readers: AtomicU32,
    /// A handle in exclusive locking mode has the whole file, or waits for it: readers have to ask under the
    /// lock.
    guarded: AtomicBool,
    published: ArcSwapOption<Published>,
    inner: Mutex<Inner>,
    /// The writer has gone.
    writer_gone: Condvar,
}

#[derive(Default)]
struct Inner {
    version: FileVersion,
    /// Facts of `version`; anything else in the head means that another door has written the file.
    facts: Option<Facts>,
    settled: bool,
    /// What readers get while a commit is on its way to the disk and not yet published.
    former: Option<(View, Facts)>,
    /// Readers that are in exclusive locking mode: no commit may pass them.
    exclusive_readers: u32,
    writer: Option<HandleId>,
    /// Which handle is the next writer, if one has waited long.
    next: Next,
    /// The writer holds EXCLUSIVE: its commit may come at any moment.
    committing: bool,
    /// A handle in exclusive locking mode waits for the readers to go: no new ones.
    pending: Option<HandleId>,
    /// A handle in exclusive locking mode has the whole file.
    exclusive: Option<HandleId>,
    /// The writes of a journal's roll-back, waiting for the journal to be finalised.
    parked: Option<Prepared>,
}

/// What readers get without a look at the head. It pins its version as long as there is any reader: with one
/// that reads for long, that is one version more than this one needs.
struct Published {
    pinned: Pinned,
    /// The changes of the head, counted before it was looked at. `None`: whatever the head says, a commit is
    /// on its way.
    changes: Option<u64>,
}

const BUSY: Fault = Fault::quiet(code::BUSY);
/// SQLite itself turns this into a plain "busy", and calls the busy handler, where no transaction is open.
const STALE: Fault = Fault::quiet(code::BUSY_SNAPSHOT);

/// What a writer hears after a commit that could not be flushed: the pool takes no more writes.
const NOT_DURABLE: &str =
    "an earlier commit could not be made durable: close the pool, mend the disk and open it again";

impl Inner {
    /// Takes note of what the head looks like now.
    fn observe(&mut self, facts: Facts) {
        if self.facts != Some(facts) {
            // Unknown facts are those of a file that was not looked at yet.
            if self.facts.replace(facts).is_some() {
                self.version.0 += 1;
                self.settled = false;
            }
        }
    }

    fn pinned(&self, view: View, facts: Facts) -> Pinned {
        Pinned { view, facts, version: self.version, settled: self.settled }
    }

    fn blocked_for(&self, handle: HandleId) -> bool {
        let other = |holder: Option<HandleId>| holder.is_some_and(|holder| holder != handle);
        other(self.exclusive) || other(self.pending)
    }
}

impl FileState {
    /// What is published, if it is not out of date.
    fn at_hand(&self, file: &HeadFile) -> Option<Pinned> {
        let published = self.published.load();
        let Published { pinned, changes } = &**published.as_ref()?;
        (changes.is_none() || *changes == file.changes()).then(|| pinned.clone())
    }

    /// Readers get this from now on. `changes`: as in [`Published`].
    fn publish_as(&self, pinned: &Pinned, changes: Option<u64>) {
        self.published.store(Some(Arc::new(Published { pinned: pinned.clone(), changes })));
    }

    /// A reader leaves.
    fn leave(&self) {
        if self.readers.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Who comes in this moment looks at the head once more.
            self.published.store(None);
        }
    }

    fn pin(&self, inner: &mut Inner, file: &HeadFile) -> Result<Pinned> {
        if let Some((view, facts)) = &inner.former {
            return Ok(inner.pinned(view.clone(), *facts));
        }
        if let Some(pinned) = self.at_hand(file) {
            return Ok(pinned);
        }
        let changes = file.changes();
        let (view, facts) = file.now()?;
        inner.observe(facts);
        let pinned = inner.pinned(view, facts);
        if changes.is_some() {
            self.publish_as(&pinned, changes);
        }
        Ok(pinned)
    }

    /// Takes SHARED without the lock, if that is all there is to it.
    fn share_at_once(&self, file: &HeadFile) -> Option<Pinned> {
        // Counted first, then the guard: a handle that wants the whole file raises the guard first, and then
        // counts.
        self.readers.fetch_add(1, Ordering::SeqCst);
        let pinned = if self.guarded.load(Ordering::SeqCst) { None } else { self.at_hand(file) };
        if pinned.is_none() {
            self.leave();
        }
        pinned
    }

    fn guard(&self, inner: &Inner) {
        self.guarded.store(inner.pending.is_some() || inner.exclusive.is_some(), Ordering::SeqCst);
    }

    /// Takes SHARED: pins what is published now.
    pub fn share(&self, handle: HandleId, exclusive_mode: bool, file: &HeadFile) -> Result<Pinned> {
        if !exclusive_mode && let Some(pinned) = self.share_at_once(file) {
            return Ok(pinned);
        }
        let mut inner = self.inner.lock();
        if inner.blocked_for(handle) || (exclusive_mode && inner.committing) {
            return Err(BUSY);
        }
        // Looked at under the lock: otherwise two readers could see the head in one order and the counter in
        // another.
        let pinned = self.pin(&mut inner, file)?;
        self.readers.fetch_add(1, Ordering::SeqCst);
        inner.exclusive_readers += u32::from(exclusive_mode);
        Ok(pinned)
    }

    /// What a handle that asks for SHARED would get, without taking it.
    pub fn published(&self, now: impl FnOnce() -> Result<(View, Facts)>) -> Result<(View, Facts)> {
        let former = self.inner.lock().former.clone();
        former.map_or_else(now, Ok)
    }

    /// Pins what is published now for a handle that holds at least SHARED already.
    pub fn pin_again(&self, file: &HeadFile) -> Result<Pinned> {
        self.pin(&mut self.inner.lock(), file)
    }

    /// Takes RESERVED: there is one writer, and it starts from the version that is current.
    pub fn reserve(
        &self,
        handle: HandleId,
        pinned: FileVersion,
        now: impl FnOnce() -> Result<Facts>,
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        let is_taken = inner.writer.is_some_and(|writer| writer != handle);
        let is_promised = || inner.next.is_claimed_beside(handle, Instant::now());
        if is_taken || is_promised() || inner.blocked_for(handle) {
            return Err(BUSY);
        }
        if inner.former.is_some() {
            return Err(Fault::new(code::IOERR, NOT_DURABLE));
        }
        inner.observe(now()?);
        if inner.version != pinned {
            return Err(STALE);
        }
        inner.writer = Some(handle);
        inner.next.forget(handle);
        Ok(())
    }

    /// For a handle that holds nothing and was refused RESERVED for long: waits for a moment until there is
    /// no writer, and sees to it that none comes before this handle.
    pub fn await_turn(&self, handle: HandleId) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        // Where nothing is to be waited for, nothing is claimed: a handle that only reads keeps none out.
        if inner.writer.is_none() || !inner.next.claim(handle, now) {
            return;
        }
        let until = now + turns::WAIT;
        while inner.writer.is_some() && !self.writer_gone.wait_until(&mut inner, until).timed_out() {}
        let can_be_had = inner.writer.is_none();
        inner.next.end_wait(handle, can_be_had, Instant::now());
    }

    /// Takes EXCLUSIVE for the writer. Waits for no reader, unless one is in exclusive locking mode.
    /// `counted`: the handle itself is one of the readers in that mode, which it has left since.
    pub fn exclude(&self, handle: HandleId, exclusive_mode: bool, counted: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        debug_assert_eq!(inner.writer, Some(handle));
        if exclusive_mode {
            inner.pending = Some(handle);
            self.guard(&inner);
            if self.readers.load(Ordering::SeqCst) > 1 {
                return Err(BUSY);
            }
            inner.pending = None;
            inner.exclusive = Some(handle);
        } else if inner.exclusive_readers > u32::from(counted) {
            return Err(BUSY);
        }
        inner.committing = true;
        Ok(())
    }

    /// A handle that holds `level` enters exclusive locking mode. Busy if it could be overtaken by a commit.
    pub fn enter_exclusive_mode(&self, handle: HandleId, level: Level, pinned: FileVersion) -> Result<()> {
        let mut inner = self.inner.lock();
        if level >= Level::Shared {
            let stale = inner.version != pinned || (inner.committing && inner.writer != Some(handle));
            if stale || inner.blocked_for(handle) {
                return Err(BUSY);
            }
            inner.exclusive_readers += 1;
        }
        if level == Level::Exclusive {
            // Readers that are there keep their versions; no new ones from here on.
            inner.exclusive = Some(handle);
            self.guard(&inner);
        }
        Ok(())
    }

    /// Gives up what a handle holds above `keep`, which is none or SHARED.
    pub fn release(&self, handle: HandleId, held: Level, keep: Level, exclusive_reader: bool) {
        let is_reader = held == Level::Shared && keep == Level::None && !exclusive_reader;
        if is_reader && !self.guarded.load(Ordering::SeqCst) {
            self.leave();
            return;
        }
        let mut inner = self.inner.lock();
        if inner.writer == Some(handle) {
            inner.writer = None;
            inner.committing = false;
            inner.parked = None;
            self.writer_gone.notify_all();
        }
        inner.pending = inner.pending.filter(|&holder| holder != handle);
        inner.exclusive = inner.exclusive.filter(|&holder| holder != handle);
        self.guard(&inner);
        if keep == Level::None && held >= Level::Shared {
            self.leave();
            inner.exclusive_readers -= u32::from(exclusive_reader);
        }
    }

    /// Whether some handle is preparing or committing a transaction.
    pub fn has_writer(&self) -> bool {
        self.inner.lock().writer.is_some()
    }

    /// Notes that nothing is waiting to be dealt with in this version.
    pub fn settle(&self, version: FileVersion) {
        let mut inner = self.inner.lock();
        if inner.version == version {
            inner.settled = true;
            self.published.store(None);
        }
    }

    /// From here to [`FileState::publish`] readers get the former version, whatever the head says.
    pub fn hold_back(&self, former: Pinned) {
        let mut inner = self.inner.lock();
        self.publish_as(&former, None);
        inner.former = Some((former.view, former.facts));
    }

    /// The commit did not happen: the head still is the former version.
    pub fn hold_no_longer(&self) {
        let mut inner = self.inner.lock();
        self.published.store(None);
        inner.former = None;
    }

    /// The commit is done: readers get it from now on, and so does the caller.
    pub fn publish(&self, file: &HeadFile) -> Result<Pinned> {
        // Before the lock: who comes meanwhile gets the former version, and does not queue up.
        let changes = file.changes();
        let looked = file.now();
        let mut inner = self.inner.lock();
        let former = inner.former.take();
        inner.version.0 += 1;
        inner.facts = looked.as_ref().ok().map(|(_, facts)| *facts);
        self.published.store(None);
        let published = looked.map(|(view, facts)| inner.pinned(view, facts));
        if let (Ok(pinned), Some(_)) = (&published, changes) {
            self.publish_as(pinned, changes);
        }
        drop(inner);
        drop(former);
        published
    }

    /// Parks the writes of a journal's roll-back until [`FileState::take_parked`].
    pub fn park(&self, prepared: Prepared) {
        self.inner.lock().parked = Some(prepared);
    }

    /// Whether the end of a journal is being waited for.
    pub fn has_parked(&self) -> bool {
        self.inner.lock().parked.is_some()
    }

    /// Takes the parked writes back. `None` if there are none, or they have been committed.
    pub fn take_parked(&self) -> Option<Prepared> {
        self.inner.lock().parked.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{self, Pool};
    use icecore::{InitOptions, OpenOptions};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::thread;

    const COMMITS: u64 = 2_000;
    const COMMITS_MAX: u64 = 50 * COMMITS;
    const READERS: usize = 4;

    struct World {
        pool: Pool,
        file: HeadFile,
        state: FileState,
        /// A handle has the whole file.
        is_taken: AtomicBool,
        is_over: AtomicBool,
        /// What a version holds, by those that have read it.
        contents: Mutex<BTreeMap<FileVersion, u64>>,
    }

    impl World {
        fn new(folder: &Path) -> Self {
            Pool::init_directory(folder, &InitOptions::default()).unwrap();
            let pool = Pool::open_directory(folder, &OpenOptions::default()).unwrap();
            pool.create_dataset("db", false, &[]).unwrap();
            let file = HeadFile::open(&pool, "db", &["a"], true).unwrap().unwrap();
            pool.dataset("db").unwrap().write(file.inode(), 0, &[0; 8]).unwrap();
            let (state, is_taken, is_over) = Default::default();
            Self { pool, file, state, is_taken, is_over, contents: Mutex::default() }
        }

        fn content(&self, pinned: &Pinned) -> u64 {
            let mut bytes = [0; 8];
            store::read(&pinned.view, self.file.inode(), 8, 0, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        }

        fn read(&self) {
            let (handle, mut last, mut reads) = (HandleId::fresh(), 0, 0);
            while !self.is_over.load(Ordering::SeqCst) {
                let Ok(pinned) = self.state.share(handle, false, &self.file) else { continue };
                assert!(
                    !self.is_taken.load(Ordering::SeqCst),
                    "a reader beside a handle that has the whole file"
                );
                let content = self.content(&pinned);
                assert!(content >= last, "{content} after {last}");
                let known = *self.contents.lock().entry(pinned.version).or_insert(content);
                assert_eq!(known, content, "one version has one content");
                assert!(
                    !self.is_taken.load(Ordering::SeqCst),
                    "the whole file was given away beside a reader"
                );
                self.state.release(handle, Level::Shared, Level::None, false);
                (last, reads) = (content, reads + 1);
            }
            assert!(reads > 0);
        }

        /// Writes a number. `exclusive`: wants the whole file for it. False if another handle is in the way.
        fn write(&self, handle: HandleId, number: u64, exclusive: bool) -> bool {
            let Ok(pinned) = self.state.share(handle, exclusive, &self.file) else { return false };
            self.state.reserve(handle, pinned.version, || Ok(self.file.now()?.1)).unwrap();
            let mut is_done = false;
            if self.state.exclude(handle, exclusive, exclusive).is_ok() {
                self.is_taken.store(exclusive, Ordering::SeqCst);
                let mut group = self.file.begin(&pinned.view).unwrap();
                group.write(self.file.inode(), 0, &number.to_le_bytes()).unwrap();
                self.state.hold_back(pinned);
                store::commit(&self.pool, vec![group]).unwrap();
                assert_eq!(self.content(&self.state.publish(&self.file).unwrap()), number);
                self.is_taken.store(false, Ordering::SeqCst);
                is_done = true;
            }
            self.state.release(handle, Level::Exclusive, Level::None, exclusive);
            is_done
        }
    }

    #[test]
    fn a_handle_that_waits_writes_before_one_that_never_rests() {
        let folder = tempfile::tempdir().unwrap();
        let World { file, state, .. } = World::new(folder.path());
        let [restless, patient] = [(); 2].map(|()| HandleId::fresh());
        let reserve = |handle| {
            let pinned = state.share(handle, false, &file).unwrap();
            let outcome = state.reserve(handle, pinned.version, || Ok(file.now()?.1));
            if outcome.is_err() {
                state.release(handle, Level::Shared, Level::None, false);
            }
            outcome.is_ok()
        };
        let release = |handle| state.release(handle, Level::Reserved, Level::None, false);
        assert!(reserve(restless) && !reserve(patient));
        state.await_turn(patient);
        release(restless);
        assert!(reserve(restless), "a wait that came to nothing keeps nothing");
        let is_claimed = || state.inner.lock().next.is_claimed_beside(restless, Instant::now());
        // On a busy machine the wait may be over before the writer goes.
        while !is_claimed() {
            thread::scope(|scope| {
                let waits = scope.spawn(|| state.await_turn(patient));
                while !is_claimed() && !waits.is_finished() {
                    thread::yield_now();
                }
                release(restless);
            });
            assert!(is_claimed() || reserve(restless));
        }
        assert!(!reserve(restless), "the lock is kept");
        assert!(reserve(patient));
        assert!(!reserve(restless));
        release(patient);
        assert!(reserve(restless));
        release(restless);
    }

    #[test]
    fn readers_find_what_was_published_last_and_nothing_beside_a_handle_that_has_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let world = World::new(folder.path());
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| world.read());
            }
            let handle = HandleId::fresh();
            let (mut is_ever_exclusive, mut number) = (false, 0);
            // On a busy machine a reader may be in the way for long: then the writer goes on until none is.
            while number < COMMITS || (!is_ever_exclusive && number < COMMITS_MAX) {
                number += 1;
                let exclusive = number % 2 == 0 && world.write(handle, number, true);
                is_ever_exclusive |= exclusive;
                assert!(exclusive || world.write(handle, number, false));
            }
            world.is_over.store(true, Ordering::SeqCst);
            assert!(is_ever_exclusive, "the whole file was never to be had");
        });
        assert_eq!(world.state.readers.load(Ordering::SeqCst), 0);
        assert!(world.state.published.load().is_none(), "nothing is pinned where no connection reads");
    }
}
