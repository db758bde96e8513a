//! Administration of a pool that another process may have open.
//!
//! The process that opens a pool for writing owns it. It listens on `control.sock` in the pool's folder, and
//! every other process sends its requests there. [`Access`] hides the difference: it opens the pool where no
//! process has it, and talks to the owner otherwise. The same [`Request`] gets the same [`Response`], and the
//! same sentence when it fails ([`Failure`]).
//!
//! Layers, from below: [`codec`] (frames), [`protocol`] (what is said), [`client`] and [`server`] (who says
//! it), [`execute`] (what it does to a pool), [`access`] (open or connect).

pub mod access;
pub mod client;
pub mod codec;
pub mod escape;
pub mod execute;
mod failure;
mod files;
mod held;
mod import;
mod last_scrub;
mod let_go;
pub mod locate;
pub mod protocol;
pub mod server;
mod socket;

pub use access::{Access, connect_or_open};
pub use client::Client;
pub use execute::{Executor, PoolService};
pub use failure::{ErrorCode, Failure};
pub use last_scrub::LastScrub;
pub(crate) use let_go::from_idle_owner;
pub use protocol::{Progress, Request, Response};
pub use server::{Server, Service, Session};

/// The name of the socket in the pool's folder.
pub const SOCKET_NAME: &str = "control.sock";
