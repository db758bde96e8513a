//! Shapes: how full nodes are, what a change touches, what a difference reads.

use super::*;

fn empty() -> (Tree, Store, Books) {
    let mut books = Books::default();
    (Tree::new(&mut books), Store::default(), books)
}

fn leaves(tree: &Tree, store: &Store) -> Vec<usize> {
    let mut counts = Vec::new();
    tree.nodes(store, &mut |_, node| {
        if node.is_leaf() {
            counts.push(node.len());
        }
        Ok(())
    })
    .unwrap();
    counts
}

#[test]
fn ascending_insertion_leaves_full_leaves_with_more_than_500_random_extents() {
    let (mut tree, store, mut books) = empty();
    let mut random = Random(7);
    for block in 0..5000 {
        let item = extent(Stream::Data, random.below(1 << 28), 4);
        tree.insert(&store, &mut books, extent_key(9, block * 4), &item).unwrap();
    }
    verify(&tree, &store, &books);
    let counts = leaves(&tree, &store);
    assert!(counts[..counts.len() - 1].iter().all(|count| *count > 700), "{counts:?}");
}

#[test]
fn appending_to_a_file_in_the_middle_leaves_full_leaves() {
    let (mut tree, store, mut books) = empty();
    for inode in 1..100 {
        let key = Key::new(InodeNumber(inode), ItemKind::Inode, 0);
        tree.insert(&store, &mut books, key, &Item::Bytes(vec![1; 100])).unwrap();
    }
    let before = leaves(&tree, &store).len();
    let mut random = Random(7);
    for block in 0..8000 {
        let item = extent(Stream::Data, random.below(1 << 28), 4);
        tree.insert(&store, &mut books, extent_key(50, block * 4), &item).unwrap();
    }
    verify(&tree, &store, &books);
    let counts = leaves(&tree, &store);
    assert!(counts.len() - before <= 13, "{counts:?}");
}

#[test]
fn random_insertion_leaves_leaves_two_thirds_full() {
    let (mut tree, store, mut books) = empty();
    let mut random = Random(11);
    for _ in 0..20_000 {
        let item = extent(Stream::Data, random.below(1 << 28), 4);
        tree.insert(&store, &mut books, extent_key(9, random.below(1 << 40)), &item).unwrap();
    }
    verify(&tree, &store, &books);
    let used = used(&tree, &store);
    assert!(used > 60.0, "{used} % full");
}

fn used(tree: &Tree, store: &Store) -> f64 {
    let (mut used, mut nodes) = (0, 0);
    tree.nodes(store, &mut |_, node| {
        used += node.used();
        nodes += 1;
        Ok(())
    })
    .unwrap();
    used as f64 * 100.0 / (nodes * codec::PAYLOAD_BYTES) as f64
}

/// A tree of three levels, all written.
fn high() -> (Tree, Store, Books, Vec<Key>) {
    let (mut tree, store, mut books) = empty();
    let mut random = Random(3);
    let mut keys = Vec::new();
    for _ in 0..4000 {
        let key = Key::new(InodeNumber(1), ItemKind::DirectoryEntry, random.next());
        tree.insert(&store, &mut books, key, &Item::Bytes(vec![5; 900])).unwrap();
        keys.push(key);
    }
    store.write_all(&tree);
    assert_eq!(tree.height(&store).unwrap(), 2);
    (tree, store, books, keys)
}

#[test]
fn a_change_copies_the_path_once_and_then_works_in_place() {
    let (mut tree, store, mut books, keys) = high();
    let before = books.next.load(Ordering::Relaxed);
    for round in 0..100 {
        tree.insert(&store, &mut books, keys[0], &Item::Bytes(vec![round; 900])).unwrap();
    }
    assert_eq!(books.next.load(Ordering::Relaxed) - before, 3);
    assert_eq!(tree.dirty().len(), 3);
    let snapshot = tree.clone();
    tree.insert(&store, &mut books, keys[0], &Item::Bytes(vec![])).unwrap();
    assert_eq!(books.next.load(Ordering::Relaxed) - before, 6);
    drop(snapshot);
    tree.insert(&store, &mut books, keys[0], &Item::Bytes(vec![7])).unwrap();
    assert_eq!(books.next.load(Ordering::Relaxed) - before, 6);
    verify(&tree, &store, &books);
}

#[test]
fn a_snapshot_being_written_changes_neither_for_its_readers_nor_for_the_head() {
    let (mut tree, store, mut books, keys) = high();
    for key in &keys[..50] {
        tree.insert(&store, &mut books, *key, &Item::Bytes(vec![1])).unwrap();
    }
    let (frozen, frozen_books) = (tree.clone(), books.clone());
    let slots = frozen.dirty();
    for (round, slot) in slots.iter().enumerate() {
        tree.insert(&store, &mut books, keys[round % 50], &Item::Bytes(vec![2])).unwrap();
        let mut block = [0; BLOCK_BYTES];
        slot.encode(&mut block);
        store.put(slot.address(), block);
    }
    for slot in slots.iter().rev() {
        tree.insert(&store, &mut books, keys[slot.address().0 as usize % 50], &Item::Bytes(vec![3])).unwrap();
        slot.mark_written(&store);
        assert_eq!(frozen.get(&store, keys[49]).unwrap(), Some(Item::Bytes(vec![1])));
    }
    verify(&frozen, &store, &frozen_books);
    verify(&tree, &store, &books);
    store.write_all(&tree);
    verify(&Tree::at(tree.root_address()), &store, &books);
    verify(&Tree::at(frozen.root_address()), &store, &frozen_books);
}

#[test]
fn a_difference_reads_only_what_differs() {
    let (tree, store, books, keys) = high();
    let (mut changed, mut books) = (tree.clone(), books);
    changed.remove(&store, &mut books, keys[17]).unwrap();
    changed.insert(&store, &mut books, keys[18], &Item::Bytes(vec![1])).unwrap();
    let before = store.loads.load(Ordering::Relaxed);
    let mut count = 0;
    let mut visit = |_, _, _| {
        count += 1;
        Ok(())
    };
    Tree::difference(&tree, &changed, &store, &mut visit).unwrap();
    assert_eq!(count, 2);
    assert!(store.loads.load(Ordering::Relaxed) - before <= 12);
}

#[test]
fn removing_everything_leaves_one_node() {
    let (mut tree, store, mut books, mut keys) = high();
    keys.sort();
    for key in keys.iter().skip(1).step_by(2).chain(keys.iter().step_by(2)) {
        assert!(tree.remove(&store, &mut books, *key).unwrap().is_some());
    }
    verify(&tree, &store, &books);
    assert_eq!(books.live.len(), 1);
}

#[test]
fn removal_in_order_keeps_the_tree_small() {
    let (mut tree, store, mut books, mut keys) = high();
    keys.sort();
    for (done, key) in keys.iter().rev().enumerate() {
        assert!(tree.remove(&store, &mut books, *key).unwrap().is_some());
        assert!(books.live.len() <= (keys.len() - done) / 2 + 10);
    }
    verify(&tree, &store, &books);
}

#[test]
fn a_change_reads_nothing_but_its_path() {
    let (mut tree, store, mut books, keys) = high();
    let before = store.loads.load(Ordering::Relaxed);
    tree.insert(&store, &mut books, keys[5], &Item::Bytes(vec![])).unwrap();
    assert_eq!(store.loads.load(Ordering::Relaxed) - before, 3);
}
