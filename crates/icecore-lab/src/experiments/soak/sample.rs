//! What is measured after each cycle, and what was done until then.

use super::process::Soak;
use crate::error::{Doing, Error, Result};
use crate::machine::resident_memory_bytes;
use icecore::{EntryKind, ListFilter, Pool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Handles that a pool keeps of a segment, or of its copy: one past the page cache, and one through it.
const SEGMENT_HANDLES: u64 = 2;

/// What the process and the pool take, at rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    pub cycle: u64,
    /// From the beginning of the cycle until everything was verified.
    pub seconds: f64,
    pub resident_bytes: u64,
    /// Open file descriptors, and those of them that are not of a segment.
    pub files: u64,
    pub other_files: u64,
    pub threads: u64,
    pub used_bytes: u64,
    pub live_bytes: u64,
    pub segments_free: u64,
    /// What all files of the pool take of the filesystem.
    pub host_bytes: u64,
    pub unexplained_bytes: u64,
    pub deeds: Deeds,
}

/// What was done since the pool was opened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Deeds {
    pub transactions: u64,
    pub groups: u64,
    pub snapshots_taken: u64,
    pub snapshots_destroyed: u64,
    pub views: u64,
    pub clones: u64,
    pub promotions: u64,
    pub rollbacks: u64,
    pub datasets: u64,
    pub scrubs: u64,
    pub calls: u64,
    pub store: BTreeMap<String, f64>,
}

impl Deeds {
    /// All of them, by name.
    pub(super) fn counters(&self) -> BTreeMap<String, f64> {
        let mut counters = self.store.clone();
        for (name, value) in [
            ("soak_transactions", self.transactions),
            ("soak_groups", self.groups),
            ("soak_snapshots_taken", self.snapshots_taken),
            ("soak_snapshots_destroyed", self.snapshots_destroyed),
            ("soak_views", self.views),
            ("soak_clones", self.clones),
            ("soak_promotions", self.promotions),
            ("soak_rollbacks", self.rollbacks),
            ("soak_datasets", self.datasets),
            ("soak_scrubs", self.scrubs),
            ("soak_calls", self.calls),
        ] {
            counters.insert(name.to_owned(), value as f64);
        }
        counters
    }

    /// Adds what one of the workers did.
    pub(super) fn add(&mut self, other: &Self) {
        self.transactions += other.transactions;
        self.groups += other.groups;
        self.snapshots_taken += other.snapshots_taken;
        self.snapshots_destroyed += other.snapshots_destroyed;
        self.views += other.views;
        self.clones += other.clones;
        self.promotions += other.promotions;
        self.rollbacks += other.rollbacks;
        self.datasets += other.datasets;
        self.scrubs += other.scrubs;
        self.calls += other.calls;
    }
}

impl Sample {
    /// Looks at this process and a pool that is at rest and has no snapshots.
    pub(super) fn take(pool: &Pool, soak: &Soak, cycle: u64, seconds: f64, deeds: &Deeds) -> Result<Self> {
        let unknown = || Error::Inconclusive {
            what: "memory of this process".to_owned(),
            reason: "the kernel has no figure for it".to_owned(),
        };
        let statistics = pool.statistics();
        let files = OpenFiles::count()?;
        let on_host = OnHost::of(&[&soak.folder, &soak.mirror])?;
        // Nothing is shared where there are neither snapshots nor clones: what is used is what the datasets
        // refer to.
        let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        let entries = pool.list(&filter)?;
        if let Some(snapshot) = entries.iter().find(|entry| entry.kind == EntryKind::Snapshot) {
            let detail = "it was destroyed, and is still there".to_owned();
            return Err(Error::Mismatch { what: snapshot.name.clone(), detail });
        }
        let reached: u64 = entries.iter().map(|entry| entry.referenced.get()).sum();
        let unexplained_bytes = statistics.used_bytes.abs_diff(reached)
            + statistics.freeing_bytes
            + on_host.segments.abs_diff(statistics.segment_file_bytes)
            + on_host.copies.abs_diff(statistics.copy_file_bytes);
        Ok(Self {
            cycle,
            seconds,
            resident_bytes: resident_memory_bytes().ok_or_else(unknown)?,
            files: files.all,
            other_files: files.beside_segments,
            threads: count("/proc/self/task")?,
            used_bytes: statistics.used_bytes,
            live_bytes: statistics.live_bytes,
            segments_free: statistics.segments_free,
            host_bytes: on_host.allocated,
            unexplained_bytes,
            deeds: deeds.clone(),
        })
    }
}

