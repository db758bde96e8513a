//! The store beside its model, driven by bytes.

/// Does what the bytes say, see `icecore_sim::script`.
pub fn store(data: &[u8]) {
    if let Err(text) = icecore_sim::script::play(data) {
        panic!("{text}");
    }
}
