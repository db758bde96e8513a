//! A database server on a folder, with a Unix socket only.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to start or to stop: recovery in a debug build included.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a server may take to end at once.
const END_PATIENCE: Duration = Duration::from_secs(10);
pub const ACCOUNTS: u64 = 100;
pub const BALANCE: u64 = 1000;

/// A kind of server.
pub trait Kind: Sync {
    /// The user that it runs as, if there is one of this name.
    fn user(&self) -> &'static str;
    /// Makes an empty database in a folder.
    fn initialise(&self, data: &Path) -> Command;
    /// Makes the data of a server that runs, copied as they were at one moment, those of another server.
    fn adopt(&self, data: &Path);
    /// The server.
    fn server(&self, data: &Path, sockets: &Path, care: Care) -> Command;
    /// A client that reads statements from its input and answers on its output, row by row.
    fn client(&self, sockets: &Path) -> Command;
    /// What it may say when it ends because its log could not be written.
    fn last_words(&self) -> &'static [&'static str];
    /// The signal that stops it in good order.
    fn stop_signal(&self) -> rustix::process::Signal;
    /// The signal that ends it at once, as a crash does, and leaves nothing behind outside its folder.
    fn end_signal(&self) -> rustix::process::Signal {
        rustix::process::Signal::KILL
    }
    /// Tables `accounts` and `journal`.
    fn schema(&self) -> String;
    /// A transaction that moves money, adds `number` to the journal, and prints the number when it is
    /// committed.
    fn transaction(&self, number: u64) -> String;
    /// Makes the tables of a load.
    fn prepare_load(&self, running: &Running<'_>);
    /// A program that changes these tables from two clients, for ten minutes unless it is stopped.
    fn load(&self, sockets: &Path) -> Command;
    /// Has the server check all its tables, and checks what holds between the rows that the load changes.
    fn check(&self, running: &Running<'_>);
    /// Checks files of a server that is not running.
    fn check_files(&self, data: &Path);
    /// Whether a server that runs trusts the mount with torn pages.
    fn is_trusting(&self, running: &Running<'_>) -> bool;
    /// Copies what a running server has into an empty folder with the tool of the server, ready to be started
    /// there.
    fn back_up(&self, running: &Running<'_>, to: &Path);
}

/// What a server does itself about pages that a crash may tear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Care {
    /// It writes pages twice, or whole into its log: the default.
    Default,
    /// Nothing: it relies on writes that are there as a whole or not at all. It writes pages all the time, so
    /// that a kill meets some.
    Trusting,
}

/// A program as another user.
pub fn as_user(mut command: Command, user: &str) -> Command {
    let (uid, gid) = ids(user);
    command.uid(uid).gid(gid).stdin(Stdio::null());
    command
}

pub fn ids(user: &str) -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)
    };
    let fields = find(user).or_else(|| find("nobody")).expect("there is a nobody");
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}

pub fn succeeded(what: &str, output: &Output) -> String {
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {said}{complained}");
    said.into_owned()
}

/// Makes a database in a folder, which becomes the server's.
pub fn initialise(kind: &dyn Kind, data: &Path) {
    let (uid, gid) = ids(kind.user());
    chown(data, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(data, fs::Permissions::from_mode(0o700)).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    chown(temporary.path(), Some(uid), Some(gid)).unwrap();
    // A MariaDB that starts removes the temporary tables of all others from a folder that they share.
    let mut command = as_user(kind.initialise(data), kind.user());
    let output = command.env("TMPDIR", temporary.path()).output().unwrap();
    succeeded("making a database", &output);
}

/// A server that runs. Ended when dropped, as by a crash.
pub struct Running<'a> {
    kind: &'a dyn Kind,
    child: Child,
    pub data: PathBuf,
    /// What is asked before every question.
    database: String,
    pub sockets: TempDir,
}

impl<'a> Running<'a> {
    /// `database`: the one that questions are about, where that has to be said.
    pub fn start_in(kind: &'a dyn Kind, data: &Path, database: &str) -> Self {
        Self::start_with(kind, data, database, Care::Default)
    }

    pub fn start_with(kind: &'a dyn Kind, data: &Path, database: &str, care: Care) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let (uid, gid) = ids(kind.user());
        chown(sockets.path(), Some(uid), Some(gid)).unwrap();
        let log = fs::File::create(sockets.path().join("log")).unwrap();
        let mut command = as_user(kind.server(data, sockets.path(), care), kind.user());
        command.env("TMPDIR", sockets.path());
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).process_group(0).spawn().unwrap();
        let mut running = Self { kind, child, data: data.to_owned(), database: database.to_owned(), sockets };
        let began = Instant::now();
        while !running.try_ask("select 1;").status.success() {
            let ended = running.child.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "no server ({ended:?}): {}",
                running.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(kind.is_trusting(&running), care == Care::Trusting);
        running
    }

    /// Waits until it answers, also if it recovers first; false if it ended.
    pub fn answers_again(&mut self) -> bool {
        let began = Instant::now();
        while !self.try_ask("select 1;").status.success() {
            if self.has_ended() {
                return false;
            }
            assert!(began.elapsed() < PATIENCE, "it does not answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.sockets.path().join("log")).unwrap_or_default()
    }

    pub fn client(&self) -> Command {
        self.as_its_user(self.kind.client(self.sockets.path()))
    }

    /// A program as the user of the server.
    pub fn as_its_user(&self, command: Command) -> Command {
        as_user(command, self.kind.user())
    }

    fn try_ask(&self, statements: &str) -> Output {
        let mut child = self
            .client()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        use std::io::Write as _;
        // A client that cannot connect does not read its statements; its exit code says so.
        let _ = child.stdin.take().unwrap().write_all(statements.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// The answer to some statements, which must succeed.
    pub fn ask(&self, statements: &str) -> String {
        let output = self.try_ask(statements);
        assert!(output.status.success(), "{statements}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Checks that no money was made or lost, and that the journal has no gap; answers its last number.
    pub fn verify(&self) -> u64 {
        let ask = |question: &str| match self.database.as_str() {
            "" => self.ask(question),
            database => self.ask(&format!("use {database}; {question}")),
        };
        assert_eq!(ask("select sum(balance) from accounts;"), (ACCOUNTS * BALANCE).to_string());
        let count: u64 = ask("select count(*) from journal;").parse().unwrap();
        let last: u64 = ask("select coalesce(max(number), 0) from journal;").parse().unwrap();
        assert_eq!(count, last, "the journal has a gap");
        self.kind.check(self);
        last
    }

    /// Stops it in good order.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, self.kind.stop_signal()).unwrap();
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it does not stop: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kind.check_files(&self.data);
    }

    /// Kills it with the processes that it started. Those of PostgreSQL have sessions of their own, and one that
    /// waits for a lock does not notice that its server is gone.
    fn kill_all(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let number = group.as_raw_nonzero();
        let started = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        for process in started.unwrap_or_default().split_whitespace().filter_map(|text| text.parse().ok()) {
            if let Some(process) = rustix::process::Pid::from_raw(process) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(process, self.kind.end_signal());
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > END_PATIENCE {
                self.kill_all();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if std::thread::panicking() {
            eprintln!("the server says:\n{}", self.log());
        }
    }
}
