//! A reader holds the version that it reads, and nothing else.

use crate::limits::Limit;
use crate::names::parse_target;
use crate::namespace::data_runs;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{BlockCount, ByteLength, InodeNumber, LogAddress, Run, Stream};
use crate::{Creation, Error, View};
use std::collections::BTreeMap;
use std::sync::Arc;

const SEGMENT: u64 = 2 << 20;
/// Files that the pool may have.
const FILES: u64 = 24;
const PIECE: usize = 256 << 10;
/// Pieces of a file: 4 MiB.
const PIECES: u64 = 16;
/// Bytes that are written over and over: six times what the pool may take.
const CHURN: u64 = 6 * FILES * SEGMENT;

fn open(storage: &Arc<MemoryStorage>, background: bool) -> Pool {
    // Small caches: what is read comes from where it lies.
    let caches =
        OpenOptions { block_cache_bytes: 1 << 16, node_cache_bytes: 1 << 16, ..OpenOptions::default() };
    let options = OpenOptions { background, control_socket: false, ..caches };
    Pool::open(storage.clone(), &options).unwrap()
}

fn make(background: bool) -> Pool {
    let storage = Arc::new(MemoryStorage::default());
    let init = InitOptions { size_limit: Some(ByteLength(FILES * SEGMENT)), ..InitOptions::small() };
    Pool::init(storage.clone(), &init).unwrap();
    open(&storage, background)
}

fn fill(pool: &Pool, dataset: &str, byte: u8) {
    let dataset = pool.dataset(dataset).unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    (0..PIECES).for_each(|piece| {
        dataset.write(file, piece * PIECE as u64, &vec![byte; PIECE]).unwrap();
    });
}

fn with_datasets(names: &[&str], background: bool) -> Pool {
    let pool = make(background);
    for (index, name) in names.iter().enumerate() {
        pool.create_dataset(name, false, &[]).unwrap();
        fill(&pool, name, index as u8 + 1);
    }
    pool
}

/// Writes a file over and over; answers how many bytes found room.
fn churn(pool: &Pool, dataset: &str) -> u64 {
    let dataset = pool.dataset(dataset).unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    for round in 0..CHURN / PIECE as u64 {
        match dataset.write(file, round % PIECES * PIECE as u64, &vec![round as u8; PIECE]) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => return round * PIECE as u64,
            Err(error) => panic!("{error}"),
        }
    }
    CHURN
}

fn content(view: &View) -> Vec<u8> {
    let file = view.resolve(b"f").unwrap().unwrap();
    let mut content = vec![0; view.attributes(file).unwrap().size as usize];
    assert_eq!(view.read(file, 0, &mut content).unwrap(), content.len());
    content
}

fn snapshot(pool: &Pool, name: &str) {
    pool.snapshot(&[name.to_owned()], false, &[]).unwrap();
}

fn destroy(pool: &Pool, name: &str) {
    pool.destroy(&parse_target(name, true).unwrap()).unwrap();
}

/// Bytes in use once all is free that can be.
fn used(pool: &Pool) -> u64 {
    pool.engine().finish_freeing().unwrap();
    pool.checkpoint().unwrap();
    pool.statistics().live_bytes
}

#[test]
fn a_reader_of_a_snapshot_of_another_dataset_holds_nothing() {
    for background in [false, true] {
        let pool = with_datasets(&["db", "other"], background);
        snapshot(&pool, "other@s");
        let view = pool.view("other@s").unwrap();
        assert_eq!(churn(&pool, "db"), CHURN, "background: {background}");
        assert!(content(&view).iter().all(|byte| *byte == 2));
        pool.verify().unwrap();
    }
}

#[test]
fn a_reader_of_a_snapshot_of_the_same_dataset_holds_no_more_than_the_snapshot() {
    let pool = with_datasets(&["db"], false);
    snapshot(&pool, "db@s");
    let view = pool.view("db@s").unwrap();
    assert_eq!(churn(&pool, "db"), CHURN);
    assert!(content(&view).iter().all(|byte| *byte == 1));
}

#[test]
fn what_is_born_after_a_head_was_pinned_and_dies_is_free() {
    for background in [false, true] {
        let pool = with_datasets(&["db", "other"], background);
        let (view, other) = (pool.view("db").unwrap(), pool.view("other").unwrap());
        assert_eq!(churn(&pool, "db"), CHURN, "background: {background}");
        assert!(content(&view).iter().all(|byte| *byte == 1));
        assert!(content(&other).iter().all(|byte| *byte == 2));
    }
}

