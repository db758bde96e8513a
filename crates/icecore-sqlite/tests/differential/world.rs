//! One side: its files, its connections, and how an action is carried out there.

use crate::answer::Answer;
use crate::common::Place;
use crate::raw::{Backup, Blob, Failure, Link, Statement, with_failing_commit};
use crate::script::{Action, Control, LinkId, Opening, Schema, Setting};
use rusqlite::ffi;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

/// A directory on both sides, to be opened as a database.
pub const DIRECTORY: &str = "directory";

/// A database that no script uses.
const ANCHOR: &str = "anchor.db";

/// Which of the two it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Icecore,
    Plain,
}

/// The files and connections of one side.
pub struct World {
    side: Side,
    /// Where its databases are.
    folder: PathBuf,
    /// Where its files outside of a pool are.
    outside: PathBuf,
    // In the order in which they have to be dropped; each keeps its connection open.
    pub cursors: BTreeMap<usize, (LinkId, Statement)>,
    pub blobs: BTreeMap<usize, (LinkId, Blob)>,
    pub backups: BTreeMap<usize, Backup>,
    pub links: BTreeMap<LinkId, Rc<Link>>,
    /// What `PRAGMA data_version` answered last: only whether it changes is documented.
    data_versions: BTreeMap<(LinkId, String), String>,
    /// Keeps a pool open.
    anchor: Option<Rc<Link>>,
}

impl World {
    /// The side of a place, with the files of a setting in it.
    pub fn new(side: Side, place: &Place, setting: &Setting) -> Self {
        let outside = place.outside(if side == Side::Icecore { "outside" } else { "outside-plain" });
        let folder = match side {
            Side::Icecore => place.pool_path().join("ds"),
            Side::Plain => place.outside("plain"),
        };
        std::fs::create_dir_all(&outside).expect("a directory");
        if side == Side::Plain {
            std::fs::create_dir_all(folder.join(DIRECTORY)).expect("a directory");
        }
        let mut this = Self {
            side,
            folder,
            outside,
            cursors: BTreeMap::new(),
            blobs: BTreeMap::new(),
            backups: BTreeMap::new(),
            links: BTreeMap::new(),
            data_versions: BTreeMap::new(),
            anchor: None,
        };
        let anchor = this.open(ANCHOR, Opening::Create).expect("a new database");
        this.set_up(setting);
        this.anchor = (side == Side::Icecore && setting.pool_stays_open).then_some(anchor);
        this
    }

    fn set_up(&self, setting: &Setting) {
        let wal = setting.wal && self.side == Side::Plain;
        for index in 0..setting.files {
            let link = self.open(&format!("f{index}.db"), Opening::Create).expect("a new database");
            let mut answer = run(&link, &setting.schema());
            if wal && answer.code == 0 {
                answer = run(&link, "PRAGMA journal_mode=WAL");
            }
            assert_eq!(answer.code, 0, "{answer}");
        }
        for index in 0..2 {
            let link = self.open(&format!("out{index}.db"), Opening::Create).expect("a new database");
            let mode = if index == 0 { "WAL" } else { "DELETE" };
            let answer = run(&link, &format!("{}; PRAGMA journal_mode={mode}", setting.schema()));
            assert_eq!(answer.code, 0, "{answer}");
        }
    }

    fn uri(&self, file: &str) -> String {
        if file.starts_with("out") {
            return format!("file:{}?vfs=unix", self.outside.join(file).display());
        }
        let vfs = if self.side == Side::Icecore { "icecore" } else { "unix" };
        format!("file:{}?vfs={vfs}", self.folder.join(file).display())
    }

    fn open(&self, file: &str, how: Opening) -> Result<Rc<Link>, Failure> {
        let how = match how {
            Opening::ReadOnly => ffi::SQLITE_OPEN_READONLY,
            Opening::ReadWrite => ffi::SQLITE_OPEN_READWRITE,
            Opening::Create => ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE,
        };
        Link::open(&self.uri(file), how | ffi::SQLITE_OPEN_URI | ffi::SQLITE_OPEN_NOMUTEX)
    }

