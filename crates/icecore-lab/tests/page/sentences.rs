//! What the page says in words.

use crate::fixture;
use icecore_lab::page::{self, Document};
use icecore_lab::report::{Check, Report, System};
use icecore_lab::statistics::Estimate;

/// The page with this result alone.
fn page_of(report: Report) -> String {
    let document = Document { name: report.experiment.clone(), report };
    page::render(&[document], &[]).expect("a page")
}

/// A section of the page, by its identifier.
fn section<'page>(page: &'page str, id: &str) -> &'page str {
    let begin = format!("<section id=\"{id}\"");
    let rest = page.split_once(&begin).unwrap_or_else(|| panic!("no {id}")).1;
    rest.split_once("</section>").expect("it ends").0
}

#[test]
fn a_check_of_one_round_says_so() {
    for (rounds, expected) in [(1_u64, 3), (3, 0)] {
        let mut report = fixture::shock();
        report.parameters.insert("rounds".to_owned(), rounds.into());
        let page = page_of(report);
        assert_eq!(section(&page, "checks").matches(", one round").count(), expected, "{rounds}");
    }
}

/// One run in which Icecore is behind by its rate, and one in which it is behind by a count.
fn behind() -> Report {
    let mut report = fixture::shock();
    report.systems.insert("xfs/direct/1".to_owned(), System::new("writes/s", vec![5000.0]));
    report.systems.insert("xfs/held".to_owned(), System::new("KiB", vec![5.0]));
    report.systems.insert("icecore-mount/held".to_owned(), System::new("KiB", vec![7.0]));
    report.checks.push(Check::new("shock.stall_ms", Estimate { value: 28.0, low: 16.0, high: 31.0 }));
    report
}

#[test]
fn times_of_an_emulated_machine_are_no_part_of_the_summary_and_are_not_judged() {
    let real = page_of(behind());
    let summary = section(&real, "summary");
    assert!(summary.contains("1 of 4 checks are met; not met: 2;"), "{summary}");
    assert!(summary.contains("shock, direct (not durable each), 1 snapshot, writes/s:"), "{summary}");
    assert!(!real.contains("the machine was emulated"));

    let mut report = behind();
    report.parameters.insert("emulated".to_owned(), true.into());
    let emulated = page_of(report);
    let summary = section(&emulated, "summary");
    assert!(summary.contains("1 of 3 checks are met; not met: 1;"), "{summary}");
    assert!(!summary.contains("writes/s:") && summary.contains("shock, held, KiB:"), "{summary}");
    let left_out = "Times and rates of shock are left out here, because the machine was emulated; checks of \
                    times: 1; runs in which Icecore is behind: 1. The tables below have them.";
    assert_eq!(summary.matches(left_out).count(), 1, "{summary}");
    // Ratios and counts stay.
    assert!(summary.contains("In shock, a snapshot makes the work slower by these factors at worst"));
    assert!(summary.contains("Write requests to the disk for each durable write"));
    let checks = section(&emulated, "checks");
    let row = checks.split_once("data-check=\"shock.stall_ms\"").expect("a row").1;
    let row = row.split_once("</tr>").expect("it ends").0;
    assert!(
        row.contains("not judged: the machine was emulated") && row.contains("data-value=\"28\""),
        "{row}"
    );
}

#[test]
fn the_result_of_the_guest_is_summed_up_in_counts_and_ratios() {
    let document = fixture::benchmark("shock-guest");
    let page = page::render(&[document], &[]).expect("a page");
    let summary = section(&page, "summary");
    assert!(summary.contains(" of 2 checks are met; not met: "), "{summary}");
    assert!(summary.contains("checks of times: 1; runs in which Icecore is behind:"), "{summary}");
    assert!(!summary.contains("Where Icecore loses"), "{summary}");
}

#[test]
fn the_summary_says_where_icecore_is_behind_in_what_was_counted_beside_a_run() {
    let mut report = fixture::full();
    for (name, gap) in [("icecore-mount", 553.7), ("icecore-sqlite", 40.0), ("btrfs", 76.5)] {
        let system = report.systems.get_mut(name).expect("it ran");
        system.counters.insert("longest_gap_ms".to_owned(), gap);
    }
    let summary = summary_of(&report);
    let behind = "full, longest gap, ms: Icecore (mount) is behind with 554; ahead of it: Btrfs 76.5.";
    assert!(summary.contains(behind) && summary.matches("is behind with").count() == 1, "{summary}");
    assert!(!summary_of(&emulated(report)).contains("is behind with"), "a time of an emulated machine");
}

