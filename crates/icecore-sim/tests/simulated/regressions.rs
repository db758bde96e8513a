//! Faults that were found by chance, each once more on purpose.

use crate::common::must;
use icecore::names::parse_target;
use icecore::{Creation, DestroyTarget, Error, FileFault, InitOptions, ListFilter, Pool};
use icecore_sim::explorer::{Explorer, Setting, small_options};
use icecore_sim::{CrashMode, DiskConfig, FaultKind, SimulatedDisk};
use std::collections::BTreeMap;

/// A pool on a new simulated disk, open, with a dataset `d`.
fn explorer(setting: &Setting) -> Explorer {
    let mut explorer = Explorer::new(1, setting).unwrap();
    explorer.open().unwrap();
    explorer.pool().create_dataset("d", false, &[]).unwrap();
    explorer
}

fn held(pool: &Pool) -> u64 {
    let filter = ListFilter { datasets: true, depth: Some(0), ..ListFilter::default() };
    pool.list(&filter).unwrap().iter().map(|entry| entry.used.0).sum()
}

fn snapshot(pool: &Pool, name: &str) {
    pool.snapshot(&[name.to_owned()], false, &[]).unwrap();
}

/// A snapshot that a rollback forked could not be destroyed: planning refused what hiding allows.
#[test]
fn a_forked_snapshot_is_hidden_when_destroyed_and_goes_with_its_last_fork() {
    let explorer = explorer(&Setting::default());
    let pool = explorer.pool();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    dataset.write(file, 0, &[1; 40960]).unwrap();
    snapshot(pool, "d@one");
    dataset.write(file, 0, &[2; 8192]).unwrap();
    let saved = pool.rollback("d@one", false).unwrap().saved_as;
    dataset.write(file, 8192, &[3; 8192]).unwrap();
    let hidden = pool.destroy(&DestroyTarget::Snapshot("d@one".to_owned())).unwrap();
    assert_eq!(hidden.frees.0, 4096, "its node, which both branches have replaced");
    assert!(pool.view("d@one").is_err());
    pool.verify().unwrap();
    let before = held(pool);
    let gone = pool.destroy(&parse_target(&saved, false).unwrap()).unwrap();
    assert!(
        gone.frees.0 >= 16384,
        "what the fork had, and what the hidden one had beside the head: {gone:?}"
    );
    assert_eq!(before - held(pool), gone.frees.0);
    pool.verify().unwrap();
}

/// What a ledger says changed is applied row by row. A dataset that took the name of another between two
/// checkpoints lost it again to the row of the former owner. So did a snapshot that took that of a destroyed
/// one. The pool did not open.
#[test]
fn names_that_change_hands_between_two_checkpoints_are_found_again() {
    let mut explorer = explorer(&Setting::default());
    let pool = explorer.pool();
    pool.create_dataset("e", false, &[]).unwrap();
    snapshot(pool, "d@one");
    snapshot(pool, "d@two");
    pool.checkpoint().unwrap();
    pool.rename("e", "f", false).unwrap();
    pool.rename("d", "e", false).unwrap();
    pool.destroy(&DestroyTarget::Snapshot("e@two".to_owned())).unwrap();
    pool.rename("e@one", "e@two", false).unwrap();
    pool.checkpoint().unwrap();
    explorer.crash(None);
    explorer.open().unwrap();
    let pool = explorer.pool();
    let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    let names: Vec<String> = pool.list(&filter).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["e", "e@two", "f"]);
    assert!(pool.view("e@two").is_ok());
    pool.verify().unwrap();
}

/// Punching behind the end of something that is no file was no error.
#[test]
fn punching_refuses_what_is_no_file_wherever_the_hole_is() {
    let explorer = explorer(&Setting::default());
    let dataset = explorer.pool().dataset("d").unwrap();
    let root = icecore::units::InodeNumber::ROOT;
    let link = dataset.create_symlink(root, b"l", b"to", &Creation::file()).unwrap().inode;
    let found = dataset.punch_hole(link, 90_112, 1);
    assert!(matches!(found, Err(Error::File(FileFault::Invalid))), "{found:?}");
    let found = dataset.punch_hole(root, 90_112, 1);
    assert!(matches!(found, Err(Error::File(FileFault::IsADirectory))), "{found:?}");
    must(explorer.pool().verify().map_err(|error| error.to_string()));
}

