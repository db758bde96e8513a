//! What all histories share.

#![allow(unused_imports, reason = "each test file uses a part of this")]

pub use icecore_sim::cases::{Told, cases, for_each_seed, is_long, must, sample};

use icecore_sim::explorer::{Explorer, Setting, Verdict};

/// A pool with history, closed or killed.
#[allow(dead_code, reason = "not every test file begins with a history")]
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
