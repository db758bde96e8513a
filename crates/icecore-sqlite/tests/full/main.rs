//! Full pools with a database running on them: at the pool's own limit, and where the filesystem under it is
//! full.
//!
//! Tests begin in the order of their names, and the one that takes longest, in `application`, is the first.

mod application;
mod database;
mod deleting;
mod host;
mod new;
mod readers;
