//! Second copies: threads that write, that make a copy of what was there before, and that rely on copies.

use crate::copies::{Copies, Place, copy_name};
use crate::disk::{Call, Disk, Drive, Refused, block, number};
use crate::error::Error;
use crate::files::SegmentFiles;
use crate::incidents::Incidents;
use crate::sync::{Arc, AtomicU64, Ordering, thread};
use crate::together_times;
use icecore::CopyMode;
use icecore::format::copies::CopySettings;
use icecore::format::segment::{Geometry, SegmentKind, file_name};
use icecore::storage::{Kind, Storage};
use icecore::units::{BLOCK_BYTES, SegmentId, Slot};
use std::collections::BTreeMap;

/// Orders of steps that are tried in each case.
const SCHEDULES: usize = 400;
/// Longer than what is copied at once.
const GEOMETRY: Geometry = Geometry { bytes: 260 * BLOCK_BYTES as u64 };
/// Has its copy from the beginning.
const COPIED: SegmentId = SegmentId(0);
/// Gets its copy while others write to it.
const LACKING: SegmentId = SegmentId(1);
/// In the first piece that is copied, and in the second.
const SLOTS: [Slot; 2] = [Slot(1), Slot(258)];
/// What is written last.
const LAST: u64 = 2;

struct Pool {
    disk: Arc<Disk>,
    files: SegmentFiles,
}

impl Pool {
    /// With two segments in use.
    fn new() -> Arc<Self> {
        let disk = Disk::new();
        let storage: Arc<dyn Storage> = Arc::new(Drive(Arc::clone(&disk)));
        let settings = CopySettings { mode: CopyMode::All, ..CopySettings::default() };
        let place = Place::here(&storage);
        let copies = Copies::new(GEOMETRY, true, Arc::new(Incidents), settings, Ok(place));
        copies.adopt(&BTreeMap::from([(LACKING, SegmentKind::Node)]));
        let files = SegmentFiles::new(storage, GEOMETRY, true, Arc::new(Incidents), copies);
        files.create(COPIED).expect("a file");
        files.create(LACKING).expect("a file");
        files.begin(COPIED, SegmentKind::Node);
        let pool = Arc::new(Self { disk, files });
        pool.write(COPIED, SLOTS[1], 1);
        pool.write(LACKING, SLOTS[1], 1);
        pool.files.copies().flush(false);
        pool
    }

    fn write(&self, segment: SegmentId, slot: Slot, number: u64) {
        self.files.write(segment, slot, &[(Kind::Node, &block(number))]).expect("only copies are refused");
    }

    /// As `Engine::copy_one`. Whether there is a copy now.
    fn make_copy(&self) -> bool {
        let read = |slot, into: &mut [u8]| self.files.read(LACKING, Slot(slot), into).is_ok();
        self.files.copies().fill(LACKING, read, || true).is_ok()
    }

    /// As a checkpoint, which leads to what it wrote itself, and to what was there in the beginning.
    fn checkpoint(&self, number: u64) {
        for segment in [COPIED, LACKING] {
            self.write(segment, SLOTS[0], number);
        }
        self.files.copies().flush(false);
        if self.files.copies().settings().behind {
            return;
        }
        for segment in [COPIED, LACKING] {
            for blocks in self.disk.after_crash(&copy_name(segment)).into_iter().flatten() {
                for (slot, least) in [(SLOTS[0], number), (SLOTS[1], 1)] {
                    let found = blocks.get(&u64::from(slot.0)).copied().unwrap_or_default();
                    assert!(found >= least, "{segment:?} {slot:?}: {found} of {least} after a crash");
                }
            }
        }
    }

    /// Every copy that counts is what it is a copy of.
    fn compare(&self) {
        for segment in [COPIED, LACKING] {
            if self.files.copies().has(segment) {
                let (original, copy) =
                    (self.disk.content(&file_name(segment)), self.disk.content(&copy_name(segment)));
                let (original, mut copy) = (original.expect("it is there"), copy.expect("it is there"));
                copy.retain(|_, number| *number > 0);
                assert_eq!(original, copy, "{segment:?}");
            }
        }
    }
}

