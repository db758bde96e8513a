//! What destroying something is said to give back comes back, to the byte: in every history. `USED` of a
//! snapshot is what destroying it alone gives back.

use icecore::{Creation, DestroyTarget, Error, InitOptions, ListFilter, OpenOptions, Pool};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Write { dataset: usize, at: u64, blocks: usize },
    Small { dataset: usize, at: u64 },
    Snapshot { dataset: usize },
    Clone { snapshot: usize },
    Rollback { snapshot: usize },
    Promote { dataset: usize },
    Hold { snapshot: usize },
    Destroy { from: usize, to: usize, kind: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4usize, 0..40u64, 1..12usize).prop_map(|(dataset, at, blocks)| Step::Write { dataset, at, blocks }),
        2 => (0..4usize, 0..160_000u64).prop_map(|(dataset, at)| Step::Small { dataset, at }),
        4 => (0..4usize).prop_map(|dataset| Step::Snapshot { dataset }),
        1 => (0..20usize).prop_map(|snapshot| Step::Clone { snapshot }),
        2 => (0..20usize).prop_map(|snapshot| Step::Rollback { snapshot }),
        1 => (0..4usize).prop_map(|dataset| Step::Promote { dataset }),
        1 => (0..20usize).prop_map(|snapshot| Step::Hold { snapshot }),
        4 => (0..20usize, 0..20usize, 0..4usize).prop_map(|(from, to, kind)| Step::Destroy { from, to, kind }),
    ];
    proptest::collection::vec(step, 1..70)
}

fn names(pool: &Pool, snapshots: bool) -> Vec<String> {
    let filter = ListFilter { root: None, depth: None, datasets: !snapshots, snapshots };
    pool.list(&filter).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn used(pool: &Pool) -> u64 {
    pool.statistics().used_bytes
}

fn target(pool: &Pool, from: usize, to: usize, kind: usize) -> Option<DestroyTarget> {
    let all = names(pool, true);
    let first = all.get(from % all.len().max(1))?.clone();
    let last = all[to % all.len()].clone();
    let (dataset, short) = first.split_once('@')?;
    Some(match kind {
        0 => DestroyTarget::Snapshot(first),
        1 => {
            let last = last.split_once('@')?.1.to_owned();
            DestroyTarget::Range { dataset: dataset.to_owned(), first: short.to_owned(), last }
        }
        2 => {
            let part = all.iter().skip(from % 3).step_by(1 + to % 3);
            let of = part.filter_map(|name| name.split_once('@'));
            DestroyTarget::Snapshots {
                of: of.map(|(dataset, short)| (dataset.to_owned(), vec![short.to_owned()])).collect(),
            }
        }
        _ => DestroyTarget::Dataset { name: dataset.to_owned(), recursive: true },
    })
}

/// What `USED` says of each snapshot is what a destruction of it alone would say.
fn used_is_what_comes_back(pool: &Pool) -> Result<(), TestCaseError> {
    let filter = ListFilter { root: None, depth: None, datasets: false, snapshots: true };
    for entry in pool.list(&filter).unwrap() {
        match pool.plan_destroy_unheld(&DestroyTarget::Snapshot(entry.name.clone())) {
            Err(Error::Busy { .. }) => {}
            planned => prop_assert_eq!(entry.used, planned.unwrap().frees, "{}", entry.name),
        }
    }
    Ok(())
}

fn destroy(pool: &Pool, target: &DestroyTarget) -> Result<(), TestCaseError> {
    let before = used(pool);
    let planned = match pool.plan_destroy(target) {
        Err(Error::Busy { .. } | Error::Invalid(_) | Error::NotFound { .. }) => {
            prop_assert!(pool.destroy(target).is_err());
            prop_assert_eq!(used(pool), before);
            return Ok(());
        }
        planned => planned.unwrap(),
    };
    let done = pool.destroy(target).unwrap();
    prop_assert_eq!(&done, &planned);
    prop_assert_eq!(before - used(pool), planned.frees.0, "{:?}", target);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("ICECORE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_promised_comes_back(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        Pool::init_directory(folder.path(), &InitOptions { segment_bytes: 2 << 20, size_limit: None, copies: icecore::CopyMode::None, mirror: None }).unwrap();
        let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
        let pool = Pool::open_directory(folder.path(), &options).unwrap();
        pool.create_dataset("d", false, &[]).unwrap();
        for (serial, step) in steps.iter().enumerate() {
            let datasets = names(&pool, false);
            let dataset = |index: usize| datasets.get(index % datasets.len().max(1)).cloned();
            let snapshots = names(&pool, true);
            let snapshot = |index: usize| snapshots.get(index % snapshots.len().max(1)).cloned();
            match step {
                Step::Write { dataset: which, at, blocks } => {
                    let Some(name) = dataset(*which) else { continue };
                    let handle = pool.dataset(&name).unwrap();
                    let inode = handle.open_or_create(b"f", &Creation::file()).unwrap();
                    handle.write(inode, at * 4096, &vec![serial as u8; blocks * 4096]).unwrap();
                }
                Step::Small { dataset: which, at } => {
                    let Some(name) = dataset(*which) else { continue };
                    let handle = pool.dataset(&name).unwrap();
                    let inode = handle.open_or_create(b"f", &Creation::file()).unwrap();
                    handle.write(inode, *at, &[serial as u8; 700]).unwrap();
                }
                Step::Snapshot { dataset: which } => {
                    let Some(name) = dataset(*which) else { continue };
                    pool.snapshot(&[format!("{name}@s{serial}")], false, &[]).unwrap();
                }
                Step::Clone { snapshot: which } => {
                    let Some(name) = snapshot(*which) else { continue };
                    pool.clone_snapshot(&name, &format!("c{serial}"), false).unwrap();
                }
                Step::Rollback { snapshot: which } => {
                    let Some(name) = snapshot(*which) else { continue };
                    pool.rollback(&name, true).unwrap();
                }
                Step::Promote { dataset: which } => {
                    let Some(name) = dataset(*which) else { continue };
                    let _ = pool.promote(&name);
                }
                Step::Hold { snapshot: which } => {
                    let Some(name) = snapshot(*which) else { continue };
                    if pool.hold("h", &name).is_err() {
                        pool.release("h", &name).unwrap();
                    }
                }
                Step::Destroy { from, to, kind } => {
                    if let Some(target) = target(&pool, *from, *to, *kind) {
                        used_is_what_comes_back(&pool)?;
                        destroy(&pool, &target)?;
                        pool.verify().unwrap();
                    }
                }
            }
        }
        pool.verify().unwrap();
        // In the end, everything: nothing stays behind.
        for name in names(&pool, true) {
            let _ = pool.release("h", &name);
        }
        for name in names(&pool, false) {
            destroy(&pool, &DestroyTarget::Dataset { name, recursive: true })?;
        }
        prop_assert!(names(&pool, false).is_empty());
        prop_assert_eq!(used(&pool), 0);
        pool.checkpoint().unwrap();
        pool.checkpoint().unwrap();
        // The books of the pool itself belong to no dataset, and are all that is left.
        let live = pool.statistics().live_bytes;
        prop_assert!(live < 1 << 20, "{live} bytes are live and belong to no version");
    }
}
