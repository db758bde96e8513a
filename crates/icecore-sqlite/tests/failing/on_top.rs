//! A VFS on top of ours, as programs register them to watch or to encrypt.

use crate::common::{Place, one, open_uri, run};
use crate::{memory, shim};

#[test]
fn functions_and_tables_find_the_database_below() {
    memory::install();
    shim::install();
    let place = Place::new();
    let uri = |name: &str| place.uri(name).replace("vfs=icecore", "vfs=failing");
    let db = open_uri(&uri("a.db"));
    run(&db, &format!("ATTACH '{}' AS b; CREATE TABLE main.t(x); CREATE TABLE b.t(x)", uri("b.db")));
    run(&db, "BEGIN; INSERT INTO main.t VALUES (1); INSERT INTO b.t VALUES (1); COMMIT");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('one')"), "ds@one");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('two', 'b')"), "ds@two");
    run(&db, "UPDATE t SET x = 2");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM icecore_snapshots('b')"), 2);
    let past = place.uri("a.db").replace("vfs=icecore", "vfs=failing&snapshot=one");
    assert_eq!(one::<i64>(&open_uri(&past), "SELECT x FROM t"), 1);
}
