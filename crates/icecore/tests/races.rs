//! Real threads on a real pool: commits, snapshots, checkpoints, destruction and closing at the same time,
//! under readers that hold on to what they have pinned. `ICECORE_SEED` repeats the choices (not the moments),
//! `ICECORE_SECONDS` goes on for longer.

use icecore::units::{ByteLength, InodeNumber};
use icecore::{Creation, Dataset, DestroyTarget, Error, InitOptions, OpenOptions, Pool, View};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// Blocks of each file: more than a group keeps in memory.
const BLOCKS: u64 = 48;
const WRITERS: usize = 2;
/// Snapshots that are kept; older ones are destroyed, read or not.
const SNAPSHOTS: usize = 6;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("ICECORE_SEED").unwrap_or(u64::from(now.subsec_nanos()));
    println!("ICECORE_SEED={seed}");
    seed
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % limit
    }
}

/// Whether a transaction writes a block. Block 0 says which transaction was the last.
fn writes(transaction: u64, block: u64) -> bool {
    block == 0 || mix(transaction.wrapping_mul(1000) + block).is_multiple_of(2)
}

/// The transaction that wrote a block last.
fn writer_of(transaction: u64, block: u64) -> u64 {
    (1..=transaction).rev().find(|before| writes(*before, block)).unwrap_or(0)
}

