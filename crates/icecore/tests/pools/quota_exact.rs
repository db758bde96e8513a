//! Quotas are exact: a change is refused if and only if, after it, what `list` shows would be beyond the
//! limit. A twin of the pool that has no limit in the way shows what the change comes to.

use crate::quota::{entry, make, open, set};
use icecore::limits::Limit;
use icecore::units::InodeNumber;
use icecore::{AttributeChange, Creation, Dataset, Error, ListFilter, Pool, RenameHow, XattrHow};
use proptest::prelude::*;
use std::path::Path;

const BLOCK: u64 = 4096;
/// As good as none.
const UNLIMITED: u64 = 900_000_000;
const ROOT: InodeNumber = InodeNumber::ROOT;

/// The figure that a limit is about.
fn figure(pool: &Pool, dataset: &str, limit: Limit) -> u64 {
    let entry = entry(pool, dataset);
    if limit == Limit::Quota { entry.used.0 } else { entry.referenced.0 }
}

fn file(dataset: &Dataset, name: &str) -> Result<InodeNumber, Error> {
    dataset.open_or_create(name.as_bytes(), &Creation::file())
}

/// Something that changes a dataset in one step.
#[derive(Clone, Debug)]
enum Change {
    /// Blocks here and there, in one group.
    Scattered {
        file: u8,
        at: Vec<u16>,
    },
    /// A few bytes here and there, in one group.
    Patched {
        file: u8,
        at: Vec<u16>,
    },
    /// The file is cut, grows again, and more is written, in one group.
    Rewritten {
        file: u8,
        cut: u16,
        at: Vec<u16>,
    },
    /// Blocks in both datasets, in one commit.
    Both {
        at: Vec<u16>,
    },
    Write {
        file: u8,
        at: u16,
        blocks: u8,
    },
    Unaligned {
        file: u8,
        at: u32,
        length: u16,
    },
    Longer {
        file: u8,
        by: u16,
    },
    Create {
        name: u8,
        length: u8,
    },
    Symlink {
        name: u8,
        length: u16,
    },
    Xattr {
        file: u8,
        name: u8,
        length: u16,
    },
    Rename {
        from: u8,
        to: u8,
    },
    Attributes {
        file: u8,
    },
    Dataset,
}

/// What may happen before, whatever it comes to.
#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    Snapshot,
    Destroy,
    Truncate { file: u8, to: u16 },
    Punch { file: u8, at: u16, blocks: u8 },
    Unlink { name: u8 },
    Checkpoint,
}

fn changes() -> impl Strategy<Value = Change> {
    let file = || 0..3u8;
    let places = |most| proptest::collection::vec(0..600u16, 1..most);
    prop_oneof![
        4 => (file(), places(60)).prop_map(|(file, at)| Change::Scattered { file, at }),
        2 => (file(), places(9)).prop_map(|(file, at)| Change::Patched { file, at }),
        2 => (file(), 0..600u16, places(300)).prop_map(|(file, cut, at)| Change::Rewritten { file, cut, at }),
        1 => places(30).prop_map(|at| Change::Both { at }),
        3 => (file(), 0..600u16, 1..200u8).prop_map(|(file, at, blocks)| Change::Write { file, at, blocks }),
        2 => (file(), 0..2_000_000u32, 1..9000u16).prop_map(|(file, at, length)| Change::Unaligned { file, at, length }),
        1 => (file(), 0..900u16).prop_map(|(file, by)| Change::Longer { file, by }),
        2 => (0..60u8, 1..200u8).prop_map(|(name, length)| Change::Create { name, length }),
        1 => (0..60u8, 1..4000u16).prop_map(|(name, length)| Change::Symlink { name, length }),
        2 => (file(), 0..8u8, 0..9000u16).prop_map(|(file, name, length)| Change::Xattr { file, name, length }),
        1 => (0..60u8, 0..60u8).prop_map(|(from, to)| Change::Rename { from, to }),
        1 => file().prop_map(|file| Change::Attributes { file }),
        1 => Just(Change::Dataset),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => changes().prop_map(Step::Change),
        3 => Just(Step::Snapshot),
        1 => Just(Step::Destroy),
        1 => (0..3u8, 0..600u16).prop_map(|(file, to)| Step::Truncate { file, to }),
        1 => (0..3u8, 0..600u16, 1..200u8).prop_map(|(file, at, blocks)| Step::Punch { file, at, blocks }),
        1 => (0..60u8).prop_map(|name| Step::Unlink { name }),
        1 => Just(Step::Checkpoint),
    ];
    proptest::collection::vec(step, 0..10)
}

