//! Superblocks that are what they were some time ago: the disk forgot what was written to them last, or an
//! administrator put them back.

use super::tests::{open, repaired};
use super::*;
use crate::format::superblock::NAMES;
use crate::options::{InitOptions, OpenOptions};
use crate::storage::Kind;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, InodeNumber};
use crate::{CopyMode, Creation};

fn write(pool: &Pool, mark: u8) -> InodeNumber {
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    db.write(file, 0, &[mark; 10 * BLOCK_BYTES]).unwrap();
    db.sync().unwrap();
    file
}

fn read(pool: &Pool, file: InodeNumber) -> u8 {
    let mut bytes = vec![0; 10 * BLOCK_BYTES];
    pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

fn superblock(storage: &MemoryStorage, name: &str) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    storage.open(name, false).unwrap().read_at(&mut block, 0).unwrap();
    block
}

fn put(storage: &MemoryStorage, name: &str, block: &[u8]) {
    storage.open(name, true).unwrap().write_at(&[(Kind::Frame, block)], 0).unwrap();
}

/// The lives that come after the superblocks that are put back: how many, and whether the last one is killed.
#[test]
fn old_superblocks_are_not_believed_and_follow_from_the_log() {
    for copies in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
        for (lives, kill, checkpoints) in
            [(1, false, 0), (1, true, 0), (1, true, 2), (2, false, 1), (3, true, 1)]
        {
            let said = format!("{copies:?}, {lives} lives, {checkpoints} checkpoints, killed: {kill}");
            let storage = Arc::new(MemoryStorage::default());
            Pool::init(storage.clone(), &InitOptions { copies, ..InitOptions::small() }).unwrap();
            let pool = open(&storage);
            pool.create_dataset("db", false, &[]).unwrap();
            let file = write(&pool, 1);
            pool.close().unwrap();
            let old = storage.copy();
            let mut mark = 1;
            let mut killed = None;
            for life in 0..lives {
                let pool = open(&storage);
                for _ in 0..=checkpoints {
                    mark += 1;
                    write(&pool, mark);
                    if checkpoints > 0 {
                        pool.checkpoint().unwrap();
                    }
                }
                if kill && life == lives - 1 {
                    mark += 1;
                    write(&pool, mark);
                    killed = Some(storage.copy());
                } else {
                    pool.close().unwrap();
                }
            }
            let new = killed.unwrap_or_else(|| storage.copy());
            for both in [true, false] {
                let corrupt = new.copy();
                for (index, name) in NAMES.iter().enumerate() {
                    let block =
                        if both || index == 0 { superblock(&old, name) } else { vec![7; BLOCK_BYTES] };
                    put(&corrupt, name, &block);
                }
                for read_only in [true, false] {
                    let options = OpenOptions {
                        read_only,
                        background: false,
                        control_socket: false,
                        ..OpenOptions::default()
                    };
                    let opened = Pool::open(corrupt.copy(), &options);
                    let Err(error) = opened else { panic!("{said}: it is forgotten") };
                    assert!(
                        error.to_string().contains("it is not the one that was written last"),
                        "{said}: {error}"
                    );
                }
                let report = repaired(&corrupt, false);
                assert!(report.after.is_sound() && report.refused.is_empty(), "{said}: {report:?}");
                let pool = open(&corrupt);
                assert_eq!(read(&pool, file), mark, "{said}");
                pool.verify().unwrap();
                write(&pool, 99);
                pool.close().unwrap();
                assert_eq!(read(&open(&corrupt), file), 99, "{said}");
            }
        }
    }
}
