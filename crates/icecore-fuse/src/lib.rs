//! A mount of icecore: datasets as folders that any program can use.
//!
//! Layers, bottom up: [`protocol`] has the requests and replies of a file system, in types of their own;
//! `trees` numbers what is visible (datasets, snapshots, the folders that list them) and `handles` what is
//! open; `lingering` has files that were replaced a moment ago; [`filesystem`] answers requests from the
//! store; `invalidate` makes the kernel forget what other doors changed; `transport` is the only module
//! that knows how requests travel (fuser); [`mounting`] talks to mount(2); [`serve()`] is the life of one
//! mount.

mod errno;
pub mod filesystem;
mod handles;
mod invalidate;
mod lingering;
mod listed;
pub mod mounting;
pub mod options;
pub mod protocol;
mod readahead;
pub mod serve;
mod sync;
mod transport;
mod trees;

pub use options::MountOptions;
pub use serve::{MountError, serve};

/// Writes a line to standard error, which is the log of a mount.
pub(crate) fn log(line: &str) {
    use std::io::Write as _;
    // A log that cannot be written must not stop the file system.
    let _ = writeln!(std::io::stderr().lock(), "icecore mount: {line}");
}
