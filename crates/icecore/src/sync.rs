//! What threads meet by, under one roof: `tests/meetings.rs` puts the tools of a checker in their place, which tries one
//! order of steps after the other.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::thread;
