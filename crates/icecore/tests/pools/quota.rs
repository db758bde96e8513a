//! Quotas and reservations: refused before anything is damaged, exact, and never in the way of deleting.

use icecore::limits::Limit;
use icecore::units::{ByteLength, InodeNumber};
use icecore::{
    Creation, Dataset, DestroyTarget, Error, InitOptions, ListEntry, ListFilter, OpenOptions, Pool,
};
use proptest::prelude::*;
use std::path::Path;

const PIECE: usize = 16 << 10;

pub fn open(path: &Path) -> Pool {
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    Pool::open_directory(path, &options).unwrap()
}

pub fn make(size_limit: Option<u64>) -> (tempfile::TempDir, Pool) {
    let folder = tempfile::tempdir().unwrap();
    let size_limit = size_limit.map(ByteLength);
    Pool::init_directory(
        folder.path(),
        &InitOptions { segment_bytes: 2 << 20, size_limit, copies: icecore::CopyMode::None, mirror: None },
    )
    .unwrap();
    let pool = open(folder.path());
    (folder, pool)
}

fn file(pool: &Pool, dataset: &str) -> (Dataset, InodeNumber) {
    let dataset = pool.dataset(dataset).unwrap();
    let inode = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    (dataset, inode)
}

pub fn entry(pool: &Pool, name: &str) -> ListEntry {
    let filter = ListFilter { root: Some(name.to_owned()), depth: Some(0), datasets: true, snapshots: false };
    pool.list(&filter).unwrap().remove(0)
}

pub fn set(pool: &Pool, dataset: &str, limit: Limit, bytes: u64) {
    pool.set_limit(dataset, limit, Some(ByteLength(bytes))).unwrap();
}

/// Writes pieces one after the other until that is refused; answers how many, and the refusal.
fn fill(dataset: &Dataset, inode: InodeNumber, from: usize) -> (usize, Error) {
    for index in from.. {
        if let Err(error) = dataset.write(inode, (index * PIECE) as u64, &[index as u8; PIECE]) {
            return (index, error);
        }
    }
    unreachable!()
}

fn is_quota(error: &Error, of: &str, limit: Limit) -> bool {
    matches!(error, Error::QuotaExceeded { dataset, limit: name, .. } if dataset == of && *name == limit.name())
}

/// What the change that was refused would have added.
fn asked(error: &Error) -> u64 {
    match error {
        Error::QuotaExceeded { asked, .. } => asked.0,
        other => panic!("{other}"),
    }
}

fn snapshot(pool: &Pool, name: &str) {
    pool.snapshot(&[name.to_owned()], false, &[]).unwrap();
}

#[test]
fn a_refquota_is_filled_and_not_exceeded_and_what_is_there_can_be_replaced() {
    let (folder, pool) = make(None);
    pool.create_dataset("a", false, &[("refquota".into(), (4 << 20).to_string())]).unwrap();
    let (a, inode) = file(&pool, "a");
    let (count, error) = fill(&a, inode, 0);
    assert!(is_quota(&error, "a", Limit::RefQuota), "{error}");
    assert!(error.to_string().contains("icecore set refquota=SIZE a"), "{error}");
    let referenced = entry(&pool, "a").referenced.0;
    assert!(referenced <= 4 << 20 && referenced + asked(&error) > 4 << 20, "{referenced}");
    for index in 0..count {
        a.write(inode, (index * PIECE) as u64, &[7; PIECE]).unwrap();
    }
    // Snapshots are no part of it.
    snapshot(&pool, "a@one");
    for index in 0..count {
        a.write(inode, (index * PIECE) as u64, &[8; PIECE]).unwrap();
    }
    assert!(entry(&pool, "a").used.0 > 7 << 20);
    assert!(entry(&pool, "a").available.unwrap().0 < asked(&error));
    a.sync().unwrap();
    drop(a);
    pool.close().unwrap();
    drop(pool);
    let pool = open(folder.path());
    let (a, inode) = file(&pool, "a");
    assert!(is_quota(&fill(&a, inode, count).1, "a", Limit::RefQuota));
    a.truncate(inode, 1 << 20).unwrap();
    assert!(fill(&a, inode, 64).0 > count - 8);
    pool.set_limit("a", Limit::RefQuota, None).unwrap();
    a.write(inode, 8 << 20, &[1; 1 << 20]).unwrap();
    pool.verify().unwrap();
}

