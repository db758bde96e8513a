//! `clone`: a snapshot of MariaDB's data while the server works, a clone of it, and a second server on the
//! clone.

use super::Findings;
use crate::error::Result;
use crate::options::Options;
use crate::programs;
use crate::report::{Check, System};
use crate::server::{self, Drive, Kind as _, Server, Setup, Size, mariadb::MariaDb};
use crate::statistics::{bootstrap, median};
use crate::systems::mounted::{DATASET, Mounted};
use crate::tool::Tool;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any round.
const DRIVEN: Duration = Duration::from_secs(600);

pub(super) fn run(options: &Options) -> Result<Findings> {
    programs::require("clone", "")?;
    let rounds = options.rounds(10, 2);
    let setup = Setup { cache_mib: options.size(64, 8), advised: false, more: &[] };
    let size = Size { tables: 4, rows: options.size(100_000, 5_000), scale: 0 };
    let folder = options.scratch()?;
    server::open_to_all(folder.path())?;
    let mounted = Mounted::begin_pool(folder.path(), options)?;
    let data = mounted.point().join(DATASET).join("data");
    options.say("making a database")?;
    server::make(&MariaDb, &data, setup, size, options)?;
    let server = Server::start(&MariaDb, &data, setup, MariaDb.query(), options)?;
    let (mut seconds, mut snapshots, mut clones) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let took = round_of(&server, &mounted, setup, size, round, options)?;
        options.say(&format!("round {round} of {rounds}: {:.2} s", took.all))?;
        snapshots.push(took.snapshot);
        clones.push(took.clone);
        seconds.push(took.all);
    }
    server.stop()?;
    let mut findings = Findings::default();
    findings.check(Check::new("clone.seconds", bootstrap(&seconds, median, options.seed)));
    findings.system("snapshot", System::new("s", snapshots));
    findings.system("clone", System::new("s", clones));
    findings.system("until_answer", System::new("s", seconds));
    findings.parameter("rounds", rounds);
    findings.parameter("cache_mib", setup.cache_mib);
    findings.parameter("sysbench_tables", size.tables);
    findings.parameter("sysbench_rows", size.rows);
    Ok(findings)
}

/// When a round came how far, in seconds from its beginning.
struct Took {
    snapshot: f64,
    clone: f64,
    all: f64,
}

fn round_of(
    server: &Server<'_>,
    mounted: &Mounted,
    setup: Setup<'_>,
    size: Size,
    round: usize,
    options: &Options,
) -> Result<Took> {
    let (name, target) = (format!("round-{round}"), format!("clone-{round}"));
    let driving = drive(server, size)?;
    thread::sleep(options.size(Duration::from_secs(3), Duration::from_secs(1)));
    let begin = Instant::now();
    mounted.snapshot(&name)?;
    let snapshot = begin.elapsed().as_secs_f64();
    mounted.clone_snapshot(&name, &target)?;
    let clone = begin.elapsed().as_secs_f64();
    let data = mounted.point().join(&target).join("data");
    let second = Server::start(&MariaDb, &data, setup, MariaDb.query(), options)?;
    let all = begin.elapsed().as_secs_f64();
    drop(driving);
    second.stop()?;
    forget(mounted, &name, &target)?;
    Ok(Took { snapshot, clone, all })
}

/// Keeps the server at work until the value is dropped.
fn drive(server: &Server<'_>, size: Size) -> Result<Tool> {
    let drive = Drive { clients: 8, time: DRIVEN };
    let mut command = MariaDb.drive(server.sockets(), "oltp_write_only", size, drive);
    Tool::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn forget(mounted: &Mounted, name: &str, target: &str) -> Result<()> {
    mounted.destroy_dataset(target)?;
    mounted.destroy_snapshot(name)
}
