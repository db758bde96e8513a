//! What second copies cost.

use icecore::{CopyMode, Creation, InitOptions, OpenOptions, Pool};
use icecore_sim::{CountingStorage, DiskConfig, SimulatedDisk};
use std::sync::Arc;

/// Bytes, two flushes for a checkpoint, and none for a commit.
#[test]
fn commits_take_no_flush_more_and_checkpoints_two() {
    let mut commits = Vec::new();
    for mode in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
        let disk = SimulatedDisk::new(1, DiskConfig::default());
        let storage = Arc::new(CountingStorage::new(disk.storage()));
        let counters = storage.counters();
        let init = InitOptions { segment_bytes: 4 << 20, copies: mode, ..InitOptions::default() };
        Pool::init(storage.clone(), &init).unwrap();
        let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
        let pool = Pool::open(storage, &options).unwrap();
        pool.create_dataset("a", false, &[]).unwrap();
        let dataset = pool.dataset("a").unwrap();
        let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
        let write = |round: u64| {
            for index in 0..50 {
                dataset.write_durable(file, (index * 7 + round) << 14, &[round as u8 + 1; 16 << 10]).unwrap();
            }
        };
        write(0);
        pool.checkpoint().unwrap();
        let before = counters.counts();
        write(1);
        let written = counters.counts();
        commits.push(written - before);
        let (now, statistics) = (written, pool.statistics());
        pool.checkpoint().unwrap();
        let (checkpoint, after) = (counters.counts() - now, pool.statistics());
        let (flushes, copied) =
            (after.flushes - statistics.flushes, after.copy_flushes - statistics.copy_flushes);
        println!("{mode:?}: {checkpoint:?}");
        assert_eq!(checkpoint.syncs + checkpoint.directory_syncs, flushes + copied, "{mode:?}");
        assert_eq!(
            after.copy_node_bytes - statistics.copy_node_bytes,
            if mode == CopyMode::None { 0 } else { after.node_bytes - statistics.node_bytes }
        );
        match mode {
            CopyMode::None => assert_eq!(copied, 0),
            CopyMode::Metadata => assert_eq!(copied, 2),
            // The log as well.
            CopyMode::All => assert_eq!(copied, 3),
        }
        assert_eq!(after.copied_bytes() > 0, mode != CopyMode::None);
        pool.close().unwrap();
    }
    let syncs: Vec<u64> = commits.iter().map(|counts| counts.syncs).collect();
    assert_eq!(syncs, [syncs[0]; 3]);
    assert_eq!(commits[0].writes, commits[1].writes);
}
