//! A disk that refuses a call: the caller gets an error, `status` reports it, and what is not damaged can
//! still be read.

use icecore::units::InodeNumber;
use icecore::{Creation, Error, Pool};
use icecore_sim::explorer::{Explorer, Setting};
use icecore_sim::{CrashMode, FaultKind};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;

/// An open pool with a file of blocks that are all alike in themselves, and nothing of it in memory.
fn beginning(seed: u64) -> (Explorer, InodeNumber) {
    let mut setting = Setting::default();
    setting.options.block_cache_bytes = 0;
    setting.options.node_cache_bytes = 0;
    let mut explorer = Explorer::new(seed, &setting).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    pool.create_dataset("d", false, &[]).unwrap();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    for block in 0..BLOCKS {
        dataset.write(file, block * BLOCK as u64, &[block as u8 + 1; BLOCK]).unwrap();
    }
    dataset.sync().unwrap();
    drop(dataset);
    pool.snapshot(&["d@s".to_owned()], false, &[]).unwrap();
    explorer.close().unwrap();
    explorer.open().unwrap();
    (explorer, file)
}

/// Number of blocks that can be read, and are what was written.
fn readable(pool: &Pool, version: &str, file: InodeNumber) -> u64 {
    let view = pool.view(version).unwrap();
    let good = |block: &u64| {
        let mut bytes = [0; BLOCK];
        let read = view.read(file, block * BLOCK as u64, &mut bytes);
        read.is_ok_and(|length| {
            assert_eq!(bytes, [*block as u8 + 1; BLOCK], "what is read is what was written");
            length == BLOCK
        })
    };
    (0..BLOCKS).filter(good).count() as u64
}

fn is_reported(pool: &Pool, part: &str) -> bool {
    pool.incidents().iter().any(|incident| incident.what.contains(part))
}

#[test]
fn a_read_that_fails_is_reported_and_the_next_one_is_tried() {
    let (explorer, file) = beginning(1);
    let pool = explorer.pool();
    let view = pool.view("d").unwrap();
    explorer.disk.fail_at(1, FaultKind::ReadError, false);
    let refused = (0..BLOCKS).find_map(|block| view.read(file, block * 4096, &mut [0; 8]).err());
    assert!(matches!(refused, Some(Error::Io { action: "read", .. })), "{refused:?}");
    assert!(refused.unwrap().to_string().contains(&format!("d, file f (inode {file}), offset 0 (")));
    assert_eq!(pool.statistics().failed_reads, 1);
    assert!(is_reported(pool, "cannot read"), "{:?}", pool.incidents());
    // A read says nothing about what is on disk: the pool goes on, in every way.
    assert!(!pool.is_read_only());
    assert_eq!(readable(pool, "d", file), BLOCKS);
    pool.dataset("d").unwrap().write(file, 0, &[1; BLOCK]).unwrap();
    pool.sync().unwrap();
}

#[test]
fn a_write_or_a_flush_that_fails_stops_writing_and_nothing_else() {
    for (kind, action) in [(FaultKind::WriteError, "write"), (FaultKind::SyncError, "flush")] {
        let (mut explorer, file) = beginning(2);
        let pool = explorer.pool();
        let dataset = pool.dataset("d").unwrap();
        explorer.disk.fail_at(1, kind, false);
        let outcome = dataset.write(file, 0, &[1; BLOCK]).and_then(|_| dataset.sync());
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot {action}")), "{error}");
        // Not tried again, although it would succeed now.
        let again = dataset.write(file, 0, &[1; BLOCK]).and_then(|_| dataset.sync());
        assert!(matches!(again, Err(Error::ReadOnlyAfterFailure { .. })), "{again:?}");
        let statistics = pool.statistics();
        assert!(statistics.failure.is_some_and(|reason| reason.contains(action)));
        let counted =
            if kind == FaultKind::WriteError { statistics.failed_writes } else { statistics.failed_flushes };
        assert_eq!(counted, 1);
        assert!(is_reported(pool, &format!("cannot {action}")), "{:?}", pool.incidents());
        for version in ["d", "d@s"] {
            assert_eq!(readable(pool, version, file), BLOCKS, "{version} after {action}");
        }
        let report = pool.scrub(&mut |_| true).unwrap();
        // Only what was never acknowledged is not there: memory has it, and the disk refused it.
        let refused =
            |finding: &icecore::Finding| finding.file == Some((file.0, 0)) && finding.versions == ["d"];
        assert!(report.complete && report.damaged <= 1, "{report:?}");
        assert!(report.findings.iter().all(refused), "{report:?}");
        drop(dataset);
        explorer.crash(Some(CrashMode::All));
        explorer.open().unwrap();
        assert_eq!(readable(explorer.pool(), "d@s", file), BLOCKS);
        assert!(explorer.pool().incidents().is_empty());
    }
}

