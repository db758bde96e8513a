//! Real kills: the workload of the demonstration in a process of its own, killed with SIGKILL at random
//! moments, over and over on one pool. Nothing that was acknowledged is lost, and every snapshot is what it
//! was.
//!
//! `ICECORE_KILLS` says how many (50), `ICECORE_SEED` where the moments come from.

use icecore::units::ByteLength;
use icecore::{Error, InitOptions, OpenOptions, Pool};
use icecore_lab::random::Random;
use icecore_lab::valuation::{Contents, ITERATIONS, Valuation};
use icecore_sqlite::Registration;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Folder of the pool, and seed, for the process that gets killed.
const JOB: &str = "ICECORE_KILLED_JOB";
/// Rows inserted by an iteration: small, so that there are many, and the moments of dying differ.
const PERIODS: u32 = 20;
/// The longest life, the start of the process included.
const LIFE_MILLISECONDS: u64 = 300;
/// Snapshots that are looked at after each kill, of the life that ended and of earlier ones; all of them are
/// in the end.
const SNAPSHOTS: (usize, usize) = (5, 3);
/// Between one look at all of the books and the next.
const KILLS_PER_VERIFY: u64 = 20;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// A short log, so that checkpoints and recycling happen within a short life.
fn options() -> OpenOptions {
    OpenOptions { log_bytes_max: 6 << 20, dirty_bytes_max: 2 << 20, ..OpenOptions::default() }
}

/// A pool, open, and reachable for SQLite.
struct Opened {
    registration: Registration,
    pool: Pool,
}

impl Opened {
    fn open(folder: &Path) -> Self {
        let pool = Pool::open_directory(folder, &options()).expect("the pool opens, whatever happened");
        icecore_sqlite::register().expect("the VFS");
        let registration = icecore_sqlite::register_pool("kills", pool.clone()).expect("registered once");
        Self { registration, pool }
    }

    fn connect(&self, study: u32, snapshot: Option<&str>) -> Connection {
        let path = Path::new(&self.registration.prefix()).join(dataset(study)).join("app.db");
        let access = match snapshot {
            Some(_) => OpenFlags::SQLITE_OPEN_READ_ONLY,
            None => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        };
        let flags = access | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(icecore_sqlite::uri(&path, snapshot), flags)
            .unwrap_or_else(|error| panic!("study {study}, snapshot {snapshot:?}: {error}"));
        connection.execute_batch("PRAGMA synchronous=FULL").expect("a pragma");
        connection
    }

    fn has(&self, study: u32, iteration: u32) -> bool {
        self.pool.view(&format!("{}@{}", dataset(study), snapshot(iteration))).is_ok()
    }

    /// What a version of a study holds: `None` before there is a table. It must be sound.
    fn contents(&self, study: u32, snapshot: Option<&str>) -> Option<Contents> {
        let connection = self.connect(study, snapshot);
        let check: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(check, "ok", "study {study}, snapshot {snapshot:?}");
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'valuation'";
        let tables: u32 = connection.query_row(tables, [], |row| row.get(0)).expect("a schema");
        (tables > 0).then(|| Contents::read(&connection).expect("rows"))
    }
}

fn dataset(study: u32) -> String {
    format!("study-{study}")
}

fn snapshot(iteration: u32) -> String {
    format!("after-{iteration:03}")
}

/// Values of one study.
fn seed_of(seed: u64, study: u32) -> u64 {
    seed.wrapping_add(u64::from(study))
}

// The process that gets killed.

/// The process that gets killed: this test program, started again with this test alone.
#[test]
fn work_until_killed() {
    let Ok(job) = std::env::var(JOB) else { return };
    let mut parts = job.splitn(4, ' ');
    let mut next = || parts.next().expect("four parts");
    let seed = next().parse().expect("a seed");
    let mut study = next().parse().expect("a study");
    let mut done = next().parse::<i64>().expect("how far it is");
    let opened = Opened::open(Path::new(next()));
    loop {
        work(&opened, seed, study, u32::try_from(done).ok());
        study += 1;
        done = -1;
    }
}

