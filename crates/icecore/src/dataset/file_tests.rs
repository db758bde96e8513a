//! Open files: what they read while others write, and what becomes of them when the dataset is rolled back.

use super::{Creation, Dataset};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::InodeNumber;
use crate::{DestroyTarget, Error, File, FileFault, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const BLOCK: u64 = 4096;

fn new_file() -> (Pool, Dataset, File) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = Pool::open(storage, &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let dataset = pool.dataset("db").unwrap();
    let inode = dataset.open_or_create(b"file", &Creation::file()).unwrap();
    let file = dataset.file(inode).unwrap();
    (pool, dataset, file)
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.attributes().unwrap().size as usize + 1];
    let read = file.read(0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn a_file_reads_what_was_written_by_either_door() {
    let (_pool, dataset, file) = new_file();
    file.write(10, b"through the handle").unwrap();
    assert_eq!(content(&file), b"\0\0\0\0\0\0\0\0\0\0through the handle");
    dataset.write(file.inode(), 0, b"0123456789").unwrap();
    assert_eq!(content(&file), b"0123456789through the handle");
    file.truncate(12).unwrap();
    assert_eq!(content(&file), b"0123456789th");
    file.write_durable(2 * BLOCK, &[7; BLOCK as usize]).unwrap();
    file.punch_hole(0, BLOCK).unwrap();
    assert_eq!(file.data_ranges().unwrap(), [(2 * BLOCK, BLOCK)]);
    file.sync().unwrap();
}

#[test]
fn what_is_written_into_the_middle_of_a_file_lies_in_a_stretch_of_its_own() {
    let (pool, dataset, file) = new_file();
    let stretches = || {
        // Nothing waits for its place then.
        pool.checkpoint().unwrap();
        dataset.view().unwrap().stretches(file.inode()).unwrap()
    };
    assert_eq!(stretches(), 0);
    file.write(0, &[1; 8 * BLOCK as usize]).unwrap();
    assert_eq!(stretches(), 1);
    let before = dataset.view().unwrap();
    file.write(3 * BLOCK, &[2; BLOCK as usize]).unwrap();
    assert_eq!(stretches(), 3);
    // What a version holds stays where it is.
    assert_eq!(before.stretches(file.inode()).unwrap(), 1);
}

#[test]
fn a_directory_can_be_held_open_and_has_no_content() {
    let (_pool, dataset, _) = new_file();
    let directory = dataset.file(InodeNumber::ROOT).unwrap();
    for outcome in [directory.read(0, &mut [0]).map(drop), directory.write(0, b"x"), directory.truncate(0)] {
        assert!(matches!(outcome, Err(Error::File(FileFault::IsADirectory))), "{outcome:?}");
    }
}

fn assert_stale(file: &File) {
    let large = vec![1; 3 * BLOCK as usize];
    let outcomes: [Result<()>; 11] = [
        file.attributes().map(drop),
        file.read(0, &mut [0]).map(drop),
        file.data_ranges().map(drop),
        file.write(0, &[]),
        file.write(0, b"inline"),
        file.write(0, &large),
        file.write(5, &large),
        file.write_durable(0, b"inline"),
        file.truncate(1),
        file.punch_hole(0, 10),
        file.sync(),
    ];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        assert!(matches!(outcome, Err(Error::File(FileFault::Stale))), "call {index}: {outcome:?}");
    }
}

#[test]
fn a_rollback_makes_every_handle_stale_and_leaves_the_present_alone() {
    let (pool, dataset, file) = new_file();
    file.write(0, b"then").unwrap();
    pool.snapshot(&["db@then".to_owned()], false, &[]).unwrap();
    file.write(0, b"more").unwrap();
    assert_eq!(content(&file), b"more");
    pool.rollback("db@then", false).unwrap();
    assert_stale(&file);
    let again = dataset.file(file.inode()).unwrap();
    assert_eq!(content(&again), b"then");
    file.close().unwrap();
    drop(dataset);
    pool.destroy(&DestroyTarget::Dataset { name: "db".to_owned(), recursive: true }).unwrap();
    assert_stale(&again);
}

/// Each block is of one write or another, whole; and none is older than a write that had returned before the
/// read.
#[test]
fn readers_see_whole_writes_and_none_that_is_older_than_what_returned() {
    const BLOCKS: u64 = 3;
    let (_pool, _dataset, file) = new_file();
    // All in one piece, but not in whole blocks: the ends are completed from what is there.
    let write = |number: u64| file.write(1, &number.to_le_bytes().repeat((BLOCKS * BLOCK / 8) as usize));
    write(0).unwrap();
    let (returned, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut bytes = vec![0; (BLOCKS * BLOCK) as usize];
                while !is_over.load(Ordering::SeqCst) {
                    let least = returned.load(Ordering::SeqCst);
                    assert_eq!(file.read(1, &mut bytes).unwrap(), bytes.len());
                    let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                    let first = words.clone().next().unwrap();
                    assert!(words.into_iter().all(|word| word == first) && first >= least);
                }
            });
        }
        for number in 1..1500 {
            write(number).unwrap();
            returned.store(number, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Two writers change two parts of one block: neither undoes what the other did. The second part is long, so
/// that much happens between reading what completes it and writing it.
#[test]
fn writers_of_parts_of_one_block_do_not_lose_each_other() {
    let (_pool, _dataset, file) = new_file();
    let write = |at: u64, length: usize, number: u64| {
        file.write(at, &number.to_le_bytes().repeat(length / 8)).unwrap();
        let mut bytes = vec![0; length];
        file.read(at, &mut bytes).unwrap();
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        assert!(words.into_iter().all(|word| word == number), "a write of {length} bytes is lost");
    };
    thread::scope(|scope| {
        let long = scope.spawn(|| (1..300).for_each(|number| write(3000, 120 * BLOCK as usize, number)));
        let mut numbers = 1..;
        while !long.is_finished() {
            write(0, 3000, numbers.next().expect("there are more"));
        }
        long.join().expect("no write is lost");
    });
}
