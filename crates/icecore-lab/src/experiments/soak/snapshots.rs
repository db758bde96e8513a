//! Snapshots that come and go while others look at them.

use super::pieces::{self, PIECE_BYTES};
use super::process::Turn;
use super::sample::Deeds;
use super::{branches, database};
use crate::error::{Error, Result};
use crate::sqlite;
use icecore::{DestroyTarget, Pool, View};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Both are taken in one step.
const DATASETS: [&str; 2] = [database::DATASET, "soak/plain"];
const PACE: Duration = Duration::from_millis(250);
/// So many are taken in a cycle at least, however short it is, and half of them kept.
const TAKEN_MIN: u32 = 40;
/// So many are kept at most: some twenty seconds of them.
const KEPT_MAX: usize = 80;
/// Snapshots from one hold to the next, and until it is taken off.
const HOLD_EVERY: u64 = 20;
const HELD: u64 = 3;
const TAG: &str = "soak";
const READ_PACE: Duration = Duration::from_millis(300);
const READ_PIECES: u64 = 64;
/// The longest that a reader keeps a snapshot open.
const READ_MS_MAX: u64 = 2000;
/// Of so many readings, one lets SQLite verify the whole database.
const WHOLE_EVERY: u64 = 8;

/// The short names of snapshots that no thread is about to destroy, oldest first.
#[derive(Default)]
pub(super) struct Rotation(Mutex<Vec<String>>);

impl Rotation {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no thread panics with it")
    }

    pub(super) fn newest(&self) -> Option<String> {
        self.lock().last().cloned()
    }
}

/// Takes them, holds some, and destroys old ones: the oldest, a range, or every second of the older half.
pub(super) fn take(turn: &mut Turn<'_>) -> Result<Deeds> {
    let mut deeds = Deeds::default();
    let (mut held, mut number) = (None, 0);
    let pace = PACE.min(turn.remaining() / TAKEN_MIN);
    let expected = (turn.remaining().as_secs_f64() / pace.as_secs_f64()) as usize;
    let kept = KEPT_MAX.min(expected / 2);
    while turn.goes_on(pace) {
        let name = format!("soak-{}-{number:05}", turn.cycle);
        let both = DATASETS.map(|dataset| format!("{dataset}@{name}"));
        turn.pool.snapshot(&both, false, &[])?;
        deeds.snapshots_taken += DATASETS.len() as u64;
        turn.rotation.lock().push(name);
        if number % HOLD_EVERY == 0 {
            held = Some(hold(turn.pool, &both[1])?);
        } else if number % HOLD_EVERY == HELD
            && let Some(snapshot) = held.take()
        {
            turn.pool.release(TAG, &snapshot)?;
        }
        deeds.snapshots_destroyed += prune(turn, kept)?;
        number += 1;
    }
    if let Some(snapshot) = held {
        turn.pool.release(TAG, &snapshot)?;
    }
    Ok(deeds)
}

/// Puts a hold on a snapshot, which cannot be destroyed then.
fn hold(pool: &Pool, snapshot: &str) -> Result<String> {
    pool.hold(TAG, snapshot)?;
    match pool.destroy(&DestroyTarget::Snapshot(snapshot.to_owned())) {
        Err(icecore::Error::Busy { .. }) => Ok(snapshot.to_owned()),
        Err(error) => Err(error.into()),
        Ok(_) => {
            let detail = "it had a hold, and was destroyed".to_owned();
            Err(Error::Mismatch { what: snapshot.to_owned(), detail })
        }
    }
}

/// Destroys old ones if there are more than are to be kept; answers how many. Those that may have a hold are
/// among the newest.
fn prune(turn: &mut Turn<'_>, kept: usize) -> Result<u64> {
    let choice = turn.random.below(3);
    let doomed: Vec<String> = {
        let mut names = turn.rotation.lock();
        if names.len() <= kept {
            return Ok(0);
        }
        match choice {
            0 => names.drain(..1).collect(),
            1 => names.drain(..kept / 4).collect(),
            _ => {
                let half = names.len() / 2;
                let mut index = 0..names.len();
                let every_second =
                    |_: &mut String| index.next().is_some_and(|index| index < half && index % 2 == 0);
                names.extract_if(.., every_second).collect()
            }
        }
    };
    let (Some(first), Some(last)) = (doomed.first(), doomed.last()) else { return Ok(0) };
    let count = (doomed.len() * DATASETS.len()) as u64;
    if choice == 2 {
        let of = DATASETS.map(|dataset| (dataset.to_owned(), doomed.clone()));
        branches::destroyed(turn.pool, DestroyTarget::Snapshots { of: of.to_vec() })?;
        return Ok(count);
    }
    for dataset in DATASETS {
        let (dataset, first, last) = (dataset.to_owned(), first.clone(), last.clone());
        branches::destroyed(turn.pool, DestroyTarget::Range { dataset, first, last })?;
    }
    Ok(count)
}

/// Opens snapshots, of the database with SQLite and of the large file as views. Keeps them open for a while,
/// whether they are destroyed meanwhile or not.
pub(super) fn read(turn: &mut Turn<'_>) -> Result<Deeds> {
    let mut deeds = Deeds::default();
    while turn.goes_on(READ_PACE) {
        let opened = {
            // As long as this is locked, what is in it is there.
            let names = turn.rotation.lock();
            if names.is_empty() {
                continue;
            }
            let name = &names[turn.random.below(names.len() as u64) as usize];
            let connection = sqlite::open(&database::uri(turn.prefix, Some(name)), true)?;
            // The file is opened with the first statement.
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            (connection, turn.pool.view(&format!("{}@{name}", DATASETS[1]))?)
        };
        let (connection, view) = opened;
        let seed = turn.random.next_u64();
        let before = checksum(&view, seed)?;
        database::check(&connection, deeds.views.is_multiple_of(WHOLE_EVERY))?;
        pause(turn);
        database::check(&connection, false)?;
        if checksum(&view, seed)? != before {
            let detail = "it changed while it was open".to_owned();
            return Err(Error::Mismatch { what: view.name().to_owned(), detail });
        }
        deeds.views += 1;
    }
    Ok(deeds)
}

fn pause(turn: &mut Turn<'_>) {
    for _ in 0..turn.random.below(READ_MS_MAX) / 50 {
        if turn.is_over() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A sum over some of the pieces, the same ones for the same seed.
fn checksum(view: &View, seed: u64) -> Result<u64> {
    let inode = pieces::find(view)?;
    let pieces = view.attributes(inode)?.size / PIECE_BYTES as u64;
    let mut random = crate::random::Random::new(seed);
    let mut buffer = vec![0; PIECE_BYTES];
    let mut sum = 0_u64;
    for _ in 0..READ_PIECES {
        view.read(inode, random.below(pieces) * PIECE_BYTES as u64, &mut buffer)?;
        for word in buffer.chunks_exact(8) {
            let word = word.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
            sum = sum.rotate_left(5) ^ word;
        }
    }
    Ok(sum)
}