/// Which limit is put to the test.
const LIMITS: [(&str, Limit); 3] = [("t", Limit::Quota), ("t/a", Limit::Quota), ("t/a", Limit::RefQuota)];

fn file_name(number: u8) -> String {
    format!("f{number}")
}

fn name(number: u8, length: u8) -> String {
    format!("{number}-{}", "n".repeat(length.into()))
}

/// The name that begins so, if there is one.
fn named(dataset: &Dataset, number: u8) -> Option<Vec<u8>> {
    let prefix = format!("{number}-");
    let entries = dataset.view().unwrap().read_directory(ROOT, 0, usize::MAX).unwrap();
    entries.into_iter().map(|one| one.name.to_vec()).find(|one| one.starts_with(prefix.as_bytes()))
}

/// Makes a change. What it is about was made before.
fn apply(pool: &Pool, change: &Change, serial: usize) -> Result<(), Error> {
    let a = pool.dataset("t/a").unwrap();
    let content = |length: usize| vec![serial as u8 + 1; length];
    let inode = |number: u8| file(&a, &file_name(number)).unwrap();
    match change {
        Change::Scattered { file, at } => {
            let mut group = a.begin()?;
            for place in at {
                group.write(inode(*file), u64::from(*place) * BLOCK, &content(BLOCK as usize))?;
            }
            pool.commit(vec![group]).map(drop)
        }
        Change::Patched { file, at } => {
            let mut group = a.begin()?;
            for place in at {
                group.write(inode(*file), u64::from(*place) * BLOCK + 100, &content(20))?;
            }
            pool.commit(vec![group]).map(drop)
        }
        Change::Rewritten { file, cut, at } => {
            let mut group = a.begin()?;
            group.truncate(inode(*file), u64::from(*cut) * BLOCK + 1000)?;
            for place in at {
                group.write(inode(*file), u64::from(*place) * BLOCK, &content(BLOCK as usize))?;
            }
            pool.commit(vec![group]).map(drop)
        }
        Change::Both { at } => {
            let b = pool.dataset("t/b").unwrap();
            let in_b = file(&b, "f").unwrap();
            let (mut first, mut second) = (a.begin()?, b.begin()?);
            for place in at {
                first.write(inode(0), u64::from(*place) * BLOCK, &content(BLOCK as usize))?;
                second.write(in_b, u64::from(*place) * BLOCK, &content(BLOCK as usize))?;
            }
            pool.commit(vec![first, second]).map(drop)
        }
        Change::Write { file, at, blocks } => {
            a.write(inode(*file), u64::from(*at) * BLOCK, &content(usize::from(*blocks) * BLOCK as usize))
        }
        Change::Unaligned { file, at, length } => {
            a.write(inode(*file), u64::from(*at), &content(usize::from(*length)))
        }
        Change::Longer { file, by } => {
            let size = a.view()?.attributes(inode(*file))?.size;
            a.truncate(inode(*file), size + u64::from(*by))
        }
        Change::Create { name: number, length } => {
            a.create(ROOT, name(*number, *length).as_bytes(), &Creation::file()).map(drop)
        }
        Change::Symlink { name: number, length } => {
            let target = vec![b'x'; usize::from(*length)];
            a.create_symlink(ROOT, name(*number, 3).as_bytes(), &target, &Creation::file()).map(drop)
        }
        Change::Xattr { file, name, length } => {
            let value = content(usize::from(*length));
            a.set_xattr(inode(*file), format!("user.{name}").as_bytes(), &value, XattrHow::Set)
        }
        Change::Rename { from, to } => match (named(&a, *from), named(&a, *to)) {
            (Some(from), Some(to)) if from != to => {
                a.rename((ROOT, &from), (ROOT, &to), RenameHow::Replace).map(drop)
            }
            (Some(from), None) => {
                a.rename((ROOT, &from), (ROOT, name(*to, 40).as_bytes()), RenameHow::Replace).map(drop)
            }
            _ => Ok(()),
        },
        Change::Attributes { file } => {
            let change =
                AttributeChange { mode: Some(0o600 + serial as u16 % 8), ..AttributeChange::default() };
            a.set_attributes(inode(*file), &change).map(drop)
        }
        Change::Dataset => pool.create_dataset(&format!("t/a/x{serial}/y"), true, &[]),
    }
}

