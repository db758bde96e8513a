//! The handle on an open pool, and everything that concerns more than one file.

mod browse;
mod datasets;
mod destroy;
mod diff;
mod idle;
mod list;
mod make;
mod observe;
mod properties;
mod scrub;
mod snapshots;
mod verify;

pub use browse::Room;
pub use destroy::DestroyPlan;
pub(crate) use diff::walk as walk_paths;
pub use diff::{ByteRange, Change, DiffEntry};
pub use idle::CloseIdle;
pub use list::{EntryKind, ListEntry, ListFilter};
pub use observe::{Obstacle, PoolChange, PoolObserver};
pub use properties::{Hold, Property, PropertySource};
#[doc(hidden)]
pub use scrub::Position as ScrubPosition;
pub(crate) use scrub::{Damage, DamageList, Place, name as name_damage, shown};
pub use scrub::{Finding, ScrubOptions, ScrubProgress, ScrubReport};
pub use snapshots::RollbackReport;

use crate::admin::{PoolService, Server, from_idle_owner};
use crate::copies::CopiesReport;
use crate::dataset::Dataset;
use crate::engine::{self, CollectReport, Engine, Keep, ReaderHold, TrimReport};
use crate::error::{Error, Result};
use crate::format::copies::CopyMode;
use crate::group::{CommitPoint, Group};
use crate::incidents::Incident;
use crate::names::VersionName;
use crate::options::{InitOptions, OpenOptions};
use crate::state::State;
use crate::statistics::Statistics;
use crate::storage::{Overlay, RealStorage, Storage, is_medium_read_only};
use crate::units::{ByteLength, DatasetId, PoolId, VersionId};
use crate::view::View;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, Weak};

/// An open pool. Clones share it; when the last one is gone, with every dataset and view, it is closed.
#[derive(Clone)]
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    /// What keeps the pool open; none in what a client of the control socket holds.
    _owner: Option<Arc<Owner>>,
}

/// Closes the pool when the last handle of the program that opened it goes, whatever clients hold.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        // No caller is left to report a failure to. An unclean close only means that the next opening replays
        // the log.
        let _ = self.0.close();
    }
}

/// What all handles of a pool share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    /// Where other processes reach the pool, if they can.
    server: Mutex<Option<Server>>,
    /// Why they cannot, where they were meant to.
    unreachable: Mutex<Option<String>>,
    /// What closes the pool while it is kept open for nothing.
    idle: Mutex<Option<CloseIdle>>,
    /// Front ends that want to know of changes that they did not make.
    observers: Mutex<Vec<Weak<dyn PoolObserver>>>,
}

impl Shared {
    fn close(&self) -> Result<()> {
        // First the door: who comes now finds the pool closing and waits for the lock.
        drop(self.server.lock().take());
        self.engine.close()
    }
}

impl Pool {
    /// Makes an empty pool in any storage. Durable on return.
    ///
    /// # Errors
    /// As for [`Pool::init_directory`].
    pub fn init(storage: Arc<dyn Storage>, options: &InitOptions) -> Result<()> {
        engine::init(&storage, options)
    }

    /// Opens the pool in a directory, recovering it if it was not closed cleanly. Another process that has it
    /// open and does nothing with it closes it first ([`Pool::set_idle`]).
    ///
    /// A pool of a read-only medium that was not closed cleanly is recovered in memory, and locked while it
    /// is open.
    ///
    /// # Errors
    /// [`Error::NotAPool`], [`Error::NewerFormat`], [`Error::PoolInUse`], [`Error::NeedsRecovery`]
    /// (read-only), [`Error::Damaged`], [`Error::Io`].
    pub fn open_directory(path: &Path, options: &OpenOptions) -> Result<Self> {
        from_idle_owner(path, || Self::open_if_free(path, options))
    }

