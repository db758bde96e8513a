//! Pages of a database, 8 and 16 KiB, written through an open file: the door of the mount. A crash that tears
//! sectors leaves each page whole, which `innodb_doublewrite=0` and `full_page_writes=off` rely on.

use icecore::units::InodeNumber;
use icecore::{Creation, InitOptions, OpenOptions, Pool};
use icecore_sim::cases::{Context, for_each_seed, sample};
use icecore_sim::explorer::small_options;
use icecore_sim::{CrashMode, DiskConfig, Random, SimulatedDisk};

const PAGES: usize = 24;
const WRITES: usize = 60;

/// What was written of each page last, and which of it was durable: numbers of versions.
#[derive(Clone, Copy, Default, Debug)]
struct Versions {
    written: u64,
    durable: u64,
}

/// A page in which every eight bytes say which page and which version it is.
fn page(size: usize, number: usize, version: u64) -> Vec<u8> {
    ((version << 16) | number as u64).to_le_bytes().repeat(size / 8)
}

fn options() -> OpenOptions {
    OpenOptions { dirty_bytes_max: 128 << 10, ..small_options() }
}

/// Writes pages, and makes them durable now and then, until the disk is cut off.
fn write(pool: &Pool, inode: InodeNumber, size: usize, pages: &mut [Versions], random: &mut Random) {
    let Ok(dataset) = pool.dataset("db") else { return };
    let Ok(file) = dataset.file(inode) else { return };
    for _ in 0..WRITES {
        let number = random.index(PAGES);
        let offset = (number * size) as u64;
        pages[number].written += 1;
        let data = page(size, number, pages[number].written);
        let is_durable = random.chance(10);
        let outcome = if is_durable { file.write_durable(offset, &data) } else { file.write(offset, &data) };
        if outcome.is_err() {
            return;
        }
        if is_durable {
            pages[number].durable = pages[number].written;
        }
        if random.chance(15) {
            if file.sync().is_err() {
                return;
            }
            pages.iter_mut().for_each(|page| page.durable = page.written);
        }
    }
}

fn check(pool: &Pool, inode: InodeNumber, size: usize, pages: &[Versions]) {
    let dataset = pool.dataset("db").unwrap();
    let file = dataset.file(inode).unwrap();
    for (number, versions) in pages.iter().enumerate() {
        let mut found = vec![0; size];
        assert_eq!(file.read((number * size) as u64, &mut found).unwrap(), size);
        let version = u64::from_le_bytes(found[..8].try_into().unwrap()) >> 16;
        assert!(found == page(size, number, version), "page {number} is torn: {versions:?}");
        assert!(
            (versions.durable..=versions.written).contains(&version),
            "page {number} has {version}: {versions:?}"
        );
    }
}

#[test]
fn pages_of_databases_are_whole_after_crashes_that_tear_sectors() {
    for size in [8 << 10, 16 << 10] {
        for_each_seed("pages", 2, |seed| {
            let mut random = Random::new(seed);
            let disk = SimulatedDisk::new(seed, DiskConfig { stale_garbage: true, ..DiskConfig::default() });
            let init = InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() };
            Pool::init(disk.storage(), &init).unwrap();
            let pool = Pool::open(disk.storage(), &options()).unwrap();
            pool.create_dataset("db", false, &[]).unwrap();
            let dataset = pool.dataset("db").unwrap();
            let inode = dataset.open_or_create(b"pages", &Creation::file()).unwrap();
            let pages = [Versions { written: 1, durable: 1 }; PAGES];
            for number in 0..PAGES {
                dataset.write(inode, (number * size) as u64, &page(size, number, 1)).unwrap();
            }
            drop(dataset);
            pool.close().unwrap();
            let count = {
                let disk = disk.duplicate(seed);
                let before = disk.io_count();
                let pool = Pool::open(disk.storage(), &options()).unwrap();
                let mut pages = pages;
                write(&pool, inode, size, &mut pages, &mut random.clone());
                disk.io_count() - before
            };
            for io in sample(count, 24, &mut random.clone()) {
                let _context = Context(format!("pages of {size} bytes, crash at I/O {io}"));
                let disk = disk.duplicate(seed ^ io);
                let mut pages = pages;
                disk.crash_at(io);
                if let Ok(pool) = Pool::open(disk.storage(), &options()) {
                    write(&pool, inode, size, &mut pages, &mut random.clone());
                }
                for mode in CrashMode::ALL_MODES {
                    let _context = Context(format!("mode {mode:?}"));
                    let disk = disk.duplicate(random.next());
                    disk.crash_as(mode);
                    let pool = Pool::open(disk.storage(), &options()).unwrap();
                    check(&pool, inode, size, &pages);
                    pool.close().unwrap();
                }
            }
        });
    }
}