/// One study from where it is to its end, telling what is done when it is.
fn work(opened: &Opened, seed: u64, study: u32, done: Option<u32>) {
    let tell = |what: &str, iteration: u32| {
        let mut output = std::io::stdout().lock();
        // With no reader of the output any more there is nothing to live for.
        writeln!(output, "\n{what} {study} {iteration}")
            .and_then(|()| output.flush())
            .expect("somebody listens");
    };
    match opened.pool.create_dataset(&dataset(study), false, &[]) {
        Ok(_) | Err(Error::Exists { .. }) => {}
        Err(error) => panic!("cannot make a dataset: {error}"),
    }
    let connection = opened.connect(study, None);
    let mut workload = match done {
        Some(done) => Valuation::resume(&connection, PERIODS, seed_of(seed, study), done),
        None => Valuation::begin(&connection, PERIODS, seed_of(seed, study)),
    }
    .expect("the table");
    tell("committed", workload.iterations_done());
    loop {
        let iteration = workload.iterations_done();
        if iteration > 0 && !opened.has(study, iteration) {
            connection
                .query_row("SELECT icecore_snapshot(?1)", [snapshot(iteration)], |_| Ok(()))
                .expect("a snapshot");
            tell("kept", iteration);
        }
        if iteration == ITERATIONS {
            return;
        }
        workload.iterate().expect("an iteration");
        tell("committed", workload.iterations_done());
    }
}

// The process that kills.

/// What was acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// Study and last iteration committed.
    committed: Option<(u32, u32)>,
    /// Snapshots, oldest first.
    kept: Vec<(u32, u32)>,
}

impl Acknowledged {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [what @ ("committed" | "kept"), study, iteration] = words[..] else { return };
        let place = (study.parse().expect("a study"), iteration.parse().expect("an iteration"));
        if what == "kept" {
            self.kept.push(place);
        } else {
            self.committed = Some(place);
        }
    }
}

/// What every study holds after each iteration, computed without any pool.
#[derive(Default)]
struct Expected(BTreeMap<u32, Vec<Contents>>);

impl Expected {
    fn of(&mut self, seed: u64, study: u32) -> &[Contents] {
        self.0.entry(study).or_insert_with(|| {
            let connection = Connection::open_in_memory().expect("a database in memory");
            drop(Valuation::begin(&connection, PERIODS, seed_of(seed, study)).expect("the table"));
            let after = |iterations| {
                let workload = Valuation::resume(&connection, PERIODS, seed_of(seed, study), iterations);
                workload.expect("drawn").contents()
            };
            (0..=ITERATIONS).map(after).collect()
        })
    }
}

struct Killer {
    folder: PathBuf,
    seed: u64,
    random: Random,
    acknowledged: Acknowledged,
    expected: Expected,
    /// Where the next life goes on: study, and iterations done in it, none before there is a table.
    next: (u32, Option<u32>),
}

impl Killer {
    /// One life and its end.
    fn live(&mut self) {
        let (study, done) = self.next;
        let done = done.map_or(-1, i64::from);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["kills::work_until_killed", "--exact", "--nocapture"])
            .env(JOB, format!("{} {study} {done} {}", self.seed, self.folder.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("captured"));
        let listening = thread::spawn(move || output.lines().map_while(Result::ok).collect::<Vec<_>>());
        // A short life is one that ends while the pool is being opened.
        thread::sleep(Duration::from_micros(self.random.below(LIFE_MILLISECONDS * 1000)));
        child.kill().expect("SIGKILL");
        let status = child.wait().expect("its end");
        let mut said = String::new();
        child.stderr.take().expect("captured").read_to_string(&mut said).expect("text");
        assert!(status.code().is_none(), "it ended by itself: {said}");
        for line in listening.join().expect("no panic") {
            self.acknowledged.hear(&line);
        }
    }

    /// What a study holds must be this or one iteration more; answers which.
    fn find(&mut self, opened: &Opened, study: u32, least: Option<u32>) -> Option<u32> {
        if least.is_none() && opened.pool.view(&dataset(study)).is_err() {
            return None;
        }
        let found = opened.contents(study, None);
        let expected = self.expected.of(self.seed, study);
        let more = least.map_or(0, |least| least + 1).min(ITERATIONS);
        let known = found.and_then(|found| expected.iter().position(|expected| *expected == found));
        match (found, known) {
            (None, _) => assert_eq!(least, None, "study {study} is gone"),
            (Some(_), Some(known)) => {
                let known = known as u32;
                assert!(
                    Some(known) == least || known == more,
                    "study {study} holds {known} iterations, and {least:?} were acknowledged"
                );
                return Some(known);
            }
            (Some(found), None) => panic!("study {study} holds what no iteration made: {found:?}"),
        }
        None
    }

