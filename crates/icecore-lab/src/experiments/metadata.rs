//! `randwrite-metadata`: what random writes over a huge file cost beside the data.
//!
//! The pool lies on a storage that keeps metadata in memory, counts every byte by kind and forgets the data:
//! so the file may be larger than the disk. It is filled from beginning to end, then updated 16 KiB at a
//! time at random. Until every place has been updated three times on average the tree is still growing;
//! what is measured comes after, in windows of several checkpoints each.

use super::Findings;
use crate::counters::Counters;
use crate::error::Result;
use crate::options::Options;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, mean};
use crate::storefile::StoreFile;
use icecore::storage::Kind;
use icecore_sim::{Counts, ForgetfulStorage};
use std::sync::Arc;

const WRITE_BYTES: u64 = 16 << 10;
/// A flush after so many updates: more of them would add record headers, which are reported apart.
const SYNC_WRITES: u64 = 16;
/// Updates before measuring, in sizes of the file.
const WARM_UP_FILLS: u64 = 3;
const WINDOWS: usize = 20;

struct Updates {
    file: StoreFile,
    storage: Arc<ForgetfulStorage>,
    bytes: u64,
    random: Random,
    data: Vec<u8>,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let bytes: u64 = options.size(100 << 30, 64 << 20);
    // Three of the checkpoints that the defaults start (one per half of the log).
    let open = icecore::OpenOptions {
        log_bytes_max: options.size(icecore::OpenOptions::default().log_bytes_max, 16 << 20),
        ..Default::default()
    };
    let window = open.log_bytes_max / 2 * 3;
    let windows = options.rounds(WINDOWS, 2);
    let mut updates = Updates::begin(bytes, &open, options)?;
    let warm_up = updates.measure("warming up", bytes * WARM_UP_FILLS, options)?;
    let measured = (1..=windows)
        .map(|number| updates.measure(&format!("window {number} of {windows}"), window, options))
        .collect::<Result<Vec<Counts>>>()?;
    let per_data = |kinds: &[Kind]| -> Vec<f64> {
        let sum = |counts: &Counts| kinds.iter().map(|&kind| counts.bytes_of(kind)).sum::<u64>();
        // Of what was updated: data that was moved does not count.
        measured.iter().map(|counts| sum(counts) as f64 / window as f64).collect()
    };
    let metadata = per_data(&[Kind::Node, Kind::Checkpoint]);
    let mut findings = Findings::default();
    findings.check(Check::new("randwrite.metadata", bootstrap(&metadata, mean, options.seed)));
    let counters = Counters::of(updates.file.pool());
    findings.system("metadata", System::new("bytes/byte", metadata).with_counters(counters.into_map()));
    for (name, kind) in
        [("nodes", Kind::Node), ("checkpoints", Kind::Checkpoint), ("record_headers", Kind::RecordHeader)]
    {
        findings.system(name, System::new("bytes/byte", per_data(&[kind])));
    }
    findings.parameter("file_bytes", bytes);
    findings.parameter("write_bytes", WRITE_BYTES);
    findings.parameter("sync_writes", SYNC_WRITES);
    findings.parameter("warm_up_bytes", warm_up.bytes_of(Kind::Data));
    findings.parameter("window_bytes", window);
    findings.parameter("windows", windows);
    findings.parameter("log_bytes_max", open.log_bytes_max);
    Ok(findings)
}

impl Updates {
    fn begin(bytes: u64, open: &icecore::OpenOptions, options: &Options) -> Result<Self> {
        // Room for the fill and every update without ever reusing anything.
        let storage = Arc::new(ForgetfulStorage::new(bytes.saturating_mul(16).max(1 << 40)));
        let file = StoreFile::create_on(Arc::clone(&storage) as Arc<_>, open)?;
        let random = Random::new(options.seed);
        options.say(&format!("filling {} GiB", bytes as f64 / (1_u64 << 30) as f64))?;
        // What is read from this storage is zeros: so that what is moved passes its checksums.
        file.fill_with_zeros(bytes)?;
        let data = vec![0; WRITE_BYTES as usize];
        Ok(Self { file, storage, bytes, random, data })
    }

    /// Updates `amount` bytes and answers what was written meanwhile, by kind.
    fn measure(&mut self, what: &str, amount: u64, options: &Options) -> Result<Counts> {
        const STEP: u64 = 1 << 18;
        let before = self.storage.counts();
        let count = amount.div_ceil(WRITE_BYTES);
        for number in 1..=count {
            let offset = self.random.below(self.bytes / WRITE_BYTES) * WRITE_BYTES;
            self.file.write(offset, &self.data)?;
            if number % SYNC_WRITES == 0 || number == count {
                self.file.sync()?;
            }
            if number % STEP == 0 || number == count {
                options.say(&format!("{what}: {number} of {count} updates"))?;
            }
        }
        Ok(self.storage.counts() - before)
    }
}
