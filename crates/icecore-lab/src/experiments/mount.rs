//! `mount`: programs on a mount of the store, beside the filesystem of the folder.
//!
//! Every measure runs on both sides in turn, round by round. Files are there and fully written before. Before
//! reads, what the page cache holds of the pool and of the plain files is dropped; both sides read with
//! `O_DIRECT`.

use super::{Findings, floor};
use crate::device::drop_cached;
use crate::error::{Doing, Error, Result};
use crate::fio::Drive;
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::served::Served;
use crate::snapshotting::while_taking;
use crate::statistics::paired_ratio;
use crate::systems::mounted::Mounted;
use crate::tool::output;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BLOCK_BYTES: u64 = 16 << 10;
const SCAN_BYTES: u64 = 1 << 20;
/// The snapshot that `mount.scan_snapshot` reads: of a file of which half was updated.
const SCANNED: &str = "scanned";
/// Files over which random reads are spread.
const FILES_READ: usize = 8;
const FILES_PER_FOLDER: usize = 100;
/// Sizes of small files are spread evenly below this.
const SMALL_BYTES_MAX: u64 = 8 << 10;

/// One thing that is measured.
#[derive(Clone, Copy)]
struct Measure {
    name: &'static str,
    /// What fio does, with what block, in how many jobs, and how many writes to a `fdatasync`.
    drive: Option<(&'static str, u64, usize, u32)>,
    on: Side,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Plain,
    Mount,
    /// The least that a file system on FUSE can do.
    Floor,
    /// The mount, while a snapshot is taken each second.
    Snapshots,
    /// The mount, in the folder of a snapshot.
    Past,
}

const fn measure(name: &'static str, on: Side, drive: (&'static str, u64, usize, u32)) -> Measure {
    Measure { name, drive: Some(drive), on }
}

use Side::{Floor, Mount, Past, Plain, Snapshots};

const MEASURES: [Measure; 21] = [
    measure("plain_write_1", Plain, ("randwrite", BLOCK_BYTES, 1, 1)),
    measure("mount_write_1", Mount, ("randwrite", BLOCK_BYTES, 1, 1)),
    measure("snapshots_write_1", Snapshots, ("randwrite", BLOCK_BYTES, 1, 1)),
    measure("plain_write_8", Plain, ("randwrite", BLOCK_BYTES, 8, 1)),
    measure("mount_write_8", Mount, ("randwrite", BLOCK_BYTES, 8, 1)),
    measure("plain_write_100", Plain, ("randwrite", BLOCK_BYTES, 1, 100)),
    measure("mount_write_100", Mount, ("randwrite", BLOCK_BYTES, 1, 100)),
    measure("plain_read_1", Plain, ("randread", BLOCK_BYTES, 1, 0)),
    measure("mount_read_1", Mount, ("randread", BLOCK_BYTES, 1, 0)),
    measure("plain_read_8", Plain, ("randread", BLOCK_BYTES, 8, 0)),
    measure("mount_read_8", Mount, ("randread", BLOCK_BYTES, 8, 0)),
    measure("plain_scan", Plain, ("read", SCAN_BYTES, 1, 0)),
    measure("mount_scan", Mount, ("read", SCAN_BYTES, 1, 0)),
    measure("past_scan", Past, ("read", SCAN_BYTES, 1, 0)),
    Measure { name: "plain_small_files", drive: None, on: Plain },
    Measure { name: "mount_small_files", drive: None, on: Mount },
    measure("floor_write_1", Floor, ("randwrite", BLOCK_BYTES, 1, 1)),
    measure("floor_write_8", Floor, ("randwrite", BLOCK_BYTES, 8, 1)),
    measure("floor_write_100", Floor, ("randwrite", BLOCK_BYTES, 1, 100)),
    measure("floor_read_1", Floor, ("randread", BLOCK_BYTES, 1, 0)),
    measure("floor_read_8", Floor, ("randread", BLOCK_BYTES, 8, 0)),
];

/// Each check: the measure above and the one below the line.
const CHECKS: [(&str, usize, usize); 9] = [
    ("mount.write.1", 1, 0),
    ("mount.write.8", 4, 3),
    ("mount.write.100", 6, 5),
    ("mount.snapshot_cost", 2, 1),
    ("mount.read.1", 8, 7),
    ("mount.read.8", 10, 9),
    ("mount.scan", 12, 11),
    ("mount.scan_snapshot", 13, 11),
    ("mount.small_files", 15, 14),
];

