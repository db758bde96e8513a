//! A sentence about each study that the other sentences of the summary leave out. Times, rates and losses are
//! medians and their ratios; where the machine was emulated, they are ratios alone.

use crate::charts::{Key, is_icecore, server, title};
use crate::figure::short;
use crate::options::DatabaseServer;
use crate::report::{Parameter, Report, System};
use crate::statistics::{median, quantile};
use crate::studies::full::REFUSED;

/// The finding of a study, where its result has one.
pub(super) fn of(report: &Report) -> Option<String> {
    match report.experiment.as_str() {
        "backup" => backup(report),
        "fragment" => fragment(report),
        "full" => full(report),
        "many" => many(report),
        "model" => model(report),
        "placement" => placement(report),
        _ => None,
    }
}

/// The medians of a run by system, those of Icecore first.
fn medians<'report>(report: &'report Report, run: &str) -> Vec<(&'report str, f64)> {
    let mut found = Vec::new();
    for (name, system) in &report.systems {
        let key = Key::of(name);
        if key.run == run && key.snapshots.is_none() && !system.samples.is_empty() {
            found.push((key.system, median(&system.samples)));
        }
    }
    found.sort_by_key(|(name, _)| !is_icecore(name));
    found
}

/// The median of one system among those of a run.
fn of_system(medians: &[(&str, f64)], system: &str) -> Option<f64> {
    medians.iter().find(|(name, _)| *name == system).map(|(_, median)| *median)
}

/// How many acknowledged writes and snapshots each system lost.
fn full(report: &Report) -> Option<String> {
    let words: Vec<String> = medians(report, "")
        .into_iter()
        .map(|(name, lost)| {
            let worst = report.systems.get(name).map_or(lost, |system| quantile(&system.samples, 1.0));
            let worst =
                if worst > lost { format!(" ({} in the worst round)", short(worst)) } else { String::new() };
            let refused = report.systems.get(name).and_then(|system| system.counters.get(REFUSED));
            let never =
                if refused.is_some_and(|refused| *refused < 1.0) { " (its time was up before)" } else { "" };
            format!("{} {}{worst}{never}", title(name), short(lost))
        })
        .collect();
    (!words.is_empty()).then(|| {
        format!(
            "Acknowledged writes and snapshots that a system loses when its store runs full: {}.",
            words.join(", ")
        )
    })
}

/// Which part of its transactions a database keeps beside a backup.
fn backup(report: &Report) -> Option<String> {
    let alone = medians(report, "alone");
    let share = |(name, beside): (_, f64)| Some((name, beside / of_system(&alone, name)?, beside));
    let shares: Vec<(&str, f64, f64)> = medians(report, "half").into_iter().filter_map(share).collect();
    let best = |ours: bool| {
        let side = shares.iter().filter(move |(name, ..)| is_icecore(name) == ours);
        side.max_by(|one, other| one.1.total_cmp(&other.1))
    };
    let words = |(name, share, beside): &(&str, f64, f64)| {
        let rate =
            if report.is_emulated() { String::new() } else { format!(" ({} a second)", short(*beside)) };
        format!("{:.0} % of its transactions{rate} on {}", share * 100.0, title(name))
    };
    let ours = words(best(true)?);
    let rival =
        best(false).map_or_else(String::new, |rival| format!(", and {}, the best rival", words(rival)));
    Some(format!("Beside a backup that reads a snapshot at half its speed, a database keeps {ours}{rival}."))
}

/// How long reading a file takes once it was updated at random.
fn fragment(report: &Report) -> Option<String> {
    let past = medians(report, "read-snapshot");
    // A rival is a system with snapshots.
    let both = |(name, read): (_, f64)| Some((name, read, of_system(&past, name)?));
    let read: Vec<(&str, f64, f64)> = medians(report, "read").into_iter().filter_map(both).collect();
    let fastest = |ours: bool| {
        let side = read.iter().filter(move |(name, ..)| is_icecore(name) == ours);
        side.min_by(|one, other| one.1.total_cmp(&other.1))
    };
    let (name, ours, before) = fastest(true)?;
    let (rival, theirs, theirs_before) = fastest(false)?;
    let (name, rival) = (title(name), title(rival));
    let times = if report.is_emulated() {
        String::new()
    } else {
        format!(" ({} s and {} s)", short(*ours), short(*theirs))
    };
    Some(format!(
        "After random updates, reading a file takes {} times as long on {name} as on {rival}, the best \
         rival{times}. Against reading the snapshot, which is the file before them, it takes {} times as \
         long on {name} and {} times on {rival}.",
        short(ours / theirs),
        short(ours / before),
        short(theirs / theirs_before)
    ))
}

