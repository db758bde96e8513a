//! Transactions in which calls and allocations fail: a commit happens in all files of a pool or in none, and what
//! the connection reads afterwards is what is stored.

#[path = "../common/mod.rs"]
mod common;

mod commits;
mod full;
mod kills;
mod memory;
mod on_top;
mod shim;
