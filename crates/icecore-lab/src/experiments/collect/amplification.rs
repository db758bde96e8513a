//! Bytes written to disk for each byte that was overwritten, everything counted.

use super::{GROUP_WRITES, LIVE_SHARE, WRITE_BYTES};
use crate::counters::Counters;
use crate::error::Result;
use crate::experiments::Findings;
use crate::options::Options;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, mean};
use crate::storefile::StoreFile;
use icecore::storage::Kind;
use icecore::units::ByteLength;
use icecore::{InitOptions, OpenOptions};
use icecore_sim::{Counts, ForgetfulStorage};
use std::sync::Arc;

/// Overwrites before measuring, in sizes of the file.
const WARM_UP_FILLS: u64 = 3;
const WINDOWS: usize = 32;

/// Which part of the file an overwrite meets.
#[derive(Clone, Copy)]
enum Pattern {
    Uniform,
    /// Four of five overwrites go to a fifth of the file.
    Skewed,
}

struct Sizes {
    segment_bytes: u64,
    pool_bytes: u64,
    file_bytes: u64,
}

pub(super) fn run(options: &Options, findings: &mut Findings) -> Result<()> {
    let segment_bytes = options.size(8 << 20, 2 << 20);
    let pool_bytes: u64 = options.size(8 << 30, 160 << 20);
    let file_bytes =
        ((pool_bytes as f64 * options.size(LIVE_SHARE - 0.004, 0.6)) as u64) / WRITE_BYTES * WRITE_BYTES;
    let sizes = Sizes { segment_bytes, pool_bytes, file_bytes };
    findings.parameter("amplification_pool_bytes", pool_bytes);
    findings.parameter("amplification_segment_bytes", segment_bytes);
    findings.parameter("amplification_file_bytes", file_bytes);
    findings.parameter("amplification_warm_up_fills", WARM_UP_FILLS);
    for (name, pattern) in [("uniform", Pattern::Uniform), ("skewed", Pattern::Skewed)] {
        overwrite(name, pattern, &sizes, options, findings)?;
    }
    Ok(())
}

fn overwrite(
    name: &str,
    pattern: Pattern,
    sizes: &Sizes,
    options: &Options,
    findings: &mut Findings,
) -> Result<()> {
    // The limit of the pool is what counts; the superblocks lie beside.
    let storage = Arc::new(ForgetfulStorage::new(sizes.pool_bytes * 2));
    let init = InitOptions {
        segment_bytes: sizes.segment_bytes,
        size_limit: Some(ByteLength(sizes.pool_bytes)),
        ..InitOptions::default()
    };
    let open = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let file = StoreFile::create_with(Arc::clone(&storage) as Arc<_>, &init, &open)?;
    options.say(&format!("{name}: filling {} MiB", sizes.file_bytes >> 20))?;
    file.fill_with_zeros(sizes.file_bytes)?;
    let mut random = Random::new(options.seed);
    let mut write = |bytes: u64| write_over(&file, bytes, sizes.file_bytes, pattern, &mut random);
    let window = sizes.file_bytes / 8;
    let windows = options.size(WINDOWS, 2);
    write(sizes.file_bytes * options.size(WARM_UP_FILLS, 1))?;
    let before = Counters::of(file.pool());
    let mut measured = Vec::new();
    let mut former = storage.counts();
    for number in 1..=windows {
        write(window)?;
        let now = storage.counts();
        measured.push(now - former);
        former = now;
        let statistics = file.pool().statistics();
        let share = statistics.live_bytes as f64 / statistics.segment_file_bytes as f64;
        options.say(&format!(
            "{name}: window {number} of {windows}: {:.3}, {:.1} % live, victims {:.1} % full",
            per_byte(&measured[number - 1], window),
            share * 100.0,
            statistics.collected_utilisation() * 100.0,
        ))?;
        findings.parameter(&format!("{name}_live_share"), share);
    }
    let totals: Vec<f64> = measured.iter().map(|counts| per_byte(counts, window)).collect();
    findings.check(Check::new(&format!("collect.{name}"), bootstrap(&totals, mean, options.seed)));
    let counters = Counters::of(file.pool()).since(&before);
    findings.system(name, System::new("bytes/byte", totals).with_counters(counters.into_map()));
    for (part, kinds) in [
        ("data_and_moved", &[Kind::Data][..]),
        ("headers", &[Kind::RecordHeader]),
        ("nodes", &[Kind::Node]),
        ("checkpoints", &[Kind::Checkpoint]),
        ("frames", &[Kind::Frame, Kind::Ahead]),
        ("copies", &[Kind::Copy]),
    ] {
        let share = |counts: &Counts| {
            kinds.iter().map(|kind| counts.bytes_of(*kind)).sum::<u64>() as f64 / window as f64
        };
        let samples = measured.iter().map(share).collect();
        findings.system(&format!("{name}_{part}"), System::new("bytes/byte", samples));
    }
    Ok(())
}

fn per_byte(counts: &Counts, bytes: u64) -> f64 {
    counts.written_bytes() as f64 / bytes as f64
}

fn write_over(
    file: &StoreFile,
    bytes: u64,
    file_bytes: u64,
    pattern: Pattern,
    random: &mut Random,
) -> Result<()> {
    let data = vec![0; WRITE_BYTES as usize];
    let pieces = file_bytes / WRITE_BYTES;
    for number in 1..=bytes / WRITE_BYTES {
        let piece = match pattern {
            Pattern::Uniform => random.below(pieces),
            Pattern::Skewed if random.below(5) > 0 => random.below(pieces / 5),
            Pattern::Skewed => pieces / 5 + random.below(pieces - pieces / 5),
        };
        // So that what is hot does not lie together.
        let piece = (piece * 7919) % pieces;
        file.write(piece * WRITE_BYTES, &data)?;
        if number % GROUP_WRITES == 0 {
            file.sync()?;
        }
    }
    file.sync()
}
