//! In place of the store's counters: no test reads them here.

pub use icecore::Statistics;

#[derive(Default)]
pub struct Counter;

impl Counter {
    pub fn add(&self, _: u64) {}
    pub fn get(&self) -> u64 {
        0
    }
}
