//! What reads ask of the medium beforehand.

use icecore::units::InodeNumber;
use icecore::{CopyMode, Creation, Dataset, InitOptions, OpenOptions, Pool};
use icecore_sim::{CountingStorage, Counts, DiskConfig, SimulatedDisk};
use std::sync::Arc;

const BLOCK: usize = 4096;
/// Blocks of each file.
const BLOCKS: usize = 1280;
const MIB: usize = 1 << 20;

type Storage = CountingStorage<dyn icecore::storage::Storage>;

/// A pool just opened, with two files written in turn, so many blocks at a time: nothing of them is in
/// memory.
fn written(at_a_time: usize) -> (Pool, Arc<Storage>, Dataset, [InodeNumber; 2]) {
    let disk = SimulatedDisk::new(1, DiskConfig::default());
    let storage = Arc::new(CountingStorage::new(disk.storage()));
    let init = InitOptions { segment_bytes: 4 << 20, copies: CopyMode::None, ..InitOptions::default() };
    Pool::init(storage.clone(), &init).unwrap();
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open(storage.clone(), &options).unwrap();
    pool.create_dataset("a", false, &[]).unwrap();
    let dataset = pool.dataset("a").unwrap();
    let files = [b"f", b"g"].map(|name| dataset.open_or_create(name, &Creation::file()).unwrap());
    for first in (0..BLOCKS).step_by(at_a_time) {
        for (number, file) in files.iter().enumerate() {
            let blocks = (first..first + at_a_time).flat_map(|index| [content(number, index); BLOCK]);
            dataset.write(*file, (first * BLOCK) as u64, &blocks.collect::<Vec<u8>>()).unwrap();
        }
    }
    pool.close().unwrap();
    let pool = Pool::open(storage.clone(), &options).unwrap();
    let dataset = pool.dataset("a").unwrap();
    (pool, storage, dataset, files)
}

fn content(number: usize, index: usize) -> u8 {
    (number * 100 + index % 97 + 1) as u8
}

fn is_right(buffer: &[u8], number: usize, first: usize) -> bool {
    let blocks = buffer.chunks(BLOCK).enumerate();
    blocks.into_iter().all(|(index, block)| block.iter().all(|byte| *byte == content(number, first + index)))
}

/// What a call asks of the storage.
fn asked(storage: &Storage, call: impl FnOnce()) -> Counts {
    let before = storage.counters().counts();
    call();
    storage.counters().counts() - before
}

#[test]
fn a_long_read_of_blocks_that_lie_apart_is_announced_in_few_pieces() {
    let (pool, storage, dataset, files) = written(1);
    let view = dataset.view().unwrap();
    let mut buffer = vec![0; MIB];
    let counts = asked(&storage, || assert_eq!(view.read(files[0], 0, &mut buffer).unwrap(), MIB));
    assert!(is_right(&buffer, 0, 0));
    assert!(counts.fetches > 0 && counts.fetches <= 8, "{counts:?}");
    assert!(counts.fetched_bytes >= MIB as u64 && counts.fetched_bytes <= 3 * MIB as u64, "{counts:?}");
    drop(view);
    pool.close().unwrap();
}

#[test]
fn a_handle_that_reads_on_has_everything_announced_once_and_ahead() {
    let (pool, storage, dataset, files) = written(1);
    let file = dataset.file(files[1]).unwrap();
    let mut buffer = vec![0; MIB];
    let mut each = Vec::new();
    for index in 0..5 {
        let read = || assert_eq!(file.read((index * MIB) as u64, &mut buffer).unwrap(), MIB);
        each.push(asked(&storage, read));
        assert!(is_right(&buffer, 1, index * MIB / BLOCK));
    }
    // From the second read on the reader is linear: that read announces itself and 2 MiB more.
    assert!(each[1].fetched_bytes > 2 * each[0].fetched_bytes, "{each:?}");
    assert!(each[2].fetched_bytes < each[1].fetched_bytes && each[2].fetches > 0, "{each:?}");
    assert_eq!((each[3].fetches, each[4].fetches), (0, 0), "{each:?}");
    file.close().unwrap();
    pool.close().unwrap();
}

#[test]
fn a_file_in_long_stretches_is_left_to_the_kernel() {
    let (pool, storage, dataset, files) = written(256);
    let file = dataset.file(files[0]).unwrap();
    let mut buffer = vec![0; MIB];
    let counts = asked(&storage, || {
        for index in 0..5 {
            assert_eq!(file.read((index * MIB) as u64, &mut buffer).unwrap(), MIB);
            assert!(is_right(&buffer, 0, index * MIB / BLOCK));
        }
    });
    assert_eq!(counts.fetches, 0, "{counts:?}");
    file.close().unwrap();
    pool.close().unwrap();
}

#[test]
fn a_short_read_is_announced_where_its_blocks_lie_apart_and_what_is_in_memory_is_not() {
    let (pool, storage, dataset, files) = written(1);
    let file = dataset.file(files[0]).unwrap();
    const SHORT: usize = 16 << 10;
    let mut buffer = [0; SHORT];
    let short = asked(&storage, || {
        for offset in (0..MIB / 2).step_by(SHORT) {
            assert_eq!(file.read(offset as u64, &mut buffer).unwrap(), SHORT);
            assert!(is_right(&buffer, 0, offset / BLOCK));
        }
    });
    // One announcement for the four places of each.
    assert_eq!(short.fetches, (MIB / 2 / SHORT) as u64, "{short:?}");
    // A single block is one place, and the read asks for it as fast.
    let single = asked(&storage, || {
        for offset in (MIB / 2..MIB).step_by(BLOCK) {
            assert_eq!(file.read(offset as u64, &mut buffer[..BLOCK]).unwrap(), BLOCK);
            assert!(is_right(&buffer[..BLOCK], 0, offset / BLOCK));
        }
    });
    assert_eq!(single.fetches, 0, "{single:?}");
    // All of it is in memory now, for short reads and for long ones.
    for length in [SHORT, MIB] {
        let again = asked(&storage, || assert_eq!(file.read(0, &mut vec![0; length]).unwrap(), length));
        assert_eq!((again.fetches, again.reads), (0, 0), "{again:?}");
    }
    file.close().unwrap();
    pool.close().unwrap();
}