/// Checks that have a floor: its measure.
const FLOORS: [(&str, usize); 5] = [
    ("mount.write.1", 16),
    ("mount.write.8", 17),
    ("mount.write.100", 18),
    ("mount.read.1", 19),
    ("mount.read.8", 20),
];

fn floor_of(check: &str) -> Option<usize> {
    FLOORS.iter().find(|(name, _)| *name == check).map(|(_, measure)| *measure)
}

/// The names of the checks.
pub(super) fn checks() -> impl Iterator<Item = &'static str> {
    CHECKS.into_iter().map(|(name, ..)| name)
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(20, 2);
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| only == name);
    let checks: Vec<_> = CHECKS.into_iter().filter(|(name, ..)| wanted(name)).collect();
    let is_needed = |index: &usize| {
        let needs = |(name, above, below): &(&str, usize, usize)| {
            [*above, *below].contains(index) || floor_of(name) == Some(*index)
        };
        checks.iter().any(needs)
    };
    let needed: Vec<usize> = (0..MEASURES.len()).filter(is_needed).collect();
    let drives = needed.iter().filter_map(|index| MEASURES[*index].drive);
    let files = drives.map(|(how, _, jobs, _)| if how == "randread" { FILES_READ } else { jobs }).max();
    let archives = needed.iter().any(|index| MEASURES[*index].drive.is_none());
    let bench = Bench {
        slice: options.size(Duration::from_secs(3), Duration::from_millis(200)),
        file_bytes: options.size(512 << 20, 4 << 20),
        files: files.unwrap_or(1),
        small_files: if archives { options.size(50_000, 200) } else { 0 },
        mounted: None,
        floor: None,
        folder: options.scratch()?,
    };
    let bench = bench.begin(options)?;
    let mut taken = 0;
    let samples = interleave(rounds, needed.len(), |round, place| {
        let measure = &MEASURES[needed[place]];
        let rate = bench.run(measure, options, &mut taken)?;
        options.say(&format!("round {} of {rounds}: {} {rate:.1}/s", round + 1, measure.name))?;
        Ok(rate)
    })?;
    let samples: BTreeMap<usize, Vec<f64>> = needed.into_iter().zip(samples).collect();
    let mut findings = Findings::default();
    for (name, above, below) in checks {
        findings.check(Check::new(name, paired_ratio(&samples[&above], &samples[&below], options.seed)));
        if let Some(floor) = floor_of(name) {
            let ratio = paired_ratio(&samples[&floor], &samples[&below], options.seed);
            findings.parameter(&format!("{name}.floor"), ratio.value);
        }
    }
    for (index, samples) in samples {
        let measure = &MEASURES[index];
        let unit = if measure.drive.is_some() { "requests/s" } else { "files/s" };
        findings.system(measure.name, System::new(unit, samples));
    }
    findings.parameter("rounds", rounds);
    findings.parameter("slice_s", bench.slice.as_secs_f64());
    findings.parameter("file_bytes", bench.file_bytes);
    findings.parameter("small_files", bench.small_files);
    Ok(findings)
}

struct Bench {
    slice: Duration,
    file_bytes: u64,
    /// How many files there are to read and write.
    files: usize,
    small_files: u64,
    mounted: Option<Mounted>,
    floor: Option<Served>,
    /// Holds everything above, so it goes last.
    folder: TempDir,
}

impl Bench {
    fn begin(mut self, options: &Options) -> Result<Self> {
        let mut random = Random::new(options.seed);
        let folder = self.folder.path();
        fs::create_dir(folder.join("plain")).doing(|| "make the plain folder".to_owned())?;
        let mounted = Mounted::begin(folder, options)?;
        for side in [&folder.join("plain"), mounted.point()] {
            options.say(&format!(
                "writing {} MiB in {}",
                (self.files as u64 * self.file_bytes) >> 20,
                side.display()
            ))?;
            (0..self.files).try_for_each(|number| {
                options.go_on()?;
                fill(&side.join(format!("file.{number}")), self.file_bytes, &mut random)
            })?;
        }
        if self.small_files > 0 {
            make_archive(folder, self.small_files, &mut random, options)?;
        }
        self.update_half(mounted.point(), &mut random)?;
        mounted.snapshot(SCANNED)?;
        self.mounted = Some(mounted);
        let plain = folder.join("plain");
        fill(&plain.join(floor::LOG_NAME), floor::LOG_BYTES, &mut random)?;
        self.floor = Some(floor::begin(folder, &plain, self.files, self.file_bytes, options)?);
        Ok(self)
    }

