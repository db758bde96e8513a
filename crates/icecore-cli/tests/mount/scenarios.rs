//! What happens to every kind of server: snapshots, clones, rollback, backup, and kills of the mount.

use crate::fixture::Fixture;
use crate::load::Load;
use crate::server::{Care, Kind, Running, ids, initialise};
use crate::writer::Writer;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

/// A server on one dataset under load: snapshots, a second server on a clone, and back to a snapshot.
pub fn scenario(kind: &'static dyn Kind, database: &str) {
    let fixture = Fixture::new();
    fixture.mount();
    let data = fixture.path("db");
    initialise(kind, &data);
    let server = Running::start_in(kind, &data, database);
    server.ask(&kind.schema());
    kind.prepare_load(&server);
    let mut load = Load::start(kind, &server);
    let mut writer = Writer::start(kind, &server, 0);
    let first = clone_and_check(&fixture, kind, &writer, "db@s0", database, Care::Default);
    clone_and_check(&fixture, kind, &writer, "db@s1", database, Care::Default);
    back_up(kind, &server, &writer, database);
    load.stop();
    let (_, refused) = fixture.refused(&["rollback", "db@s0"]);
    assert!(refused.contains("is open"), "{refused}");
    let end = writer.stop();
    // The journal may also have the transaction whose answer the client did not read.
    let in_server = server.verify();
    assert!(in_server >= end);
    server.stop();
    let said = fixture.done(&["rollback", "db@s0"]);
    kind.adopt(&data);
    let server = Running::start_with(kind, &data, database, Care::Trusting);
    assert_eq!(server.verify(), first);
    writer = Writer::start(kind, &server, first);
    load = Load::start(kind, &server);
    clone_and_check(&fixture, kind, &writer, "db@trusting", database, Care::Trusting);
    load.stop();
    drop(writer);
    server.stop();
    // And back to what was before.
    let saved = said.trim().rsplit(' ').next().unwrap().to_owned();
    fixture.done(&["rollback", &saved]);
    let server = Running::start_in(kind, &data, database);
    assert_eq!(server.verify(), in_server);
    server.stop();
    fixture.unmount();
    fixture.done(&["scrub"]);
}

/// Takes a snapshot of a server under load, checks and uses a second server on a clone of it, and destroys
/// the clone. Answers the last number in the journal of the clone.
fn clone_and_check(
    fixture: &Fixture,
    kind: &'static dyn Kind,
    writer: &Writer,
    snapshot: &str,
    database: &str,
    care: Care,
) -> u64 {
    writer.wait_for(30);
    let before = writer.acknowledged();
    fixture.done(&["snapshot", snapshot]);
    fixture.done(&["clone", snapshot, "copy"]);
    kind.adopt(&fixture.path("copy"));
    let copy = Running::start_with(kind, &fixture.path("copy"), database, care);
    let last = copy.verify();
    assert!(last >= before, "{last} of {before}");
    copy.ask(&kind.transaction(last + 1));
    copy.stop();
    fixture.done(&["destroy", "copy"]);
    last
}

/// A copy that the server's own tool makes under load, started on the plain file system.
fn back_up(kind: &'static dyn Kind, server: &Running<'_>, writer: &Writer, database: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (uid, gid) = ids(kind.user());
    chown(folder.path(), Some(uid), Some(gid)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let before = writer.acknowledged();
    kind.back_up(server, folder.path());
    // The writer did not stop for it.
    writer.wait_for(5);
    kind.adopt(folder.path());
    let copy = Running::start_in(kind, folder.path(), database);
    let last = copy.verify();
    assert!(last >= before, "{last} of {before}");
    copy.stop();
}

/// Kills under load: five, or `ICECORE_ROUNDS`.
fn rounds() -> usize {
    let rounds = std::env::var("ICECORE_ROUNDS");
    rounds.map_or(5, |rounds| rounds.parse().expect("ICECORE_ROUNDS is a number"))
}

/// The process of the mount is killed under load. What was acknowledged is there, without a gap. The first
/// kill meets two servers, one of them on a clone, and both come back. From the third kill on the server
/// relies on writes of pages that are not torn.
pub fn killed(kind: &'static dyn Kind, database: &str) {
    let fixture = Fixture::new();
    fixture.mount();
    let data = fixture.path("db");
    initialise(kind, &data);
    let mut server = Running::start_in(kind, &data, database);
    server.ask(&kind.schema());
    kind.prepare_load(&server);
    server = killed_with_clone(&fixture, kind, server, database);
    let mut last = server.verify();
    for round in 1..rounds() {
        let writer = Writer::start(kind, &server, last);
        let load = Load::start(kind, &server);
        writer.wait_for(40);
        fixture.kill_owner();
        let acknowledged = writer.stop();
        drop(load);
        // It has lost its files; what it does about that is its own affair.
        drop(server);
        fixture.mount_again();
        kind.adopt(&data);
        server = Running::start_with(kind, &data, database, Care::Trusting);
        last = server.verify();
        assert!(last >= acknowledged, "{last} of {acknowledged} in round {round}");
    }
    server.stop();
    fixture.unmount();
    fixture.done(&["scrub"]);
}

/// Kills the mount under a server and a second one on a clone of its data. Answers the first, started again.
fn killed_with_clone<'a>(
    fixture: &Fixture,
    kind: &'static dyn Kind,
    server: Running<'a>,
    database: &str,
) -> Running<'a> {
    let (data, clone) = (fixture.path("db"), fixture.path("copy"));
    let load = Load::start(kind, &server);
    let writer = Writer::start(kind, &server, 0);
    writer.wait_for(40);
    fixture.done(&["snapshot", "db@copied"]);
    fixture.done(&["clone", "db@copied", "copy"]);
    kind.adopt(&clone);
    let copy = Running::start_in(kind, &clone, database);
    let on_copy = Writer::start(kind, &copy, copy.verify());
    on_copy.wait_for(20);
    fixture.kill_owner();
    let acknowledged = [writer.stop(), on_copy.stop()];
    drop((load, server, copy));
    fixture.mount_again();
    let started = [&data, &clone].map(|data| {
        kind.adopt(data);
        Running::start_in(kind, data, database)
    });
    for (server, acknowledged) in started.iter().zip(acknowledged) {
        let last = server.verify();
        assert!(last >= acknowledged, "{last} of {acknowledged} on {}", server.data.display());
    }
    let [server, copy] = started;
    copy.stop();
    fixture.done(&["destroy", "copy"]);
    server
}