/// A checkpoint, and a thread that makes a copy of what was there before. A third thread writes beside them,
/// unless it is in that copy that a call fails.
fn write_and_copy(refused: Option<Refused>) {
    let pool = Pool::new();
    if let Some(refused) = refused {
        pool.disk.refuse(refused);
    }
    let run = |body: fn(&Pool)| {
        let pool = Arc::clone(&pool);
        thread::spawn(move || body(&pool))
    };
    let mut threads = vec![
        run(|pool| (1..=LAST).for_each(|number| pool.checkpoint(number))),
        run(|pool| {
            pool.make_copy();
            pool.files.copies().flush(false);
        }),
    ];
    if refused.is_none_or(|refused| refused.prefix == COPY) {
        threads.push(run(|pool| (1..=LAST).for_each(|number| pool.write(LACKING, SLOTS[1], number))));
    }
    for thread in threads {
        thread.join().expect("a thread");
    }
    pool.checkpoint(LAST + 1);
    pool.compare();
    let copies = pool.files.copies();
    assert!(refused.is_some() || [COPIED, LACKING].into_iter().all(|segment| copies.has(segment)));
}

/// The name of what is copied from the beginning.
const COPY: &str = "copy.";
/// The name that what is being copied is opened under.
const UNFINISHED: &str = "copy-unfinished.";

#[test]
fn what_a_superblock_relies_on_is_copied() {
    together_times(SCHEDULES, || write_and_copy(None));
}

#[test]
fn a_copy_that_could_not_be_written_is_not_relied_on() {
    let call = Call::Write;
    together_times(SCHEDULES / 2, move || write_and_copy(Some(Refused { call, prefix: COPY, after: 0 })));
    // Something that others write when all that was there before is copied.
    together_times(SCHEDULES, move || write_and_copy(Some(Refused { call, prefix: UNFINISHED, after: 2 })));
}

#[test]
fn a_copy_that_could_not_be_flushed_is_not_relied_on() {
    let call = Call::Sync;
    together_times(SCHEDULES / 2, move || write_and_copy(Some(Refused { call, prefix: COPY, after: 0 })));
    together_times(SCHEDULES / 2, move || {
        write_and_copy(Some(Refused { call, prefix: UNFINISHED, after: 0 }))
    });
    together_times(SCHEDULES / 2, move || {
        write_and_copy(Some(Refused { call, prefix: UNFINISHED, after: 1 }))
    });
}

#[test]
fn nothing_is_written_to_a_pool_that_was_closed() {
    together_times(SCHEDULES, || {
        let pool = Pool::new();
        let run = |body: fn(&Pool)| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || body(&pool))
        };
        let threads = [
            run(|pool| {
                for number in 1..=LAST {
                    let _ = pool.files.write(COPIED, SLOTS[0], &[(Kind::Node, &block(number))]);
                }
            }),
            run(|pool| {
                let why = Error::damaged("a place", "it was ordered");
                pool.files.heal(COPIED, SLOTS[1], &block(1), &why, || true);
            }),
            run(|pool| pool.files.mend_copy(COPIED, SLOTS[1], &block(1), || true)),
        ];
        pool.files.copies().shut();
        pool.disk.hand_on();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

/// A segment finds a new use while a reader, who has found damage in it, takes what it looked for from the
/// copy.
#[test]
fn what_is_healed_is_what_lies_there() {
    together_times(SCHEDULES, || {
        let pool = Pool::new();
        let uses = Arc::new(AtomicU64::new(1));
        let reader = {
            let (pool, uses) = (Arc::clone(&pool), Arc::clone(&uses));
            thread::spawn(move || {
                let before = uses.load(Ordering::SeqCst);
                let mut found = block(0);
                if pool.files.read_copy(COPIED, SLOTS[1], &mut found) && number(&found) == 1 && before == 1 {
                    let still = || uses.load(Ordering::SeqCst) == before;
                    let why = Error::damaged("a place", "it was ordered");
                    pool.files.heal(COPIED, SLOTS[1], &found, &why, still);
                }
            })
        };
        uses.store(2, Ordering::SeqCst);
        pool.files.begin(COPIED, SegmentKind::Node);
        pool.write(COPIED, SLOTS[1], LAST);
        reader.join().expect("a reader");
        assert_eq!(pool.disk.content(&file_name(COPIED)).expect("it is there")[&258], LAST);
        pool.compare();
    });
}