#[test]
fn a_damaged_block_costs_itself_and_is_reported() {
    let (explorer, file) = beginning(3);
    let pool = explorer.pool();
    let (name, at) = explorer
        .disk
        .files()
        .into_iter()
        .find_map(|(name, _)| {
            let bytes = explorer.disk.contents(&name).unwrap();
            let at = bytes.chunks(BLOCK).position(|block| block.iter().all(|byte| *byte == 40))?;
            Some((name, (at * BLOCK) as u64))
        })
        .unwrap();
    explorer.disk.flip_bit(&name, at + 9, 2).unwrap();
    assert_eq!(readable(pool, "d", file), BLOCKS - 1);
    assert_eq!(readable(pool, "d@s", file), BLOCKS - 1);
    assert_eq!(pool.statistics().damaged_reads, 2);
    let incident = pool.incidents().into_iter().find(|incident| incident.what.contains(&name)).unwrap();
    assert!(incident.times == 2 && incident.what.contains(&format!("at offset {at}")), "{incident:?}");
    // A reader of more at once gets an error that says which block it is.
    for (start, length) in [(35, 8 * BLOCK), (39, 8 * BLOCK), (39, 100)] {
        let read = pool.view("d@s").unwrap().read(file, start * BLOCK as u64, &mut vec![0; length]);
        let said = read.unwrap_err().to_string();
        let place = format!("d@s, file f (inode {file}), offset {} ({name} at offset {at})", 39 * BLOCK);
        assert!(said.contains(&place) && said.contains("icecore scrub"), "{said}");
    }
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!(report.damaged, 1, "{report:?}");
    assert_eq!(report.findings[0].versions.len(), 2);
    assert_eq!(report.findings[0].file, Some((file.0, 39 * BLOCK as u64)));
    assert_eq!(report.findings[0].path.as_deref(), Some(&b"f"[..]));
}

/// A group does several things, all or none of them. That one cannot be done for damage must be known before
/// the first is.
#[test]
fn a_group_that_cuts_off_part_of_a_damaged_block_is_refused_and_the_pool_goes_on() {
    let (explorer, file) = beginning(4);
    let pool = explorer.pool();
    let corrupt = |(name, _): (String, u64)| {
        let bytes = explorer.disk.contents(&name).unwrap();
        let at = bytes.chunks(BLOCK).position(|block| block.iter().all(|byte| *byte == 40))?;
        explorer.disk.flip_bit(&name, (at * BLOCK) as u64 + 9, 2).ok()
    };
    explorer.disk.files().into_iter().find_map(corrupt).expect("it is somewhere");
    let dataset = pool.dataset("d").unwrap();
    let other = dataset.open_or_create(b"g", &Creation::file()).unwrap();
    let mut group = dataset.begin().unwrap();
    group.truncate(file, 39 * BLOCK as u64 + 100).unwrap();
    group.write(file, 0, &[99; BLOCK]).unwrap();
    let mut first = dataset.begin().unwrap();
    first.write(other, 0, &[98; BLOCK]).unwrap();
    let refused = pool.commit(vec![first, group]);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert!(!pool.is_read_only(), "{:?}", pool.statistics().failure);
    assert_eq!(pool.view("d").unwrap().attributes(other).unwrap().size, 0, "nothing of it is done");
    dataset.write_durable(other, 0, &[97; BLOCK]).unwrap();
    assert_eq!(readable(pool, "d", file), BLOCKS - 1);
}
