//! Pools that an earlier build of this program wrote are read, all of them, for as long as their format is.
//!
//! `golden/listed.txt` was closed. Its location map and its sets lie in chunks, and segments say where blocks
//! lie. `golden/uses.txt` is what was on disk when its process was killed, so that its log is replayed. Its
//! ledger says which use segments are in. Both hold what [`build`] makes, and have second copies. The process
//! of `golden/forsaken.txt` was killed as well, after collection had left behind what the log says to be
//! dead. Running the tests with `ICECORE_WRITE_GOLDEN=1` writes all of them anew to `golden/`. After the
//! first release, only ever do that together with a new version of the format, and keep the former ones under
//! other names.

#[path = "support/sparse.rs"]
mod sparse;

use icecore::check::{RepairOptions, repair_directory};
use icecore::{
    AttributeChange, Creation, Dataset, DestroyTarget, EntryKind, Error, InitOptions, ListFilter,
    OpenOptions, Pool, RenameHow, View, XattrHow,
};
use icecore::{InodeKind, units::InodeNumber};
use std::path::Path;

const ROOT: InodeNumber = InodeNumber::ROOT;

fn options() -> OpenOptions {
    OpenOptions {
        background: false,
        control_socket: false,
        group_memory_bytes: 64 << 10,
        ..OpenOptions::default()
    }
}

fn inode(view: &View, path: &str) -> InodeNumber {
    view.resolve(path.as_bytes()).unwrap().unwrap_or_else(|| panic!("{path} is missing in {}", view.name()))
}

