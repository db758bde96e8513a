//! The bytes of one file: what is on the medium, what programs see, and the writes that lie between.

use super::survival::Survival;
use crate::pages::{PAGE_BYTES, Page, Pages, pieces};
use crate::random::Random;
use std::sync::Arc;

/// What a new file holds before anything is written to it.
#[derive(Clone)]
pub(super) enum Base {
    /// Zeros.
    Zero,
    /// Noise, by a seed.
    Noise(u64),
    /// What a removed file held.
    Former(Pages),
}

impl Base {
    fn page(&self, number: u64) -> Arc<Page> {
        match self {
            Self::Zero => Arc::new([0; PAGE_BYTES]),
            Self::Noise(seed) => {
                let mut page = [0; PAGE_BYTES];
                Random::new(seed.wrapping_add(number)).fill(&mut page);
                Arc::new(page)
            }
            Self::Former(pages) => pages.get(number).map_or_else(|| Self::Zero.page(number), Arc::clone),
        }
    }
}

/// A write that the medium may not have yet.
#[derive(Clone)]
struct Pending {
    order: u64,
    offset: u64,
    bytes: Arc<[u8]>,
}

/// One file.
#[derive(Clone)]
pub(super) struct Image {
    base: Base,
    length: u64,
    durable_length: u64,
    /// Order of the I/O that first made the two lengths differ.
    length_order: u64,
    durable: Pages,
    /// Pages that look different from the durable ones.
    cached: Pages,
    pending: Vec<Pending>,
    /// A flush failed: pages in the cache hold bytes that are no longer waiting to be written.
    lossy: bool,
}

impl Image {
    /// A file just made. Its length is durable at once, or after the first flush.
    pub(super) fn new(order: u64, length: u64, base: Base, length_needs_sync: bool) -> Self {
        Self {
            base,
            length,
            durable_length: if length_needs_sync { 0 } else { length },
            length_order: order,
            durable: Pages::default(),
            cached: Pages::default(),
            pending: Vec::new(),
            lossy: false,
        }
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that wait to be written.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending.iter().map(|write| write.bytes.len() as u64).sum()
    }

    /// Order of the oldest I/O on the file that is not durable.
    pub(super) fn first_pending(&self) -> Option<u64> {
        let length = (self.durable_length != self.length).then_some(self.length_order);
        self.pending.first().map(|write| write.order).into_iter().chain(length).min()
    }

    /// What the medium holds, for the files to come.
    pub(super) fn into_durable(self) -> Pages {
        self.durable
    }

    /// Fills `buffer`, which must lie within the file.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) {
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.start..piece.start + piece.length];
            let page = match self.cached.get(piece.page).or_else(|| self.durable.get(piece.page)) {
                Some(page) => Arc::clone(page),
                None if matches!(self.base, Base::Zero) => {
                    target.fill(0);
                    continue;
                }
                None => self.base.page(piece.page),
            };
            target.copy_from_slice(&page[piece.within..piece.within + piece.length]);
        }
    }

    /// Writes into the cache; the medium follows.
    pub(super) fn write(&mut self, order: u64, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (durable, base) = (&self.durable, &self.base);
        for piece in pieces(offset, bytes.len()) {
            let below = || durable.get(piece.page).map_or_else(|| base.page(piece.page), Arc::clone);
            let page = self.cached.get_mut(piece.page, below);
            page[piece.within..piece.within + piece.length]
                .copy_from_slice(&bytes[piece.start..piece.start + piece.length]);
        }
        self.pending.push(Pending { order, offset, bytes: bytes.into() });
        let end = offset + bytes.len() as u64;
        if end > self.length {
            if self.length == self.durable_length {
                self.length_order = order;
            }
            self.length = end;
        }
    }

    /// Makes all writes durable.
    pub(super) fn sync(&mut self) {
        self.durable_length = self.length;
        if self.lossy {
            for write in std::mem::take(&mut self.pending) {
                self.write_durable(write.offset, &write.bytes);
            }
        } else {
            // The cache is the medium plus what waits, so its pages can be taken as they are.
            self.pending.clear();
            self.durable.append(&mut self.cached);
        }
    }

    /// A flush that fails. Nothing waits any longer; what did not survive is still seen until the cache drops
    /// it, which may be at once.
    pub(super) fn fail_sync(&mut self, survival: &Survival, random: &mut Random) {
        self.keep_survivors(survival, random);
        if random.chance(50) {
            self.cached.clear();
            self.lossy = false;
        } else {
            self.lossy = true;
        }
    }

    /// The power fails: only the medium is left.
    pub(super) fn crash(&mut self, survival: &Survival, random: &mut Random) {
        self.keep_survivors(survival, random);
        self.cached.clear();
        self.lossy = false;
        self.length = self.durable_length;
        // What lies behind the end must not come back when the file grows again.
        self.durable.remove_range(self.length.div_ceil(PAGE_BYTES as u64), u64::MAX);
    }

    fn keep_survivors(&mut self, survival: &Survival, random: &mut Random) {
        if self.durable_length != self.length && survival.keeps(self.length_order, random) {
            self.durable_length = self.length;
        }
        for write in std::mem::take(&mut self.pending) {
            for (start, end) in survival.of_write(write.order, write.offset, write.bytes.len(), random) {
                self.write_durable(write.offset + start as u64, &write.bytes[start..end]);
            }
        }
    }

    fn write_durable(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let page = self.durable.get_mut(piece.page, || self.base.page(piece.page));
            page[piece.within..piece.within + piece.length]
                .copy_from_slice(&bytes[piece.start..piece.start + piece.length]);
        }
    }

    /// Changes bytes on the medium and in the cache alike.
    pub(super) fn damage(&mut self, offset: u64, length: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; length];
        self.read(&mut bytes, offset);
        change(&mut bytes);
        self.write_durable(offset, &bytes);
        for piece in pieces(offset, length) {
            if self.cached.get(piece.page).is_some() {
                let page = self.cached.get_mut(piece.page, || self.base.page(piece.page));
                page[piece.within..piece.within + piece.length]
                    .copy_from_slice(&bytes[piece.start..piece.start + piece.length]);
            }
        }
    }

    /// Cuts the file, on the medium and in the cache alike.
    pub(super) fn truncate(&mut self, length: u64) {
        self.length = self.length.min(length);
        self.durable_length = self.durable_length.min(length);
        let first_gone = length.div_ceil(PAGE_BYTES as u64);
        self.durable.remove_range(first_gone, u64::MAX);
        self.cached.remove_range(first_gone, u64::MAX);
        self.pending.retain(|write| write.offset + write.bytes.len() as u64 <= length);
    }
}
