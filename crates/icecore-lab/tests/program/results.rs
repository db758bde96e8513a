//! Reports, comparisons and the doctor of the lab.

use crate::fixture::{printed, program, refused};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with results in it.
struct Results(TempDir);

impl Results {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A result of `commits` in which the store makes `rate` transactions a second.
    fn write(&self, name: &str, rate: f64, change: impl FnOnce(&mut Value)) -> PathBuf {
        let samples: Vec<f64> = (0..7).map(|round| rate + f64::from(round)).collect();
        let mut result = json!({
            "version": 1, "experiment": "commits", "started": "2026-11-24T09:00:00Z", "duration_s": 60.0, "quick": false,
            "machine": {
                "cpu": "a processor", "cores": 2, "memory_bytes": 1 << 30, "kernel": "Linux 6.12",
                "filesystem": "ext4", "device": "/dev/vda", "flush_us": 400.0,
            },
            "versions": { "icecore": "0.1.0", "sqlite": "3.50", "rustc": "rustc 1.95", "profile": "release" },
            "parameters": { "seed": 7 },
            "systems": {
                "icecore": { "unit": "transactions/s", "samples": samples },
                "plain_wal": { "unit": "transactions/s", "samples": [500.0, 501.0, 502.0, 503.0] },
            },
            "checks": [{
                "name": "commits.vs_wal", "value": rate / 500.0, "low": rate / 510.0, "high": rate / 490.0,
                "target": 1.0, "direction": "at_least", "met": rate > 510.0,
            }],
        });
        change(&mut result);
        let path = self.path(name);
        fs::write(&path, result.to_string()).unwrap();
        path
    }
}

#[test]
fn a_report_is_one_page_and_names_the_results_by_their_files() {
    let results = Results::new();
    let path = results.write("here.json", 700.0, |_| ());
    let page = results.path("page.html");
    let said = printed(&["report", "-o", page.to_str().unwrap()], &[&path]);
    assert!(said.contains("page.html: 1 result\n"), "{said}");
    let text = fs::read_to_string(page).unwrap();
    assert!(text.contains("commits.vs_wal") && text.contains("(here)"));
    let nowhere = refused(1, &["report", "-o", "/no/such/folder/page.html"], &[&path]);
    assert!(nowhere.contains("/no/such/folder/page.html"), "{nowhere}");
    refused(2, &["report"], &[]);
}

