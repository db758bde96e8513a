//! Programs that the lab starts: none of them outlives the run.

use crate::error::{Doing, Error, Result};
use crate::options::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a run that waits for a program looks whether it is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What is read of a pipe at once: all that it holds.
const PIPE_BYTES: usize = 64 << 10;

/// How long a program may take to end that has nothing left to read.
pub(crate) const PATIENCE_AT_END: Duration = Duration::from_secs(10);

/// A program that runs. Dropping it kills the program, and what that has started.
pub(crate) struct Tool(Child);

impl Tool {
    /// Starts the program in a process group of its own: Ctrl-C reaches the lab alone, which then ends its
    /// programs in order.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// The same for a program that reads what the lab writes.
    pub(crate) fn start_fed(command: &mut Command) -> Result<(Self, ChildStdin)> {
        let mut tool = Self::spawn(command.stdin(Stdio::piped()))?;
        let input = tool.0.stdin.take().expect("it is piped");
        Ok((tool, input))
    }

    fn spawn(command: &mut Command) -> Result<Self> {
        let started = command.process_group(0).spawn();
        started.map(Self).doing(|| format!("run {} (is its package installed?)", name(command)))
    }

    pub(crate) fn process(&mut self) -> &mut Child {
        &mut self.0
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Waits until the program ends.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the run is to stop before.
    pub(crate) fn wait(&mut self, options: &Options) -> Result<ExitStatus> {
        self.wait_until(None, options)?;
        self.0.wait().doing(|| "wait for a program".to_owned())
    }

    /// Whether the program ends before this.
    fn wait_until(&mut self, end: Option<Instant>, options: &Options) -> Result<bool> {
        while !self.wait_for(LOOK)? {
            options.go_on()?;
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the program ends within this time.
    pub(crate) fn ends_within(&mut self, time: Duration) -> Result<bool> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        self.wait_for(Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() })
    }

    fn wait_for(&mut self, time: Timespec) -> Result<bool> {
        let doing = || "wait for a program".to_owned();
        if self.0.try_wait().doing(doing)?.is_some() {
            return Ok(true);
        }
        let descriptor = pidfd_open(self.id(), PidfdFlags::empty()).doing(doing)?;
        is_ready(&descriptor, time)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = kill_process_group(self.id(), Signal::KILL);
            // What hangs in the kernel cannot be killed, and is not waited for.
            let _ = self.ends_within(PATIENCE_AT_END);
            let _ = self.0.try_wait();
        }
    }
}

/// Waits a moment for something to read, and answers whether there is, or the end.
pub(crate) fn is_readable(from: impl AsFd) -> Result<bool> {
    is_ready(from, LOOK)
}

/// Waits until a program has printed something or ended, and looks around in each moment before: an error of
/// `look` ends the waiting.
pub(crate) fn wait_for_output(
    reader: &BufReader<impl AsFd>,
    mut look: impl FnMut() -> Result<()>,
) -> Result<()> {
    while reader.buffer().is_empty() && !is_readable(reader.get_ref())? {
        look()?;
    }
    Ok(())
}

fn is_ready(from: impl AsFd, time: Timespec) -> Result<bool> {
    match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        // A signal, which may be the one that ends the run.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).doing(|| "wait for a program".to_owned()),
    }
}

/// Runs a program to its end, and answers what it printed.
///
/// # Errors
/// The program cannot be started, or fails: the error has the end of what it printed. [`Error::TooLong`] if
/// it takes longer than [`Options::time_limit`]; [`Error::Stopped`] if the run is to stop before the program
/// ends.
pub(crate) fn output(command: &mut Command, options: &Options) -> Result<String> {
    let doing = || format!("keep what {} prints", name(command));
    let (mut printed, mut complaint) =
        (tempfile::tempfile().doing(doing)?, tempfile::tempfile().doing(doing)?);
    let (to, errors_to) = (printed.try_clone().doing(doing)?, complaint.try_clone().doing(doing)?);
    let mut tool = Tool::start(command.stdout(to).stderr(errors_to))?;
    let status = end(&mut tool, command, Instant::now() + options.time_limit, options)?;
    let (printed, complaint) = (read(&mut printed)?, read(&mut complaint)?);
    if status.success() {
        return Ok(printed);
    }
    let said = if complaint.trim().is_empty() { printed } else { complaint };
    Err(failure(command, status, &said))
}

