//! Real files behave as the trait promises, on a filesystem with direct I/O and on one without.

use super::*;
use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Output};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn storage() -> (TempDir, RealStorage) {
    let folder = tempfile::tempdir().unwrap();
    let storage = RealStorage::new(folder.path()).unwrap();
    (folder, storage)
}

/// Blocks of a pattern, in memory that direct I/O accepts.
fn pattern(blocks: usize, seed: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 7) as u8 ^ seed;
    }
    buffer
}

fn read(file: &dyn StorageFile, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn a_new_file_is_allocated_and_zero() {
    let (folder, storage) = storage();
    let file = storage.create("segment.1", MIB + 5).unwrap();
    assert_eq!(file.length().unwrap(), MIB + 5);
    assert_eq!(read(&*file, MIB - 3, 8), [0; 8]);
    assert_eq!(file.read_at(&mut [0; 2], MIB + 4).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(storage.create("segment.1", 1).err().unwrap().kind(), ErrorKind::AlreadyExists);
    assert_eq!(storage.list().unwrap(), [("segment.1".to_owned(), MIB + 5)]);
    assert_eq!(fs::metadata(folder.path().join("segment.1")).unwrap().len(), MIB + 5);
}

/// What an allocated file takes up from the beginning, a sparse one takes up as it is written.
#[test]
fn a_sparse_file_is_zero_and_takes_up_what_is_written() {
    let (folder, storage) = storage();
    let allocated = |name: &str| {
        std::os::unix::fs::MetadataExt::blocks(&fs::metadata(folder.path().join(name)).unwrap()) * 512
    };
    storage.create("segment.1", MIB).unwrap();
    let file = storage.create_sparse("copy.1", MIB).unwrap();
    assert_eq!((file.length().unwrap(), read(&*file, MIB - 3, 3)), (MIB, vec![0; 3]));
    assert!(allocated("segment.1") >= MIB && allocated("copy.1") < MIB / 4);
    file.write_at(&[(Kind::Copy, &pattern(1, 7))], 8 * BLOCK_BYTES as u64).unwrap();
    file.sync().unwrap();
    assert!((BLOCK_BYTES as u64..MIB / 4).contains(&allocated("copy.1")));
    file.allocate(MIB).unwrap();
    assert!(allocated("copy.1") >= MIB);
    assert!(read(&*file, 8 * BLOCK_BYTES as u64, BLOCK_BYTES) == pattern(1, 7)[..]);
    assert_eq!(storage.create_sparse("copy.1", 1).err().unwrap().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_medium_without_room_is_full() {
    assert_eq!(full_or(Errno::DQUOT).unwrap().kind(), ErrorKind::StorageFull);
    assert!(full_or(Errno::IO).is_none());
}

/// On a small filesystem of its own, in a mount namespace that ends with it. Allocating more than there is
/// takes all that there is for a moment, and another process that writes there would be refused. A user that
/// may not mount may be allowed to as the root of a user namespace.
#[test]
fn what_does_not_fit_leaves_no_file_behind() {
    let filled = fill_small_filesystem(&["--mount"]).or_else(|first| {
        let second = fill_small_filesystem(&["--user", "--map-root-user", "--mount"]);
        second.map_err(|second| format!("{first}; {second}"))
    });
    match filled {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        }
        Err(refusals) => eprintln!("left out: no user may mount here: {refusals}"),
    }
}

/// Runs [`what_does_not_fit_here`] in new namespaces; an error where they, or the mount in them, are not
/// allowed.
fn fill_small_filesystem(namespaces: &[&str]) -> Result<Output, String> {
    const SCRIPT: &str = r#"mount -t tmpfs -o size=8m none "$1" || exit 77; shift; exec "$@""#;
    let folder = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(namespaces)
        .args(["--propagation", "private", "sh", "-c", SCRIPT, "sh"])
        .args([folder.path(), &*this])
        .args(["--exact", "storage::real::tests::what_does_not_fit_here", "--ignored", "--nocapture"])
        .env(SMALL_FOLDER, folder.path())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.code() == Some(77) || output.stderr.starts_with(b"unshare:") {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(output)
}

/// Where the filesystem is mounted that [`what_does_not_fit_here`] may fill.
const SMALL_FOLDER: &str = "ICECORE_TEST_SMALL_FOLDER";

#[test]
#[ignore = "fills its filesystem: what_does_not_fit_leaves_no_file_behind runs it on a small one"]
fn what_does_not_fit_here() {
    let Some(folder) = std::env::var_os(SMALL_FOLDER) else { return };
    let storage = RealStorage::new(folder).unwrap();
    let too_much = storage.space().unwrap().total.next_multiple_of(4096) + MIB;
    assert_eq!(storage.create("segment.1", too_much).err().unwrap().kind(), ErrorKind::StorageFull);
    assert_eq!(storage.list().unwrap(), []);
    drop(storage.create("segment.1", MIB).unwrap());
}

#[test]
fn zeros_stand_in_for_allocation() {
    let (_folder, storage) = storage();
    for length in [1, MIB - 1, MIB, 2 * MIB + 4097] {
        let name = format!("segment.{length}");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let descriptor = rustix::fs::openat(&storage.directory, &name, flags, FILE_MODE).unwrap();
        let file = RealFile::new(descriptor, true);
        write_zeros(&file, length).unwrap();
        assert_eq!(file.length().unwrap(), length);
        assert!(read(&file, 0, length as usize).iter().all(|byte| *byte == 0));
    }
}

fn aligned_and_other_writes_are_read_back(storage: &RealStorage) -> bool {
    let descriptor = {
        drop(storage.create("segment.1", 16 * MIB).unwrap());
        let path = storage.path.join("segment.1");
        rustix::fs::open(path, OFlags::RDWR, Mode::empty()).unwrap()
    };
    let file = RealFile::new(descriptor, true);
    let (one, two) = (pattern(2, 0), pattern(3, 0x55));
    // Read first, so that stale pages would be seen.
    read(&file, 0, MIB as usize);
    file.write_at(&[(Kind::RecordHeader, &one), (Kind::Data, &two)], 8192).unwrap();
    assert_eq!(read(&file, 8192, 8192), *one);
    assert_eq!(read(&file, 16384, 12288), *two);
    let direct = file.is_direct();
    // Not aligned: in place, in memory, in length.
    file.write_at(&[(Kind::Data, &one)], 8193).unwrap();
    assert_eq!(read(&file, 8193, 8192), *one);
    assert_eq!(read(&file, 8192, 1), [one[0]]);
    file.write_at(&[(Kind::Data, &one[1..]), (Kind::Data, b"x"), (Kind::Data, b"")], 4096).unwrap();
    assert_eq!(read(&file, 4096, 8191), one[1..]);
    assert_eq!(read(&file, 4096 + 8191, 1), *b"x");
    // Aligned again, over pages just dirtied.
    file.write_at(&[(Kind::Data, &two)], 4096).unwrap();
    assert_eq!(read(&file, 4096, 12288), *two);
    file.write_at(&[], 0).unwrap();
    file.write_at(&[(Kind::Data, b""), (Kind::Data, b"")], 0).unwrap();
    file.sync().unwrap();
    assert_eq!(fs::read(storage.path.join("segment.1")).unwrap()[4096..16384], *two);
    direct
}

fn direct_reads_find_what_is_there(storage: &RealStorage) {
    let file = storage.create("segment.1", MIB).unwrap();
    let content = pattern(256, 3);
    file.write_at(&[(Kind::Data, &content)], 0).unwrap();
    // What waits in the page cache counts.
    let lazy = pattern(3, 0x77);
    file.write_lazily(&[(Kind::Data, &lazy)], 40960).unwrap();
    let mut expected = content.to_vec();
    expected[40960..40960 + lazy.len()].copy_from_slice(&lazy);
    let mut memory = AlignedBuffer::zeroed(MIB as usize + BLOCK_BYTES);
    for shift in [0, 1, 512, 4095] {
        for (offset, length) in [(0, 4096), (36864, 16384), (0, MIB as usize), (MIB - 4096, 4096), (77, 1000)]
        {
            let buffer = &mut memory[shift..shift + length];
            buffer.fill(0);
            file.read_direct(buffer, offset).unwrap();
            let offset = offset as usize;
            assert!(*buffer == expected[offset..offset + length], "{length} bytes at {offset}, {shift} off");
        }
        for (offset, length) in [(MIB, 4096), (MIB - 4096, 8192), (MIB - 1, 2)] {
            let outcome = file.read_direct(&mut memory[shift..shift + length], offset);
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }
    // One that was cut within a block, opened for reading.
    fs::File::options().write(true).open(storage.path.join("segment.1")).unwrap().set_len(5000).unwrap();
    let file = storage.open("segment.1", false).unwrap();
    let outcome = file.read_direct(&mut memory[..8192], 0);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    file.read_direct(&mut memory[..4096], 0).unwrap();
    assert!(memory[..4096] == expected[..4096]);
}

#[test]
fn direct_reads_find_what_is_there_on_any_filesystem() {
    let (_folder, storage) = storage();
    direct_reads_find_what_is_there(&storage);
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    direct_reads_find_what_is_there(&RealStorage::new(folder.path()).unwrap());
}

#[test]
fn writes_are_read_back() {
    const EXT4: u64 = 0xef53;
    let (_folder, storage) = storage();
    let direct = aligned_and_other_writes_are_read_back(&storage);
    let filesystem = rustix::fs::fstatfs(&storage.directory).unwrap().f_type as u64;
    assert!(direct || filesystem != EXT4, "ext4 takes direct writes");
}

#[test]
fn writes_are_read_back_in_memory_files() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    aligned_and_other_writes_are_read_back(&RealStorage::new(folder.path()).unwrap());
}

#[test]
fn many_parts_go_through() {
    let (_folder, storage) = storage();
    let file = storage.create("segment.1", 16 * MIB).unwrap();
    for count in [15, 16, 17, 1023, 1024, 1025, 2500] {
        let buffer = pattern(count, count as u8);
        let parts: Vec<_> = buffer.chunks(BLOCK_BYTES).map(|part| (Kind::Data, part)).collect();
        file.write_at(&parts, 4096).unwrap();
        assert!(read(&*file, 4096, buffer.len()) == *buffer, "{count} parts, direct");
        let odd: Vec<_> = buffer.chunks(999).take(count).map(|part| (Kind::Data, part)).collect();
        let length = odd.iter().map(|(_, part)| part.len()).sum::<usize>();
        file.write_at(&odd, 77).unwrap();
        assert!(read(&*file, 77, length) == buffer[..length], "{count} parts, buffered");
    }
}

#[test]
fn a_file_keeps_its_direct_writes_when_renamed_or_removed() {
    let (_folder, storage) = storage();
    let file = storage.create("old", MIB).unwrap();
    storage.create("new", 1).unwrap();
    storage.rename("old", "new").unwrap();
    file.write_at(&[(Kind::Node, &pattern(1, 9))], 0).unwrap();
    assert_eq!(read(&*storage.open("new", false).unwrap(), 0, 4096), *pattern(1, 9));
    storage.remove("new").unwrap();
    file.write_at(&[(Kind::Node, &pattern(1, 8))], 0).unwrap();
    assert_eq!(read(&*file, 0, 4096), *pattern(1, 8));
    assert_eq!(storage.list().unwrap(), []);
}

#[test]
fn a_file_opened_for_reading_is_never_written() {
    let (_folder, storage) = storage();
    drop(storage.create("segment.1", MIB).unwrap());
    let file = storage.open("segment.1", false).unwrap();
    assert!(file.write_at(&[(Kind::Data, &pattern(1, 1))], 0).is_err());
    assert!(file.write_at(&[(Kind::Data, b"odd")], 0).is_err());
    assert_eq!(read(&*file, 0, 4096), [0; 4096]);
    assert_eq!(storage.open("segment.2", true).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn names_stay_inside_the_directory() {
    let (_folder, storage) = storage();
    for name in ["", ".", "..", "a/b", "../x", "/etc/passwd", "a\0b", "lock"] {
        assert_eq!(storage.create(name, 1).err().unwrap().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(storage.open(name, false).err().unwrap().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(storage.remove(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(storage.rename("x", name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(storage.rename(name, "x").unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
    }
}

#[test]
fn only_plain_files_are_listed_and_opened() {
    use std::os::unix::ffi::OsStrExt;
    let (folder, storage) = storage();
    fs::create_dir(folder.path().join("folder")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(&storage.directory, "pipe", FileType::Fifo, mode, 0).unwrap();
    drop(storage.create("segment.1", 5).unwrap());
    let _lock = storage.lock(true).unwrap();
    assert_eq!(storage.list().unwrap(), [("segment.1".to_owned(), 5)]);
    assert_eq!(storage.open("pipe", false).err().unwrap().kind(), ErrorKind::InvalidInput);
    assert!(storage.open("folder", false).is_err());
}

#[test]
fn the_directory_may_move_but_not_vanish() {
    let (folder, storage) = storage();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    fs::create_dir(&before).unwrap();
    let moving = RealStorage::new(&before).unwrap();
    fs::rename(&before, &after).unwrap();
    drop(moving.create("segment.1", 5).unwrap());
    moving.sync_directory().unwrap();
    assert!(after.join("segment.1").exists());

    fs::remove_dir_all(&after).unwrap();
    let errors = [
        moving.create("segment.2", 5).err(),
        moving.open("segment.1", false).err(),
        moving.remove("segment.1").err(),
        moving.rename("segment.1", "segment.2").err(),
        moving.list().err(),
        moving.sync_directory().err(),
        moving.lock(true).err(),
        moving.lock(false).err(),
    ];
    for error in errors {
        assert!(error.unwrap().to_string().contains("the directory of the pool was removed"));
    }
    assert!(RealStorage::new(&after).is_err());
    assert!(storage.list().is_ok());
    assert_eq!(storage.directory().unwrap(), folder.path().canonicalize().unwrap());
}

#[test]
fn one_writer_or_many_readers() {
    let (_folder, storage) = storage();
    let refused = |exclusive| storage.lock(exclusive).err().unwrap().kind() == ErrorKind::WouldBlock;
    let writer = storage.lock(true).unwrap();
    assert!(refused(true) && refused(false));
    let own = std::process::id().to_string();
    let owner = storage.lock_owner().unwrap();
    assert_eq!(owner.split(' ').next(), Some(own.as_str()), "{owner}");
    assert!(owner.len() > own.len() + 1, "{owner}");

    drop(writer);
    let readers = [storage.lock(false).unwrap(), storage.lock(false).unwrap()];
    assert!(refused(true));
    // Readers leave no note: the kernel's table knows them.
    if let Some(owner) = storage.lock_owner() {
        assert_eq!(owner.split(' ').next(), Some(own.as_str()), "{owner}");
    }
    drop(readers);
    drop(storage.lock(true).unwrap());
    assert_eq!(storage.lock_owner(), None);
}

#[test]
fn an_old_note_gives_way_to_the_new_owner() {
    let (folder, storage) = storage();
    fs::write(folder.path().join("lock"), "1 ".to_owned() + &"long".repeat(1000)).unwrap();
    let _writer = storage.lock(true).unwrap();
    let note = fs::read_to_string(folder.path().join("lock")).unwrap();
    assert!(note.starts_with(&format!("{} ", std::process::id())) && note.len() <= 256, "{note}");
}

#[test]
fn readers_manage_with_a_lock_file_they_may_only_read() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, storage) = storage();
    let path = folder.path().join("lock");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let _reader = storage.lock(false).unwrap();
    assert!(storage.lock(true).is_err());
}

#[test]
fn space_is_plausible() {
    let (_folder, storage) = storage();
    let space = storage.space().unwrap();
    assert!(space.free > 0 && space.free <= space.total, "{space:?}");
}

/// What root makes in the pool of another user, that user can open.
#[test]
fn files_belong_to_the_owner_of_the_folder() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (folder, storage) = storage();
    chown(folder.path(), Some(65534), Some(65534)).unwrap();
    storage.create("segment", MIB).unwrap();
    storage.create_sparse("sparse", MIB).unwrap();
    drop(storage.lock(true).unwrap());
    crate::side_file::append(&folder.path().join("errors.log"), "line").unwrap();
    crate::side_file::replace(&folder.path().join("last-scrub"), "line").unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().uid(), 65534, "{entry:?}");
    }
}