fn content(view: &View, path: &str) -> Vec<u8> {
    let inode = inode(view, path);
    let mut bytes = vec![0; view.attributes(inode).unwrap().size as usize];
    assert_eq!(view.read(inode, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Blocks of 4 KiB, each full of one byte.
fn blocks(first: u8, count: usize) -> Vec<u8> {
    (0..count).flat_map(|index| [first.wrapping_add(index as u8); 4096]).collect()
}

fn file(dataset: &Dataset, path: &str) -> InodeNumber {
    dataset.open_or_create(path.as_bytes(), &Creation::file()).unwrap()
}

/// What is in both pools before the last checkpoint.
fn build(pool: &Pool) {
    let owned = |text: &str| text.to_owned();
    pool.create_dataset("app/db", true, &[(owned("user:owner"), owned("amy"))]).unwrap();
    pool.create_dataset("app/scratch", false, &[]).unwrap();
    let db = pool.dataset("app/db").unwrap();
    db.write(file(&db, "large"), 0, &blocks(1, 64)).unwrap();
    db.write(file(&db, "small"), 10, b"a few bytes").unwrap();
    let directory = db.create(ROOT, b"directory", &Creation::directory()).unwrap().inode;
    db.create_symlink(directory, b"link", b"../large", &Creation::file()).unwrap();
    db.link(inode(&db.view().unwrap(), "small"), directory, b"hard").unwrap();
    db.set_xattr(directory, b"user.colour", b"green", XattrHow::Create).unwrap();
    pool.snapshot(&[owned("app/db@monday")], false, &[(owned("user:kind"), owned("backup"))]).unwrap();
    pool.hold("keep", "app/db@monday").unwrap();
    db.write(inode(&db.view().unwrap(), "large"), 8192, &blocks(101, 3)).unwrap();
    db.truncate(inode(&db.view().unwrap(), "small"), 12).unwrap();
    db.rename((ROOT, b"directory"), (ROOT, b"folder"), RenameHow::NoReplace).unwrap();
    pool.snapshot(&[owned("app@tuesday")], true, &[]).unwrap();
    pool.clone_snapshot("app/db@monday", "clone", false).unwrap();
    let clone = pool.dataset("clone").unwrap();
    clone.write(inode(&clone.view().unwrap(), "large"), 0, b"changed in the clone").unwrap();
    pool.set_property("app", "user:note", "inherited by what lies below").unwrap();
    pool.checkpoint().unwrap();
}

/// What only the log says when the process is killed: an operation of nearly every sort, and a second
/// segment.
fn go_on(pool: &Pool) {
    let owned = |text: &str| text.to_owned();
    let db = pool.dataset("app/db").unwrap();
    let large = inode(&db.view().unwrap(), "large");
    for piece in 0..5 {
        db.write(large, piece << 19, &blocks(piece as u8, 128)).unwrap();
    }
    db.punch_hole(large, 4096 + 100, 5000).unwrap();
    let grouped = file(&db, "grouped");
    // More than a group keeps in memory: its first blocks lie outside the log.
    let mut group = db.begin().unwrap();
    for index in 0..40 {
        group.write(grouped, index * 8192, &[index as u8; 4096]).unwrap();
    }
    group.truncate(grouped, 39 * 8192 + 1000).unwrap();
    pool.commit(vec![group]).unwrap();
    let small = inode(&db.view().unwrap(), "small");
    db.write(small, 4090, b"across a border").unwrap();
    db.set_attributes(small, &AttributeChange { mode: Some(0o600), ..AttributeChange::default() }).unwrap();
    db.unlink(inode(&db.view().unwrap(), "folder"), b"hard").unwrap();
    pool.snapshot(&[owned("app/db@wednesday")], false, &[]).unwrap();
    pool.rollback("app/db@tuesday", false).unwrap();
    pool.rename("app/db@wednesday", "app/db@midweek", false).unwrap();
    pool.destroy(&DestroyTarget::Dataset { name: owned("app/scratch"), recursive: true }).unwrap();
    pool.promote("clone").unwrap();
    pool.hold("later", "app/db@midweek").unwrap();
    file(&pool.dataset("app/db").unwrap(), "last");
    pool.sync().unwrap();
}

fn check(pool: &Pool) {
    let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    let listed = pool.list(&filter).unwrap();
    let (kept, mut names): (Vec<_>, Vec<_>) =
        listed.iter().map(|entry| entry.name.as_str()).partition(|name| name.contains("@rollback-"));
    names.sort_unstable();
    let expected =
        ["app", "app/db", "app/db@midweek", "app/db@tuesday", "app@tuesday", "clone", "clone@monday"];
    assert_eq!(names, expected);
    assert_eq!(kept.len(), 1);
    let db = listed.iter().find(|entry| entry.name == "app/db").unwrap();
    assert_eq!((db.kind, db.origin.as_deref()), (EntryKind::Dataset, Some("clone@monday")));

    check_versions(pool, kept[0]);
    let value = |name: &str, key: &str| {
        let properties = pool.properties(name).unwrap();
        properties.into_iter().find(|property| property.name == key).map(|property| property.value)
    };
    assert_eq!(value("app/db", "user:owner").as_deref(), Some("amy"));
    assert_eq!(value("app/db", "user:note").as_deref(), Some("inherited by what lies below"));
    assert_eq!(value("clone@monday", "user:kind").as_deref(), Some("backup"));
    let tags = |name: &str| pool.holds(name).unwrap().into_iter().map(|hold| hold.tag).collect::<Vec<_>>();
    assert_eq!((tags("clone@monday"), tags("app/db@midweek")), (vec!["keep".into()], vec!["later".into()]));

    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
}

fn check_versions(pool: &Pool, kept: &str) {
    let monday = pool.view("clone@monday").unwrap();
    assert!(content(&monday, "large") == blocks(1, 64));
    assert_eq!(content(&monday, "directory/hard"), b"\0\0\0\0\0\0\0\0\0\0a few bytes");
    assert_eq!(monday.read_link(inode(&monday, "directory/link")).unwrap(), b"../large");
    assert_eq!(monday.xattr(inode(&monday, "directory"), b"user.colour").unwrap(), b"green");
    let mut changed = blocks(1, 64);
    changed[..20].copy_from_slice(b"changed in the clone");
    assert!(content(&pool.view("clone").unwrap(), "large") == changed);

    let mut tuesday = blocks(1, 64);
    tuesday[8192..8192 + 3 * 4096].copy_from_slice(&blocks(101, 3));
    for name in ["app/db", "app/db@tuesday"] {
        let view = pool.view(name).unwrap();
        assert!(content(&view, "large") == tuesday, "{name}");
        assert_eq!(content(&view, "folder/hard"), b"\0\0\0\0\0\0\0\0\0\0a ");
        assert_eq!(view.resolve(b"last").unwrap().is_some(), name == "app/db");
    }

    let mut large: Vec<u8> = (0..5).flat_map(|piece| blocks(piece, 128)).collect();
    large[4196..9196].fill(0);
    let mut grouped: Vec<u8> = (0..40).flat_map(|index| [[index; 4096], [0; 4096]].concat()).collect();
    grouped.truncate(39 * 8192 + 1000);
    let mut small = vec![0; 4105];
    small[10..12].copy_from_slice(b"a ");
    small[4090..].copy_from_slice(b"across a border");
    for name in ["app/db@midweek", kept] {
        let view = pool.view(name).unwrap();
        assert!(content(&view, "large") == large, "{name}");
        assert!(content(&view, "grouped") == grouped, "{name}");
        assert!(content(&view, "small") == small, "{name}");
        assert_eq!(view.attributes(inode(&view, "small")).unwrap().mode, 0o600);
        assert_eq!(view.resolve(b"folder/hard").unwrap(), None);
        assert_eq!(view.attributes(inode(&view, "folder/link")).unwrap().kind, InodeKind::Symlink);
    }
}

fn make(folder: &Path) -> Pool {
    Pool::init_directory(folder, &InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() }).unwrap();
    let pool = Pool::open_directory(folder, &options()).unwrap();
    build(&pool);
    go_on(&pool);
    pool
}

/// A folder with a pool as its process left it when it was killed, and one with a pool that was closed.
fn pair() -> (tempfile::TempDir, tempfile::TempDir) {
    let (clean, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pool = make(clean.path());
    sparse::restore(&sparse::describe(clean.path()), crashed.path());
    pool.close().unwrap();
    (clean, crashed)
}

/// A folder with a pool that was closed, and whose location map lies in chunks.
fn chunked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path()).close().unwrap();
    let pool =
        Pool::open_directory(folder.path(), &OpenOptions { map_memory_bytes: 0, ..options() }).unwrap();
    // After so many a picture of everything is due.
    (0..70).for_each(|_| pool.checkpoint().unwrap());
    pool.close().unwrap();
    folder
}

fn check_chunked(folder: &Path) {
    let options = OpenOptions { map_memory_bytes: 0, read_only: true, ..options() };
    let pool = Pool::open_directory(folder, &options).unwrap();
    check(&pool);
    assert!(pool.statistics().disk_read_bytes_map > 0);
    drop(pool);
    check_folder(folder);
}

#[test]
fn pools_in_chunks_are_read() {
    let folder = chunked();
    if std::env::var_os("ICECORE_WRITE_GOLDEN").is_some() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        std::fs::write(golden.join("listed.txt"), sparse::describe(folder.path())).unwrap();
    }
    check_chunked(folder.path());
}

