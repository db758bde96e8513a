//! A shorter script that still shows a discrepancy.

use crate::compare::{self, Discrepancy, Outcome};
use crate::script::Script;
use std::time::{Duration, Instant};

/// Shortening a script ends after this long, wherever it is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves out actions, half of them first, single ones in the end, for as long as the discrepancy stays.
pub fn shrink(script: &Script, discrepancy: &Discrepancy) -> (Script, Discrepancy) {
    let begin = Instant::now();
    let mut best = (script.clone(), discrepancy.clone());
    best.0.actions.truncate(discrepancy.index + 1);
    let mut size = best.0.actions.len().div_ceil(2);
    loop {
        let mut changed = false;
        let mut at = 0;
        while at < best.0.actions.len() && begin.elapsed() < PATIENCE {
            let mut shorter = best.0.clone();
            shorter.actions.drain(at..(at + size).min(best.0.actions.len()));
            match compare::run(&shorter) {
                Outcome::Different(found) if found.resembles(discrepancy) => {
                    shorter.actions.truncate(found.index + 1);
                    best = (shorter, found);
                    changed = true;
                }
                _ => at += size,
            }
        }
        if begin.elapsed() >= PATIENCE || (size == 1 && !changed) {
            return best;
        }
        if !changed {
            size = size.div_ceil(2);
        }
    }
}
