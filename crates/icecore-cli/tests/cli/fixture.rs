//! A pool in a temporary folder, and the program.

use assert_cmd::Command;
use icecore::{OpenOptions, Pool};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A fresh pool with small segments. Goes when dropped.
pub struct Fixture {
    pub folder: TempDir,
    pub pool: PathBuf,
}

/// The program, with nothing of the caller's environment that it would heed.
pub fn program() -> Command {
    let mut command = Command::cargo_bin("icecore").unwrap();
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ICECORE_")) {
        command.env_remove(name);
    }
    command
}

impl Fixture {
    /// A pool without datasets.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = folder.path().join("pool");
        program().args(["init", "--segment-size", "2M"]).arg(&pool).assert().success().stdout("").stderr("");
        Self { folder, pool }
    }

    /// A pool with dataset `db`, file `app` in it and snapshot `db@one`; the head differs from it.
    pub fn with_db() -> Self {
        let fixture = Self::new();
        fixture.done(&["create", "db"]);
        fixture.import("app", b"first");
        fixture.done(&["snapshot", "db@one"]);
        fixture.import("app", b"second");
        fixture
    }

    /// The program with these arguments, on this pool.
    pub fn run(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.arg("-P").arg(&self.pool).args(arguments).current_dir(self.folder.path());
        command
    }

    /// Runs what must succeed, and answers its output.
    pub fn done(&self, arguments: &[&str]) -> String {
        let assert = self.run(arguments).assert().success();
        let output = assert.get_output();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    /// Runs what must fail with this code, and answers its one line of complaint.
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        complaint(self.run(arguments), code)
    }

    /// Runs what must print a JSON document.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(arguments)).unwrap()
    }

    /// Makes a file in `db`, or replaces it.
    pub fn import(&self, name: &str, content: &[u8]) {
        self.import_to(&format!("db/{name}"), content);
    }

    /// Makes a file, or replaces it.
    pub fn import_to(&self, path: &str, content: &[u8]) {
        self.run(&["import", "-f", "-", path]).write_stdin(content).assert().success().stderr("");
    }

    /// Opens the pool in this process, so that the program meets a pool in use.
    pub fn own(&self) -> Pool {
        Pool::open_directory(&self.pool, &OpenOptions::default()).unwrap()
    }

    /// A path in the temporary folder, beside the pool.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Runs what must fail with this code, and answers its one line of complaint.
pub fn complaint(mut command: Command, code: i32) -> String {
    let assert = command.assert().code(code);
    let output = assert.get_output();
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.starts_with("icecore: "), "{text}");
    if code != 2 {
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    text
}

/// Names of everything in a folder.
pub fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Waits for something that another process brings about.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}
