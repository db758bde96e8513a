//! Waits for a program that writes its steps to a file, and shows them.

use super::failure;
use crate::error::Result;
use crate::options::Options;
use crate::tool::Tool;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A step is a line that begins with this.
pub(super) const STEP: &str = "guest: ";
const LOOK: Duration = Duration::from_millis(100);

/// Waits until the program ends.
///
/// # Errors
/// There was no step for so long, `check` fails, or the run is to stop. The program is then killed.
pub(super) fn until_end(
    mut tool: Tool,
    steps: &Path,
    silence: Duration,
    check: impl Fn() -> Result<()>,
    options: &Options,
) -> Result<ExitStatus> {
    let (mut read, mut last) = (Steps::default(), Instant::now());
    loop {
        let ended = tool.ends_within(LOOK)?;
        for step in read.more(steps) {
            last = Instant::now();
            options.say(&step)?;
        }
        if ended {
            return tool.wait(options);
        }
        check()?;
        options.go_on()?;
        if last.elapsed() > silence {
            let minutes = silence.as_secs_f64() / 60.0;
            return Err(failure(format!("it made no step for {minutes:.0} minutes, so it was ended")));
        }
    }
}

/// How far a file of steps is read.
#[derive(Default)]
struct Steps {
    at: u64,
    /// The beginning of a line that is not written to its end yet.
    begun: Vec<u8>,
}

impl Steps {
    /// The steps that are new. A file that is not there yet has none.
    fn more(&mut self, path: &Path) -> Vec<String> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.at))?;
            file.read_to_end(&mut bytes)
        });
        self.at += read.unwrap_or(0) as u64;
        self.begun.append(&mut bytes);
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let lines: Vec<u8> = self.begun.drain(..whole).collect();
        let text = String::from_utf8_lossy(&lines);
        text.lines().filter(|line| line.starts_with(STEP)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;
    use std::sync::{Arc, Mutex};

    #[test]
    fn steps_are_read_once_and_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("steps");
        let mut steps = Steps::default();
        assert!(steps.more(&path).is_empty());
        fs::write(&path, "noise\nguest: one\nguest: t").expect("written");
        assert_eq!(steps.more(&path), ["guest: one"]);
        fs::write(&path, "noise\nguest: one\nguest: two\n").expect("written");
        assert_eq!(steps.more(&path), ["guest: two"]);
    }

    fn shell(script: &str) -> Tool {
        Tool::start(Command::new("sh").args(["-c", script])).expect("started")
    }

    #[test]
    fn a_program_that_hangs_or_fails_its_check_is_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(folder.path());
        let steps = folder.path().join("steps");
        let check = |fails: bool| if fails { Err(failure("it stands still")) } else { Ok(()) };
        for (silence_ms, fails, reason) in [(300, false, "no step"), (600_000, true, "it stands still")] {
            let tool = shell("exec sleep 600");
            let (process, silence) = (tool.id(), Duration::from_millis(silence_ms));
            let error = until_end(tool, &steps, silence, || check(fails), &options).expect_err("ended");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(rustix::process::test_kill_process(process).is_err(), "it is gone");
        }
    }

    #[test]
    fn the_last_steps_of_a_program_are_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let steps = folder.path().join("steps");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut options = Options::new(folder.path());
        let into = Arc::clone(&shown);
        options.progress = Arc::new(move |line| into.lock().expect("no panic").push(line.to_owned()));
        let tool = shell(&format!("echo 'guest: done' > '{}'; exit 3", steps.display()));
        let status = until_end(tool, &steps, Duration::from_secs(60), || Ok(()), &options).expect("ended");
        assert_eq!(
            (status.code(), shown.lock().expect("no panic").as_slice()),
            (Some(3), &["guest: done".to_owned()][..])
        );
    }
}
