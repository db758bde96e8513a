//! Memory that starts on a block border, as direct I/O demands.

use crate::units::BLOCK_BYTES;
use parking_lot::{Mutex, MutexGuard};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes whose first one lies on a multiple of [`BLOCK_BYTES`]. Their number is one, too.
pub struct AlignedBuffer {
    pointer: NonNull<u8>,
    /// Bytes that hold something.
    length: usize,
    /// Bytes allocated.
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone, as a `Box<[u8]>` would.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A zeroed buffer of `length` bytes; `length` must be a multiple of [`BLOCK_BYTES`] above zero.
    ///
    /// # Panics
    /// If `length` is not such a number.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        assert!(length > 0 && length.is_multiple_of(BLOCK_BYTES));
        if let Some(mut spare) = spare(length) {
            // SAFETY: so many bytes are allocated, and nothing else refers to them.
            unsafe { std::ptr::write_bytes(spare.pointer.as_ptr(), 0, length) };
            spare.length = length;
            return spare;
        }
        // SAFETY: the layout has a size above zero, asserted above.
        let pointer = unsafe { alloc_zeroed(Self::layout(length)) };
        Self::of(pointer, length, length)
    }

    /// An empty buffer that takes `capacity` bytes; `capacity` must be a multiple of [`BLOCK_BYTES`] above
    /// zero.
    ///
    /// # Panics
    /// If `capacity` is not such a number.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(capacity > 0 && capacity.is_multiple_of(BLOCK_BYTES));
        if let Some(mut spare) = spare(capacity) {
            spare.length = 0;
            return spare;
        }
        // SAFETY: the layout has a size above zero, asserted above.
        let pointer = unsafe { alloc(Self::layout(capacity)) };
        Self::of(pointer, 0, capacity)
    }

    /// A buffer with these bytes, whose number must be a multiple of [`BLOCK_BYTES`] above zero.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn copied(bytes: &[u8]) -> Self {
        let mut buffer = Self::with_capacity(bytes.len());
        buffer.extend(bytes);
        buffer
    }

    /// A buffer of at least `length` bytes above zero, whatever they are: for what fills it before anything
    /// is read from it.
    pub(crate) fn scratch(length: usize) -> Self {
        let kept = KEPT.iter().map(|(bytes, _)| *bytes).find(|bytes| *bytes >= length);
        let capacity = kept.unwrap_or_else(|| length.next_multiple_of(BLOCK_BYTES));
        let Some(mut spare) = spare(capacity) else { return Self::zeroed(capacity) };
        // SAFETY: `capacity` bytes are allocated, the first `length` of them are initialised already, and
        // nothing else refers to them.
        unsafe {
            std::ptr::write_bytes(spare.pointer.as_ptr().add(spare.length), 0, capacity - spare.length)
        };
        spare.length = capacity;
        spare
    }

    /// Bytes that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adds bytes at the end; their number must be a multiple of [`BLOCK_BYTES`].
    ///
    /// # Panics
    /// If it is not, or there is no room for them.
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(BLOCK_BYTES) && bytes.len() <= self.capacity - self.length);
        // SAFETY: so many bytes are allocated behind the first `length`, asserted above, and as `self` is
        // borrowed exclusively, `bytes` lie elsewhere.
        unsafe {
            let end = self.pointer.as_ptr().add(self.length);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
        }
        self.length += bytes.len();
    }

    fn of(pointer: *mut u8, length: usize, capacity: usize) -> Self {
        let Some(pointer) = NonNull::new(pointer) else {
            handle_alloc_error(Self::layout(capacity));
        };
        Self { pointer, length, capacity }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, BLOCK_BYTES).expect("length fits an allocation")
    }
}

/// Buffers of these sizes are kept for their next use, so many of each at most: the operating system takes
/// longer to provide the pages of a fresh one than it takes to fill it. Of the long ones as many as a
/// transaction of medium size fills: they come back all at once, when the next one takes their place among
/// what was written last.
const KEPT: [(usize, usize); 3] = [(4 << 10, 64), (16 << 10, 64), (1 << 20, 32)];

/// Only ever tried: in a forked child they may be locked for good.
static SPARE: [Mutex<Vec<AlignedBuffer>>; KEPT.len()] = [const { Mutex::new(Vec::new()) }; KEPT.len()];

/// Where a buffer of this size waits for its next use, if there is such a place, and how many may.
fn shelf(capacity: usize) -> Option<(MutexGuard<'static, Vec<AlignedBuffer>>, usize)> {
    let index = KEPT.iter().position(|(bytes, _)| *bytes == capacity)?;
    SPARE[index].try_lock().map(|shelf| (shelf, KEPT[index].1))
}

fn spare(capacity: usize) -> Option<AlignedBuffer> {
    shelf(capacity)?.0.pop()
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some((mut shelf, most)) = shelf(self.capacity)
            && shelf.len() < most
        {
            // The memory has a new owner; nothing here touches it any more.
            shelf.push(Self { ..*self });
            return;
        }
        // SAFETY: allocated in `zeroed` or `with_capacity` with this very layout, and dropped once.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `length` bytes are allocated and initialised, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}
