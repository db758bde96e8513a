//! A pool in a temporary folder, mounted as a whole by the program in the background.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Whether mounts can be made here. Where they cannot, a test says so and ends.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("left out: a mount needs /dev/fuse and, in these tests, root");
    }
    can
}

/// The program, with nothing of the caller's environment that it would heed.
pub fn program() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("icecore"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ICECORE_")) {
        command.env_remove(name);
    }
    command
}

/// Begins a script in mounts of its own: it has copies of those of other tests, which would live as long as
/// the script.
pub const FORGET_OTHER_MOUNTS: &str =
    "findmnt -rn -t fuse.icecore -o TARGET | while read -r other; do umount -l \"$other\"; done\n";

/// A pool, and a folder to mount on. What is mounted there goes when this is dropped.
pub struct Fixture {
    pub folder: TempDir,
}

impl Fixture {
    /// A pool with the dataset `db`, not mounted.
    pub fn new() -> Self {
        Self::with_options(&[])
    }

    /// The same, with a pool that takes no more than so much.
    pub fn limited(size: &str) -> Self {
        Self::with_options(&["--size-limit", size])
    }

    fn with_options(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Servers run as users of their own, and their sockets are beside the mount.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(folder.path().join("mnt")).unwrap();
        let fixture = Self { folder };
        fixture.done(&[&["init", fixture.pool().to_str().unwrap()], options].concat());
        fixture.done(&["create", "db"]);
        fixture
    }

    pub fn pool(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    pub fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// A path below the mount.
    pub fn path(&self, below: &str) -> PathBuf {
        self.mount_point().join(below)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        let pool = self.pool();
        let command = &mut program();
        let with_pool = if arguments[0] == "init" { command } else { command.arg("-P").arg(pool) };
        with_pool.args(arguments).current_dir(self.folder.path()).output().unwrap()
    }

    /// Runs what must succeed without a word of complaint.
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaint.is_empty(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must fail, and answers its exit code and complaint.
    pub fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} was not refused");
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Mounts the whole pool.
    pub fn mount(&self) {
        self.done(&["mount", self.pool().to_str().unwrap(), "mnt"]);
    }

    /// Mounts it where a process that was killed has left a mount.
    pub fn mount_again(&self) {
        let output = self.run(&["mount", self.pool().to_str().unwrap(), "mnt"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("a process that is gone"), "{said}");
    }

    pub fn unmount(&self) {
        self.done(&["umount", "mnt"]);
    }

    /// The process that has the pool.
    pub fn owner(&self) -> rustix::process::Pid {
        let status: serde_json::Value = serde_json::from_str(&self.done(&["status", "--json"])).unwrap();
        let number = status["owner"].as_i64().expect("a process has the pool");
        rustix::process::Pid::from_raw(number as i32).unwrap()
    }

    /// Kills the process of the mount, and waits until it is gone.
    pub fn kill_owner(&self) {
        Self::kill(self.owner());
    }

    /// Kills a process, and waits until it is gone.
    pub fn kill(owner: rustix::process::Pid) {
        let descriptor = rustix::process::pidfd_open(owner, rustix::process::PidfdFlags::empty()).unwrap();
        rustix::process::kill_process(owner, rustix::process::Signal::KILL).unwrap();
        let mut polled = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, None).unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !self.run(&["umount", "mnt"]).status.success() {
            let _ = Command::new("umount").arg("-l").arg(self.mount_point()).output();
        }
    }
}