#[test]
fn the_golden_pool_in_chunks_is_read() {
    let folder = tempfile::tempdir().unwrap();
    sparse::restore(include_str!("golden/listed.txt"), folder.path());
    check_chunked(folder.path());
    check_copies(folder.path());
}

/// Pieces of the file that [`forsaking`] writes over, in what it has room for, and how often.
const PIECES: u64 = 220;
const ROUNDS: u64 = 9;

/// What a piece is full of after the last round that changed it.
fn piece(number: u64) -> Vec<u8> {
    let round = (0..ROUNDS).rev().find(|round| is_changed(number, *round)).unwrap();
    piece_of(number, round)
}

fn piece_of(number: u64, round: u64) -> Vec<u8> {
    vec![(number * 7 + round * 101 + 1) as u8; 64 << 10]
}

fn is_changed(number: u64, round: u64) -> bool {
    round == 0 || (number * 5 + round).is_multiple_of(3)
}

/// A folder with a pool whose process was killed after collection. Collection had left data behind that lives
/// as of the last checkpoint.
fn forsaking() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let limit = Some(icecore::units::ByteLength(40 << 20));
    let init = InitOptions { segment_bytes: 2 << 20, size_limit: limit, ..InitOptions::default() };
    Pool::init_directory(folder.path(), &init).unwrap();
    let pool = Pool::open_directory(folder.path(), &options()).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let filler = file(&db, "filler");
    for round in 0..ROUNDS {
        for number in
            (0..PIECES).map(|number| number * 37 % PIECES).filter(|number| is_changed(*number, round))
        {
            db.write(filler, number << 16, &piece_of(number, round)).unwrap();
        }
    }
    pool.sync().unwrap();
    let killed = tempfile::tempdir().unwrap();
    sparse::restore(&sparse::describe(folder.path()), killed.path());
    killed
}