#[test]
fn what_died_before_a_head_was_pinned_is_free() {
    let pool = with_datasets(&["db"], false);
    pool.checkpoint().unwrap();
    let before = used(&pool);
    // No checkpoint has recorded these deaths when the pin is taken.
    (2..=3).for_each(|byte| fill(&pool, "db", byte));
    let view = pool.view("db").unwrap();
    fill(&pool, "db", 4);
    let kept = used(&pool) - before;
    assert!(kept < 5 << 20, "{} MiB are kept, and 4 are read", kept >> 20);
    assert!(content(&view).iter().all(|byte| *byte == 3));
    drop(view);
    assert!(used(&pool) < before + (1 << 20));
}

#[test]
fn a_pin_on_one_head_does_not_hold_what_died_in_another() {
    let pool = with_datasets(&["db", "other"], false);
    let view = pool.view("other").unwrap();
    let before = used(&pool);
    fill(&pool, "db", 9);
    assert!(used(&pool) < before + (1 << 20), "what `db` dropped was never in `other`");
    assert!(content(&view).iter().all(|byte| *byte == 2));
}

#[test]
fn a_snapshot_that_is_destroyed_stays_for_who_reads_it() {
    for background in [false, true] {
        let pool = with_datasets(&["db"], background);
        let alone = used(&pool);
        snapshot(&pool, "db@s");
        fill(&pool, "db", 7);
        let view = pool.view("db@s").unwrap();
        destroy(&pool, "db@s");
        assert!(pool.view("db@s").is_err(), "it cannot be found any more");
        assert_eq!(churn(&pool, "db"), CHURN);
        assert!(content(&view).iter().all(|byte| *byte == 1));
        pool.verify().unwrap();
        assert!(used(&pool) > alone + (3 << 20));
        drop(view);
        assert!(used(&pool) < alone + (1 << 20), "the reader is gone, and so is the snapshot");
        pool.verify().unwrap();
    }
}

/// USED of the datasets that are there, in bytes.
fn listed(pool: &Pool) -> u64 {
    let filter = crate::ListFilter { datasets: true, depth: Some(0), ..crate::ListFilter::default() };
    pool.list(&filter).unwrap().iter().map(|entry| entry.used.0).sum()
}

#[test]
fn a_destruction_gives_back_what_it_says_beside_readers() {
    // Which of the snapshots are read: a and b are destroyed, and c stays.
    for read in 0..8 {
        let pool = with_datasets(&["db", "other"], false);
        pool.set_property("db", "quota", "1000000000").unwrap();
        for (byte, name) in ["db@a", "db@b", "db@c"].into_iter().enumerate() {
            snapshot(&pool, name);
            fill(&pool, "db", 10 + byte as u8);
        }
        let names = ["db@a", "db@b", "db@c"].into_iter().enumerate();
        let views: Vec<_> = names
            .filter(|(index, _)| read >> index & 1 == 1)
            .map(|(_, name)| pool.view(name).unwrap())
            .collect();
        for name in ["db@a", "db@b"] {
            let target = parse_target(name, true).unwrap();
            let before = listed(&pool);
            let plan = pool.plan_destroy(&target).unwrap();
            assert_eq!(pool.destroy(&target).unwrap(), plan);
            assert_eq!(before - listed(&pool), plan.frees.0, "{name}, read: {read:03b}");
            assert_eq!(pool.statistics().used_bytes, listed(&pool));
            pool.verify().unwrap();
        }
        let kept: u64 = pool.readers().iter().map(|reader| reader.keeps.0).sum();
        let before = listed(&pool);
        drop(views);
        assert_eq!(before - listed(&pool), kept, "read: {read:03b}");
        pool.verify().unwrap();
    }
}

