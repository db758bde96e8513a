//! A full pool, as the administrator who is called at three in the morning meets it: see the guide page of
//! that name.

use crate::fixture::{Fixture, program};
use icecore::{Creation, Error, OpenOptions, Pool};

/// Writes until there is no room. Answers how much was written.
pub fn fill(pool: &Pool, name: &[u8]) -> u64 {
    let dataset = pool.dataset("db").unwrap();
    let inode = dataset.open_or_create(name, &Creation::file());
    let inode = inode.unwrap_or_else(|error| panic!("{error}: {:?}", pool.statistics()));
    let mut at = 0;
    for length in [200_000, 4096] {
        loop {
            match dataset.write(inode, at, &vec![7; length]) {
                Ok(()) => at += length as u64,
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    at
}

#[test]
fn what_the_guide_says_works_on_a_full_pool_works_and_writing_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    program().args(["init", "--segment-size", "2M", "--size-limit", "128M"]).arg(&pool).assert().success();
    let fixture = Fixture { folder, pool };
    fixture.done(&["create", "db"]);
    fixture.import("app", &vec![1; 16 << 20]);
    fixture.done(&["snapshot", "db@one"]);
    fixture.import("app", &vec![2; 24 << 20]);
    fixture.done(&["snapshot", "db@two"]);
    // In use, as it would be.
    let owner = Pool::open_directory(&fixture.pool, &OpenOptions::default()).unwrap();
    let first = fill(&owner, b"filler");
    assert!(first > 40 << 20, "{first}");
    // Nor for anything smaller.
    let refused = (0..4000).map(|number| owner.snapshot(&[format!("db@small{number}")], false, &[]));
    let refused = refused.filter_map(Result::err).next().expect("there is always room for another snapshot");
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    // Refused for what it is, and named.
    for adding in [&["snapshot", "db@three"][..], &["create", "other"], &["hold", "keep", "db@two"]] {
        let output = fixture.run(adding).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("no space left in pool"), "{adding:?}: {said}");
    }
    assert!(fixture.done(&["list", "-t", "all"]).contains("db@two"));
    assert!(fixture.done(&["status"]).contains("segments"));
    assert_eq!(fixture.done(&["list", "-Hp", "-o", "available", "db"]).trim(), "0");
    let monitor = fixture.run(&["monitor"]).output().unwrap();
    assert_eq!(monitor.status.code(), Some(2), "{monitor:?}");
    fixture.done(&["scrub"]);
    fixture.done(&["set", "quota=1G", "db"]);
    fixture.done(&["set", "quota=none", "db"]);
    assert_eq!(fixture.done(&["cat", "db@one/app"]).len(), 16 << 20);
    // There and back.
    let shown = fixture.done(&["rollback", "db@one"]);
    assert_eq!(fixture.done(&["cat", "db/app"]).len(), 16 << 20, "{shown}");
    let saved = fixture.done(&["list", "-H", "-t", "snapshot", "-o", "name"]);
    let saved = saved.lines().find(|name| name.starts_with("db@rollback-")).unwrap().to_owned();
    fixture.done(&["rollback", &saved]);
    assert_eq!(fixture.done(&["cat", "db/app"]).len(), 24 << 20);
    // What the guide says to do.
    fixture.done(&["prune", "--keep-last", "1", "db"]);
    let left = fixture.done(&["list", "-H", "-t", "snapshot", "-o", "name"]);
    for name in left.lines() {
        fixture.done(&["destroy", name]);
    }
    // At once, while the checkpoint that records it may still be on its way.
    fixture.done(&["snapshot", "db@last"]);
    let again = fill(&owner, b"again");
    assert!(again >= 12 << 20, "{again} bytes, where 16 MiB were destroyed");
    owner.close().unwrap();
    // And where no process has the pool open.
    fixture.done(&["rollback", "db@last"]);
    fixture.done(&["destroy", "-r", "db"]);
    assert_eq!(fixture.done(&["list", "-H"]), "");
}

/// Adds what is as small as can be until there is no room for that either, which is not asked of what frees.
fn stuff(pool: &Pool) {
    let value = "x".repeat(1000);
    let refused =
        (0..10_000).find_map(|number| pool.set_property("other", &format!("fill:{number}"), &value).err());
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
}

/// Snapshots of a pool, in the order in which they were taken.
fn snapshots(fixture: &Fixture) -> String {
    fixture.done(&["list", "-H", "-t", "snapshot", "-o", "name"]).replace('\n', " ")
}

/// A full pool lets go of what keeps its snapshots, though nothing can be added. Its books are looked at, and
/// mended, as those of any other.
#[test]
fn a_full_pool_is_checked_and_repaired_and_lets_go_of_what_was_held() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    program().args(["init", "--segment-size", "2M", "--size-limit", "64M"]).arg(&pool).assert().success();
    let fixture = Fixture { folder, pool };
    fixture.done(&["create", "db"]);
    for round in 1..4 {
        fixture.import("app", &vec![round; 6 << 20]);
        fixture.done(&["snapshot", &format!("db@{round}")]);
    }
    fixture.import("app", &vec![4; 6 << 20]);
    fixture.done(&["create", "other"]);
    fixture.done(&["snapshot", "other@1"]);
    fixture.done(&["snapshot", "other@2"]);
    fixture.done(&["hold", "audit", "db@1"]);
    for name in ["db@2", "other@1"] {
        fixture.done(&["hold", "--expires", "2001-01-01", "over", name]);
    }
    let owner = fixture.own();
    assert!(fill(&owner, b"filler") > 10 << 20);
    stuff(&owner);
    // In use, one of each.
    fixture.done(&["release", "audit", "db@1"]);
    assert_eq!(fixture.done(&["holds", "-H", "db@1"]), "");
    fixture.done(&["destroy", "db@1"]);
    let more = fill(&owner, b"more");
    assert!(more > 2 << 20, "{more} bytes, where 6 MiB were destroyed");
    let shown = fixture.done(&["prune", "-v", "--keep-last", "1", "db"]);
    assert!(shown.contains("released hold over on db@2"), "{shown}");
    assert_eq!(snapshots(&fixture), "db@3 other@1 other@2 ");
    let again = fill(&owner, b"again");
    assert!(again > 2 << 20, "{again} bytes, where 6 MiB were destroyed");
    owner.close().unwrap();
    // As full as that leaves it, and where no process has the pool open.
    let available = fixture.done(&["list", "-Hp", "-o", "available", "db"]);
    assert!(available.trim().parse::<u64>().unwrap() <= 4 << 20, "{available}");
    assert!(fixture.done(&["check", "--data"]).ends_with("nothing is wrong\n"));
    assert!(fixture.done(&["check", "--repair"]).ends_with("nothing is wrong\n"));
    // Both superblocks are written at the end of a repair, and nothing else is: there is room for that.
    let second = fixture.pool.join("superblock.1");
    let mut bytes = std::fs::read(&second).unwrap();
    bytes[50] ^= 1;
    std::fs::write(&second, &bytes).unwrap();
    assert!(fixture.done(&["check"]).contains("superblock.1"));
    let said = fixture.done(&["check", "--repair"]);
    assert!(said.contains("mended: superblock.1") && said.ends_with("nothing is wrong\n"), "{said}");
    fixture.done(&["rollback", "db@3"]);
    assert_eq!(fixture.done(&["cat", "db/app"]), "\u{3}".repeat(6 << 20));
    let shown = fixture.done(&["prune", "-v", "--keep-last", "1", "other"]);
    assert!(shown.contains("released hold over on other@1"), "{shown}");
    let left = snapshots(&fixture);
    assert!(left.starts_with("db@3 db@rollback-") && left.ends_with(" other@2 "), "{left}");
    assert!(fixture.done(&["check", "--data"]).ends_with("nothing is wrong\n"));
}
