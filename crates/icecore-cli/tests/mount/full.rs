//! Servers whose pool is full.

use crate::fixture::Fixture;
use crate::server::{Kind, Running, initialise};
use crate::writer::Writer;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a server runs out of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Pool,
    Quota,
}

impl Limit {
    fn fixture(self) -> Fixture {
        match self {
            Self::Pool => Fixture::limited("400M"),
            Self::Quota => Fixture::new(),
        }
    }

    /// Sets it, and answers where others take the room, and the error that they meet.
    fn set(self, fixture: &Fixture) -> (&'static str, i32) {
        match self {
            Self::Pool => {
                fixture.done(&["create", "filler"]);
                ("filler/f", libc::ENOSPC)
            }
            Self::Quota => {
                fixture.done(&["set", "quota=200M", "db"]);
                ("db/f", libc::EDQUOT)
            }
        }
    }

    fn raise(self, fixture: &Fixture) {
        match self {
            Self::Pool => fixture.done(&["resize", "--size-limit", "600M"]),
            Self::Quota => fixture.done(&["set", "quota=400M", "db"]),
        };
    }
}

/// There is no room while the server runs. It loses nothing, and goes on when there is room: first because
/// the limit is raised, then because others free some. Its process may end, if it says that its log could not
/// be written.
pub fn filled(kind: &'static dyn Kind, database: &str, limit: Limit) {
    let fixture = limit.fixture();
    fixture.mount();
    let data = fixture.path("db");
    initialise(kind, &data);
    let mut server = Running::start_in(kind, &data, database);
    server.ask(&kind.schema());
    let mut writer = Writer::start(kind, &server, 0);
    writer.wait_for(20);
    // From now on, whatever is overwritten costs room.
    fixture.done(&["snapshot", "db@full"]);
    let (filler, error) = limit.set(&fixture);
    let filler = fixture.path(filler);
    assert_eq!(fill(&filler), error);
    let began = Instant::now();
    while !writer.has_ended() && !server.has_ended() && began.elapsed() < Duration::from_secs(5) {
        // Smaller files take what is left.
        let _ = fill(&filler.with_extension("more"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let full = writer.acknowledged();
    for round in 0..2 {
        if round == 0 {
            limit.raise(&fixture);
        } else {
            fs::remove_file(&filler).unwrap();
            fixture.done(&["destroy", "db@full"]);
        }
        let acknowledged = if writer.has_ended() { writer.acknowledged() } else { writer.stop() };
        if !server.answers_again() {
            let log = server.log();
            assert!(kind.last_words().iter().any(|words| log.contains(words)), "it ended: {log}");
            kind.adopt(&data);
            server = Running::start_in(kind, &data, database);
        }
        let last = server.verify();
        assert!(last >= acknowledged && acknowledged >= full, "{last} of {acknowledged}, {full}");
        writer = Writer::start(kind, &server, last);
        writer.wait_for(20);
    }
    drop(writer);
    server.stop();
    fixture.unmount();
    fixture.done(&["scrub"]);
}

/// Writes until it is refused; answers the number of the error. A full pool may refuse the name of the file
/// already.
fn fill(path: &Path) -> i32 {
    use std::io::Write as _;
    let data = vec![7; 64 << 10];
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    let refused = opened.and_then(|mut file| {
        loop {
            file.write_all(&data)?;
        }
    });
    match refused {
        Err(error) => error.raw_os_error().unwrap(),
        Ok(()) => unreachable!("it writes until it is refused"),
    }
}