/// A checkpoint took a segment again and put nodes or merged blocks into it. The location map that it had
/// frozen still said what used to be there: opening after a crash panicked.
#[test]
fn a_segment_that_a_checkpoint_takes_again_has_no_old_places_after_a_crash() {
    let mut explorer = explorer(&Setting::default());
    for round in 0..12_u8 {
        let pool = explorer.pool();
        let dataset = pool.dataset("d").unwrap();
        let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
        for _ in 0..5 {
            dataset.write(file, 0, &vec![round; 1 << 20]).unwrap();
        }
        dataset.write(file, 5 << 20, &[round; 100]).unwrap();
        pool.checkpoint().unwrap();
        explorer.crash(None);
        explorer.open().unwrap();
        explorer.pool().verify().unwrap();
    }
}

/// Moving a dataset to its own name was refused for the wrong reason.
#[test]
fn renaming_a_dataset_to_its_own_name_says_that_it_exists() {
    let explorer = explorer(&Setting::default());
    let found = explorer.pool().rename("d", "d", false);
    assert!(matches!(found, Err(Error::Exists { .. })), "{found:?}");
}

/// Replay read a block of the segment that the log ends in. The checksums it had gathered for that were taken
/// for those of the whole segment ever after, and what was written next looked damaged.
#[test]
fn what_is_written_after_a_recovery_is_not_taken_for_damage() {
    let mut setting = Setting::default();
    setting.options.block_cache_bytes = 0;
    let mut explorer = explorer(&setting);
    let dataset = explorer.pool().dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    dataset.write(file, 0, &[1; 65536]).unwrap();
    dataset.write(file, 100, b"small").unwrap();
    dataset.sync().unwrap();
    drop(dataset);
    explorer.crash(None);
    explorer.open().unwrap();
    let dataset = explorer.pool().dataset("d").unwrap();
    // More than the blocks that are kept at least, and less than the segment has room for.
    for part in 0..3 {
        dataset.write(file, part * 262_144, &[2; 262_144]).unwrap();
        dataset.sync().unwrap();
    }
    let mut buffer = vec![0; 3 * 262_144];
    dataset.view().unwrap().read(file, 0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 2));
}

/// First blocks of the segments that hold a stretch of the log.
fn log_headers(explorer: &Explorer) -> BTreeMap<String, Vec<u8>> {
    let segments = explorer.disk.files().into_iter().filter(|(name, _)| name.starts_with("segment"));
    let first = |name: &str| explorer.disk.contents(name).unwrap()[..4096].to_vec();
    let headers = segments.map(|(name, _)| (name.clone(), first(&name)));
    headers.filter(|(_, header)| header.starts_with(b"ICESEGM") && header[12] == 1).collect()
}

/// Replay needed the header of a segment to read a block in it, and mended a torn one only when it was
/// through.
#[test]
fn replay_reads_from_a_segment_whose_header_was_torn() {
    let mut setting = Setting::default();
    setting.options.log_bytes_max = 64 << 20;
    let mut explorer = explorer(&setting);
    let dataset = explorer.pool().dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    let before = log_headers(&explorer);
    dataset.write(file, 8 << 20, &vec![4; 1 << 20]).unwrap();
    dataset.write(file, 8 << 20, &vec![4; 3 << 18]).unwrap();
    let mut part = 0;
    let begun = loop {
        dataset.write(file, part * 4096, &[4; 4096]).unwrap();
        dataset.sync().unwrap();
        part += 1;
        let now = log_headers(&explorer);
        if let Some((name, _)) = now.iter().find(|(name, header)| before.get(*name) != Some(header)) {
            break name.clone();
        }
    };
    dataset.write(file, part * 4096, &[5; 4096]).unwrap();
    dataset.write(file, part * 4096 + 7, b"small").unwrap();
    dataset.sync().unwrap();
    drop(dataset);
    explorer.crash(None);
    explorer.disk.corrupt(&begun, 0..512).unwrap();
    explorer.open().unwrap();
    explorer.pool().verify().unwrap();
    let mut buffer = [0; 16];
    explorer.pool().view("d").unwrap().read(file, part * 4096, &mut buffer).unwrap();
    assert_eq!(&buffer, b"\x05\x05\x05\x05\x05\x05\x05small\x05\x05\x05\x05");
}

/// Writing a run ahead failed and left a gap. After a crash the runs behind the gap had lost their checksums.
/// All runs had lost them when it was the header of the segment that could not be written.
#[test]
fn runs_written_after_one_that_failed_keep_their_checksums() {
    for case in 0..18 {
        runs_after_failure(1 + case % 6, case / 6);
    }
}

