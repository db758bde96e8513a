//! Where threads meet, under a checker that tries one order of their steps after the other (shuttle). The
//! very files of the store are compiled here, with the checker's locks and threads in place of the system's
//! (`sync.rs`). What stands around them in the store is a model; what it asserts is what must hold in every
//! order.

#[allow(dead_code, unused_imports, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/copies/mod.rs"]
mod copies;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/error.rs"]
mod error;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/files.rs"]
mod files;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/state/graveyard.rs"]
mod graveyard;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/engine/staging/handover.rs"]
mod handover;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/engine/line.rs"]
mod line;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/numbers.rs"]
mod numbers;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/pins.rs"]
mod pins;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/present.rs"]
mod present;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/blocks/tables.rs"]
mod tables;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../../src/log/turn.rs"]
mod turn;

mod checkpoints;
mod disk;
mod incidents;
mod log;
mod moves;
mod readers;
mod second_copies;
mod staging;
mod statistics;
mod sync;

/// What the files use of the store, as it is.
mod format {
    pub use icecore::format::*;
}
mod liveness {
    pub use icecore::inside::{BlockSet, FreedSink, Span};
}
mod storage {
    pub use icecore::storage::*;
}
mod units {
    pub use icecore::units::*;
}

/// Orders of steps that are tried.
const SCHEDULES: usize = 1500;

/// Tries orders of steps that are drawn evenly, and such as prefer one thread and change their mind rarely.
fn together(body: impl Fn() + Send + Sync + 'static) {
    together_times(SCHEDULES, body);
}

/// The same, so many orders of each.
fn together_times(schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = std::sync::Arc::new(body);
    let again = std::sync::Arc::clone(&body);
    shuttle::check_random(move || again(), schedules);
    shuttle::check_pct(move || body(), schedules, 3);
}
