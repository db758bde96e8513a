//! Readers of blocks, against collection, which moves them out of a segment that finds another use at once.

use crate::error::{Error, Result};
use crate::sync::{Arc, Mutex, thread};
use crate::tables::{Tables, while_still};
use crate::together;
use icecore::units::SegmentId;
use std::collections::BTreeMap;

/// What lies in each slot; a block holds its own address.
type Slots = BTreeMap<u32, u64>;
type Table = Arc<Mutex<Slots>>;

/// Holds the block from the beginning.
const HOME: SegmentId = SegmentId(0);
/// Where it is moved to.
const AWAY: SegmentId = SegmentId(1);
/// What is read.
const KEPT: u64 = 7;
/// What the segment holds meanwhile.
const OTHER: u64 = 8;

/// Blocks, as the store has them: slots, tables of what is in them, and the location map.
struct Pool {
    disk: Mutex<BTreeMap<(SegmentId, u32), u64>>,
    /// At the end of each segment.
    stored: Mutex<BTreeMap<SegmentId, Slots>>,
    map: Mutex<BTreeMap<u64, (SegmentId, u32)>>,
    tables: Tables<Table>,
}

impl Pool {
    /// As it was opened: nothing of it is in memory.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            disk: Mutex::new(BTreeMap::from([((HOME, 1), KEPT)])),
            stored: Mutex::new(BTreeMap::from([(HOME, Slots::from([(1, KEPT)]))])),
            map: Mutex::new(BTreeMap::from([(KEPT, (HOME, 1))])),
            tables: Tables::new(1, 8),
        })
    }

    /// As `Engine::take_segment` and `Engine::allocate`.
    fn take(&self, segment: SegmentId) {
        self.tables.forget(segment);
        self.map.lock().retain(|_, place| place.0 != segment);
        self.tables.begin(segment, [Table::default()].into());
    }

    /// As a run that is written, and entered into the map then.
    fn put(&self, segment: SegmentId, slot: u32, address: u64) {
        self.tables.filling(segment).expect("it is being filled")[0].lock().insert(slot, address);
        self.disk.lock().insert((segment, slot), address);
        self.map.lock().insert(address, (segment, slot));
    }

    /// As `Engine::end_segment`.
    fn finish(&self, segment: SegmentId) {
        let table = self.tables.finish(segment).expect("it is being filled");
        let slots = table[0].lock().clone();
        self.stored.lock().insert(segment, slots);
    }

    fn table(&self, segment: SegmentId) -> Result<Table> {
        let read = || {
            let slots = self.stored.lock().get(&segment).cloned().unwrap_or_default();
            thread::yield_now();
            Ok((0, vec![Arc::new(Mutex::new(slots))], true))
        };
        Ok(self.tables.find_or(segment, 0, read)?.expect("a table has a piece"))
    }

    fn look(&self, address: u64) -> Result<(SegmentId, u32)> {
        let found = self.map.lock().get(&address).copied();
        found.ok_or_else(|| Error::Invalid("it lies nowhere".to_owned()))
    }

    /// As `Blocks::read_doubted`.
    fn read_at(&self, (segment, slot): (SegmentId, u32)) -> Result<u64> {
        let found = self.disk.lock().get(&(segment, slot)).copied();
        let vouched = self.table(segment)?.lock().get(&slot).copied();
        let matches = found == vouched;
        found.filter(|_| matches).ok_or_else(|| Error::Invalid("it is damaged".to_owned()))
    }

    /// As `Blocks::while_there`.
    fn read(&self, address: u64) -> Result<u64> {
        while_still(
            || self.tables.uses(),
            || self.look(address),
            |place| self.read_at(*place),
            |place| Ok(self.look(address)? == *place),
        )?
    }

    fn read_kept(&self) {
        match self.read(KEPT) {
            Ok(found) => assert_eq!(found, KEPT, "another block is shown"),
            Err(error) => panic!("nothing is wrong with it: {error}"),
        }
    }
}

#[test]
fn what_is_moved_while_it_is_read_is_read_as_it_was() {
    together(|| {
        let pool = Pool::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || (0..2).for_each(|_| pool.read_kept()))
            })
            .collect();
        pool.take(AWAY);
        pool.put(AWAY, 1, KEPT);
        pool.finish(AWAY);
        // What was moved is durable.
        pool.take(HOME);
        pool.put(HOME, 1, OTHER);
        pool.finish(HOME);
        assert_eq!(pool.read(OTHER).expect("it is whole"), OTHER);
        // It has died; what was moved comes back to where it was.
        pool.take(HOME);
        pool.put(HOME, 1, KEPT);
        pool.finish(HOME);
        pool.read_kept();
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
        for segment in [HOME, AWAY] {
            let known = pool.table(segment).expect("it is in memory").lock().clone();
            assert_eq!(known, Slots::from([(1, KEPT)]), "a table of a former use");
        }
    });
}
