//! Room on the medium for copies.

use super::{File, Place};
use crate::format::segment::Geometry;
use crate::storage::StorageFile;
use std::io;
use std::sync::Arc;

/// With less free on the medium a copy has room for all that can be written to it from the beginning.
const PLENTY_BYTES: u64 = 1 << 30;

/// Makes the file of a copy of a segment that begins, in place of what may have the name. Most are of
/// segments for metadata, of which a pool has three that are hardly begun: where the medium has much room,
/// a copy takes up what is written to it.
pub(super) fn begin(place: &Place, name: &str, geometry: Geometry) -> io::Result<File> {
    if place.storage.space().is_ok_and(|space| space.free >= PLENTY_BYTES) {
        replace(place, name, || place.storage.create_sparse(name, geometry.bytes))
    } else {
        create(place, name, geometry)
    }
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
