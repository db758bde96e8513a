//! Memory for the location map and the sets of a large pool whose live data has thinned out.
//!
//! In a process of its own: the map as collection leaves it (live runs side by side, in the order of addresses), and
//! the set of what lives, of a pool of 1 TiB of addresses of which a tenth lives in runs of 16 KiB. The caches that
//! the defaults allow are added.

use crate::child::Job;
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::machine::peak_memory_bytes;
use crate::options::Options;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median};
use icecore::OpenOptions;
use icecore::liveness::BlockSet;
use icecore::location::LocationMap;
use icecore::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, SegmentId, Slot, Stream};
use serde::{Deserialize, Serialize};

const RUN_BLOCKS: u64 = 4;
/// Blocks of a segment that runs lie in: all but its header, the headers of runs and the table.
const SEGMENT_BLOCKS: u64 = ((64 << 20) / BLOCK_BYTES as u64 - 90) / RUN_BLOCKS * RUN_BLOCKS;
/// Blocks of a run that collection writes at once.
const MOVED_BLOCKS: u64 = 256;
/// One block of so many lives.
const DENSITY: u64 = 10;

/// What the process is to build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThinMap {
    /// Addresses, in blocks.
    pub blocks: u64,
}

#[derive(Serialize, Deserialize)]
struct Outcome {
    entries: u64,
    peak_memory_bytes: u64,
}

pub(super) fn run(options: &Options, findings: &mut Findings) -> Result<()> {
    let bytes: u64 = options.size(1 << 40, 4 << 30);
    let job = Job::ThinMap(ThinMap { blocks: bytes / BLOCK_BYTES as u64 });
    let open = OpenOptions::default();
    let caches = open.block_cache_bytes + open.node_cache_bytes + open.group_memory_bytes;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut peaks = Vec::new();
    let mut per_entry = Vec::new();
    for _ in 0..options.rounds(3, 1) {
        let outcome = run_once(options, &job)?;
        options.say(&format!(
            "map and sets: {} MiB, {} entries, and {} MiB of caches",
            outcome.peak_memory_bytes >> 20,
            outcome.entries,
            caches >> 20
        ));
        peaks.push(mebibytes(outcome.peak_memory_bytes + caches));
        per_entry.push(outcome.peak_memory_bytes as f64 / outcome.entries as f64);
    }
    findings.check(Check::new("collect.rss_mib", bootstrap(&peaks, median, options.seed)));
    findings.system("memory", System::new("MiB", peaks));
    findings.system("memory_per_entry", System::new("bytes", per_entry));
    findings.parameter("memory_pool_bytes", bytes);
    findings.parameter("memory_density", DENSITY);
    Ok(())
}

fn run_once(options: &Options, job: &Job) -> Result<Outcome> {
    options.child.run(job)
}

/// Runs in the process of its own.
pub(crate) fn serve(job: &ThinMap) -> Result<()> {
    let mut map = LocationMap::new();
    let mut alive = BlockSet::new();
    let mut place = 0;
    for start in (1..job.blocks).step_by((RUN_BLOCKS * DENSITY) as usize) {
        let run = Run { stream: Stream::Data, start: LogAddress(start), length: BlockCount(RUN_BLOCKS) };
        // Behind the header of the segment, and those of the runs so far.
        let within = place % SEGMENT_BLOCKS;
        let slot = Slot(2 + (within + within / MOVED_BLOCKS) as u32);
        map.insert(run, SegmentId((place / SEGMENT_BLOCKS) as u32), slot);
        place += RUN_BLOCKS;
        alive.insert(run.start..run.end());
        if start % (1 << 26) < RUN_BLOCKS * DENSITY {
            // A checkpoint: the journal is stored.
            drop(map.take_changes());
        }
    }
    drop(map.take_changes());
    let failure = || Error::Child {
        job: "a thin map".to_owned(),
        reason: "the kernel does not tell how much memory is used".to_owned(),
    };
    let peak = peak_memory_bytes().ok_or_else(failure)?;
    let outcome = Outcome { entries: map.len() as u64, peak_memory_bytes: peak };
    drop(alive);
    let text = serde_json::to_string(&outcome)
        .map_err(|error| Error::Child { job: "a thin map".to_owned(), reason: error.to_string() })?;
    println!("\n{text}");
    Ok(())
}
