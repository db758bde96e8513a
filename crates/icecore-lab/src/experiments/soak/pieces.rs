//! A file made of pieces, and what has to be in each of them.

use crate::error::{Error, Result};
use crate::random::Random;
use icecore::units::InodeNumber;
use icecore::{Creation, Dataset, Pool, View};

pub(super) const PIECE_BYTES: usize = 16 << 10;
const FILE: &[u8] = b"pieces";
/// Pieces that are written between two flushes while the file is filled.
const FILL: usize = 512;

/// The file of one dataset, and of each of its pieces the seed from which its content follows.
#[derive(Clone)]
pub(super) struct Pieces {
    pub dataset: String,
    tags: Vec<u64>,
}

impl Pieces {
    /// Makes the dataset with a file of so many bytes, each piece written once.
    pub(super) fn create(pool: &Pool, dataset: &str, bytes: u64, random: &mut Random) -> Result<Self> {
        pool.create_dataset(dataset, true, &[])?;
        let handle = pool.dataset(dataset)?;
        handle.create(InodeNumber::ROOT, FILE, &Creation::file())?;
        let count = usize::try_from(bytes).unwrap_or(usize::MAX) / PIECE_BYTES;
        let mut pieces = Self { dataset: dataset.to_owned(), tags: vec![0; count] };
        let open = Open::of(pool, dataset)?;
        for piece in 0..count {
            pieces.write(&open, piece, random.next_u64())?;
            if piece % FILL == FILL - 1 {
                open.dataset.sync()?;
            }
        }
        open.dataset.sync()?;
        Ok(pieces)
    }

    /// The same pieces, elsewhere: in a clone.
    pub(super) fn in_dataset(&self, dataset: &str) -> Self {
        Self { dataset: dataset.to_owned(), tags: self.tags.clone() }
    }

    fn write(&mut self, open: &Open, piece: usize, tag: u64) -> Result<()> {
        open.dataset.write(open.inode, (piece * PIECE_BYTES) as u64, &content(tag))?;
        self.tags[piece] = tag;
        Ok(())
    }

    /// Overwrites so many pieces at random, durably: one by one, or all of them in one step.
    pub(super) fn overwrite(
        &mut self,
        pool: &Pool,
        count: usize,
        atomic: bool,
        random: &mut Random,
    ) -> Result<()> {
        let open = Open::of(pool, &self.dataset)?;
        if !atomic {
            for _ in 0..count {
                let piece = random.below(self.tags.len() as u64) as usize;
                self.write(&open, piece, random.next_u64())?;
            }
            return Ok(open.dataset.sync()?);
        }
        let mut group = open.dataset.begin()?;
        let mut written = Vec::new();
        for _ in 0..count {
            let (piece, tag) = (random.below(self.tags.len() as u64) as usize, random.next_u64());
            group.write(open.inode, (piece * PIECE_BYTES) as u64, &content(tag))?;
            written.push((piece, tag));
        }
        let point = pool.commit(vec![group])?;
        // Within a group, too, what was written last counts.
        for (piece, tag) in written {
            self.tags[piece] = tag;
        }
        Ok(pool.make_durable(point)?)
    }

    /// Compares every piece with what it has to be.
    pub(super) fn verify(&self, pool: &Pool) -> Result<()> {
        let open = Open::of(pool, &self.dataset)?;
        let view = open.dataset.view()?;
        let mut found = vec![0; PIECE_BYTES];
        for (piece, tag) in self.tags.iter().enumerate() {
            let length = view.read(open.inode, (piece * PIECE_BYTES) as u64, &mut found)?;
            if length != PIECE_BYTES || found != content(*tag) {
                let what = format!("piece {piece} of {}", self.dataset);
                return Err(Error::Mismatch { what, detail: "it is not what was written".to_owned() });
            }
        }
        Ok(())
    }
}

/// A dataset that is open, and the number of the file in it.
struct Open {
    dataset: Dataset,
    inode: InodeNumber,
}

impl Open {
    fn of(pool: &Pool, dataset: &str) -> Result<Self> {
        let handle = pool.dataset(dataset)?;
        let inode = find(&handle.view()?)?;
        Ok(Self { dataset: handle, inode })
    }
}

/// The file in a version.
pub(super) fn find(view: &View) -> Result<InodeNumber> {
    let entry = view.lookup(InodeNumber::ROOT, FILE)?;
    Ok(entry.ok_or(icecore::Error::File(icecore::FileFault::NotFound))?.inode)
}

fn content(tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; PIECE_BYTES];
    Random::new(tag).fill(&mut bytes);
    bytes
}
