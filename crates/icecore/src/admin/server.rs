//! The owner's end of the control socket: one thread that accepts, and one per client, in bounded number.
//!
//! Nothing that a client does or leaves undone reaches beyond its own connection: messages are judged before
//! they are believed, a message must arrive whole within a time limit, and a client that does not read its
//! replies is dropped.

use super::codec::{CodecError, REQUEST_BYTES_MAX, read_message, write_message};
use super::failure::{ErrorCode, Failure};
use super::protocol::{Progress, Reply, Request, Response};
use super::socket::{Folder, Writer, is_timeout, process_of};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Answers the requests of one client, and keeps what the client holds between them (pins, a staged file).
pub trait Session: Send {
    /// Does what is asked. `progress` is called now and then; when it answers false no client waits any more.
    fn call(
        &mut self,
        request: Request,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Response, Failure>;

    /// Whether something is kept that would be lost with the connection.
    fn holds(&self) -> bool;
}

/// Makes a session for each client.
pub trait Service: Send + Sync + 'static {
    /// A fresh session, of this process as far as that is known.
    fn session(&self, process: Option<u32>) -> Box<dyn Session>;
}

/// Limits of a server, which tests set lower.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time.
    pub clients: usize,
    /// How long a client may say nothing while it holds nothing.
    pub idle: Duration,
    /// How long a client may say nothing while it holds a pin or stages a file.
    pub idle_holding: Duration,
    /// How long a message may take to arrive, or a reply to be taken.
    pub message: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 64,
            idle: Duration::from_secs(60),
            idle_holding: Duration::from_secs(900),
            message: Duration::from_secs(30),
        }
    }
}

/// Progress is reported at most this often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The listening end of a control socket. Stops when dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    /// A forked child inherits this value, but neither the threads nor the right to remove the socket.
    process: u32,
}

struct Shared {
    service: Arc<dyn Service>,
    limits: Limits,
    folder: Folder,
    listener: UnixListener,
    stopping: AtomicBool,
    next_client: AtomicU64,
    clients: Mutex<HashMap<u64, Connected>>,
}

struct Connected {
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens in the pool's folder. The caller owns the pool's lock: a socket left by a dead owner is
    /// replaced.
    pub fn start(service: Arc<dyn Service>, directory: &Path) -> Result<Self> {
        Self::start_with(service, directory, Limits::default())
    }

    /// [`Server::start`] with other limits.
    pub fn start_with(service: Arc<dyn Service>, directory: &Path, limits: Limits) -> Result<Self> {
        let failed =
            |error| Error::io("listen on", directory.join(super::SOCKET_NAME).display().to_string(), error);
        let folder = Folder::open(directory).map_err(failed)?;
        let listener = folder.listen().map_err(failed)?;
        let shared = Arc::new(Shared {
            service,
            limits,
            folder,
            listener,
            stopping: AtomicBool::new(false),
            next_client: AtomicU64::new(0),
            clients: Mutex::new(HashMap::new()),
        });
        let for_thread = shared.clone();
        let acceptor = thread::Builder::new()
            .name("icecore-control".into())
            .spawn(move || accept_clients(&for_thread))
            .map_err(failed)?;
        Ok(Self { shared, acceptor: Mutex::new(Some(acceptor)), process: std::process::id() })
    }

