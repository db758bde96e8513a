//! Clients of every kind against a server with a service that pretends.

use super::*;
use crate::admin::client::{Client, Outcome, Patience};
use crate::admin::codec;
use crate::pool::ScrubOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

/// Answers `Done`, and for some requests something special.
struct Pretend;

struct PretendSession {
    pinned: bool,
}

impl Service for Pretend {
    fn session(&self, _: Option<u32>) -> Box<dyn Session> {
        Box::new(PretendSession { pinned: false })
    }
}

impl Session for PretendSession {
    fn call(
        &mut self,
        request: Request,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Response, Failure> {
        match request {
            Request::Sync => Err(Error::ReadOnly.into()),
            Request::Holds { .. } => Ok(Response::Names(vec!["x".repeat(255); 50_000])),
            Request::Pin { .. } => {
                self.pinned = true;
                Ok(Response::Done)
            }
            Request::Scrub(_) => {
                while progress(Progress::default()) {
                    thread::sleep(Duration::from_millis(5));
                }
                Ok(Response::Done)
            }
            Request::RestoreCopies => {
                thread::sleep(Duration::from_millis(300));
                Ok(Response::Done)
            }
            Request::Copies => panic!("a fault in one session"),
            _ => Ok(Response::Done),
        }
    }

    fn holds(&self) -> bool {
        self.pinned
    }
}

fn quick() -> Limits {
    Limits {
        clients: 4,
        idle: Duration::from_millis(400),
        idle_holding: Duration::from_secs(60),
        message: Duration::from_millis(200),
    }
}

fn start(limits: Limits) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(Arc::new(Pretend), folder.path(), limits).unwrap();
    (folder, server)
}

fn ask(client: &mut Client, request: &Request) -> Result<Response, Failure> {
    match client.call(request, &mut |_| {})? {
        Outcome::Done(response) => Ok(response),
        Outcome::NotBegun => Err(Failure::protocol("not begun")),
    }
}

fn raw(folder: &Path) -> UnixStream {
    let stream = Folder::open(folder).unwrap().connect(Duration::from_secs(10)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn reply(stream: &mut UnixStream) -> Option<Reply> {
    read_message(stream, codec::REPLY_BYTES_MAX).unwrap()
}

#[test]
fn answers_failures_and_long_lists_come_through() {
    let (folder, _server) = start(Limits::default());
    let mut client = Client::connect(folder.path()).unwrap();
    assert_eq!(ask(&mut client, &Request::Status), Ok(Response::Done));
    let failure = ask(&mut client, &Request::Sync).unwrap_err();
    assert_eq!((failure.code, failure.message), (ErrorCode::ReadOnly, Error::ReadOnly.to_string()));
    let Ok(Response::Names(names)) = ask(&mut client, &Request::Holds { snapshot: String::new() }) else {
        panic!()
    };
    assert_eq!(names.len(), 50_000);
}

#[test]
fn the_socket_is_private_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(crate::admin::SOCKET_NAME);
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(Client::connect(folder.path()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let server = Server::start(Arc::new(Pretend), folder.path()).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).is_ok());
    server.stop();
    assert!(!path.exists());
    assert_eq!(Client::connect(folder.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_path_longer_than_a_socket_address_works() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let _server = Server::start(Arc::new(Pretend), &deep).unwrap();
    assert!(ask(&mut Client::connect(&deep).unwrap(), &Request::Status).is_ok());
}

#[test]
fn nonsense_gets_one_clear_error_and_the_end() {
    let (folder, _server) = start(quick());
    let version = crate::admin::protocol::PROTOCOL_VERSION.to_le_bytes();
    let frame = |rest: &[u8]| [&b"ICEA"[..], &version, &[0, 0], rest].concat();
    let huge = frame(&u32::MAX.to_le_bytes());
    let garbage_body = frame(b"\x03\0\0\0\xff\xff\xff");
    let other_version = b"ICEA\x63\0\0\0\x01\0\0\0\0".to_vec();
    for (bytes, part) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "not frames"),
        (huge, "too long"),
        (garbage_body, "makes no sense"),
        (other_version, "version 99"),
    ] {
        let mut stream = raw(folder.path());
        stream.write_all(&bytes).unwrap();
        let Some(Reply::Failed(failure)) = reply(&mut stream) else { panic!("no failure for {part}") };
        assert!(failure.message.contains(part), "{}", failure.message);
        assert_eq!(failure.code, ErrorCode::Protocol);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    assert!(ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).is_ok());
}

#[test]
fn a_message_that_trickles_in_is_given_up_and_no_client_waits_for_it() {
    let (folder, _server) = start(quick());
    let mut slow = raw(folder.path());
    slow.write_all(b"ICEA\x02\0").unwrap();
    assert!(ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).is_ok());
    let Some(Reply::Failed(failure)) = reply(&mut slow) else { panic!("no failure") };
    assert!(failure.message.contains("within 0.2 s"), "{}", failure.message);
}

#[test]
fn silence_ends_a_connection_that_holds_nothing() {
    let (folder, _server) = start(quick());
    let mut idle = raw(folder.path());
    let mut holding = Client::connect(folder.path()).unwrap();
    ask(&mut holding, &Request::Pin { path: vec![] }).unwrap();
    assert_eq!(reply(&mut idle), Some(Reply::Goodbye));
    assert_eq!(reply(&mut idle), None);
    thread::sleep(Duration::from_millis(300));
    assert!(ask(&mut holding, &Request::Status).is_ok());
}

