//! From a seed to a script.

use crate::script::{Action, LinkId, Opening, Profile, Schema, Script, Setting};
use crate::sql;
use crate::world::DIRECTORY;
use icecore_sim::Random;
use std::collections::BTreeSet;

/// The connection to the files that both sides keep outside of a pool.
pub const OUTSIDE: [LinkId; 2] = [LinkId(8), LinkId(9)];
pub const SLOTS: usize = 2;
/// A schema that is the first file once more.
const TWICE: &str = "twice";

/// The script of a seed.
pub fn script(seed: u64, profile: Profile) -> Script {
    let mut random = Random::new(seed ^ (profile as u64) << 48);
    let wal = match profile {
        Profile::Alone => random.chance(35),
        Profile::Together => true,
        Profile::Turns => false,
    };
    let setting = Setting {
        seed,
        profile,
        wal,
        page_bytes: 1 << *random.pick(&[9, 10, 10, 12, 12, 12, 13, 16]).unwrap_or(&12),
        auto_vacuum: sql::one_of(&mut random, &["NONE", "NONE", "FULL", "INCREMENTAL"]),
        encoding: sql::one_of(&mut random, &["UTF-8", "UTF-8", "UTF-16le"]),
        pool_stays_open: random.chance(80),
        files: 1 + random.index(4),
    };
    let links = if profile == Profile::Alone { 1 } else { 2 + random.index(2) };
    let turned = random.chance(50);
    let with_outside = profile == Profile::Alone && random.chance(5);
    let length = random.between(8, 90);
    let mut generator = Generator {
        random,
        setting,
        links,
        with_outside,
        turned,
        inside: BTreeSet::new(),
        actions: Vec::new(),
    };
    (0..links).for_each(|link| generator.connect(LinkId(link)));
    while (generator.actions.len() as u64) < length {
        generator.add();
    }
    generator.end();
    Script { setting: generator.setting, actions: generator.actions }
}

/// A script on its way.
pub struct Generator {
    pub random: Random,
    pub setting: Setting,
    pub links: usize,
    /// A plain file is attached on both sides.
    pub with_outside: bool,
    /// The connections have different main databases.
    pub turned: bool,
    /// Connections that are in a transaction, as far as one can tell.
    pub inside: BTreeSet<LinkId>,
    pub actions: Vec<Action>,
}

impl Generator {
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub fn run(&mut self, link: LinkId, sql: impl Into<String>) {
        let sql = sql.into();
        let steps = self.random.between(1, 400) as i32;
        let action = match self.setting.profile {
            // Only that it changes is documented, and the world knows one as an action of its own.
            _ if sql.ends_with("data_version") => Action::Run { link, sql },
            _ if self.random.chance(2) => Action::Interrupt { link, steps, sql },
            Profile::Turns => Action::Turn { link, sql: vec![sql] },
            _ => Action::Run { link, sql },
        };
        self.push(action);
    }

    /// Opens a database and attaches the others.
    fn connect(&mut self, link: LinkId) {
        let main = self.main_of(link);
        let how = match self.random.below(12) {
            0 => Opening::ReadOnly,
            1..=3 => Opening::ReadWrite,
            _ => Opening::Create,
        };
        self.inside.remove(&link);
        self.push(Action::Open { link, file: format!("f{main}.db"), how });
        if self.random.chance(4) && self.setting.profile != Profile::Alone {
            return;
        }
        for index in (0..self.setting.files).filter(|&index| index != main) {
            self.push(Action::Run { link, sql: format!("ATTACH '{{f{index}.db}}' AS x{index}") });
        }
        if self.with_outside {
            self.push(Action::Run { link, sql: "ATTACH '{out1.db}' AS o".to_owned() });
        }
    }

    pub fn link(&mut self) -> LinkId {
        LinkId(self.random.index(self.links))
    }

    /// Which file is the main database of a connection.
    pub fn main_of(&self, link: LinkId) -> usize {
        if self.turned { link.0 % self.setting.files } else { 0 }
    }

    pub fn schema(&mut self, link: LinkId) -> String {
        if self.with_outside && self.random.chance(15) {
            return "o".to_owned();
        }
        if self.setting.profile == Profile::Together && self.random.chance(2) {
            return TWICE.to_owned();
        }
        let index = self.random.index(self.setting.files);
        if index == self.main_of(link) { "main".to_owned() } else { format!("x{index}") }
    }

