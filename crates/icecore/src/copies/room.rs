//! Room on the medium for copies.
//!
//! Most copies are of segments for metadata, of which a pool has three that are hardly begun: where the
//! medium has much room, a copy takes up what is written to it. Before the medium runs short, the rest is
//! allocated, so that a full medium takes no copy away.

use super::{Copies, File, Place};
use crate::format::segment::Geometry;
use crate::storage::StorageFile;
use crate::units::SegmentId;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// With less free on the medium copies have room for all that can be written to them. Between two looks at
/// the medium (a second, or a new segment) others hardly take so much.
const PLENTY_BYTES: u64 = 1 << 30;

impl Copies {
    /// Allocates the rest of copies that are sparse, if the medium has no plenty of room any more. What
    /// cannot be allocated stays as it is: it is tried again the next time.
    pub(crate) fn reserve_room(&self) {
        let (place, sparse) = {
            let inner = self.inner.lock();
            let Some(place) = inner.place.clone().filter(|_| !inner.sparse.is_empty()) else { return };
            (place, inner.sparse.clone())
        };
        if has_plenty(&place) {
            return;
        }
        let allocated = |segment: &SegmentId| {
            self.file(*segment)
                .is_none_or(|file| file.and_then(|file| file.allocate(self.geometry.bytes)).is_ok())
        };
        let done: BTreeSet<SegmentId> = sparse.into_iter().filter(allocated).collect();
        self.inner.lock().sparse.retain(|segment| !done.contains(segment));
    }
}

fn has_plenty(place: &Place) -> bool {
    place.storage.space().is_ok_and(|space| space.free >= PLENTY_BYTES)
}

/// Makes the file of a copy of a segment that begins, in place of what may have the name; says whether it is
/// sparse.
pub(super) fn begin(place: &Place, name: &str, geometry: Geometry) -> io::Result<(File, bool)> {
    let is_sparse = has_plenty(place);
    let file = if is_sparse {
        replace(place, name, || place.storage.create_sparse(name, geometry.bytes))
    } else {
        create(place, name, geometry)
    };
    file.map(|file| (file, is_sparse))
}

/// Makes the file of a copy that is written whole, in place of what may have the name: a medium that cannot
/// hold it says so at once.
pub(super) fn create(place: &Place, name: &str, geometry: Geometry) -> io::Result<File> {
    replace(place, name, || place.storage.create(name, geometry.bytes))
}

fn replace(
    place: &Place,
    name: &str,
    create: impl Fn() -> io::Result<Box<dyn StorageFile>>,
) -> io::Result<File> {
    let made = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            place.storage.remove(name).and_then(|()| create())
        }
        made => made,
    };
    made.map(Arc::from)
}
