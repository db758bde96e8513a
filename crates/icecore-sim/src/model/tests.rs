//! The model is right about files, versions and histories, checked against even plainer ones.

use super::*;
use crate::random::Random;
use icecore::FileFault;
use icecore::names::DestroyTarget;
use std::collections::BTreeSet;

fn change(dataset: &str, change: FileChange) -> Step {
    Step::Change { dataset: dataset.to_owned(), change }
}

fn snapshot(name: &str) -> Step {
    Step::Snapshot { names: vec![name.to_owned()], recursive: false }
}

fn destroy(name: &str) -> Step {
    Step::Destroy(icecore::names::parse_target(name, true).unwrap())
}

fn clone(snapshot: &str, target: &str) -> Step {
    Step::Clone { snapshot: snapshot.to_owned(), target: target.to_owned() }
}

fn rollback(snapshot: &str) -> Step {
    Step::Rollback { snapshot: snapshot.to_owned() }
}

fn create_dataset(name: &str) -> Step {
    Step::CreateDataset { name: name.to_owned(), parents: false }
}

/// One file in the root directory says which state this is.
fn mark(dataset: &str, text: &str) -> Step {
    change(dataset, FileChange::CreateFile { path: text.to_owned(), mode: 0o644 })
}

fn marks(tree: &Tree) -> String {
    tree.paths().into_iter().map(|(path, _)| path).collect()
}

fn pool(steps: &[Step]) -> ModelPool {
    let mut pool = ModelPool::default();
    for step in steps {
        pool.apply(step).unwrap_or_else(|error| panic!("{step:?}: {error:?}"));
    }
    pool
}

#[test]
fn contents_are_what_a_plain_vector_says() {
    let mut random = Random::new(1);
    for _ in 0..50 {
        let (mut content, mut plain) = (Content::default(), Vec::new());
        for _ in 0..20 {
            let offset = random.below(20_000) as usize;
            let length = random.between(1, 9000) as usize;
            match random.below(4) {
                0 => {
                    content.truncate(offset as u64);
                    plain.resize(offset, 0);
                }
                1 => {
                    content.punch(offset as u64, length as u64);
                    let end = plain.len().min(offset + length);
                    plain[offset.min(end)..end].fill(0);
                }
                _ => {
                    let data = Data { seed: random.below(3), length: length as u32 }.bytes();
                    content.write(offset as u64, &data);
                    plain.resize(plain.len().max(offset + length), 0);
                    plain[offset..offset + length].copy_from_slice(&data);
                }
            }
            let mut found = vec![1; plain.len()];
            content.read(0, &mut found);
            assert!(found == plain && content.size() == plain.len() as u64);
            let mut same = Content::default();
            same.write(0, &plain);
            assert_eq!(same, content);
            assert_eq!(same.runs(), content.runs());
        }
    }
}

#[test]
fn files_follow_posix() {
    let mut tree = Tree::default();
    let mut done = |text: &str| {
        let mut words = text.split(' ').map(str::to_owned);
        let (verb, path) = (words.next().unwrap(), words.next().unwrap());
        let to = words.next().unwrap_or_default();
        let outcome = tree.apply(&match verb.as_str() {
            "file" => FileChange::CreateFile { path, mode: 0o600 },
            "dir" => FileChange::CreateDirectory { path, mode: 0o700 },
            "sym" => FileChange::CreateSymlink { path, target: to },
            "cut" => FileChange::Truncate { path, size: to.parse().unwrap() },
            "link" => FileChange::Link { path, to },
            "rm" => FileChange::Unlink { path },
            "rmdir" => FileChange::RemoveDirectory { path },
            _ => FileChange::Rename { from: path, to },
        });
        (outcome, tree.paths().into_iter().skip(1).map(|(path, _)| path).collect::<Vec<_>>().join(" "))
    };
    let ok = |paths: &str| (Ok(()), paths.to_owned());
    assert_eq!(done("dir a"), ok("a"));
    assert_eq!(done("file a/f"), ok("a a/f"));
    assert_eq!(done("link a/f g"), ok("a a/f g"));
    assert_eq!(done("mv a/f g"), ok("a a/f g"));
    assert_eq!(done("rm a/f"), ok("a g"));
    assert_eq!(done("dir b"), ok("a b g"));
    assert_eq!(done("mv b a/b"), ok("a a/b g"));
    assert_eq!(done("mv a a/b/c").0, Err(FileFault::Invalid));
    assert_eq!(done("mv a a"), ok("a a/b g"));
    assert_eq!(done("mv g a").0, Err(FileFault::IsADirectory));
    assert_eq!(done("mv a g").0, Err(FileFault::NotADirectory));
    assert_eq!(done("dir d").0, Ok(()));
    assert_eq!(done("mv d a").0, Err(FileFault::NotEmpty));
    assert_eq!(done("mv a d"), ok("d d/b g"));
    assert_eq!(done("rmdir d").0, Err(FileFault::NotEmpty));
    assert_eq!(done("rm d").0, Err(FileFault::IsADirectory));
    assert_eq!(done("rmdir g").0, Err(FileFault::NotADirectory));
    assert_eq!(done("file g").0, Err(FileFault::Exists));
    assert_eq!(done("file x/y").0, Err(FileFault::NotFound));
    assert_eq!(done("file g/y").0, Err(FileFault::NotADirectory));
    assert_eq!(done("link d e").0, Err(FileFault::NotPermitted));
    assert_eq!(done("sym s g"), ok("d d/b g s"));
    assert_eq!(done("cut s 5").0, Err(FileFault::Invalid));
    assert_eq!(done("cut d 5").0, Err(FileFault::IsADirectory));
    assert_eq!(done("cut g 17592186044417").0, Err(FileFault::TooLarge));
    assert_eq!(done("rmdir d/b"), ok("d g s"));
    assert_eq!(tree.links(1), 3);
}

