//! What the studies printed. Their numbers are of other machines: they stand beside ours, marked, and are
//! never mixed with them.

use serde::Serialize;

/// One printed figure of a study.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Published {
    /// The experiment that repeats the study.
    pub study: &'static str,
    /// The system, by the name that results use.
    pub system: &'static str,
    /// The run, by the name that results use.
    pub run: &'static str,
    /// What was measured.
    pub what: &'static str,
    /// The unit of both values.
    pub unit: &'static str,
    /// Without a snapshot, or before it.
    pub without: Option<f64>,
    /// With a snapshot, or after it; several values follow one another in time. Empty where the study takes
    /// no snapshot.
    pub with: &'static [f64],
    /// Where it was printed.
    pub source: &'static str,
}

/// How much slower one snapshot made a system in a study.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor {
    /// The system.
    pub system: &'static str,
    /// The run.
    pub run: &'static str,
    /// Time with a snapshot over time without.
    pub factor: f64,
}

/// Requests of the device for each durable write, as this project counted them in an emulated machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Count {
    /// The system.
    pub system: &'static str,
    /// With so many snapshots.
    pub snapshots: u64,
    /// Requests and KiB read, requests and KiB written, flushes.
    pub values: [f64; 5],
}

/// The writes that were counted, at random places of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedWrites {
    /// How many.
    pub writes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of each write.
    pub block_bytes: u64,
}

const LVM_2009: &str = "2009: LVM, sysbench, six disks";
const DBT2_2009: &str = "2009: DBT-2, MySQL 5.4, one SSD and two disks";
const BACKUP_2013: &str = "2013: 2 TB of XFS on LVM, 600 GB backed up";
const SQLITE_2014: &str = "2014: Go and SQLite on LVM, EC2";
const BTRFS_2015: &str = "2015: Btrfs against LVM and ext4";
/// Where counts come from: they are no noise, and the kernel of that machine has all of the systems.
pub const GUEST: &str = "counted in an emulated machine";