    /// The file that a schema means. `None` outside of a pool.
    pub fn file_of(&self, schema: &Schema) -> Option<usize> {
        match schema.name.as_str() {
            _ if OUTSIDE.contains(&schema.link) => None,
            "main" => Some(self.main_of(schema.link)),
            TWICE => Some(0),
            name => name.strip_prefix('x').and_then(|index| index.parse().ok()),
        }
    }

    pub fn schema_of(&mut self, link: LinkId) -> Schema {
        Schema { link, name: self.schema(link) }
    }

    fn add(&mut self) {
        let link = self.link();
        match self.random.below(100) {
            0..=2 => self.reopen(link),
            3..=4 => self.open_oddly(link),
            5 => self.attach(link),
            6..=12 => self.tune(link),
            13..=15 => self.control(link),
            16..=20 => self.backup(link),
            21..=23 => self.vacuum(link),
            24..=27 => self.temporary(link),
            28..=34 => self.ask(link),
            _ => match self.setting.profile {
                Profile::Turns => self.turn(link),
                _ => self.step(link),
            },
        }
    }

    fn reopen(&mut self, link: LinkId) {
        if self.random.chance(70) {
            self.push(Action::Close { link });
            if self.random.chance(50) {
                self.look();
            }
        }
        self.connect(link);
    }

    fn look(&mut self) {
        // With one connection only while it is closed: in a rollback mode a second one may be locked out.
        let file = format!("f{}.db", self.random.index(self.setting.files));
        self.push(Action::Look { file });
    }

    /// What is not there, or is no file.
    fn open_oddly(&mut self, link: LinkId) {
        let how = *self
            .random
            .pick(&[Opening::ReadOnly, Opening::ReadWrite, Opening::Create])
            .unwrap_or(&Opening::ReadOnly);
        let file = match self.random.below(4) {
            0 if how != Opening::Create => "missing.db",
            1 => "nowhere/a.db",
            2 => "missing.db/a.db",
            _ => DIRECTORY,
        };
        if self.random.chance(50) {
            let mode = if how == Opening::ReadOnly { "ro" } else { "rw" };
            self.run(link, format!("ATTACH '{{{file}}}&mode={mode}' AS odd"));
            self.run(link, "SELECT * FROM odd.sqlite_schema");
            return self.run(link, "DETACH odd");
        }
        let other = LinkId(7);
        self.push(Action::Open { link: other, file: file.to_owned(), how });
        self.run(other, "SELECT * FROM sqlite_schema");
        self.push(Action::Close { link: other });
    }

    fn attach(&mut self, link: LinkId) {
        let index = self.random.index(self.setting.files);
        if self.random.chance(50) {
            return self.run(link, format!("DETACH x{index}"));
        }
        let mode = sql::one_of(&mut self.random, &["", "", "&mode=ro", "&mode=rw"]);
        if self.setting.profile == Profile::Together && self.random.chance(30) {
            self.run(link, format!("ATTACH '{{f0.db}}{mode}' AS {TWICE}"));
        } else if index != self.main_of(link) {
            self.run(link, format!("ATTACH '{{f{index}.db}}{mode}' AS x{index}"));
        }
    }

    fn tune(&mut self, link: LinkId) {
        let schema = self.schema(link);
        let rollback = !self.setting.wal;
        match self.random.below(10) {
            0..=1 if rollback => {
                let mode = sql::one_of(&mut self.random, &["DELETE", "TRUNCATE", "PERSIST", "MEMORY"]);
                let prefix = if self.random.chance(50) { format!("{schema}.") } else { String::new() };
                self.run(link, format!("PRAGMA {prefix}journal_mode={mode}"));
            }
            2 if rollback && self.random.chance(20) => self.run(link, "PRAGMA wal_checkpoint"),
            2 if rollback => self.push(Action::DeclineWal { schema: Schema { link, name: schema } }),
            3..=5 if rollback => {
                let mode = sql::one_of(&mut self.random, &["EXCLUSIVE", "NORMAL", "NORMAL"]);
                let named = self.random.chance(40) && mode != "NORMAL";
                let prefix = if named { format!("{schema}.") } else { String::new() };
                self.run(link, format!("PRAGMA {prefix}locking_mode={mode}"));
            }
            6 if rollback => {
                let bytes = sql::one_of(&mut self.random, &["512", "1024", "4096", "65536"]);
                self.run(link, format!("PRAGMA {schema}.page_size={bytes}"));
            }
            _ => {
                let sql = sql::tune(&mut self.random, &schema);
                self.run(link, sql);
            }
        }
    }