/// What snapshots and writes cost with many snapshots.
fn many(report: &Report) -> Option<String> {
    let said = [("take", "Taking a snapshot"), ("write", "A durable write")];
    let said: Vec<String> = said.into_iter().filter_map(|(run, what)| growth(report, run, what)).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

fn growth(report: &Report, run: &str, what: &str) -> Option<String> {
    // A write is made before the snapshot that has its number.
    let ahead = if run == "write" { 1.0 } else { 0.0 };
    let mut words = Vec::new();
    for (name, _) in medians(report, run) {
        let system = report.systems.get(&format!("{name}/{run}"));
        let ends = system.and_then(|system| Ends::of(system, ahead));
        let Some(Ends { count, few, most }) = ends else { continue };
        let (name, count, times) = (title(name), short(count), short(most / few));
        words.push(if report.is_emulated() {
            format!("{name} {times} times with {count}")
        } else {
            format!("{name} {} ms with few, {} ms with {count} ({times} times)", short(few), short(most))
        });
    }
    (!words.is_empty())
        .then(|| format!("{what}, with few snapshots and with the most there were: {}.", words.join("; ")))
}

/// Samples at each end of a curve of costs. A single one says little.
const END_SAMPLES: usize = 10;

/// The two ends of a curve of costs.
struct Ends {
    /// The most snapshots.
    count: f64,
    /// Median cost at the beginning, in milliseconds.
    few: f64,
    /// Median cost at the end, in milliseconds.
    most: f64,
}

impl Ends {
    /// `None` where there were not several snapshots. `ahead`: by how much a count of the series is above the
    /// number of snapshots that there were. A short curve is cut in half, so that its ends share no sample.
    fn of(system: &System, ahead: f64) -> Option<Self> {
        let (counts, costs) = (system.series.get("count")?, system.series.get("cost_s")?);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (counts, costs) in counts.iter().zip(costs) {
            points.extend(counts.iter().copied().zip(costs.iter().copied()));
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let count = points.last()?.0 - ahead;
        let part = END_SAMPLES.min(points.len() / 2);
        let cost = |points: &[(f64, f64)]| {
            let costs: Vec<f64> = points.iter().map(|(_, cost)| cost * 1e3).collect();
            median(&costs)
        };
        let (few, most) = (cost(&points[..part]), cost(&points[points.len() - part..]));
        (count > 1.0 && few > 0.0).then_some(Self { count, few, most })
    }
}

/// How large the copy area of a classic snapshot has to be for the writes of the model.
fn model(report: &Report) -> Option<String> {
    let full_after_s = match report.parameters.get("area_full_after_s") {
        Some(Parameter::Number(time)) => Some(*time),
        _ => None,
    };
    let size = |bytes: u64| match bytes as f64 / f64::from(1 << 20) {
        mebibytes if mebibytes < 1024.0 => format!("{} MiB", short(mebibytes)),
        mebibytes => format!("{} GiB", short(mebibytes / 1024.0)),
    };
    let asked = report.count("area_bytes").map(|bytes| {
        let end = match (report.count("area_full_after_writes"), full_after_s) {
            (None, _) => "is not full at their end".to_owned(),
            (Some(writes), None) => format!("is full after {} of them", short(writes as f64)),
            (Some(writes), Some(time)) => {
                format!("is full after {} of them, {} s", short(writes as f64), short(time))
            }
        };
        format!(" One of {} {end}.", size(bytes))
    });
    Some(format!(
        "For these {} writes, the copy area of a classic snapshot of LVM needs {}, a tenth of it to spare.{}",
        short(report.count("writes")? as f64),
        size(report.count("copy_area_bytes")?),
        asked.unwrap_or_default()
    ))
}

/// What the placement of its files does to a database.
fn placement(report: &Report) -> Option<String> {
    let (mount, places): (Vec<_>, Vec<_>) =
        medians(report, "").into_iter().partition(|(name, _)| is_icecore(name));
    let best = places.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let worst =
        places.iter().min_by(|one, other| one.1.total_cmp(&other.1)).filter(|worst| worst.0 != best.0)?;
    let mount = mount.first().map(|(_, rate)| *rate);
    let (best_name, worst_name) = (title(best.0), title(worst.0));
    let database = if server(report) == DatabaseServer::Postgres.name() { "PostgreSQL" } else { "MariaDB" };
    Some(if report.is_emulated() {
        let mount = mount.map_or_else(String::new, |rate| {
            format!(", and {} times as many with all files on a mount of Icecore", short(rate / worst.1))
        });
        let times = short(best.1 / worst.1);
        format!(
            "{database} does {times} times as many new orders with {best_name}, the best placement, as with \
             {worst_name}, the worst{mount}."
        )
    } else {
        let mount = mount.map_or_else(String::new, |rate| {
            format!(", and {} with all files on a mount of Icecore", short(rate))
        });
        let (best, worst) = (short(best.1), short(worst.1));
        format!(
            "{database} does {best} new orders a minute with {best_name}, the best placement, {worst} with \
             {worst_name}, the worst{mount}."
        )
    })
}
