//! Disks that are in use, not empty, or too small.

use crate::fixture::{can_mount, program, refused};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A loop device. All of it goes with the value, also when a test fails.
struct Disk {
    device: String,
    folder: TempDir,
}

impl Disk {
    fn new(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(bytes)).unwrap();
        let attached = run(Command::new("/usr/sbin/losetup").args(["--find", "--show"]).arg(&image));
        Self { device: attached.trim().to_owned(), folder }
    }

    /// With an ext4 that is mounted.
    fn mounted(bytes: u64) -> Self {
        let disk = Self::new(bytes);
        run(Command::new("/usr/sbin/mkfs.ext4").arg("-q").arg(&disk.device));
        fs::create_dir(disk.point()).unwrap();
        run(Command::new("mount").arg(&disk.device).arg(disk.point()));
        disk
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// Files and folders on it, beside that which mkfs makes.
    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.point()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| !path.ends_with("lost+found")).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.point().exists() {
            let _ = Command::new("umount").arg(self.point()).output();
        }
        let _ = Command::new("/usr/sbin/losetup").arg("--detach").arg(&self.device).output();
    }
}

/// Runs a program that must succeed, and answers what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_disk_that_is_mounted_is_refused_and_stays_as_it_is() {
    if !can_mount() {
        return;
    }
    let disk = Disk::mounted(64 << 20);
    let file = disk.point().join("file");
    fs::write(&file, "mine").unwrap();
    let device = disk.device.as_str();
    for (experiment, more) in [("full", &["--yes"][..]), ("full", &[]), ("all", &["--yes"])] {
        let said = refused(1, &[&["run", experiment, "--device", device], more].concat(), &[]);
        assert!(said.contains(device) && said.contains("in use: mounted"), "{said}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(disk.entries(), [file]);
}

#[test]
fn a_disk_with_data_that_no_program_knows_is_refused_and_stays_as_it_is() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new(64 << 20);
    let at = 1_000_000;
    let node = File::options().read(true).write(true).open(&disk.device).unwrap();
    node.write_all_at(b"mine", at).unwrap();
    node.sync_all().unwrap();
    let said = refused(1, &["run", "full", "--quick", "--yes", "--device", &disk.device], &[]);
    assert!(said.contains(&disk.device) && said.contains("there is data on it"), "{said}");
    let mut found = [0; 4];
    node.read_exact_at(&mut found, at).unwrap();
    assert_eq!(&found, b"mine");
}

#[test]
fn an_empty_disk_is_used_only_when_a_person_types_its_name_or_says_yes() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new(64 << 20);
    let asked = ["run", "full", "--quick", "--systems", "plain", "--device", &disk.device];
    let said = refused(2, &asked, &[]);
    assert!(said.contains("--yes agrees to that without a terminal"), "{said}");
    // script(1) gives a program a terminal.
    let command = format!("{} {}", env!("CARGO_BIN_EXE_icecore-lab"), asked.join(" "));
    let mut terminal = assert_cmd::Command::new("script");
    let typed =
        terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]).write_stdin("yes\n");
    let said = String::from_utf8_lossy(&typed.assert().code(1).get_output().stdout).into_owned();
    assert!(said.contains(&format!("Type {} to go on: ", disk.device)), "{said}");
    assert!(said.contains("nothing was done to ") && said.contains(&disk.device), "{said}");
    let mut begin = [1; 4096];
    File::open(&disk.device).unwrap().read_exact_at(&mut begin, 0).unwrap();
    assert_eq!(begin, [0; 4096], "it has a file system");
}

#[test]
fn a_folder_that_runs_full_ends_the_run_with_the_reason_and_keeps_nothing_of_it() {
    if !can_mount() {
        return;
    }
    let disk = Disk::mounted(6 << 20);
    let point = disk.point().display().to_string();
    let arguments = ["run", "fragment", "--quick", "--systems", "plain", "--directory", &point];
    let assert = program().args(arguments).assert().code(1);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    let complaint = said.lines().find(|line| line.starts_with("icecore: "));
    assert!(complaint.is_some_and(|line| line.contains("No space left on device")), "{said}");
    assert!(disk.entries().is_empty(), "{:?}", disk.entries());
}

#[test]
fn a_simulated_disk_for_which_the_folder_has_no_room_is_refused_before_it_is_made() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = ["run", "fragment", "--disk", "hdd", "--size", "100T", "--directory"];
    let ended = program().args(run).arg(folder.path()).assert().code(1);
    let said = String::from_utf8_lossy(&ended.get_output().stderr).into_owned();
    assert!(said.contains("fragment on a simulated disk needs") && said.contains("MiB are free"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