/// Does a step, on a pool that has no limits.
fn prepare(pool: &Pool, step: &Step, serial: usize) {
    let a = pool.dataset("t/a").unwrap();
    match step {
        Step::Change(change) => match apply(pool, change, serial) {
            Ok(()) | Err(Error::File(_)) => {}
            Err(error) => panic!("{change:?}: {error}"),
        },
        Step::Snapshot => drop(pool.snapshot(&[format!("t/a@s{serial}")], false, &[]).unwrap()),
        Step::Destroy => {
            let filter =
                ListFilter { root: Some("t/a".into()), depth: Some(0), datasets: false, snapshots: true };
            if let Some(first) = pool.list(&filter).unwrap().first() {
                drop(pool.destroy(&icecore::DestroyTarget::Snapshot(first.name.clone())).unwrap());
            }
        }
        Step::Truncate { file: number, to } => {
            a.truncate(file(&a, &file_name(*number)).unwrap(), u64::from(*to) * BLOCK + 17).unwrap();
        }
        Step::Punch { file: number, at, blocks } => {
            let inode = file(&a, &file_name(*number)).unwrap();
            a.punch_hole(inode, u64::from(*at) * BLOCK + 5, u64::from(*blocks) * BLOCK).unwrap();
        }
        Step::Unlink { name } => {
            if let Some(name) = named(&a, *name) {
                a.unlink(ROOT, &name).unwrap();
            }
        }
        Step::Checkpoint => pool.checkpoint().unwrap(),
    }
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Everything that a list shows of datasets.
fn figures(pool: &Pool) -> Vec<(String, u64, u64)> {
    let filter = ListFilter { root: Some("t".into()), depth: None, datasets: true, snapshots: false };
    let entries = pool.list(&filter).unwrap();
    entries.into_iter().map(|one| (one.name, one.used.0, one.referenced.0)).collect()
}

/// What a change that was refused would have added, and that nothing but a limit is the reason.
fn asked(outcome: Result<(), Error>, of: &str, limit: Limit) -> u64 {
    match outcome {
        Err(Error::QuotaExceeded { dataset, limit: name, asked, .. }) => {
            assert_eq!((&*dataset, name), (of, limit.name()));
            asked.0
        }
        other => panic!("{other:?}"),
    }
}

/// Makes a change that adds something with the least limit that allows it, and sees that nothing less does.
fn make_at_the_limit(pool: &Pool, of: &str, limit: Limit, change: impl Fn() -> Result<(), Error>) -> u64 {
    let before = figure(pool, of, limit);
    set(pool, of, limit, before);
    let more = asked(change(), of, limit);
    set(pool, of, limit, before + more - BLOCK);
    assert_eq!(asked(change(), of, limit), more);
    assert_eq!(figure(pool, of, limit), before);
    set(pool, of, limit, before + more);
    change().unwrap();
    assert_eq!(figure(pool, of, limit), before + more);
    more
}

#[test]
fn in_a_high_tree_of_which_snapshots_have_all_limits_are_exact_to_the_block() {
    let (_folder, pool) = make(None);
    pool.create_dataset("a", false, &[]).unwrap();
    let a = pool.dataset("a").unwrap();
    let inodes: Vec<_> = (0..20).map(|number| file(&a, &file_name(number)).unwrap()).collect();
    // Values fill leaves, and leaves fill the nodes above them.
    let value = |round: u8| vec![round; 60_000];
    inodes.iter().for_each(|inode| a.set_xattr(*inode, b"user.v", &value(0), XattrHow::Set).unwrap());
    let scattered = |round: u64| {
        let mut group = a.begin()?;
        for index in 0..1000 {
            let at = (index * 7919 + round) % 16_000;
            group.write(inodes[index as usize % 20], at * BLOCK, &[round as u8 + 1; BLOCK as usize])?;
        }
        pool.commit(vec![group]).map(drop)
    };
    scattered(0).unwrap();
    for (round, limit) in [Limit::Quota, Limit::RefQuota, Limit::Quota].into_iter().enumerate() {
        pool.set_limit("a", Limit::Quota, None).unwrap();
        pool.set_limit("a", Limit::RefQuota, None).unwrap();
        let more = make_at_the_limit(&pool, "a", limit, || scattered(1 + round as u64));
        assert!((1000 * BLOCK..1500 * BLOCK).contains(&more), "{more}");
        pool.snapshot(&[format!("a@{round}")], false, &[]).unwrap();
        if limit == Limit::Quota {
            // The same blocks once more: new ones, since the snapshot keeps the others.
            let more = make_at_the_limit(&pool, "a", limit, || scattered(1 + round as u64));
            assert!(more >= 1000 * BLOCK, "{more}");
            let again = || a.set_xattr(inodes[7], b"user.v", &value(round as u8 + 1), XattrHow::Set);
            make_at_the_limit(&pool, "a", limit, again);
        }
        if round == 1 {
            pool.checkpoint().unwrap();
        }
    }
    pool.verify().unwrap();
}

#[test]
fn at_a_quota_nothing_grows_and_everything_can_be_freed() {
    let (_folder, pool) = make(None);
    pool.create_dataset("a", false, &[]).unwrap();
    let a = pool.dataset("a").unwrap();
    let inode = file(&a, "f").unwrap();
    a.write(inode, 0, &[1; 64 << 12]).unwrap();
    a.set_xattr(inode, b"user.x", b"value", XattrHow::Set).unwrap();
    // Room for what replaces: one node more or less would be too little.
    for block in 0..64 {
        a.write(inode, block * BLOCK, &[2; BLOCK as usize]).unwrap();
    }
    set(&pool, "a", Limit::Quota, figure(&pool, "a", Limit::Quota));
    for block in 0..64 {
        a.write(inode, block * BLOCK, &[3; BLOCK as usize]).unwrap();
    }
    asked(a.write(inode, 64 * BLOCK, &[3; BLOCK as usize]), "a", Limit::Quota);
    pool.snapshot(&["a@one".to_owned()], false, &[]).unwrap();
    // What the snapshot keeps is new when it is replaced, and so is the node that says so.
    assert_eq!(asked(a.write(inode, 0, &[4; BLOCK as usize]), "a", Limit::Quota), 2 * BLOCK);
    assert_eq!(asked(a.write(inode, 0, b"few"), "a", Limit::Quota), 2 * BLOCK);
    assert_eq!(asked(a.truncate(inode, 1 << 30), "a", Limit::Quota), BLOCK);
    assert_eq!(
        asked(a.set_attributes(inode, &AttributeChange::default()).map(drop), "a", Limit::Quota),
        BLOCK
    );
    let mut group = a.begin().unwrap();
    group.truncate(inode, 60 * BLOCK).unwrap();
    pool.commit(vec![group]).unwrap();
    a.punch_hole(inode, 0, 3 * BLOCK).unwrap();
    a.truncate(inode, 20 * BLOCK + 1).unwrap();
    a.remove_xattr(inode, b"user.x").unwrap();
    a.unlink(ROOT, b"f").unwrap();
    pool.destroy(&icecore::DestroyTarget::Snapshot("a@one".into())).unwrap();
    assert_eq!(figure(&pool, "a", Limit::Quota), BLOCK);
    pool.verify().unwrap();
}

#[test]
fn a_quota_below_what_is_used_refuses_what_grows_and_nothing_else() {
    let (_folder, pool) = make(None);
    pool.create_dataset("t/a", true, &[]).unwrap();
    pool.create_dataset("t/b", false, &[]).unwrap();
    let (a, b) = (pool.dataset("t/a").unwrap(), pool.dataset("t/b").unwrap());
    let (in_a, in_b) = (file(&a, "f").unwrap(), file(&b, "f").unwrap());
    a.write(in_a, 0, &[1; 64 << 12]).unwrap();
    set(&pool, "t", Limit::Quota, BLOCK);
    a.write(in_a, 0, &[2; 64 << 12]).unwrap();
    asked(a.write(in_a, 64 * BLOCK, &[2; BLOCK as usize]), "t", Limit::Quota);
    // What one dataset frees, another may take, in one step.
    let (mut first, mut second) = (a.begin().unwrap(), b.begin().unwrap());
    first.truncate(in_a, 32 * BLOCK).unwrap();
    second.write(in_b, 0, &[3; 32 << 12]).unwrap();
    pool.commit(vec![first, second]).unwrap();
    pool.verify().unwrap();
}

#[test]
fn what_was_destroyed_before_a_crash_hinders_nothing() {
    let (folder, pool) = make(None);
    pool.create_dataset("a", false, &[]).unwrap();
    let a = pool.dataset("a").unwrap();
    let inode = file(&a, "f").unwrap();
    a.write(inode, 0, &[1; 64 << 12]).unwrap();
    pool.snapshot(&["a@one".to_owned()], false, &[]).unwrap();
    a.write(inode, 0, &[2; 64 << 12]).unwrap();
    set(&pool, "a", Limit::Quota, figure(&pool, "a", Limit::Quota));
    asked(a.write(inode, 64 * BLOCK, &[2; 64 << 12]), "a", Limit::Quota);
    pool.destroy(&icecore::DestroyTarget::Snapshot("a@one".into())).unwrap();
    let crashed = copy(folder.path());
    let pool = open(crashed.path());
    pool.dataset("a").unwrap().write(inode, 64 * BLOCK, &[2; 64 << 12]).unwrap();
    pool.verify().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("ICECORE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_change_is_refused_if_and_only_if_it_comes_to_too_much(
        rounds in proptest::collection::vec((steps(), changes(), 0..3usize), 1..5)
    ) {
        let (folder, mut pool) = make(None);
        pool.create_dataset("t/a", true, &[]).unwrap();
        pool.create_dataset("t/b", false, &[]).unwrap();
        for number in 0..3 {
            file(&pool.dataset("t/a").unwrap(), &file_name(number)).unwrap();
        }
        file(&pool.dataset("t/b").unwrap(), "f").unwrap();
        for (round, (steps, change, limit)) in rounds.iter().enumerate() {
            let (of, limit) = LIMITS[*limit];
            pool.close().unwrap();
            drop(pool);
            // The same happens to both, so that blocks get the same addresses.
            let other = copy(folder.path());
            let twin = open(other.path());
            pool = open(folder.path());
            for one in [&twin, &pool] {
                steps.iter().enumerate().for_each(|(index, step)| prepare(one, step, round * 100 + index));
            }
            let before = figures(&pool);
            prop_assert_eq!(&before, &figures(&twin));
            let serial = round * 100 + 99;
            (0..2).for_each(|_| set(&twin, of, limit, UNLIMITED));
            let outcome = apply(&twin, change, serial);
            let after = figure(&twin, of, limit);
            let grows = after > figure(&pool, of, limit);
            match outcome {
                Ok(()) if grows => {
                    set(&pool, of, limit, after - BLOCK);
                    let error = apply(&pool, change, serial).expect_err("one block too much");
                    prop_assert!(
                        matches!(&error, Error::QuotaExceeded { dataset, limit: name, used, asked, .. }
                            if dataset == of && *name == limit.name() && used.0 + asked.0 == after),
                        "{}", error
                    );
                    prop_assert_eq!(&before, &figures(&pool));
                }
                _ => set(&pool, of, limit, after),
            }
            set(&pool, of, limit, after);
            match (apply(&pool, change, serial), outcome) {
                (Ok(()), Ok(())) => {}
                (Err(Error::File(own)), Err(Error::File(other))) => prop_assert_eq!(own, other),
                (own, other) => prop_assert!(false, "{:?} and without limits {:?}", own, other),
            }
            prop_assert_eq!(figures(&pool), figures(&twin));
            pool.verify().unwrap();
            pool.set_limit(of, limit, None).unwrap();
        }
    }
}