#[test]
fn a_quota_counts_snapshots_and_what_lies_below() {
    let (_folder, pool) = make(None);
    pool.create_dataset("t/a", true, &[]).unwrap();
    pool.create_dataset("t/b", true, &[]).unwrap();
    let (a, in_a) = file(&pool, "t/a");
    let (b, in_b) = file(&pool, "t/b");
    set(&pool, "t", Limit::Quota, 6 << 20);
    a.write(in_a, 0, &[1; 1 << 20]).unwrap();
    a.write(in_a, 1 << 20, &[1; 1 << 20]).unwrap();
    snapshot(&pool, "t/a@one");
    let (count, error) = fill(&b, in_b, 0);
    assert!(is_quota(&error, "t", Limit::Quota), "{error}");
    let used = entry(&pool, "t").used.0;
    assert!(used <= 6 << 20 && used + asked(&error) > 6 << 20, "{used}");
    // What the snapshot has too is new when it is overwritten; what only the head has is not.
    let error = a.write(in_a, 0, &[2; PIECE]).unwrap_err();
    assert!(is_quota(&error, "t", Limit::Quota), "{error}");
    b.write(in_b, 0, &[2; PIECE]).unwrap();
    // Names take nodes, and nodes count.
    let create =
        |index: u32| a.create(InodeNumber::ROOT, format!("more-{index}").as_bytes(), &Creation::file());
    let error = (0..2000).find_map(|index| create(index).err()).unwrap();
    assert!(is_quota(&error, "t", Limit::Quota), "{error}");
    let used = entry(&pool, "t").used.0;
    assert!(used <= 6 << 20 && used + asked(&error) > 6 << 20, "{used}");
    set(&pool, "t", Limit::Quota, used + 4096);
    pool.create_dataset("t/c", false, &[]).unwrap();
    assert!(is_quota(&pool.create_dataset("t/d", false, &[]).unwrap_err(), "t", Limit::Quota));
    // Deleting works, and helps at once.
    set(&pool, "t", Limit::Quota, 1 << 20);
    b.truncate(in_b, 0).unwrap();
    b.unlink(InodeNumber::ROOT, b"f").unwrap();
    pool.destroy(&DestroyTarget::Snapshot("t/a@one".into())).unwrap();
    snapshot(&pool, "t/a@two");
    set(&pool, "t", Limit::Quota, 6 << 20);
    a.write(in_a, 0, &[2; PIECE]).unwrap();
    let (b, in_b) = file(&pool, "t/b");
    assert!(fill(&b, in_b, 0).0 + 8 >= count);
    // Data of a dataset from elsewhere does not find a place there.
    pool.create_dataset("x", false, &[]).unwrap();
    let (x, in_x) = file(&pool, "x");
    x.write(in_x, 0, &[3; 1 << 20]).unwrap();
    assert!(is_quota(&pool.rename("x", "t/x", false).unwrap_err(), "t", Limit::Quota));
    pool.rename("t/b", "b", false).unwrap();
    pool.rename("x", "t/x", false).unwrap();
    pool.verify().unwrap();
}