const fn row(
    (study, system, run): (&'static str, &'static str, &'static str),
    (what, unit): (&'static str, &'static str),
    without: Option<f64>,
    with: &'static [f64],
    source: &'static str,
) -> Published {
    Published { study, system, run, what, unit, without, with, source }
}

const WRITES: (&str, &str) = ("16 KiB random writes", "operations/s");
const MIX: (&str, &str) = ("4 KiB, 100 threads, 20 % writes", "operations/s");
const ORDERS: (&str, &str) = ("new orders a minute", "orders/min");
const WRITTEN: (&str, &str) = ("written in a run", "MB");

/// Every figure.
pub const PUBLISHED: &[Published] = &[
    row(("shock", "lvm", "direct"), WRITES, Some(159.0), &[25.0], LVM_2009),
    row(("shock", "lvm", "small"), WRITES, Some(200.0), &[33.0, 46.0, 71.0, 124.0, 158.0, 164.0], LVM_2009),
    row(("shock", "lvm", "sync"), WRITES, Some(162.0), &[32.0], LVM_2009),
    row(("shock", "lvm", "fsync100"), WRITES, Some(740.0), &[240.0], LVM_2009),
    row(("shock", "lvm", "randomio"), MIX, Some(1680.0), &[1080.0], "2009: randomio, raw device and XFS"),
    row(("shock", "lvm", "randomio-ext3"), MIX, Some(1700.0), &[310.0], "2009: randomio, ext3"),
    row(("placement", "hdd", ""), ORDERS, Some(3447.0), &[], DBT2_2009),
    row(("placement", "ssd", ""), ORDERS, Some(14_842.0), &[], DBT2_2009),
    row(("placement", "redo-on-hdd", ""), ORDERS, Some(15_540.0), &[], DBT2_2009),
    row(("placement", "redo-and-system-on-hdd", ""), ORDERS, Some(23_359.0), &[], DBT2_2009),
    row(("placement", "redo-and-system-on-tmpfs", ""), ORDERS, Some(24_076.0), &[], DBT2_2009),
    row(("placement", "redo-and-system-on-second-ssd", ""), ORDERS, Some(20_451.0), &[], DBT2_2009),
    row(("placement", "redo-on-hdd", "SSD"), WRITTEN, Some(31_658.0), &[], DBT2_2009),
    row(("placement", "redo-on-hdd", "hard disk"), WRITTEN, Some(1928.0), &[], DBT2_2009),
    row(("placement", "redo-and-system-on-hdd", "SSD"), WRITTEN, Some(23_151.0), &[], DBT2_2009),
    row(("placement", "redo-and-system-on-hdd", "hard disk"), WRITTEN, Some(25_761.0), &[], DBT2_2009),
    row(
        ("backup", "lvm", "writing"),
        ("backup without and with writes", "h"),
        Some(3.0),
        &[11.0],
        BACKUP_2013,
    ),
    row(("backup", "zfs", "writing"), ("reading with writes", "MB/s"), None, &[120.0], BACKUP_2013),
    row(
        ("valuation", "lvm", "ssd"),
        ("the last iterations, relative", "times"),
        Some(1.0),
        &[2.0],
        SQLITE_2014,
    ),
    row(
        ("valuation", "lvm", "disk"),
        ("the last iterations, relative", "times"),
        Some(1.0),
        &[5.0],
        SQLITE_2014,
    ),
    row(("valuation", "lvm", "space"), ("held by the first snapshot", "GB"), None, &[52.0], SQLITE_2014),
    row(("fragment", "lvm", "fill"), ("filling 100 GB", "s"), Some(1329.0), &[], BTRFS_2015),
    row(("fragment", "btrfs", "fill"), ("filling 100 GB", "s"), Some(1723.0), &[], BTRFS_2015),
    row(("fragment", "lvm", "update"), ("250,000 random updates", "s"), None, &[203.0], BTRFS_2015),
    row(("fragment", "btrfs", "update"), ("250,000 random updates", "s"), None, &[116.0], BTRFS_2015),
    row(("fragment", "lvm", "read"), ("linear read after them", "s"), None, &[1006.0], BTRFS_2015),
    row(("fragment", "btrfs", "read"), ("linear read after them", "s"), None, &[294.0], BTRFS_2015),
    row(("fragment", "lvm", "extents"), ("extents", "extents"), Some(69.0), &[70_576.0], BTRFS_2015),
    row(("fragment", "btrfs", "extents"), ("extents", "extents"), Some(100.0), &[63_848.0], BTRFS_2015),
    row(("blog", "lvm", "write"), ("score of writes", "score"), Some(1155.0), &[848.0], BTRFS_2015),
    row(("blog", "btrfs", "write"), ("score of writes", "score"), Some(1436.0), &[964.0], BTRFS_2015),
    row(("blog", "lvm", "read"), ("score of reads", "score"), Some(167_695.0), &[88_398.0], BTRFS_2015),
    row(("blog", "btrfs", "read"), ("score of reads", "score"), Some(346_567.0), &[233_204.0], BTRFS_2015),
];

const fn count(system: &'static str, snapshots: u64, values: [f64; 5]) -> Count {
    Count { system, snapshots, values }
}

/// Those of `docs/benchmarks/shock-guest.json`, which a test holds beside [`all_counts`].
pub const COUNTED: CountedWrites =
    CountedWrites { writes: 400, file_bytes: 128 << 20, block_bytes: 16 << 10 };

const COUNTS: &[Count] = &[
    count("plain", 0, [0.0, 0.0, 2.0, 16.04, 1.0]),
    count("lvm", 1, [1.1, 16.05, 5.14, 36.26, 4.08]),
    count("lvm", 4, [4.25, 64.24, 14.51, 96.94, 5.19]),
    count("lvm-thin", 1, [0.93, 59.47, 6.65, 108.77, 2.85]),
    count("xfs-reflink", 1, [0.0, 0.0, 2.0, 35.09, 2.0]),
    count("btrfs", 1, [0.0, 0.0, 10.14, 134.17, 2.0]),
    count("zfs", 1, [0.0, 0.0, 3.15, 22.02, 1.0]),
    count("icecore-mount", 1, [0.0, 0.0, 2.56, 26.32, 1.53]),
    count("icecore-mount", 4, [0.0, 0.0, 2.55, 26.26, 1.52]),
];

/// What a study printed.
pub fn of(study: &str) -> impl Iterator<Item = &'static Published> {
    PUBLISHED.iter().filter(move |row| row.study == study)
}

/// What a study printed of one run.
pub fn of_run(study: &str, run: &str) -> impl Iterator<Item = &'static Published> {
    of(study).filter(move |row| row.run == run)
}

/// How much slower one snapshot made systems in a study, where it printed both speeds.
#[must_use]
pub fn factors(study: &str) -> Vec<Factor> {
    let factor = |row: &Published| {
        let (without, with) = (row.without?, *row.with.first()?);
        crate::charts::is_rate(row.unit).then_some(Factor {
            system: row.system,
            run: row.run,
            factor: without / with,
        })
    };
    of(study).filter_map(factor).collect()
}

/// Every count.
#[must_use]
pub fn all_counts() -> &'static [Count] {
    COUNTS
}

impl Count {
    /// The value by the name of the counter in results.
    #[must_use]
    pub fn of(&self, counter: &str) -> Option<f64> {
        let place = crate::charts::device::COUNTERS.iter().position(|(name, _)| *name == counter)?;
        Some(self.values[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_study_of_lvm_found_it_six_times_slower() {
        let factors = factors("shock");
        let direct = factors.iter().find(|factor| factor.run == "direct").expect("printed");
        assert!((direct.factor - 6.4).abs() < 0.05);
        assert!(super::factors("fragment").is_empty() && super::factors("placement").is_empty());
    }

    #[test]
    fn counts_are_found_by_the_names_of_counters() {
        let count = count("lvm", 1, [1.06, 15.0, 5.0, 35.0, 3.9]);
        assert_eq!(count.of("device_writes_per_op"), Some(5.0));
        assert_eq!(count.of("device_flushes_per_op"), Some(3.9));
        assert_eq!(count.of("nothing"), None);
    }
}