#[test]
fn a_dataset_that_is_destroyed_comes_back_but_for_what_is_read() {
    let pool = with_datasets(&["db", "other"], false);
    snapshot(&pool, "db@s");
    fill(&pool, "db", 9);
    let (past, present) = (pool.view("db@s").unwrap(), pool.view("db").unwrap());
    let target = parse_target("db", true).unwrap();
    let before = pool.statistics().used_bytes;
    assert_eq!(pool.plan_destroy(&target).unwrap().frees.0, 0);
    assert_eq!(pool.destroy(&target).unwrap().frees.0, 0);
    pool.verify().unwrap();
    used(&pool);
    assert_eq!(pool.statistics().used_bytes, before);
    // In the other order the reader of the head would keep what the snapshot above it gives back.
    for view in [present, past] {
        let keeps: BTreeMap<_, _> =
            pool.readers().into_iter().map(|reader| (reader.version, reader.keeps.0)).collect();
        let (keeps, before) = (keeps[view.name()], pool.statistics().used_bytes);
        assert!(keeps > 4 << 20, "{keeps}");
        drop(view);
        used(&pool);
        assert_eq!(before - pool.statistics().used_bytes, keeps);
        pool.verify().unwrap();
    }
}

#[test]
fn a_head_that_goes_stays_for_who_reads_it() {
    let pool = with_datasets(&["db", "other"], false);
    snapshot(&pool, "db@s");
    fill(&pool, "db", 5);
    let (rolled, destroyed) = (pool.view("db").unwrap(), pool.view("other").unwrap());
    let saved = pool.rollback("db@s", false).unwrap().saved_as;
    destroy(&pool, &saved);
    pool.destroy(&parse_target("other", true).unwrap()).unwrap();
    let held = used(&pool);
    assert_eq!(churn(&pool, "db"), CHURN);
    assert!(content(&rolled).iter().all(|byte| *byte == 5));
    assert!(content(&destroyed).iter().all(|byte| *byte == 2));
    pool.verify().unwrap();
    drop((rolled, destroyed));
    assert!(used(&pool) + (6 << 20) < held + (5 << 20), "both come back");
    pool.verify().unwrap();
}

#[test]
fn a_refusal_names_readers_and_what_would_help() {
    let refusal = |pool: &Pool| {
        let dataset = pool.dataset("db").unwrap();
        let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
        let mut full = (0..).map(|piece| dataset.write(file, piece * PIECE as u64, &vec![1; PIECE]));
        full.find_map(|outcome| outcome.err()).unwrap().to_string()
    };
    let pool = with_datasets(&["db"], false);
    let text = refusal(&pool);
    assert!(!text.contains("destroying") && !text.contains("reads"), "there is nothing to destroy: {text}");
    assert!(text.contains("icecore resize"), "{text}");

    let pool = with_datasets(&["db", "other"], false);
    snapshot(&pool, "db@s");
    let (idle, head) = (pool.view("other").unwrap(), pool.view("db").unwrap());
    let destroyed = pool.view("db@s").unwrap();
    destroyed.read_by(&Arc::new(crate::ReaderName { process: Some(7), what: Some("a backup".to_owned()) }));
    fill(&pool, "db", 9);
    destroy(&pool, "db@s");
    drop(head);
    used(&pool);
    let readers = pool.readers();
    assert_eq!(readers.len(), 1, "{readers:?}");
    let said = readers[0].to_string();
    assert!(said.starts_with("process 7 (a backup) reads db@s since 20"), "{said}");
    assert!((4 << 20..5 << 20).contains(&readers[0].keeps.0), "{said}");
    let text = refusal(&pool);
    assert!(text.contains(&said), "{text}");
    assert!(!text.contains("destroying") && !text.contains("reads other"), "{text}");
    snapshot(&pool, "other@s");
    assert!(!refusal(&pool).contains("destroying"), "it has nothing that its dataset has not");
    drop((idle, destroyed));
    assert!(pool.readers().is_empty());

    let pool = with_datasets(&["db"], false);
    let head = pool.view("db").unwrap();
    fill(&pool, "db", 9);
    let readers = pool.readers();
    assert_eq!(readers.len(), 1);
    assert_eq!((readers[0].version.as_str(), readers[0].process), ("db", std::process::id()));
    assert!((4 << 20..5 << 20).contains(&readers[0].keeps.0), "{}", readers[0]);
    snapshot(&pool, "db@s");
    fill(&pool, "db", 10);
    assert!(refusal(&pool).contains("destroying snapshots frees space; "));
    let backup = pool.view("db@s").unwrap();
    let text = refusal(&pool);
    assert!(text.contains("destroying snapshots frees space when their readers have ended"), "{text}");
    assert!(!pool.snapshots_hold(), "what is read is not free yet");
    drop(backup);
    assert!(pool.snapshots_hold());
    pool.hold("audit", "db@s").unwrap();
    assert!(!refusal(&pool).contains("destroying"), "a hold refuses it");
    pool.release("audit", "db@s").unwrap();
    drop(head);

    let pool = with_datasets(&["db"], false);
    snapshot(&pool, "db@s");
    pool.clone_snapshot("db@s", "copy", false).unwrap();
    fill(&pool, "db", 9);
    assert!(!refusal(&pool).contains("destroying"), "the clone has all that the snapshot has");
}

