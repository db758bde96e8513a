//! Icecore: a store that never overwrites, so that a snapshot is a remembered log position.

pub mod error;
#[doc(hidden)]
pub mod liveness;
#[doc(hidden)]
pub mod location;
pub mod names;
#[doc(hidden)]
pub mod namespace;
pub mod storage;
#[doc(hidden)]
pub mod tree;
pub mod units;

pub use error::{Error, FileFault, Result};
