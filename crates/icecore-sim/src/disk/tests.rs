//! The simulator keeps what it must, loses what it may, and does the same again for the same seed.

use super::*;
use icecore::storage::{Kind, StorageFile};
use std::collections::BTreeSet;
use std::io::ErrorKind;

const SECTOR: usize = SECTOR_BYTES;

fn disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, DiskConfig::default())
}

/// A disk with one durable file of `length` zeros.
fn disk_with_file(seed: u64, length: u64, config: DiskConfig) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed, config);
    let storage = disk.storage();
    storage.create("a", length).unwrap().sync().unwrap();
    storage.sync_directory().unwrap();
    disk
}

fn write(file: &dyn StorageFile, offset: u64, byte: u8, length: usize) -> io::Result<()> {
    file.write_at(&[(Kind::Data, &vec![byte; length])], offset)
}

fn names(disk: &SimulatedDisk) -> Vec<String> {
    disk.files().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn what_was_flushed_survives_every_crash() {
    for seed in 0..60 {
        let disk = disk(seed);
        let storage = disk.storage();
        let file = storage.create("a", 20_000).unwrap();
        write(&*file, 100, 1, 9000).unwrap();
        write(&*file, 4000, 2, 3000).unwrap();
        file.sync().unwrap();
        storage.create("b", 5).unwrap().sync().unwrap();
        storage.rename("b", "c").unwrap();
        storage.sync_directory().unwrap();
        write(&*file, 15_000, 3, 5000).unwrap();
        disk.crash();
        disk.crash();

        assert!(storage.list().is_err() && file.length().is_err() && file.sync().is_err());
        let contents = disk.contents("a").unwrap();
        assert_eq!(
            contents[..15_000],
            [[0; 100].to_vec(), vec![1; 3900], vec![2; 3000], vec![1; 2100], vec![0; 5900]].concat()
        );
        assert_eq!(names(&disk), ["a", "c"]);
    }
}

#[test]
fn what_was_not_flushed_is_lost_kept_or_torn_by_sectors() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = disk_with_file(seed, 4096, DiskConfig::default());
        let file = disk.storage().open("a", true).unwrap();
        write(&*file, 0, 1, 4 * SECTOR).unwrap();
        write(&*file, 2 * SECTOR as u64, 2, 4 * SECTOR).unwrap();
        disk.crash();
        let contents = disk.contents("a").unwrap();
        let sectors: Vec<u8> = contents.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert!(contents.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        assert!(
            sectors[6..] == [0, 0]
                && sectors[..2].iter().all(|s| *s < 2)
                && sectors[4..6].iter().all(|s| *s != 1)
        );
        seen.insert(sectors[..6].to_vec());
    }
    for whole in [[0; 6], [1, 1, 1, 1, 0, 0], [0, 0, 2, 2, 2, 2], [1, 1, 2, 2, 2, 2]] {
        assert!(seen.contains(&whole[..]), "{whole:?} never came");
    }
    assert!(seen.len() > 30, "only {} outcomes", seen.len());
}

#[test]
fn the_modes_do_what_they_say() {
    let survivors = |mode, seed| {
        let disk = disk_with_file(seed, 65_536, DiskConfig::default());
        let file = disk.storage().open("a", true).unwrap();
        (0..16).for_each(|number| write(&*file, number * 4096, 1, 4096).unwrap());
        disk.crash_as(mode);
        let contents = disk.contents("a").unwrap();
        contents.chunks(SECTOR).map(|sector| sector[0] == 1).collect::<Vec<_>>()
    };
    for seed in 0..20 {
        assert_eq!(survivors(CrashMode::None, seed), [false; 128]);
        assert_eq!(survivors(CrashMode::All, seed), [true; 128]);
        let prefix = survivors(CrashMode::Prefix, seed);
        assert!(
            prefix.is_sorted_by(|one, next| one >= next)
                && prefix.chunks(8).all(|w| w.iter().all(|s| *s == w[0]))
        );
        assert!(
            survivors(CrashMode::Writes, seed).chunks(8).all(|write| write.iter().all(|s| *s == write[0]))
        );
    }
    assert!(
        (0..20)
            .any(|seed| survivors(CrashMode::Sectors, seed).chunks(8).any(|w| w.iter().any(|s| *s != w[0])))
    );
}

