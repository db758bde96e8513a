//! Databases in pools: statements, snapshots, journals, and what comes in and goes out. Tests that ask for
//! the last error have just met one in their own thread.

mod arrivals;
mod attached;
#[path = "../common/mod.rs"]
mod common;
mod equivalence;
mod modes;
mod snapshots;
mod spill;
mod transfer;
mod validity;
