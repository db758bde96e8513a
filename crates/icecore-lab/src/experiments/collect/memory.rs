//! Memory for the location map and the sets of a large pool whose live data has thinned out.
//!
//! In a process of its own: the map as collection leaves it, live runs side by side, in the order of
//! addresses. It is in chunks in a file, with as many in memory as the defaults allow. Likewise the set of
//! what lives, of a pool of 1 TiB of addresses of which a tenth lives in runs of 16 KiB. The caches that the
//! defaults allow are added.

use crate::child::Job;
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::machine::peak_memory_bytes;
use crate::options::Options;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median};
use icecore::OpenOptions;
use icecore::format::superblock::LedgerPointer;
use icecore::inside::{
    Absent, Chunk, ChunkStore, ChunkedMap, DecodeLimits, History, HistoryChanges, Lookup, MapLimits, Part,
    PartRow, PartSource, PartStore, PlacedRun, SetChunk, SetLimits, SharedChunk, StoredHistory,
};
use icecore::units::{BLOCK_BYTES, BlockCount, LogAddress, Marks, PoolId, Run, SegmentId, Slot, Stream};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const POOL: PoolId = PoolId([1; 16]);
/// Blocks that are looked up at the end: more chunks than memory holds.
const LOOKUPS: u64 = 200_000;

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
    /// Where chunks go.
    pub directory: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Outcome {
    entries: u64,
    peak_memory_bytes: u64,
}

pub(super) fn run(options: &Options, findings: &mut Findings) -> Result<()> {
    let bytes: u64 = options.size(1 << 40, 4 << 30);
    let scratch = options.scratch()?;
    let directory = scratch.path().to_owned();
    let job = Job::ThinMap(ThinMap { blocks: bytes / BLOCK_BYTES as u64, directory });
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
        ))?;
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
    options.child.run(job, options)
}

/// A file for chunks.
#[derive(Clone)]
struct Shelf {
    file: Arc<File>,
    blocks: u32,
}

impl Shelf {
    fn new(directory: &Path, name: &str) -> icecore::Result<Self> {
        let path = directory.join(format!("chunks-{}-{name}", std::process::id()));
        let create = || {
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(Self { file: Arc::new(file), blocks: 0 })
        };
        create().map_err(|error: std::io::Error| {
            icecore::Error::Invalid(format!("the file for chunks, {}: {error}", path.display()))
        })
    }

    fn failed(error: std::io::Error) -> icecore::Error {
        icecore::Error::Invalid(format!("a file for chunks, in the folder that is measured: {error}"))
    }
}

