//! What all histories share.

pub use icecore_sim::cases::{Told, cases, for_each_seed, is_long, must, sample};

use icecore::ScrubReport;
use icecore_sim::explorer::{Explorer, Setting, Verdict};
use icecore_sim::remains::Remains;
use std::collections::BTreeSet;

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
    let untold = remains.versions().into_iter().find(|version| !named.contains(version));
    assert!(ranges || books || untold.is_none(), "{untold:?} is not told: {:?}", report.findings);
    report
}
