//! Single cases that histories do not reach.

use super::super::xattr::XATTR_BYTES_MAX;
use super::*;
use crate::units::{EXTENT_BLOCKS_MAX, FILE_BYTES_MAX};

const ROOT: InodeNumber = InodeNumber::ROOT;
const NOW: Timestamp = Timestamp(5);

fn fresh(hash: NameHash) -> (Version, Store) {
    let store = Store::default();
    (Version::new(&store, hash), store)
}

fn file(version: &mut Version, store: &Store, name: &[u8]) -> InodeNumber {
    version.writer(store).create(ROOT, name, &new_inode(InodeKind::File, 1)).unwrap().inode
}

fn run(start: u64, length: u64) -> Run {
    Run { stream: Stream::Data, start: LogAddress(start), length: BlockCount(length) }
}

fn map(version: &mut Version, store: &Store, inode: InodeNumber, first: u64, run: Run) -> Result<()> {
    version.accounts.data.extend((run.start.0..run.end().0).map(|address| (run.stream, address)));
    version.writer(store).map_run(inode, FileBlock(first), run, Touch { time: NOW, size_at_least: 0 })
}

fn extents(version: &Version, store: &Store, inode: InodeNumber) -> Vec<(u64, u64, u64)> {
    let mut found = Vec::new();
    let reader = version.reader(store);
    let visit = &mut |first: FileBlock, run: Run| {
        found.push((first.0, run.start.0, run.length.0));
        Ok(true)
    };
    reader.extents(inode, FileBlock(0), FileBlock(u64::MAX), visit).unwrap();
    found
}

#[test]
fn a_full_collision_range_refuses_one_more_name_and_nothing_else() {
    let (mut version, store) = fresh(|_| 0);
    for number in 0..256 {
        file(&mut version, &store, format!("{number}").as_bytes());
    }
    let before = version.tree.root_address();
    let outcome = version.writer(&store).create(ROOT, b"one more", &new_inode(InodeKind::File, 1));
    assert_eq!(fault(outcome), Err(FileFault::DirectoryFull));
    assert_eq!(FileFault::DirectoryFull.errno(), 28);
    assert_eq!(version.tree.root_address(), before);
    version.writer(&store).rename((ROOT, b"17"), (ROOT, b"new"), RenameHow::Replace, NOW).unwrap();
    assert!(version.reader(&store).lookup(ROOT, b"new").is_ok());
    version.writer(&store).unlink(ROOT, b"99", NOW).unwrap();
    file(&mut version, &store, b"one more");
    check(&version.reader(&store)).unwrap();
}

/// As the kernel has it, which walks to where a name would be before it looks at the name.
#[test]
fn what_is_no_directory_is_so_before_a_name_is_too_long() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    let long = [b'a'; 256];
    let created = version.writer(&store).create(inode, &long, &new_inode(InodeKind::File, 1));
    assert_eq!(fault(created), Err(FileFault::NotADirectory));
    let linked = version.writer(&store).link(inode, inode, &long, NOW);
    assert_eq!(fault(linked), Err(FileFault::NotADirectory));
    let mut renamed = |from, to| fault(version.writer(&store).rename(from, to, RenameHow::Replace, NOW));
    assert_eq!(renamed((ROOT, b"file"), (inode, &long)), Err(FileFault::NotADirectory));
    assert_eq!(renamed((inode, &long), (ROOT, b"file")), Err(FileFault::NotADirectory));
    assert_eq!(renamed((ROOT, b"none"), (ROOT, &long)), Err(FileFault::NotFound));
    assert_eq!(renamed((ROOT, b"file"), (ROOT, &long)), Err(FileFault::NameTooLong));
}

#[test]
fn a_full_range_of_attributes_refuses_one_more() {
    let (mut version, store) = fresh(|_| u64::MAX);
    let inode = file(&mut version, &store, b"file");
    for number in 0..256 {
        let name = format!("user.{number}");
        version.writer(&store).set_xattr(inode, name.as_bytes(), b"value", XattrHow::Set, NOW).unwrap();
    }
    let mut writer = version.writer(&store);
    let outcome = writer.set_xattr(inode, b"user.more", b"value", XattrHow::Set, NOW);
    assert_eq!(fault(outcome), Err(FileFault::DirectoryFull));
    writer.set_xattr(inode, b"user.255", &[1; XATTR_BYTES_MAX], XattrHow::Replace, NOW).unwrap();
    assert_eq!(fault(writer.xattr(inode, b"user.more")), Err(FileFault::NoSuchAttribute));
    check(&version.reader(&store)).unwrap();
}

