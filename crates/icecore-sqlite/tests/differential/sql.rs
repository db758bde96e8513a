//! Statements, drawn at random. All are deterministic: both sides get the same text.

use icecore_sim::Random;

pub fn one_of<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.index(from.len())]
}

/// Bytes of a length that is usually small, sometimes fills pages, and sometimes many of them.
fn bytes(random: &mut Random) -> String {
    let size = match random.below(20) {
        0 => random.between(20_000, 90_000),
        1..=6 => random.below(5000),
        _ => random.below(120),
    };
    match random.below(3) {
        0 => format!("zeroblob({size})"),
        1 => format!("CAST(printf('%.{size}c', '{}') AS BLOB)", char::from(b'a' + random.below(26) as u8)),
        _ => format!("replace(hex(zeroblob({})), '00', '{}')", size / 4, random.between(1000, 9999)),
    }
}

fn series(count: u64) -> String {
    format!(
        "(WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {count}) SELECT i FROM s)"
    )
}

/// A statement that changes rows.
pub fn write(random: &mut Random, schema: &str) -> String {
    let id = random.below(120);
    let data = bytes(random);
    let verb = one_of(random, &["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE", "REPLACE"]);
    match random.below(16) {
        0..=3 => format!("{verb} INTO {schema}.t VALUES ({id}, 'row {id}', {data})"),
        4 => format!("INSERT INTO {schema}.t(a, b) VALUES ('next', {data})"),
        5 => {
            let rows = series(random.between(1, 60));
            format!(
                "INSERT OR IGNORE INTO {schema}.t SELECT i * 3, 'many ' || i, zeroblob(i * {id}) FROM {rows}"
            )
        }
        6 => format!("UPDATE {schema}.t SET a = a || '!', b = {data} WHERE id % 7 = {}", id % 7),
        7 => format!("UPDATE {schema}.t SET id = id + 1 WHERE id < {id}"),
        8 => format!("DELETE FROM {schema}.t WHERE id % 5 = {}", id % 5),
        9 => format!("DELETE FROM {schema}.{}", one_of(random, &["t WHERE id > 20", "log", "u", "t", "n"])),
        10 => format!("INSERT OR IGNORE INTO {schema}.u VALUES ('k{id}', {data})"),
        11 => {
            format!("INSERT INTO {schema}.u VALUES ('k{id}', {id}) ON CONFLICT(k) DO UPDATE SET v = v || '+'")
        }
        12 => format!("INSERT INTO {schema}.n(x) VALUES ('{}')", id % 20),
        13 => format!("UPDATE {schema}.u SET v = {data} WHERE k > 'k{id}' RETURNING k"),
        14 => format!("INSERT OR ROLLBACK INTO {schema}.n(x) VALUES ('{}')", id % 10),
        _ => format!("INSERT OR FAIL INTO {schema}.n(x) SELECT '' || i FROM {}", series(id % 30 + 1)),
    }
}

/// A statement that reads rows.
pub fn read(random: &mut Random, schema: &str) -> String {
    match random.below(11) {
        0..=2 => format!("SELECT count(*), sum(id), sum(length(b)), max(a) FROM {schema}.t"),
        3 => format!("SELECT id, a, length(b) FROM {schema}.t ORDER BY a, id LIMIT 20"),
        4 => format!("SELECT rowid, * FROM {schema}.log"),
        5 => format!("SELECT k, length(v) FROM {schema}.u"),
        6 => format!("SELECT * FROM {schema}.n ORDER BY x"),
        7 => format!("PRAGMA {schema}.integrity_check"),
        8 => format!("SELECT name, rootpage, sql FROM {schema}.sqlite_schema"),
        9 => format!("SELECT b FROM {schema}.t WHERE id = {}", random.below(120)),
        _ => format!("PRAGMA {schema}.quick_check"),
    }
}

/// A pragma that asks and changes nothing.
pub fn question(random: &mut Random, schema: &str) -> String {
    let names = [
        "page_count",
        "freelist_count",
        "data_version",
        "schema_version",
        "user_version",
        "locking_mode",
        "journal_mode",
        "synchronous",
        "cache_size",
        "cache_spill",
        "auto_vacuum",
        "page_size",
        "max_page_count",
        "application_id",
        "encoding",
        "journal_size_limit",
        "table_list",
        "secure_delete",
    ];
    match random.below(20) {
        0 => "PRAGMA database_list".to_owned(),
        _ => format!("PRAGMA {schema}.{}", one_of(random, &names)),
    }
}

