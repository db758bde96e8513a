//! What stands behind the I/O seam in tests and measurements, and what runs beside the store to check it.
//!
//! - [`PassingStorage`] passes calls on to another storage, with a watcher: [`CountingStorage`] counts them,
//!   [`SlowStorage`] takes its time to flush.
//! - [`ForgetfulStorage`] keeps tree nodes and frames in memory and forgets the data, for pools larger than
//!   any disk here.
//! - [`SimulatedDisk`] loses, tears and reorders what was not flushed, fails on demand and crashes at any
//!   I/O, all of it decided by one seed.
//! - [`model`] is the store as plain maps, with a generator of histories.
//! - [`driver`] does to a pool what a step of a history says, and compares it with the model; [`explorer`]
//!   lives through a history with crashes and faults. [`remains`] compares what is left of a damaged pool.
//! - [`lives`] has whole lives of pools, with everything that can go wrong in them: `make soak`.
//! - [`script`] does what bytes say, for fuzzers.
//! - [`cases`] is where the seeds of generated tests come from.

pub mod cases;
mod counting;
mod disk;
pub mod driver;
pub mod explorer;
mod forgetful;
pub mod lives;
mod lock;
pub mod model;
mod pages;
mod passing;
mod random;
pub mod remains;
pub mod script;
mod slow;

pub use counting::{Counters, CountingStorage, Counts};
pub use disk::{CrashMode, DiskConfig, FaultKind, SECTOR_BYTES, SimulatedDisk};
pub use forgetful::ForgetfulStorage;
pub use passing::{PassingStorage, Watch};
pub use random::Random;
pub use slow::{SlowStorage, Slowness};