#[test]
fn a_group_is_refused_as_a_whole() {
    let (_folder, pool) = make(None);
    pool.create_dataset("a", false, &[]).unwrap();
    let (a, inode) = file(&pool, "a");
    a.write(inode, 0, &[1; PIECE]).unwrap();
    set(&pool, "a", Limit::Quota, 2 << 20);
    let mut group = a.begin().unwrap();
    for index in 0..160 {
        group.write(inode, (index * PIECE) as u64, &[2; PIECE]).unwrap();
    }
    let error = pool.commit(vec![group]).unwrap_err();
    assert!(is_quota(&error, "a", Limit::Quota), "{error}");
    let view = a.view().unwrap();
    assert_eq!(view.attributes(inode).unwrap().size, PIECE as u64);
    let mut buffer = [0; PIECE];
    view.read(inode, 0, &mut buffer).unwrap();
    assert_eq!(buffer, [1; PIECE]);
    let mut group = a.begin().unwrap();
    for index in 0..80 {
        group.write(inode, (index * PIECE) as u64, &[2; PIECE]).unwrap();
    }
    pool.commit(vec![group]).unwrap();
    assert!(!pool.is_read_only());
    pool.verify().unwrap();
}

#[test]
fn what_is_reserved_is_not_for_others() {
    let (_folder, pool) = make(Some(48 << 20));
    for name in ["a", "b"] {
        pool.create_dataset(name, false, &[]).unwrap();
    }
    let before = entry(&pool, "b").available.unwrap().0;
    set(&pool, "a", Limit::Reservation, 12 << 20);
    // What it uses already is part of what is kept for it.
    assert!(entry(&pool, "b").available.unwrap().0 <= before - (12 << 20) + entry(&pool, "a").used.0);
    let (b, in_b) = file(&pool, "b");
    let (_, error) = fill(&b, in_b, 0);
    assert!(matches!(&error, Error::NoSpace { detail } if detail.contains("reserved")), "{error}");
    let too_much = pool.set_limit("b", Limit::Reservation, Some(ByteLength(40 << 20))).unwrap_err();
    assert!(matches!(too_much, Error::NoSpace { .. }), "{too_much}");
    // It is there for whom it was kept.
    let (a, in_a) = file(&pool, "a");
    for index in 0..(11 << 20) / PIECE {
        a.write(in_a, (index * PIECE) as u64, &[1; PIECE]).unwrap();
    }
    a.sync().unwrap();
    pool.verify().unwrap();
}