#[test]
fn rollback_keeps_newer_snapshots_and_can_be_undone() {
    let mut pool = pool(&[
        create_dataset("a"),
        mark("a", "1"),
        snapshot("a@one"),
        mark("a", "2"),
        snapshot("a@two"),
        mark("a", "3"),
    ]);
    let Ok(Outcome::Saved(saved)) = pool.apply(&rollback("a@one")) else { panic!() };
    assert_eq!(marks(&pool.datasets()["a"].head), "1");
    assert_eq!(pool.named_snapshots().map(|(name, _)| name).collect::<Vec<_>>(), ["a@one", "a@two"]);
    pool.name_automatic(saved, "before-1");
    pool.apply(&rollback("a@before-1")).unwrap();
    assert_eq!(marks(&pool.datasets()["a"].head), "123");
    assert_eq!(pool.snapshots_of("a").count(), 4);
}

#[test]
fn a_snapshot_with_branches_is_hidden_until_one_is_left() {
    let mut pool = pool(&[create_dataset("a"), snapshot("a@one"), mark("a", "1")]);
    let Ok(Outcome::Saved(saved)) = pool.apply(&rollback("a@one")) else { panic!() };
    pool.name_automatic(saved, "auto");
    pool.apply(&destroy("a@one")).unwrap();
    assert_eq!((pool.snapshots_of("a").count(), pool.snapshots.len()), (1, 2));
    assert_eq!(pool.apply(&rollback("a@one")), Err(ModelError::NotFound));
    pool.apply(&snapshot("a@one")).unwrap();
    pool.apply(&destroy("a@auto")).unwrap();
    assert_eq!(pool.snapshots.len(), 1);
    assert_eq!(pool.datasets()["a"].parent, Some(pool.find_snapshot("a@one").unwrap()));
}

#[test]
fn clones_do_not_tie_down_their_origin_and_promotion_turns_them_round() {
    let history = [
        create_dataset("a"),
        snapshot("a@one"),
        snapshot("a@two"),
        snapshot("a@three"),
        clone("a@two", "b"),
        snapshot("b@four"),
    ];
    for destroyed in ["a@two", "a@one%three", "a"] {
        let mut pool = pool(&history);
        assert_eq!(pool.origin("b"), Some(pool.find_snapshot("a@two").unwrap()));
        pool.apply(&destroy(destroyed)).unwrap();
        assert_eq!(pool.origin("b"), None, "{destroyed}");
        assert_eq!(pool.apply(&Step::Promote { dataset: "b".to_owned() }), Err(ModelError::Invalid));
        pool.apply(&destroy("b@four")).unwrap();
    }
    let mut pool = pool(&history);
    pool.apply(&Step::Promote { dataset: "b".to_owned() }).unwrap();
    let names: Vec<_> = pool.named_snapshots().map(|(name, _)| name).collect();
    assert_eq!(names, ["b@one", "b@two", "a@three", "b@four"]);
    assert_eq!((pool.origin("b"), pool.origin("a")), (None, pool.find_snapshot("b@two").ok()));
    assert_eq!(pool.apply(&Step::Promote { dataset: "b".to_owned() }), Err(ModelError::Invalid));
    pool.apply(&destroy("b")).unwrap();
    assert_eq!((pool.origin("a"), pool.named_snapshots().count()), (None, 1));
    pool.apply(&destroy("a")).unwrap();
    assert_eq!(pool.snapshots.len(), 0);
}

#[test]
fn promotion_refuses_names_that_meet() {
    let mut pool = pool(&[create_dataset("a"), snapshot("a@x"), clone("a@x", "b"), snapshot("b@x")]);
    let before = pool.clone();
    assert_eq!(pool.apply(&Step::Promote { dataset: "b".to_owned() }), Err(ModelError::Exists));
    assert_eq!(pool, before);
}