/// A statement that changes the schema or reorganises the file.
pub fn define(random: &mut Random, schema: &str) -> String {
    let text = match random.below(15) {
        0 => "CREATE INDEX IF NOT EXISTS {s}.t_b ON t(b)",
        1 => "DROP INDEX IF EXISTS {s}.t_b",
        2 => "CREATE TABLE IF NOT EXISTS {s}.v AS SELECT * FROM {s}.t",
        3 => "DROP TABLE IF EXISTS {s}.v",
        4 => "ALTER TABLE {s}.log ADD COLUMN c DEFAULT 5",
        5 => "REINDEX {s}.t_a",
        6 => "ANALYZE {s}",
        7 => "PRAGMA {s}.incremental_vacuum(3)",
        8 => "PRAGMA {s}.incremental_vacuum",
        9 => "PRAGMA {s}.user_version=9",
        10 => "PRAGMA {s}.application_id=77",
        11 => {
            "CREATE TRIGGER IF NOT EXISTS {s}.u_new AFTER INSERT ON u BEGIN \
             UPDATE t SET a = new.k WHERE id = 5; INSERT INTO log VALUES ('u', new.k); END"
        }
        12 => "DROP TRIGGER IF EXISTS {s}.u_new",
        13 => "CREATE VIEW IF NOT EXISTS {s}.w AS SELECT id, length(b) AS l FROM t",
        _ => "VACUUM {s}",
    };
    text.replace("{s}", schema)
}

/// A pragma of the connection that may be given at any time on any kind of file.
pub fn tune(random: &mut Random, schema: &str) -> String {
    let text = match random.below(22) {
        0..=3 => "PRAGMA {s}.cache_size=3",
        4 => "PRAGMA {s}.cache_size=20",
        5 => "PRAGMA {s}.cache_size=2000",
        6 => "PRAGMA cache_spill=off",
        7 => "PRAGMA cache_spill=on",
        8 => "PRAGMA {s}.cache_spill=2",
        9 => "PRAGMA {s}.synchronous=OFF",
        10 => "PRAGMA {s}.synchronous=NORMAL",
        11 => "PRAGMA {s}.synchronous=FULL",
        12 => "PRAGMA {s}.synchronous=EXTRA",
        13 => "PRAGMA {s}.auto_vacuum=FULL",
        14 => "PRAGMA {s}.auto_vacuum=INCREMENTAL",
        15 => "PRAGMA temp_store=MEMORY",
        16 => "PRAGMA {s}.secure_delete=on",
        17 => "PRAGMA shrink_memory",
        18 => "PRAGMA {s}.max_page_count=60",
        19 => "PRAGMA {s}.mmap_size=1000000",
        20 => "PRAGMA {s}.journal_size_limit=20000",
        _ => "PRAGMA {s}.max_page_count=100000",
    };
    text.replace("{s}", schema)
}

/// Begins a transaction.
pub fn begin(random: &mut Random) -> &'static str {
    one_of(random, &["BEGIN", "BEGIN DEFERRED", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT s"])
}

/// Ends a transaction, or nests another one in it.
pub fn go_on(random: &mut Random) -> &'static str {
    let ends = ["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"];
    let nests = ["SAVEPOINT s", "SAVEPOINT r", "ROLLBACK TO s", "ROLLBACK TO r", "RELEASE s", "RELEASE r"];
    if random.chance(50) { one_of(random, &ends) } else { one_of(random, &nests) }
}

/// Something with tables of the connection alone.
pub fn temporary(random: &mut Random, schema: &str) -> String {
    let text = match random.below(6) {
        0..=1 => "CREATE TEMP TABLE IF NOT EXISTS tt AS SELECT * FROM {s}.t",
        2 => "INSERT INTO tt SELECT id + 1000, a, b FROM {s}.t",
        3 => "INSERT OR IGNORE INTO {s}.t SELECT * FROM tt",
        4 => "SELECT count(*), sum(length(b)) FROM tt",
        _ => "DROP TABLE IF EXISTS temp.tt",
    };
    text.replace("{s}", schema)
}
