//! Reads of 4 KiB from the cache, through a view of the head for each, and through an open file: how many a
//! second.
//!
//! `cargo run --release -p icecore --example reads`

use icecore::{Creation, Dataset, File, InitOptions, OpenOptions, Pool};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;
const SECONDS: f64 = 2.0;

fn main() -> icecore::Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pool");
    Pool::init_directory(&path, &InitOptions::default())?;
    let pool = Pool::open_directory(&path, &OpenOptions::default())?;
    pool.create_dataset("db", false, &[])?;
    let dataset = pool.dataset("db")?;
    let inode = dataset.open_or_create(b"file", &Creation::file())?;
    for block in 0..BLOCKS {
        dataset.write(inode, block * BLOCK as u64, &[block as u8; BLOCK])?;
    }
    let file = dataset.file(inode)?;
    for writes in [false, true] {
        for threads in [1, 8] {
            let through_views =
                rate(threads, writes, &file, &|at, buffer| by_view(&dataset, &file, at, buffer));
            let through_file = rate(threads, writes, &file, &|at, buffer| {
                file.read(at, buffer).expect("a read");
            });
            let beside = if writes { ", beside a writer" } else { "" };
            println!("{threads} readers{beside}: view {through_views}, file {through_file}");
        }
    }
    drop(file);
    drop(dataset);
    pool.close()
}

fn by_view(dataset: &Dataset, file: &File, at: u64, buffer: &mut [u8]) {
    dataset.view().and_then(|view| view.read(file.inode(), at, buffer)).expect("a read");
}

/// Reads a second, and writes a second beside them.
fn rate(threads: u64, writes: bool, file: &File, read: &(dyn Fn(u64, &mut [u8]) + Sync)) -> String {
    let (reads, written, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    thread::scope(|scope| {
        for seed in 0..threads {
            let (reads, is_over) = (&reads, &is_over);
            scope.spawn(move || {
                let (mut state, mut done) = (seed + 1, 0);
                let mut buffer = [0; BLOCK];
                while !is_over.load(Ordering::Relaxed) {
                    read(next(&mut state) * BLOCK as u64, &mut buffer);
                    done += 1;
                }
                reads.fetch_add(done, Ordering::Relaxed);
            });
        }
        if writes {
            scope.spawn(|| {
                let mut state = 99;
                while !is_over.load(Ordering::Relaxed) {
                    file.write(next(&mut state) * BLOCK as u64, &[1; BLOCK]).expect("a write");
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs_f64(SECONDS));
        is_over.store(true, Ordering::Relaxed);
    });
    let seconds = began.elapsed().as_secs_f64();
    let per_second = |count: AtomicU64| (count.into_inner() as f64 / seconds / 1000.0).round();
    format!("{} k reads/s ({} k writes/s)", per_second(reads), per_second(written))
}

/// The next block, at random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % BLOCKS
}
