//! The program as people run it, against real pools.

mod check;
mod commands;
mod copies;
mod environment;
mod errors;
mod files;
mod fixture;
mod full;
mod gone;
mod guides;
mod idle;
mod init;
#[path = "../shared/install.rs"]
mod install;
mod json;
mod monitor;
mod owned;
mod packaging;
mod prune;
mod quota;
mod resize;
mod sql;
mod trim;
