//! The files of a server that can lie apart, and how the server finds them.

use super::places::{Disks, Place};
use crate::error::{Doing as _, Result};
use crate::options::{DatabaseServer, Options};
use crate::server::{Kind, mariadb::MariaDb, option, postgres::Postgres};
use crate::tool;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the files are.
pub(super) struct Placement {
    /// The name in results.
    pub name: &'static str,
    /// The redo log, or write-ahead log.
    log: Place,
    /// The system tablespace of MariaDB.
    system: Place,
    /// Everything else.
    data: Place,
}

impl Placement {
    pub(super) fn places(&self) -> [Place; 3] {
        [self.log, self.system, self.data]
    }

    /// Whether a whole database lies in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.data == Place::Memory
    }
}

const fn placement(name: &'static str, log: Place, system: Place, data: Place) -> Placement {
    Placement { name, log, system, data }
}

/// Those of the study.
const OF_MARIADB: [Placement; 6] = [
    placement("hdd", Place::Hdd, Place::Hdd, Place::Hdd),
    placement("ssd", Place::Ssd, Place::Ssd, Place::Ssd),
    placement("redo-on-hdd", Place::Hdd, Place::Ssd, Place::Ssd),
    placement("redo-and-system-on-hdd", Place::Hdd, Place::Hdd, Place::Ssd),
    placement("redo-and-system-on-tmpfs", Place::Memory, Place::Memory, Place::Ssd),
    placement("redo-and-system-on-second-ssd", Place::SecondSsd, Place::SecondSsd, Place::Ssd),
];

/// PostgreSQL has nothing like the system tablespace: old rows stay in their tables, and the log has what a
/// doublewrite buffer would have.
const fn without_system(name: &'static str, log: Place, data: Place) -> Placement {
    placement(name, log, data, data)
}

const OF_POSTGRES: [Placement; 5] = [
    without_system("hdd", Place::Hdd, Place::Hdd),
    without_system("ssd", Place::Ssd, Place::Ssd),
    without_system("wal-on-hdd", Place::Hdd, Place::Ssd),
    without_system("wal-on-ssd", Place::Ssd, Place::Hdd),
    without_system("tmpfs", Place::Memory, Place::Memory),
];

/// The folder of the write-ahead log in a data directory.
const WAL: &str = "pg_wal";

/// A server whose files can lie apart.
pub(super) struct Layout {
    pub kind: &'static dyn Kind,
    pub placements: &'static [Placement],
    /// What the data directory has of the log and of the system tablespace.
    log: &'static str,
    system: Option<&'static str>,
    /// Has the server find them in other folders: returns options of the server, or makes links.
    lead: fn(&Folders) -> Result<Vec<OsString>>,
    /// Options that the server has wherever its files are.
    fixed: &'static [&'static str],
    /// What has to be done once the tables are filled.
    pub after_load: Option<&'static str>,
}

static MARIADB: Layout = Layout {
    kind: &MariaDb,
    placements: &OF_MARIADB,
    log: "ib_logfile0",
    system: Some("ibdata1"),
    lead: |folders| {
        let log = option("--innodb-log-group-home-dir", &folders.log);
        Ok(vec![log, option("--innodb-data-home-dir", &folders.system)])
    },
    // Without it a transaction goes on after a timeout, with a statement less.
    fixed: &["--innodb-rollback-on-timeout=1"],
    after_load: None,
};

static POSTGRES: Layout = Layout {
    kind: &Postgres,
    placements: &OF_POSTGRES,
    log: WAL,
    system: None,
    lead: |folders| {
        let (link, log) = (folders.data.join(WAL), folders.log.join(WAL));
        symlink(&log, &link).doing(|| format!("link {} to {}", link.display(), log.display()))?;
        Ok(Vec::new())
    },
    fixed: &[],
    // Otherwise queries have no statistics at first, and the first to read a row writes that it is committed.
    after_load: Some("vacuum analyze"),
};

/// The folders of a database, each on its disk.
struct Folders {
    log: PathBuf,
    system: PathBuf,
    data: PathBuf,
}

impl Layout {
    pub(super) fn of(server: DatabaseServer) -> &'static Self {
        match server {
            DatabaseServer::MariaDb => &MARIADB,
            DatabaseServer::Postgres => &POSTGRES,
        }
    }

    /// Options of the server with all files in one folder.
    pub(super) fn options(&self) -> Vec<OsString> {
        self.fixed.iter().map(OsString::from).collect()
    }

    /// Copies a database to the disks, and answers its data directory and the options of the server.
    pub(super) fn copy(
        &self,
        source: &Path,
        placement: &Placement,
        disks: &Disks,
        options: &Options,
    ) -> Result<(PathBuf, Vec<OsString>)> {
        let folder = |place: Place, name: &str| disks.subfolder(place, name, self.kind, options);
        let folders = Folders {
            log: folder(placement.log, "log")?,
            system: folder(placement.system, "system")?,
            data: folder(placement.data, "data")?,
        };
        let doing = || format!("list {}", source.display());
        for entry in fs::read_dir(source).doing(doing)? {
            let file = entry.doing(doing)?.path();
            let name = file.file_name().and_then(OsStr::to_str);
            let folder = if name == Some(self.log) {
                &folders.log
            } else if self.system.is_some() && name == self.system {
                &folders.system
            } else {
                &folders.data
            };
            tool::output(Command::new("cp").arg("-a").arg(&file).arg(folder), options)?;
        }
        let mut found = (self.lead)(&folders)?;
        found.extend(self.options());
        Ok((folders.data, found))
    }
}
