//! The socket's place in the pool's folder.
//!
//! A socket's path may have 107 bytes, a pool's any number. So the folder is held open, and the socket is
//! named through `/proc/self/fd`. Held open, the folder is also found again after it was moved.

use super::SOCKET_NAME;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A pool's folder, held open.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    fn address(&self) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET_NAME}", self.0.as_raw_fd()))?)
    }

    /// Listens. The caller owns the pool's lock, so a socket that is there belongs to a dead owner and goes.
    /// Only the owner's user may connect: the mode is set before any process can.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        self.remove_socket()?;
        let socket = stream_socket()?;
        rustix::net::bind(&socket, &self.address()?)?;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::chmodat(&self.0, SOCKET_NAME, mode, AtFlags::empty())?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(UnixListener::from(socket))
    }

    /// Connects. `patience`: how long the other end may take over that, and over each message later;
    /// `TimedOut` if it takes longer to take the connection.
    pub(super) fn connect(&self, patience: Duration) -> io::Result<UnixStream> {
        let stream = UnixStream::from(stream_socket()?);
        stream.set_read_timeout(Some(patience))?;
        // Counts for connecting as well.
        stream.set_write_timeout(Some(patience))?;
        match rustix::net::connect(&stream, &self.address()?) {
            Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            connected => Ok(connected.map(|()| stream)?),
        }
    }

    pub(super) fn remove_socket(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, SOCKET_NAME, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn stream_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Writes to a socket without the signal that a connection closed at the other end would raise: it would end
/// a program of which this is only a part and which does not expect it.
pub(super) struct Writer<'a>(pub(super) &'a UnixStream);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The process at the other end, where it can be named from here.
pub(super) fn process_of(stream: &UnixStream) -> Option<u32> {
    let credentials = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
