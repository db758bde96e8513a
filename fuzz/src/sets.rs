//! The sections of the ledger that have encodings of their own.

use icecore::inside::{ChunkedMap, DecodeLimits, HistoryChanges, MapChanges, MapLimits, StoredHistory};
use icecore::units::{LogAddress, Marks};

/// Changes of the history and of the location map, as sections of the ledger have them.
pub fn sets(data: &[u8]) {
    // Little memory, so that a claim beyond it is noticed.
    let limits = || DecodeLimits { chunks: 1 << 12, ..DecodeLimits::new(Marks([LogAddress(1 << 40); 3])) };
    if let Ok(found) = HistoryChanges::decode(data, &mut limits()) {
        assert_eq!(HistoryChanges::decode(&found.encode(), &mut limits()).expect("its own bytes"), found);
        let mut history = StoredHistory::new();
        if history.apply_changes(found).is_ok() {
            let _ = history.verify();
        }
    }
    if let Ok(found) = MapChanges::decode(data, &mut limits()) {
        assert_eq!(MapChanges::decode(&found.encode(), &mut limits()).expect("its own bytes"), found);
        let mut map = ChunkedMap::new(MapLimits::of(0));
        if map.apply_changes(&found).is_ok() {
            let full = map.full_changes();
            assert_eq!(MapChanges::decode(&full.encode(), &mut limits()).expect("its own bytes"), full);
        }
    }
}