#[test]
fn entries_are_kept_or_lost_one_by_one() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = disk_with_file(seed, 10, DiskConfig::default());
        let storage = disk.storage();
        for name in ["b", "c"] {
            storage.create(name, 10).unwrap().sync().unwrap();
        }
        storage.rename("c", "d").unwrap();
        storage.remove("a").unwrap();
        disk.crash();
        seen.insert(names(&disk).concat());
    }
    for possible in ["a", "b", "d", "abc", "abd", "c", "", "bd", "ac", "ab", "ad", "bc"] {
        assert!(seen.contains(possible), "{possible:?} never came: {seen:?}");
    }
    assert!(!seen.contains("cd") && !seen.contains("acd"), "a renaming happens wholly: {seen:?}");
}

#[test]
fn a_renaming_over_a_file_leaves_one_of_the_two() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let disk = disk_with_file(seed, 1, DiskConfig::default());
        let storage = disk.storage();
        let new = storage.create("new", 2).unwrap();
        new.sync().unwrap();
        storage.rename("new", "a").unwrap();
        disk.crash();
        let length = disk.contents("a").unwrap().len();
        assert_eq!(names(&disk).len(), 1 + usize::from(disk.contents("new").is_ok()));
        seen.insert(length);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_length_of_a_new_file_needs_a_flush_of_its_own() {
    let lengths = |lengths_need_sync| {
        let config = DiskConfig { lengths_need_sync, ..DiskConfig::default() };
        (0..50)
            .map(|seed| {
                let disk = SimulatedDisk::new(seed, config.clone());
                let storage = disk.storage();
                storage.create("a", 8192).unwrap();
                storage.sync_directory().unwrap();
                disk.crash();
                disk.contents("a").unwrap().len()
            })
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(lengths(true), BTreeSet::from([0, 8192]));
    assert_eq!(lengths(false), BTreeSet::from([8192]));
}

type Outcome = (Vec<String>, Vec<(String, Vec<u8>)>, u64);

/// Some work with everything in it, and what became of it.
fn story(seed: u64, crash_at: u64) -> Outcome {
    let config = DiskConfig { stale_garbage: true, trace: true, ..DiskConfig::default() };
    let disk = disk_with_file(seed, 9000, config);
    let storage = disk.storage();
    disk.crash_at(crash_at);
    let work = || -> io::Result<()> {
        let file = storage.open("a", true)?;
        for number in 0..6 {
            write(&*file, number * 1000, number as u8, 1500)?;
            let name = format!("f{number}");
            write(&*storage.create(&name, 3000)?, 0, 7, 3000)?;
            if number % 2 == 0 {
                file.sync()?;
                storage.remove(&name)?;
            } else {
                storage.sync_directory()?;
            }
        }
        Ok(())
    };
    let result = work();
    assert_eq!(result.is_err(), disk.is_cut());
    disk.crash();
    let contents = disk.files().into_iter().map(|(name, _)| (name.clone(), disk.contents(&name).unwrap()));
    (disk.take_trace(), contents.collect(), disk.io_count())
}

#[test]
fn the_seed_decides_everything() {
    for crash_at in 1..40 {
        assert!(story(5, crash_at) == story(5, crash_at), "crash at {crash_at}");
    }
    assert!((1..40).any(|crash_at| story(5, crash_at) != story(6, crash_at)));
}

#[test]
fn a_scheduled_crash_comes_at_its_number_and_stays() {
    let disk = disk_with_file(3, 4096, DiskConfig { trace: true, ..DiskConfig::default() });
    let storage = disk.storage();
    let file = storage.open("a", true).unwrap();
    let before = disk.io_count();
    disk.crash_at(3);
    write(&*file, 0, 1, 10).unwrap();
    file.sync().unwrap();
    assert!(write(&*file, 0, 2, 10).is_err() && disk.is_cut());
    assert!(file.sync().is_err() && storage.list().is_err() && file.read_at(&mut [0], 0).is_err());
    assert_eq!(disk.io_count(), before + 3);
    disk.crash();
    assert!(!disk.is_cut());
    assert!([1, 2].contains(&disk.contents("a").unwrap()[0]));
    disk.storage().open("a", true).unwrap().sync().unwrap();
    let trace = disk.take_trace().join("\n");
    assert!(trace.contains("write file 1 at 0: Data 10 (cut short)\ncrash: "), "{trace}");
}

#[test]
fn every_kind_of_fault_strikes_once_or_for_good() {
    let disk = disk_with_file(3, 4096, DiskConfig::default());
    let storage = disk.storage();
    let file = storage.open("a", true).unwrap();
    let read = || file.read_at(&mut [0; 8], 0);

    disk.fail_at(2, FaultKind::ReadError, false);
    assert!(read().is_ok() && read().is_err() && read().is_ok());
    disk.fail_at(2, FaultKind::WriteError, true);
    assert!(write(&*file, 0, 1, 8).is_ok());
    assert!((0..3).all(|_| write(&*file, 0, 1, 8).is_err() && storage.remove("a").is_err()));
    disk.clear_faults();
    assert!(write(&*file, 0, 1, 8).is_ok());
    disk.fail_at(1, FaultKind::NoSpace, false);
    assert!(write(&*file, 0, 1, 8).is_ok(), "an overwrite needs no space");
    assert_eq!(storage.create("b", 1).err().unwrap().kind(), ErrorKind::StorageFull);
    assert!(storage.create("b", 1).is_ok());
    disk.fail_at(1, FaultKind::SyncError, false);
    assert!(storage.sync_directory().is_err() && storage.sync_directory().is_ok());
    assert_eq!(disk.faults_struck(), 9);
}

#[test]
fn a_failed_flush_is_not_mended_by_the_next() {
    let (mut lost, mut seen_though_lost) = (0, 0);
    for seed in 0..60 {
        let disk = disk_with_file(seed, 8192, DiskConfig::default());
        let storage = disk.storage();
        let file = storage.open("a", true).unwrap();
        write(&*file, 0, 1, 4096).unwrap();
        disk.fail_at(1, FaultKind::SyncError, false);
        assert!(file.sync().is_err());
        let seen = disk.contents("a").unwrap();
        write(&*file, 4096, 2, 10).unwrap();
        write(&*file, 10, 3, 10).unwrap();
        file.sync().unwrap();
        disk.crash_as(CrashMode::All);
        let found = disk.contents("a").unwrap();
        assert!(found[4096..4106] == [2; 10] && found[10..20] == [3; 10], "what came later is durable");
        let is_lost = found[512..4096].contains(&0);
        lost += u32::from(is_lost);
        seen_though_lost += u32::from(is_lost && seen[..4096] == [1; 4096]);
    }
    assert!(lost > 20 && seen_though_lost > 5 && seen_though_lost < lost, "{lost} {seen_though_lost}");
}

#[test]
fn space_is_limited() {
    let disk = disk_with_file(1, 6000, DiskConfig { capacity: 10_000, ..DiskConfig::default() });
    let storage = disk.storage();
    assert_eq!(storage.space().unwrap().free, 4000);
    assert_eq!(storage.create("b", 4001).err().unwrap().kind(), ErrorKind::StorageFull);
    let quota = DiskConfig { capacity: 10_000, full_is_quota: true, ..DiskConfig::default() };
    let refused = disk_with_file(1, 6000, quota).storage().create("b", 4001).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
    let file = storage.create("b", 4000).unwrap();
    write(&*file, 0, 1, 4000).unwrap();
    assert_eq!(write(&*file, 1, 1, 4000).unwrap_err().kind(), ErrorKind::StorageFull);
    storage.remove("a").unwrap();
    write(&*file, 1, 1, 4000).unwrap();
    assert_eq!(file.length().unwrap(), 4001);
    disk.set_capacity(0);
    assert_eq!(storage.space().unwrap().free, 0);
    write(&*file, 0, 1, 4000).unwrap();

    let config = DiskConfig { capacity: 10_000, overwrite_may_fail: true, ..DiskConfig::default() };
    let file = disk_with_file(1, 6000, config).storage().open("a", true).unwrap();
    write(&*file, 0, 1, 3000).unwrap();
    assert_eq!(write(&*file, 0, 1, 3000).unwrap_err().kind(), ErrorKind::StorageFull);
    file.sync().unwrap();
    write(&*file, 0, 1, 3000).unwrap();
}

#[test]
fn new_files_hold_what_old_ones_held() {
    let disk = disk_with_file(1, 8192, DiskConfig { stale_garbage: true, ..DiskConfig::default() });
    assert!(disk.contents("a").unwrap().iter().any(|byte| *byte != 0));
    let storage = disk.storage();
    let file = storage.open("a", true).unwrap();
    write(&*file, 0, 9, 8192).unwrap();
    file.sync().unwrap();
    drop(file);
    storage.remove("a").unwrap();
    storage.sync_directory().unwrap();
    storage.create("b", 4096).unwrap();
    assert_eq!(disk.contents("b").unwrap(), [9; 4096]);
}

#[test]
fn damage_is_seen_at_once_and_for_good() {
    let disk = disk_with_file(1, 8192, DiskConfig::default());
    let file = disk.storage().open("a", true).unwrap();
    write(&*file, 0, 1, 4096).unwrap();
    disk.flip_bit("a", 5, 7).unwrap();
    disk.corrupt("a", 4096..4196).unwrap();
    disk.overwrite("a", 8000, b"hello").unwrap();
    let check = || {
        let contents = disk.contents("a").unwrap();
        assert!(contents[5] == 0x81 && contents[4] == 1 && contents[8000..8005] == *b"hello");
        assert!(contents[4096..4196].iter().all(|byte| *byte != 0) && contents[4196] == 0);
    };
    check();
    file.sync().unwrap();
    disk.crash();
    check();
    disk.truncate("a", 100).unwrap();
    assert_eq!(disk.contents("a").unwrap().len(), 100);
    assert_eq!(disk.flip_bit("a", 100, 0).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    disk.lose("a").unwrap();
    disk.crash();
    assert_eq!(disk.flip_bit("a", 0, 0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn read_only_and_vanished_disks_refuse() {
    let disk = disk_with_file(1, 4096, DiskConfig::default());
    let storage = disk.storage();
    let file = storage.open("a", true).unwrap();
    disk.set_read_only(true);
    let refused = [
        write(&*file, 0, 1, 1).err(),
        file.sync().err(),
        storage.create("b", 1).err(),
        storage.remove("a").err(),
        storage.rename("a", "b").err(),
        storage.sync_directory().err(),
        storage.open("a", true).err(),
        storage.lock(true).err(),
    ];
    assert!(refused.into_iter().all(|error| error.unwrap().kind() == ErrorKind::ReadOnlyFilesystem));
    assert!(storage.open("a", false).is_ok() && storage.lock(false).is_ok());
    disk.disappear();
    assert!(storage.list().is_err() && storage.space().is_err() && file.read_at(&mut [0], 0).is_err());
    disk.reappear();
    assert!(storage.list().is_ok() && file.read_at(&mut [0], 0).is_ok());
}

#[test]
fn a_kill_loses_nothing_and_frees_the_lock() {
    let disk = disk_with_file(1, 4096, DiskConfig::default());
    let storage = disk.storage();
    let lock = storage.lock(true).unwrap();
    assert_eq!(disk.storage().lock(true).err().unwrap().kind(), ErrorKind::WouldBlock);
    assert!(storage.lock_owner().is_some());
    write(&*storage.open("a", true).unwrap(), 0, 5, 4096).unwrap();
    disk.kill();
    assert!(storage.open("a", false).is_err());
    let _next = disk.storage().lock(true).unwrap();
    drop(lock);
    assert!(disk.storage().lock(true).is_err(), "a lock of the dead frees nothing");
    assert_eq!(disk.contents("a").unwrap(), [5; 4096]);
}

#[test]
fn files_removed_while_open_stay_until_the_end() {
    let disk = disk_with_file(1, 4096, DiskConfig::default());
    let storage = disk.storage();
    let file = storage.open("a", true).unwrap();
    storage.remove("a").unwrap();
    storage.sync_directory().unwrap();
    write(&*file, 0, 5, 10).unwrap();
    file.sync().unwrap();
    let mut found = [0; 10];
    file.read_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; 10]);
    assert_eq!(names(&disk), Vec::<String>::new());
}

#[test]
fn a_duplicate_goes_its_own_way() {
    let disk = disk_with_file(1, 4096, DiskConfig::default());
    let file = disk.storage().open("a", true).unwrap();
    write(&*file, 0, 1, 4096).unwrap();
    let fates: BTreeSet<_> = (0..20)
        .map(|seed| {
            let copy = disk.duplicate(seed);
            copy.crash();
            copy.contents("a").unwrap()
        })
        .collect();
    assert!(fates.len() > 3);
    file.sync().unwrap();
    disk.crash();
    assert_eq!(disk.contents("a").unwrap(), [1; 4096]);
}
