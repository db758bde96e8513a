//! Contents of files: every way in and out.

use crate::fixture::{Fixture, can_mount, number};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

fn direct(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).write(true).create(true).custom_flags(flags).open(path).unwrap()
}

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 251 + seed * 17) % 255 + 1) as u8).collect()
}

#[test]
fn direct_and_buffered_see_the_same() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.path("f");
    let unbuffered = direct(&path);
    let buffered = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut model = vec![0; 300_000];
    let mut seed = 1;
    for (offset, length) in [(0, 2560), (4095, 2), (100_001, 70_003), (8192, 16384), (299_999, 1), (1, 1)] {
        for file in [&unbuffered, &buffered] {
            seed += 1;
            let data = pattern(length, seed);
            file.write_all_at(&data, offset as u64).unwrap();
            model[offset..offset + length].copy_from_slice(&data);
            let mut both = [vec![0; model.len()], vec![0; model.len()]];
            let size = fs::metadata(&path).unwrap().len() as usize;
            for (other, into) in [&unbuffered, &buffered].into_iter().zip(&mut both) {
                other.read_exact_at(&mut into[..size], 0).unwrap();
                assert!(into[..size] == model[..size], "{offset} {length}");
            }
        }
    }
    let large = pattern(3 << 20, 9);
    unbuffered.write_all_at(&large, 12_345).unwrap();
    let mut back = vec![0; large.len()];
    buffered.read_exact_at(&mut back, 12_345).unwrap();
    assert!(back == large);
}

#[test]
fn shared_memory_is_coherent_with_reads_and_writes() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    for passes_cache_by in [false, true] {
        let path = fixture.path(&passes_cache_by.to_string());
        let file = if passes_cache_by {
            direct(&path)
        } else {
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap()
        };
        file.set_len(1 << 16).unwrap();
        let length = 1 << 16;
        // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped below, and nothing
        // truncates the file.
        let memory = unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), length, flags, MapFlags::SHARED, &file, 0).unwrap()
        };
        // SAFETY: as above: `length` bytes that live until they are unmapped.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), length) };
        bytes[5000] = 42;
        // SAFETY: the range is mapped.
        unsafe { rustix::mm::msync(memory, length, MsyncFlags::SYNC).unwrap() };
        let other = File::open(&path).unwrap();
        let mut byte = [0];
        other.read_exact_at(&mut byte, 5000).unwrap();
        assert_eq!(byte, [42]);
        direct(&path).read_exact_at(&mut byte, 5000).unwrap();
        assert_eq!(byte, [42]);
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all_at(&[43], 5000).unwrap();
        // SAFETY: the byte is mapped; the compiler must not remember what it was.
        assert_eq!(unsafe { memory.cast::<u8>().add(5000).read_volatile() }, 43);
        bytes[6000] = 44;
        // SAFETY: the range is mapped.
        unsafe { rustix::mm::msync(memory, length, MsyncFlags::SYNC).unwrap() };
        fixture.snapshot(&format!("db@{passes_cache_by}"));
        bytes[6000] = 45;
        // munmap waits until changed pages are written, and no other thread can map memory meanwhile.
        // This process serves the mount, too: its server would wait for munmap, and munmap for its server.
        // SAFETY: the range is mapped.
        unsafe { rustix::mm::msync(memory, length, MsyncFlags::SYNC).unwrap() };
        // SAFETY: nothing uses the range any more.
        unsafe { rustix::mm::munmap(memory, length).unwrap() };
        let past = fixture.path(&format!(".icecore/snapshots/{passes_cache_by}/{passes_cache_by}"));
        File::open(past).unwrap().read_exact_at(&mut byte, 6000).unwrap();
        assert_eq!(byte, [44], "what msync returned for is in the snapshot");
    }
}