#[test]
fn one_client_too_many_is_refused_and_room_is_made_when_one_goes() {
    let (folder, _server) = start(Limits { idle: Duration::from_secs(60), ..quick() });
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(folder.path()).unwrap()).collect();
    clients.iter_mut().for_each(|client| drop(ask(client, &Request::Status).unwrap()));
    let failure = ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).unwrap_err();
    assert_eq!(failure.code, ErrorCode::Busy);
    clients.pop();
    let deadline = Instant::now() + Duration::from_secs(10);
    while ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).is_err() {
        assert!(Instant::now() < deadline, "the place of a client that went was not given on");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_goes_in_the_middle_ends_its_long_request_only() {
    let (folder, _server) = start(Limits { clients: 1, ..quick() });
    let mut stream = raw(folder.path());
    write_message(&mut stream, &Request::Scrub(ScrubOptions::default())).unwrap();
    assert!(matches!(reply(&mut stream), Some(Reply::Progress(_))));
    drop(stream);
    let deadline = Instant::now() + Duration::from_secs(10);
    while ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).is_err() {
        assert!(Instant::now() < deadline, "the scrub goes on without a client");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_panic_in_a_session_stays_there() {
    let (folder, _server) = start(quick());
    let mut client = Client::connect(folder.path()).unwrap();
    let failure = ask(&mut client, &Request::Copies).unwrap_err();
    assert!(failure.message.contains("went away"), "{}", failure.message);
    assert!(ask(&mut Client::connect(folder.path()).unwrap(), &Request::Status).is_ok());
}

#[test]
fn stopping_says_goodbye_to_the_idle_and_ends_what_is_long() {
    let (folder, server) = start(Limits { idle: Duration::from_secs(60), ..quick() });
    let mut idle = raw(folder.path());
    let mut scrubbing = raw(folder.path());
    write_message(&mut scrubbing, &Request::Scrub(ScrubOptions::default())).unwrap();
    assert!(matches!(reply(&mut scrubbing), Some(Reply::Progress(_))));
    let mut client = Client::connect(folder.path()).unwrap();
    ask(&mut client, &Request::Status).unwrap();
    server.stop();
    server.stop();
    assert_eq!(reply(&mut idle), Some(Reply::Goodbye));
    while matches!(reply(&mut scrubbing), Some(Reply::Progress(_))) {}
    assert!(matches!(client.call(&Request::Status, &mut |_| {}), Ok(Outcome::NotBegun)));
}

#[test]
fn a_client_that_connects_while_the_server_stops_is_asked_to_try_again() {
    for _ in 0..50 {
        let (folder, server) = start(Limits::default());
        let path = folder.path().to_owned();
        let asking = thread::spawn(move || {
            while let Ok(mut client) = Client::connect(&path) {
                let outcome = client.call(&Request::Status, &mut |_| {});
                assert!(matches!(outcome, Ok(Outcome::Done(_) | Outcome::NotBegun)), "{outcome:?}");
            }
        });
        thread::sleep(Duration::from_millis(2));
        server.stop();
        asking.join().unwrap();
    }
}

#[test]
fn a_server_may_be_stopped_by_one_of_its_own_threads() {
    struct Stops(Mutex<Option<mpsc::Receiver<Server>>>);
    struct StopsSession(mpsc::Receiver<Server>);
    impl Service for Stops {
        fn session(&self, _: Option<u32>) -> Box<dyn Session> {
            Box::new(StopsSession(self.0.lock().take().unwrap()))
        }
    }
    impl Session for StopsSession {
        fn call(&mut self, _: Request, _: &mut dyn FnMut(Progress) -> bool) -> Result<Response, Failure> {
            drop(self.0.recv().unwrap());
            Ok(Response::Done)
        }
        fn holds(&self) -> bool {
            false
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (sender, receiver) = mpsc::channel();
    let server = Server::start(Arc::new(Stops(Mutex::new(Some(receiver)))), folder.path()).unwrap();
    let mut client = Client::connect(folder.path()).unwrap();
    sender.send(server).unwrap();
    assert_eq!(ask(&mut client, &Request::Status), Ok(Response::Done));
}

#[test]
fn an_owner_that_hangs_is_not_waited_for_and_one_that_works_is() {
    let folder = tempfile::tempdir().unwrap();
    // The system takes the connections, and no process is there to read what they say.
    let listener = Folder::open(folder.path()).unwrap().listen().unwrap();
    let soon = Duration::from_millis(20);
    let impatient = Patience { silence: soon, sign: soon };
    for request in [
        Request::Status,
        Request::ImportChunk { offset: 0, data: vec![1; crate::admin::protocol::CHUNK_BYTES_MAX] },
    ] {
        let mut client = Client::connect_with(folder.path(), impatient).unwrap();
        let failure = ask(&mut client, &request).unwrap_err();
        assert_eq!(failure.code, ErrorCode::PoolInUse, "{failure}");
        let named = format!("(process {}) does not answer", std::process::id());
        assert!(failure.message.contains(&named), "{failure}");
    }
    // Until no more of them are taken.
    let mut waiting = Vec::new();
    let refused = loop {
        match Client::connect_with(folder.path(), impatient) {
            Ok(client) => waiting.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    drop((listener, waiting));

    let _server = Server::start(Arc::new(Pretend), folder.path()).unwrap();
    let patience = Patience { silence: soon, sign: Duration::from_secs(60) };
    let mut client = Client::connect_with(folder.path(), patience).unwrap();
    assert!(ask(&mut client, &Request::RestoreCopies).is_ok());
}
