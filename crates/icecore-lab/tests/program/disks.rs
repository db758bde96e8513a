//! A disk that is lent to the lab with `--device`, and is not empty.

use crate::fixture::{can_mount, refused};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A loop device with an ext4 that is mounted. All of it goes with the value, also when a test fails.
struct MountedDisk {
    device: String,
    folder: TempDir,
}

impl MountedDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(64 << 20)).unwrap();
        let attached = run(Command::new("/usr/sbin/losetup").args(["--find", "--show"]).arg(&image));
        // What fails from here on takes the device along.
        let disk = Self { device: attached.trim().to_owned(), folder };
        run(Command::new("/usr/sbin/mkfs.ext4").arg("-q").arg(&disk.device));
        fs::create_dir(disk.point()).unwrap();
        run(Command::new("mount").arg(&disk.device).arg(disk.point()));
        disk
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point()).output();
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
    let disk = MountedDisk::new();
    let file = disk.point().join("file");
    fs::write(&file, "mine").unwrap();
    let device = disk.device.as_str();
    for (experiment, more) in [("full", &["--yes"][..]), ("full", &[]), ("all", &["--yes"])] {
        let said = refused(1, &[&["run", experiment, "--device", device], more].concat(), &[]);
        assert!(said.contains(device) && said.contains("in use: mounted"), "{said}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(fs::read_dir(disk.point()).unwrap().count(), 2, "there is more than the file and lost+found");
}
