//! Database servers on a folder, each with a Unix socket only, and the programs that load and drive them.

pub(crate) mod mariadb;
pub(crate) mod orders;
pub(crate) mod postgres;

use crate::error::{Doing, Error, Result};
use crate::options::{Options, scratch_in};
use crate::tool::{self, Tool};
use rustix::process::{Signal, geteuid, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to start, recovery included.
const PATIENCE: Duration = Duration::from_secs(120);

/// A kind of server. All commands use absolute paths; `sockets` is the folder of a server's socket.
pub(crate) trait Kind: Sync {
    /// The name of the experiment.
    fn name(&self) -> &'static str;
    /// The user of the server, where the lab runs as root.
    fn user(&self) -> &'static str;
    /// Makes an empty database in a folder.
    fn initialise(&self, data: &Path) -> Command;
    /// The server.
    fn server(&self, data: &Path, sockets: &Path, setup: Setup<'_>) -> Command;
    /// The signal that stops the server in good order.
    fn stop_signal(&self) -> Signal;
    /// The signal that ends it at once, with nothing left behind outside its folders.
    fn end_signal(&self) -> Signal {
        Signal::KILL
    }
    /// A client that runs statements and prints what they answer.
    fn client(&self, sockets: &Path, statements: &str) -> Command;
    /// The options that lead sysbench(1) to a database of the server.
    fn sysbench(&self, sockets: &Path) -> Vec<OsString>;
    /// Makes that database.
    fn create(&self, server: &Server<'_>) -> Result<()>;
    /// The workloads, by the names that their program knows.
    fn workloads(&self) -> &'static [&'static str];
    /// Fills an empty database.
    fn load(&self, server: &Server<'_>, size: Size) -> Result<()>;
    /// Runs a workload.
    fn drive(&self, sockets: &Path, workload: &str, size: Size, drive: Drive) -> Command;
    /// What the program of the workload has printed about its transactions.
    fn driven(&self, printed: &str) -> Option<Driven>;
    /// Writes what is dirty, so that a server that is not driven leaves the disk to the others.
    fn rest(&self, server: &Server<'_>) -> Result<()>;
    /// A query of a table that was filled.
    fn query(&self) -> &'static str;
}

/// How a server is set up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup<'a> {
    /// The size of its cache of pages.
    pub cache_mib: u64,
    /// Whether the server relies on a filesystem that does not tear pages, as the guide advises for a mount.
    pub advised: bool,
    /// Options of the server beyond those.
    pub more: &'a [OsString],
}

/// How much data there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Tables of sysbench.
    pub tables: u64,
    /// Rows of each.
    pub rows: u64,
    /// The scale factor of pgbench, which has 100,000 accounts for each.
    pub scale: u64,
}

/// How a server is driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    /// Connections, each with a thread.
    pub clients: u64,
    /// For how long, in whole seconds.
    pub time: Duration,
}

/// What was done in a run of a workload.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Driven {
    pub transactions: f64,
    pub per_second: f64,
    /// Transactions in each second, where the program says so.
    pub each_second: Vec<f64>,
}

/// Lets all users into a folder: servers run as users of their own.
pub(crate) fn open_to_all(folder: &Path) -> Result<()> {
    let doing = || format!("open {} to all users", folder.display());
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).doing(doing)
}

/// Makes a folder that belongs to the server.
pub(crate) fn make_folder(kind: &dyn Kind, folder: &Path, options: &Options) -> Result<()> {
    let mut command = Command::new("install");
    command.args(["-d", "-m", "700"]);
    if geteuid().is_root() {
        command.args(["-o", kind.user(), "-g", kind.user()]);
    }
    tool::output(command.arg(folder), options).map(|_| ())
}

/// Makes an empty database in a new folder.
pub(crate) fn make_empty(kind: &dyn Kind, data: &Path, options: &Options) -> Result<()> {
    make_folder(kind, data, options)?;
    let temporary = folder_for_all()?;
    let mut command = as_user(kind, &kind.initialise(data));
    tool::output(command.env("TMPDIR", temporary.path()), options).map(|_| ())
}

/// A folder for sockets and temporary tables that any user may write to. A MariaDB that starts removes the
/// temporary tables of all others from a folder that they share.
fn folder_for_all() -> Result<TempDir> {
    // The path of a socket may have a hundred bytes: too few for many a folder that is measured.
    let folder = scratch_in(&std::env::temp_dir())?;
    let doing = || format!("open {} to all users", folder.path().display());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).doing(doing)?;
    Ok(folder)
}

/// The same, and fills it.
pub(crate) fn make(
    kind: &dyn Kind,
    data: &Path,
    setup: Setup<'_>,
    size: Size,
    options: &Options,
) -> Result<()> {
    make_empty(kind, data, options)?;
    let server = Server::start(kind, data, setup, "select 1", options)?;
    kind.load(&server, size)?;
    server.stop()
}

