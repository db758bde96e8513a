//! A client's end of the control socket.

use super::codec::{CodecError, REPLY_BYTES_MAX, read_message, write_message};
use super::failure::{ErrorCode, Failure};
use super::protocol::{Progress, Reply, Request, Response};
use super::socket::{Folder, Writer, is_timeout, process_of};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a client waits for signs of life.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long the owner may say nothing before it is asked whether it is there. What takes long goes on
    /// meanwhile.
    pub silence: Duration,
    /// How long it may take over its answer to that.
    pub sign: Duration,
}

impl Default for Patience {
    /// Three seconds for an owner that hangs. Another look at one that works takes nothing.
    fn default() -> Self {
        Self { silence: Duration::from_secs(1), sign: Duration::from_secs(2) }
    }
}

/// A connection to the process that owns a pool.
#[derive(Debug)]
pub struct Client {
    folder: Folder,
    stream: UnixStream,
    patience: Patience,
}

/// What came of a request.
#[derive(Debug)]
pub enum Outcome {
    /// It was done.
    Done(Response),
    /// The owner closed the pool, or the connection, before it began. Nothing was done, and it is right to
    /// ask again, whichever process owns the pool then.
    NotBegun,
}

impl Client {
    /// Connects to the owner of the pool in this folder. `NotFound` or `ConnectionRefused` when no process
    /// listens, `TimedOut` when none takes the connection.
    pub fn connect(directory: &Path) -> io::Result<Self> {
        Self::connect_with(directory, Patience::default())
    }

    /// [`Client::connect`] with another patience.
    pub fn connect_with(directory: &Path, patience: Patience) -> io::Result<Self> {
        let folder = Folder::open(directory)?;
        let stream = folder.connect(patience.silence)?;
        Ok(Self { folder, stream, patience })
    }

    /// Whether the owner is there: it says goodbye to a client that comes and wants nothing, whatever else it
    /// has to do. Owners of every version do.
    pub(super) fn is_alive(&self) -> bool {
        let asked = self.folder.connect(self.patience.sign).and_then(|stream| {
            stream.shutdown(Shutdown::Write)?;
            (&stream).read(&mut [0])
        });
        // One that does not listen any more is about to end, and ends this connection then.
        asked.err().is_none_or(|error| !is_timeout(&error))
    }

    fn no_answer(&self) -> Failure {
        let owner =
            process_of(&self.stream).map(|process| format!(" (process {process})")).unwrap_or_default();
        Failure::new(
            ErrorCode::PoolInUse,
            format!(
                "the process that has the pool open{owner} does not answer: it hangs or was stopped; look whether the request \
                 was done once it goes on, or end it"
            ),
        )
    }

    /// Sends a request and waits for its answer, however long that takes, as long as the owner is there.
    pub fn call(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Outcome, Failure> {
        // A request that did not get through whole is not begun. A reply may be waiting nevertheless: the
        // refusal of a client too many, or a goodbye.
        let sent = write_message(&mut Patient(self), request);
        loop {
            if sent.as_ref().is_err_and(is_timeout) {
                return Err(self.no_answer());
            }
            match read_message(&mut Patient(self), REPLY_BYTES_MAX) {
                Err(CodecError::Io(error)) if is_timeout(&error) => return Err(self.no_answer()),
                Ok(Some(Reply::Progress(now))) => progress(now),
                Ok(Some(Reply::Done(response))) => return Ok(Outcome::Done(response)),
                Ok(Some(Reply::Failed(failure))) => return Err(failure),
                Ok(Some(Reply::Goodbye)) => return Ok(Outcome::NotBegun),
                Ok(None) | Err(CodecError::Io(_)) if sent.is_err() => return Ok(Outcome::NotBegun),
                Ok(None) | Err(CodecError::Io(_) | CodecError::Truncated) => return Err(went_away()),
                Err(error @ CodecError::OtherVersion(_)) => {
                    return Err(Failure::new(ErrorCode::NewerFormat, error.to_string()));
                }
                Err(error) => {
                    return Err(Failure::protocol(format!(
                        "the owner of the pool answers nonsense: {error}"
                    )));
                }
            }
        }
    }
}

/// The connection of a client, which does not wait for an owner that is not there.
struct Patient<'a>(&'a Client);

impl Patient<'_> {
    fn until_done(&self, mut body: impl FnMut(&UnixStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match body(&self.0.stream) {
                Err(error) if is_timeout(&error) && self.0.is_alive() => {}
                outcome => return outcome,
            }
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(|mut stream| stream.read(buffer))
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|stream| Writer(stream).write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn went_away() -> Failure {
    Failure::protocol(
        "the owner of the pool went away before it answered: look whether the request was done, and repeat it if not",
    )
}
