//! A storage that takes its time to flush, as disks do that have no memory with a battery.

use crate::passing::{PassingStorage, Watch};
use icecore::storage::Storage;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Another storage, of which a flush takes at least so long. Nothing else is changed: what a flush has to do
/// for another goes on meanwhile, and so do reads and writes.
pub type SlowStorage<S> = PassingStorage<S, Slowness>;

/// How long a flush takes at least.
pub struct Slowness(Duration);

impl<S: Storage + ?Sized> SlowStorage<S> {
    /// Has each flush of `inner` take `flush` at least.
    pub fn new(inner: Arc<S>, flush: Duration) -> Self {
        Self::watched(inner, Arc::new(Slowness(flush)))
    }
}

impl Slowness {
    fn slowly(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begin = Instant::now();
        let outcome = flush();
        thread::sleep(self.0.saturating_sub(begin.elapsed()));
        outcome
    }
}

impl Watch for Slowness {
    fn sync(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.slowly(flush)
    }

    fn directory_sync(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.slowly(flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::storage::{Kind, RealStorage};

    #[test]
    fn flushes_take_their_time_and_everything_is_passed_on() {
        const FLUSH: Duration = Duration::from_millis(20);
        let folder = tempfile::tempdir().unwrap();
        let storage = SlowStorage::new(Arc::new(RealStorage::new(folder.path()).unwrap()), FLUSH);
        let file = storage.create("a", 8192).unwrap();
        file.write_at(&[(Kind::Data, &[1; 100])], 7).unwrap();
        file.write_at(&[(Kind::Data, &[2; 100])], 107).unwrap();
        let begin = Instant::now();
        file.sync().unwrap();
        assert!(begin.elapsed() >= FLUSH);
        let begin = Instant::now();
        storage.sync_directory().unwrap();
        assert!(begin.elapsed() >= FLUSH);
        let mut buffer = [0; 2];
        storage.open("a", false).unwrap().read_at(&mut buffer, 106).unwrap();
        assert_eq!((buffer, file.length().unwrap()), ([1, 2], 8192));
        assert_eq!(storage.list().unwrap(), [("a".to_owned(), 8192)]);
        assert_eq!(storage.directory(), Some(folder.path().canonicalize().unwrap()));
    }
}
