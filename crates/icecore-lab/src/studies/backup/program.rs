//! A backup that a program makes by itself, beside the workload.

use super::{Phase, Scope, WORKLOAD};
use crate::compress::Copied;
use crate::error::{Error, Result};
use crate::server::{Driven, Server};
use crate::statistics::mean;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Drives the server until a backup of `bytes` is done.
pub(super) fn beside(
    server: &Server<'_>,
    bytes: u64,
    scope: &Scope,
    back_up: impl FnOnce() -> Result<()>,
) -> Result<Phase> {
    let over = &AtomicBool::new(false);
    let (time, each_second) = thread::scope(|threads| {
        let driving = threads.spawn(move || drive(server, scope, over));
        let began = Instant::now();
        let done = back_up();
        let time = began.elapsed();
        over.store(true, Ordering::Relaxed);
        let driven =
            driving.join().unwrap_or_else(|_| Err(Error::Panicked { what: "a workload".to_owned() }));
        done.and_then(|()| Ok((time, driven?)))
    })?;
    Ok(Phase {
        driven: Some(during(each_second, time)),
        copied: Some(Copied::at_once(bytes, time)),
        ..Phase::default()
    })
}

/// Transactions in each second, for as long as it is not over.
fn drive(server: &Server<'_>, scope: &Scope, over: &AtomicBool) -> Result<Vec<f64>> {
    let mut each_second = Vec::new();
    while !over.load(Ordering::Relaxed) {
        each_second.extend(server.drive(WORKLOAD, scope.size, scope.drive)?.each_second);
    }
    Ok(each_second)
}

/// The part that was driven while the backup ran.
fn during(mut each_second: Vec<f64>, time: Duration) -> Driven {
    each_second.truncate((time.as_secs_f64().ceil() as usize).max(1));
    Driven { transactions: each_second.iter().sum(), per_second: mean(&each_second), each_second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_driven_after_the_backup_does_not_count() {
        let driven = during(vec![10.0, 20.0, 90.0], Duration::from_millis(1_500));
        let expected = Driven { transactions: 30.0, per_second: 15.0, each_second: vec![10.0, 20.0] };
        assert_eq!(driven, expected);
    }
}