    /// Writes blocks of the first file at random, as many as make half of it.
    fn update_half(&self, folder: &Path, random: &mut Random) -> Result<()> {
        use std::os::unix::fs::FileExt as _;
        let doing = || "update the first file on the mount".to_owned();
        let file = File::options().write(true).open(folder.join("file.0")).doing(doing)?;
        let mut block = vec![0; BLOCK_BYTES as usize];
        random.fill(&mut block);
        for _ in 0..self.file_bytes / BLOCK_BYTES / 2 {
            file.write_all_at(&block, random.below(self.file_bytes / BLOCK_BYTES) * BLOCK_BYTES)
                .doing(doing)?;
        }
        file.sync_all().doing(doing)
    }

    fn mounted(&self) -> Result<&Mounted> {
        let missing =
            || Error::Mismatch { what: "the mount".to_owned(), detail: "it was not made".to_owned() };
        self.mounted.as_ref().ok_or_else(missing)
    }

    fn run(&self, measure: &Measure, options: &Options, taken: &mut u64) -> Result<f64> {
        let mounted = self.mounted()?;
        let plain = self.folder.path().join("plain");
        let folder = match measure.on {
            Plain => plain.clone(),
            Mount | Snapshots => mounted.point().to_owned(),
            Past => mounted.snapshot_folder(SCANNED),
            Floor => self.folder.path().join("floor"),
        };
        let Some((how, block, jobs, sync_every)) = measure.drive else {
            return self.unpack_and_remove(&folder, options);
        };
        if how != "randwrite" {
            drop_cached(if matches!(measure.on, Plain | Floor) { &plain } else { mounted.pool() })?;
        }
        let drive = Drive {
            folder: &folder,
            how,
            block,
            jobs,
            files: self.files,
            bytes: self.file_bytes,
            sync_every,
            time: self.slice,
        };
        if measure.on == Snapshots {
            with_snapshots(mounted, &drive, options, taken)
        } else {
            drive.rate(options)
        }
    }

    /// Files a second, unpacked and removed.
    fn unpack_and_remove(&self, folder: &Path, options: &Options) -> Result<f64> {
        let begin = Instant::now();
        let archive = self.folder.path().join("small.tar");
        output(Command::new("tar").arg("-C").arg(folder).arg("-xf").arg(archive), options)?;
        output(Command::new("rm").arg("-r").arg(folder.join("small")), options)?;
        Ok(self.small_files as f64 / begin.elapsed().as_secs_f64())
    }
}

/// The rate while a snapshot is taken each second.
fn with_snapshots(mounted: &Mounted, drive: &Drive<'_>, options: &Options, taken: &mut u64) -> Result<f64> {
    let take = || {
        *taken += 1;
        mounted.snapshot(&format!("second-{taken}"))
    };
    // A quick run is over before a second is.
    while_taking(Duration::from_secs(1).min(drive.time), take, || drive.rate(options))
}

fn fill(path: &Path, bytes: u64, random: &mut Random) -> Result<()> {
    let doing = || format!("write {}", path.display());
    let mut file = File::create_new(path).doing(doing)?;
    let mut chunk = vec![0; 1 << 20];
    random.fill(&mut chunk);
    for _ in 0..bytes / chunk.len() as u64 {
        file.write_all(&chunk).doing(doing)?;
    }
    file.sync_all().doing(doing)
}

/// An archive of small files, made once.
fn make_archive(folder: &Path, files: u64, random: &mut Random, options: &Options) -> Result<()> {
    let source = folder.join("source");
    let doing = || format!("write small files in {}", source.display());
    let mut bytes = vec![0; SMALL_BYTES_MAX as usize];
    random.fill(&mut bytes);
    for number in 0..files as usize {
        let inner = source.join(format!("small/{}", number / FILES_PER_FOLDER));
        fs::create_dir_all(&inner).doing(doing)?;
        let length = random.below(SMALL_BYTES_MAX) as usize;
        fs::write(inner.join(format!("file-{number}")), &bytes[..length]).doing(doing)?;
    }
    let archive = folder.join("small.tar");
    output(Command::new("tar").arg("-C").arg(&source).arg("-cf").arg(archive).arg("small"), options)?;
    fs::remove_dir_all(&source).doing(doing)
}