    /// Stops listening, lets requests that have begun finish, says goodbye to the other clients and waits for
    /// all threads. Long requests are asked to give up. Call it without holding locks that requests need. May
    /// be called from a thread of the server, which is then not waited for, and more than once.
    pub fn stop(&self) {
        if std::process::id() != self.process {
            return;
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        let Some(acceptor) = self.acceptor.lock().take() else { return };
        // A folder that was removed took the socket with it.
        let _ = self.shared.folder.remove_socket();
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        let _ = acceptor.join();
        let threads: Vec<_> = {
            let mut clients = self.shared.clients.lock();
            clients
                .values_mut()
                .filter_map(|client| {
                    let _ = client.stream.shutdown(Shutdown::Read);
                    client.thread.take()
                })
                .collect()
        };
        for client in threads {
            if client.thread().id() != thread::current().id() {
                let _ = client.join();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// Accepts until the listener is shut down; and those who had connected by then as well, to say goodbye to
/// them.
fn accept_clients(shared: &Arc<Shared>) {
    loop {
        match shared.listener.accept() {
            Ok((stream, _)) => admit(shared, stream),
            Err(_) if shared.is_stopping() => return,
            // Out of descriptors or memory: others may return some.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: UnixStream) {
    let limits = &shared.limits;
    if stream.set_write_timeout(Some(limits.message)).is_err() {
        return;
    }
    let mut clients = shared.clients.lock();
    if shared.is_stopping() {
        drop(clients);
        let _ = write_message(&mut Writer(&stream), &Reply::Goodbye);
        return;
    }
    if clients.len() >= limits.clients {
        let message = format!("{} clients are connected to the pool already: try again later", clients.len());
        drop(clients);
        refuse(stream, message);
        return;
    }
    let number = shared.next_client.fetch_add(1, Ordering::Relaxed);
    let Ok(kept) = stream.try_clone() else { return };
    let for_thread = shared.clone();
    // The lock is held, so the thread cannot remove its entry before it is there.
    let spawned = thread::Builder::new().name("icecore-client".into()).spawn(move || {
        let _entry = Entry { shared: &for_thread, number };
        serve(&for_thread, stream);
    });
    match spawned {
        Ok(thread) => {
            clients.insert(number, Connected { stream: kept, thread: Some(thread) });
        }
        Err(error) => {
            drop(clients);
            refuse(kept, format!("the owner of the pool cannot start a thread: {error}"));
        }
    }
}

/// The reply is small and the socket's buffer empty, so this does not wait for the client.
fn refuse(stream: UnixStream, message: String) {
    let _ = write_message(&mut Writer(&stream), &Reply::Failed(Failure::new(ErrorCode::Busy, message)));
}

/// Forgets a client when its thread ends, in whatever way.
struct Entry<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.clients.lock().remove(&self.number);
    }
}

/// Serves one client until it goes, stalls or speaks nonsense.
fn serve(shared: &Shared, mut stream: UnixStream) {
    let mut session = shared.service.session(process_of(&stream));
    loop {
        let idle = if session.holds() { shared.limits.idle_holding } else { shared.limits.idle };
        let request = match receive(&mut stream, idle, shared.limits.message) {
            Ok(Some(request)) => request,
            Ok(None) => break,
            // Stopping cuts messages off in the middle.
            Err(_) if shared.is_stopping() => break,
            Err(error) => {
                let failure = Failure::protocol(error.to_string());
                let _ = write_message(&mut Writer(&stream), &Reply::Failed(failure));
                return;
            }
        };
        if shared.is_stopping() {
            break;
        }
        if !answer(shared, session.as_mut(), request, &mut stream) {
            return;
        }
    }
    // A request may be on its way just now: it is not begun, and its sender learns so.
    let _ = write_message(&mut Writer(&stream), &Reply::Goodbye);
}

/// Does one request. False when the client does not take the reply.
fn answer(shared: &Shared, session: &mut dyn Session, request: Request, stream: &mut UnixStream) -> bool {
    let mut reported = Instant::now();
    let mut connected = true;
    let result = session.call(request, &mut |progress| {
        if reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            connected = write_message(&mut Writer(stream), &Reply::Progress(progress)).is_ok();
        }
        connected && !shared.is_stopping()
    });
    let reply = match result {
        Ok(response) => Reply::Done(response),
        Err(failure) if failure.code == ErrorCode::Closing => Reply::Goodbye,
        Err(failure) => Reply::Failed(failure),
    };
    connected && write_message(&mut Writer(stream), &reply).is_ok()
}

/// Waits up to `idle` for a message to begin, and then up to `message` for it to be there. `None` when the
/// client has gone, or has been silent for too long.
fn receive(
    stream: &mut UnixStream,
    idle: Duration,
    message: Duration,
) -> Result<Option<Request>, CodecError> {
    stream.set_read_timeout(Some(idle))?;
    let mut first = [0];
    loop {
        match stream.read(&mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_timeout(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let rest = WithDeadline { stream, deadline: Instant::now() + message };
    read_message(&mut first.as_slice().chain(rest), REQUEST_BYTES_MAX).map_err(|error| match error {
        CodecError::Io(error) if is_timeout(&error) => {
            let seconds = message.as_secs_f32();
            CodecError::Io(io::Error::other(format!("the message did not arrive whole within {seconds} s")))
        }
        other => other,
    })
}

/// Reads until a moment, however the bytes trickle in.
struct WithDeadline<'a> {
    stream: &'a mut UnixStream,
    deadline: Instant,
}

impl Read for WithDeadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