#[test]
fn recursive_steps_take_everything_below_and_nothing_beside() {
    let mut pool = pool(&[create_dataset("a"), create_dataset("a/b"), create_dataset("ab")]);
    pool.apply(&Step::Snapshot { names: vec!["a@x".to_owned()], recursive: true }).unwrap();
    let names = |pool: &ModelPool| pool.named_snapshots().map(|(name, _)| name).collect::<BTreeSet<_>>();
    assert_eq!(names(&pool), BTreeSet::from(["a@x".to_owned(), "a/b@x".to_owned()]));
    let rename =
        |from: &str, to: &str| Step::Rename { from: from.to_owned(), to: to.to_owned(), recursive: true };
    pool.apply(&rename("a@x", "a@y")).unwrap();
    assert_eq!(pool.apply(&rename("a", "a/b/c")), Err(ModelError::Invalid));
    pool.apply(&rename("a", "ab/c")).unwrap();
    assert_eq!(names(&pool), BTreeSet::from(["ab/c@y".to_owned(), "ab/c/b@y".to_owned()]));
    let target = DestroyTarget::Dataset { name: "ab".to_owned(), recursive: false };
    assert_eq!(pool.apply(&Step::Destroy(target)), Err(ModelError::Busy));
    pool.apply(&destroy("ab")).unwrap();
    assert_eq!(pool, ModelPool { next: pool.next, ..ModelPool::default() });
}

#[test]
fn a_group_happens_wholly_or_not_at_all() {
    let mut pool = pool(&[create_dataset("a"), mark("a", "f")]);
    let data = Data { seed: 1, length: 10 };
    let write = |path: &str| ("a".to_owned(), GroupWrite::Write { path: path.to_owned(), offset: 0, data });
    let before = pool.clone();
    let group = |writes| Step::Group { writes, durable: true };
    assert_eq!(pool.apply(&group(vec![write("f"), write("g")])), Err(ModelError::File(FileFault::NotFound)));
    assert_eq!(pool, before);
    pool.apply(&group(vec![write("f"), write("f")])).unwrap();
    assert_ne!(pool, before);
}

#[test]
fn held_snapshots_stay() {
    let mut pool = pool(&[create_dataset("a"), snapshot("a@x"), snapshot("a@y")]);
    let hold = |tag: &str| Step::Hold { tag: tag.to_owned(), snapshot: "a@y".to_owned() };
    pool.apply(&hold("t")).unwrap();
    assert_eq!(pool.apply(&hold("t")), Err(ModelError::Exists));
    assert_eq!(pool.apply(&destroy("a@x%y")), Err(ModelError::Busy));
    assert_eq!(pool.apply(&destroy("a")), Err(ModelError::Busy));
    pool.apply(&Step::Release { tag: "t".to_owned(), snapshot: "a@y".to_owned() }).unwrap();
    pool.apply(&destroy("a@x%y")).unwrap();
    assert_eq!(pool.apply(&destroy("a@x%y")), Err(ModelError::NotFound));
}

#[test]
fn histories_are_drawn_by_seed_and_cover_everything() {
    let run = |seed| {
        let mut generator = Generator::new(seed, Weights::default());
        let (mut pool, mut failed, mut kinds) = (ModelPool::default(), 0, BTreeSet::new());
        for _ in 0..400 {
            let step = generator.next(&pool);
            let before = pool.clone();
            match pool.apply(&step) {
                Ok(_) => {
                    let text = format!("{step:?}");
                    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
                    kinds.extend(
                        words.filter(|word| word.starts_with(char::is_uppercase)).take(3).map(str::to_owned),
                    );
                }
                Err(_) => {
                    failed += 1;
                    assert_eq!(pool, before);
                }
            }
        }
        (pool, failed, kinds)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    let (mut failed, mut kinds) = (0, BTreeSet::new());
    for seed in 0..10 {
        let outcome = run(seed);
        failed += outcome.1;
        kinds.extend(outcome.2);
    }
    assert!((200..1600).contains(&failed), "{failed} of 4000 steps failed");
    let wanted = "Change Group Sync Checkpoint Reopen CreateDataset Snapshot Clone Rollback Promote Rename Destroy \
                  Hold Release CreateFile CreateDirectory CreateSymlink Write Truncate Punch SetMode SetAttribute \
                  RemoveAttribute Link Unlink RemoveDirectory Range Dataset";
    for kind in wanted.split_whitespace() {
        assert!(kinds.contains(kind), "{kind} never came: {kinds:?}");
    }
}

#[test]
fn a_history_knows_what_may_survive() {
    let mut history = History::default();
    for name in ["a", "b", "c", "d"] {
        let mut next = ModelPool::clone(history.current());
        next.apply(&create_dataset(name)).unwrap();
        history.push(create_dataset(name), next);
        if name == "b" {
            history.acknowledge();
        }
    }
    assert_eq!((history.length(), history.survivors()), (5, 2..=4));
    let count =
        |wanted| move |pool: &ModelPool| (pool.datasets().len() != wanted).then_some(pool.datasets().len());
    assert_eq!(history.find(count(3)), Ok(3));
    assert_eq!(history.find(count(1)), Err(vec![(4, 4), (3, 3), (2, 2)]));
    assert_eq!(history.step(3), Some(&create_dataset("c")));
    history.resume(3);
    assert_eq!((history.length(), history.survivors(), history.current().datasets().len()), (4, 3..=3, 3));
}
