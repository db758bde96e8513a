//! The charts of a result, by the names that studies give their series and counters.
//!
//! A system of a study is called `SYSTEM` or `SYSTEM/VARIANT`; a variant that ends in a number is a run
//! with so many snapshots (`lvm/direct/1`). Charts put the systems of one variant beside each other.

mod backup;
mod count;
pub mod device;
pub mod latency;
mod medians;
mod ordered;
pub(crate) mod placement;
mod throughput;

use crate::chart::{COLORS, Chart};
use crate::options::DatabaseServer;
use crate::report::{Parameter, Report, System};
use crate::statistics::median;
use std::collections::BTreeMap;

pub use medians::{Pair, is_rate, is_time, pairs};

/// Every chart that the result has numbers for. What a write costs the device comes before any time.
#[must_use]
pub fn of(report: &Report) -> Vec<Chart> {
    let builders = [
        device::charts,
        throughput::charts,
        medians::factors,
        latency::percentiles,
        latency::heat_maps,
        ordered::charts,
        backup::charts,
        placement::charts,
        count::charts,
        medians::charts,
    ];
    let mut charts: Vec<Chart> = builders.iter().flat_map(|build| build(report)).collect();
    charts.retain(|chart| !chart.is_empty());
    for chart in &mut charts {
        chart.labels = report.labels();
        chart.subtitle = subtitle(report);
    }
    charts
}

/// The database server of a result. One that does not say is from before there was a choice.
pub(crate) fn server(report: &Report) -> &str {
    match report.parameters.get("server") {
        Some(Parameter::Text(server)) => server,
        _ => DatabaseServer::MariaDb.name(),
    }
}

fn subtitle(report: &Report) -> String {
    let runs = report.systems.values().map(|system| system.samples.len()).max().unwrap_or(0);
    let machine = &report.machine;
    let started = report.started.split('T').next().unwrap_or_default();
    let plural = if runs == 1 { "" } else { "s" };
    let (cores, filesystem, device) = (machine.cores, &machine.filesystem, &machine.device);
    format!("{runs} run{plural}; {cores} cores; {filesystem} on {device}; {started}")
}

/// The name of a system of a study, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key<'name> {
    /// What was measured.
    pub system: &'name str,
    /// Of which run; empty where there is one alone.
    pub run: &'name str,
    /// With how many snapshots, where the variant says so.
    pub snapshots: Option<u64>,
}

impl<'name> Key<'name> {
    /// Takes a name apart.
    #[must_use]
    pub fn of(name: &'name str) -> Self {
        let (system, variant) = name.split_once('/').unwrap_or((name, ""));
        let (run, last) = variant.rsplit_once('/').unwrap_or(("", variant));
        match last.parse() {
            Ok(snapshots) => Self { system, run, snapshots: Some(snapshots) },
            Err(_) => Self { system, run: variant, snapshots: None },
        }
    }

