//! Servers whose pool is full.

use crate::fixture::Fixture;
use crate::server::{Kind, Running, initialise};
use crate::writer::Writer;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pool is full while the server runs. It may stop, but loses nothing, and goes on when there is room.
pub fn filled(kind: &'static dyn Kind, database: &str) {
    let fixture = Fixture::limited("400M");
    fixture.mount();
    let data = fixture.path("db");
    initialise(kind, &data);
    let mut server = Running::start_in(kind, &data, database);
    server.ask(&kind.schema());
    let mut writer = Writer::start(kind, &server, 0);
    writer.wait_for(20);
    // From now on, whatever is overwritten costs room.
    fixture.done(&["snapshot", "db@full"]);
    fixture.done(&["create", "filler"]);
    assert_eq!(fill(&fixture.path("filler/f")), libc::ENOSPC);
    let began = Instant::now();
    while !writer.has_ended() && !server.has_ended() && began.elapsed() < Duration::from_secs(5) {
        // Smaller files take what is left.
        let _ = fill(&fixture.path("filler/g"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let full = writer.acknowledged();
    for round in 0..2 {
        if round == 0 {
            fixture.done(&["resize", "--size-limit", "600M"]);
        } else {
            fs::remove_file(fixture.path("filler/f")).unwrap();
            fixture.done(&["destroy", "db@full"]);
        }
        let acknowledged = if writer.has_ended() { writer.acknowledged() } else { writer.stop() };
        if server.has_ended() {
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

/// Writes until it is refused; answers the number of the error. A full pool may refuse the name of the file already.
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