#[test]
fn cookies_stay_when_others_come_and_go() {
    let (mut version, store) = fresh(weak_hash);
    for name in [b"a", b"d", b"g", b"j"] {
        file(&mut version, &store, name);
    }
    let cookie = |version: &Version, name: &[u8]| version.reader(&store).lookup(ROOT, name).unwrap().cookie;
    let before = (cookie(&version, b"g"), cookie(&version, b"j"));
    version.writer(&store).unlink(ROOT, b"d", NOW).unwrap();
    file(&mut version, &store, b"m");
    version.writer(&store).rename((ROOT, b"a"), (ROOT, b"g"), RenameHow::Replace, NOW).unwrap();
    assert_eq!((cookie(&version, b"g"), cookie(&version, b"j")), before);
    let mut rest = Vec::new();
    let reader = version.reader(&store);
    reader
        .entries(ROOT, before.0, &mut |entry| {
            rest.push(entry.name);
            Ok(true)
        })
        .unwrap();
    assert_eq!(rest, [b"j".to_vec()]);
}

#[test]
fn a_long_run_becomes_extents_and_following_runs_join() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    map(&mut version, &store, inode, 10, run(100, 5)).unwrap();
    map(&mut version, &store, inode, 15, run(105, 40_000)).unwrap();
    let max = EXTENT_BLOCKS_MAX;
    let rest = 40_005 - 2 * max;
    let expected = [(10, 100, max), (10 + max, 100 + max, max), (10 + 2 * max, 100 + 2 * max, rest)];
    assert_eq!(extents(&version, &store, inode), expected);
    assert_eq!(version.reader(&store).inode(inode).unwrap().blocks, 40_005);
}

#[test]
fn overwriting_in_order_joins_too() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    for block in 0..10 {
        map(&mut version, &store, inode, block * 4, run(1000 - block * 8, 4)).unwrap();
    }
    assert_eq!(extents(&version, &store, inode).len(), 10);
    for block in 0..10 {
        map(&mut version, &store, inode, block * 4, run(2000 + block * 4, 4)).unwrap();
    }
    assert_eq!(extents(&version, &store, inode), [(0, 2000, 40)]);
    assert_eq!(version.accounts.data.len(), 40);
}

#[test]
fn a_file_ends_at_16_tebibytes() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    let blocks = FILE_BYTES_MAX >> 12;
    map(&mut version, &store, inode, blocks - 1, run(7, 1)).unwrap();
    let mut writer = version.writer(&store);
    let touch = Touch { time: NOW, size_at_least: 0 };
    for first in [blocks, u64::MAX] {
        let outcome = writer.map_run(inode, FileBlock(first), run(8, 1), touch);
        assert_eq!(fault(outcome), Err(FileFault::TooLarge));
    }
    assert_eq!(fault(writer.set_size(inode, FILE_BYTES_MAX + 1, 9, NOW)), Err(FileFault::TooLarge));
    writer.set_size(inode, FILE_BYTES_MAX, 9, NOW).unwrap();
    assert_eq!(writer.set_size(inode, 0, 9, NOW).unwrap(), None);
    assert!(version.accounts.data.is_empty());
}

#[test]
fn a_truncation_goes_in_bounded_steps() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    for block in 0..3000 {
        map(&mut version, &store, inode, block * 2, run(block * 3, 1)).unwrap();
    }
    version.writer(&store).set_size(inode, 1 << 30, 1, NOW).unwrap();
    let mut next = version.writer(&store).set_size(inode, 4096, 100, NOW).unwrap();
    let mut steps = 1;
    while let Some(first) = next {
        assert_eq!(version.accounts.data.len(), 3000 - steps * 100);
        next = version.writer(&store).unmap(inode, first, FileBlock(u64::MAX), 100, NOW).unwrap();
        steps += 1;
    }
    assert_eq!((steps, version.accounts.data.len()), (30, 1));
    check(&version.reader(&store)).unwrap();
}