    /// Opens a pool to read that was not closed cleanly: only a writer recovers it, so it is opened to write,
    /// closed, and opened with these options. Where the disk does not let it be closed, it stays open to
    /// write.
    ///
    /// # Errors
    /// Those of [`Pool::open_directory`].
    pub fn open_recovered(path: &Path, options: &OpenOptions) -> Result<Self> {
        let writing = OpenOptions { read_only: false, ..options.clone() };
        let closed = Self::open_directory(path, &writing)?.close();
        Self::open_directory(path, if closed.is_ok() { options } else { &writing })
    }

    /// As [`Pool::open_directory`], with no word to another process that has the pool open.
    pub(crate) fn open_if_free(path: &Path, options: &OpenOptions) -> Result<Self> {
        let to_read = OpenOptions { read_only: true, ..options.clone() };
        let opened = match Self::open(real(path)?, options) {
            Err(Error::Io { source, .. })
                if options.or_read_only && !options.read_only && is_for_reading(&source) =>
            {
                Self::open(real(path)?, &to_read)
            }
            outcome => outcome,
        };
        match opened {
            // This process cannot recover it there.
            Err(Error::NeedsRecovery { .. }) if is_medium_read_only(path) => {
                let below = real(path)?;
                // Another mount of the filesystem may take writes.
                let lock = engine::lock(&*below, false)?;
                let storage: Arc<dyn Storage> = Overlay::locked(below, lock);
                Self::open(Arc::clone(&storage), &engine::lock_free_options())?.close()?;
                Self::open(storage, &to_read)
            }
            outcome => outcome,
        }
    }

    /// Opens a picture of a pool that another process may own: what that had written is recovered in memory,
    /// and nothing is written to the disk.
    pub(crate) fn open_picture(path: &Path) -> Result<Self> {
        Self::open(Overlay::over(real(path)?), &engine::lock_free_options())
    }

    /// Opens the pool in any storage. See [`Pool::open_directory`].
    ///
    /// # Errors
    /// As there.
    pub fn open(storage: Arc<dyn Storage>, options: &OpenOptions) -> Result<Self> {
        let engine = engine::open(&storage, options)?;
        let shared = Arc::new(Shared {
            engine,
            server: Mutex::new(None),
            unreachable: Mutex::new(None),
            idle: Mutex::new(None),
            observers: Mutex::default(),
        });
        let owner = Some(Arc::new(Owner(Arc::clone(&shared))));
        let pool = Self { shared, _owner: owner };
        if options.control_socket
            && !options.read_only
            && let Some(directory) = storage.directory()
        {
            // Without a door for others the pool is as good as ever to the one who opens it.
            match Server::start(Arc::new(PoolService::of(&pool)), &directory) {
                Ok(server) => *pool.shared.server.lock() = Some(server),
                Err(error) => *pool.shared.unreachable.lock() = Some(error.to_string()),
            }
        }
        Ok(pool)
    }

    /// A handle that does not keep the pool open: for clients.
    pub(crate) fn guest(shared: Arc<Shared>) -> Self {
        Self { shared, _owner: None }
    }

    /// Closes the pool: everything is durable, and the next opening has nothing to replay. Other handles
    /// answer errors from then on. Dropping the last handle does the same without a word about failures.
    ///
    /// # Errors
    /// When the last checkpoint fails; nothing acknowledged is lost by that. [`Error::ReadOnlyAfterFailure`]
    /// if a write or flush failed before, be it in the background, and something was done that is not
    /// durable.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// Lets other processes open a pool for writing that this one only reads: a pool that was opened with
    /// [`OpenOptions::read_only`]. What is read is to be trusted only if [`Pool::is_outdated`] answers false
    /// after it.
    pub fn disown(&self) {
        if self.engine().options.read_only {
            self.engine().disown();
        }
    }

