//! Histories of SQL, and what a database holds after each of their actions.

use icecore_sim::Random;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How the database of a history is kept.
#[derive(Clone, Debug)]
pub struct Setting {
    pub page_bytes: u32,
    pub cache_pages: u32,
    pub journal: &'static str,
    pub synchronous: &'static str,
    pub vacuum: &'static str,
    /// Transactions write to a second, attached file as well.
    pub attached: bool,
    /// The pool keeps blocks in memory, and more than a few nodes.
    pub caches: bool,
}

impl Setting {
    pub fn draw(random: &mut Random) -> Self {
        Self {
            page_bytes: 512 << random.below(8),
            cache_pages: [3, 10, 1000][random.index(3)],
            journal: ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"][random.index(4)],
            synchronous: ["NORMAL", "FULL", "EXTRA"][random.index(3)],
            vacuum: ["NONE", "FULL", "INCREMENTAL"][random.index(3)],
            attached: false,
            caches: true,
        }
    }

    /// The pragmas that a connection needs first. Some of them are for new files only.
    pub fn pragmas(&self) -> String {
        let schemas = if self.attached { &["main", "other"][..] } else { &["main"] };
        let one = |schema: &&str| {
            format!(
                "PRAGMA {schema}.page_size={}; PRAGMA {schema}.auto_vacuum={}; PRAGMA {schema}.cache_size={}; \
                 PRAGMA {schema}.journal_mode={}; PRAGMA {schema}.synchronous={};",
                self.page_bytes, self.vacuum, self.cache_pages, self.journal, self.synchronous
            )
        };
        schemas.iter().map(one).collect()
    }
}

/// One statement with the bytes of its parameter, if it has one.
#[derive(Clone, Debug)]
pub struct Statement {
    pub sql: String,
    pub blob: Option<Vec<u8>>,
}

impl Statement {
    pub fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), blob: None }
    }

    pub fn with_blob(sql: impl Into<String>, blob: Vec<u8>) -> Self {
        Self { sql: sql.into(), blob: Some(blob) }
    }

    pub fn run(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare(&self.sql)?;
        let mut rows = statement.query(params_from_iter(&self.blob))?;
        while rows.next()?.is_some() {}
        Ok(())
    }
}

/// What is acknowledged as one.
#[derive(Clone, Debug)]
pub enum Action {
    /// One transaction, or what has no effect on the contents, such as VACUUM.
    Sql(Vec<Statement>),
    Snapshot(String),
    Checkpoint,
    /// The connection is closed and opened again.
    Reconnect,
}

/// Actions, and what there is after so many of them.
pub struct History {
    pub setting: Setting,
    pub actions: Vec<Action>,
    /// One more than actions.
    pub states: Vec<u64>,
}

impl History {
    pub fn generate(setting: Setting, length: usize, random: &mut Random) -> Self {
        let mut actions = vec![schema(&setting)];
        for number in 1..length {
            actions.push(draw(&setting, number, random));
        }
        Self::of(setting, actions)
    }

    /// Lives through the actions in memory.
    pub fn of(setting: Setting, actions: Vec<Action>) -> Self {
        let model = Connection::open_in_memory().expect("a database in memory");
        if setting.attached {
            model.execute_batch("ATTACH ':memory:' AS other").expect("another one");
        }
        let mut states = vec![contents(&model, &setting).expect("the contents")];
        for action in &actions {
            if let Action::Sql(statements) = action {
                for statement in statements {
                    statement.run(&model).unwrap_or_else(|error| panic!("{}: {error}", statement.sql));
                }
                assert!(model.is_autocommit(), "an action leaves a transaction open: {action:?}");
            }
            states.push(contents(&model, &setting).expect("the contents"));
        }
        Self { setting, actions, states }
    }

    /// The actions up to this one, to be shown with a failure.
    pub fn recent(&self, index: usize) -> String {
        let shown = |(index, action): (usize, &Action)| match action {
            Action::Sql(statements) => {
                let all: Vec<&str> = statements.iter().map(|statement| statement.sql.as_str()).collect();
                format!("{index}: {}", all.join("; "))
            }
            other => format!("{index}: {other:?}"),
        };
        let actions = self.actions.iter().enumerate().take(index + 1).skip(index.saturating_sub(4));
        actions.map(shown).collect::<Vec<_>>().join("\n")
    }

    /// Names of the snapshots taken by the first `count` actions, with what they hold.
    pub fn snapshots(&self, count: usize) -> impl Iterator<Item = (&str, u64)> {
        self.actions[..count].iter().zip(&self.states).filter_map(|(action, state)| match action {
            Action::Snapshot(name) => Some((name.as_str(), *state)),
            _ => None,
        })
    }
}

fn schema(setting: &Setting) -> Action {
    let mut sql = vec!["BEGIN".to_owned()];
    for schema in if setting.attached { &["main", "other"][..] } else { &["main"] } {
        sql.push(format!("CREATE TABLE {schema}.clock(n INTEGER)"));
        sql.push(format!("INSERT INTO {schema}.clock VALUES (0)"));
        for table in ["t", "u"] {
            sql.push(format!("CREATE TABLE {schema}.{table}(id INTEGER PRIMARY KEY, a TEXT, b BLOB)"));
        }
    }
    sql.push("COMMIT".to_owned());
    Action::Sql(sql.into_iter().map(Statement::new).collect())
}

