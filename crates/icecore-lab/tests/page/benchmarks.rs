//! The results in `docs/benchmarks`: their pages show their numbers, and the model predicts their counts.

use crate::fixture;
use icecore_lab::charts::device::COUNTERS;
use icecore_lab::charts::{self, Key};
use icecore_lab::published::{self, COUNTED, CountedWrites};
use icecore_lab::report::{Parameter, Report, System};
use icecore_lab::{Options, figure, page};
use std::fs;
use std::path::Path;

/// Every result there, with the page of it alone.
fn pages() -> Vec<(Report, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let files = fs::read_dir(folder).expect("the folder is there");
    let paths = files.map(|entry| entry.expect("readable").path());
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    let document = |name: String| {
        let document = fixture::benchmark(&name);
        let report = document.report.clone();
        (report, page::render(&[document], &[]).expect("a page"))
    };
    names.into_iter().map(document).collect()
}

/// Minimum, median and maximum, computed here.
fn range(samples: &[f64]) -> [f64; 3] {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (last, middle) = (sorted.len() - 1, sorted.len() / 2);
    let median =
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    [sorted[0], median, sorted[last]]
}

/// What is between two texts, the first of each.
fn between<'text>(text: &'text str, begin: &str, end: &str) -> &'text str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin}")).0
}

/// The numbers in a piece of a page: as they are, and as the reader sees them.
fn numbers(piece: &str) -> Vec<(f64, f64)> {
    let number = |text: &str| -> (f64, f64) {
        let (exact, rest) = text.split_once("\">").expect("a number ends");
        let shown = rest.split_once("</span>").expect("it ends").0;
        let (digits, scale) = match shown.as_bytes().last() {
            Some(b'k') => (&shown[..shown.len() - 1], 1e3),
            Some(b'M') => (&shown[..shown.len() - 1], 1e6),
            Some(b'G') => (&shown[..shown.len() - 1], 1e9),
            _ => (shown, 1.0),
        };
        (exact.parse().expect("a number"), digits.parse::<f64>().expect("digits") * scale)
    };
    piece.split("<span title=\"").skip(1).map(number).collect()
}

/// Two floating-point ways to one number.
fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

#[test]
fn what_the_reader_sees_is_the_number_rounded() {
    for (report, page) in pages() {
        let body = page.split_once("<script id=\"data\"").expect("data").0;
        let numbers = numbers(body);
        assert!(!numbers.is_empty(), "{}", report.experiment);
        for (exact, shown) in numbers {
            // Three digits, and as many places after the point as small numbers have.
            let near = (exact.abs() * 0.0051).max(0.000_51);
            assert!((exact - shown).abs() <= near, "{}: {exact} is shown as {shown}", report.experiment);
        }
    }
}

#[test]
fn medians_and_ranges_are_those_of_the_samples() {
    for (report, page) in pages() {
        let table = between(&page, "<table class=\"medians\">", "</table>");
        for (name, system) in &report.systems {
            let row = between(table, &format!("data-system=\"{name}\""), "</tr>");
            if system.samples.is_empty() {
                assert!(numbers(row).is_empty(), "{name}: {row}");
                continue;
            }
            let [low, median, high] = range(&system.samples);
            let found: Vec<f64> = numbers(row).into_iter().map(|(exact, _)| exact).collect();
            let expected = [median, low, high].into_iter().chain(system.counters.values().copied());
            let expected: Vec<f64> = expected.collect();
            assert_eq!(found.len(), expected.len(), "{name}: {row}");
            let pairs = found.iter().zip(&expected);
            for (found, expected) in pairs {
                assert!(is_same(*found, *expected), "{name}: {found} and {expected}");
            }
            assert!(row.contains(&format!("<td class=\"number\">{}</td>", system.samples.len())), "{row}");
        }
    }
}

#[test]
fn checks_are_those_of_the_document() {
    for (report, page) in pages() {
        let table = between(&page, "<table class=\"checks\">", "</table>");
        for check in &report.checks {
            let row = between(table, &format!("data-check=\"{}\"", check.name), "</tr>");
            let found: Vec<f64> = numbers(row).into_iter().map(|(exact, _)| exact).collect();
            assert_eq!(found, [check.value, check.low, check.high, check.target], "{}", check.name);
        }
        assert_eq!(table.matches("data-check=").count(), report.checks.len());
    }
}