/// Runs a program to its end, and hands over what it prints as it comes.
///
/// # Errors
/// As for [`output`], and those of `take`.
pub(crate) fn pass_on(
    command: &mut Command,
    options: &Options,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let job = name(command);
    let doing = || format!("read what {job} prints");
    let mut complaint = tempfile::tempfile().doing(doing)?;
    let errors_to = complaint.try_clone().doing(doing)?;
    let (mut printed, to) = std::io::pipe().doing(doing)?;
    let limit = Instant::now() + options.time_limit;
    let mut tool = Tool::start(command.stdout(to).stderr(errors_to))?;
    // The command holds the end that is written to. As long as it does, there is no end of what is read.
    command.stdout(Stdio::null());
    let mut chunk = vec![0; PIPE_BYTES];
    loop {
        // Also where there is always something to read.
        options.go_on()?;
        if Instant::now() >= limit {
            return Err(too_long(command, options));
        }
        if !is_readable(&printed)? {
            continue;
        }
        let bytes = printed.read(&mut chunk).doing(doing)?;
        if bytes == 0 {
            break;
        }
        take(&chunk[..bytes])?;
    }
    let status = end(&mut tool, command, limit, options)?;
    if status.success() { Ok(()) } else { Err(failure(command, status, &read(&mut complaint)?)) }
}

/// Waits until a program ends, but not beyond this.
fn end(tool: &mut Tool, command: &Command, limit: Instant, options: &Options) -> Result<ExitStatus> {
    if tool.wait_until(Some(limit), options)? { tool.wait(options) } else { Err(too_long(command, options)) }
}

fn too_long(command: &Command, options: &Options) -> Error {
    Error::TooLong { program: shown(command), limit: options.time_limit }
}

fn failure(command: &Command, status: ExitStatus, said: &str) -> Error {
    Error::Child { job: name(command), reason: format!("{status}: {}", tail(said)) }
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// A command as a person would type it, or its beginning.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.take(4).map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn read(file: &mut File) -> Result<String> {
    let doing = || "read what a program printed".to_owned();
    let mut bytes = Vec::new();
    file.rewind().doing(doing)?;
    file.read_to_end(&mut bytes).doing(doing)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a text, in one line.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_prints_is_passed_on_and_a_failure_is_that_of_the_program() {
        let mut options = Options::new(".");
        let run = |script: &str, options: &Options| {
            let mut passed = Vec::new();
            let mut command = Command::new("sh");
            let outcome = pass_on(command.args(["-c", script]), options, |bytes| {
                passed.extend_from_slice(bytes);
                Ok(())
            });
            (outcome, passed)
        };
        let (outcome, passed) = run("head -c 300000 /dev/zero; echo end", &options);
        outcome.expect("it succeeds");
        assert!(passed.len() == 300_004 && passed.ends_with(b"end\n"), "{}", passed.len());
        let (outcome, passed) = run("echo some; echo why >&2; exit 3", &options);
        let error = outcome.expect_err("it fails").to_string();
        assert!(error.contains("sh") && error.contains("why"), "{error}");
        assert_eq!(passed, b"some\n");
        options.time_limit = Duration::from_millis(50);
        for script in ["sleep 60", "exec yes", "exec >&-; sleep 60"] {
            let (outcome, _) = run(script, &options);
            assert!(matches!(outcome, Err(Error::TooLong { .. })), "{script}: {outcome:?}");
        }
    }
}
