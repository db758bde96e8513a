//! A disk in memory that crashes, fails and lies, as one seed decides.
//!
//! Strictly what the storage trait promises and nothing more: bytes are durable after a `sync` of their file,
//! directory entries after a `sync_directory`, and everything else may be there after a crash or not, down to
//! single sectors, in any combination.

mod calls;
mod directory;
mod faults;
mod image;
mod mount;
mod state;
mod survival;
#[cfg(test)]
mod tests;

pub use faults::FaultKind;
pub use survival::CrashMode;

use crate::random::Random;
use icecore::storage::Storage;
use mount::Mounting;
use parking_lot::Mutex;
use state::State;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that reach the medium together or not at all.
pub const SECTOR_BYTES: usize = 512;

/// How a simulated disk behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Bytes that files may take up in all. Default 1 GiB.
    pub capacity: u64,
    /// A new file holds what a removed one held, or noise, in place of zeros.
    pub stale_garbage: bool,
    /// Overwriting needs free space too, as on copy-on-write filesystems.
    pub overwrite_may_fail: bool,
    /// The length of a new file, too, is only durable after a `sync` of the file: without it the file may be
    /// found empty. Default true.
    pub lengths_need_sync: bool,
    /// The capacity is a quota on a medium that has more: it says so when it is exceeded, and not when it is
    /// asked.
    pub full_is_quota: bool,
    /// Every I/O is recorded as a line of text; the last ten thousand at least are kept.
    pub trace: bool,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            capacity: 1 << 30,
            stale_garbage: false,
            overwrite_may_fail: false,
            lengths_need_sync: true,
            full_is_quota: false,
            trace: false,
        }
    }
}

/// The disk itself; clones are the same disk.
///
/// Mount it with [`storage`](Self::storage), use it, [`crash`](Self::crash) it, and mount it again.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