#[test]
fn a_refusal_by_a_quota_names_readers_and_what_would_help() {
    let pool = with_datasets(&["db", "other"], false);
    pool.set_limit("db", Limit::Quota, Some(ByteLength(6 << 20))).unwrap();
    let refusal = || {
        let dataset = pool.dataset("db").unwrap();
        let file = dataset.open_or_create(b"more", &Creation::file()).unwrap();
        let mut full = (0..).map(|piece| dataset.write(file, piece * PIECE as u64, &vec![1; PIECE]));
        let error = full.find_map(|outcome| outcome.err()).unwrap();
        assert!(matches!(error, crate::Error::QuotaExceeded { .. }), "{error}");
        dataset.truncate(file, 0).unwrap();
        error.to_string()
    };
    snapshot(&pool, "other@s");
    let text = refusal();
    assert!(!text.contains("snapshots") && text.contains("delete files"), "{text}");
    fill(&pool, "db", 9);
    snapshot(&pool, "db@s");
    let text = refusal();
    assert!(text.contains("destroy snapshots or delete files") && !text.contains("reads"), "{text}");
    pool.hold("audit", "db@s").unwrap();
    assert!(!refusal().contains("snapshots"), "a hold refuses it");
    pool.release("audit", "db@s").unwrap();
    let backup = pool.view("db@s").unwrap();
    assert!(!refusal().contains("snapshots"), "what is read counts until the reader ends");
    drop(backup);
}

/// Numbers that look random (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn choice(&mut self, among: &[&String]) -> Option<String> {
        let count = among.len() as u64;
        (count > 0).then(|| among[self.below(count) as usize].clone())
    }
}

/// A reader of the random test, and what it has to find for as long as it is there.
struct Reader {
    view: View,
    content: Vec<u8>,
}

/// All that a reader reaches lives, or is dead and not free yet.
fn assert_held(pool: &Pool, view: &View) {
    let engine = pool.engine();
    let state = engine.state();
    let is_held = |stream: Stream, address: LogAddress| {
        state.graveyard.holds(stream, address) || state.history.lives(stream, address).unwrap()
    };
    let meet = |run: Run| {
        let lost = (0..run.length.0).find(|index| !is_held(run.stream, run.start.plus(BlockCount(*index))));
        assert_eq!(lost, None, "{} reaches {run:?}, which is free", view.name());
        Ok(())
    };
    let node = |address| Run { stream: Stream::Node, start: address, length: BlockCount(1) };
    view.tree().nodes(&*engine.nodes, &mut |address, _| meet(node(address))).unwrap();
    data_runs(view.tree(), &*engine.nodes, &mut |_, _, run| meet(run)).unwrap();
}

/// Operations of all kinds run in a small pool. Readers of heads and snapshots must find what they found
/// first.
#[test]
fn whatever_happens_a_reader_finds_what_it_pinned() {
    let seed = std::env::var("ICECORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rounds = std::env::var("ICECORE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4);
    for seed in seed..seed + rounds {
        let mut random = Dice(seed);
        let storage = Arc::new(MemoryStorage::default());
        let init = InitOptions { size_limit: Some(ByteLength(16 * SEGMENT)), ..InitOptions::small() };
        Pool::init(storage.clone(), &init).unwrap();
        let pool = open(&storage, seed % 3 == 0);
        Random { pool: &pool, random: &mut random, next: 0, readers: Vec::new(), seed }.live();
        used(&pool);
        pool.verify().unwrap();
        let statistics = pool.statistics();
        assert_eq!((statistics.freeing_bytes, statistics.pins), (0, 0), "seed {seed}");
        pool.close().unwrap();
        open(&storage, false).verify().unwrap();
    }
}