#[test]
fn results_of_one_experiment_differ_by_their_names() {
    let document = |name: &str| Document { name: name.to_owned(), report: fixture::shock() };
    let page = page::render(&[document("shock"), document("shock-again")], &[]).expect("a page");
    let summary = section(&page, "summary");
    for begin in ["<li>Write requests to the disk", "<li>In shock, ", "<li>shock-again: Write requests"] {
        assert_eq!(summary.matches(begin).count(), 1, "{begin}: {summary}");
    }
    assert!(summary.contains("<li>shock-again: In shock, a snapshot makes"), "{summary}");
}

fn summary_of(report: &Report) -> String {
    section(&page_of(report.clone()), "summary").to_owned()
}

fn emulated(mut report: Report) -> Report {
    report.parameters.insert("emulated".to_owned(), true.into());
    report
}

#[test]
fn each_study_has_a_sentence_of_its_medians_with_the_titles_of_systems() {
    let fragment = [
        "reading a file takes 2.07 times as long on Icecore (mount) as on Btrfs, the best rival (3.1 s and \
         1.5 s).",
        "it takes 0.969 times as long on Icecore (mount) and 1.25 times on Btrfs.",
    ];
    for (report, sentence) in [
        (
            fixture::backups(),
            "Beside a backup that reads a snapshot at half its speed, a database keeps 74 % of its \
             transactions (833 a second) on Icecore (mount), and 71 % of its transactions (384 a second) on \
             Btrfs, the best rival.",
        ),
        (fixture::fragment(), fragment[0]),
        (fixture::fragment(), fragment[1]),
        (
            fixture::full(),
            "when its store runs full: Icecore (mount) 0, Icecore (SQLite) 0, Btrfs 0, LVM 1 (2 in the worst \
             round).",
        ),
        (
            fixture::many(),
            "Taking a snapshot, with few snapshots and with the most there were: Icecore (mount) 0.2 ms with \
             few, 100 ms with 10k (500 times); Btrfs 3 ms with few, 1500 ms with 10k (500 times).",
        ),
        (
            fixture::placement(),
            "MariaDB does 12k new orders a minute with redo log and system tablespace in memory, the best \
             placement, 3000 with all files on the hard disk, the worst, and 6000 with all files on a mount \
             of Icecore.",
        ),
    ] {
        let summary = summary_of(&report);
        assert!(summary.contains(sentence), "no \"{sentence}\" in {summary}");
    }
}

#[test]
fn sentences_of_an_emulated_machine_have_ratios_alone() {
    for (report, sentence) in [
        (emulated(fixture::backups()), "keeps 74 % of its transactions on Icecore (mount), and 71 % of its"),
        (
            emulated(fixture::fragment()),
            "2.07 times as long on Icecore (mount) as on Btrfs, the best rival. Against",
        ),
        (emulated(fixture::many()), "Icecore (mount) 500 times with 10k; Btrfs 500 times with 10k."),
        (
            emulated(fixture::placement()),
            "MariaDB does 4 times as many new orders with redo log and system tablespace in memory, the \
             best placement, as with all files on the hard disk, the worst, and 2 times as many with all \
             files on a mount of Icecore.",
        ),
    ] {
        let summary = summary_of(&report);
        assert!(summary.contains(sentence), "no \"{sentence}\" in {summary}");
    }
}

