//! One random script of SQL and API calls, run on databases in a pool and on plain files: every answer is compared.
//!
//! `ICECORE_SEED` is where it begins, `ICECORE_CASES` how many scripts each test runs, and `ICECORE_SECONDS` how
//! long instead. Without them the scripts are the same ones every time.

#[path = "../common/mod.rs"]
mod common;

mod answer;
mod compare;
mod differences;
mod generate;
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

/// Runs scripts of one profile, and fails with the shortest form of those that answer differently: of the first
/// one, or in a run of a certain time of the first one of each kind.
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
    compare_all(Profile::Alone, 400);
}

#[test]
fn overlapping_connections_like_wal_mode() {
    compare_all(Profile::Together, 400);
}

#[test]
fn connections_in_turns_like_a_rollback_journal() {
    compare_all(Profile::Turns, 400);
}
