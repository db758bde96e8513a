//! Runs of the lab that a signal ends.

use crate::fixture;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A run in a folder of its own. What it leaves behind is removed when this is dropped, also when the test
/// fails.
struct Run {
    child: Child,
    folder: TempDir,
}

/// Stands in the command line of a sysbench that drives a server, and not where it fills one.
const DRIVING: &str = "--report-interval=1";

impl Run {
    /// Starts an experiment, with more options, that would go on for long.
    fn start(experiment: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // Servers run as users of their own, and make temporary files.
        for (folder, mode) in [(path, 0o755), (&path.join("measured"), 0o755), (&path.join("tmp"), 0o777)] {
            fs::create_dir_all(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        // A shell without job control starts `make test &` with SIGINT ignored, and a run leaves it so.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_icecore-lab")]);
        let length = if experiment == "soak" { ["--minutes", "600"] } else { ["--pairs", "1000"] };
        command.args(["run", experiment, "--quick"]).args(length).arg("--directory");
        // All processes of the run inherit this, and are known by it.
        command.arg(path.join("measured")).args(more).env("TMPDIR", path.join("tmp"));
        let steps = fs::File::create(path.join("steps")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(steps).spawn().unwrap();
        Self { child, folder }
    }

    /// The processes of the run whose command line has this word.
    fn processes(&self, program: &str) -> Vec<Pid> {
        let folder = self.folder.path().to_str().unwrap();
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let named = |number: &i32| {
            let read = |file: &str| fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
            let has = |file: &str, word: &str| String::from_utf8_lossy(&read(file)).contains(word);
            has("environ", folder) && has("cmdline", program)
        };
        numbers.filter(named).filter_map(Pid::from_raw).collect()
    }

    fn mounts(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(1));
        points.filter(|point| point.starts_with(folder)).map(str::to_owned).collect()
    }

    /// Whether something whose name begins so is in the root of a mount.
    fn is_on_a_mount(&self, prefix: &str) -> bool {
        let names = |point: &String| -> Vec<_> {
            let entries = fs::read_dir(point).into_iter().flatten().filter_map(Result::ok);
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        self.mounts().iter().flat_map(names).any(|name| name.starts_with(prefix))
    }

    fn loops(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let devices = fs::read_dir("/sys/block").unwrap().filter_map(Result::ok);
        let backing = |path: std::path::PathBuf| fs::read_to_string(path.join("loop/backing_file")).ok();
        devices.filter_map(|device| backing(device.path())).filter(|file| file.starts_with(folder)).collect()
    }

    /// Waits until the program works for the run, sends the signal, and answers what ended the run.
    fn end_by(&mut self, program: &str, signal: Signal) -> Option<i32> {
        self.end_in(program, |run| !run.processes(program).is_empty(), signal)
    }

    /// Likewise, as soon as something has begun.
    fn end_in(&mut self, what: &str, has_begun: impl Fn(&Self) -> bool, signal: Signal) -> Option<i32> {
        let patience = Instant::now() + Duration::from_secs(120);
        while !has_begun(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "the run ended before {what} began");
            assert!(Instant::now() < patience, "{what} never began");
            std::thread::sleep(Duration::from_millis(10));
        }
        // timeout(1) sends it twice.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let _ = kill_process(Pid::from_child(&self.child), signal);
        // Longer than a run waits for a mount of which another test's namespace has a copy.
        let patience = Instant::now() + Duration::from_secs(180);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.signal();
            }
            assert!(Instant::now() < patience, "the run goes on after a signal");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the run said on standard error.
    fn steps(&self) -> String {
        fs::read_to_string(self.folder.path().join("steps")).unwrap_or_default()
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.steps().matches("stopping").count(), 1, "the run says once that it stops");
        assert_eq!(self.mounts(), [""; 0], "mounts are left");
        assert_eq!(self.processes(""), [], "processes are left");
        assert_eq!(self.loops(), [""; 0], "loop devices are left");
        for folder in ["measured", "tmp"] {
            let left: Vec<_> = fs::read_dir(self.folder.path().join(folder)).unwrap().collect();
            assert!(left.is_empty(), "files are left: {left:?}");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.steps());
        }
        for process in self.processes("") {
            let _ = kill_process(process, Signal::KILL);
        }
        for point in self.mounts() {
            let _ = Command::new("umount").arg("-l").arg(Path::new(&point)).output();
        }
    }
}

