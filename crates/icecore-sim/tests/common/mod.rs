//! What all histories share.

#![allow(unused_imports, reason = "each test file uses a part of this")]

pub use icecore_sim::cases::{Told, cases, for_each_seed, is_long, must, sample};
