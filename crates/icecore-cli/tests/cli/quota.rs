//! Quotas and reservations, as people set them and as a database meets them.

use crate::fixture::Fixture;

#[test]
fn limits_are_set_shown_and_taken_away() {
    let fixture = Fixture::with_db();
    fixture.done(&["set", "quota=1.5G", "refquota=1G", "db"]);
    assert_eq!(
        fixture.done(&["get", "-H", "-o", "value", "quota,refquota,reservation", "db"]),
        "1.50G\n1G\nnone\n"
    );
    assert_eq!(fixture.done(&["get", "-Hp", "-o", "value", "quota", "db"]), format!("{}\n", 3u64 << 29));
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "quota", "db@one"]), "-\n");
    assert_eq!(
        fixture.json(&["list", "--json", "-o", "quota,reservation"])["entries"][0]["quota"],
        3u64 << 29
    );
    let available = fixture.done(&["list", "-Hp", "-o", "available", "db"]);
    assert!(available.trim().parse::<u64>().unwrap() <= 1 << 30);
    fixture.done(&["set", "quota=none", "refquota=none", "db"]);
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "quota", "db"]), "none\n");
    fixture.done(&["create", "-o", "quota=10M", "-o", "reservation=1M", "small"]);
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "quota,reservation", "small"]), "10M\n1M\n");
    assert!(fixture.refused(2, &["set", "quota=much", "db"]).contains("quota"));
    assert!(fixture.refused(2, &["inherit", "quota", "db"]).contains("quota=none"));
    assert!(fixture.refused(1, &["set", "quota=1G", "db@one"]).contains("snapshot"));
    assert!(fixture.refused(1, &["set", "used=1G", "db"]).contains("worked out"));
    let said = fixture.refused(1, &["set", "reservation=20M", "small"]);
    assert!(said.contains("a reservation of 20M can never be used up within a quota of 10M"), "{said}");
}

