//! One random script of SQL and API calls, run on databases in a pool and on plain files: all answers are
//! compared.
//!
//! `ICECORE_SEED` is where it begins, and `ICECORE_CASES` how many scripts each test runs. `ICECORE_SECONDS`
//! is how long it runs instead; then it goes on after a failure, and prints one of each kind. Without them
//! the scripts are the same ones every time. A failure prints its script, shortened, as SQL.
//!
//! What icecore is compared with depends on who uses the files. Its readers and writers do not block each
//! other, as in WAL mode. So connections whose transactions overlap run beside plain files in WAL mode. One
//! connection, and several that take turns, run beside plain files with a rollback journal.
//!
//! `differences.rs` has the table of allowed differences, and the table of defects that are open. A defect
//! that is mended loses its entry, and from then on the test fails where it shows.
//!
//! Left out, as SQLite defines no answer or the plain side has none: `journal_mode=OFF` (a rollback is
//! undefined), `locking_mode` and page sizes in WAL mode, a backup of a file into itself, the use of the
//! destination of a backup before its end, and the value of a data version (only its changes are compared).

#[path = "../common/mod.rs"]
mod common;

mod answer;
mod calls;
mod compare;
mod differences;
mod generate;
mod handles;
mod raw;
mod script;
mod shrink;
mod sql;
mod world;

use compare::{Discrepancy, Outcome};
use icecore_sim::cases::{cases, variable};
use script::Profile;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Different discrepancies that one run looks for.
const FOUND_MAX: usize = 12;

/// Runs scripts of one profile, and fails with the shortest form of those that answer differently: of the
/// first one, or in a run of a certain time of the first one of each kind.
fn compare_all(profile: Profile, default_cases: u64) {
    let first = variable("ICECORE_SEED").unwrap_or(1);
    let seconds = variable("ICECORE_SECONDS").map(Duration::from_secs);
    let begin = Instant::now();
    let mut early: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found: Vec<Discrepancy> = Vec::new();
    let mut number = 0;
    while seconds.map_or(number < cases(default_cases), |limit| begin.elapsed() < limit) {
        let script = generate::script(first + number, profile);
        number += 1;
        match compare::run(&script) {
            Outcome::Same => {}
            Outcome::Known(name) => *early.entry(name).or_default() += 1,
            Outcome::Different(discrepancy) => {
                if found.iter().any(|known| known.resembles(&discrepancy)) {
                    continue;
                }
                let (script, discrepancy) = shrink::shrink(&script, &discrepancy);
                eprintln!("{script}\n{discrepancy}");
                let seed = script.setting.seed;
                eprintln!("to repeat it alone: ICECORE_SEED={seed} ICECORE_CASES=1, profile {profile:?}\n");
                found.push(discrepancy);
                if seconds.is_none() || found.len() == FOUND_MAX {
                    break;
                }
            }
        }
    }
    eprintln!("{profile:?}: {number} scripts from seed {first}, {:.0?}", begin.elapsed());
    for (name, count) in early {
        eprintln!("  {count} ended early: {name}: {}", differences::why(name));
    }
    assert!(found.is_empty(), "{} discrepancies, above", found.len());
}

#[test]
fn one_connection_like_plain_files() {
    compare_all(Profile::Alone, 250);
}

#[test]
fn overlapping_connections_like_wal_mode() {
    compare_all(Profile::Together, 250);
}

#[test]
fn connections_in_turns_like_a_rollback_journal() {
    compare_all(Profile::Turns, 250);
}