fn check_forsaking(folder: &Path) {
    assert!(has_section(folder, 7), "nothing was left behind");
    for _ in 0..2 {
        let pool = Pool::open_directory(folder, &options()).unwrap();
        let found = content(&pool.view("db").unwrap(), "filler");
        for (number, found) in (0..PIECES).zip(found.chunks(64 << 10)) {
            assert!(found == piece(number), "piece {number}");
        }
        pool.verify().unwrap();
        assert_eq!(pool.scrub(&mut |_| true).unwrap().damaged, 0);
        pool.close().unwrap();
    }
}

#[test]
fn pools_that_left_data_behind_are_replayed_and_read() {
    let folder = forsaking();
    if std::env::var_os("ICECORE_WRITE_GOLDEN").is_some() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        std::fs::write(golden.join("forsaken.txt"), sparse::describe(folder.path())).unwrap();
    }
    check_forsaking(folder.path());
}

#[test]
fn the_golden_pool_that_left_data_behind_is_replayed_and_read() {
    let folder = tempfile::tempdir().unwrap();
    sparse::restore(include_str!("golden/forsaken.txt"), folder.path());
    check_forsaking(folder.path());
}

fn check_folder(folder: &Path) {
    // The second time after a clean close, and the third without the right to write.
    for read_only in [false, false, true] {
        let pool = Pool::open_directory(folder, &OpenOptions { read_only, ..options() }).unwrap();
        check(&pool);
        pool.close().unwrap();
    }
    let pool = Pool::open_directory(folder, &options()).unwrap();
    let db = pool.dataset("app/db").unwrap();
    db.write_durable(file(&db, "new"), 0, &blocks(9, 600)).unwrap();
    pool.close().unwrap();
    let pool = Pool::open_directory(folder, &options()).unwrap();
    assert!(content(&pool.view("app/db").unwrap(), "new") == blocks(9, 600));
    check(&pool);
}

/// The copies of a pool are whole, and there are some.
fn check_copies(folder: &Path) {
    let pool = Pool::open_directory(folder, &options()).unwrap();
    let report = pool.copies();
    assert!(report.mode == "metadata" && report.is_whole(), "{report:?}");
    let mut names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.any(|name| name.to_str().unwrap().starts_with("copy.")));
}

/// Whether a blob of the ledger has a section with this tag.
fn has_section(folder: &Path, tag: u8) -> bool {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let segments = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with("segment."));
    let has = |header: &[u8]| {
        header.starts_with(b"ICELEDG\n")
            && (0..usize::from(header[48])).any(|index| header[96 + index * 16] == tag)
    };
    segments.map(|entry| std::fs::read(entry.path()).unwrap()).any(|bytes| bytes.chunks(4096).any(has))
}

