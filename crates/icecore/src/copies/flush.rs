//! Flushing copies: before a superblock relies on them, and never for a commit.

use super::{Copies, CopySettings};
use crate::error::Error;
use crate::sync::Ordering;
use crate::units::SegmentId;

impl Copies {
    /// Makes the copies written so far durable, and says what the next superblock has to say about them.
    /// `together`: in threads of their own, so that it takes as long as the longest of them.
    pub(crate) fn flush(&self, together: bool) -> CopySettings {
        // Who finds nothing to flush may not go on before those who have taken it are done.
        let _flushing = self.flushing.lock();
        // What could not be flushed is removed, and the directory flushed then.
        while self.is_on.load(Ordering::Acquire) {
            let (segments, directory) = {
                let mut inner = self.inner.lock();
                (std::mem::take(&mut inner.unsynced), std::mem::take(&mut inner.directory_changed))
            };
            if segments.is_empty() && !directory {
                break;
            }
            let segments: Vec<SegmentId> = segments.into_iter().collect();
            self.flush_files(&segments, together);
            if directory {
                self.flush_directory();
            }
        }
        self.inner.lock().settings.clone()
    }

    fn flush_files(&self, segments: &[SegmentId], together: bool) {
        if let (true, [first, rest @ ..]) = (together, segments) {
            std::thread::scope(|scope| {
                for segment in rest {
                    let spawned =
                        std::thread::Builder::new().spawn_scoped(scope, || self.flush_file(*segment));
                    if spawned.is_err() {
                        self.flush_file(*segment);
                    }
                }
                self.flush_file(*first);
            });
        } else {
            segments.iter().for_each(|segment| self.flush_file(*segment));
        }
    }

    fn flush_file(&self, segment: SegmentId) {
        let Some(file) = self.file(segment) else { return };
        self.counters.flushes.add(1);
        if let Err(error) = file.and_then(|file| file.sync()) {
            self.contain(segment, "flush", error);
        }
    }

    fn flush_directory(&self) {
        let Some(place) = self.inner.lock().place.clone() else { return };
        self.counters.flushes.add(1);
        if let Err(error) = place.storage.sync_directory() {
            let why = format!("flush the folder of the copies: {error}");
            self.incidents.note(&Error::io("flush", place.storage.describe(), error));
            self.change(|inner| inner.fall_behind(why));
        }
    }
}
