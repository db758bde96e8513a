//! Progress on standard error, and only when a person watches.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

const BYTES: &str =
    "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const BYTES_WITHOUT_END: &str = "{spinner} {msg} {binary_bytes}, {binary_bytes_per_sec}";
const COUNTING: &str = "{msg:24} {bar:30} {pos} of {len}, {eta} left";

/// A bar of bytes; invisible when standard error is not a terminal. Vanishes when dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of things that are counted.
    pub fn counting(what: &str, total: u64) -> Self {
        let progress = Self::new(what, 0);
        progress.0.set_length(total);
        progress.style(COUNTING);
        progress
    }

    /// `total` may be 0 when it is not known.
    pub fn new(what: &str, total: u64) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target).with_message(what.to_owned());
        let progress = Self(bar);
        progress.set_total(total);
        progress.0.enable_steady_tick(Duration::from_millis(200));
        progress
    }

    /// Says how much there is in all.
    pub fn set_total(&self, total: u64) {
        if total > 0 && self.0.length() != Some(total) {
            self.0.set_length(total);
            self.style(BYTES);
        } else if total == 0 {
            self.style(BYTES_WITHOUT_END);
        }
    }

    /// Says how much is done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    fn style(&self, template: &str) {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.0.set_style(style.progress_chars("=> "));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [BYTES, BYTES_WITHOUT_END, COUNTING] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
