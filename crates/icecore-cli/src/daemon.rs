//! Going into the background: the program starts itself once more, and waits until that process says that it
//! is ready.
//!
//! A process that has threads cannot be forked safely, and a pool belongs to the process that opened it.

use crate::exit::{self, Silent};
use anyhow::Context as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the process in the background says, on its standard output.
const READY: &[u8] = b"ready\n";

/// Starts the process in the background, with the same command line, and returns when it is ready. What keeps
/// it from becoming so it has said by then, and its exit code becomes ours.
pub fn start() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--background-process")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process in the background")?;
    let mut said = Vec::new();
    if let Some(output) = &mut child.stdout {
        output
            .take(READY.len() as u64)
            .read_to_end(&mut said)
            .context("cannot hear the process in the background")?;
    }
    if said == READY {
        return Ok(());
    }
    let status = child.wait().context("cannot wait for the process in the background")?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => anyhow::bail!("the process in the background ended before it was ready"),
        Some(code) => Err(Silent(code).into()),
        None => anyhow::bail!("the process in the background was ended by a signal ({status})"),
    }
}

/// Is the process in the background: `work` calls what it is given as soon as it is ready.
pub fn run(log: Option<&Path>, work: impl FnOnce(&dyn Fn()) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // A group of its own already, where it was started by something else.
    let _ = rustix::process::setsid();
    let name = log.unwrap_or(Path::new("/dev/null"));
    let log = OpenOptions::new().create(log.is_some()).append(true).open(name);
    let log = log.with_context(|| format!("cannot open the log {}", name.display()))?;
    std::env::set_current_dir("/").context("cannot leave the working folder")?;
    let outcome = work(&|| announce(&log));
    if let Err(error) = &outcome {
        exit::tell(error);
        return Err(Silent(exit::code(error)).into());
    }
    outcome
}

/// Says that all is ready, and lets go of the terminal.
fn announce(log: &File) {
    // Who does not listen any more need not know.
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(READY).and_then(|()| output.flush());
    drop(output);
    let _ = rustix::stdio::dup2_stderr(log);
    if let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(nowhere);
    }
}