    fn vacuum(&mut self, link: LinkId) {
        let schema = self.schema(link);
        if self.random.chance(50) {
            return self.run(link, format!("VACUUM {schema}"));
        }
        let index = self.random.below(3);
        self.run(link, format!("VACUUM {schema} INTO '{{copy{index}.db}}'"));
        if self.random.chance(30) {
            self.push(Action::Look { file: format!("copy{index}.db") });
        }
    }

    fn temporary(&mut self, link: LinkId) {
        let schema = self.schema(link);
        let sql = sql::temporary(&mut self.random, &schema);
        self.run(link, sql);
    }

    fn ask(&mut self, link: LinkId) {
        let schema = self.schema(link);
        let sql = sql::question(&mut self.random, &schema);
        self.run(link, sql);
        if self.setting.profile != Profile::Alone && self.random.chance(30) {
            self.look();
        }
    }

    /// One step of transactions that overlap.
    fn step(&mut self, link: LinkId) {
        let schema = self.schema(link);
        match self.random.below(100) {
            0..=20 => self.transact(link),
            21..=24 => self.fail_commit(link),
            25..=27 => self.backup(link),
            28..=54 => {
                let sql = sql::write(&mut self.random, &schema);
                self.run(link, sql);
            }
            55..=66 => {
                let sql = sql::read(&mut self.random, &schema);
                self.run(link, sql);
            }
            67..=74 => {
                let sql = sql::define(&mut self.random, &schema);
                self.run(link, sql);
            }
            75..=87 => self.cursor(link, &schema),
            _ => self.blob(link, schema),
        }
    }

    fn transact(&mut self, link: LinkId) {
        let is_inside = self.inside.contains(&link) != self.random.chance(8);
        let sql = if is_inside { sql::go_on(&mut self.random) } else { sql::begin(&mut self.random) };
        self.run(link, sql);
        match sql {
            "COMMIT" | "ROLLBACK" => self.inside.remove(&link),
            _ => self.inside.insert(link),
        };
    }

    /// A transaction over several files, of which one commit fails.
    fn fail_commit(&mut self, link: LinkId) {
        let mut sql = Vec::new();
        if !self.inside.remove(&link) {
            sql.push("BEGIN".to_owned());
        }
        for _ in 0..=self.random.below(3) {
            let schema = self.schema(link);
            sql.push(sql::write(&mut self.random, &schema));
        }
        sql.push("COMMIT".to_owned());
        let most = if self.setting.wal {
            // The differences say why.
            1
        } else {
            4
        };
        let after = self.random.below(most) as u32;
        self.push(Action::FailCommit { link, after, sql });
        let file = format!("f{}.db", self.random.index(self.setting.files));
        if self.setting.profile != Profile::Alone {
            self.push(Action::Look { file });
        }
    }

    /// A whole transaction.
    fn turn(&mut self, link: LinkId) {
        if self.random.chance(8) {
            return self.fail_commit(link);
        }
        let mut sql = Vec::new();
        let nested = self.random.chance(60);
        if nested {
            sql.push(
                sql::one_of(&mut self.random, &["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"]).to_owned(),
            );
        }
        for _ in 0..=self.random.below(if nested { 5 } else { 1 }) {
            let schema = self.schema(link);
            sql.push(match self.random.below(12) {
                0..=4 => sql::write(&mut self.random, &schema),
                5..=7 => sql::read(&mut self.random, &schema),
                8 => sql::define(&mut self.random, &schema),
                9 => sql::tune(&mut self.random, &schema),
                10 => sql::temporary(&mut self.random, &schema),
                _ => sql::one_of(&mut self.random, &["SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"]).to_owned(),
            });
        }
        if nested {
            sql.push(sql::one_of(&mut self.random, &["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]).to_owned());
        }
        self.push(Action::Turn { link, sql });
    }

    /// Everything closed, and what is in the files then.
    fn end(&mut self) {
        for link in (0..self.links).map(LinkId).chain(OUTSIDE) {
            self.push(Action::Close { link });
        }
        let files = (0..self.setting.files).map(|index| format!("f{index}.db"));
        let more = ["copy0.db", "copy1.db", "copy2.db", "out0.db", "out1.db"].map(str::to_owned);
        let looks: Vec<Action> = files.chain(more).map(|file| Action::Look { file }).collect();
        self.actions.extend(looks);
    }
}