#[test]
fn counts_of_the_device_are_the_counters() {
    let mut compared = 0;
    for (report, page) in pages() {
        for (name, system) in
            report.systems.iter().filter(|(_, system)| system.counters.contains_key(COUNTERS[2].0))
        {
            let key = Key::of(name);
            let begin = format!("<tr><td>{}</td><td>{}</td>", key.system, key.variant());
            let row = between(&page, &begin, "</tr>");
            let found: Vec<f64> = numbers(row).into_iter().map(|(exact, _)| exact).collect();
            let counters = COUNTERS.iter().filter_map(|(counter, _)| system.counters.get(*counter).copied());
            assert_eq!(found, counters.collect::<Vec<_>>(), "{name}");
            compared += 1;
        }
    }
    assert!(compared > 0, "no result has counts");
}

#[test]
fn what_a_snapshot_does_to_the_writers_is_what_was_counted() {
    let mut compared = 0;
    for (report, page) in pages() {
        let mut rows: Vec<&str> = page.split("<tr data-moment=").skip(1).collect();
        for (name, system) in report.systems.iter().filter(|(_, system)| system.counters.contains_key("dip"))
        {
            let key = Key::of(name);
            let begin = format!("\"{0}\"><td>{0}</td><td>{1}</td>", key.system, key.variant());
            let at = rows.iter().position(|row| row.starts_with(&begin)).expect("it has a row");
            let row = rows.remove(at).split_once("</tr>").expect("it ends").0;
            let figures = ["dip", "recovery_s", "gap_before_ms", "longest_gap_ms"];
            let counters = figures.iter().filter_map(|figure| system.counters.get(*figure).copied());
            let found: Vec<f64> = numbers(row).into_iter().map(|(exact, _)| exact).collect();
            assert_eq!(found, counters.collect::<Vec<_>>(), "{name}");
            let (lost, rounds) = (system.counters["unrecovered"], system.samples.len());
            assert_eq!(row.contains(&format!("not in {lost} of {rounds} rounds")), lost > 0.0, "{row}");
            compared += 1;
        }
        assert!(rows.is_empty(), "{rows:?}");
    }
    assert!(compared > 0, "no result has a snapshot in its midst");
}

#[test]
fn the_method_says_what_driving_costs() {
    let mut compared = 0;
    for (report, page) in pages() {
        let wanted = ["driving_us_per_op", "driving_us_per_program"].map(|name| report.parameters.get(name));
        let wanted = wanted.into_iter().flatten().map(|cost| match cost {
            Parameter::Number(cost_us) => *cost_us,
            other => panic!("{other:?} is no time"),
        });
        let method = between(&page, "<section id=\"method\"", "</section>");
        let found: Vec<f64> = numbers(method).into_iter().map(|(exact, _)| exact).collect();
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{}", report.experiment);
        compared += found.len();
    }
    assert!(compared > 0, "no result says it");
}

/// What the last tenth of the iterations takes over the first: its median over the rounds. And what the first
/// snapshot holds, in GB.
fn of_histories(system: &System) -> Vec<f64> {
    let rounds = |name: &str| system.series.get(name).cloned().unwrap_or_default();
    let middle = |values: &[f64]| range(values)[1];
    let last = |round: &Vec<f64>| {
        let part = round.len() / 10;
        (part > 0).then(|| middle(&round[round.len() - part..]) / middle(&round[..part]))
    };
    let growths: Vec<f64> = rounds("iteration_s").iter().filter_map(last).collect();
    let held: Vec<f64> = rounds("held_bytes").iter().filter_map(|round| Some(round.first()? / 1e9)).collect();
    let both = [growths, held].into_iter().filter(|values| !values.is_empty());
    both.map(|values| middle(&values)).collect()
}

