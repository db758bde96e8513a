//! A real pool on a medium that refuses a call. Its `errors.log` says which file, what was to be done with it
//! and what the system said, and is still there when the process has gone.

use icecore::storage::{Kind, RealStorage, Space, Storage, StorageFile, StorageLock};
use icecore::{CopyMode, Creation, Incident, InitOptions, OpenOptions, Pool, logged_incidents};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EIO: i32 = 5;

/// What the medium refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refused {
    Write,
    Flush,
    Create,
    FolderFlush,
    /// Every time.
    Remove,
}

/// What is to be refused next, of a segment's file or the folder, and what it was that was.
#[derive(Default)]
struct Fault {
    next: Option<Refused>,
    met: Vec<String>,
}

/// Real files, some calls to which are refused.
struct Failing {
    real: RealStorage,
    fault: Arc<Mutex<Fault>>,
}

struct FailingFile {
    name: String,
    real: Box<dyn StorageFile>,
    fault: Arc<Mutex<Fault>>,
}

/// Refuses a call if it is the one to be refused. `what`: as messages have it.
fn refuse(fault: &Mutex<Fault>, call: Refused, name: &str, what: impl FnOnce() -> String) -> io::Result<()> {
    let mut fault = fault.lock().unwrap();
    if fault.next != Some(call) || !name.starts_with("segment.") && call != Refused::FolderFlush {
        return Ok(());
    }
    if call != Refused::Remove {
        fault.next = None;
    }
    fault.met.push(what());
    Err(io::Error::from_raw_os_error(EIO))
}

impl Failing {
    fn wrap(&self, name: &str, real: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(FailingFile { name: name.to_owned(), real, fault: Arc::clone(&self.fault) })
    }
}

impl Storage for Failing {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        refuse(&self.fault, Refused::Create, name, || name.to_owned())?;
        self.real.create(name, length).map(|file| self.wrap(name, file))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        self.real.open(name, writable).map(|file| self.wrap(name, file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        refuse(&self.fault, Refused::Remove, name, || name.to_owned())?;
        self.real.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.real.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        let folder = self.real.describe();
        refuse(&self.fault, Refused::FolderFlush, &folder, || format!("directory {folder}"))?;
        self.real.sync_directory()
    }

    fn space(&self) -> io::Result<Space> {
        self.real.space()
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        self.real.lock(exclusive)
    }

    fn describe(&self) -> String {
        self.real.describe()
    }

    fn directory(&self) -> Option<PathBuf> {
        self.real.directory()
    }
}

impl FailingFile {
    fn written(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        // Zeros are a segment written ahead, in which nothing lies that could be lost.
        if parts.iter().all(|(_, part)| part.iter().all(|byte| *byte == 0)) {
            return Ok(());
        }
        let bytes: usize = parts.iter().map(|(_, part)| part.len()).sum();
        refuse(&self.fault, Refused::Write, &self.name, || {
            format!("{bytes} bytes at {offset} of {}", self.name)
        })
    }
}

impl StorageFile for FailingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.real.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.written(parts, offset)?;
        self.real.write_at(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        refuse(&self.fault, Refused::Flush, &self.name, || self.name.clone())?;
        self.real.sync()
    }

    fn is_written(&self) -> io::Result<bool> {
        self.real.is_written()
    }

    fn length(&self) -> io::Result<u64> {
        self.real.length()
    }
}

/// An open pool in a directory, and what its medium refuses.
fn opened(directory: &Path) -> (Pool, Arc<Mutex<Fault>>) {
    opened_with(directory, false)
}

/// `background`: what is written without a flush is written beside the caller.
fn opened_with(directory: &Path, background: bool) -> (Pool, Arc<Mutex<Fault>>) {
    let fault = Arc::new(Mutex::new(Fault::default()));
    let real = RealStorage::new(directory).unwrap();
    let storage = Arc::new(Failing { real, fault: Arc::clone(&fault) });
    let options = OpenOptions {
        background,
        control_socket: false,
        rest: Duration::from_secs(2),
        ..OpenOptions::default()
    };
    (Pool::open(storage, &options).unwrap(), fault)
}

/// What the log beside the pool says, without when.
fn lines(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join("errors.log")).unwrap_or_default();
    let said = text.lines().map(|line| line.split_once(' ').expect("a moment, and a sentence").1.to_owned());
    let said: Vec<String> = said.collect();
    let read: Vec<String> = logged_incidents(directory).into_iter().map(|incident| incident.what).collect();
    assert_eq!(read, said, "a reader of the log finds what is in it");
    said
}

