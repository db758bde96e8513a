//! Free segments go back to the filesystem.

use crate::fixture::{Fixture, program};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// The sum over the files of a pool.
fn total(pool: &Path, of: impl Fn(&Metadata) -> u64) -> u64 {
    std::fs::read_dir(pool).unwrap().map(|entry| of(&entry.unwrap().metadata().unwrap())).sum()
}

fn size(fixture: &Fixture) -> u64 {
    total(&fixture.pool, Metadata::len)
}

#[test]
fn a_small_pool_is_small() {
    let folder = tempfile::tempdir().unwrap();
    if rustix::fs::statvfs(folder.path()).is_ok_and(|all| all.f_blocks * all.f_frsize >= 1 << 40) {
        eprintln!("left out: segments are larger on a filesystem of 1 TiB and more");
        return;
    }
    let fill = "CREATE TABLE t(x); INSERT INTO t VALUES (randomblob(1 << 20))";
    for arguments in [&["init", "pool"][..], &["create", "pool/db"], &["sql", "-c", "pool/db/app.db", fill]] {
        program().args(arguments).current_dir(folder.path()).assert().success();
    }
    // Second copies are files with holes.
    let taken = total(&folder.path().join("pool"), |file| file.blocks() * 512);
    assert!(taken < 64 * MIB, "{taken}");
}

#[test]
fn what_was_removed_is_given_back() {
    let fixture = Fixture::with_db();
    fixture.import("large", &vec![7; 64 << 20]);
    let owner = fixture.own();
    owner.dataset("db").unwrap().unlink(icecore::units::InodeNumber::ROOT, b"large").unwrap();
    let before = size(&fixture);
    // While another process has it open.
    let said = fixture.done(&["trim"]);
    let after = size(&fixture);
    assert!(said.starts_with("gave back ") && said.ends_with(" files\n"), "{said}");
    assert!(before > 64 * MIB && after < 48 * MIB, "{before}, then {after}");
    owner.close().unwrap();
    let report = fixture.json(&["trim", "--json"]);
    assert!(report["bytes"].is_u64() && report["segments"].as_u64() < Some(4), "{report}");
    assert!(report["segments_free"].as_u64() > Some(0), "{report}");
    assert_eq!(fixture.done(&["cat", "db@one/app"]), "first");
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    fixture.done(&["check"]);
    fixture.done(&["scrub"]);
}