#[test]
fn holes_are_made_found_and_filled() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.path("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let data = pattern(1 << 20, 3);
    file.write_all_at(&data, 0).unwrap();
    let blocks = fs::metadata(&path).unwrap().blocks();
    let change = |flags, offset, length| {
        rustix::fs::fallocate(&file, flags, offset, length).map_err(std::io::Error::from)
    };
    change(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100_000, 200_000).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < blocks);
    let mut expected = data.clone();
    expected[100_000..300_000].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    let seek = |from| rustix::fs::seek(&file, from).map_err(std::io::Error::from);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)).unwrap(), 100_000_u64.next_multiple_of(4096));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(110_000)).unwrap(), 300_000 / 4096 * 4096);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(400_000)).unwrap(), 1 << 20);
    assert_eq!(number(seek(rustix::fs::SeekFrom::Data(1 << 20))), libc::ENXIO);
    change(FallocateFlags::ZERO_RANGE, (1 << 20) - 5000, 10_000).unwrap();
    expected.resize((1 << 20) + 5000, 0);
    expected[(1 << 20) - 5000..].fill(0);
    assert!(fs::read(&path).unwrap() == expected);
    change(FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), (1 << 20) + 5000);
    change(FallocateFlags::empty(), 0, 4 << 20).unwrap();
    expected.resize(4 << 20, 0);
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(number(change(FallocateFlags::COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    assert_eq!(number(change(FallocateFlags::INSERT_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    // Cut and grown again, it is zeros.
    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    expected.truncate(5000);
    expected.resize(9000, 0);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn ranges_are_copied_inside() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let data = pattern(5 << 20, 4);
    fs::write(fixture.path("from"), &data).unwrap();
    let from = File::open(fixture.path("from")).unwrap();
    let to = OpenOptions::new().read(true).write(true).create_new(true).open(fixture.path("to")).unwrap();
    let (mut read, mut written) = (1001, 17);
    let mut left = 4 << 20;
    while left > 0 {
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), left).unwrap();
        assert!(copied > 0);
        left -= copied;
    }
    let mut copied = vec![0; 4 << 20];
    to.read_exact_at(&mut copied, 17).unwrap();
    assert!(copied == data[1001..1001 + (4 << 20)]);
    // What is written through a cached page before is in the copy, and the page of the target is dropped.
    fs::write(fixture.path("from"), b"fresh").unwrap();
    assert_eq!(fs::copy(fixture.path("from"), fixture.path("to")).unwrap(), 5);
    assert_eq!(fs::read(fixture.path("to")).unwrap(), b"fresh");
}

#[test]
fn appends_of_two_do_not_overwrite_each_other() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.path("log");
    std::thread::scope(|scope| {
        for who in [b'a', b'b'] {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                (0..200).for_each(|_| file.write_all(&[who; 100]).unwrap());
            });
        }
    });
    let text = fs::read(&path).unwrap();
    assert_eq!(text.len(), 40_000);
    assert!(text.chunks(100).all(|line| line.iter().all(|byte| *byte == line[0])));
}

#[test]
fn what_is_synchronous_and_what_is_synchronised_works() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.path("f");
    for flags in [OFlags::DSYNC, OFlags::SYNC, OFlags::DSYNC | OFlags::DIRECT] {
        let flags = flags.bits() as i32;
        let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(&path);
        file.unwrap().write_all_at(&pattern(5000, 1), 3).unwrap();
    }
    File::open(&path).unwrap().sync_all().unwrap();
    File::open(fixture.path(".")).unwrap().sync_all().unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = fixture.path(&number.to_string());
            scope.spawn(move || {
                let file = File::create(path).unwrap();
                for round in 0..20 {
                    file.write_all_at(&pattern(4096, round), 0).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
}

#[test]
fn locks_exclude_each_other() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(fixture.path("f"))
            .unwrap()
    };
    let (one, other) = (open(), open());
    let flock = |file: &File, operation| rustix::fs::flock(file, operation).map_err(std::io::Error::from);
    flock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(number(flock(&other, FlockOperation::NonBlockingLockShared)), libc::EWOULDBLOCK);
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    let range = |file: &File, start: i64| {
        use std::os::fd::AsRawFd as _;
        // SAFETY: zeros are a valid `flock`; the fields that count are set.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_start = start;
        lock.l_len = 10;
        // SAFETY: the descriptor is open, and the structure lives through the call.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    range(&one, 0).unwrap();
    range(&other, 10).unwrap();
    assert_eq!(number(range(&other, 5)), libc::EAGAIN);
    drop(one);
    range(&other, 5).unwrap();
}

#[test]
fn everything_is_there_after_a_remount() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    let data = pattern(200_000, 7);
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("d/f"), &data).unwrap();
    fixture.unmount();
    assert!(fs::read_dir(fixture.folder.path().join("mnt")).unwrap().next().is_none());
    fixture.mount(Some("db"));
    assert!(fs::read(fixture.path("d/f")).unwrap() == data);
}
