//! A real folder for what is kept beside a pool and not on its medium: the place of a scrub, and what went
//! wrong.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Folders of this process so far.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A folder that is there as long as its life.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes one; nothing if that cannot be: a pool does without.
    pub(super) fn new() -> Option<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("icecore-life-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).ok().map(|()| Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