#[test]
fn the_cost_of_writes_is_that_of_several_at_each_end_and_the_first_has_no_snapshot() {
    let numbers = 1..=40_u32;
    // The first one is slow, as it may be.
    let cost = |number: u32| match number {
        1 => 0.9,
        2..=10 => 0.002,
        11..=30 => 0.004,
        _ => 0.006,
    };
    let system = System::new("s", vec![0.004])
        .with_series("count", vec![numbers.clone().map(f64::from).collect()])
        .with_series("cost_s", vec![numbers.map(cost).collect()]);
    let mut report = fixture::many();
    report.systems.insert("btrfs/write".to_owned(), system);
    let summary = summary_of(&report);
    let sentence = "A durable write, with few snapshots and with the most there were: Btrfs 2 ms with few, \
                    6 ms with 39 (3 times).";
    assert!(summary.contains(sentence), "{summary}");
    let summary = summary_of(&emulated(report));
    assert!(summary.contains("the most there were: Btrfs 3 times with 39."), "{summary}");
}

#[test]
fn a_system_counts_as_not_measured_only_if_nothing_of_it_was() {
    let mut report = fixture::backup();
    let rate = System::new("transactions/s", vec![500.0]);
    report.systems.insert("lvm/alone".to_owned(), rate);
    let lacks = System::unavailable("MB/s", "mylvmbackup is not installed");
    report.systems.insert("lvm/mylvmbackup".to_owned(), lacks);
    report.systems.insert("zfs".to_owned(), System::unavailable("MB/s", "no ZFS in this kernel"));
    let page = page_of(report);
    let summary = section(&page, "summary");
    assert!(summary.contains("Not measured here: ZFS. The reasons are below."), "{summary}");
    let reasons = section(&page, "unavailable");
    assert!(reasons.contains("<td>mylvmbackup is not installed</td>"), "{reasons}");
}

#[test]
fn runs_whose_writes_are_not_durable_each_say_so_wherever_they_are_named() {
    let page = page_of(fixture::shock());
    let counts = section(&page, "counts");
    assert!(counts.contains("<td>btrfs</td><td>direct (not durable each), 1 snapshot</td>"), "{counts}");
    assert!(counts.contains("Other runs: direct (not durable each)"), "{counts}");
    let study = section(&page, "study-0");
    for run in ["direct", "small", "randomio"] {
        let cells = format!("<td>lvm</td><td>{run} (not durable each)</td>");
        assert!(study.contains(&cells), "no {cells} in {study}");
    }
    assert!(study.contains("<td>lvm</td><td>fsync100 (every 100th durable)</td>"), "{study}");
    assert!(study.contains("Runs in a row: small (not durable each), 1 snapshot"), "{study}");
    assert!(study.contains("Median of all runs, more is better: direct (not durable each)"), "{study}");
    // A run whose writes are durable keeps its name alone.
    assert!(study.contains("<td>lvm</td><td>sync</td>") && !page.contains("sync (not durable"));
}

#[test]
fn what_was_counted_stands_beside_what_a_model_predicts() {
    let counters = [("device_writes_per_op", 13.25), ("counted_device_writes_per_op", 14.5)];
    let predicted = System::new("writes", vec![1.0])
        .with_counters(counters.map(|(name, value)| (name.to_owned(), value)).into());
    let mut model = fixture::report("model", vec![("btrfs/1".to_owned(), predicted)]);
    model.parameters.insert("counted".to_owned(), "counted by shock".into());
    let page = page_of(model);
    let counts = section(&page, "counts");
    let (own, counted) =
        ("<td>btrfs</td><td>1 snapshot</td>", "<td>btrfs</td><td>1 snapshot, counted by shock</td>");
    let (before, after) = counts.split_once(counted).unwrap_or_else(|| panic!("no {counted} in {counts}"));
    assert!(before.contains(own) && before.contains("13.25") && after.contains("14.5"), "{counts}");
}

#[test]
fn the_method_names_the_exceptions_and_what_is_smaller_than_published() {
    let page = page_of(fixture::shock());
    let method = section(&page, "method");
    for words in [
        "The runs direct, small and randomio of shock flush nothing before they end, fsync100 flushes after \
         each 100th write, and full after each 64th.",
        "and blog flushes nothing.",
        "of at most 10,000 latencies of each run, the slowest always among them",
        "The file of fragment has 2 GiB, and that of the study 100 GB.",
        "The database of backup has 500 MB, and that of the study 600 GB.",
        "Each run of randomio takes 15 s.",
    ] {
        assert!(method.contains(words), "no \"{words}\" in {method}");
    }
    assert!(!method.contains("of all operations of all rounds"));
}
