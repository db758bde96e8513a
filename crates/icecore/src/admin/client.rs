//! A client's end of the control socket.

use super::codec::{CodecError, REPLY_BYTES_MAX, read_message, write_message};
use super::failure::{ErrorCode, Failure};
use super::protocol::{Progress, Reply, Request, Response};
use super::socket::{Folder, Writer};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to the process that owns a pool.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

/// What came of a request.
#[derive(Debug)]
pub enum Outcome {
    /// It was done.
    Done(Response),
    /// The owner closed the pool, or the connection, before it began: nothing was done, and asking again,
    /// whoever owns the pool then, is right.
    NotBegun,
}

impl Client {
    /// Connects to the owner of the pool in this folder. `NotFound` or `ConnectionRefused` when nobody listens.
    pub fn connect(directory: &Path) -> io::Result<Self> {
        Ok(Self { stream: Folder::open(directory)?.connect()? })
    }

    /// Sends a request and waits for its answer, however long that takes.
    pub fn call(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Outcome, Failure> {
        // A request that did not get through whole is not begun. A reply may be waiting nevertheless: the
        // refusal of a client too many, or a goodbye.
        let sent = write_message(&mut Writer(&self.stream), request);
        loop {
            match read_message(&mut self.stream, REPLY_BYTES_MAX) {
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

fn went_away() -> Failure {
    Failure::protocol(
        "the owner of the pool went away before it answered: look whether the request was done, and repeat it if not",
    )
}
