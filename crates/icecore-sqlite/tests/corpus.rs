//! The targets of the fuzzers (`fuzz/`), over their corpus and over small changes of it. What a fuzzer has
//! found once is never there again. As there, no target may ask for much memory at once because of a number
//! that was read. `ICECORE_WRITE_CORPUS=1` writes what a pool and a client really write into the corpus.

#[path = "../../../fuzz/src/arrival.rs"]
mod arrival;
#[path = "../../../fuzz/src/control.rs"]
mod control;
#[path = "../../../fuzz/src/parsers.rs"]
mod parsers;
#[path = "../../../fuzz/src/pool.rs"]
mod pool;
#[path = "../../../fuzz/src/sets.rs"]
mod sets;
#[path = "../../../fuzz/src/simulated.rs"]
mod simulated;
#[path = "../../../fuzz/src/sql.rs"]
mod sql;
#[path = "../../../fuzz/src/store.rs"]
mod store;

use icecore::admin::codec::write_message;
use icecore::admin::protocol::Request;
use icecore::format::ledger::Blob;
use icecore::inside::Node;
use icecore::units::{BLOCK_BYTES, LogAddress, PoolId};
use icecore_sim::Random;
use icecore_sim::cases::Context;
use icecore_sim::explorer::{Explorer, Setting};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Most that is asked for at once; `scripts/fuzz` has the same limit.
const ALLOCATION_MAX: usize = 256 << 20;

thread_local! {
    /// The largest piece of memory that this thread has asked for.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with an eye on sizes.
struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

fn note(size: usize) {
    // A thread that ends has nothing to say any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: all work is the system's; a thread's own number is set beside it, which allocates nothing.
unsafe impl GlobalAlloc for Watched {
    // SAFETY: the caller promises what the system asks for; it is handed on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller promises what the system asks for; it is handed on.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as promised to us.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the caller promises what the system asks for; it is handed on.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as promised to us.
        unsafe { System.realloc(pointer, layout, size) }
    }

    // SAFETY: the caller promises what the system asks for; it is handed on.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised to us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Files of a kind that are written into the corpus.
const FILES_OF_KIND: usize = 4;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs a target over its corpus, and over so many changes of each file.
fn replay(target: &str, changes: u64, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = std::fs::read_dir(corpus(target))
        .unwrap_or_else(|error| panic!("no corpus of {target}: {error}"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {target} is empty");
    let mut random = Random::new(1);
    for file in files {
        let bytes = std::fs::read(&file).expect("a file of the corpus");
        let _context = Context(format!("target {target}, {}", file.display()));
        let run = |bytes: &[u8]| {
            LARGEST.set(0);
            run(bytes);
            let largest = LARGEST.get();
            assert!(largest <= ALLOCATION_MAX, "{largest} bytes were asked for at once");
        };
        run(&bytes);
        for number in 0..changes {
            let mut changed = bytes.clone();
            for _ in 0..random.between(1, 4) {
                change(&mut changed, &mut random);
            }
            let _context = Context(format!("change {number}: {changed:?}"));
            run(&changed);
        }
    }
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.index(bytes.len() + 1);
    match random.below(5) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.next() as u8),
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        _ if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.index(6)],
        _ => {}
    }
}

#[test]
fn parsers_of_what_lies_on_disk() {
    for (target, run) in parsers::ALL {
        replay(target, 300, run);
    }
    replay("sets", 300, sets::sets);
}

#[test]
fn the_control_protocol() {
    replay("control", 40, control::control);
    for (name, bytes) in messages() {
        let kept = std::fs::read(corpus("control").join(&name)).unwrap_or_default();
        assert!(kept == bytes, "{name} is of another version: ICECORE_WRITE_CORPUS=1 writes it anew");
    }
}

#[test]
fn what_sql_can_say() {
    replay("sql", 20, sql::sql);
}

#[test]
fn what_came_along_with_a_database() {
    replay("arrival", 40, arrival::arrival);
}

#[test]
fn a_pool_that_contradicts_itself() {
    replay("pool", 3, pool::pool);
}

#[test]
fn the_store_driven_by_bytes() {
    replay("store", 1, store::store);
}

/// Not a test: takes apart what a pool has written, and keeps some of each kind.
#[test]
#[ignore = "writes the corpus"]
fn write_corpus() {
    if std::env::var_os("ICECORE_WRITE_CORPUS").is_none() {
        return;
    }
    let mut explorer = Explorer::new(3, &Setting::default()).expect("a pool");
    explorer.open().expect("the pool");
    for _ in 0..20 {
        explorer.live(20).expect("a life");
        explorer.pool().checkpoint().expect("a checkpoint");
    }
    explorer.close().expect("a clean close");
    let written = explorer.disk.files();
    let written = written.iter().map(|(name, _)| explorer.disk.contents(name).expect("a file"));
    let golden = pool::sparse::files(include_str!("../../icecore/tests/golden/listed.txt"));
    for bytes in written.chain(golden.into_iter().map(|(_, bytes)| bytes)) {
        for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            keep_block(block, &bytes[index * BLOCK_BYTES..]);
        }
    }
    keep_arrivals();
    for (index, edit) in edits().iter().enumerate() {
        keep("pool", &format!("edit-{index}"), edit);
    }
    for (index, text) in TEXTS.iter().enumerate() {
        keep("text", &format!("text-{index}"), text.as_bytes());
    }
    for (index, text) in INCIDENTS.iter().enumerate() {
        keep("incidents", &format!("log-{index}"), text.as_bytes());
    }
    for (name, bytes) in messages() {
        keep("control", &name, &bytes);
    }
    for kind in 0..13_u8 {
        let text = [("main", ""), ("two", "main"), ("../ds@one/app.db", "snapshot=one"), ("mmap_size", "1")];
        for (index, (first, second)) in text.iter().enumerate() {
            let mut bytes = vec![0x80 | kind];
            bytes.extend_from_slice(format!("{first}\n{second}").as_bytes());
            keep("sql", &format!("{kind}-{index}"), &bytes);
        }
    }
    for seed in 0..12 {
        let mut script = vec![0; 4 * (20 + seed as usize * 10)];
        Random::new(seed).fill(&mut script);
        // First something that everything else can be done to.
        let begin = [14, 1, 0, 0, 2, 2, 0, 0, 2, 3, 0, 0, 2, 9, 0, 0];
        script.splice(0..0, begin);
        keep("store", &format!("drawn-{seed}"), &script);
    }
}