    /// Whether a writer has opened the pool since it was disowned here: another process, or this one.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.engine().is_outdated()
    }

    /// Whether the pool takes no writes: opened so, or after a failure.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine().check_writable().is_err()
    }

    /// Why the pool takes no writes any more, if a write or flush failed: [`Error::ReadOnlyAfterFailure`].
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        let refused = self.engine().check_writable().err();
        refused.filter(|error| matches!(error, Error::ReadOnlyAfterFailure { .. }))
    }

    /// Where the pool is.
    #[must_use]
    pub fn describe(&self) -> String {
        self.engine().storage.describe()
    }

    /// Identity of the pool.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.engine().pool
    }

    /// Everything done so far is durable on return.
    ///
    /// # Errors
    /// [`Error::ReadOnlyAfterFailure`] if a write or flush failed, now or before.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// Makes a checkpoint now. Never needed for safety: it shortens the next recovery and lets space be
    /// reused, also that of everything that was destroyed so far.
    ///
    /// # Errors
    /// [`Error::ReadOnlyAfterFailure`], [`Error::ReadOnly`].
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().check_writable()?;
        self.engine().finish_freeing()?;
        self.engine().run_checkpoint()?;
        self.engine().copy_with_call();
        Ok(())
    }

    /// Empties up to so many segments that hold little, by moving what lives in them, and makes them free.
    /// Never needed: it happens by itself, ahead of need. Snapshots and readers are not touched.
    ///
    /// # Errors
    /// [`Error::ReadOnlyAfterFailure`], [`Error::ReadOnly`]; [`Error::Io`] if writing failed: nothing is lost
    /// by that.
    pub fn collect(&self, segments_max: usize) -> Result<CollectReport> {
        self.engine().collect(segments_max, true)
    }

    /// As [`Pool::collect`], without the checkpoint that comes first there, so that what died since the last
    /// one is moved with the rest, as it is when a pool is nearly full.
    ///
    /// # Errors
    /// Those of [`Pool::collect`].
    #[doc(hidden)]
    pub fn collect_as_it_is(&self, segments_max: usize) -> Result<CollectReport> {
        self.engine().collect(segments_max, false)
    }

    /// Gives free segments back to the filesystem, but for those that deleting and checkpointing may need.
    /// What died since the last checkpoint is made free first. A pool does this by itself, less thoroughly,
    /// when it is at rest, when it is closed and when the filesystem runs short. After a crash, files that
    /// were removed may be there again, as free segments.
    ///
    /// # Errors
    /// [`Error::ReadOnlyAfterFailure`], [`Error::ReadOnly`]; [`Error::Io`] if a file cannot be removed:
    /// nothing is lost by that.
    pub fn trim(&self) -> Result<TrimReport> {
        self.engine().check_writable()?;
        self.engine().finish_freeing()?;
        self.engine().run_checkpoint()?;
        self.engine().trim(Keep::Reserve)
    }

    /// The head of a dataset, to read and write.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::SnapshotIsReadOnly`] if the name is one of a snapshot.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        self.engine().check_open()?;
        if name.contains('@') {
            return Err(Error::SnapshotIsReadOnly { name: name.to_owned() });
        }
        let state = self.engine().state();
        let id = state.catalogue.find(name)?;
        drop(state);
        Ok(Dataset::new(self.clone(), id))
    }

    /// A version as it is now, pinned: `dataset@snapshot`, or `dataset` for its head at this moment.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::BadName`].
    pub fn view(&self, name: &str) -> Result<View> {
        self.engine().check_open()?;
        let mut state = self.engine().state();
        let version = self.find_version(&state, name)?;
        Ok(View::pin(self, &mut state, version, name.to_owned()))
    }

    /// Appends groups, of any datasets, as one atomic step, and makes them visible. After a crash all of it
    /// is there or nothing. Not durable yet: see [`Pool::make_durable`].
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything changed; [`Error::StaleHandle`] after a rollback.
    pub fn commit(&self, groups: Vec<Group>) -> Result<CommitPoint> {
        crate::group::commit(self, groups)
    }

    /// Returns when everything up to `point` is durable. Callers that wait together share one flush.
    ///
    /// # Errors
    /// [`Error::ReadOnlyAfterFailure`]: what was not durable before may or may not be there after a restart.
    pub fn make_durable(&self, point: CommitPoint) -> Result<()> {
        self.engine().make_durable(point.0)
    }

    /// What the pool has done, and how full it is.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let unreachable = self.shared.unreachable.lock().clone();
        Statistics { unreachable, ..self.engine().statistics() }
    }

    /// How second copies stand.
    #[must_use]
    pub fn copies(&self) -> CopiesReport {
        self.engine().blocks.files().copies().report()
    }

    /// Readers that keep something from being used again, and would not if they were gone: those that keep
    /// most come first.
    #[must_use]
    pub fn readers(&self) -> Vec<ReaderHold> {
        self.engine().readers()
    }

    /// Whether destroying the snapshots that nothing holds and nothing reads would free something.
    #[must_use]
    pub fn snapshots_hold(&self) -> bool {
        let engine = self.engine();
        let state = engine.state();
        engine::snapshots_hold_something(&state, engine::Read::Stay)
    }

    /// Has everything copied that should be and is not: after the folder of the copies was gone, or full, or
    /// could not be written to. A scrub does so, too. Others may use the pool meanwhile.
    ///
    /// # Errors
    /// What is in the way of it, and the pool goes on as before; [`Error::ReadOnly`],
    /// [`Error::ReadOnlyAfterFailure`].
    pub fn restore_copies(&self) -> Result<CopiesReport> {
        self.engine().restore_copies()
    }

    /// Changes what is written twice, and where the copies lie: in `folder`, an absolute path of a folder
    /// without a pool, or in the folder of the pool. On return everything has its copy, or the report says
    /// why not; copies that are not wanted any more are gone.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a folder that cannot take copies; as for [`Pool::restore_copies`].
    pub fn set_copies(&self, mode: CopyMode, folder: Option<String>) -> Result<CopiesReport> {
        self.engine().set_copies(mode, folder)
    }

    /// Changes the size limit, or takes it away. Durable on return; after a crash before that, it is the
    /// former limit or this one. A caller that was refused for want of room finds what there is now with the
    /// next try.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit below what the pool takes up already (a trim gives free segments back),
    /// needs to go on, and has reserved for datasets: the message says how much that is, and nothing has
    /// changed. [`Error::ReadOnly`], [`Error::ReadOnlyAfterFailure`].
    pub fn set_size_limit(&self, limit: Option<ByteLength>) -> Result<()> {
        self.engine().set_size_limit(limit)
    }

    /// What went wrong with the disk since the pool was opened, the oldest first: the last 64.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        self.engine().blocks.files().incidents().last()
    }

    /// How far a scrub is that goes on at this moment.
    #[must_use]
    pub fn scrubbing(&self) -> Option<ScrubProgress> {
        *self.engine().scrubbing.lock()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(crate) fn find_version(&self, state: &State, name: &str) -> Result<VersionId> {
        match VersionName::parse(name)? {
            VersionName::Head(dataset) => {
                let id = state.catalogue.find(dataset.as_str())?;
                state.head(id)
            }
            VersionName::Snapshot(snapshot) => {
                let id = state.catalogue.find(snapshot.dataset_str())?;
                state.catalogue.find_snapshot(id, snapshot.short())
            }
        }
    }

    pub(crate) fn find_snapshot(&self, state: &State, name: &str) -> Result<(DatasetId, VersionId)> {
        let parsed = crate::names::SnapshotName::parse(name)?;
        let id = state.catalogue.find(parsed.dataset_str())?;
        Ok((id, state.catalogue.find_snapshot(id, parsed.short())?))
    }
}

/// Whether a file, or its medium, may only be read.
fn is_for_reading(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied)
}

pub(crate) fn real(path: &Path) -> Result<Arc<dyn Storage>> {
    let storage = RealStorage::new(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotADirectory => Error::NotAPool {
            path: path.display().to_string(),
            reason: "it is a file, or lies below one: name the folder that `icecore init` made".to_owned(),
        },
        std::io::ErrorKind::NotFound => Error::NotAPool {
            path: path.display().to_string(),
            reason: format!("there is no such directory (`icecore init {}` makes one)", path.display()),
        },
        _ => Error::io("open", path.display().to_string(), error),
    })?;
    Ok(Arc::new(storage))
}