#[test]
fn a_database_at_its_quota_is_full_and_whole_and_goes_on_when_there_is_room() {
    let fixture = Fixture::new();
    fixture.done(&["create", "-o", "quota=2M", "db"]);
    fixture.done(&["sql", "-c", "db/app.db", "CREATE TABLE t(x)"]);
    let insert = "INSERT INTO t VALUES (randomblob(100000))";
    // On a pool in use, as it would be.
    let pool = fixture.own();
    let mut rows = 0;
    let said = loop {
        let dataset = pool.dataset("db").unwrap();
        let inode = dataset.open_or_create(b"filler", &icecore::Creation::file()).unwrap();
        match dataset.write(inode, rows * 100_000, &[7; 100_000]) {
            Ok(()) => rows += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(said.starts_with("db has a quota of 2M, of which "), "{said}");
    assert!(fixture.done(&["list", "-Hp", "-o", "used", "db"]).trim().parse::<u64>().unwrap() <= 2 << 20);
    assert!(
        fixture
            .run(&["import", "-", "db/more"])
            .write_stdin(vec![1; 300_000])
            .assert()
            .code(6)
            .get_output()
            .stderr
            .starts_with(b"icecore: ")
    );
    pool.close().unwrap();
    let said = fixture.refused(6, &["sql", "db/app.db", insert]);
    assert!(said.contains("full: db has a quota of"), "{said}");
    assert_eq!(
        fixture.done(&["sql", "-H", "db/app.db", "PRAGMA integrity_check; SELECT count(*) FROM t"]),
        "ok\n0\n"
    );
    // Deleting, snapshots and their destruction work all the while.
    fixture.done(&["snapshot", "db@full"]);
    fixture.done(&["destroy", "db@full"]);
    fixture.done(&["set", "quota=4M", "db"]);
    fixture.done(&["sql", "db/app.db", insert]);
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", "SELECT count(*) FROM t"]), "1\n");
}

/// A size as messages have it.
fn bytes(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let shift = match unit {
        "B" => 0,
        "K" => 10,
        "M" => 20,
        _ => panic!("{text}"),
    };
    number.parse::<u64>().unwrap() << shift
}

/// What is used, and how much more would be needed, as a refusal says it.
fn used_and_needed(said: &str) -> (u64, u64) {
    let (_, rest) = said.split_once("of which ").unwrap();
    let (used, rest) = rest.split_once(" are used, and ").unwrap();
    (bytes(used), bytes(rest.split_once(" more are needed").unwrap().0))
}

#[test]
fn a_transaction_of_a_database_is_refused_if_it_is_one_block_too_much_and_not_before() {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    let used = || fixture.done(&["list", "-Hp", "-o", "used", "db"]).trim().parse::<u64>().unwrap();
    let fill = "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
                INSERT INTO t SELECT randomblob(500) FROM n";
    fixture.done(&["sql", "-c", "db/app.db", fill]);
    fixture.done(&["snapshot", "db@one"]);
    // Scattered pages, which the snapshot keeps.
    let update = "UPDATE t SET x = randomblob(500) WHERE rowid % 97 = 0";
    let limit = |bytes: u64| fixture.done(&["set", &format!("quota={bytes}"), "db"]);
    limit(used());
    let (before, needed) = used_and_needed(&fixture.refused(6, &["sql", "db/app.db", update]));
    assert_eq!(before, used());
    assert!(needed > 20 * 4096, "{needed}");
    limit(before + needed - 4096);
    assert!(fixture.refused(6, &["sql", "db/app.db", update]).contains("full: db has a quota of"));
    assert_eq!(used(), before);
    limit(before + needed);
    fixture.done(&["sql", "db/app.db", update]);
    assert_eq!(used(), before + needed);
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", "PRAGMA integrity_check"]), "ok\n");
}

#[test]
fn a_database_that_is_to_be_made_beyond_a_quota_is_refused_as_any_write_is() {
    let fixture = Fixture::with_db();
    // From here on, a file more is a node more, which is what the snapshot keeps.
    fixture.done(&["snapshot", "db@two"]);
    let used = fixture.done(&["list", "-Hp", "-o", "used", "db"]);
    fixture.done(&["set", &format!("quota={}", used.trim()), "db"]);
    let said = fixture.refused(6, &["sql", "-c", "db/new.db", "CREATE TABLE t(x)"]);
    assert!(said.contains("cannot open db/new.db") && said.contains("full: db has a quota of"), "{said}");
    fixture.done(&["set", "quota=none", "db"]);
    fixture.done(&["sql", "-c", "db/new.db", "CREATE TABLE t(x)"]);
}

#[test]
fn a_size_limit_below_what_is_reserved_is_refused_and_the_least_that_is_reported_is_taken() {
    let fixture = Fixture::with_db();
    fixture.done(&["set", "reservation=40M", "db"]);
    let said = fixture.refused(1, &["resize", "--size-limit", "32M"]);
    assert!(said.contains("are reserved for datasets (`icecore get reservation,refreservation`"), "{said}");
    let least = said.split("it must be ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(bytes(least) > 40 << 20, "{said}");
    fixture.done(&["resize", "--size-limit", least]);
    let said = fixture.refused(6, &["set", "reservation=44M", "db"]);
    assert!(said.contains("cannot be reserved"), "{said}");
}

/// As the guide says: what only takes away is done at a quota, and may go a few blocks beyond it.
#[test]
fn a_file_is_emptied_by_an_import_at_the_quota() {
    let fixture = Fixture::with_db();
    fixture.import("large", &vec![1; 300_000]);
    fixture.done(&["snapshot", "db@two"]);
    let used = || fixture.done(&["list", "-Hp", "-o", "used", "db"]).trim().parse::<u64>().unwrap();
    let quota = used();
    fixture.done(&["set", &format!("quota={quota}"), "db"]);
    let import = |content: &[u8]| {
        fixture.run(&["import", "-f", "-", "db/large"]).write_stdin(content).output().unwrap().status.code()
    };
    assert_eq!(import(b"something"), Some(6));
    assert_eq!(used(), quota);
    assert_eq!(import(b""), Some(0));
    assert_eq!(fixture.done(&["cat", "db/large"]), "");
    assert!(used() > quota && used() <= quota + 4 * 4096, "{} with a quota of {quota}", used());
}
