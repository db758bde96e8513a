//! The log: records are built at the tail, written by one leader for all that wait, and read back by replay.

pub(crate) mod replay;
pub(crate) mod tail;
mod turn;
pub(crate) mod writer;