    /// The variant for people: `sync, 4 snapshots`.
    #[must_use]
    pub fn variant(&self) -> String {
        let count = self.snapshots.map(snapshots);
        let parts = [Some(run_title(self.run)).filter(|run| !run.is_empty()), count];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The runs of `shock` that are durable when they end, and whose single writes are not.
const DURABLE_AT_END: [&str; 3] = ["direct", "small", "randomio"];

/// The run of `shock` that is durable at every 100th write.
const DURABLE_AT_100TH: &str = "fsync100";

/// A run for people. It says where writes are not durable each.
#[must_use]
pub fn run_title(run: &str) -> String {
    if DURABLE_AT_END.contains(&run) {
        format!("{run} (not durable each)")
    } else if run == DURABLE_AT_100TH {
        format!("{run} (every 100th durable)")
    } else {
        run.replace('/', ", ")
    }
}

/// How many snapshots, in words.
pub(crate) fn snapshots(count: u64) -> String {
    match count {
        0 => "no snapshot".to_owned(),
        1 => "1 snapshot".to_owned(),
        more => format!("{more} snapshots"),
    }
}

/// Systems, by name.
type Group<'report> = Vec<(&'report str, &'report System)>;

/// The systems that were measured, by variant: run, then number of snapshots.
fn by_variant(report: &Report, keep: impl Fn(&System) -> bool) -> BTreeMap<(&str, Option<u64>), Group<'_>> {
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for (name, system) in report.systems.iter().filter(|(_, system)| keep(system)) {
        let key = Key::of(name);
        groups.entry((key.run, key.snapshots)).or_default().push((key.system, system));
    }
    groups
}

/// The colour of a system, the same in every chart. Other names take the colours that follow from their
/// place.
fn color(system: &str, place: usize) -> usize {
    const KNOWN: [&str; COLORS] = [
        "plain",
        "xfs",
        "xfs-reflink",
        "btrfs",
        "lvm",
        "lvm-thin",
        "zfs",
        "bcachefs",
        "icecore-mount",
        "icecore-sqlite",
    ];
    match KNOWN.iter().position(|known| *known == system) {
        Some(color) => color,
        None if is_icecore(system) => 8,
        None if system.starts_with("plain") => 0,
        None => place % COLORS,
    }
}

/// Whether the system is Icecore, through whichever door.
#[must_use]
pub fn is_icecore(system: &str) -> bool {
    system.starts_with("icecore")
}

/// What sentences call a system, or a placement of files. Names without a title stay as they are.
#[must_use]
pub fn title(system: &str) -> &str {
    match system {
        "plain" => "the plain file system",
        "xfs" => "XFS",
        "xfs-reflink" => "XFS with reflinks",
        "btrfs" => "Btrfs",
        "lvm" => "LVM",
        "lvm-thin" => "thin LVM",
        "zfs" => "ZFS",
        "icecore-mount" => "Icecore (mount)",
        "icecore-sqlite" => "Icecore (SQLite)",
        "icecore-new" => "Icecore (a new pool)",
        "lvm-transient" => "LVM (a snapshot that no restart keeps)",
        "hdd" => "all files on the hard disk",
        "ssd" => "all files on the SSD",
        "wal-on-hdd" => "the write-ahead log on the hard disk",
        "wal-on-ssd" => "all but the write-ahead log on the hard disk",
        "tmpfs" => "all files in memory",
        "redo-on-hdd" => "the redo log on the hard disk",
        "redo-and-system-on-hdd" => "redo log and system tablespace on the hard disk",
        "redo-and-system-on-tmpfs" => "redo log and system tablespace in memory",
        "redo-and-system-on-second-ssd" => "redo log and system tablespace on a second SSD",
        other => other,
    }
}

/// An identifier from parts: lower case, digits and single hyphens.
fn slug(parts: &[&str]) -> String {
    let text = parts.join("-").to_lowercase();
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

fn variant_slug(start: &str, (run, snapshots): (&str, Option<u64>)) -> String {
    slug(&[start, run, &snapshots.map(|count| count.to_string()).unwrap_or_default()])
}

fn titled(title: &str, (run, snapshots): (&str, Option<u64>)) -> String {
    let variant = Key { system: "", run, snapshots }.variant();
    if variant.is_empty() { title.to_owned() } else { format!("{title}: {variant}") }
}

/// The median over the rounds at each place that all rounds have.
fn medians_by_place(rounds: &[Vec<f64>]) -> Vec<f64> {
    let rounds: Vec<&Vec<f64>> = rounds.iter().filter(|round| !round.is_empty()).collect();
    let places = rounds.iter().map(|round| round.len()).min().unwrap_or(0);
    let at = |place: usize| rounds.iter().map(|round| round[place]).collect::<Vec<_>>();
    (0..places).map(|place| median(&at(place))).collect()
}

/// The lists of a series, one for each round; none if there is no such series.
fn rounds<'report>(system: &'report System, series: &str) -> &'report [Vec<f64>] {
    system.series.get(series).map_or(&[], Vec::as_slice)
}

fn has(series: &'static str) -> impl Fn(&System) -> bool {
    move |system| rounds(system, series).iter().any(|round| !round.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let key = |system, run, snapshots| Key { system, run, snapshots };
        assert_eq!(Key::of("lvm"), key("lvm", "", None));
        assert_eq!(Key::of("lvm/direct/16"), key("lvm", "direct", Some(16)));
        assert_eq!(Key::of("lvm/16"), key("lvm", "", Some(16)));
        assert_eq!(Key::of("lvm/update"), key("lvm", "update", None));
        assert_eq!(Key::of("a/b/c").variant(), "b, c");
        assert_eq!(Key::of("a/b/0").variant(), "b, no snapshot");
        assert_eq!(Key::of("a/direct/4").variant(), "direct (not durable each), 4 snapshots");
        assert_eq!(Key::of("a/fsync100/1").variant(), "fsync100 (every 100th durable), 1 snapshot");
        assert_eq!(slug(&["Space", "a/b <x>", ""]), "space-a-b-x");
    }

    #[test]
    fn medians_are_of_the_places_that_all_rounds_have() {
        assert_eq!(medians_by_place(&[vec![1.0, 2.0, 9.0], vec![3.0, 2.0], vec![]]), [2.0, 2.0]);
        assert!(medians_by_place(&[]).is_empty());
    }

    #[test]
    fn every_system_has_a_title() {
        for name in crate::systems::names() {
            // This one is written as it is called.
            assert!(title(name) != name || name == "bcachefs", "{name}");
        }
        assert_eq!(title("something else"), "something else");
    }

    #[test]
    fn a_system_has_one_colour() {
        assert_eq!((color("btrfs", 0), color("icecore_snapshots", 5), color("plain_wal", 5)), (3, 8, 0));
    }
}
