//! What all histories share.

pub use icecore_sim::cases::{Context, cases, for_each_seed, is_long, must, sample};

use icecore::{CopyMode, ScrubReport};
use icecore_sim::Random;
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::remains::Remains;
use std::collections::BTreeSet;

/// The bytes of a segment, where a setting has a size of its own.
pub const SEGMENT: u64 = 2 << 20;
/// Steps after which a pool that [`filling`] describes is full at the latest.
pub const STEPS_MAX: usize = 6000;

/// Copies of nothing, of metadata or of all, and in half of the cases a size limit that has room for them.
pub fn draw_copies_and_limit(setting: &mut Setting, random: &mut Random) {
    setting.copies = [CopyMode::None, CopyMode::None, CopyMode::Metadata, CopyMode::All][random.index(4)];
    if random.chance(50) {
        let least = if setting.copies == CopyMode::All { 24 } else { 14 };
        setting.size_limit = Some(random.between(least, least + 8) * SEGMENT);
    }
}

/// A life that fills its pool: it writes most of the time, and hardly anything goes.
pub fn filling(seed: u64) -> Setting {
    let mut setting = Setting::draw(seed);
    setting.weights.write = 120;
    setting.weights.wrong_percent = 0;
    setting.weights.write_bytes_max = 256 << 10;
    setting.weights.offset_max = 1 << 20;
    setting.weights.destroy_snapshot = 1;
    setting.weights.destroy_dataset = 0;
    setting.weights.reopen = 0;
    setting
}

/// A pool with history, closed or killed.
pub fn beginning(seed: u64, closed: bool) -> Explorer {
    let mut setting = Setting::draw(seed);
    setting.weights.write_bytes_max = 32 << 10;
    let mut explorer = Explorer::new(seed, &setting).unwrap();
    explorer.open().unwrap();
    let verdict = must(explorer.live(150));
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
    if closed {
        explorer.close().unwrap();
    } else {
        explorer.crash(None);
    }
    explorer
}

/// Opens a pool that can be opened.
pub fn open(explorer: &mut Explorer) {
    if let Err(error) = explorer.open() {
        panic!("cannot open: {error}\n  {}", explorer.recent());
    }
}

/// The scrub names every version of which something cannot be read.
pub fn assert_named(explorer: &Explorer, remains: &Remains) -> ScrubReport {
    let report = explorer.pool().scrub(&mut |_| true).unwrap();
    let named: BTreeSet<&str> =
        report.findings.iter().flat_map(|finding| &finding.versions).map(String::as_str).collect();
    let ranges = named.iter().any(|name| name.contains('%'));
    // What a lost piece of the books is about is for a check to say.
    let books = report.findings.iter().any(|finding| finding.versions.is_empty());
    let unlisted = remains.versions().into_iter().find(|version| !named.contains(version));
    assert!(ranges || books || unlisted.is_none(), "{unlisted:?} is not reported: {:?}", report.findings);
    report
}
