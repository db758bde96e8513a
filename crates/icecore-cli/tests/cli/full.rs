//! A full pool, as whoever is called at three in the morning meets it: see the guide page of that name.

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
    let told = fixture.done(&["rollback", "db@one"]);
    assert_eq!(fixture.done(&["cat", "db/app"]).len(), 16 << 20, "{told}");
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
    // And with nobody there.
    fixture.done(&["rollback", "db@last"]);
    fixture.done(&["destroy", "-r", "db"]);
    assert_eq!(fixture.done(&["list", "-H"]), "");
}