/// What the target of text is begun with.
const TEXTS: [&str; 11] = [
    "app/db",
    "app/db@monday",
    "app/db@monday%friday",
    "user:owner",
    "1073741824",
    "none",
    "2026-11-22T12:00:00.5Z",
    "within=36h",
    "daily=7",
    "when 2026-11-22T12:00:00.000Z\nbegan 2026-11-22T11:00:00.000Z\nverified_bytes 7880704\ndamaged_blocks 3\nharmless_places 0\ncomplete true\n",
    "pool a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7\nbegan 2026-11-22T12:00:00.000Z\nnext 1 77\nverified_bytes 7880704\ndamaged 0 3 700\ndamaged 2 5 1\n",
];

/// What the target of `errors.log` is begun with.
const INCIDENTS: [&str; 4] = [
    "2026-11-22T12:00:00.000Z cannot read 4096 bytes at 40960 of segment.00000001: Input/output error (os error 5)\n",
    "2026-11-22T12:00:00.000Z damage in segment.00000001 at offset 8192: the block does not match its checksum\n2026-11-22T12:00:01.250Z healed from its copy: damage in segment.00000001 at offset 8192: the block does not match its checksum\n",
    "2026-11-22T12:00:00.000Z damage in copy.00000003: no\n2026-11-22T12:00:00.000Z read from its copy: damage in copy.00000003: no\n",
    "2026-11-22T12:00:00.000Z nothing is lost: damage in superblock.1: it is cut short\nno line\n\n0000-01-01T00:00:00Z \n",
];

/// What the target of pools is begun with: nothing, and a byte of each kind of thing.
fn edits() -> Vec<Vec<u8>> {
    let one = |what: u8| vec![what, 41, 0, 1, 2, what, 1];
    let mut edits = vec![Vec::new(), (0..9).flat_map(one).collect()];
    edits.extend((0..27).map(one));
    edits
}

