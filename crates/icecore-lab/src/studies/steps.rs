//! What a run of hours says meanwhile.

use crate::error::Result;
use crate::options::Options;
use std::time::{Duration, Instant};

/// How often. Some rivals take half an hour for one run of `valuation`, and a guest that says nothing for a
/// quarter of an hour is taken for dead.
const EVERY: Duration = Duration::from_secs(60);

/// Says where a long run is, now and then.
pub(super) struct Steps<'a> {
    every: Duration,
    last: Instant,
    options: &'a Options,
}

impl<'a> Steps<'a> {
    pub(super) fn begin(options: &'a Options) -> Self {
        Self { every: EVERY, last: Instant::now(), options }
    }

    /// Says what comes next, if the last time is long enough ago.
    ///
    /// # Errors
    /// [`Error::Stopped`](crate::Error::Stopped) if the run is to stop.
    pub(super) fn next(&mut self, what: impl FnOnce() -> String) -> Result<()> {
        if self.last.elapsed() < self.every {
            return self.options.go_on();
        }
        self.last = Instant::now();
        self.options.say(&format!("  {}", what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_step_is_said_only_when_the_last_one_is_long_ago() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&said);
        let progress = Arc::new(move |line: &str| lines.lock().expect("no panic").push(line.to_owned()));
        let options = Options { progress, ..Options::new(".") };
        let mut steps = Steps::begin(&options);
        steps.next(|| panic!("too early")).expect("goes on");
        steps.every = Duration::ZERO;
        steps.next(|| "iteration 2 of 3".to_owned()).expect("goes on");
        assert_eq!(*said.lock().expect("no panic"), ["  iteration 2 of 3"]);
    }
}