    fn check_snapshot(&mut self, opened: &Opened, study: u32, iteration: u32) {
        let found = opened.contents(study, Some(&snapshot(iteration)));
        let expected = self.expected.of(self.seed, study)[iteration as usize];
        assert_eq!(found, Some(expected), "snapshot {iteration} of study {study}");
    }

    /// Looks what is left after a kill. `new`: how many snapshots were known before that life.
    fn check(&mut self, new: usize) {
        let opened = Opened::open(&self.folder);
        let (study, least) = match self.acknowledged.committed {
            Some((study, iteration)) => (study, Some(iteration)),
            None => (0, None),
        };
        let found = self.find(&opened, study, least);
        self.next = (study, found);
        if found == Some(ITERATIONS) {
            let begun = self.find(&opened, study + 1, None);
            self.next = (study + 1, begun);
        }
        // A snapshot that the killed process made and did not report.
        if let Some(found) = found
            && opened.has(study, found)
        {
            self.check_snapshot(&opened, study, found);
            if !self.acknowledged.kept.contains(&(study, found)) {
                self.acknowledged.kept.push((study, found));
            }
        }
        let (old, fresh) = self.acknowledged.kept.split_at(new.min(self.acknowledged.kept.len()));
        // The last one of all is the likeliest to be damaged.
        let mut looked_at: Vec<_> = fresh.last().into_iter().copied().collect();
        for (snapshots, count) in [(fresh, SNAPSHOTS.0), (old, SNAPSHOTS.1)] {
            for _ in 0..count.min(snapshots.len()) {
                looked_at.push(snapshots[self.random.below(snapshots.len() as u64) as usize]);
            }
        }
        for (study, iteration) in looked_at {
            self.check_snapshot(&opened, study, iteration);
        }
        if self.random.below(KILLS_PER_VERIFY) == 0 {
            opened.pool.verify().expect("the books");
        }
        if self.random.below(2) == 0 {
            opened.pool.close().expect("a clean close");
        }
    }

    fn check_everything(&mut self) {
        let opened = Opened::open(&self.folder);
        for (study, iteration) in self.acknowledged.kept.clone() {
            self.check_snapshot(&opened, study, iteration);
        }
        opened.pool.verify().expect("the books");
        let report = opened.pool.scrub(&mut |_| true).expect("a scrub");
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        opened.pool.close().expect("a clean close");
    }
}

#[test]
fn fifty_kills_lose_nothing() {
    let kills = number("ICECORE_KILLS").unwrap_or(50);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let seed = number("ICECORE_SEED").unwrap_or(u64::from(since.subsec_nanos()));
    println!("the moments of dying follow from ICECORE_SEED={seed}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pool");
    let init = InitOptions {
        segment_bytes: 4 << 20,
        size_limit: Some(ByteLength(8 << 30)),
        ..InitOptions::default()
    };
    Pool::init_directory(&path, &init).expect("a new pool");
    let mut killer = Killer {
        folder: path,
        seed,
        random: Random::new(seed),
        acknowledged: Acknowledged::default(),
        expected: Expected::default(),
        next: (0, None),
    };
    let begin = Instant::now();
    for kill in 1..=kills {
        let known = killer.acknowledged.kept.len();
        killer.live();
        let before = killer.acknowledged.committed;
        println!(
            "kill {kill}: {before:?} committed, {} snapshots, {:?}",
            killer.acknowledged.kept.len(),
            begin.elapsed()
        );
        killer.check(known);
    }
    killer.check_everything();
    let (studies, snapshots) = (killer.next.0 + 1, killer.acknowledged.kept.len());
    println!("{kills} kills, {studies} studies, {snapshots} snapshots, {:?}", begin.elapsed());
    assert!(snapshots as u64 > kills, "it did hardly anything before it was killed");
}