#[test]
fn a_run_on_a_mount_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut run = Run::start("mount", &[]);
        assert_eq!(run.end_by("fio", signal), Some(signal.as_raw()));
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_run_of_a_study_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    for (experiment, program) in [("shock", "fio"), ("fragment", "mkfs.xfs")] {
        let mut run = Run::start(experiment, &[]);
        assert_eq!(run.end_by(program, Signal::TERM), Some(Signal::TERM.as_raw()));
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_run_whose_process_works_in_cycles_ends_in_good_order_by_a_signal() {
    let mut run = Run::start("soak", &[]);
    assert_eq!(run.end_by("icecore-lab\0child", Signal::TERM), Some(Signal::TERM.as_raw()));
    run.assert_nothing_is_left();
}

#[test]
fn a_run_of_all_studies_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    let results = tempfile::tempdir().unwrap();
    let mut run = Run::start("all", &["--output", results.path().to_str().unwrap()]);
    assert_eq!(run.end_by("fio", Signal::INT), Some(Signal::INT.as_raw()));
    run.assert_nothing_is_left();
    // It would have the report of all studies, and none has ended.
    assert_eq!(fs::read_dir(results.path()).unwrap().count(), 0);
}

/// The lab itself writes in these, and no program that it could end.
#[test]
fn a_run_that_the_lab_itself_drives_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    for experiment in ["valuation", "full", "many"] {
        let mut run = Run::start(experiment, &["--systems", "xfs-reflink"]);
        let ended = run.end_in("the writes", |run| run.is_on_a_mount(""), Signal::INT);
        assert_eq!(ended, Some(Signal::INT.as_raw()), "{experiment}");
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_run_of_database_servers_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    for (experiment, program) in [("mariadb", "sysbench"), ("postgres", "tpcb-like")] {
        let mut run = Run::start(experiment, &[]);
        assert_eq!(run.end_by(program, Signal::TERM), Some(Signal::TERM.as_raw()));
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_run_of_the_mix_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT] {
        let mut run = Run::start("blog", &["--systems", "icecore-mount"]);
        let ended = run.end_in("the mix", |run| run.is_on_a_mount("blog-"), signal);
        assert_eq!(ended, Some(signal.as_raw()));
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_run_with_a_backup_beside_a_server_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    for (system, reader) in [("icecore-mount", "zstd"), ("plain", "--stream=mbstream")] {
        let mut run = Run::start("backup", &["--systems", system]);
        let both = |run: &Run| [reader, DRIVING].iter().all(|program| !run.processes(program).is_empty());
        let ended = run.end_in("a backup beside writes", both, Signal::TERM);
        assert_eq!(ended, Some(Signal::TERM.as_raw()), "{reader}");
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_run_with_a_server_on_a_simulated_disk_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    // All files of the first placement are on that disk.
    let mut run = Run::start("placement", &[]);
    assert_eq!(run.end_by(DRIVING, Signal::INT), Some(Signal::INT.as_raw()));
    run.assert_nothing_is_left();
}

#[test]
fn a_run_of_a_study_on_a_simulated_disk_ends_in_good_order_by_a_signal() {
    if !fixture::can_mount() {
        return;
    }
    let disk = ["--systems", "plain", "--disk", "hdd", "--time-scale", "0.05"];
    let mut run = Run::start("shock", &disk);
    // A run of fio before those on the disk has no file.
    assert_eq!(run.end_by("--filename=", Signal::INT), Some(Signal::INT.as_raw()));
    run.assert_nothing_is_left();
}
