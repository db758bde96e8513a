//! Random histories with snapshots, against the model.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Action {
    Create {
        parent: u64,
        name: u64,
        kind: u64,
    },
    Link {
        inode: u64,
        parent: u64,
        name: u64,
    },
    Remove {
        parent: u64,
        name: u64,
        directory: bool,
    },
    Rename {
        from: (u64, u64),
        to: (u64, u64),
        how: u64,
    },
    Map {
        inode: u64,
        first: u64,
        length: u64,
        gap: bool,
        merged: bool,
    },
    /// Many small overwrites.
    Scatter {
        inode: u64,
        seed: u64,
        count: u64,
    },
    Unmap {
        inode: u64,
        first: u64,
        end: u64,
        limit: usize,
    },
    Resize {
        inode: u64,
        size: u64,
        limit: usize,
    },
    Xattr {
        inode: u64,
        name: u64,
        length: usize,
        how: u64,
        remove: bool,
    },
    Release {
        inode: u64,
        limit: usize,
    },
}

#[derive(Clone, Debug)]
enum Step {
    /// An action; if `budget` is given, while so many nodes can be read.
    Act {
        version: usize,
        action: Action,
        budget: Option<u64>,
    },
    Snapshot {
        version: usize,
    },
    Forget {
        version: usize,
    },
    Write {
        version: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let (inode, name) = (0..1u64 << 32, 0..24u64);
    let place = (inode.clone(), name.clone());
    prop_oneof![
        4 => (inode.clone(), name.clone(), 0..10u64)
            .prop_map(|(parent, name, kind)| Action::Create { parent, name, kind }),
        2 => (inode.clone(), inode.clone(), name.clone())
            .prop_map(|(inode, parent, name)| Action::Link { inode, parent, name }),
        3 => (inode.clone(), name.clone(), any::<bool>())
            .prop_map(|(parent, name, directory)| Action::Remove { parent, name, directory }),
        6 => (place.clone(), place, 0..4u64).prop_map(|(from, to, how)| Action::Rename { from, to, how }),
        6 => (inode.clone(), 0..64u64, 1..24u64, any::<bool>(), any::<bool>())
            .prop_map(|(inode, first, length, gap, merged)| Action::Map { inode, first, length, gap, merged }),
        1 => (inode.clone(), any::<u64>(), 1..600u64)
            .prop_map(|(inode, seed, count)| Action::Scatter { inode, seed, count }),
        1 => (inode.clone(), 0..100_000u64, 16_380..16_400u64).prop_map(|(inode, first, length)| Action::Map {
            inode, first, length, gap: false, merged: false
        }),
        3 => (inode.clone(), 0..100u64, 0..5000u64, 1..9usize)
            .prop_map(|(inode, first, end, limit)| Action::Unmap { inode, first, end, limit }),
        2 => (inode.clone(), 0..1u64 << 20, 1..200usize)
            .prop_map(|(inode, size, limit)| Action::Resize { inode, size, limit }),
        3 => (inode.clone(), name, prop_oneof![0..2000usize, Just(65_536), Just(1000)], 0..4u64, any::<bool>())
            .prop_map(|(inode, name, length, how, remove)| Action::Xattr { inode, name, length, how, remove }),
        2 => (inode, 1..300usize).prop_map(|(inode, limit)| Action::Release { inode, limit }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let version = 0..6usize;
    let budget = prop_oneof![3 => Just(None), 1 => (0..12u64).prop_map(Some)];
    prop_oneof![
        20 => (version.clone(), action(), budget)
            .prop_map(|(version, action, budget)| Step::Act { version, action, budget }),
        1 => version.clone().prop_map(|version| Step::Snapshot { version }),
        1 => version.clone().prop_map(|version| Step::Forget { version }),
        1 => version.prop_map(|version| Step::Write { version }),
    ]
}

fn name(number: u64) -> Vec<u8> {
    match number {
        20 => b"..".to_vec(),
        21 => b"a/b".to_vec(),
        22 => vec![b'x'; 256],
        23 => vec![b'y'; 255],
        _ => format!("{number}").into_bytes(),
    }
}

/// Mostly an inode that exists; the root more often than others.
fn pick(model: &Model, number: u64) -> u64 {
    match number % 8 {
        0 => 1,
        1 => number % (model.next + 1),
        _ => *model.inodes.keys().nth((number / 8) as usize % model.inodes.len()).expect("the root exists"),
    }
}

/// Mostly a directory.
fn pick_directory(model: &Model, number: u64) -> u64 {
    let mut directories = model.inodes.iter().filter(|(_, item)| item.kind == InodeKind::Directory);
    let count = directories.clone().count();
    if number.is_multiple_of(16) {
        pick(model, number / 16)
    } else {
        *directories.nth(number as usize / 16 % count).expect("the root exists").0
    }
}

/// What is common to all versions: time, and the tails of the streams.
#[derive(Default)]
struct Clock {
    time: i64,
    tails: [u64; 2],
}

impl Clock {
    fn draw(&mut self, length: u64, gap: bool, merged: bool) -> Run {
        let tail = &mut self.tails[usize::from(merged)];
        *tail += u64::from(gap);
        let start = LogAddress(*tail);
        *tail += length;
        Run { stream: if merged { Stream::Merged } else { Stream::Data }, start, length: BlockCount(length) }
    }
}

impl Version {
    /// Performs an action on the tree, and on a model that takes the place of the old one if it succeeds.
    fn act(&mut self, store: &Store, action: &Action, clock: &mut Clock) -> Result<()> {
        clock.time += 1;
        let time = clock.time;
        let mut model = self.model.clone();
        self.perform(store, action, clock, &mut model, time)?;
        self.model = model;
        Ok(())
    }

    fn perform(
        &mut self,
        store: &Store,
        action: &Action,
        clock: &mut Clock,
        model: &mut Model,
        time: i64,
    ) -> Result<()> {
        let now = Timestamp(time);
        match *action {
            Action::Create { parent, name: number, kind } => {
                let kind = [
                    InodeKind::File,
                    InodeKind::File,
                    InodeKind::Directory,
                    InodeKind::Directory,
                    InodeKind::Directory,
                ]
                .get(kind as usize)
                .copied()
                .or_else(|| InodeKind::from_number(kind as u8 - 2))
                .unwrap_or(InodeKind::File);
                let (parent, name) = (pick_directory(model, parent), name(number));
                let target = if kind == InodeKind::Symlink {
                    vec![b't'; number as usize * 200 % 4096]
                } else {
                    vec![]
                };
                let expected = model.create(parent, &name, kind, &target, time);
                let (parent, new) = (InodeNumber(parent), new_inode(kind, time));
                let mut writer = self.writer(store);
                let found = if kind == InodeKind::Symlink {
                    expect(writer.create_symlink(parent, &name, &target, &new))?
                } else {
                    expect(writer.create(parent, &name, &new))?
                };
                assert_eq!(found.map(|made| made.inode.0), expected);
                if let Ok(made) = found {
                    assert_eq!(self.reader(store).inode(made.inode)?, made.attributes);
                }
            }
            Action::Link { inode, parent, name: number } => {
                let (inode, parent, name) = (pick(model, inode), pick_directory(model, parent), name(number));
                let expected = model.link(inode, parent, &name, time);
                let outcome = self.writer(store).link(InodeNumber(inode), InodeNumber(parent), &name, now);
                assert_eq!(expect(outcome)?.map(drop), expected);
            }
            Action::Remove { parent, name: number, directory } => {
                let (parent, name) = (pick_directory(model, parent), name(number));
                let expected = model.remove(parent, &name, directory, time);
                let mut writer = self.writer(store);
                let found = if directory {
                    expect(writer.remove_directory(InodeNumber(parent), &name, now))?
                } else {
                    expect(writer.unlink(InodeNumber(parent), &name, now))?
                };
                let orphan = |done: Unlinked| Some(done.inode.0).filter(|_| done.orphaned);
                assert_eq!(found.map(orphan), expected);
            }
            Action::Rename { from, to, how } => {
                let how = [RenameHow::Replace, RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange]
                    [how as usize];
                let (from, to) = (
                    (pick_directory(model, from.0), name(from.1)),
                    (pick_directory(model, to.0), name(to.1)),
                );
                let expected = model.rename((from.0, &from.1), (to.0, &to.1), how, time);
                let outcome = self.writer(store).rename(
                    (InodeNumber(from.0), &from.1),
                    (InodeNumber(to.0), &to.1),
                    how,
                    now,
                );
                let orphan =
                    |done: RenameOutcome| done.replaced.filter(|_| done.orphaned).map(|inode| inode.0);
                assert_eq!(expect(outcome)?.map(orphan), expected);
            }
            Action::Map { inode, first, length, gap, merged } => {
                let inode = pick(model, inode);
                let run = clock.draw(length, gap, merged);
                self.map(store, model, inode, first, run, time)?;
            }
            Action::Scatter { inode, seed, count } => {
                let inode = pick(model, inode);
                let mut random = Random(seed);
                for _ in 0..count {
                    let run = clock.draw(1 + random.below(4), true, false);
                    if let Err(error) = self.map(store, model, inode, random.below(5000), run, time) {
                        // Each is an operation of its own: what is done stays done.
                        self.model = model.clone();
                        return Err(error);
                    }
                }
            }
            Action::Unmap { inode, first, end, limit } => {
                let inode = pick(model, inode);
                let outcome = self.writer(store).unmap(
                    InodeNumber(inode),
                    FileBlock(first),
                    FileBlock(end),
                    limit,
                    now,
                );
                let done = self.unmapped(expect(outcome)?, first, end);
                let expected = model.file(inode, time).map(|file| cut(file, first, done));
                assert_eq!(expected.err(), done.err());
            }
            Action::Resize { inode, size, limit } => {
                let inode = pick(model, inode);
                let outcome = self.writer(store).set_size(InodeNumber(inode), size, limit, now);
                let first = size.div_ceil(4096);
                let done = self.unmapped(expect(outcome)?, first, u64::MAX);
                let expected = model.file(inode, time).map(|file| {
                    if size < file.size {
                        cut(file, first, done);
                    }
                    file.size = size;
                });
                assert_eq!(expected.err(), done.err());
            }
            Action::Xattr { inode, name: number, length, how, remove } => {
                let (inode, name) = (pick(model, inode), format!("user.{number}").into_bytes());
                let how = [XattrHow::Set, XattrHow::Set, XattrHow::Create, XattrHow::Replace][how as usize];
                let value = vec![time as u8; length];
                let (expected, outcome) = if remove {
                    let expected = model.xattr(inode, &name, None, XattrHow::Replace, time);
                    (expected, self.writer(store).remove_xattr(InodeNumber(inode), &name, now))
                } else {
                    let expected = model.xattr(inode, &name, Some(&value), how, time);
                    (expected, self.writer(store).set_xattr(InodeNumber(inode), &name, &value, how, now))
                };
                assert_eq!(expect(outcome)?, expected);
            }
            Action::Release { inode, limit } => {
                let orphans: Vec<_> = model
                    .inodes
                    .iter()
                    .filter(|(_, item)| item.links == 0)
                    .map(|(inode, _)| *inode)
                    .collect();
                let Some(inode) = orphans.get(inode as usize % orphans.len().max(1)) else { return Ok(()) };
                while self.writer(store).release_orphan(InodeNumber(*inode), limit)? == Release::Unfinished {
                    check(&self.reader(store))?;
                }
                model.inodes.remove(inode);
            }
        }
        Ok(())
    }

    fn map(
        &mut self,
        store: &Store,
        model: &mut Model,
        inode: u64,
        first: u64,
        run: Run,
        time: i64,
    ) -> Result<()> {
        let size = (first + run.length.0) * 4096 - 1;
        let touch = Touch { time: Timestamp(time), size_at_least: size };
        let blocks = (run.start.0..run.end().0).map(|address| (run.stream, address));
        self.accounts.data.extend(blocks.clone());
        let outcome = self.writer(store).map_run(InodeNumber(inode), FileBlock(first), run, touch);
        if outcome.is_err() {
            blocks.clone().for_each(|address| assert!(self.accounts.data.remove(&address)));
        }
        let found = expect(outcome)?;
        let expected = model.file(inode, time).map(|file| {
            file.blocks.extend((first..).zip(blocks));
            file.size = file.size.max(size);
        });
        assert_eq!(found, expected);
        Ok(())
    }

    /// Up to where blocks were taken away.
    fn unmapped(
        &self,
        outcome: std::result::Result<Option<FileBlock>, FileFault>,
        first: u64,
        end: u64,
    ) -> std::result::Result<u64, FileFault> {
        outcome.map(|next| next.map_or(end, |next| next.0).max(first))
    }
}

fn cut(file: &mut model::ModelInode, first: u64, done: std::result::Result<u64, FileFault>) {
    file.blocks.retain(|block, _| *block < first || done.is_ok_and(|done| *block >= done));
}

/// Separates faults, which the model must have too, from errors that were injected.
fn expect<T>(outcome: Result<T>) -> Result<std::result::Result<T, FileFault>> {
    match outcome {
        Ok(answer) => Ok(Ok(answer)),
        Err(Error::File(fault)) => Ok(Err(fault)),
        Err(other) => Err(other),
    }
}

fn run(versions: &mut Vec<Version>, store: &Store, step: &Step, clock: &mut Clock) {
    let count = versions.len();
    match step {
        Step::Act { version, action, budget } => {
            // Releasing in several steps is tested without errors: the model does not know how far it came.
            let budget = budget.filter(|_| !matches!(action, Action::Release { .. }));
            store.fail_after(budget);
            let outcome = versions[version % count].act(store, action, clock);
            store.fail_after(None);
            assert!(outcome.is_ok() || budget.is_some(), "{outcome:?}");
        }
        Step::Snapshot { version } => versions.push(versions[version % count].clone()),
        Step::Forget { version } => drop((count > 1).then(|| versions.remove(version % count))),
        Step::Write { version } => store.write_all(&versions[version % count].tree),
    }
}

fn histories(steps: &[Step], hash: NameHash) {
    let store = Store::default();
    let mut clock = Clock::default();
    let mut versions = vec![Version::new(&store, hash)];
    for batch in steps.chunks(12) {
        for step in batch {
            run(&mut versions, &store, step, &mut clock);
        }
        versions.iter().for_each(|version| version.verify(&store));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(32), max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn every_version_is_a_file_system(steps in prop::collection::vec(step(), 1..120)) {
        histories(&steps, name_hash);
    }

    #[test]
    fn names_may_collide(steps in prop::collection::vec(step(), 1..80)) {
        histories(&steps, weak_hash);
    }
}
