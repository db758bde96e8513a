//! Whole lives of pools, each from one seed: weeks of writes, snapshots, prunes, collections, clones and rollbacks, in
//! pools that get full, on disks that crash, fail and lie. Every day ends with a full check, every life with nothing:
//! when all is destroyed, all space has to be there again.

mod day;
mod deeds;
mod housekeeping;
mod process;
mod trouble;

pub use deeds::Deeds;
pub use process::Footprint;

use crate::Random;
use crate::cases::Told;
use crate::driver::compare_view;
use crate::explorer::{Explorer, Setting};
use crate::model::Tree;
use icecore::View;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 2 << 20;
/// Of a hundred lives so many are of pools with threads.
pub const THREADED_PERCENT: u64 = 10;
/// Days of the longest life.
const DAYS_MAX: u64 = 40;

/// A pool, from its making to its emptying.
pub struct Life {
    explorer: Explorer,
    setting: Setting,
    random: Random,
    readers: Vec<Reader>,
    /// A dataset that has a quota.
    limited: Option<String>,
    /// Refusals for want of room since there was some.
    refusals: u32,
    deeds: Deeds,
}

/// Somebody who reads a version, and goes on reading it whatever happens.
struct Reader {
    view: View,
    name: String,
    tree: Arc<Tree>,
}

/// Lives through the life of a seed: so many days, or as many as the seed says.
///
/// # Errors
/// A description of where pool and model do not agree, or of what else must not be.
pub fn live(seed: u64, days: Option<u64>) -> Result<Deeds, String> {
    live_with(seed, days, THREADED_PERCENT)
}

fn live_with(seed: u64, days: Option<u64>, threaded_percent: u64) -> Result<Deeds, String> {
    let setting = draw(seed, threaded_percent);
    let _told = Told(format!("a life with {setting:?}"));
    let mut life = Life::new(seed, setting)?;
    let days = days.unwrap_or_else(|| life.random.between(DAYS_MAX / 4, DAYS_MAX));
    for number in 0..days {
        let _told = Told(format!("day {number}"));
        life.day().map_err(|text| format!("day {number}: {text}"))?;
    }
    life.end().map_err(|text| format!("when all was destroyed: {text}"))?;
    life.deeds.lives += 1;
    Ok(life.deeds)
}

/// As [`live`], with panics as descriptions, and so many of a hundred lives with threads.
///
/// # Errors
/// As there.
pub fn live_guarded(seed: u64, threaded_percent: u64) -> Result<Deeds, String> {
    catch_unwind(AssertUnwindSafe(|| live_with(seed, None, threaded_percent))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Pools that get full at their own limit, at that of their medium or at a quota on it, and some that do not.
fn draw(seed: u64, threaded_percent: u64) -> Setting {
    let mut random = Random::new(seed ^ 0x11fe);
    let mut setting = Setting::draw(seed);
    setting.segment_bytes = SEGMENT_BYTES;
    let bytes = random.between(12, 40) * SEGMENT_BYTES;
    match random.below(10) {
        0..6 => setting.size_limit = Some(bytes),
        6 => setting.disk.capacity = bytes,
        7 => {
            setting.disk.capacity = bytes;
            setting.disk.full_is_quota = true;
        }
        _ => {}
    }
    // With threads the same seed need not lead to the same life; without, nothing runs at the same time.
    setting.options.background = random.chance(threaded_percent);
    setting
}

impl Life {
    fn new(seed: u64, setting: Setting) -> Result<Self, String> {
        let explorer = Explorer::new(seed, &setting).map_err(|error| format!("no new pool: {error}"))?;
        let mut life = Self {
            explorer,
            setting,
            random: Random::new(seed ^ 0x5eed),
            readers: Vec::new(),
            limited: None,
            refusals: 0,
            deeds: Deeds::default(),
        };
        life.explorer.open().map_err(|error| format!("cannot open a new pool: {error}"))?;
        Ok(life)
    }

    fn read_for_long(&mut self) {
        let heads: Vec<_> = {
            let datasets = self.explorer.history.current().datasets().iter();
            datasets.map(|(name, dataset)| (name.clone(), Arc::clone(&dataset.head))).collect()
        };
        let Some((name, tree)) = self.random.pick(&heads).cloned() else { return };
        // A pool that has just failed may refuse.
        if let Ok(view) = self.explorer.pool().view(&name) {
            self.readers.push(Reader { view, name, tree });
        }
    }

    /// What a reader has pinned is what it was.
    fn ask_reader(&mut self) -> Result<(), String> {
        if self.readers.is_empty() {
            return Ok(());
        }
        let reader = self.readers.swap_remove(self.random.index(self.readers.len()));
        let name = format!("a pinned view of {}", reader.name);
        let struck = self.explorer.disk.faults_struck();
        match compare_view(&name, &reader.view, &reader.tree) {
            Ok(()) => self.deeds.readers += 1,
            // It could not read, and was told so. With threads the power may fail meanwhile.
            Err(_) if self.explorer.disk.faults_struck() > struck || self.explorer.disk.is_cut() => {}
            Err(difference) => return Err(difference.to_string()),
        }
        Ok(())
    }
}
