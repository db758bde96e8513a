//! Random histories with several clones, against ordered maps.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Put {
        tree: usize,
        seed: u64,
    },
    Remove {
        tree: usize,
        seed: u64,
    },
    /// Many puts or removals of scattered keys.
    Bulk {
        tree: usize,
        seed: u64,
        count: u16,
        remove: bool,
    },
    /// Puts of ascending keys.
    Ascend {
        tree: usize,
        inode: u64,
        count: u16,
    },
    /// Removes a range of keys, as a truncation does.
    Clear {
        tree: usize,
        seed: u64,
    },
    Clone {
        tree: usize,
    },
    Forget {
        tree: usize,
    },
    Write {
        tree: usize,
    },
    /// A change while nodes can only be loaded `budget` times.
    Fail {
        tree: usize,
        seed: u64,
        budget: u64,
    },
    /// A reader keeps a path of contents for the time of a change.
    Read {
        tree: usize,
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let tree = 0..8usize;
    prop_oneof![
        4 => (tree.clone(), any::<u64>()).prop_map(|(tree, seed)| Step::Put { tree, seed }),
        2 => (tree.clone(), any::<u64>()).prop_map(|(tree, seed)| Step::Remove { tree, seed }),
        3 => (tree.clone(), any::<u64>(), 1..1200u16, any::<bool>())
            .prop_map(|(tree, seed, count, remove)| Step::Bulk { tree, seed, count, remove }),
        1 => (tree.clone(), 1..5u64, 1..2000u16).prop_map(|(tree, inode, count)| Step::Ascend { tree, inode, count }),
        2 => (tree.clone(), any::<u64>()).prop_map(|(tree, seed)| Step::Clear { tree, seed }),
        2 => tree.clone().prop_map(|tree| Step::Clone { tree }),
        1 => tree.clone().prop_map(|tree| Step::Forget { tree }),
        2 => tree.clone().prop_map(|tree| Step::Write { tree }),
        3 => (tree.clone(), any::<u64>(), 0..6u64).prop_map(|(tree, seed, budget)| Step::Fail { tree, seed, budget }),
        1 => (tree, any::<u64>()).prop_map(|(tree, seed)| Step::Read { tree, seed }),
    ]
}

/// Few inodes, so that keys meet; directory entries spread out, so that interior nodes are many.
fn key(random: &mut Random) -> Key {
    let inode = InodeNumber(1 + random.below(4));
    match random.below(8) {
        0 => Key::new(inode, ItemKind::Inode, 0),
        1 => Key::new(inode, ItemKind::Xattr, random.below(50)),
        2..5 => Key::new(inode, ItemKind::Extent, random.below(3000) * 4),
        _ => {
            Key::new(inode, ItemKind::DirectoryEntry, random.below(1500).wrapping_mul(0x9E37_79B9_7F4A_7C15))
        }
    }
}

fn item(key: Key, random: &mut Random) -> Item {
    match key.kind() {
        Some(ItemKind::Extent) => {
            let stream = if random.below(8) == 0 { Stream::Merged } else { Stream::Data };
            let length = if random.below(4) == 0 { 1 + random.below(16_383) } else { 4 };
            extent(stream, random.below(1 << 28), length)
        }
        Some(ItemKind::Inode) => Item::Bytes(vec![random.next() as u8; 100]),
        _ => Item::Bytes(vec![random.next() as u8; random.below(ITEM_BYTES_MAX as u64 + 1) as usize]),
    }
}

struct Version {
    tree: Tree,
    books: Books,
    model: BTreeMap<Key, Item>,
}

impl Version {
    fn put(&mut self, store: &Store, key: Key, item: Item) -> Result<()> {
        let former = self.tree.insert(store, &mut self.books, key, &item)?;
        assert_eq!(former, self.model.insert(key, item));
        Ok(())
    }

    fn remove(&mut self, store: &Store, key: Key) -> Result<()> {
        let former = self.tree.remove(store, &mut self.books, key)?;
        assert_eq!(former, self.model.remove(&key));
        Ok(())
    }

    fn change(&mut self, store: &Store, random: &mut Random, remove: bool) -> Result<()> {
        let key = key(random);
        if remove { self.remove(store, key) } else { self.put(store, key, item(key, random)) }
    }