/// A pool of 64 MiB in which groups are written ahead but for a MiB.
fn make_that_writes_ahead(copies: icecore::CopyMode) -> (tempfile::TempDir, Pool) {
    let folder = tempfile::tempdir().unwrap();
    let size_limit = Some(ByteLength(64 << 20));
    let init = InitOptions { segment_bytes: 2 << 20, size_limit, copies, mirror: None };
    Pool::init_directory(folder.path(), &init).unwrap();
    let options = OpenOptions {
        background: false,
        control_socket: false,
        group_memory_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let pool = Pool::open_directory(folder.path(), &options).unwrap();
    (folder, pool)
}

/// Most of a large group is written ahead before it is known whether it is allowed: that is not asked for a
/// second time.
#[test]
fn a_group_may_take_nearly_all_that_is_not_reserved_for_others() {
    for reserved in [1 << 20, 5 << 20, 20 << 20] {
        for copies in [icecore::CopyMode::None, icecore::CopyMode::Metadata] {
            let (_folder, pool) = make_that_writes_ahead(copies);
            for name in ["owner", "other"] {
                pool.create_dataset(name, false, &[]).unwrap();
            }
            set(&pool, "owner", Limit::Reservation, reserved);
            let available = entry(&pool, "other").available.unwrap().0;
            let (other, inode) = file(&pool, "other");
            let mut group = other.begin().unwrap();
            for index in 0..available * 8 / 10 / PIECE as u64 {
                group.write(inode, index * PIECE as u64, &[2; PIECE]).unwrap();
            }
            let said = format!("{reserved} reserved, {available} available, {copies:?}");
            pool.commit(vec![group]).unwrap_or_else(|error| panic!("{said}: {error}"));
            let (owner, inode) = file(&pool, "owner");
            for index in 0..(reserved - reserved / 64 - (64 << 10)) / 4096 {
                owner
                    .write(inode, index * 4096, &[3; 4096])
                    .unwrap_or_else(|error| panic!("{said}: {error}"));
            }
            pool.verify().unwrap();
        }
    }
}

/// Databases that are attached are committed together. What one of them writes takes what is reserved for it.
#[test]
fn groups_that_are_committed_together_use_what_is_reserved_for_each() {
    let (_folder, pool) = make_that_writes_ahead(icecore::CopyMode::None);
    let files = ["owner", "other"].map(|name| {
        pool.create_dataset(name, false, &[]).unwrap();
        file(&pool, name)
    });
    set(&pool, "owner", Limit::Reservation, 20 << 20);
    // What is left to the others is less than what the owner writes.
    let (other, inode) = &files[1];
    let available = entry(&pool, "other").available.unwrap().0;
    for index in 0..available.saturating_sub(6 << 20) / PIECE as u64 {
        other.write(*inode, index * PIECE as u64, &[1; PIECE]).unwrap();
    }
    let mut groups = files.each_ref().map(|(dataset, _)| dataset.begin().unwrap());
    for index in 0..(15 << 20) / PIECE {
        groups[0].write(files[0].1, (index * PIECE) as u64, &[2; PIECE]).unwrap();
    }
    groups[1].write(files[1].1, 0, &[2; PIECE]).unwrap();
    pool.commit(groups.into()).unwrap();
    pool.verify().unwrap();
}

/// It is for the present of one dataset, and not for those below it; a reservation is for all of them.
#[test]
fn a_refreservation_is_kept_from_datasets_below_too() {
    let (_folder, pool) = make(Some(48 << 20));
    for name in ["team", "team/shop"] {
        pool.create_dataset(name, false, &[]).unwrap();
    }
    let of = |name: &str| entry(&pool, name).available.unwrap().0;
    let before = of("team/shop");
    set(&pool, "team", Limit::Reservation, 6 << 20);
    assert_eq!(of("team/shop"), before);
    set(&pool, "team", Limit::RefReservation, 6 << 20);
    assert_eq!(of("team"), before);
    assert!(of("team/shop") <= before - (6 << 20) + entry(&pool, "team").used.0);
    let (shop, inode) = file(&pool, "team/shop");
    let (_, error) = fill(&shop, inode, 0);
    assert!(matches!(&error, Error::NoSpace { detail } if detail.contains("reserved")), "{error}");
    let (team, inode) = file(&pool, "team");
    for index in 0..(5 << 20) / PIECE {
        team.write(inode, (index * PIECE) as u64, &[1; PIECE]).unwrap();
    }
    pool.verify().unwrap();
}

/// What they may need anew is needed once, however many snapshots are taken at the moment.
#[test]
fn snapshots_at_one_moment_need_a_refreservation_once() {
    let (_folder, pool) = make(Some(48 << 20));
    pool.create_dataset("a", false, &[]).unwrap();
    set(&pool, "a", Limit::RefReservation, 12 << 20);
    let (a, inode) = file(&pool, "a");
    for index in 0..(12 << 20) / PIECE {
        a.write(inode, (index * PIECE) as u64, &[1; PIECE]).unwrap();
    }
    let names: Vec<String> = (0..4).map(|number| format!("a@{number}")).collect();
    pool.snapshot(&names, false, &[]).unwrap();
    pool.verify().unwrap();
}

/// Others fill a pool until they are refused, in the way that `overwrites` says. Then the owner of what is
/// reserved writes all of it.
fn claim_reserved(reserved: usize, overwrites: bool, piece: usize, pieces_per_commit: usize) {
    let (_folder, pool) = make(Some(48 << 20));
    for name in ["owner", "other"] {
        pool.create_dataset(name, false, &[]).unwrap();
    }
    set(&pool, "owner", Limit::Reservation, reserved as u64);
    let (other, inode) = file(&pool, "other");
    let (mut written, mut refused) = (0, 0);
    // More than once: what was given back meanwhile is taken too.
    for number in 0.. {
        let index = if overwrites && number % 2 == 1 { number * 7919 % written } else { written };
        let outcome = other.write(inode, (index * PIECE) as u64, &[number as u8; PIECE]);
        match outcome.and_then(|()| if number % 16 == 0 { other.sync() } else { Ok(()) }) {
            Ok(()) => written += usize::from(index == written),
            Err(Error::NoSpace { detail }) if detail.contains("reserved") => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused == 8 {
            break;
        }
    }
    let (owner, inode) = file(&pool, "owner");
    // Some blocks of it are for nodes.
    let pieces = (reserved - reserved / 64 - (64 << 10)) / piece;
    for index in 0..pieces {
        let outcome = owner.write(inode, (index * piece) as u64, &vec![index as u8; piece]);
        let outcome =
            outcome.and_then(|()| if index % pieces_per_commit == 0 { owner.sync() } else { Ok(()) });
        outcome.unwrap_or_else(|error| {
            panic!("{index} of {pieces} pieces of {piece} bytes, {pieces_per_commit} at a time: {error}")
        });
    }
    assert!(entry(&pool, "owner").used.0 <= reserved as u64);
    pool.verify().unwrap();
}

#[test]
fn what_is_reserved_can_be_written_to_its_last_block_however_small_the_commits() {
    for reserved in [3 << 20, 5 << 20, 12 << 20] {
        for overwrites in [false, true] {
            for (piece, pieces_per_commit) in [(4096, 1), (4096, 3), (16 << 10, 8)] {
                claim_reserved(reserved, overwrites, piece, pieces_per_commit);
            }
        }
    }
}

/// What the log of one owner takes is gained back before another one's reservation is in the way.
#[test]
fn several_owners_that_take_turns_can_each_write_what_is_reserved_for_them() {
    for (limit, reserved, owners, piece) in
        [(64, 3 << 20, 2, 4096), (64, 6 << 20, 3, 4096), (128, 16 << 20, 2, 4096), (96, 5 << 20, 4, PIECE)]
    {
        let (_folder, pool) = make(Some(limit << 20));
        let names: Vec<String> = (0..owners).map(|number| format!("o{number}")).collect();
        for name in names.iter().map(String::as_str).chain(["other"]) {
            pool.create_dataset(name, false, &[]).unwrap();
        }
        names.iter().for_each(|name| set(&pool, name, Limit::Reservation, reserved));
        let (other, inode) = file(&pool, "other");
        for index in 0.. {
            let written = other.write(inode, index * PIECE as u64, &[index as u8; PIECE]);
            match written.and_then(|()| if index % 8 == 0 { other.sync() } else { Ok(()) }) {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let files: Vec<_> = names.iter().map(|name| file(&pool, name)).collect();
        let pieces = (reserved - reserved / 64 - (64 << 10)) / piece as u64;
        for index in 0..pieces {
            for (name, (owner, inode)) in names.iter().zip(&files) {
                let written = owner.write(*inode, index * piece as u64, &vec![index as u8; piece]);
                written.and_then(|()| owner.sync()).unwrap_or_else(|error| {
                    panic!("{limit} MiB, {name} of {owners}, {index} of {pieces}: {error}")
                });
            }
        }
        pool.verify().unwrap();
    }
}

#[test]
fn a_reservation_can_be_made_smaller_however_full_the_pool_is() {
    let (_folder, pool) = make(Some(48 << 20));
    for name in ["owner", "other"] {
        pool.create_dataset(name, false, &[]).unwrap();
    }
    set(&pool, "owner", Limit::Reservation, 8 << 20);
    let (other, inode) = file(&pool, "other");
    assert!(matches!(fill(&other, inode, 0).1, Error::NoSpace { .. }));
    let (owner, inode) = file(&pool, "owner");
    // Single blocks take what is kept beside it.
    for index in 0..1024 {
        owner.write(inode, index * 4096, &[1; 4096]).unwrap();
        owner.sync().unwrap();
    }
    for smaller in [6 << 20, 1 << 20] {
        set(&pool, "owner", Limit::Reservation, smaller);
    }
    pool.set_limit("owner", Limit::Reservation, None).unwrap();
}

#[test]
fn a_refreservation_is_needed_again_after_a_snapshot() {
    let (_folder, pool) = make(Some(40 << 20));
    pool.create_dataset("a", false, &[]).unwrap();
    let (a, in_a) = file(&pool, "a");
    set(&pool, "a", Limit::RefReservation, 8 << 20);
    let pieces = (7 << 20) / PIECE;
    for index in 0..pieces {
        a.write(in_a, (index * PIECE) as u64, &[1; PIECE]).unwrap();
    }
    let mut taken = 0;
    let error = loop {
        match pool.snapshot(&[format!("a@{taken}")], false, &[]) {
            Err(error) => break error,
            // Whatever the snapshot keeps, everything can be written anew.
            Ok(_) => (0..pieces).for_each(|index| {
                a.write(in_a, (index * PIECE) as u64, &[taken as u8; PIECE]).unwrap();
            }),
        }
        taken += 1;
    };
    assert!(matches!(&error, Error::NoSpace { detail } if detail.contains("refreservation")), "{error}");
    assert!(taken > 0);
    pool.verify().unwrap();
}

/// Nothing else is reserved, as the dataset has used all of it.
#[test]
fn a_snapshot_of_what_used_all_of_its_refreservation_is_refused_where_it_cannot_be_had_again() {
    let (_folder, pool) = make(Some(40 << 20));
    pool.create_dataset("a", false, &[]).unwrap();
    set(&pool, "a", Limit::RefReservation, 8 << 20);
    let (a, inode) = file(&pool, "a");
    pool.create_dataset("b", false, &[]).unwrap();
    for index in 0..(8 << 20) / PIECE {
        a.write(inode, (index * PIECE) as u64, &[1; PIECE]).unwrap();
    }
    let (other, in_other) = file(&pool, "b");
    let (_, error) = fill(&other, in_other, 0);
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let error = pool.snapshot(&["a@one".to_owned()], false, &[]).unwrap_err();
    assert!(matches!(&error, Error::NoSpace { detail } if detail.contains("refreservation")), "{error}");
    pool.snapshot(&["b@one".to_owned()], false, &[]).unwrap();
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let (_folder, pool) = make(None);
    pool.create_dataset("a", false, &[]).unwrap();
    snapshot(&pool, "a@one");
    for (key, value) in [("quota", "x"), ("quota", "-1"), ("refquota", "1G"), ("reservation", "")] {
        assert!(matches!(pool.set_property("a", key, value), Err(Error::Invalid(_))), "{key}={value}");
    }
    assert!(matches!(pool.set_property("a@one", "quota", "1"), Err(Error::Invalid(_))));
    set(&pool, "a", Limit::Quota, 1 << 20);
    let error = pool.set_limit("a", Limit::Reservation, Some(ByteLength(2 << 20))).unwrap_err();
    assert!(error.to_string().contains("never be used up"), "{error}");
    assert!(pool.properties("a").unwrap().is_empty(), "limits are no user properties");
    pool.set_property("a", "quota", "none").unwrap();
    assert_eq!(entry(&pool, "a").limits.quota, None);
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Write { dataset: usize, at: usize, pieces: usize },
    Group { dataset: usize, at: Vec<usize> },
    Truncate { dataset: usize, at: usize },
    Snapshot { dataset: usize },
    Destroy { dataset: usize, which: usize },
    Clone { dataset: usize, which: usize },
    Rollback { dataset: usize, which: usize },
    Promote,
    Limit { dataset: usize, limit: usize, pieces: u64 },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let dataset = 0..3usize;
    let step = prop_oneof![
        6 => (dataset.clone(), 0..60usize, 1..20usize).prop_map(|(dataset, at, pieces)| Step::Write { dataset, at, pieces }),
        3 => (dataset.clone(), proptest::collection::vec(0..60usize, 1..12)).prop_map(|(dataset, at)| Step::Group { dataset, at }),
        1 => (dataset.clone(), 0..40usize).prop_map(|(dataset, at)| Step::Truncate { dataset, at }),
        2 => dataset.clone().prop_map(|dataset| Step::Snapshot { dataset }),
        2 => (dataset.clone(), 0..6usize).prop_map(|(dataset, which)| Step::Destroy { dataset, which }),
        1 => (dataset.clone(), 0..6usize).prop_map(|(dataset, which)| Step::Clone { dataset, which }),
        1 => (dataset.clone(), 0..6usize).prop_map(|(dataset, which)| Step::Rollback { dataset, which }),
        1 => Just(Step::Promote),
        3 => (dataset, 0..2usize, 20..120u64).prop_map(|(dataset, limit, pieces)| Step::Limit { dataset, limit, pieces }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

const NAMES: [&str; 3] = ["t", "t/a", "t/a/b"];

fn snapshots_of(pool: &Pool, dataset: &str) -> Vec<String> {
    let filter =
        ListFilter { root: Some(dataset.to_owned()), depth: Some(0), datasets: false, snapshots: true };
    pool.list(&filter).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Does one step; answers whether it added to what datasets hold. Refusals are part of the game, but only
/// some.
fn apply(pool: &Pool, step: &Step, serial: usize) -> bool {
    let allowed = |outcome: Result<(), Error>| match outcome {
        Ok(()) | Err(Error::QuotaExceeded { .. } | Error::Busy { .. } | Error::Invalid(_)) => {}
        Err(error) => panic!("{step:?}: {error}"),
    };
    let pick = |dataset: usize, which: usize| {
        let all = snapshots_of(pool, NAMES[dataset]);
        if all.is_empty() { None } else { Some(all[which % all.len()].clone()) }
    };
    match step {
        Step::Write { dataset, at, pieces } => {
            let handle = pool.dataset(NAMES[*dataset]).unwrap();
            let Ok(inode) = handle.open_or_create(b"f", &Creation::file()) else { return true };
            allowed(handle.write(inode, (at * PIECE) as u64, &vec![serial as u8; pieces * PIECE]));
            return true;
        }
        Step::Group { dataset, at } => {
            let handle = pool.dataset(NAMES[*dataset]).unwrap();
            let Ok(inode) = handle.open_or_create(b"f", &Creation::file()) else { return true };
            let mut group = handle.begin().unwrap();
            for place in at {
                group.write(inode, (place * PIECE) as u64, &[serial as u8; 4096]).unwrap();
            }
            allowed(pool.commit(vec![group]).map(drop));
            return true;
        }
        Step::Truncate { dataset, at } => {
            let handle = pool.dataset(NAMES[*dataset]).unwrap();
            let view = handle.view().unwrap();
            if let Some(inode) = view.resolve(b"f").unwrap() {
                let (size, former) = ((at * PIECE) as u64, view.attributes(inode).unwrap().size);
                let outcome = handle.truncate(inode, size);
                // A longer one may need a node more.
                if size <= former { outcome.unwrap() } else { allowed(outcome) }
            }
        }
        Step::Snapshot { dataset } => snapshot(pool, &format!("{}@s{serial}", NAMES[*dataset])),
        Step::Destroy { dataset, which } => {
            if let Some(name) = pick(*dataset, *which) {
                allowed(pool.destroy(&DestroyTarget::Snapshot(name)).map(drop));
            }
        }
        Step::Clone { dataset, which } => {
            if let Some(name) = pick(*dataset, *which) {
                let _ = pool.destroy(&DestroyTarget::Dataset { name: "t/c".into(), recursive: true });
                match pool.clone_snapshot(&name, "t/c", false) {
                    Err(Error::Exists { .. }) => {}
                    outcome => allowed(outcome),
                }
            }
        }
        Step::Rollback { dataset, which } => {
            if let Some(name) = pick(*dataset, *which) {
                pool.rollback(&name, true).unwrap();
            }
        }
        Step::Promote => match pool.promote("t/c") {
            Err(Error::NotFound { .. } | Error::Exists { .. }) => {}
            outcome => allowed(outcome),
        },
        Step::Limit { dataset, limit, pieces } => {
            let limit = [Limit::Quota, Limit::RefQuota][*limit];
            set(pool, NAMES[*dataset], limit, pieces * PIECE as u64);
        }
        Step::Reopen => unreachable!("done by the caller"),
    }
    false
}

/// What exceeds its quota, by name and limit.
fn exceeded(pool: &Pool) -> Vec<(String, Limit, u64)> {
    let mut found = Vec::new();
    for name in NAMES {
        let entry = entry(pool, name);
        for (limit, bytes) in [(Limit::Quota, entry.used.0), (Limit::RefQuota, entry.referenced.0)] {
            if entry.limits.get(limit).is_some_and(|most| bytes > most.0) {
                found.push((name.to_owned(), limit, bytes));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("ICECORE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// No write makes anything exceed its quota, or exceed it by more; what is counted along the way is what
    /// there is.
    #[test]
    fn no_history_exceeds_a_quota_by_writing(steps in steps()) {
        let (folder, mut pool) = make(None);
        pool.create_dataset("t/a/b", true, &[]).unwrap();
        for (serial, step) in steps.iter().enumerate() {
            if matches!(step, Step::Reopen) {
                // Without a close: everything since the last checkpoint is replayed.
                pool.sync().unwrap();
                let copy = tempfile::tempdir().unwrap();
                for entry in std::fs::read_dir(folder.path()).unwrap() {
                    let entry = entry.unwrap();
                    std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
                }
                let copied = open(copy.path());
                copied.verify().unwrap();
                for name in NAMES {
                    prop_assert_eq!(entry(&copied, name).used, entry(&pool, name).used);
                }
                drop(copied);
                pool.close().unwrap();
                drop(pool);
                pool = open(folder.path());
            } else {
                let before = exceeded(&pool);
                let adds = apply(&pool, step, serial);
                if adds {
                    for (name, limit, bytes) in exceeded(&pool) {
                        let former = before.iter().find(|one| one.0 == name && one.1 == limit);
                        prop_assert!(
                            former.is_some_and(|former| bytes <= former.2),
                            "{:?} of {} is exceeded by {:?}", limit, name, step
                        );
                    }
                }
            }
            pool.verify().unwrap();
        }
    }
}

/// Of a dataset that is refused nothing is left, nor of those above it that would have been made for it.
#[test]
fn a_dataset_that_is_refused_leaves_no_parents_behind() {
    let (folder, pool) = make(Some(64 << 20));
    let names = |pool: &Pool| -> Vec<String> {
        let filter = ListFilter { datasets: true, ..ListFilter::default() };
        pool.list(&filter).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    let before = names(&pool);
    let much = [("reservation".to_owned(), (1_u64 << 40).to_string())];
    assert!(matches!(pool.create_dataset("a/b/c", true, &much), Err(Error::NoSpace { .. })));
    assert_eq!(names(&pool), before);
    pool.create_dataset("db", false, &[]).unwrap();
    let (db, inode) = file(&pool, "db");
    assert!(matches!(fill(&db, inode, 0).1, Error::NoSpace { .. }));
    snapshot(&pool, "db@a");
    // Until there is no room for the smallest thing.
    let refused = (0..100_000).find(|number| {
        let above: Vec<String> = names(&pool);
        let outcome = pool.create_dataset(&format!("d{number}/e/f/g"), true, &[]);
        let is_refused = matches!(outcome, Err(Error::NoSpace { .. }));
        assert!(is_refused || outcome.is_ok(), "{outcome:?}");
        assert!(!is_refused || names(&pool) == above, "{:?}", names(&pool).last());
        is_refused
    });
    let number = refused.expect("it is full in the end");
    assert!(matches!(
        pool.clone_snapshot("db@a", &format!("d{number}/e/f/g"), true),
        Ok(()) | Err(Error::NoSpace { .. })
    ));
    drop((db, pool));
    let pool = open(folder.path());
    let halves = names(&pool).iter().filter(|name| name.ends_with("/e/f/g")).count();
    assert_eq!(
        names(&pool).iter().filter(|name| name.starts_with('d') && name.ends_with("/e")).count(),
        halves
    );
}