impl SimulatedDisk {
    /// An empty disk. Everything that happens by chance follows from `seed` and the order of calls.
    #[must_use]
    pub fn new(seed: u64, config: DiskConfig) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(Random::new(seed), config))) }
    }

    /// A second disk with the same bytes, durable or not, that goes on with luck of its own. No process has
    /// mounted it; scheduled crashes and faults stay behind.
    #[must_use]
    pub fn duplicate(&self, seed: u64) -> Self {
        let duplicate = Self { state: Arc::new(Mutex::new(self.state.lock().duplicate(Random::new(seed)))) };
        if let Some(mirror) = self.mirror() {
            duplicate.add_mirror(mirror.duplicate(seed ^ 0x3177));
        }
        duplicate
    }

    /// Mounts the disk. Several mountings may be live at the same time, as of several processes.
    #[must_use]
    pub fn storage(&self) -> Arc<dyn Storage> {
        let number = self.state.lock().mounting();
        Arc::new(Mounting::new(Arc::clone(&self.state), number))
    }

    /// A real folder that every mounting of the disk reports: for what is kept beside a pool, and nothing
    /// depends on. Power that fails does nothing to it.
    pub fn set_folder(&self, folder: PathBuf) {
        self.state.lock().folder = Some(folder);
    }

    /// A second disk, which every mounting of this one finds under any path.
    pub fn add_mirror(&self, mirror: Self) {
        self.state.lock().mirror = Some(mirror);
    }

    /// The second disk, if there is one.
    #[must_use]
    pub fn mirror(&self) -> Option<Self> {
        self.state.lock().mirror.clone()
    }

    /// The power fails: everything that is open fails from now on, what was not flushed survives as the seed
    /// decides, and the disk can be mounted again. Scheduled crashes and faults are over.
    ///
    /// The second disk has the same power supply.
    pub fn crash(&self) {
        self.state.lock().crash(None);
        self.mirror().iter().for_each(Self::crash);
    }

    /// A crash in which the survivors are chosen in the given way.
    pub fn crash_as(&self, mode: CrashMode) {
        self.state.lock().crash(Some(mode));
        self.mirror().iter().for_each(|mirror| mirror.crash_as(mode));
    }

    /// The processes that use the disk are killed: everything that is open fails from now on, and nothing
    /// written is lost, since the machine lives on.
    pub fn kill(&self) {
        self.state.lock().kill();
        self.mirror().iter().for_each(Self::kill);
    }

    /// Cuts short the mutating I/O (write, sync, create, remove, rename, directory sync) that comes as the
    /// `number`-th from now; 1 is the next. It takes effect in part, or wholly, or not, and everything after
    /// it fails until [`crash`](Self::crash).
    pub fn crash_at(&self, number: u64) {
        self.state.lock().schedule_crash(number);
    }

    /// Whether the crash that was scheduled has come, and [`crash`](Self::crash) has not been called since.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.state.lock().is_cut()
    }

    /// Makes the `number`-th call that this kind of fault concerns fail, counted from now; 1 is the next.
    /// `persistent`: all later ones as well.
    pub fn fail_at(&self, number: u64, kind: FaultKind, persistent: bool) {
        self.state.lock().schedule_fault(number, kind, persistent);
    }

    /// No more faults but those that happened.
    pub fn clear_faults(&self) {
        self.state.lock().clear_faults();
    }

    /// How many calls have failed because of [`fail_at`](Self::fail_at).
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.state.lock().faults_struck()
    }

    /// Mutating I/Os so far, over all mountings.
    #[must_use]
    pub fn io_count(&self) -> u64 {
        self.state.lock().io_count()
    }

    /// From now on nothing can be changed (`true`), or it can again.
    pub fn set_read_only(&self, read_only: bool) {
        self.state.lock().set_read_only(read_only);
    }

    /// The disk is pulled out: every call fails, until [`reappear`](Self::reappear).
    pub fn disappear(&self) {
        self.state.lock().set_gone(true);
    }

    /// The disk is back.
    pub fn reappear(&self) {
        self.state.lock().set_gone(false);
    }

    /// Changes how many bytes files may take up in all. Files that are there stay.
    pub fn set_capacity(&self, capacity: u64) {
        self.state.lock().set_capacity(capacity);
    }

    /// Names and lengths of the files as they are now.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u64)> {
        self.state.lock().list()
    }

    /// The bytes of a file as they are now.
    pub fn contents(&self, name: &str) -> io::Result<Vec<u8>> {
        self.state.lock().contents(name)
    }

    /// Flips one bit (0 to 7) on the medium.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u32) -> io::Result<()> {
        self.state.lock().damage(name, offset..offset + 1, |bytes, _| {
            bytes.iter_mut().for_each(|byte| *byte ^= 1 << (bit % 8));
        })
    }

    /// Puts noise on the medium; every byte changes.
    pub fn corrupt(&self, name: &str, range: Range<u64>) -> io::Result<()> {
        self.state.lock().damage(name, range, |bytes, random| {
            bytes.iter_mut().for_each(|byte| *byte ^= random.between(1, 255) as u8);
        })
    }

    /// Puts these bytes on the medium, behind everybody's back.
    pub fn overwrite(&self, name: &str, offset: u64, with: &[u8]) -> io::Result<()> {
        self.state.lock().damage(name, offset..offset + with.len() as u64, |bytes, _| {
            bytes.copy_from_slice(with);
        })
    }

    /// Cuts a file to a shorter length, behind everybody's back.
    pub fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.state.lock().truncate(name, length)
    }

    /// Makes a file vanish for good, behind everybody's back.
    pub fn lose(&self, name: &str) -> io::Result<()> {
        self.state.lock().lose(name)
    }

    /// The lines of the trace so far (see [`DiskConfig::trace`]), and forgets them.
    #[must_use]
    pub fn take_trace(&self) -> Vec<String> {
        self.state.lock().take_trace()
    }
}
