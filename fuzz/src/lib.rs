//! What fuzz targets do with bytes. `cargo test` of the product includes these files by path and runs them over the corpus.

pub mod arrival;
pub mod control;
pub mod parsers;
pub mod pool;
pub mod sets;
pub mod simulated;
pub mod sql;
pub mod store;