    /// With the names of files in place of `{f0.db}`.
    pub fn with_names(&self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            out.push_str(before);
            out.push_str(&self.uri(name));
            rest = after;
        }
        out + rest
    }

    /// Carries out an action. What a shortened script makes impossible is "left out", on both sides.
    pub fn act(&mut self, action: &Action) -> Answer {
        let answer = self.try_act(action).unwrap_or_else(|| Answer::note("left out"));
        let hide = |text: String| {
            let text = text.replace(&self.outside.display().to_string(), "OUTSIDE");
            text.replace(&self.folder.display().to_string(), "FOLDER").replace("vfs=icecore", "vfs=unix")
        };
        Answer { message: hide(answer.message), rows: answer.rows.into_iter().map(hide).collect(), ..answer }
    }

    fn try_act(&mut self, action: &Action) -> Option<Answer> {
        match action {
            Action::Open { link, file, how } => Some(self.open_link(*link, file, *how)),
            Action::Close { link } => self.close(*link),
            Action::Run { link, sql } => {
                let connection = self.free_link(*link)?;
                let answer = run(&connection, &self.with_names(sql));
                Some(self.without_data_version(*link, sql, answer))
            }
            Action::Turn { link, sql } => self.turn(*link, sql),
            Action::DeclineWal { schema } => {
                let value = if self.side == Side::Icecore { "=WAL" } else { "" };
                let name = &schema.name;
                // What is read first takes the locks that the question takes, and the refusal need not.
                let first = format!("SELECT count(*) FROM {name}.sqlite_schema");
                Some(run(
                    &self.free_link(schema.link)?,
                    &format!("{first}; PRAGMA {name}.journal_mode{value}"),
                ))
            }
            Action::Interrupt { link, steps, sql } => {
                let connection = self.free_link(*link)?;
                connection.interrupt_after(*steps);
                let answer = run(&connection, &self.with_names(sql));
                connection.interrupt_after(0);
                Some(answer)
            }
            Action::FailCommit { link, after, sql } => with_failing_commit(*after, || self.turn(*link, sql)),
            Action::Control { schema, control } => self.control(schema, *control),
            Action::Look { file } => Some(self.look(file)),
            Action::StartCursor { .. } | Action::StepCursor { .. } | Action::EndCursor { .. } => {
                self.act_on_cursor(action)
            }
            Action::StartBackup { .. } | Action::StepBackup { .. } | Action::EndBackup { .. } => {
                self.act_on_backup(action)
            }
            Action::Backup { from, to, pages } => self.whole_backup(from, to, *pages),
            _ => self.act_on_blob(action),
        }
    }

    /// A connection that no backup writes to.
    pub fn free_link(&self, link: LinkId) -> Option<Rc<Link>> {
        let link = self.links.get(&link)?;
        (!self.backups.values().any(|backup| backup.goes_to(link))).then(|| Rc::clone(link))
    }

    fn open_link(&mut self, id: LinkId, file: &str, how: Opening) -> Answer {
        self.close(id);
        match self.open(file, how) {
            Ok(link) => {
                let answer = Answer::of(&link);
                self.links.insert(id, link);
                answer
            }
            Err(failure) => Answer::failed(failure),
        }
    }

    fn close(&mut self, id: LinkId) -> Option<Answer> {
        let link = self.links.remove(&id)?;
        self.cursors.retain(|_, (owner, _)| *owner != id);
        self.blobs.retain(|_, (owner, _)| *owner != id);
        self.backups.retain(|_, backup| !backup.uses(&link));
        self.data_versions.retain(|(owner, _), _| *owner != id);
        drop(link);
        Some(Answer::note("closed"))
    }

    fn turn(&self, id: LinkId, sql: &[String]) -> Option<Answer> {
        let link = self.free_link(id)?;
        let mut all = Answer::default();
        for sql in sql {
            all.append(run(&link, &self.with_names(sql)));
        }
        if !link.facts().autocommit {
            all.append(run(&link, "ROLLBACK"));
        }
        Some(all)
    }

    /// In place of a data version, whether it is another one than before.
    fn without_data_version(&mut self, link: LinkId, sql: &str, answer: Answer) -> Answer {
        if !sql.ends_with("data_version") || answer.rows.is_empty() {
            return answer;
        }
        let version = answer.rows.concat();
        let before = self.data_versions.insert((link, sql.to_owned()), version.clone());
        let changed = before.is_some_and(|before| before != version);
        Answer { rows: vec![format!("another data version: {changed}")], ..answer }
    }

    fn control(&mut self, schema: &Schema, control: Control) -> Option<Answer> {
        let link = self.free_link(schema.link)?;
        let number = |operation| format!("{:?}", link.control_number(&schema.name, operation, -1));
        let text = match control {
            Control::PowersafeOverwrite => number(ffi::SQLITE_FCNTL_POWERSAFE_OVERWRITE),
            Control::PersistWal => number(ffi::SQLITE_FCNTL_PERSIST_WAL),
            Control::HasMoved => number(ffi::SQLITE_FCNTL_HAS_MOVED),
            Control::LastErrno => number(ffi::SQLITE_FCNTL_LAST_ERRNO),
            Control::ExternalReader => number(ffi::SQLITE_FCNTL_EXTERNAL_READER),
            Control::LockState => number(ffi::SQLITE_FCNTL_LOCKSTATE),
            Control::TemporaryName => format!("{:?}", link.has_temporary_name(&schema.name)),
            Control::DataVersion => {
                // Before the first read the number says nothing.
                let _ = run(&link, &format!("SELECT count(*) FROM {}.sqlite_schema", schema.name));
                let answer = number(ffi::SQLITE_FCNTL_DATA_VERSION);
                let key = (schema.link, format!("control {}", schema.name));
                let before = self.data_versions.insert(key, answer.clone());
                format!("another data version: {}", before.is_some_and(|before| before != answer))
            }
        };
        Some(Answer { rows: vec![text], ..Answer::of(&link) })
    }

    /// Everything in a file, as a connection of its own sees it.
    fn look(&self, file: &str) -> Answer {
        let link = match self.open(file, Opening::ReadWrite) {
            Ok(link) => link,
            Err(failure) => return Answer::failed(failure),
        };
        let mut answer = run(&link, LOOK);
        let tables = run(&link, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
        for table in tables.rows.iter().map(|name| name.trim_matches('\'')) {
            answer.append(run(&link, &format!("SELECT * FROM \"{table}\"")));
        }
        answer
    }
}

const LOOK: &str = "PRAGMA integrity_check; PRAGMA page_size; PRAGMA page_count; PRAGMA freelist_count; \
                    PRAGMA auto_vacuum; PRAGMA encoding; PRAGMA user_version; PRAGMA application_id; \
                    SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema";

/// Rows of all statements, up to the first failure.
fn run(link: &Rc<Link>, sql: &str) -> Answer {
    let mut rows = Vec::new();
    let mut rest = sql;
    while !rest.trim().is_empty() {
        let failure = match link.prepare(rest) {
            Ok((None, _)) => break,
            Ok((Some(statement), used)) => {
                rest = &rest[used..];
                all_rows(statement, &mut rows).err()
            }
            Err(failure) => Some(failure),
        };
        if let Some(failure) = failure {
            return Answer { rows, ..Answer::of(link).with(failure) };
        }
    }
    Answer { rows, ..Answer::of(link) }
}

fn all_rows(mut statement: Statement, rows: &mut Vec<String>) -> Result<(), Failure> {
    while let Some(row) = statement.step()? {
        rows.push(row);
    }
    Ok(())
}
