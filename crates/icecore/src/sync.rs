//! What threads meet by, under one roof: `tests/meetings` puts the tools of a checker in their place, which
//! tries one order of steps after the other.

pub(crate) use crate::condvar::Condvar;
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::thread;
