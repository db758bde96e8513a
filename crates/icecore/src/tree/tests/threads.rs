//! Readers of clones, a writer and a checkpoint, at the same time.

use super::*;
use std::sync::atomic::AtomicBool;
use std::thread;

const KEYS: u64 = 3000;

/// Sets every key to `round`, in an order of its own.
fn set_all(tree: &mut Tree, store: &Store, books: &mut Books, round: u64) {
    for step in 0..KEYS {
        let key = extent_key(1, step * 1009 % KEYS);
        tree.insert(store, books, key, &extent(Stream::Data, round, 1)).unwrap();
    }
}

fn read_all(tree: &Tree, store: &Store) -> BTreeSet<u64> {
    let all = tree.range(store, Key::MIN, Key::MAX);
    all.map(|entry| entry.unwrap().1.extent().unwrap().run.start.0).collect()
}

#[test]
fn clones_read_alike_while_the_head_changes_and_is_written() {
    let (store, mut books) = (Store::default(), Books::default());
    let mut head = Tree::new(&mut books);
    set_all(&mut head, &store, &mut books, 0);
    let current = Mutex::new((head.clone(), 0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let (tree, round) = current.lock().clone();
                    assert_eq!(read_all(&tree, &store), BTreeSet::from([round]));
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (tree, _) = current.lock().clone();
                store.write_all(&tree);
                thread::yield_now();
            }
        });
        for round in 1..40 {
            set_all(&mut head, &store, &mut books, round);
            *current.lock() = (head.clone(), round);
        }
        done.store(true, Ordering::Relaxed);
    });
    verify(&head, &store, &books);
}
