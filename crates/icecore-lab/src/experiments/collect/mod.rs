//! `collect`: what collection costs: bytes, throughput, latency, memory.
//!
//! Amplification is counted on a storage that forgets data (all of it zeros, so that what is moved passes its
//! checksums), without threads, so that it is the same on every machine. Throughput and latency are measured
//! on the real disk: a pool that is nearly full beside one that is half empty, in slices that take turns.

mod amplification;
mod foreground;
pub mod memory;

use super::Findings;
use crate::error::Result;
use crate::options::Options;

/// What is overwritten at a time.
const WRITE_BYTES: u64 = 16 << 10;
/// Writes that are durable together.
const GROUP_WRITES: u64 = 8;
/// Live bytes in a full pool, of all its segments.
const LIVE_SHARE: f64 = 0.8;

pub(super) fn run(options: &Options) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.parameter("write_bytes", WRITE_BYTES);
    findings.parameter("group_writes", GROUP_WRITES);
    findings.parameter("live_share", LIVE_SHARE);
    amplification::run(options, &mut findings)?;
    foreground::run(options, &mut findings)?;
    memory::run(options, &mut findings)?;
    Ok(findings)
}