#[test]
fn changes_come_with_intervals_and_are_clear_or_not() {
    let results = Results::new();
    let before = results.write("before.json", 700.0, |_| ());
    let after = results.write("after.json", 1400.0, |result| result["versions"]["icecore"] = json!("0.2.0"));
    let document: Value = serde_json::from_str(&printed(&["compare", "--json"], &[&before, &after])).unwrap();
    let store = &document["systems"][0];
    assert_eq!((&store["name"], &store["verdict"]), (&json!("icecore"), &json!("better")));
    let number = |key: &str| store[key].as_f64().unwrap();
    assert!((number("ratio") - 1403.0 / 703.0).abs() < 1e-9);
    assert!(number("low") < number("ratio") && number("ratio") < number("high"));
    assert_eq!(document["systems"][1]["verdict"], json!("unclear"));
    assert_eq!(document["checks"][0]["verdict"], json!("better"));
    let back = printed(&["compare"], &[&after, &before]);
    assert!(back.contains("worse") && back.contains("no clear change"), "{back}");
    assert!(back.contains("icecore: 0.2.0 before, 0.1.0 after"), "{back}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    let results = Results::new();
    let good = results.write("good.json", 700.0, |_| ());
    let other = results.write("other.json", 700.0, |result| result["experiment"] = json!("crowd"));
    let quick = results.write("quick.json", 700.0, |result| result["quick"] = json!(true));
    let guest = results.write("guest.json", 700.0, |result| result["parameters"]["emulated"] = json!(true));
    let tcg = results.write("tcg.json", 700.0, |result| result["machine"]["cpu"] = json!("QEMU TCG"));
    let slow = results.write("slow.json", 700.0, |result| result["parameters"]["disk"] = json!("7200 rpm"));
    let postgres =
        results.write("postgres.json", 700.0, |result| result["parameters"]["server"] = json!("postgres"));
    let blogbench =
        results.write("blogbench.json", 700.0, |result| result["parameters"]["tool"] = json!("blogbench"));
    let debug = results.write("debug.json", 700.0, |result| result["versions"]["profile"] = json!("debug"));
    let newer = results.write("newer.json", 700.0, |result| result["version"] = json!(2));
    let cut = results.path("cut.json");
    let text = fs::read_to_string(&good).unwrap();
    fs::write(&cut, &text[..text.len() / 2]).unwrap();
    let empty = results.path("empty.json");
    fs::write(&empty, "").unwrap();
    for (path, reason) in [
        (&other, "\"commits\" and the second of \"crowd\""),
        (&quick, "quick"),
        (&guest, "emulated machine"),
        (&tcg, "emulated machine"),
        (&slow, "7200 rpm"),
        (&postgres, "of mariadb and the second of postgres"),
        (&blogbench, "the lab itself drove the first and blogbench the second"),
        (&debug, "debug build"),
        (&newer, "version 2"),
        (&cut, "cut short"),
        (&empty, "empty.json"),
        (&results.path("none.json"), "cannot read"),
    ] {
        let said = refused(1, &["compare"], &[&good, path]);
        assert!(
            said.contains(reason) && said.contains(path.file_name().unwrap().to_str().unwrap()),
            "{said}"
        );
    }
    // Both are of one kind.
    for (one, another) in
        [(&guest, &tcg), (&slow, &slow), (&postgres, &postgres), (&blogbench, &blogbench), (&debug, &debug)]
    {
        printed(&["compare"], &[one, another]);
    }
    for path in [&newer, &cut] {
        refused(1, &["report", "-o", "/dev/null"], &[path]);
    }
}

#[test]
fn results_of_shock_are_compared_if_the_same_program_wrote() {
    let results = Results::new();
    let shock = |name: &str, tool: Option<&str>| {
        results.write(name, 700.0, |result| {
            result["experiment"] = json!("shock");
            if let Some(tool) = tool {
                result["parameters"]["tool"] = json!(tool);
            }
        })
    };
    let (fio, sysbench) = (shock("fio.json", Some("fio")), shock("sysbench.json", Some("sysbench")));
    let said = refused(1, &["compare"], &[&fio, &sysbench]);
    assert!(said.contains("fio drove the first and sysbench the second"), "{said}");
    // From before there was a choice.
    let old = shock("old.json", None);
    printed(&["compare"], &[&old, &fio]);
    refused(1, &["compare"], &[&old, &sysbench]);
}

#[test]
fn one_run_alone_is_not_judged_but_what_is_computed_is() {
    let results = Results::new();
    let write = |name: &str, experiment: &str, samples: &[f64]| {
        results.write(name, 700.0, |result| {
            result["experiment"] = json!(experiment);
            result["systems"] = json!({ "lvm/1": { "unit": "requests/write", "samples": samples } });
            result["checks"] = json!([]);
        })
    };
    let verdict = |experiment: &str, before: &[f64], after: &[f64]| {
        let (before, after) = (write("a.json", experiment, before), write("b.json", experiment, after));
        let text = printed(&["compare", "--json"], &[&before, &after]);
        let change = serde_json::from_str::<Value>(&text).unwrap()["systems"][0].clone();
        (change["verdict"].as_str().unwrap().to_owned(), change["ratio"].as_f64())
    };
    assert_eq!(verdict("blog", &[5.0], &[15.0]), ("one_run".to_owned(), Some(3.0)));
    assert_eq!(verdict("model", &[5.0], &[15.0]), ("worse".to_owned(), Some(3.0)));
    assert_eq!(verdict("model", &[5.0], &[5.0]), ("unclear".to_owned(), Some(1.0)));
    // Where a sample is 0 there may be no ratio, and then there is no interval either.
    assert_eq!(verdict("full", &[0.0, 0.0, 0.0], &[0.0, 4.0, 4.0]), ("unclear".to_owned(), None));
    assert_eq!(verdict("full", &[0.0, 4.0, 4.0], &[4.0, 4.0, 4.0]), ("unclear".to_owned(), None));
}

/// Before the first study begins: `model` is the last one.
#[test]
fn a_run_of_all_reads_the_files_of_its_last_study_first() {
    let results = Results::new();
    let other = results.write("commits.json", 700.0, |_| ());
    let said = refused(1, &["run", "all", "--quick", "--trace", "/nowhere/f"], &[]);
    assert!(said.contains("/nowhere/f") && !said.contains("study 1"), "{said}");
    let said = refused(1, &["run", "all", "--quick", "--against"], &[&other]);
    assert!(said.contains("has no counts of durable writes"), "{said}");
}

#[test]
fn results_of_the_model_are_compared_if_they_are_of_one_trace_chunk_and_schedule() {
    let results = Results::new();
    let model = |name: &str, parameter: &str, value: Value| {
        results.write(name, 700.0, |result| {
            result["experiment"] = json!("model");
            let parameters = &mut result["parameters"];
            (parameters["trace"], parameters["writes"]) = (json!("day.log"), json!(2000));
            parameters[parameter] = value;
        })
    };
    let usual = model("usual.json", "chunk_bytes", json!(4096));
    for (name, parameter, value, reason) in [
        ("trace.json", "trace", json!("night.log"), "same --trace"),
        ("longer.json", "writes", json!(3000), "same --trace"),
        (
            "chunk.json",
            "chunk_bytes",
            json!(65536),
            "chunk_bytes is 4096 in the first and 65536 in the second",
        ),
        ("every.json", "every", json!("100 writes"), "same --every"),
    ] {
        let other = model(name, parameter, value);
        let said = refused(1, &["compare"], &[&usual, &other]);
        assert!(said.contains(reason), "{said}");
        printed(&["compare"], &[&other, &other]);
    }
    // From before there was a choice of the chunk.
    let old = model("old.json", "seed", json!(7));
    printed(&["compare"], &[&old, &usual]);
}

#[test]
fn results_of_data_of_different_sizes_are_not_compared() {
    let results = Results::new();
    for (study, parameter, option) in [
        ("placement", "warehouses", "--size"),
        ("fragment", "file_bytes", "--size"),
        ("backup", "sysbench_rows", "--size"),
        ("valuation", "iterations", "--iterations"),
        ("shock", "rate_per_s", "--rate"),
    ] {
        let sized = |name: &str, size: u64| {
            results.write(name, 700.0, |result| {
                result["experiment"] = json!(study);
                result["parameters"][parameter] = json!(size);
            })
        };
        let (small, large) = (sized("small.json", 10), sized("large.json", 100));
        let said = refused(1, &["compare"], &[&small, &large]);
        let reason =
            format!("{parameter} is 10 in the first and 100 in the second: run both with the same {option}");
        assert!(said.contains(&reason), "{said}");
        printed(&["compare"], &[&small, &small]);
    }
}

#[test]
fn results_of_guests_have_one_accelerator_and_their_times_are_not_judged() {
    let results = Results::new();
    let guest = |name: &str, rate: f64, accelerator: &str| {
        results.write(name, rate, |result| {
            result["parameters"]["emulated"] = json!(true);
            result["parameters"]["accelerator"] = json!(accelerator);
        })
    };
    let (before, after) = (guest("before.json", 700.0, "tcg"), guest("after.json", 1400.0, "tcg"));
    let kvm = guest("kvm.json", 700.0, "kvm");
    let said = refused(1, &["compare"], &[&before, &kvm]);
    assert!(said.contains("TCG runs the guest of the first and KVM that of the second"), "{said}");
    printed(&["compare"], &[&kvm, &kvm]);
    let document: Value = serde_json::from_str(&printed(&["compare", "--json"], &[&before, &after])).unwrap();
    for system in document["systems"].as_array().unwrap() {
        assert_eq!(system["verdict"], json!("not_judged"), "{system}");
    }
    // A ratio holds.
    assert_eq!(document["checks"][0]["verdict"], json!("better"));
    let text = printed(&["compare"], &[&before, &after]);
    assert_eq!(text.matches("changes of its times and rates are not judged").count(), 1, "{text}");
    assert!(text.contains("better") && !text.contains("no clear change"), "{text}");
}

#[test]
fn charts_are_drawn_by_name_and_a_wrong_name_lists_them() {
    let results = Results::new();
    let path = results.write("here.json", 700.0, |_| ());
    let said = refused(2, &["figure", "--chart", "nothing"], &[&path]);
    assert!(said.contains("median-transactions-s"), "{said}");
    let said = refused(2, &["figure"], &[&path]);
    assert!(said.contains("needs --chart") && said.contains("median-transactions-s"), "{said}");
    let svg = printed(&["figure", "--chart", "median-transactions-s"], &[&path]);
    assert!(svg.starts_with("<svg") && svg.contains("<title>median: 703</title>"), "{svg}");
}

#[test]
fn the_doctor_examines_this_machine() {
    let document: Value = serde_json::from_str(&printed(&["doctor", "--json"], &[])).unwrap();
    assert_eq!(document["command"], json!("lab doctor"));
    let findings = document["findings"].as_array().unwrap();
    let fuse = findings.iter().find(|finding| finding["name"] == json!("FUSE")).unwrap();
    assert_eq!(fuse["available"], json!(Path::new("/dev/fuse").exists()));
    assert!(printed(&["doctor"], &[]).contains("device-mapper"));
    let machine = findings.iter().find(|finding| finding["name"] == json!("qemu-system-x86_64")).unwrap();
    assert_eq!(machine["package"], json!("qemu-system-x86"));
    assert!(refused(1, &["doctor", "--directory", "/no/such/folder"], &[]).contains("/no/such/folder"));
    assert!(refused(1, &["doctor", "--directory", "/etc/hostname"], &[]).contains("ot a directory"));
}

#[test]
fn experiments_are_listed_in_their_groups() {
    let list = printed(&["list"], &[]);
    assert!(list.find("Studies").unwrap() < list.find("Of the store itself").unwrap());
    let line =
        printed(&["list", "-H"], &[]).lines().find(|line| line.starts_with("commits\t")).map(str::to_owned);
    assert!(line.unwrap().ends_with("\tstore"));
}

#[test]
fn options_that_make_no_sense_for_a_run_are_refused() {
    for option in
        [&["--json"][..], &["--minutes", "3"], &["--only", "mount.write.1"], &["--server", "mariadb"]]
    {
        let said = refused(2, &[&["run", "all"], option].concat(), &[]);
        assert!(said.contains(option[0]), "{said}");
    }
    // Before the disk is examined, and the user is asked for its name.
    let said = refused(2, &["run", "all", "--json", "--device", "/dev/null"], &[]);
    assert!(said.contains("--json"), "{said}");
    assert!(refused(2, &["run", "commits", "--output", "x"], &[]).contains("all"));
    for (arguments, advice) in [
        (&["placement", "--systems", "btrfs"][..], "placement compares disks"),
        (&["model", "--systems", "lvm"], "leave out --systems"),
        (&["model", "--pairs", "5"], "leave out --pairs"),
        (&["soak", "--pairs", "5"], "leave out --pairs"),
        (&["model", "--device", "/dev/null"], "leave out --device"),
        (&["model", "--trace", "f", "--guest"], "leave out --guest"),
        (&["all", "--trace", "f", "--guest"], "leave out --guest"),
        (&["model", "--chunk", "8K", "--guest"], "leave out --guest"),
        (&["all", "--every", "500", "--guest"], "leave out --guest"),
        (&["model", "--chunk", "5K"], "a power of two from 4K to 512K"),
        (&["model", "--every", "0"], "such as 500"),
        (&["model", "--every", "10m"], "a number of writes, or a --trace"),
        (&["all", "--every", "500", "--systems", "btrfs"], "give one of the two"),
        (&["shock", "--chunk", "8K"], "--chunk goes with model"),
        (&["commits", "--every", "10m"], "--every goes with model"),
        (&["shock", "--area", "1G"], "--area goes with model"),
        (&["model", "--area", "1G", "--guest"], "leave out --guest"),
        (&["model", "--record", "f"], "--record goes with shock"),
        (&["all", "--record", "f"], "--record goes with shock"),
        (&["shock", "--record", "f", "--tool", "sysbench"], "--record goes with --tool fio"),
        (&["shock", "--record", "f", "--guest"], "leave out --guest"),
        (&["shock", "--record", "f", "--systems", "btrfs,icecore-mount"], "add it to --systems"),
        (&["backup", "--server", "mariadb"], "--server goes with placement"),
        (&["postgres", "--server", "postgres"], "--server goes with placement"),
        (&["placement", "--server", "postgres", "--guest"], "leave out --guest"),
        (&["placement", "--server", "oracle"], "mariadb, postgres"),
    ] {
        let said = refused(2, &[&["run"], arguments].concat(), &[]);
        assert!(said.contains(advice), "{said}");
    }
}

const TRACE: &str = "fio version 3 iolog\n0 /f add\n0 /f open\n0 /f write 0 16384\n0 /f datasync 0 0\n\
                     60000000 /f write 1048576 16384\n120000000 /f write 0 16384\n120000100 /f close\n";

#[test]
fn the_size_of_a_copy_area_follows_from_a_trace() {
    let results = Results::new();
    let trace = results.path("day.log");
    fs::write(&trace, TRACE).unwrap();
    let path = trace.to_str().unwrap();
    let text = printed(&["size", "--trace", path, "--area", "30K"], &[]);
    assert!(text.contains("3 writes, 48K in 120 s"), "{text}");
    assert!(text.contains("copied       32K in 120 s"), "{text}");
    assert!(text.contains("30K: full after 2 writes, 60 s, and the snapshot is lost"), "{text}");
    let json = printed(&["size", "--trace", path, "--duration", "30s", "--json"], &[]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["area"]["copied_bytes"], 16384);
    assert_eq!(answer["area"]["extrapolated"], false);
    let long = printed(&["size", "--trace", path, "--duration", "4h"], &[]);
    assert!(long.contains("at most (the trace is shorter)"), "{long}");
}

#[test]
fn a_trace_that_is_cut_short_or_none_is_refused() {
    let results = Results::new();
    let trace = results.path("day.log");
    let ask = |text: &str, more: &[&str]| {
        fs::write(&trace, text).unwrap();
        let arguments = [&["size", "--trace", trace.to_str().unwrap()], more].concat();
        refused(if more.is_empty() { 1 } else { 2 }, &arguments, &[])
    };
    assert!(ask(&TRACE[..TRACE.len() - 10], &[]).contains("cut short in line 8"));
    assert!(ask("something else\n", &[]).contains("icecore lab size --help"));
    assert!(ask(TRACE, &["--chunk", "5K"]).contains("a power of two from 4K to 512K"));
    let old = "fio version 2 iolog\n/f write 0 16384\n";
    assert!(ask(old, &["--duration", "4h"]).contains("leave out --duration"));
}

#[test]
fn a_simulated_disk_is_for_studies_alone() {
    assert!(refused(2, &["run", "commits", "--disk", "hdd"], &[]).contains("--disk goes with shock"));
    assert!(refused(2, &["run", "shock", "--disk", "ssd"], &[]).contains("hdd, hdd-cache, hdd-battery"));
    let scale = ["run", "shock", "--disk", "hdd", "--time-scale", "0"];
    assert!(refused(2, &scale, &[]).contains("a number from 0.001 to 100"));
    assert!(refused(2, &["run", "shock", "--trace", "f"], &[]).contains("--trace goes with model"));
}

#[test]
fn what_a_study_found_stands_below_the_table_and_not_in_the_document() {
    let found = "One of 4 MiB is full after ";
    let run = |more: &[&str]| {
        let done = program().args(["run", "model", "--area", "4M"]).args(more).output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    let text = run(&[]);
    assert!(text.lines().last().is_some_and(|line| line.contains(found)), "{text}");
    let document: Value = serde_json::from_str(&run(&["--json"])).expect("JSON alone");
    assert_eq!(document["parameters"]["area_bytes"], json!(4 << 20));
}
