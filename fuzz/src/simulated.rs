//! A pool on a simulated disk, for targets that use one for a while.

use icecore::{InitOptions, OpenOptions, Pool};
use icecore_sim::{DiskConfig, SimulatedDisk};

/// A pool without threads, with one dataset.
pub fn new_pool(dataset: &str) -> Pool {
    let disk = SimulatedDisk::new(1, DiskConfig { capacity: 64 << 20, ..DiskConfig::default() });
    Pool::init(disk.storage(), &InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() })
        .expect("a pool");
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open(disk.storage(), &options).expect("the pool");
    pool.create_dataset(dataset, false, &[]).expect("a dataset");
    pool
}