fn stamp(transaction: u64, block: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = if index == 0 { transaction } else { mix(transaction * BLOCKS + block + index as u64) };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn read(view: &View, file: InodeNumber) -> Vec<u8> {
    let mut content = vec![0; BLOCKS as usize * BLOCK];
    assert_eq!(view.read(file, 0, &mut content).unwrap(), content.len());
    content
}

/// The transaction that a file is the result of. It must be that of a whole one.
fn examine(content: &[u8]) -> u64 {
    let transaction = u64::from_le_bytes(content[..8].try_into().unwrap());
    for (block, found) in (0..BLOCKS).zip(content.chunks_exact(BLOCK)) {
        let writer = writer_of(transaction, block);
        assert!(found == stamp(writer, block), "block {block} after transaction {transaction}");
    }
    transaction
}

struct World {
    pool: Pool,
    files: Vec<(Dataset, InodeNumber)>,
    /// The last transaction of each writer that is durable.
    acknowledged: Vec<AtomicU64>,
    /// The last one that may have been committed.
    begun: Vec<AtomicU64>,
    /// Short names of the snapshots that are there, with the transactions in them.
    snapshots: Mutex<Vec<(String, Vec<u64>)>>,
    stop: AtomicBool,
    /// From here on any caller may get the error that the pool is closed.
    closing: AtomicBool,
}

fn name(writer: usize) -> String {
    format!("w{writer}")
}

fn options() -> OpenOptions {
    OpenOptions {
        log_bytes_max: 4 << 20,
        dirty_bytes_max: 1 << 20,
        group_memory_bytes: 64 << 10,
        block_cache_bytes: 256 << 10,
        node_cache_bytes: 64 << 10,
        ..OpenOptions::default()
    }
}

fn new_pool(path: &Path) {
    let init = InitOptions {
        segment_bytes: 2 << 20,
        size_limit: Some(ByteLength(96 << 20)),
        ..InitOptions::default()
    };
    Pool::init_directory(path, &init).unwrap();
    let pool = Pool::open_directory(path, &options()).unwrap();
    for writer in 0..WRITERS {
        pool.create_dataset(&name(writer), false, &[]).unwrap();
        let dataset = pool.dataset(&name(writer)).unwrap();
        let file = dataset.open_or_create(b"file", &Creation::file()).unwrap();
        for block in 0..BLOCKS {
            dataset.write(file, block * BLOCK as u64, &stamp(0, block)).unwrap();
        }
        dataset.sync().unwrap();
    }
    pool.close().unwrap();
}

impl World {
    /// Opens the pool and looks how far each writer was.
    fn open(path: &Path) -> Self {
        let pool = Pool::open_directory(path, &options()).unwrap();
        let mut world = Self {
            pool,
            files: Vec::new(),
            acknowledged: Vec::new(),
            begun: Vec::new(),
            snapshots: Mutex::default(),
            stop: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        };
        for writer in 0..WRITERS {
            let dataset = world.pool.dataset(&name(writer)).unwrap();
            let view = dataset.view().unwrap();
            let file = view.resolve(b"file").unwrap().unwrap();
            let transaction = examine(&read(&view, file));
            world.files.push((dataset, file));
            world.acknowledged.push(AtomicU64::new(transaction));
            world.begun.push(AtomicU64::new(transaction));
        }
        world
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    /// An error that may come now ends what was tried; any other fails the test.
    fn bear<T>(&self, outcome: icecore::Result<T>, what: &str) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(Error::NoSpace { .. }) => None,
            Err(_) if self.closing.load(SeqCst) => None,
            Err(error) => panic!("{what}: {error:?}"),
        }
    }

    fn transact(&self, writer: usize, random: &mut Random) -> icecore::Result<()> {
        let (dataset, file) = &self.files[writer];
        let transaction = self.acknowledged[writer].load(SeqCst) + 1;
        let mut group = dataset.begin()?;
        for block in (0..BLOCKS).filter(|block| writes(transaction, *block)) {
            group.write(*file, block * BLOCK as u64, &stamp(transaction, block))?;
        }
        if random.below(6) == 0 {
            // Rolled back.
            return Ok(());
        }
        self.begun[writer].store(transaction, SeqCst);
        let point = match self.pool.commit(vec![group]) {
            Ok(point) => point,
            Err(error) => {
                // Also if the pool was closed meanwhile: not committed is not committed.
                self.begun[writer].store(transaction - 1, SeqCst);
                return Err(error);
            }
        };
        self.pool.make_durable(point)?;
        self.acknowledged[writer].store(transaction, SeqCst);
        Ok(())
    }

    fn write(&self, writer: usize, random: &mut Random) {
        while self.goes_on() {
            let refused = self.bear(self.transact(writer, random), "a transaction").is_none();
            if refused && self.closing.load(SeqCst) {
                return;
            }
        }
    }

    /// Pins the head, and finds in it what was acknowledged, now and later.
    fn read_heads(&self, random: &mut Random) {
        while self.goes_on() {
            let writer = random.below(WRITERS as u64) as usize;
            let least = self.acknowledged[writer].load(SeqCst);
            let Some(view) = self.bear(self.pool.view(&name(writer)), "a view") else { return };
            let Some(content) = self.read_if_open(&view, self.files[writer].1) else { return };
            let most = self.begun[writer].load(SeqCst);
            let transaction = examine(&content);
            // A commit that is refused takes its announcement back.
            assert!(
                least <= transaction && transaction <= most.max(least + 1),
                "{transaction} is not between {least} and {most}"
            );
            for _ in 0..random.below(4) {
                thread::sleep(Duration::from_micros(random.below(20_000)));
                let Some(again) = self.read_if_open(&view, self.files[writer].1) else { return };
                assert!(again == content, "what was pinned has changed");
            }
        }
    }

    /// Reads open files: one read finds a whole transaction, and none that is older than what was
    /// acknowledged before it.
    fn read_files(&self, random: &mut Random) {
        while self.goes_on() {
            let writer = random.below(WRITERS as u64) as usize;
            let (dataset, file) = &self.files[writer];
            let Some(file) = self.bear(dataset.file(*file), "opening a file") else { return };
            for _ in 0..random.below(400) {
                let least = self.acknowledged[writer].load(SeqCst);
                let mut content = vec![0; BLOCKS as usize * BLOCK];
                let Some(read) = self.bear(file.read(0, &mut content), "a read of a file") else { return };
                assert_eq!(read, content.len());
                let transaction = examine(&content);
                assert!(least <= transaction, "{transaction} is older than {least}");
                let most = self.begun[writer].load(SeqCst).max(least + 1);
                assert!(transaction <= most, "{transaction} is younger than {most}");
            }
        }
    }

    fn read_if_open(&self, view: &View, file: InodeNumber) -> Option<Vec<u8>> {
        let mut content = vec![0; BLOCKS as usize * BLOCK];
        self.bear(view.read(file, 0, &mut content), "a read")?;
        Some(content)
    }

    /// Pins snapshots, which are destroyed under it.
    fn read_snapshots(&self, random: &mut Random) {
        while self.goes_on() {
            let known = self.snapshots.lock().unwrap().clone();
            if known.is_empty() {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let (short, transactions) = &known[random.below(known.len() as u64) as usize];
            let writer = random.below(WRITERS as u64) as usize;
            let view = match self.pool.view(&format!("{}@{short}", name(writer))) {
                Err(Error::NotFound { .. }) => continue,
                other => other,
            };
            let Some(view) = self.bear(view, "a view of a snapshot") else { return };
            for _ in 0..=random.below(4) {
                let Some(content) = self.read_if_open(&view, self.files[writer].1) else { return };
                assert_eq!(examine(&content), transactions[writer], "snapshot {short}");
                thread::sleep(Duration::from_micros(random.below(30_000)));
            }
        }
    }

    /// Takes snapshots of all datasets at once and destroys the oldest ones.
    fn rotate(&self, random: &mut Random) {
        for round in 0.. {
            if !self.goes_on() {
                return;
            }
            let short = format!("s{round}");
            let names: Vec<String> = (0..WRITERS).map(|writer| format!("{}@{short}", name(writer))).collect();
            if self.bear(self.pool.snapshot(&names, false, &[]), "a snapshot").is_some() {
                let look = |writer: usize| {
                    let view = self.bear(self.pool.view(&names[writer]), "a view")?;
                    Some(examine(&self.read_if_open(&view, self.files[writer].1)?))
                };
                let Some(transactions) = (0..WRITERS).map(look).collect() else { return };
                self.snapshots.lock().unwrap().push((short, transactions));
            }
            let oldest = {
                let mut known = self.snapshots.lock().unwrap();
                let index = random.below(known.len().max(1) as u64) as usize;
                (known.len() > SNAPSHOTS).then(|| known.remove(index).0)
            };
            for writer in 0..WRITERS {
                let Some(oldest) = &oldest else { continue };
                let target = DestroyTarget::Snapshot(format!("{}@{oldest}", name(writer)));
                match self.pool.destroy(&target) {
                    Err(Error::NoSpace { detail }) => panic!("no room to destroy: {detail}"),
                    outcome => self.bear(outcome.map(drop), "destroying"),
                };
            }
            thread::sleep(Duration::from_micros(random.below(5000)));
        }
    }

    fn checkpoint(&self, random: &mut Random) {
        while self.goes_on() {
            if self.bear(self.pool.checkpoint(), "a checkpoint").is_none() {
                return;
            }
            thread::sleep(Duration::from_micros(random.below(20_000)));
        }
    }

    /// Everybody at once, until `end` has done what it does.
    fn run(&self, seed: u64, end: impl FnOnce(&Self)) {
        type Part = fn(&World, &mut Random);
        let parts: [Part; 7] = [
            Self::read_heads,
            Self::read_heads,
            Self::read_files,
            Self::read_files,
            Self::read_snapshots,
            Self::rotate,
            Self::checkpoint,
        ];
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let _stop = StopOnPanic(self);
                    self.write(writer, &mut Random(seed ^ writer as u64));
                });
            }
            for (index, part) in parts.into_iter().enumerate() {
                scope.spawn(move || {
                    let _stop = StopOnPanic(self);
                    part(self, &mut Random(seed ^ (100 + index as u64)));
                });
            }
            end(self);
            self.stop.store(true, SeqCst);
        });
    }
}

