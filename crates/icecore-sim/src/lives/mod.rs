//! Whole lives of pools, each from one seed: weeks of writes, snapshots, prunes, collections, clones and
//! rollbacks, in pools that get full, on disks that crash, fail, rot and lie. Every day ends with a full
//! check, every life with nothing: when all is destroyed, all space has to be there again.

mod day;
mod deeds;
mod folder;
mod housekeeping;
mod inspection;
mod limits;
mod obituary;
mod process;
mod rot;
mod trouble;

pub use deeds::Deeds;
pub use process::Footprint;

use crate::Random;
use crate::cases::Context;
use crate::driver::compare_view;
use crate::explorer::{Explorer, Setting};
use crate::model::Tree;
use folder::Folder;
use icecore::{CopyMode, View};
use obituary::guarded;
use std::path::Path;
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
    /// Where a scrub keeps its place.
    folder: Option<Folder>,
    /// The next scrub is to begin anew.
    scrub_anew: bool,
    /// What was damaged of which there is a second one, and was not healed on purpose yet.
    rotten: Vec<String>,
    /// Refusals for want of room since there was some.
    refusals: u32,
    deeds: Deeds,
}

/// A reader of a version, which goes on reading it whatever happens.
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
    let _context = Context(format!("a life with {setting:?}"));
    Life::new(seed, setting)?.live(days)
}

/// As [`live`], with panics as descriptions, and so many of a hundred lives with threads. A failure reports
/// all that it can: with threads, a seed does not repeat it. `keep`: the folder that files of a pool go to
/// whose life has failed.
///
/// # Errors
/// As there.
pub fn live_guarded(seed: u64, threaded_percent: u64, keep: Option<&Path>) -> Result<Deeds, String> {
    let setting = draw(seed, threaded_percent);
    let mut life = guarded(|| Life::new(seed, setting.clone()))?;
    guarded(|| life.live(None)).map_err(|text| life.obituary(&text, keep.map(|keep| (keep, seed))))
}

/// Pools that get full at their own limit, at that of their medium or at a quota on it, and some that do not.
fn draw(seed: u64, threaded_percent: u64) -> Setting {
    let mut random = Random::new(seed ^ 0x11fe);
    let mut setting = Setting::draw(seed);
    setting.segment_bytes = SEGMENT_BYTES;
    draw_copies(seed, &mut setting);
    // Copies in the same folder take room.
    let beside = if setting.mirror.is_some() { CopyMode::None } else { setting.copies };
    let (least, most) = match beside {
        CopyMode::None => (12, 40),
        CopyMode::Metadata => (14, 44),
        CopyMode::All => (24, 72),
    };
    let bytes = random.between(least, most) * SEGMENT_BYTES;
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
    setting.disk.trace = setting.options.background;
    setting
}

/// Mostly the default of what is copied, in the same folder; sometimes more or nothing, sometimes on another
/// disk.
fn draw_copies(seed: u64, setting: &mut Setting) {
    let mut random = Random::new(seed ^ 0xc0b1);
    setting.copies = match random.below(10) {
        0..6 => CopyMode::default(),
        6 | 7 => CopyMode::None,
        _ => CopyMode::All,
    };
    let elsewhere = setting.copies != CopyMode::None && random.chance(30);
    setting.mirror = elsewhere.then(|| "/mirror".to_owned());
}

impl Life {
    fn new(seed: u64, setting: Setting) -> Result<Self, String> {
        let explorer = Explorer::new(seed, &setting).map_err(|error| format!("no new pool: {error}"))?;
        let folder = Folder::new();
        if let Some(folder) = &folder {
            explorer.disk.set_folder(folder.path().to_owned());
        }
        let mut life = Self {
            explorer,
            setting,
            random: Random::new(seed ^ 0x5eed),
            readers: Vec::new(),
            folder,
            scrub_anew: false,
            rotten: Vec::new(),
            refusals: 0,
            deeds: Deeds::default(),
        };
        life.explorer.open().map_err(|error| format!("cannot open a new pool: {error}"))?;
        Ok(life)
    }

    fn live(&mut self, days: Option<u64>) -> Result<Deeds, String> {
        let days = days.unwrap_or_else(|| self.random.between(DAYS_MAX / 4, DAYS_MAX));
        for number in 0..days {
            let _context = Context(format!("day {number}"));
            self.day().map_err(|text| format!("day {number}: {text}"))?;
        }
        self.end().map_err(|text| format!("when all was destroyed: {text}"))?;
        self.deeds.lives += 1;
        Ok(self.deeds)
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
            // It could not read, and got an error. With threads the power may fail meanwhile.
            Err(_) if self.explorer.disk.faults_struck() > struck || self.explorer.disk.is_cut() => {}
            Err(difference) => return Err(difference.to_string()),
        }
        Ok(())
    }
}