/// The command as the user of the server. It ends when the lab does, however that ends.
fn as_user(kind: &dyn Kind, command: &Command) -> Command {
    let mut outer = Command::new("setpriv");
    outer.arg("--pdeathsig=KILL");
    if geteuid().is_root() {
        let user = kind.user();
        outer.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    }
    outer.arg("--").arg(command.get_program()).args(command.get_args()).current_dir("/");
    outer
}

/// A server that runs. It ends at once when dropped.
pub(crate) struct Server<'a> {
    kind: &'a dyn Kind,
    tool: Tool,
    sockets: TempDir,
    options: &'a Options,
}

impl<'a> Server<'a> {
    /// Starts a server, and waits until it answers the query.
    pub(crate) fn start(
        kind: &'a dyn Kind,
        data: &Path,
        setup: Setup<'_>,
        query: &str,
        options: &'a Options,
    ) -> Result<Self> {
        let sockets = folder_for_all()?;
        let log = sockets.path().join("log");
        let file = File::create(&log).doing(|| format!("make {}", log.display()))?;
        let errors = file.try_clone().doing(|| format!("open {}", log.display()))?;
        let mut command = as_user(kind, &kind.server(data, sockets.path(), setup));
        let tool = Tool::start(command.env("TMPDIR", sockets.path()).stdout(file).stderr(errors))?;
        let mut server = Self { kind, tool, sockets, options };
        server.wait_for_answer(query)?;
        Ok(server)
    }

    fn wait_for_answer(&mut self, query: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            match self.ask(query) {
                Ok(_) => return Ok(()),
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(_)
                    if begin.elapsed() < PATIENCE && !self.tool.ends_within(Duration::from_millis(10))? => {}
                Err(error) => return Err(self.failure(&error.to_string())),
            }
        }
    }

    fn failure(&self, reason: &str) -> Error {
        let log = fs::read_to_string(self.sockets.path().join("log")).unwrap_or_default();
        let reason = format!("{reason}; its log ends with: {}", tool::tail(&log));
        Error::Child { job: format!("the server of {}", self.kind.name()), reason }
    }

    /// What kind of server it is.
    pub(crate) fn kind(&self) -> &dyn Kind {
        self.kind
    }

    /// The folder of the socket.
    pub(crate) fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Result<String> {
        tool::output(command, self.options)
    }

    /// Answers what statements print.
    pub(crate) fn ask(&self, statements: &str) -> Result<String> {
        self.run(&mut self.kind.client(self.sockets(), statements)).map(|text| text.trim().to_owned())
    }

    /// Drives the server.
    pub(crate) fn drive(&self, workload: &str, size: Size, drive: Drive) -> Result<Driven> {
        let mut command = self.kind.drive(self.sockets(), workload, size, drive);
        let printed = self.run(&mut command)?;
        let driven = self.kind.driven(&printed).filter(|driven| driven.per_second > 0.0);
        driven.ok_or_else(|| Error::Child {
            job: workload.to_owned(),
            reason: format!("it printed no transactions: {}", tool::tail(&printed)),
        })
    }

    /// Stops the server in good order. It writes all that is dirty before, which takes long on a slow disk.
    pub(crate) fn stop(mut self) -> Result<()> {
        kill_process(self.tool.id(), self.kind.stop_signal()).doing(|| "stop a server".to_owned())?;
        let begin = Instant::now();
        while !self.tool.ends_within(Duration::from_millis(100))? {
            self.options.go_on()?;
            if begin.elapsed() > PATIENCE.max(self.options.time_limit) {
                return Err(self.failure("it does not stop"));
            }
        }
        Ok(())
    }
}

/// How long a server that is to end at once may take.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

impl Drop for Server<'_> {
    /// What does not end is killed with its [`Tool`].
    fn drop(&mut self) {
        if !self.tool.ends_within(Duration::ZERO).unwrap_or(true) {
            let _ = kill_process(self.tool.id(), self.kind.end_signal());
            let _ = self.tool.ends_within(ENDS_WITHIN);
        }
    }
}

/// Asks until the answer stays the same.
fn wait_until_same(server: &Server<'_>, question: &str) -> Result<()> {
    let begin = Instant::now();
    let mut before = server.ask(question)?;
    loop {
        thread::sleep(Duration::from_millis(200));
        let answer = server.ask(question)?;
        if answer == before {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(server.failure(&format!("{question:?} answers {answer:?} after {before:?}")));
        }
        before = answer;
    }
}

/// `name=value`, for an option of a program.
pub(crate) fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(value);
    text
}

/// What sysbench(1) has printed about its transactions.
fn sysbench_driven(printed: &str) -> Option<Driven> {
    let transactions = number_after(printed, "transactions:")?;
    let seconds = number_after(printed, "total time:")?;
    let reports = printed.lines().filter(|line| line.starts_with('['));
    let each_second = reports.filter_map(|line| number_after(line, "tps:")).collect();
    Some(Driven { transactions, per_second: transactions / seconds, each_second })
}

/// The number after the first `label` in a text.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.split_once(label)?.1.trim_start();
    let end =
        rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