/// Ends all the others when one fails.
struct StopOnPanic<'world>(&'world World);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop.store(true, SeqCst);
        }
    }
}

#[test]
fn commits_checkpoints_and_destruction_leave_readers_alone() {
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    new_pool(&path);
    let world = World::open(&path);
    let deadline = Instant::now() + Duration::from_secs(number("ICECORE_SECONDS").unwrap_or(3));
    world.run(seed, |world| {
        while Instant::now() < deadline && world.goes_on() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    world.pool.verify().unwrap();
    let report = world.pool.scrub(&mut |_| true).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let statistics = world.pool.statistics();
    assert_eq!(statistics.failure, None);
    let done: Vec<u64> = world.acknowledged.iter().map(|count| count.load(SeqCst)).collect();
    println!(
        "{done:?} transactions, {} checkpoints, {} segments used again",
        statistics.checkpoints, statistics.segments_recycled
    );
    assert!(statistics.checkpoints > 3 && done.iter().all(|count| *count > 5), "hardly anything was done");
    let snapshots = world.snapshots.into_inner().unwrap();
    drop(world.files);
    world.pool.close().unwrap();
    let world = World::open(&path);
    let found: Vec<u64> = world.acknowledged.iter().map(|count| count.load(SeqCst)).collect();
    assert_eq!(found, done);
    for (short, transactions) in snapshots {
        for (writer, transaction) in transactions.into_iter().enumerate() {
            let view = world.pool.view(&format!("{}@{short}", name(writer))).unwrap();
            assert_eq!(examine(&read(&view, world.files[writer].1)), transaction, "snapshot {short}");
        }
    }
    world.pool.verify().unwrap();
}

#[test]
fn closing_in_the_middle_of_everything_loses_nothing() {
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    new_pool(&path);
    let mut random = Random(seed);
    for round in 0..number("ICECORE_SECONDS").unwrap_or(2) * 6 {
        let world = World::open(&path);
        // Those of earlier rounds are in the way of their names, and of space.
        let filter = icecore::ListFilter { snapshots: true, ..Default::default() };
        for entry in world.pool.list(&filter).unwrap() {
            world.pool.destroy(&DestroyTarget::Snapshot(entry.name)).unwrap();
        }
        world.run(seed.wrapping_add(round << 32), |world| {
            thread::sleep(Duration::from_micros(random.below(200_000)));
            world.closing.store(true, SeqCst);
            world.pool.close().unwrap();
        });
        let possible: Vec<_> = (0..WRITERS)
            .map(|writer| world.acknowledged[writer].load(SeqCst)..=world.begun[writer].load(SeqCst))
            .collect();
        // The next life begins while handles of the former one are still there.
        let next = World::open(&path);
        for (possible, found) in possible.into_iter().zip(&next.acknowledged) {
            let found = found.load(SeqCst);
            assert!(possible.contains(&found), "round {round}: {found} is found, {possible:?} is possible");
        }
        next.pool.verify().unwrap();
        drop(world);
        // What is left of a closed pool closes nothing.
        next.files[0].0.sync().unwrap();
    }
}