/// Has one call refused while a caller makes something durable. Answers what was refused, and the incidents
/// that the pool reports.
fn refused(directory: &Path, call: Refused) -> (String, Vec<Incident>) {
    let (pool, fault) = opened(directory);
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"file", &Creation::file()).unwrap();
    db.write_durable(file, 0, &[1; 8192]).unwrap();
    fault.lock().unwrap().next = Some(call);
    // Enough to need another segment.
    let outcome = (0..100).try_for_each(|at| db.write_durable(file, at * 65_536, &[2; 65_536]));
    let met = std::mem::take(&mut fault.lock().unwrap().met);
    assert_eq!(met.len(), 1, "{outcome:?}");
    let said = outcome.unwrap_err().to_string();
    assert!(said.contains(&met[0]), "{said} names {}", met[0]);
    let shown = pool.incidents();
    let statistics = pool.statistics();
    let counts = (statistics.failed_writes, statistics.failed_flushes, statistics.failed_reads);
    let is_flush = matches!(call, Refused::Flush | Refused::FolderFlush);
    assert_eq!(counts, if is_flush { (0, 1, 0) } else { (1, 0, 0) });
    (met.into_iter().next().unwrap(), shown)
}

#[test]
fn what_the_medium_refuses_is_in_the_log_with_file_and_action() {
    // Without second copies, which go on without what is refused of them.
    let init = InitOptions { segment_bytes: 2 << 20, copies: CopyMode::None, ..InitOptions::default() };
    for (call, action) in [
        (Refused::Write, "write"),
        (Refused::Flush, "flush"),
        (Refused::Create, "create"),
        (Refused::FolderFlush, "flush"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        Pool::init_directory(folder.path(), &init).unwrap();
        let (pool, _) = opened(folder.path());
        pool.create_dataset("db", false, &[]).unwrap();
        pool.close().unwrap();
        assert_eq!(lines(folder.path()), [""; 0], "nothing happened yet");
        let mut expected = Vec::new();
        for _ in 0..2 {
            let (what, shown) = refused(folder.path(), call);
            let sentence = format!("cannot {action} {what}: {}", io::Error::from_raw_os_error(EIO));
            let of_memory: Vec<&str> = shown.iter().map(|incident| incident.what.as_str()).collect();
            assert_eq!(of_memory, [sentence.as_str()]);
            expected.push(sentence);
            // The process has gone, and the log has not. Each life adds what it met.
            assert_eq!(lines(folder.path()), expected);
        }
        // A life without trouble adds nothing.
        let (pool, _) = opened(folder.path());
        assert!(pool.incidents().is_empty());
        pool.verify().unwrap();
        pool.close().unwrap();
        assert_eq!(lines(folder.path()), expected);
    }
}

#[test]
fn a_bulk_writer_learns_of_a_write_beside_it_that_failed() {
    const CHUNK: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions { copies: CopyMode::None, ..InitOptions::default() })
        .unwrap();
    let (pool, fault) = opened_with(folder.path(), true);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"file", &Creation::file()).unwrap();
    let write = |number: u64| db.write(file, number * CHUNK as u64, &vec![number as u8 + 1; CHUNK]);
    (0..8).try_for_each(write).unwrap();
    db.sync().unwrap();
    fault.lock().unwrap().next = Some(Refused::Write);
    let outcome = (8..40).try_for_each(write);
    assert_eq!(fault.lock().unwrap().met.len(), 1, "{outcome:?}");
    assert!(outcome.is_err() && db.sync().is_err(), "what was not written is not reported as durable");
    assert!(pool.close().is_err());
    drop((db, pool));
    let (pool, _) = opened_with(folder.path(), true);
    let (db, mut read) = (pool.dataset("db").unwrap(), vec![0; CHUNK]);
    let file = db.open_or_create(b"file", &Creation::file()).unwrap();
    for number in 0..8 {
        assert_eq!(db.view().unwrap().read(file, number * CHUNK as u64, &mut read).unwrap(), CHUNK);
        assert!(read.iter().all(|byte| *byte == number as u8 + 1), "chunk {number} was durable");
    }
    pool.verify().unwrap();
    pool.close().unwrap();
}

#[test]
fn a_file_that_cannot_be_removed_is_not_tried_again_and_again() {
    const CHUNK: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let init = InitOptions { segment_bytes: 2 << 20, copies: CopyMode::None, ..InitOptions::default() };
    Pool::init_directory(folder.path(), &init).unwrap();
    let (pool, fault) = opened_with(folder.path(), true);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"file", &Creation::file()).unwrap();
    fault.lock().unwrap().next = Some(Refused::Remove);
    (0..300).try_for_each(|at| db.write(file, at * CHUNK as u64, &vec![1; CHUNK])).unwrap();
    db.truncate(file, 0).unwrap();
    db.sync().unwrap();
    // At rest after two seconds (`opened_with`), and then it looks every half second.
    std::thread::sleep(Duration::from_secs(6));
    let (met, checkpoints) = (fault.lock().unwrap().met.clone(), pool.statistics().checkpoints);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(met.len(), 1, "{met:?}");
    assert_eq!(pool.statistics().checkpoints, checkpoints);
    assert_eq!(pool.incidents().len(), 1);
    assert!(pool.trim().unwrap_err().to_string().contains("remove"), "who asks for it is answered");
    fault.lock().unwrap().next = None;
    assert!(pool.trim().unwrap().segments > 0);
    pool.verify().unwrap();
    drop(db);
    pool.close().unwrap();
}