fn runs_after_failure(failing: u64, seed: u64) {
    let mut base = explorer(&Setting::default());
    base.close().unwrap();
    let mut explorer = base.fork(seed);
    explorer.open().unwrap();
    let dataset = explorer.pool().dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    let mut lost = dataset.begin().unwrap();
    lost.write(file, 0, &[1; 60_000]).unwrap();
    // Segments are made, the reserve too; then comes the header of the first, and then the run.
    explorer.disk.fail_at(failing, FaultKind::WriteError, false);
    let _ = lost.write(file, 65_536, &[1; 60_000]);
    explorer.disk.clear_faults();
    drop(lost);
    let mut group = dataset.begin().unwrap();
    for part in 0..6 {
        group.write(file, part * 61_440, &[7; 61_440]).unwrap();
    }
    let point = explorer.pool().commit(vec![group]).unwrap();
    explorer.pool().make_durable(point).unwrap();
    drop(dataset);
    explorer.crash(None);
    explorer.open().unwrap();
    let mut buffer = vec![0; 6 * 61_440];
    explorer.pool().view("d").unwrap().read(file, 0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 7));
}

/// A group took writes to what is no file, and noticed at the commit: in the middle of the step, so that the
/// pool took no more writes. The same came of a file that was deleted meanwhile.
#[test]
fn a_commit_that_cannot_be_done_is_refused_before_it_begins() {
    let explorer = explorer(&Setting::default());
    let pool = explorer.pool();
    let dataset = pool.dataset("d").unwrap();
    let root = icecore::units::InodeNumber::ROOT;
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    let gone = dataset.open_or_create(b"gone", &Creation::file()).unwrap();
    let link = dataset.create_symlink(root, b"l", b"to", &Creation::file()).unwrap().inode;

    let mut group = dataset.begin().unwrap();
    assert!(matches!(group.write(root, 0, &[1; 4096]), Err(Error::File(FileFault::IsADirectory))));
    assert!(matches!(group.truncate(link, 1), Err(Error::File(FileFault::Invalid))));
    assert!(matches!(group.write(icecore::units::InodeNumber(99), 0, &[1; 4096]), Err(Error::File(_))));
    assert!(group.is_empty());
    group.write(file, 0, &[1; 4096]).unwrap();
    group.write(gone, 0, &[1; 4096]).unwrap();
    dataset.unlink(root, b"gone").unwrap();
    assert!(matches!(pool.commit(vec![group]), Err(Error::File(FileFault::Stale))));
    assert!(!pool.is_read_only());
    assert_eq!(pool.view("d").unwrap().attributes(file).unwrap().size, 0);
    pool.verify().unwrap();
}

/// Gathering checksums ended at the first record header that was damaged: everything behind it in the segment
/// looked damaged, too.
#[test]
fn a_damaged_record_header_costs_only_its_own_blocks() {
    let mut explorer = explorer(&Setting::default());
    let dataset = explorer.pool().dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    for part in 0..10 {
        dataset.write(file, part * 4096, &[1; 4096]).unwrap();
        dataset.sync().unwrap();
    }
    drop(dataset);
    explorer.close().unwrap();
    let name = log_headers(&explorer).into_keys().next().unwrap();
    let contents = explorer.disk.contents(&name).unwrap();
    let headers = contents.chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"ICERECD"));
    let third =
        headers.map(|(slot, _)| slot as u64).filter(|slot| contents[*slot as usize * 4096 + 4096] == 1);
    explorer.disk.flip_bit(&name, third.collect::<Vec<_>>()[3] * 4096 + 99, 1).unwrap();
    explorer.open().unwrap();
    let report = explorer.pool().scrub(&mut |_| true).unwrap();
    // The header, and the one block behind it: both cost the same place in the file.
    assert_eq!(report.damaged, 2, "{report:?}");
    let blocks: Vec<_> = report.findings.iter().map(|finding| finding.file).collect();
    assert_eq!(blocks, [Some((file.0, 3 * 4096)); 2], "{report:?}");
}

/// The log went on in a new segment. A crash left the record that says so and not the length of the new file,
/// and opening took that for damage.
#[test]
fn a_segment_that_the_log_names_is_there_after_any_crash() {
    let mut setting = Setting::default();
    setting.options.log_bytes_max = 64 << 20;
    let mut base = explorer(&setting);
    let dataset = base.pool().dataset("d").unwrap();
    dataset.open_or_create(b"f", &Creation::file()).unwrap();
    drop(dataset);
    base.close().unwrap();
    for case in 0..160 {
        let mut explorer = base.fork(case);
        explorer.open().unwrap();
        let dataset = explorer.pool().dataset("d").unwrap();
        let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
        explorer.disk.crash_at(case % 16 + 1);
        let written = (0..3).try_for_each(|part| dataset.write(file, part << 20, &vec![1; 1 << 20]));
        let _ = written.and_then(|()| dataset.sync());
        drop(dataset);
        explorer.crash(Some(CrashMode::ALL_MODES[(case / 16) as usize % 6]));
        explorer.open().unwrap();
        explorer.pool().verify().unwrap();
        explorer.crash(None);
    }
}

