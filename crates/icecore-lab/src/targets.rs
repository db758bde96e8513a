//! What the store promises: every check with its target.

use serde::{Deserialize, Serialize};

/// On which side of the target a value has to lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The value must not exceed the target.
    AtMost,
    /// The value must not fall below the target.
    AtLeast,
}

/// One promise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Target {
    /// The name under which results report it.
    pub name: &'static str,
    /// The value to reach.
    pub target: f64,
    /// From which side.
    pub direction: Direction,
    /// What the value is.
    pub meaning: &'static str,
}

use Direction::{AtLeast, AtMost};

const fn target(name: &'static str, direction: Direction, target: f64, meaning: &'static str) -> Target {
    Target { name, target, direction, meaning }
}

/// Every check that there is.
pub const TARGETS: &[Target] = &[
    target("shock.icecore_factor", AtMost, 1.03, "writes a second without a snapshot / with one, on Icecore"),
    target("shock.lvm_factor", AtLeast, 3.0, "writes a second without a snapshot / with one, on LVM"),
    target(
        "shock.stall_ms",
        AtMost,
        20.0,
        "longest gap of a writer on Icecore around a snapshot, median of all curves, in ms",
    ),
    target(
        "valuation.vs_best_rival",
        AtMost,
        0.6,
        "time with a snapshot per iteration / the best rival's with as many",
    ),
    target("valuation.850", AtMost, 1.05, "time of the last 95 of 850 iterations with snapshots / without"),
    target("fragment.update_vs_btrfs", AtMost, 0.8, "time of random updates after a snapshot / Btrfs"),
    target("fragment.scan_vs_btrfs", AtMost, 0.8, "time to read the updated file / Btrfs"),
    target(
        "blog.write_vs_btrfs",
        AtLeast,
        1.2,
        "writes a second (blogbench: score) after a snapshot / Btrfs",
    ),
    target("blog.read_vs_btrfs", AtLeast, 1.0, "reads a second (blogbench: score) after a snapshot / Btrfs"),
    target("blog.stalled_periods", AtMost, 0.0, "periods in which nothing is written or nothing is read"),
    target(
        "backup.icecore_read",
        AtLeast,
        0.8,
        "speed of reading a snapshot while MariaDB writes / while it is stopped",
    ),
    target(
        "backup.foreground",
        AtLeast,
        0.8,
        "transactions a second beside a backup at half speed / without one",
    ),
    target("model.error", AtMost, 0.15, "predicted requests and bytes of a write, relative to those counted"),
    target("full.lost", AtMost, 0.0, "acknowledged blocks and snapshots that a full pool lost"),
    target("valuation.vs_plain", AtMost, 0.70, "time with a snapshot per iteration / plain SQLite without"),
    target("valuation.snapshot_cost", AtMost, 1.03, "time with a snapshot per iteration / without"),
    target("valuation.snapshot_flushes", AtMost, 2.0, "time of a snapshot / time of one flush of the disk"),
    target("commits.vs_wal", AtLeast, 1.0, "durable one-row transactions a second / plain WAL"),
    target("commits.vs_delete", AtLeast, 2.5, "durable one-row transactions a second / plain DELETE"),
    target(
        "commits.snapshot_cost",
        AtLeast,
        0.97,
        "transactions a second with a snapshot a second / without",
    ),
    target("connect.vs_plain", AtMost, 3.0, "opening a database, one SELECT and closing it / plain SQLite"),
    target(
        "crowd.wait_ms",
        AtMost,
        1000.0,
        "longest wait of a writer beside 8 readers and 50 snapshots a second",
    ),
    target("crowd.two_writers_wait_ms", AtMost, 1000.0, "the same with two writers that never rest"),
    target("crowd.vs_wal", AtLeast, 1.0, "its transactions a second / plain WAL with 8 readers"),
    target("randwrite.1", AtLeast, 1.1, "durable 16 KiB writes a second, 1 thread / pwrite + fdatasync"),
    target("randwrite.8", AtLeast, 1.6, "durable 16 KiB writes a second, 8 threads / pwrite + fdatasync"),
    target("randwrite.snapshot_cost", AtLeast, 0.98, "writes a second with a live snapshot / without"),
    target("randwrite.metadata", AtMost, 0.10, "tree and checkpoint bytes / data bytes"),
    target("many.create", AtMost, 1.1, "time of the last 100 of 10,000 snapshots / the first 100"),
    target("many.write", AtLeast, 0.97, "writes a second with 10,000 snapshots / with none"),
    target("many.list_s", AtMost, 0.2, "seconds to list 10,000 snapshots"),
    target("many.open_s", AtMost, 1.0, "seconds to open a pool with 10,000 snapshots"),
    target("demo.rss_mib", AtMost, 300.0, "peak resident memory of the demonstration in MiB"),
    target("recovery.seconds", AtMost, 5.0, "seconds to open after a kill with the longest log"),
    target("collect.uniform", AtMost, 3.0, "bytes written / bytes overwritten at random, 80 % live"),
    target("collect.skewed", AtMost, 2.5, "the same, four of five overwrites to a fifth of the file"),
    target("collect.throughput", AtLeast, 0.7, "durable groups a second, 80 % live / half empty"),
    target("collect.flush_bound", AtLeast, 0.7, "the same where a flush takes a millisecond at least"),
    target("collect.p99", AtMost, 5.0, "p99 of a durable group, 80 % live / half empty"),
    target("collect.snapshots", AtLeast, 0.95, "durable groups a second, 1,000 snapshots rotating / none"),
    target("collect.rss_mib", AtMost, 300.0, "memory of 1 TiB of addresses, a tenth of them live, in MiB"),
    target("history.create_p99", AtMost, 2.0, "p99 of taking a snapshot, 100,000 of them / 100"),
    target("history.list_s", AtMost, 1.0, "seconds to list 100,000 snapshots"),
    target("history.open_s", AtMost, 3.0, "seconds to open a pool with 100,000 snapshots"),
    target("history.destroy_s", AtMost, 1.0, "seconds for the destruction of 10,000 snapshots to return"),
    target(
        "history.writers",
        AtLeast,
        0.9,
        "writes a second while 10,000 snapshots are freed / before and after",
    ),
    target(
        "history.rss_mib",
        AtMost,
        300.0,
        "resident memory with 100,000 snapshots, opened and idle, in MiB",
    ),
    target("mount.write.1", AtLeast, 0.80, "durable 16 KiB writes a second on a mount, 1 job / plain"),
    target("mount.write.8", AtLeast, 0.80, "durable 16 KiB writes a second on a mount, 8 jobs / plain"),
    target("mount.write.100", AtLeast, 2.0, "16 KiB writes a second on a mount, every 100th durable / plain"),
    target(
        "mount.snapshot_cost",
        AtLeast,
        0.97,
        "durable writes a second with a snapshot a second / without",
    ),
    target("mount.read.1", AtLeast, 0.70, "16 KiB random reads a second on a mount, 1 job / plain"),
    target("mount.read.8", AtLeast, 0.85, "16 KiB random reads a second on a mount, 8 jobs / plain"),
    target("mount.scan", AtLeast, 0.8, "linear reads a second of a file half updated / of a fresh plain one"),
    target(
        "mount.scan_snapshot",
        AtLeast,
        0.8,
        "linear reads a second of its snapshot / of a fresh plain file",
    ),
    target("mount.small_files", AtLeast, 0.5, "small files unpacked and removed a second / plain"),
    target("randread.cold.1", AtLeast, 0.90, "random reads a second, caches empty, 1 thread / direct preads"),
    target(
        "randread.cold.8",
        AtLeast,
        0.80,
        "random reads a second, caches empty, 8 threads / direct preads",
    ),
    target(
        "randread.snapshot",
        AtLeast,
        0.98,
        "the same of a snapshot with 1,000 younger ones / of the head",
    ),
    target("bulk.write", AtLeast, 0.90, "bytes a second filling a file 1 MiB at a time / direct writes"),
    target("bulk.scan", AtLeast, 0.95, "bytes a second reading it from beginning to end / direct reads"),
    target(
        "clone.seconds",
        AtMost,
        3.0,
        "seconds from a snapshot to an answer of a second server on its clone",
    ),
    target(
        "mariadb.default",
        AtLeast,
        0.9,
        "transactions a second on a mount with snapshots / plain without",
    ),
    target("mariadb.advised", AtLeast, 1.2, "the same without the doublewrite buffer on the mount"),
    target("mariadb.vs_btrfs", AtLeast, 1.5, "transactions a second with snapshots / Btrfs with as many"),
    target(
        "postgres.default",
        AtLeast,
        0.9,
        "transactions a second on a mount with snapshots / plain without",
    ),
    target("postgres.advised", AtLeast, 1.2, "the same without full-page images in the log on the mount"),
    target(
        "footprint.reader",
        AtMost,
        1.1,
        "bytes of the pool's files with an idle connection to a snapshot of another dataset / without",
    ),
    target("footprint.rest", AtMost, 1.6, "bytes of the pool's files at rest / bytes of the database"),
    target("footprint.small_mib", AtMost, 64.0, "files of a fresh pool with a database of 1 MiB, in MiB"),
    target(
        "spill.bytes",
        AtMost,
        1.2,
        "bytes that statements larger than SQLite's cache write / plain WAL, geometric mean of four",
    ),
    target("spill.time", AtMost, 1.1, "the time that they take / plain WAL, geometric mean"),
    target(
        "soak.memory_growth_mib",
        AtMost,
        8.0,
        "resident memory, last quarter of the cycles less the second, in MiB",
    ),
    target(
        "soak.files_growth",
        AtMost,
        0.0,
        "most open files beside two for each segment, last quarter less the second",
    ),
    target(
        "soak.space_growth_mib",
        AtMost,
        48.0,
        "most bytes of the filesystem, last quarter less the second, in MiB: three segments",
    ),
    target("soak.unexplained_bytes", AtMost, 0.0, "bytes counted that nothing reaches, or files unknown"),
];

/// The promise of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Direction {
    /// Whether `value` lies on the right side of `target`.
    #[must_use]
    pub fn met(self, value: f64, target: f64) -> bool {
        match self {
            Self::AtMost => value <= target,
            Self::AtLeast => value >= target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for target in TARGETS {
            assert_eq!(find(target.name), Some(target));
        }
        assert_eq!(find("nothing"), None);
    }

    #[test]
    fn a_value_that_is_not_a_number_meets_nothing() {
        assert!(!AtMost.met(f64::NAN, 1.0) && !AtLeast.met(f64::NAN, 1.0));
        assert!(AtMost.met(1.0, 1.0) && AtLeast.met(1.0, 1.0));
    }
}