#[test]
fn published_tables_have_the_medians_of_ours() {
    let mut compared = 0;
    for (report, page) in pages() {
        let Some((_, rest)) = page.split_once("<table class=\"beside\">") else { continue };
        let table = rest.split_once("</table>").expect("it ends").0;
        let mut known: Vec<f64> = Vec::new();
        for system in report.systems.values() {
            known.extend(system.counters.values());
            if !system.samples.is_empty() {
                known.push(range(&system.samples)[1]);
            }
            known.extend(of_histories(system));
        }
        for row in table.split("data-beside=\"").skip(1) {
            let row = row.split_once("</tr>").expect("it ends").0;
            let values: Vec<f64> = numbers(row).into_iter().map(|(exact, _)| exact).collect();
            // The third is the ratio of the two before it.
            if let [without, with, ratio] = values[..] {
                assert!(is_same(ratio, with / without), "{row}");
            }
            for value in values.iter().take(2) {
                assert!(known.iter().any(|known| is_same(*known, *value)), "{value} is of no run: {row}");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no result has a study beside it");
}

/// Pictures, each with the result and the chart in it.
const PICTURES: [(&str, &str, &str); 8] = [
    ("backup", "backup", "backup-half"),
    ("many-take", "many", "count-take"),
    ("placement", "placement", "median-orders-min"),
    ("shock-rounds", "shock-guest", "rounds-small-1"),
    ("shock-throughput", "shock", "throughput-sync-1"),
    ("shock-writes", "shock-guest", "device-device-writes-per-op"),
    ("valuation", "valuation", "median-snapshots-s"),
    ("valuation-850", "valuation-850-all", "iterations-snapshots"),
];

#[test]
fn every_picture_is_the_chart_of_its_result() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let files = fs::read_dir(&folder).expect("the folder is there");
    let found = files.map(|entry| entry.expect("readable").path());
    let count = found.filter(|path| path.extension().is_some_and(|extension| extension == "svg")).count();
    assert_eq!(count, PICTURES.len(), "each picture is in the list");
    for (picture, result, chart) in PICTURES {
        let charts = charts::of(&fixture::benchmark(result).report);
        let drawn =
            charts.iter().find(|one| one.id == chart).map(|chart| figure::svg(chart).trim_end().to_owned());
        let kept = fs::read_to_string(folder.join(format!("{picture}.svg"))).expect("the picture");
        assert!(
            drawn.as_deref() == Some(kept.trim_end()),
            "`icecore lab figure {result}.json --chart {chart}` draws something else than {picture}.svg"
        );
    }
}

/// What has to come out for LVM in the guest: how much slower it is behind one snapshot, and its requests for
/// each durable write.
#[test]
fn the_published_shock_of_lvm_is_as_large_as_it_has_to_be() {
    let report = fixture::benchmark("shock-guest").report;
    let factor = report.checks.iter().find(|check| check.name == "shock.lvm_factor").expect("LVM ran");
    assert!((3.0..=12.0).contains(&factor.value), "{}", factor.value);
    let counters = &report.systems["lvm/sync/1"].counters;
    let (reads, writes) = (counters["device_reads_per_op"], counters["device_writes_per_op"]);
    assert!((0.8..=1.2).contains(&reads) && writes >= 2.0, "{reads} reads and {writes} writes");
}

/// The published counts stand in the program, too, which holds its predictions against them.
#[test]
fn the_counts_in_the_program_are_those_of_the_published_shock() {
    let report = fixture::benchmark("shock-guest").report;
    let CountedWrites { writes, file_bytes, block_bytes } = COUNTED;
    for (name, value) in [("writes", writes), ("file_bytes", file_bytes), ("block_bytes", block_bytes)] {
        assert_eq!(report.count(name), Some(value), "{name}");
    }
    for count in published::all_counts() {
        let run = format!("{}/sync/{}", count.system, count.snapshots);
        for ((counter, _), value) in COUNTERS.iter().zip(count.values) {
            let counted = report.systems[&run].counters[*counter];
            assert!((value - counted).abs() <= 0.005001, "{run} {counter}: {value} and {counted}");
        }
    }
}

#[test]
fn the_model_predicts_what_shock_counted_in_the_guest() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/shock-guest.json");
    let mut options = Options::new(".");
    options.against = Some(path);
    let report = icecore_lab::run("model", &options).expect("it computes");
    let error = report.checks.iter().find(|check| check.name == "model.error").expect("it was counted");
    assert!(error.met, "{}", error.value);
    let compared = report.systems.values().filter(|system| {
        COUNTERS.iter().all(|(counter, _)| system.counters.contains_key(&format!("counted_{counter}")))
    });
    // Three numbers of snapshots of six systems, and none of the plain file system.
    assert_eq!(compared.count(), 19);
}