#[test]
fn pools_of_this_build_are_read() {
    let (clean, crashed) = pair();
    if std::env::var_os("ICECORE_WRITE_GOLDEN").is_some() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        std::fs::write(golden.join("uses.txt"), sparse::describe(crashed.path())).unwrap();
    }
    assert!(has_section(crashed.path(), 8));
    check_folder(clean.path());
    check_folder(crashed.path());
}

#[test]
fn the_golden_pool_that_crashed_is_replayed_and_read() {
    let folder = tempfile::tempdir().unwrap();
    sparse::restore(include_str!("golden/uses.txt"), folder.path());
    assert!(has_section(folder.path(), 8));
    check_folder(folder.path());
    check_copies(folder.path());
}

/// The nodes that it loses are in the copies.
#[test]
fn the_golden_pool_with_copies_is_healed_from_them() {
    let folder = tempfile::tempdir().unwrap();
    sparse::restore(include_str!("golden/listed.txt"), folder.path());
    let mut removed = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if let Some(number) = name.strip_prefix("copy.") {
            std::fs::remove_file(folder.path().join(format!("segment.{number}"))).unwrap();
            removed += 1;
        }
    }
    assert!(removed >= 2);
    check_folder(folder.path());
}

/// Overwrites a byte of each block of segments and their copies for which `place` says which one. Answers how
/// many blocks it damaged.
fn corrupt(folder: &Path, place: impl Fn(&[u8]) -> Option<usize>) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with("segment.") && !name.starts_with("copy.0") {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        for block in 0..bytes.len() / 4096 {
            if let Some(at) = place(&bytes[block * 4096..]) {
                bytes[block * 4096 + at] ^= 0x55;
                count += 1;
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
    count
}

/// Where a chunk of the location map has an entry.
fn in_chunk(bytes: &[u8]) -> Option<usize> {
    bytes.starts_with(b"ICECHNK\n").then_some(41)
}

/// Where a blob of the ledger has the location map, if it has more than nothing to say of it.
fn in_location(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    if !bytes.starts_with(b"ICELEDG\n") {
        return None;
    }
    let mut at = 4096;
    while bytes[at] != 4 {
        at += 16 + number(at + 8);
    }
    (number(at + 8) > 16).then_some(at + 16 + 10)
}

/// A pool in which a byte was overwritten wherever `place` says, in copies as well, is repaired. It holds
/// what it did.
fn mended(folder: &Path, place: fn(&[u8]) -> Option<usize>) {
    assert!(corrupt(folder, place) > 0);
    let report = repair_directory(folder, &RepairOptions::default(), &mut |_| {}).unwrap();
    assert!(!report.before.is_sound() && report.kept_aside.is_some(), "{report:?}");
    assert!(report.refused.is_empty() && report.after.is_sound(), "{report:?}");
    // Where repair goes back to the checkpoint before the last one, the next opening for writing replays the
    // log since.
    let reading = OpenOptions { map_memory_bytes: 0, read_only: true, ..options() };
    if let Err(Error::NeedsRecovery { .. }) = Pool::open_directory(folder, &reading) {
        let writing = OpenOptions { read_only: false, ..reading.clone() };
        Pool::open_directory(folder, &writing).unwrap().close().unwrap();
        // It may have written a map without chunks.
        check(&Pool::open_directory(folder, &reading).unwrap());
        check_folder(folder);
    } else {
        check_chunked(folder);
    }
}

#[test]
fn a_golden_pool_is_mended_where_its_location_map_is_damaged() {
    for place in [in_chunk, in_location] {
        let folder = tempfile::tempdir().unwrap();
        sparse::restore(include_str!("golden/listed.txt"), folder.path());
        mended(folder.path(), place);
    }
    let folder = chunked();
    mended(folder.path(), in_chunk);
}
