//! Pools that nothing uses stay open for some seconds: a program that opens a connection for each request
//! does not wait for the pool to be opened and closed each time. What was committed is durable before a pool
//! counts as idle.
//!
//! A thread closes them in time, or at once when another process wants the pool. The end of the process
//! closes them as well.

use crate::registry::{Registry, Slot, current_if_any};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a pool that nothing uses stays open, where `linger` does not say so.
pub const LINGER: Duration = Duration::from_secs(5);
/// Idle pools at most: of more, those that would be closed first are closed at once.
const IDLE_MAX: usize = 8;
/// How long the end of the process waits for others that have the registry locked.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(1);

/// The pools of a registry by their names.
pub type Slots = BTreeMap<String, Slot>;

/// Device and inode of a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folder(u64, u64);

impl Folder {
    /// The folder of that name now.
    pub fn at(name: &str) -> Option<Self> {
        let status = rustix::fs::stat(Path::new(name)).ok()?;
        Some(Self(status.st_dev, status.st_ino))
    }
}

impl Registry {
    /// Keeps a pool open that nothing uses any more. False if it has to be closed now.
    pub fn keep_idle(&'static self, slot: &mut Slot) -> bool {
        let pool = &slot.pool.pool;
        let is_shared = slot.pool.is_shared();
        let may_linger = !slot.linger.is_zero() && (is_shared || !pool.is_read_only());
        // A failure is met again, and reported, by the close.
        if !may_linger || (!is_shared && pool.sync().is_err()) || !self.has_closer() {
            return false;
        }
        slot.idle_until = Some(Instant::now() + slot.linger);
        let name = slot.pool.name.clone();
        // Others open one that is shared without a word.
        if !is_shared {
            pool.set_idle(Some(std::sync::Arc::new(move || self.close_soon(&name))));
        }
        self.idle_changed.notify_one();
        true
    }

    /// Whether a thread closes idle pools in time.
    fn has_closer(&'static self) -> bool {
        let start = || {
            let thread = std::thread::Builder::new().name("icecore-idle".to_owned());
            thread.spawn(move || self.close_in_time()).is_ok()
        };
        *self.has_closer.get_or_init(start)
    }

    fn close_in_time(&self) {
        let mut pools = self.pools.lock();
        loop {
            close_due(&mut pools, Instant::now());
            match pools.values().filter_map(|slot| slot.idle_until).min() {
                Some(next) => drop(self.idle_changed.wait_until(&mut pools, next)),
                None => self.idle_changed.wait(&mut pools),
            }
        }
    }

    /// Another process wants a pool. False if it is in use.
    fn close_soon(&self, name: &str) -> bool {
        let mut pools = self.pools.lock();
        let idle_until = pools.get_mut(name).and_then(|slot| slot.idle_until.as_mut());
        let Some(idle_until) = idle_until else { return false };
        *idle_until = Instant::now();
        self.idle_changed.notify_one();
        true
    }
}

/// Closes pools that have been idle for long enough, and those that are too many.
fn close_due(pools: &mut Slots, now: Instant) {
    let mut idle: Vec<(Instant, String)> =
        pools.iter().filter_map(|(name, slot)| slot.idle_until.map(|until| (until, name.clone()))).collect();
    idle.sort();
    let surplus = idle.len().saturating_sub(IDLE_MAX);
    for (number, (until, name)) in idle.into_iter().enumerate() {
        if until <= now || number < surplus {
            close(pools, &name);
        }
    }
}

/// Closes a pool. All of it was durable before: a failure costs the next opening a recovery, and the pool's
/// log of errors has it.
pub fn close(pools: &mut Slots, name: &str) {
    if let Some(slot) = pools.remove(name) {
        let _ = slot.pool.pool.close();
    }
}

/// Has idle pools closed when the process ends: else the next opening would have to recover them.
pub fn close_at_exit() {
    unsafe extern "C" {
        /// `atexit(3)`.
        fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
    }
    // SAFETY: the function lives as long as the process, since SQLite never unloads this library.
    let _ = unsafe { atexit(end_of_process) };
}

extern "C" fn end_of_process() {
    // In a thread of its own: this one's local data is gone already. A child that was forked finds nothing of
    // its own.
    let thread = std::thread::Builder::new().spawn(|| {
        let Some(registry) = current_if_any() else { return };
        let Some(mut pools) = registry.pools.try_lock_for(PATIENCE_AT_EXIT) else { return };
        pools
            .values_mut()
            .filter_map(|slot| slot.idle_until.as_mut())
            .for_each(|until| *until = Instant::now());
        close_due(&mut pools, Instant::now());
    });
    // Without threads, or after a panic, which says so itself, the next opening recovers the pool.
    let _ = thread.map(std::thread::JoinHandle::join);
}
