//! What the programs of icecore have in common: their command line, what they print, and how they end.

mod allocator;
pub mod environment;
pub mod exit;
pub mod format;
pub mod generate;
pub mod interrupt;
pub mod output;
pub mod progress;
pub mod usage;
