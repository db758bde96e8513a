//! Imports that replace a file and what belongs to its former content, struck by a crash at every I/O.

use crate::common::{Context, for_each_seed, open};
use icecore::admin::protocol::Owner;
use icecore::admin::{Executor, Failure, Request, Session as _};
use icecore::units::InodeNumber;
use icecore::{Creation, Pool, RenameHow};
use icecore_sim::explorer::{Explorer, Setting};
use icecore_sim::{CrashMode, Random};

const FORMER: &[u8] = b"the former database, and half of it is in its log";
const LOG: &[u8] = b"the other half";

/// A pool with a database and its log, killed.
fn beginning(seed: u64) -> Explorer {
    let mut explorer = Explorer::new(seed, &Setting::default()).unwrap();
    explorer.open().unwrap();
    let pool = explorer.pool();
    let dataset = pool.create_dataset("d", false, &[]).and_then(|_| pool.dataset("d")).unwrap();
    for (name, content) in [(&b"db"[..], FORMER), (b"db-wal", LOG)] {
        let file = dataset.open_or_create(name, &Creation::file()).unwrap();
        dataset.write(file, 0, content).unwrap();
    }
    pool.sync().unwrap();
    explorer.crash(None);
    explorer
}

fn import(pool: &Pool, content: &[u8]) -> Result<(), Failure> {
    import_while(pool, content, || ())
}

/// Calls `meanwhile` before the content counts.
fn import_while(pool: &Pool, content: &[u8], meanwhile: impl FnOnce()) -> Result<(), Failure> {
    let mut session = Executor::new(pool.clone());
    let owner = Owner { uid: 0, gid: 0 };
    let (path, beside) = (b"d/db".to_vec(), vec![b"-wal".to_vec()]);
    let begin = Request::BeginImport { path, mode: 0o644, owner, replace: true, beside };
    session.call(begin, &mut |_| true)?;
    session.call(Request::ImportChunk { offset: 0, data: content.to_vec() }, &mut |_| true)?;
    meanwhile();
    session.call(Request::CommitImport { size: content.len() as u64 }, &mut |_| true).map(|_| ())
}

/// The content of a file; nothing if it is not there.
fn content(pool: &Pool, name: &[u8]) -> Vec<u8> {
    let view = pool.dataset("d").and_then(|dataset| dataset.view()).unwrap();
    let Some(entry) = view.lookup(InodeNumber::ROOT, name).unwrap() else { return Vec::new() };
    let mut bytes = vec![0; view.attributes(entry.inode).unwrap().size as usize];
    view.read(entry.inode, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_database_goes_with_its_log_whenever_a_crash_comes() {
    for_each_seed("import", 3, |seed| {
        // Such that a part of it is written ahead of the commit.
        let wanted = vec![7; 200_000];
        let base = beginning(seed);
        let mut reference = base.fork(0);
        reference.open().unwrap();
        let before = reference.disk.io_count();
        import(reference.pool(), &wanted).unwrap();
        let count = reference.disk.io_count() - before;
        assert!(reference.pool().view("d").unwrap().lookup(InodeNumber::ROOT, b"db-wal").unwrap().is_none());
        reference.crash(None);

        let mut random = Random::new(seed);
        let (mut former, mut new) = (0, 0);
        for number in 1..=count {
            let _context = Context(format!("crash at I/O {number} of {count}"));
            let mut first = base.fork(seed ^ number);
            first.open().unwrap();
            first.disk.crash_at(number);
            let _ = import(first.pool(), &wanted);
            for mode in CrashMode::ALL_MODES {
                let _context = Context(format!("mode {mode:?}"));
                let mut explorer = first.fork(random.next());
                explorer.crash(Some(mode));
                open(&mut explorer);
                let found = (content(explorer.pool(), b"db"), content(explorer.pool(), b"db-wal"));
                if found.0 == FORMER {
                    assert!(found.1 == LOG, "the former database lacks its log");
                    former += 1;
                } else {
                    assert!(
                        found == (wanted.clone(), Vec::new()),
                        "the log of another database is beside it"
                    );
                    new += 1;
                }
                explorer.pool().verify().unwrap();
            }
        }
        assert!(former > 0 && new > 0, "{former} crashes before the commit, and {new} after it");
    });
}

#[test]
fn what_programs_do_while_a_database_is_imported_is_seen() {
    let mut explorer = beginning(1);
    explorer.open().unwrap();
    let pool = explorer.pool();
    let dataset = pool.dataset("d").unwrap();
    let root = InodeNumber::ROOT;
    let log = || {
        let file = dataset.open_or_create(b"db-wal", &Creation::file()).unwrap();
        dataset.write(file, 0, LOG).unwrap();
    };
    // A log that is made meanwhile, or is empty before, is one of the former content as well.
    dataset.unlink(root, b"db-wal").unwrap();
    import_while(pool, b"second", log).unwrap();
    assert_eq!((content(pool, b"db"), content(pool, b"db-wal")), (b"second".to_vec(), Vec::new()));
    dataset.open_or_create(b"db-wal", &Creation::file()).unwrap();
    import_while(pool, b"third", log).unwrap();
    assert_eq!((content(pool, b"db"), content(pool, b"db-wal")), (b"third".to_vec(), Vec::new()));
    // A file that is another one by now is not replaced, and keeps its log.
    log();
    let replace = || {
        dataset.open_or_create(b"new", &Creation::file()).unwrap();
        dataset.rename((root, b"new"), (root, b"db"), RenameHow::Replace).unwrap();
    };
    let refused = import_while(pool, b"fourth", replace).unwrap_err().to_string();
    assert!(refused.contains("import it again"), "{refused}");
    assert_eq!((content(pool, b"db"), content(pool, b"db-wal")), (Vec::new(), LOG.to_vec()));
    pool.verify().unwrap();
}
