//! Databases in pools: statements, snapshots, journals, and what comes in and goes out.

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
