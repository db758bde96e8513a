//! Memory that starts on a block border, as direct I/O demands.

use crate::units::BLOCK_BYTES;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A fixed number of bytes, zeroed at first, whose first byte lies on a multiple of [`BLOCK_BYTES`].
pub struct AlignedBuffer {
    pointer: NonNull<u8>,
    length: usize,
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
        // SAFETY: the layout has a size above zero, asserted above.
        let pointer = unsafe { alloc_zeroed(Self::layout(length)) };
        let Some(pointer) = NonNull::new(pointer) else {
            handle_alloc_error(Self::layout(length));
        };
        Self { pointer, length }
    }

    /// A buffer with these bytes, whose number must be a multiple of [`BLOCK_BYTES`] above zero.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn copied(bytes: &[u8]) -> Self {
        let length = bytes.len();
        assert!(length > 0 && length.is_multiple_of(BLOCK_BYTES));
        // SAFETY: the layout has a size above zero, asserted above.
        let pointer = unsafe { alloc(Self::layout(length)) };
        let Some(pointer) = NonNull::new(pointer) else {
            handle_alloc_error(Self::layout(length));
        };
        // SAFETY: both are `length` bytes long, and the new memory overlaps with nothing.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.as_ptr(), length) };
        Self { pointer, length }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, BLOCK_BYTES).expect("length fits an allocation")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` or `copied` with this very layout, and dropped once.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.length)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes are allocated and initialised, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}