#[test]
fn an_orphan_goes_in_bounded_steps_and_can_be_used_until_then() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    for block in 0..1000 {
        map(&mut version, &store, inode, block * 2, run(block * 3, 1)).unwrap();
    }
    assert!(version.writer(&store).release_orphan(inode, 9).is_err());
    assert_eq!(
        version.writer(&store).unlink(ROOT, b"file", NOW).unwrap(),
        Unlinked { inode, orphaned: true }
    );
    map(&mut version, &store, inode, 1, run(9000, 1)).unwrap();
    check(&version.reader(&store)).unwrap();
    let mut steps = 1;
    while version.writer(&store).release_orphan(inode, 100).unwrap() == Release::Unfinished {
        check(&version.reader(&store)).unwrap();
        steps += 1;
    }
    assert_eq!(steps, 11);
    assert!(version.accounts.data.is_empty());
    assert_eq!(fault(version.reader(&store).inode(inode)), Err(FileFault::Stale));
    verify(&version.tree, &store, &version.accounts.nodes);
    check(&version.reader(&store)).unwrap();
}

#[test]
fn damaged_items_are_reported_not_believed() {
    let (mut version, store) = fresh(name_hash);
    let inode = file(&mut version, &store, b"file");
    map(&mut version, &store, inode, 0, run(0, 9)).unwrap();
    let keys: Vec<_> = version
        .tree
        .range(&store, Key::MIN, Key::MAX)
        .map(|entry| entry.unwrap())
        .filter(|(_, item)| item.bytes().is_some())
        .collect();
    for (key, item) in keys {
        for cut in 0..item.bytes().unwrap().len() {
            let mut damaged = version.clone();
            let short = Item::Bytes(item.bytes().unwrap()[..cut].to_vec());
            damaged.tree.insert(&store, &mut damaged.accounts, key, &short).unwrap();
            let outcome = check(&damaged.reader(&store));
            assert!(matches!(outcome, Err(Error::Damaged { .. } | Error::File(_))), "{key:?} cut to {cut}");
        }
    }
    let far = Key::new(inode, crate::tree::ItemKind::Extent, u64::MAX - 3);
    let item = crate::tree::tests::extent(Stream::Data, 0, 9);
    version.tree.insert(&store, &mut version.accounts, far, &item).unwrap();
    assert!(matches!(version.reader(&store).run_at(inode, FileBlock(u64::MAX)), Err(Error::Damaged { .. })));
    assert!(matches!(check(&version.reader(&store)), Err(Error::Damaged { .. })));
}

/// Takes a directory, and an inode in it.
type Operation = fn(&mut TreeWriter<'_>, InodeNumber, InodeNumber) -> Result<()>;

/// An operation on many keys, with every read failing in turn, leaves everything as it was until it succeeds.
#[test]
fn a_failed_read_anywhere_in_an_operation_leaves_no_trace() {
    let (mut version, store) = fresh(name_hash);
    let directory =
        version.writer(&store).create(ROOT, b"directory", &new_inode(InodeKind::Directory, 1)).unwrap().inode;
    for number in 0..1500 {
        let name = format!("{number}");
        let inode = version
            .writer(&store)
            .create(directory, name.as_bytes(), &new_inode(InodeKind::File, 1))
            .unwrap()
            .inode;
        map(&mut version, &store, inode, 0, run(number * 9, 2)).unwrap();
    }
    let inode = version.reader(&store).lookup(directory, b"700").unwrap().inode;
    version
        .writer(&store)
        .set_xattr(inode, b"user.large", &[1; XATTR_BYTES_MAX], XattrHow::Set, NOW)
        .unwrap();
    store.write_all(&version.tree);
    let operations: [Operation; 4] = [
        |writer, directory, _| {
            writer.rename((directory, b"3"), (ROOT, b"three"), RenameHow::Replace, NOW).map(drop)
        },
        |writer, directory, _| {
            writer.rename((directory, b"4"), (directory, b"1400"), RenameHow::Replace, NOW).map(drop)
        },
        |writer, _, inode| writer.remove_xattr(inode, b"user.large", NOW),
        |writer, _, inode| writer.set_xattr(inode, b"user.large", &[2; 3], XattrHow::Set, NOW),
    ];
    for operation in operations {
        let mut budget = 0;
        let changed = loop {
            let mut attempt = version.clone();
            store.fail_after(Some(budget));
            let outcome = operation(&mut attempt.writer(&store), directory, inode);
            store.fail_after(None);
            if outcome.is_ok() {
                break attempt;
            }
            assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
            assert_eq!(attempt.tree.root_address(), version.tree.root_address());
            assert_eq!(attempt.accounts.nodes.live, version.accounts.nodes.live);
            budget += 1;
        };
        assert!(budget > 6, "it reads from several places");
        verify(&changed.tree, &store, &changed.accounts.nodes);
        check(&changed.reader(&store)).unwrap();
    }
}