impl Shelf {
    fn read_at(&self, place: &LedgerPointer) -> icecore::Result<Vec<u8>> {
        let mut bytes = vec![0; place.blocks as usize * BLOCK_BYTES];
        let offset = u64::from(place.slot.0) * BLOCK_BYTES as u64;
        self.file.read_exact_at(&mut bytes, offset).map_err(Self::failed)?;
        Ok(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> icecore::Result<LedgerPointer> {
        let slot = Slot(self.blocks);
        self.file.write_all_at(bytes, u64::from(slot.0) * BLOCK_BYTES as u64).map_err(Self::failed)?;
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        self.blocks += blocks;
        Ok(LedgerPointer { segment: SegmentId(0), slot, blocks, crc: 0 })
    }
}

impl PartSource for Shelf {
    fn resident(&self, _: &PartRow) -> Option<Part> {
        None
    }

    fn read(&self, row: &PartRow) -> icecore::Result<Part> {
        Part::of(&Arc::new(SetChunk::decode(&self.read_at(&row.place)?, POOL)?), row)
    }
}

impl PartStore for Shelf {
    fn load(&mut self, row: &PartRow) -> icecore::Result<Part> {
        self.read(row)
    }

    fn write(&mut self, parts: &[Vec<u8>]) -> icecore::Result<LedgerPointer> {
        self.put(&SetChunk::encode(POOL, parts))
    }

    fn is_thin(&self, _: SegmentId) -> bool {
        false
    }
}

/// The sets of a pool with one dataset, and what a ledger would say of them.
struct Sets {
    history: History,
    ledger: Vec<u8>,
    shelf: Shelf,
    limits: SetLimits,
}

impl Sets {
    fn new(shelf: Shelf, bytes: u64) -> Self {
        let limits = SetLimits::of(bytes);
        let mut history = History::new();
        history.keep_in(Arc::new(shelf.clone()), limits);
        Self {
            history,
            ledger: HistoryChanges { full: true, ..HistoryChanges::default() }.encode(),
            shelf,
            limits,
        }
    }

    /// A checkpoint with a picture of everything.
    fn consolidate(&mut self) -> icecore::Result<()> {
        let changes = self.history.take_changes();
        let mut limits = DecodeLimits::new(Marks([LogAddress(1 << 47); 3]));
        let mut stored = StoredHistory::new();
        stored.apply_changes(HistoryChanges::decode(&self.ledger, &mut limits)?)?;
        stored.apply_changes(changes)?;
        let changed = stored.consolidate(&self.limits, &mut self.shelf, &mut Vec::new())?;
        self.history.go_on_with(&stored.bases(), &changed);
        self.ledger = stored.into_full_changes().encode();
        Ok(())
    }
}

impl ChunkStore for Shelf {
    fn load(&mut self, absent: &Absent) -> icecore::Result<SharedChunk> {
        let bytes = self.read_at(&absent.place)?;
        Chunk::decode(&bytes, POOL, absent.stream, &absent.span).map(Arc::new)
    }

    fn write(&mut self, stream: Stream, runs: &[PlacedRun]) -> icecore::Result<LedgerPointer> {
        self.put(&Chunk::encode(POOL, stream, runs))
    }

    fn is_thin(&self, _: SegmentId, _: u64) -> bool {
        false
    }
}

/// A checkpoint with a picture of everything.
fn consolidate(map: &mut ChunkedMap, shelf: &mut Shelf) -> icecore::Result<()> {
    drop(map.take_changes());
    let chunks = map.consolidate(shelf, &mut Vec::new())?;
    map.go_on_with(chunks.directory);
    Ok(())
}

fn look_up(map: &mut ChunkedMap, shelf: &mut Shelf, address: LogAddress) -> icecore::Result<bool> {
    let found = match map.lookup(Stream::Data, address) {
        Lookup::Absent(absent) => {
            let chunk = ChunkStore::load(shelf, &absent)?;
            map.lookup_with(&absent, &chunk, Stream::Data, address)
        }
        found => Some(found),
    };
    Ok(matches!(found, Some(Lookup::At(..))))
}

/// Builds the map as collection does, and looks up blocks all over it until the memory for chunks is used up.
fn build(job: &ThinMap) -> icecore::Result<(u64, u64)> {
    let mut shelf = Shelf::new(&job.directory, "map")?;
    // As a pool shares it out.
    let memory = OpenOptions::default().map_memory_bytes;
    let mut map = ChunkedMap::new(MapLimits::of(memory - memory / 4));
    let mut sets = Sets::new(Shelf::new(&job.directory, "sets")?, memory / 4);
    let head = sets.history.new_head(None)?;
    let mut place = 0;
    for start in (1..job.blocks).step_by((RUN_BLOCKS * DENSITY) as usize) {
        let run = Run { stream: Stream::Data, start: LogAddress(start), length: BlockCount(RUN_BLOCKS) };
        // Behind the header of the segment, and those of the runs so far.
        let within = place % SEGMENT_BLOCKS;
        let slot = Slot(2 + (within + within / MOVED_BLOCKS) as u32);
        map.insert(run, SegmentId((place / SEGMENT_BLOCKS) as u32), slot);
        place += RUN_BLOCKS;
        sets.history.born(head, run)?;
        // A checkpoint now and then.
        if start % (1 << 20) < RUN_BLOCKS * DENSITY {
            if map.is_due() {
                consolidate(&mut map, &mut shelf)?;
            }
            sets.consolidate()?;
        }
    }
    consolidate(&mut map, &mut shelf)?;
    sets.consolidate()?;
    let runs = job.blocks.div_ceil(RUN_BLOCKS * DENSITY);
    for index in 0..LOOKUPS {
        let run = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % runs;
        let address = LogAddress(1 + run * RUN_BLOCKS * DENSITY);
        assert!(look_up(&mut map, &mut shelf, address)?, "{address} has a place");
    }
    let entries = map.directory().all().map(|(_, row)| u64::from(row.entries)).sum();
    let failure = "the kernel has no figure for the memory in use".to_owned();
    let peak = peak_memory_bytes().ok_or(icecore::Error::Invalid(failure))?;
    drop(sets);
    Ok((entries, peak))
}

/// Runs in the process of its own.
pub(crate) fn serve(job: &ThinMap) -> Result<()> {
    let failure = |reason: String| Error::Child { job: "a thin map".to_owned(), reason };
    let (entries, peak_memory_bytes) = build(job).map_err(|error| failure(error.to_string()))?;
    let outcome = Outcome { entries, peak_memory_bytes };
    let text = serde_json::to_string(&outcome).map_err(|error| failure(error.to_string()))?;
    println!("\n{text}");
    Ok(())
}