fn draw(setting: &Setting, number: usize, random: &mut Random) -> Action {
    match random.below(100) {
        0..62 => transaction(setting, number, random),
        62..67 => Action::Sql(vec![Statement::new("VACUUM")]),
        67..70 => {
            let bytes = 512 << random.below(8);
            Action::Sql([format!("PRAGMA page_size={bytes}"), "VACUUM".to_owned()].map(Statement::new).into())
        }
        70..74 => Action::Sql(vec![write(setting, random)]),
        74..88 => Action::Snapshot(format!("s{number}")),
        88..95 => Action::Checkpoint,
        _ => Action::Reconnect,
    }
}

fn transaction(setting: &Setting, number: usize, random: &mut Random) -> Action {
    let begin = ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"][random.index(3)];
    let mut statements = vec![Statement::new(begin), Statement::new("UPDATE main.clock SET n = n + 1")];
    if setting.attached {
        statements.push(Statement::new("UPDATE other.clock SET n = n + 1"));
    }
    for part in 0..random.between(1, 5) {
        match random.below(10) {
            0 => statements.push(change_of_schema(number, part, random)),
            1 | 2 => {
                statements.push(Statement::new("SAVEPOINT s"));
                statements.push(write(setting, random));
                if random.chance(50) {
                    statements.push(Statement::new("ROLLBACK TO s"));
                }
                statements.push(Statement::new("RELEASE s"));
            }
            3 => statements.push(Statement::new("PRAGMA incremental_vacuum(7)")),
            _ => statements.push(write(setting, random)),
        }
    }
    statements.push(Statement::new(if random.chance(20) { "ROLLBACK" } else { "COMMIT" }));
    Action::Sql(statements)
}

fn change_of_schema(number: usize, part: u64, random: &mut Random) -> Statement {
    Statement::new(match random.below(6) {
        0 => format!("ALTER TABLE u ADD COLUMN c{number}_{part} DEFAULT {number}"),
        1 => "CREATE INDEX IF NOT EXISTS main.i ON t(a)".to_owned(),
        2 => "DROP INDEX IF EXISTS main.i".to_owned(),
        3 => "CREATE TABLE IF NOT EXISTS v AS SELECT id, a FROM t".to_owned(),
        4 => "DROP TABLE IF EXISTS v".to_owned(),
        _ => format!("PRAGMA user_version={number}"),
    })
}

fn write(setting: &Setting, random: &mut Random) -> Statement {
    let schema = if setting.attached && random.chance(50) { "other" } else { "main" };
    let table = format!("{schema}.{}", ["t", "u"][random.index(2)]);
    let id = random.below(200);
    let length = [20, 900, 5000, 70_000][random.index(4)];
    let mut blob = vec![0; random.between(1, length) as usize];
    random.fill(&mut blob);
    match random.below(12) {
        0..4 => Statement::with_blob(
            format!("INSERT OR REPLACE INTO {table}(id, a, b) VALUES ({id}, 'row {id}', ?1)"),
            blob,
        ),
        4..7 => {
            // Larger than the page cache, and than what a group keeps in memory.
            blob.truncate(2000);
            let rows = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 150) SELECT";
            Statement::with_blob(
                format!(
                    "INSERT OR REPLACE INTO {table}(id, a, b) {rows} i * 2, 'many ' || i, ?1 || i FROM s"
                ),
                blob,
            )
        }
        7..9 => Statement::with_blob(
            format!("UPDATE {table} SET a = a || '!', b = ?1 WHERE id % 9 = {id} % 9"),
            {
                blob.truncate(9000);
                blob
            },
        ),
        9 | 10 => Statement::new(format!("DELETE FROM {table} WHERE id > {id}")),
        _ => Statement::new(format!("UPDATE {table} SET a = a || 'x' WHERE id < {id}")),
    }
}

/// A number made of all that a connection can see: schema, rows, versions.
pub fn contents(connection: &Connection, setting: &Setting) -> rusqlite::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for schema in if setting.attached { &["main", "other"][..] } else { &["main"] } {
        let version: i64 =
            connection.query_row(&format!("PRAGMA {schema}.user_version"), [], |row| row.get(0))?;
        version.hash(&mut hasher);
        let sql = format!("SELECT type, name, coalesce(sql, '') FROM {schema}.sqlite_schema ORDER BY 1, 2");
        let objects: Vec<(String, String, String)> = connection
            .prepare(&sql)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        objects.hash(&mut hasher);
        for (_, table, _) in objects.iter().filter(|(sort, ..)| sort == "table") {
            rows(connection, &format!("SELECT * FROM {schema}.{table} ORDER BY rowid"), &mut hasher)?;
        }
    }
    Ok(hasher.finish())
}

fn rows(connection: &Connection, sql: &str, hasher: &mut DefaultHasher) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            match row.get_ref(column)? {
                ValueRef::Null => 0.hash(hasher),
                ValueRef::Integer(number) => (1, number).hash(hasher),
                ValueRef::Real(number) => (2, number.to_bits()).hash(hasher),
                ValueRef::Text(bytes) => (3, bytes).hash(hasher),
                ValueRef::Blob(bytes) => (4, bytes).hash(hasher),
            }
        }
    }
    Ok(())
}
