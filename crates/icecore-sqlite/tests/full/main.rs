//! Full pools with a database running on them: at the pool's own limit, and where the filesystem under it is full.

mod database;
mod deleting;
mod host;
mod levels;
mod new;
mod readers;
