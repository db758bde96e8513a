//! What fuzz targets do with bytes. `cargo test` of the product includes these files by path and runs them over the corpus.

pub mod control;
pub mod parsers;
pub mod sets;
pub mod sql;
pub mod store;