    fn verify(&self, store: &Store, random: &mut Random) {
        super::verify(&self.tree, store, &self.books);
        let all: Vec<_> = self.tree.range(store, Key::MIN, Key::MAX).map(Result::unwrap).collect();
        assert!(all.iter().map(|(key, item)| (key, item)).eq(self.model.iter()));
        for _ in 0..20 {
            let (one, other) = (key(random), key(random));
            assert_eq!(self.tree.get(store, one).unwrap().as_ref(), self.model.get(&one));
            let before = self.model.range(..=one).next_back().map(|(key, item)| (*key, item.clone()));
            assert_eq!(self.tree.at_or_before(store, one).unwrap(), before);
            let part = self.tree.range(store, one.min(other), one.max(other)).take(50).map(Result::unwrap);
            let expected = self.model.range(one.min(other)..one.max(other)).take(50);
            assert!(part.eq(expected.map(|(key, item)| (*key, item.clone()))));
        }
    }
}

fn run(versions: &mut Vec<Version>, store: &Store, step: &Step) -> Result<()> {
    let (Step::Put { tree, .. }
    | Step::Remove { tree, .. }
    | Step::Bulk { tree, .. }
    | Step::Ascend { tree, .. }
    | Step::Clear { tree, .. }
    | Step::Clone { tree }
    | Step::Forget { tree }
    | Step::Write { tree }
    | Step::Fail { tree, .. }
    | Step::Read { tree, .. }) = step;
    let index = tree % versions.len();
    let version = &mut versions[index];
    match *step {
        Step::Put { seed, .. } => version.change(store, &mut Random(seed), false)?,
        Step::Remove { seed, .. } => version.change(store, &mut Random(seed), true)?,
        Step::Bulk { seed, count, remove, .. } => {
            let mut random = Random(seed);
            for _ in 0..count {
                version.change(store, &mut random, remove)?;
            }
        }
        Step::Ascend { inode, count, .. } => {
            for block in 0..u64::from(count) {
                version.put(store, extent_key(inode, block * 8), extent(Stream::Data, block * 9, 8))?;
            }
        }
        Step::Clear { seed, .. } => {
            let mut random = Random(seed);
            let (one, other) = (key(&mut random), key(&mut random));
            let keys: Vec<_> =
                version.model.range(one.min(other)..one.max(other)).map(|(key, _)| *key).collect();
            for key in keys {
                version.remove(store, key)?;
            }
        }
        Step::Clone { .. } => {
            let (tree, books, model) = (version.tree.clone(), version.books.clone(), version.model.clone());
            versions.push(Version { tree, books, model });
        }
        Step::Forget { .. } => {
            if versions.len() > 1 {
                versions.remove(index);
            }
        }
        Step::Write { .. } => store.write_all(&version.tree),
        Step::Fail { seed, budget, .. } => {
            let books = version.books.live.clone();
            store.fail_after(Some(budget));
            let mut random = Random(seed);
            let remove = random.below(2) == 0;
            let outcome = version.change(store, &mut random, remove);
            store.fail_after(None);
            if outcome.is_err() {
                assert_eq!(version.books.live, books, "a failed change leaves no trace");
            }
        }
        Step::Read { seed, .. } => {
            let mut random = Random(seed);
            let mut range = version.tree.range(store, key(&mut random), Key::MAX);
            let first = range.next().transpose()?;
            version.change(store, &mut random, false)?;
            drop((range, first));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(48), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_version_is_a_map_of_its_own(steps in prop::collection::vec(step(), 1..40)) {
        let store = Store::default();
        let mut books = Books::default();
        let tree = Tree::new(&mut books);
        let mut versions = vec![Version { tree, books, model: BTreeMap::new() }];
        let mut random = Random(1);
        for batch in steps.chunks(8) {
            for step in batch {
                run(&mut versions, &store, step).unwrap();
            }
            for version in &versions {
                version.verify(&store, &mut random);
            }
            for (one, other) in versions.iter().zip(versions.iter().skip(1)) {
                verify_difference(one, other, &store);
            }
        }
    }
}

fn verify_difference(one: &Version, other: &Version, store: &Store) {
    let mut found = Vec::new();
    Tree::difference(&one.tree, &other.tree, store, &mut |key, a, b| {
        found.push((key, a, b));
        Ok(())
    })
    .unwrap();
    let keys: BTreeSet<_> = one.model.keys().chain(other.model.keys()).collect();
    let expected: Vec<_> = keys
        .into_iter()
        .map(|key| (*key, one.model.get(key).cloned(), other.model.get(key).cloned()))
        .filter(|(_, a, b)| a != b)
        .collect();
    assert_eq!(found, expected);
}
