//! The numbers of the page are those of the results.

use crate::fixture::{self, EVIL};
use icecore_lab::chart::{Chart, Kind, Source};
use icecore_lab::page::{self, Data, Document, Missing};
use icecore_lab::published;
use icecore_lab::report::{Report, System};
use std::collections::BTreeMap;

fn rendered() -> (Vec<Document>, String, Data) {
    let documents = fixture::documents();
    let page = page::render(&documents, &[]).expect("a page");
    let data = embedded(&page);
    (documents, page, data)
}

fn embedded(page: &str) -> Data {
    let start = "<script id=\"data\" type=\"application/json\">";
    let text = page.split_once(start).expect("there is data").1.split_once("</script>").expect("it ends").0;
    serde_json::from_str(text).expect("it is JSON")
}

fn chart<'data>(data: &'data Data, document: usize, id: &str) -> &'data Chart {
    let charts = &data.charts[document];
    let ids = || charts.iter().map(|chart| chart.id.as_str()).collect::<Vec<_>>();
    charts.iter().find(|chart| chart.id == id).unwrap_or_else(|| panic!("no {id} in {:?}", ids()))
}

fn line<'chart>(chart: &'chart Chart, label: &str) -> &'chart [f64] {
    let series =
        chart.series.iter().find(|series| series.label == label && series.source == Source::Measured);
    &series.expect("there is a line").y
}

#[test]
fn results_are_embedded_as_they_are_but_for_series() {
    let (documents, _, data) = rendered();
    for (document, result) in documents.iter().zip(&data.results) {
        let bare = |system: &System| System { series: BTreeMap::new(), ..system.clone() };
        let systems = document.report.systems.iter().map(|(name, system)| (name.clone(), bare(system)));
        assert_eq!(*result, Report { systems: systems.collect(), ..document.report.clone() });
    }
}

#[test]
fn throughput_is_the_median_of_the_rounds_and_the_snapshot_is_marked() {
    let (documents, _, data) = rendered();
    let chart = chart(&data, 0, "throughput-curve");
    for name in ["plain", "btrfs", "icecore-mount"] {
        let rounds = &documents[0].report.systems[&format!("{name}/curve")].series["rate_per_s"];
        let middle: Vec<f64> =
            rounds[0].iter().zip(&rounds[1]).map(|(one, other)| (one + other) / 2.0).collect();
        assert_eq!(line(chart, name), middle);
    }
    assert_eq!(chart.marks.len(), 1);
    assert_eq!(chart.marks[0].at, 6.0);
}

#[test]
fn percentiles_and_heat_maps_are_of_all_operations() {
    let (documents, _, data) = rendered();
    let mut all = documents[0].report.systems["btrfs/curve"].series["latency_us"].concat();
    all.sort_by(f64::total_cmp);
    let drawn = line(chart(&data, 0, "latency-curve"), "btrfs");
    // The middle of 4,000 values lies between the 2,000th and the next.
    assert_eq!(drawn[0], (all[1999] + all[2000]) / 2.0);
    assert_eq!(drawn.last(), all.last());
    let heat = chart(&data, 0, "heat-btrfs-curve").heat.as_ref().expect("cells");
    assert_eq!(heat.counts.iter().flatten().sum::<u64>(), 4000);
    let above = heat.bounds.iter().position(|bound| *bound > 10_000.0).expect("long ones");
    let long: u64 = heat.counts.iter().flat_map(|rows| &rows[above - 1..]).sum();
    assert_eq!(long, 2);
}

#[test]
fn counts_of_the_device_are_the_counters_and_those_of_another_machine_stay_apart() {
    let (documents, _, data) = rendered();
    let chart = chart(&data, 0, "device-device-writes-per-op");
    assert_eq!(chart.kind, Kind::Bars);
    for (label, count) in [("no snapshot", 0), ("1 snapshot", 1), ("4 snapshots", 4)] {
        let series = chart.series.iter().find(|series| series.label == label).expect("bars");
        assert!(!series.x.is_empty() && series.source == Source::Measured);
        for (&place, &value) in series.x.iter().zip(&series.y) {
            let name = format!("{}/sync/{count}", chart.names()[place as usize]);
            assert_eq!(documents[0].report.systems[&name].counters["device_writes_per_op"], value);
        }
    }
    let elsewhere: Vec<_> = chart.series.iter().filter(|series| series.source == Source::Counted).collect();
    let place = chart.names().iter().position(|name| name == "lvm").expect("LVM stands beside");
    let at = elsewhere[0].x.iter().position(|at| *at == place as f64).expect("a bar");
    let counts = published::all_counts();
    let lvm = counts.iter().find(|count| (count.system, count.snapshots) == ("lvm", 1)).expect("counted");
    assert_eq!((elsewhere.len(), elsewhere[0].y[at]), (1, lvm.values[2]));
}

#[test]
fn the_recovery_that_a_study_printed_stands_beside_ours() {
    let (_, _, data) = rendered();
    let chart = chart(&data, 0, "rounds-small-1");
    assert_eq!(line(chart, "icecore-mount"), [400.0, 450.0, 500.0]);
    let printed = chart.series.iter().find(|series| series.source == Source::Published).expect("a line");
    assert_eq!((printed.label.as_str(), &printed.y[..2]), ("lvm", &[33.0, 46.0][..]));
    let requests = self::chart(&data, 0, "round-requests-small-1");
    assert_eq!(line(requests, "icecore-mount"), [4.5, 3.0, 1.5]);
}