fn count(folder: &str) -> Result<u64> {
    Ok(fs::read_dir(folder).doing(|| format!("count what is in {folder}"))?.count() as u64)
}

/// What a file of a pool is that there is one of for each segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Segment,
    Copy,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        let (kind, number) = name.split_once('.')?;
        match kind {
            _ if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) => None,
            "segment" => Some(Self::Segment),
            "copy" => Some(Self::Copy),
            _ => None,
        }
    }
}

/// Open file descriptors of this process.
struct OpenFiles {
    all: u64,
    /// Those that are not the handles which a pool may keep of a segment that is there. What a pool has
    /// segments for is seen from the space that they take; a third handle of one, or one of a file that is
    /// gone, is a leak.
    beside_segments: u64,
}

impl OpenFiles {
    fn count() -> Result<Self> {
        let doing = || "look at the open files of this process".to_owned();
        let mut names: BTreeMap<PathBuf, u64> = BTreeMap::new();
        let mut found = Self { all: 0, beside_segments: 0 };
        for entry in fs::read_dir("/proc/self/fd").doing(doing)? {
            // The one with which this folder is read is gone when it is asked for.
            let Ok(path) = fs::read_link(entry.doing(doing)?.path()) else { continue };
            found.all += 1;
            *names.entry(path).or_default() += 1;
        }
        for (path, count) in names {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let expected = Kind::of(&name).map_or(0, |_| SEGMENT_HANDLES);
            found.beside_segments += count.saturating_sub(expected);
        }
        Ok(found)
    }
}

/// The files of a pool as the host sees them.
struct OnHost {
    allocated: u64,
    /// Lengths of all files called segments, and of all called copies: the pool has to know of each of them.
    segments: u64,
    copies: u64,
}

impl OnHost {
    fn of(folders: &[&Path]) -> Result<Self> {
        let mut found = Self { allocated: 0, segments: 0, copies: 0 };
        for folder in folders {
            let doing = || format!("measure {}", folder.display());
            for entry in fs::read_dir(folder).doing(doing)? {
                found.add(&entry.doing(doing)?).doing(doing)?;
            }
        }
        Ok(found)
    }

    fn add(&mut self, entry: &fs::DirEntry) -> io::Result<()> {
        let (name, metadata) = (entry.file_name(), entry.metadata()?);
        self.allocated += metadata.blocks() * 512;
        match Kind::of(&name.to_string_lossy()) {
            Some(Kind::Segment) => self.segments += metadata.len(),
            Some(Kind::Copy) => self.copies += metadata.len(),
            None => {}
        }
        Ok(())
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cycle, seconds, files, other_files, threads, segments_free, unexplained_bytes, deeds, ..
        } = self;
        let [resident, used, live, host] =
            [self.resident_bytes, self.used_bytes, self.live_bytes, self.host_bytes]
                .map(|bytes| bytes as f64 / (1 << 20) as f64);
        write!(
            formatter,
            "cycle {cycle}: {seconds:.1} s, {resident:.1} MiB resident, {files} files ({other_files} not of segments), {threads} threads, used {used:.1}, \
             live {live:.1}, on the host {host:.1} MiB, {segments_free} segments free, {unexplained_bytes} bytes \
             unexplained; {} transactions, {} groups, {} snapshots",
            deeds.transactions, deeds.groups, deeds.snapshots_taken
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_segments_are_distinguished_from_others() {
        assert_eq!(Kind::of("segment.00000007"), Some(Kind::Segment));
        assert_eq!(Kind::of("copy.00000007"), Some(Kind::Copy));
        for other in [
            "copy.superblock.0",
            "segment.00000007 (deleted)",
            "segment.",
            "lock",
            "copy-unfinished.00000001",
        ] {
            assert_eq!(Kind::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_that_stays_open_is_counted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("segment.00000001");
        let handles: Vec<_> = (0..20).map(|_| fs::File::create(&path).expect("made")).collect();
        let found = OpenFiles::count().expect("counted");
        assert!(found.beside_segments >= 18 && found.all >= found.beside_segments + 2);
        drop(handles);
    }
}
