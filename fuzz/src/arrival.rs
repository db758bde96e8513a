//! Journals and write-ahead logs that came along with a database.

use super::simulated::new_pool;
use icecore::{Creation, Dataset, Pool};
use icecore_sqlite::Registration;
use rusqlite::{Connection, OpenFlags};
use std::cell::RefCell;

const WAL_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const JOURNAL_HEADER_BYTES: usize = 28;
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Databases that one pool sees.
const USES: u32 = 500;

struct Door {
    registration: Registration,
    pool: Pool,
    database: Vec<u8>,
    uses: u32,
}

thread_local! {
    static DOOR: RefCell<Option<Door>> = const { RefCell::new(None) };
}

/// The first byte says what the bytes are, whether their checksums are made to fit, and whether somebody reads or writes.
pub fn arrival(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let (is_wal, fitting, writing) = (kind & 1 != 0, kind & 2 != 0, kind & 4 != 0);
    let mut beside = bytes.to_vec();
    // SQLite would look for the super-journal that is named there, and might remove it: a real file.
    if !is_wal && beside.ends_with(&JOURNAL_MAGIC) && writing {
        return;
    }
    match (fitting, is_wal) {
        (true, true) => fit_wal(&mut beside),
        (true, false) => fit_journal(&mut beside),
        (false, _) => {}
    }
    DOOR.with_borrow_mut(|kept| {
        let door = kept.get_or_insert_with(Door::new);
        door.look(if is_wal { "app.db-wal" } else { "app.db-journal" }, &beside, writing);
        door.uses += 1;
        if door.uses >= USES {
            door.pool.verify().expect("the books");
            *kept = None;
        }
    });
}

impl Door {
    fn new() -> Self {
        let pool = new_pool("ds");
        icecore_sqlite::register().expect("the VFS");
        let name = format!("arrival-{:?}", std::thread::current().id());
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let registration = icecore_sqlite::register_pool(&name, pool.clone()).expect("a new name");
        let mut door = Self { registration, pool, database: Vec::new(), uses: 0 };
        let rows = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 40)";
        let fill = format!(
            "PRAGMA page_size=512; CREATE TABLE t(x); INSERT INTO t {rows} SELECT i || hex(zeroblob(20)) FROM n"
        );
        door.connect(true).expect("a database").execute_batch(&fill).expect("a table");
        let view = door.pool.view("ds").expect("the dataset");
        let inode = view.resolve(b"app.db").expect("the root").expect("the database");
        door.database = vec![0; view.attributes(inode).expect("it is there").size as usize];
        view.read(inode, 0, &mut door.database).expect("its bytes");
        door
    }

    fn connect(&self, writing: bool) -> rusqlite::Result<Connection> {
        let mode = if writing {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        } else {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        };
        let flags = mode | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let uri = format!("file:{}/ds/app.db?vfs=icecore", self.registration.prefix());
        Connection::open_with_flags(uri, flags)
    }

    /// Puts the database there with this beside it, and uses it.
    fn look(&self, name: &str, beside: &[u8], writing: bool) {
        let dataset = self.pool.dataset("ds").expect("the dataset");
        for name in ["app.db-wal", "app.db-journal"] {
            let _ = dataset.unlink(icecore::units::InodeNumber::ROOT, name.as_bytes());
        }
        put(&dataset, "app.db", &self.database);
        put(&dataset, name, beside);
        if let Ok(connection) = self.connect(writing) {
            let _ = connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
            if writing {
                let _ = connection.execute_batch("INSERT INTO t VALUES('more')");
            }
        }
        let said = icecore_sqlite::last_error().unwrap_or_default();
        assert!(!said.contains("a bug in icecore"), "{said}");
        assert!(!self.pool.is_read_only());
    }
}

fn put(dataset: &Dataset, name: &str, bytes: &[u8]) {
    let inode = dataset.open_or_create(name.as_bytes(), &Creation::file()).expect("a file");
    dataset.truncate(inode, 0).expect("an empty file");
    dataset.write(inode, 0, bytes).expect("its bytes");
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A page size that there is, whatever the bytes say.
fn page_bytes(bytes: &mut [u8], at: usize) -> usize {
    let size = 512_u32 << (number(bytes, at) % 3);
    bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
    size as usize
}

/// A log that begins as one, and whose sums are right.
fn fit_wal(log: &mut Vec<u8>) {
    log.resize(log.len().max(WAL_HEADER_BYTES), 0);
    let big_endian = log[3] & 1 == 1;
    log[..8].copy_from_slice(&[0x37, 0x7f, 0x06, 0x82 | u8::from(big_endian), 0, 0x2d, 0xe2, 0x18]);
    let page = page_bytes(log, 8);
    let mut sums = [0_u32; 2];
    add(&mut sums, &log[..24], big_endian);
    put_sums(&mut log[24..32], sums);
    let (header, frames) = log.split_at_mut(WAL_HEADER_BYTES);
    for frame in frames.chunks_exact_mut(FRAME_HEADER_BYTES + page) {
        frame[8..16].copy_from_slice(&header[16..24]);
        add(&mut sums, &frame[..8], big_endian);
        add(&mut sums, &frame[FRAME_HEADER_BYTES..], big_endian);
        put_sums(&mut frame[16..24], sums);
    }
}

fn add(sums: &mut [u32; 2], bytes: &[u8], big_endian: bool) {
    for pair in bytes.chunks_exact(8) {
        let word = |at: usize| {
            let word = number(pair, at);
            if big_endian { word } else { word.swap_bytes() }
        };
        sums[0] = sums[0].wrapping_add(word(0)).wrapping_add(sums[1]);
        sums[1] = sums[1].wrapping_add(word(4)).wrapping_add(sums[0]);
    }
}

fn put_sums(bytes: &mut [u8], sums: [u32; 2]) {
    bytes[..4].copy_from_slice(&sums[0].to_be_bytes());
    bytes[4..].copy_from_slice(&sums[1].to_be_bytes());
}

/// A journal that begins as one, and whose records are right.
fn fit_journal(journal: &mut Vec<u8>) {
    journal.resize(journal.len().max(JOURNAL_HEADER_BYTES), 0);
    journal[..8].copy_from_slice(&JOURNAL_MAGIC);
    let start = number(journal, 12);
    journal[20..24].copy_from_slice(&512_u32.to_be_bytes());
    let page = page_bytes(journal, 24);
    for record in journal.get_mut(512..).unwrap_or_default().chunks_exact_mut(page + 8) {
        let content = &record[4..4 + page];
        let every = (1..).map(|index| page.saturating_sub(200 * index)).take_while(|at| *at > 0);
        let sum = every.fold(start, |sum, at| sum.wrapping_add(content[at].into()));
        record[4 + page..].copy_from_slice(&sum.to_be_bytes());
    }
}
