//! Whether this process is still the one that opened a pool, or a fork of it.
//!
//! A page that the kernel wipes in forked children answers with one load; asking for the process number
//! would cost a system call several times in every transaction. Where the kernel cannot do that, the process
//! number is asked for after all.

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE_BYTES: usize = 4096;

/// A mark that only the process that made it finds again.
#[derive(Clone, Copy)]
pub struct ProcessMark {
    /// Points into a page that is zero in a forked child; null where the kernel does not know how.
    wiped: *const AtomicU32,
    process: u32,
}

// SAFETY: the page is never unmapped, and only read and written as an atomic.
unsafe impl Send for ProcessMark {}
// SAFETY: as above.
unsafe impl Sync for ProcessMark {}

impl ProcessMark {
    /// The mark of this process. Its page is never given back: it lives as long as the process.
    #[must_use]
    pub fn current() -> Self {
        /// Only ever tried: in a forked child it may be locked for good.
        static CURRENT: Mutex<Option<ProcessMark>> = Mutex::new(None);
        let mut current = CURRENT.try_lock();
        if let Some(known) = current.as_deref().and_then(Option::as_ref)
            && known.is_here()
        {
            return *known;
        }
        let fresh = Self { wiped: wiped_page().unwrap_or(ptr::null()), process: std::process::id() };
        if let Some(current) = current.as_deref_mut() {
            *current = Some(fresh);
        }
        fresh
    }

    /// Whether this is the process that made the mark.
    #[must_use]
    pub fn is_here(&self) -> bool {
        if self.wiped.is_null() {
            return std::process::id() == self.process;
        }
        // SAFETY: not null means a page that stays mapped and is aligned.
        unsafe { (*self.wiped).load(Ordering::Relaxed) == self.process }
    }

    /// The process that made the mark.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }
}

/// A page that holds this process's number and reads as zero in a fork.
fn wiped_page() -> Option<*const AtomicU32> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
    let page = unsafe {
        mmap_anonymous(ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: advice about the page just mapped.
    if unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.is_err() {
        return None;
    }
    let word = page.cast::<AtomicU32>();
    // SAFETY: inside the page, aligned, and no other thread knows it yet.
    unsafe { (*word).store(std::process::id(), Ordering::Relaxed) };
    Some(word)
}