#[test]
fn factors_times_space_and_costs_are_computed_from_the_samples() {
    let (_, _, data) = rendered();
    let factors = chart(&data, 0, "factor");
    let place = factors.names().iter().position(|name| name == "btrfs").expect("btrfs");
    let of = |run: &str, source| {
        let series = factors.series.iter().find(|series| series.label == run && series.source == source);
        series.unwrap_or_else(|| panic!("no {run}"))
    };
    let direct = of("direct (not durable each)", Source::Measured);
    let at = direct.x.iter().position(|x| *x == place as f64).expect("a bar");
    assert!((direct.y[at] - 1.9).abs() < 1e-9, "{:?}", direct.y);
    assert!((of("direct (not durable each)", Source::Published).y[0] - 159.0 / 25.0).abs() < 1e-9);
    let iterations = line(chart(&data, 1, "iterations"), "btrfs");
    assert!((iterations[1] - 2055.0).abs() < 1e-6, "{iterations:?}");
    let held = line(chart(&data, 1, "space"), "icecore-sqlite");
    assert!((held[0] - 0.5e6 / 1_048_576.0).abs() < 1e-9);
    let costs = chart(&data, 2, "count-take");
    let costs = &costs.series.iter().find(|series| series.label == "btrfs").expect("a line");
    assert_eq!(costs.x, [1.0, 100.0, 10_000.0]);
    assert!((costs.y[2] - 1500.0).abs() < 1e-9);
    let backup = &chart(&data, 3, "backup").series[0];
    assert!((backup.y[0] - 0.6 * 109.5).abs() < 1e-9);
    assert!((backup.x[0] - 390.5 / 0.6).abs() < 1e-9);
}

#[test]
fn tables_show_the_checks_and_medians() {
    let (documents, page, _) = rendered();
    let cell = |row: &str| {
        let row = page.split_once(row).expect("a row").1.split_once("</tr>").expect("it ends").0;
        let value = row.split_once("data-value=\"").expect("a value").1.split_once('"').expect("it ends").0;
        (value.parse::<f64>().expect("a number"), row.to_owned())
    };
    for (check, words) in documents[0].report.checks.iter().zip(["met", "not shown", "not met"]) {
        let (value, row) = cell(&format!("data-check=\"{}\"", check.name));
        assert_eq!(value, check.value);
        assert!(row.contains(&format!("\"verdict\">{words}")), "{row}");
        assert!(
            row.contains(&format!("title=\"{}\"", check.low))
                && row.contains(&format!("title=\"{}\"", check.target))
        );
    }
    assert_eq!(cell("data-system=\"btrfs/direct/0\"").0, 1000.0);
    assert!(page.contains("no device-mapper in this kernel"));
    // Counts stand before any time.
    let at = |id: &str| page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    assert!(at("summary") < at("counts") && at("counts") < at("checks") && at("checks") < at("study-0"));
}

#[test]
fn the_summary_is_computed_and_says_where_icecore_loses() {
    let (_, page, _) = rendered();
    let summary = page.split_once("<section id=\"summary\"").expect("a summary").1;
    let summary = summary.split_once("</section>").expect("it ends").0;
    assert!(
        summary.contains(
            "1 of 3 checks are met; not met: 1; not shown, since the interval crosses the target: 1."
        ),
        "{summary}"
    );
    assert!(summary.contains("Btrfs 1.9") && summary.contains("A study printed 6.36 for LVM"), "{summary}");
    assert!(!summary.contains("backup, MB/s"), "Icecore is ahead there");
    let mut slow = fixture::backup();
    slow.systems.insert("xfs".to_owned(), System::new("MB/s", vec![500.0]));
    let document = Document { name: "backup".to_owned(), report: slow.clone() };
    let page = page::render(&[document], &[]).expect("a page");
    let behind = "backup, MB/s: Icecore (mount) is behind with 130; ahead of it: XFS 500.";
    assert!(page.contains(behind));

    // That one of Icecore's systems is the fastest does not hide that another one is not.
    slow.systems.insert("icecore-sqlite".to_owned(), System::new("MB/s", vec![600.0]));
    let document = Document { name: "backup".to_owned(), report: slow };
    assert!(page::render(&[document], &[]).expect("a page").contains(behind));
}

#[test]
fn every_picture_of_a_quick_emulated_or_simulated_run_says_so() {
    let mut report = fixture::shock();
    report.parameters.insert("emulated".to_owned(), true.into());
    report.parameters.insert("disk".to_owned(), "hdd".into());
    let document = Document { name: "shock".to_owned(), report };
    let page = page::render(&[document], &[]).expect("a page");
    let labels =
        ["quick run: not for quoting", "emulated machine: counts and ratios only", "simulated disk: hdd"];
    let data = embedded(&page);
    assert!(data.charts[0].len() > 10);
    assert!(data.charts[0].iter().all(|chart| chart.labels == labels));
    let pictures: Vec<&str> = page.split("<svg class=\"figure\"").skip(1).collect();
    assert_eq!(pictures.len(), data.charts[0].len());
    assert!(pictures.iter().all(|picture| {
        picture.split("</svg>").next().is_some_and(|svg| labels.iter().all(|label| svg.contains(label)))
    }));
}

#[test]
fn words_of_a_result_stay_words() {
    let (_, page, _) = rendered();
    assert!(!page.contains("<script>window.broken") && !page.contains("<img"), "a name became an element");
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script").count(), 3);
    let missing = Missing { experiment: "blog".to_owned(), reason: EVIL.to_owned() };
    let page = page::render(&[], &[missing]).expect("a page without results");
    assert!(!page.contains("<img") && page.contains("What could not be measured here"));
    assert!(page::render(&[], &[]).is_err());
}