struct Random<'a> {
    pool: &'a Pool,
    random: &'a mut Dice,
    next: u32,
    readers: Vec<Reader>,
    seed: u64,
}

impl Random<'_> {
    fn live(&mut self) {
        for step in 0..400 {
            self.step();
            for reader in &self.readers {
                assert_held(self.pool, &reader.view);
                let found = content(&reader.view);
                assert!(found == reader.content, "seed {}, step {step}: {}", self.seed, reader.view.name());
            }
        }
        self.readers.clear();
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    fn names(&self) -> BTreeMap<String, Vec<String>> {
        let datasets = self.pool.children(None).unwrap();
        let with_snapshots = datasets.into_iter().map(|(name, id)| {
            let snapshots = self.pool.snapshots_of(id).unwrap();
            let snapshots = snapshots.into_iter().map(|(short, _)| format!("{name}@{short}")).collect();
            (name, snapshots)
        });
        with_snapshots.collect()
    }

    fn step(&mut self) {
        let names = self.names();
        let datasets: Vec<&String> = names.keys().collect();
        let snapshots: Vec<&String> = names.values().flatten().collect();
        let Some(dataset) = self.random.choice(&datasets) else {
            let name = self.fresh("d");
            return self.pool.create_dataset(&name, false, &[]).unwrap();
        };
        let snapshot = self.random.choice(&snapshots);
        // What is refused, because something else depends on it, changes nothing.
        match (self.random.below(100), snapshot) {
            (0..40, _) => self.write(&dataset),
            (40..55, _) if self.readers.len() < 6 => self.read(&dataset),
            (55..62, Some(snapshot)) if self.readers.len() < 6 => self.read(&snapshot),
            (62..70, _) if !self.readers.is_empty() => {
                let gone = self.random.below(self.readers.len() as u64) as usize;
                self.readers.swap_remove(gone);
            }
            (70..78, _) => {
                let name = self.fresh("s");
                drop(self.pool.snapshot(&[format!("{dataset}@{name}")], false, &[]));
            }
            (78..86, Some(snapshot)) => drop(self.pool.destroy(&parse_target(&snapshot, true).unwrap())),
            (86..89, Some(snapshot)) => drop(self.pool.rollback(&snapshot, true)),
            (89..91, Some(snapshot)) if datasets.len() < 4 => {
                let name = self.fresh("c");
                drop(self.pool.clone_snapshot(&snapshot, &name, false));
            }
            (91..92, _) => drop(self.pool.promote(&dataset)),
            (92..94, _) => {
                for snapshot in &names[&dataset] {
                    drop(self.pool.destroy(&parse_target(snapshot, true).unwrap()));
                }
                drop(self.pool.destroy(&parse_target(&dataset, true).unwrap()));
            }
            (94..97, _) => drop(used(self.pool)),
            (97..99, _) => drop(self.pool.collect(4).unwrap()),
            _ => {}
        }
    }

    fn read(&mut self, name: &str) {
        let view = self.pool.view(name).unwrap();
        if view.resolve(b"f").unwrap().is_some() {
            let content = content(&view);
            self.readers.push(Reader { view, content });
        }
    }

    /// Whole blocks, parts of one that are merged, a file that is cut, and a group.
    fn write(&mut self, name: &str) {
        let dataset = self.pool.dataset(name).unwrap();
        let Ok(file) = dataset.open_or_create(b"f", &Creation::file()) else { return };
        let at = self.random.below(64) * 8192;
        let byte = self.random.below(256) as u8;
        let outcome = match self.random.below(10) {
            0..6 => dataset.write(file, at, &vec![byte; (1 + self.random.below(32) as usize) * 8192]),
            6..8 => dataset.write(file, at + 17, &[byte; 300]),
            8 => dataset.truncate(file, at),
            _ => self.commit(name, file, at, byte),
        };
        match outcome {
            Ok(()) | Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn commit(&mut self, name: &str, file: InodeNumber, at: u64, byte: u8) -> crate::Result<()> {
        let dataset = self.pool.dataset(name)?;
        let mut group = dataset.begin()?;
        group.write(file, at, &vec![byte; 40_000])?;
        group.write(file, at + 400_000, &[byte; 100])?;
        self.pool.commit(vec![group]).map(drop)
    }
}
