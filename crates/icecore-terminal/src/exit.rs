//! Exit codes, and how an error is printed.

use icecore::admin::{ErrorCode, Failure};
use std::fmt;
use std::io;
use std::process::ExitCode;

/// Anything that has no code of its own.
pub const FAILED: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// There is no pool where one was looked for.
pub const NO_POOL: u8 = 3;
/// Another process has the pool, and does not answer or cannot do what is wanted.
pub const IN_USE: u8 = 4;
/// Stored bytes are damaged.
pub const DAMAGE: u8 = 5;
/// No space is left.
pub const NO_SPACE: u8 = 6;
/// Something is in the way; the message names it.
pub const BUSY: u8 = 7;

/// The codes, as the help and the manual show them.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line makes no sense, or a name in it is not usable
  3  no pool there
  4  another process has the pool open, and does not answer or cannot do this
  5  stored bytes are damaged
  6  no space is left, in the pool or in a quota
  7  something is in the way: a hold, an open file
Those of `icecore monitor` are Nagios's: 0 well, 1 warning, 2 critical,
3 unknown.";

/// A command line that clap could not know to be senseless.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A usage error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Ends the program with a code; what there is to say was said.
#[derive(Debug)]
pub struct Silent(pub u8);

impl fmt::Display for Silent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "exit code {}", self.0)
    }
}

impl std::error::Error for Silent {}

/// Reports an error on standard error.
pub fn tell(error: &anyhow::Error) {
    use io::Write as _;
    let _ = writeln!(io::stderr().lock(), "icecore: {}", sentence(error));
}

/// The error and its causes. Some errors have the words of their cause in their own: these come once.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !sentence.contains(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    sentence
}

/// Reports the error, if there is one, and chooses the exit code.
pub fn report(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    if let Some(Silent(code)) = error.downcast_ref() {
        return (*code).into();
    }
    tell(&error);
    code(&error).into()
}

/// The reader of our output had enough of it. Not to be mixed up with a broken socket, which is a
/// [`Failure`].
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The exit code of an error.
pub fn code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        return USAGE;
    }
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return match failure.code {
            ErrorCode::BadName => USAGE,
            ErrorCode::NotAPool => NO_POOL,
            ErrorCode::PoolInUse | ErrorCode::Forked => IN_USE,
            ErrorCode::Damaged => DAMAGE,
            ErrorCode::NoSpace | ErrorCode::QuotaExceeded => NO_SPACE,
            ErrorCode::Busy => BUSY,
            _ => FAILED,
        };
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => NO_SPACE,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn codes_survive_added_context() {
        let failure = Failure::new(ErrorCode::Busy, "a@x is busy: hold keep");
        assert_eq!(code(&anyhow::Error::new(failure.clone())), BUSY);
        assert_eq!(code(&Err::<(), _>(failure).context("while destroying").unwrap_err()), BUSY);
        assert_eq!(code(&usage("no")), USAGE);
        assert_eq!(code(&anyhow::anyhow!("something")), FAILED);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(code(&Err::<(), _>(full).context("write").unwrap_err()), NO_SPACE);
    }

    /// An error that has its cause in its words, too.
    #[derive(Debug)]
    struct Reading(io::Error);

    impl fmt::Display for Reading {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "cannot read day.log: {}", self.0)
        }
    }

    impl std::error::Error for Reading {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_is_printed_once_and_gives_the_code() {
        let error = anyhow::Error::new(Reading(io::ErrorKind::StorageFull.into())).context("size failed");
        assert_eq!(sentence(&error), "size failed: cannot read day.log: no storage space");
        assert_eq!(code(&error), NO_SPACE);
    }

    #[test]
    fn the_help_lists_every_code() {
        for (number, code) in [FAILED, USAGE, NO_POOL, IN_USE, DAMAGE, NO_SPACE, BUSY].into_iter().enumerate()
        {
            assert_eq!(usize::from(code), number + 1);
            assert!(HELP.contains(&format!("\n  {code}  ")));
        }
    }
}
