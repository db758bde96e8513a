//! The one table of what may differ, and the other one of what must not but still does.

use crate::compare::Case;
use crate::script::Action;

/// A difference between icecore and plain files.
pub struct Difference {
    pub name: &'static str,
    /// Where it is documented, or what is wrong.
    pub why: &'static str,
    /// Afterwards the two sides are in different states, so the script ends.
    pub ends: bool,
    pub is: fn(&Case<'_>) -> bool,
}

/// Differences that are documented.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "journal-mode-wal",
        why: "icecore declines WAL mode, and says which mode it stays in (README, \"WAL mode\")",
        ends: false,
        is: |case| case.setting.wal && case.action().sql().contains("journal_mode"),
    },
    Difference {
        name: "mapped-memory",
        why: "icecore does not map files, so mmap_size stays 0, as in SQLite with a limit of 0 for it",
        ends: false,
        is: |case| case.action().sql().contains("mmap_size"),
    },
    Difference {
        name: "backup-begins-anew",
        why: "in WAL mode a rollback of the source makes a backup begin anew, as nothing is written back; \
              with a rollback journal, as in icecore, it goes on (pagerUndoCallback in SQLite's pager.c)",
        ends: true,
        is: |case| {
            let goes_on = |code: i32| code == 0 || code == 101;
            let is_step = matches!(case.action(), Action::StepBackup { .. });
            case.setting.wal && is_step && goes_on(case.ours().code) && goes_on(case.plain().code)
        },
    },
    Difference {
        name: "backup-brings-wal",
        why: "a backup from a database in WAL mode switches a plain destination to WAL mode, and none in a \
              pool (README, \"WAL mode\"); so it is made only where the plain files are in that mode",
        ends: false,
        is: by_generator,
    },
    Difference {
        name: "chunk-size",
        why: "SQLITE_FCNTL_CHUNK_SIZE lengthens a plain file, and so the least max_page_count; icecore takes \
              it as a hint, and a file keeps its size",
        ends: false,
        is: by_generator,
    },
    Difference {
        name: "wal-files-one-by-one",
        why: "in WAL mode SQLite commits attached files one by one, so a failure in between leaves the first \
              ones committed; icecore commits all of them or none (README, \"Several attached files\")",
        ends: false,
        is: by_generator,
    },
    Difference {
        name: "declined-wal-in-exclusive-mode",
        why: "in exclusive mode journal_mode=WAL answers the mode asked for last of this schema by name, as only SQLite \
              knows the one that holds (README, \"WAL mode\")",
        ends: false,
        is: |case| {
            let is_exclusive =
                |action: &Action| action.sql().to_uppercase().contains("LOCKING_MODE=EXCLUSIVE");
            matches!(case.action(), Action::DeclineWal { .. }) && case.actions.iter().any(is_exclusive)
        },
    },
    Difference {
        name: "normal-mode-of-one-schema",
        why: "locking_mode=NORMAL of one schema ends the exclusive mode of attached files, as SQLite does not say which \
              schema was named (README, \"locking_mode=EXCLUSIVE\")",
        ends: false,
        is: by_generator,
    },
    Difference {
        name: "pool-and-plain",
        why: "a commit over files in a pool and journaled files outside of it is refused with SQLITE_MISUSE (README, \
              \"Several attached files\")",
        ends: true,
        is: |case| case.actions.iter().any(|action| action.sql().contains("{out1.db}")),
    },
    Difference {
        name: "directory-for-reading",
        why: "a plain directory can be opened for reading, and every read of it fails; icecore refuses to open it",
        ends: true,
        is: |case| (case.ours().code, case.plain().code) == (14, 266),
    },
];

/// Defects: each one goes when it is mended.
pub const OPEN: &[Difference] = &[];

/// For what no predicate can recognise by its answers, or what would end too many scripts: the generator
/// leaves it out.
fn by_generator(_: &Case<'_>) -> bool {
    false
}

/// What a table says about a difference.
pub fn why(name: &str) -> &'static str {
    let mut all = DIFFERENCES.iter().chain(OPEN);
    all.find(|difference| difference.name == name).map_or("", |difference| difference.why)
}