/// A crash left one of the twin superblocks torn, or without a name; the next comes while the pool is being
/// opened.
#[test]
fn the_superblock_that_is_left_is_not_touched_before_its_twin_is_whole() {
    for twin in ["superblock.0", "superblock.1"] {
        for lost in [false, true] {
            let mut base = Explorer::new(3, &Setting::default()).unwrap();
            base.open().unwrap();
            base.pool().create_dataset("d", false, &[]).unwrap();
            base.crash(None);
            if lost {
                base.disk.lose(twin).unwrap();
            } else {
                base.disk.corrupt(twin, 0..512).unwrap();
            }
            for number in 1..20 {
                for seed in 0..8 {
                    let mut explorer = base.fork(seed);
                    explorer.disk.crash_at(number);
                    let opened = explorer.open();
                    explorer.crash(Some(CrashMode::ALL_MODES[seed as usize % 6]));
                    explorer.open().unwrap_or_else(|error| {
                        panic!(
                            "{twin}, lost: {lost}, crash at I/O {number} ({opened:?}), seed {seed}: {error}"
                        )
                    });
                    assert!(explorer.pool().dataset("d").is_ok());
                    explorer.crash(None);
                }
            }
        }
    }
}

/// One of the twin superblocks was damaged while the pool was open, or closed, and the power fails at any I/O
/// of what comes then. The other, the only one there was, was written over first.
#[test]
fn the_only_good_superblock_is_written_last_whenever_its_twin_was_damaged() {
    for (twin, closed) in
        [("superblock.0", false), ("superblock.1", false), ("superblock.0", true), ("superblock.1", true)]
    {
        let mut base = Explorer::new(3, &Setting::default()).unwrap();
        base.open().unwrap();
        base.pool().create_dataset("d", false, &[]).unwrap();
        base.close().unwrap();
        for number in 1..200 {
            let mut was_cut = false;
            for (seed, mode) in (0..).zip(CrashMode::ALL_MODES.into_iter().cycle().take(12)) {
                let mut explorer = base.fork(seed);
                if closed {
                    explorer.disk.corrupt(twin, 0..512).unwrap();
                    explorer.disk.crash_at(number);
                }
                let opened = explorer.open();
                if !closed {
                    explorer.disk.corrupt(twin, 0..512).unwrap();
                    explorer.disk.crash_at(number);
                }
                let ended = opened.and_then(|()| explorer.pool().checkpoint()).and_then(|_| explorer.close());
                was_cut |= explorer.disk.is_cut();
                explorer.crash(Some(mode));
                explorer.open().unwrap_or_else(|error| {
                    panic!("{twin}, closed: {closed}, crash at I/O {number} ({ended:?}), {mode:?}: {error}")
                });
                assert!(explorer.pool().dataset("d").is_ok());
                explorer.crash(None);
            }
            if !was_cut {
                assert!(number > 5, "nothing was cut short");
                break;
            }
        }
    }
}

/// After a flush that failed, what was written may be in the operating system's cache and nowhere else. A
/// pool that was opened again with it flushed it and went on. The next crash took it, and the pool could not
/// be read.
#[test]
fn what_a_failed_flush_left_in_the_cache_is_written_again_or_never_found() {
    let mut found = [0; 2];
    for seed in 0..60 {
        let disk = SimulatedDisk::new(seed, DiskConfig { stale_garbage: true, ..DiskConfig::default() });
        let init = InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() };
        Pool::init(disk.storage(), &init).unwrap();
        let open = || Pool::open(disk.storage(), &small_options()).unwrap();
        let pool = open();
        pool.create_dataset("d", false, &[]).unwrap();
        let dataset = pool.dataset("d").unwrap();
        let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
        dataset.write(file, 0, &[1; 40960]).unwrap();
        dataset.sync().unwrap();
        dataset.write(file, 0, &[2; 40960]).unwrap();
        disk.fail_at(1, FaultKind::SyncError, false);
        dataset.sync().unwrap_err();
        disk.kill();
        drop((dataset, pool));

        let content = |pool: &Pool| {
            let mut content = vec![0; 40960];
            pool.dataset("d").unwrap().view().unwrap().read(file, 0, &mut content).unwrap();
            assert!(content.iter().all(|byte| *byte == content[0]), "seed {seed}: half a write");
            content[0]
        };
        let pool = open();
        let before = content(&pool);
        pool.dataset("d").unwrap().write(file, 1 << 20, &[3; 4096]).unwrap();
        pool.dataset("d").unwrap().sync().unwrap();
        disk.crash_as(CrashMode::None);
        drop(pool);
        assert_eq!(content(&open()), before, "seed {seed}");
        found[usize::from(before == 2)] += 1;
    }
    assert!(found.iter().all(|count| *count > 0), "one of the two never came about: {found:?}");
}
