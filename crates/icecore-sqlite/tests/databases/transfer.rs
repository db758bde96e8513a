//! Databases in and out of pools.

use crate::common::{Place, dump, one, open_plain, run};
use icecore_sqlite::{copy_plain, export, export_uri, import, uri};
use std::sync::atomic::{AtomicBool, Ordering};

fn quiet(_: u64, _: u64) -> bool {
    true
}

fn fill(db: &rusqlite::Connection) {
    run(db, "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b BLOB)");
    let rows =
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3000) SELECT i FROM s";
    run(db, &format!("INSERT INTO t SELECT i, 0, randomblob(1000) FROM ({rows})"));
}

#[test]
fn in_and_out_again() {
    for (page_bytes, mode) in [(512, "DELETE"), (4096, "WAL"), (65536, "PERSIST")] {
        let place = Place::new();
        let source = place.outside("source.db");
        let db = open_plain(&source);
        run(
            &db,
            &format!("PRAGMA page_size={page_bytes}; PRAGMA journal_mode={mode}; PRAGMA user_version=7"),
        );
        fill(&db);
        let expected = dump(&db);
        let mut reports = Vec::new();
        place.with_pool(|pool| {
            import(&source, pool, "ds", "app.db", &mut |done, all| {
                reports.push((done, all));
                true
            })
            .expect("an import");
        });
        let last = *reports.last().expect("reports");
        assert!(last.0 == last.1 && last.1 > 10);
        let copy = place.open("app.db");
        assert_eq!(dump(&copy), expected);
        assert_eq!(one::<i64>(&copy, "PRAGMA user_version"), 7);
        assert_eq!(one::<String>(&copy, "PRAGMA journal_mode"), "delete");
        run(&copy, "SELECT icecore_snapshot('s'); DELETE FROM t");
        let target = place.outside("target.db");
        export_uri(&uri(&place.path("app.db"), Some("s")), &target, &mut quiet).expect("an export");
        assert_eq!(dump(&open_plain(&target)), expected);
        drop(copy);
        let second = place.outside("second.db");
        place.with_pool(|pool| export(pool, "ds@s", "app.db", &second, &mut quiet).expect("an export"));
        assert_eq!(dump(&open_plain(&second)), expected);
        // Over what is there, also over what is no database.
        std::fs::write(&target, "nonsense").expect("a file");
        export_uri(&uri(&place.path("app.db"), None), &target, &mut quiet).expect("an export");
        assert_eq!(one::<i64>(&open_plain(&target), "SELECT count(*) FROM t"), 0);
    }
}

#[test]
fn an_import_replaces_as_a_whole_and_an_interrupted_one_not_at_all() {
    let place = Place::new();
    let source = place.outside("source.db");
    let db = open_plain(&source);
    run(&db, "PRAGMA page_size=512");
    fill(&db);
    let db = place.open("app.db");
    run(&db, "CREATE TABLE old(a); INSERT INTO old VALUES (1)");
    drop(db);
    place.with_pool(|pool| {
        let stopped = import(&source, pool, "ds", "app.db", &mut |done, all| done == all);
        assert!(stopped.expect_err("it was stopped").to_string().contains("stopped"));
    });
    assert_eq!(one::<i64>(&place.open("app.db"), "SELECT a FROM old"), 1);
    place.with_pool(|pool| import(&source, pool, "ds", "app.db", &mut quiet).expect("an import"));
    assert_eq!(dump(&place.open("app.db")), dump(&open_plain(&source)));
}

#[test]
fn an_import_is_consistent_while_the_source_is_written() {
    let place = Place::new();
    let source = place.outside("source.db");
    let db = open_plain(&source);
    run(&db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF");
    fill(&db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let db = open_plain(&source);
            run(&db, "PRAGMA synchronous=OFF");
            while !done.load(Ordering::Relaxed) {
                run(&db, "UPDATE t SET a = a + 1");
            }
        });
        for round in 0..3 {
            let name = format!("copy{round}.db");
            place.with_pool(|pool| import(&source, pool, "ds", &name, &mut quiet).expect("an import"));
            let copy = place.open(&name);
            assert_eq!(one::<i64>(&copy, "SELECT max(a) - min(a) FROM t"), 0);
            assert_eq!(one::<String>(&copy, "PRAGMA integrity_check"), "ok");
        }
        let plain = place.outside("plain.db");
        copy_plain(&source, &plain, &mut quiet).expect("a copy");
        assert_eq!(one::<i64>(&open_plain(&plain), "SELECT max(a) - min(a) FROM t"), 0);
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_pool_in_use_is_imported_into_by_the_way_in_use() {
    let place = Place::new();
    let source = place.outside("source.db");
    fill(&open_plain(&source));
    let pool = icecore::Pool::open_directory(&place.pool_path(), &icecore::OpenOptions::default())
        .expect("the pool");
    let registration = icecore_sqlite::register_pool("in-use", pool.clone()).expect("a free name");
    let path = format!("{}/ds/app.db", registration.prefix());
    let db = crate::common::open_uri(&uri(path.as_ref(), None));
    run(&db, "CREATE TABLE old(a); BEGIN IMMEDIATE");
    std::thread::scope(|scope| {
        let import = scope.spawn(|| import(&source, &pool, "ds", "app.db", &mut quiet).expect("an import"));
        std::thread::sleep(std::time::Duration::from_millis(50));
        // It waits for us: one lock table.
        run(&db, "INSERT INTO old VALUES (1); COMMIT");
        import.join().expect("the import");
    });
    assert_eq!(dump(&db), dump(&open_plain(&source)));
}

#[test]
fn failures_name_the_file() {
    let place = Place::new();
    let source = place.outside("source.db");
    std::fs::write(&source, "this is no database at all, but long enough to be looked at".repeat(100))
        .expect("a file");
    place.with_pool(|pool| {
        for (source, dataset, part) in [
            (place.outside("missing.db"), "ds", "missing.db"),
            (source.clone(), "ds", "not a database"),
            (source.clone(), "nothing", "source.db"),
        ] {
            let error =
                import(&source, pool, dataset, "app.db", &mut quiet).expect_err("it cannot work").to_string();
            assert!(error.contains(part), "{error}");
        }
    });
    let target = place.outside("target.db");
    let error =
        export_uri(&uri(&place.path("nothing.db"), None), &target, &mut quiet).expect_err("no such file");
    assert!(error.to_string().contains("nothing.db"), "{error}");
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(a)");
    let far = place.outside("no/such/directory/target.db");
    assert!(export_uri(&uri(&place.path("app.db"), None), &far, &mut quiet).is_err());
    assert!(!target.exists());
    let left: Vec<_> =
        std::fs::read_dir(target.parent().expect("a directory")).expect("a directory").collect();
    assert_eq!(left.len(), 2, "nothing is left behind: {left:?}");
}