/// What SQLite leaves beside a database when it is killed.
fn keep_arrivals() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (wal, mode) in [(0, "DELETE"), (1, "WAL")] {
        let path = folder.path().join(mode);
        let db = rusqlite::Connection::open(&path).expect("a database");
        let begin = "PRAGMA page_size=512; CREATE TABLE t(x); INSERT INTO t VALUES(hex(zeroblob(600)))";
        db.execute_batch(begin).expect("a table");
        db.pragma_update(None, "journal_mode", mode).expect("a journal");
        let change =
            "PRAGMA cache_size=1; BEGIN; UPDATE t SET x=hex(randomblob(600)); INSERT INTO t SELECT * FROM t";
        db.execute_batch(change).expect("a change");
        if wal == 1 {
            db.execute_batch("COMMIT").expect("a commit");
        }
        let suffix = ["-journal", "-wal"][wal];
        let bytes = std::fs::read(format!("{}{suffix}", path.display())).expect("what lies beside it");
        for kind in [0, 2, 4, 6] {
            let kind = wal as u8 | kind;
            keep("arrival", &format!("{}-{kind}", &suffix[1..]), &[&[kind], bytes.as_slice()].concat());
        }
    }
}

fn keep_block(block: &[u8], from_here: &[u8]) {
    let kind = match &block[..8] {
        b"ICECORE\n" => "superblock",
        b"ICESEGM\n" => "segment",
        b"ICERECD\n" => "record",
        b"ICELEDG\n" => "ledger",
        b"ICESETS\n" => {
            // As the target has it: the number of parts, and these.
            let end = 40 + u64::from_le_bytes(from_here[32..40].try_into().expect("eight bytes")) as usize;
            return keep_some("parts", &[&block[12..13], &from_here[40..end]].concat());
        }
        _ if &block[..4] == b"IcTn" => "node",
        _ if &block[BLOCK_BYTES - 44..BLOCK_BYTES - 36] == b"ICESUMS\n" => "table",
        _ => return,
    };
    if kind == "ledger" {
        // With the pool's own number, which the target does not know.
        let pool = PoolId(block[16..32].try_into().expect("sixteen bytes"));
        let Ok(blob) = Blob::decode(from_here, pool, "place") else { return };
        keep_some(kind, &blob.encode(PoolId([7; 16])));
        blob.sections.iter().for_each(|(_, section)| keep_some("sets", section));
        return;
    }
    if kind == "record" {
        let view = icecore::format::record::RecordView::decode(block);
        view.iter().for_each(|view| keep_some("operations", &view.operations));
    }
    if kind == "node" {
        let address = LogAddress(u64::from_le_bytes(block[16..24].try_into().expect("eight bytes")));
        let node = Node::decode(block.try_into().expect("a block"), address).expect("a node");
        node.items().filter_map(|(_, item)| item.bytes()).for_each(|bytes| keep_some("items", bytes));
    }
    keep_some(kind, block);
}

/// Keeps the shortest few of a kind, without the zeros at their end.
fn keep_some(target: &str, bytes: &[u8]) {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let there = std::fs::read_dir(corpus(target)).map_or(0, Iterator::count);
    if there < FILES_OF_KIND && length > 0 {
        keep(target, &format!("written-{there}"), &bytes[..length]);
    }
}

fn keep(target: &str, name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(corpus(target)).expect("a folder");
    std::fs::write(corpus(target).join(name), bytes).expect("a file");
}

/// Each request as it arrives, and without its header.
fn messages() -> Vec<(String, Vec<u8>)> {
    let mut messages = Vec::new();
    for (index, request) in requests().iter().enumerate() {
        let mut bytes = Vec::new();
        write_message(&mut bytes, request).expect("a message");
        messages.push((format!("body-{index}"), bytes[icecore::admin::codec::HEADER_BYTES..].to_vec()));
        messages.push((format!("frame-{index}"), bytes));
    }
    messages
}

fn requests() -> Vec<Request> {
    let name = || "db@one".to_owned();
    vec![
        Request::Scrub(icecore::ScrubOptions::default()),
        Request::Holds { snapshot: name() },
        Request::Hold { tag: "t".to_owned(), snapshot: name(), expires: None },
        Request::Release { tag: "t".to_owned(), snapshot: name() },
        Request::SetProperty { name: "db".to_owned(), key: "quota".to_owned(), value: "1M".to_owned() },
        Request::Diff { from: name(), to: "db".to_owned() },
        Request::List(icecore::ListFilter {
            datasets: true,
            snapshots: true,
            ..icecore::ListFilter::default()
        }),
        Request::SetSizeLimit { limit: Some(icecore::units::ByteLength(1 << 30)) },
        Request::Pin { path: b"db@one/file".to_vec() },
        Request::Destroy { target: icecore::DestroyTarget::Snapshot(name()) },
    ]
}
