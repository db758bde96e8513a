//! A backup that a program makes by itself, beside the workload.

use super::{Phase, Scope, WORKLOAD};
use crate::compress::Copied;
use crate::error::{Error, Result};
use crate::server::{Drive, Driven, Server};
use crate::statistics::mean;
use crate::systems::has_program;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Refuses a backup by a program that is not on this machine. Its package has its name.
pub(super) fn require(program: &'static str) -> Result<()> {
    let missing = |reason| Error::Inconclusive { what: format!("a backup by {program}"), reason };
    has_program(program, program).map_err(missing)
}

/// The driver runs for so long at a time: it cannot be asked to end.
const SLICE: Duration = Duration::from_secs(3);

/// Drives the server until a backup is done.
pub(super) fn beside(
    server: &Server<'_>,
    scope: &Scope,
    back_up: impl FnOnce() -> Result<Copied>,
) -> Result<Phase> {
    let over = &AtomicBool::new(false);
    thread::scope(|threads| {
        let driving = threads.spawn(move || drive(server, scope, over));
        let began = Instant::now();
        let copied = back_up();
        let time = began.elapsed();
        over.store(true, Ordering::Relaxed);
        let driven =
            driving.join().unwrap_or_else(|_| Err(Error::Panicked { what: "a workload".to_owned() }));
        let copied = Some(copied?);
        Ok(Phase { driven: Some(during(driven?, time)), copied, ..Phase::default() })
    })
}

/// Transactions in each second, for as long as it is not over.
fn drive(server: &Server<'_>, scope: &Scope, over: &AtomicBool) -> Result<Vec<f64>> {
    let slice = Drive { time: scope.drive.time.min(SLICE), ..scope.drive };
    let mut each_second = Vec::new();
    while !over.load(Ordering::Relaxed) {
        each_second.extend(server.drive(WORKLOAD, scope.size, slice)?.each_second);
    }
    Ok(each_second)
}

/// The whole seconds in which the backup ran; of a short one, the first.
fn during(mut each_second: Vec<f64>, time: Duration) -> Driven {
    each_second.truncate((time.as_secs() as usize).max(1));
    Driven { transactions: each_second.iter().sum(), per_second: mean(&each_second), each_second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_driven_after_the_backup_does_not_count() {
        let driven = during(vec![10.0, 20.0, 90.0], Duration::from_millis(2_500));
        let expected = Driven { transactions: 30.0, per_second: 15.0, each_second: vec![10.0, 20.0] };
        assert_eq!(driven, expected);
        assert_eq!(during(vec![10.0, 20.0], Duration::from_millis(500)).each_second, [10.0]);
    }
}
