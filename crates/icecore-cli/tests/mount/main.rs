//! Mounts made by the program, and real database servers that live on them.

mod bad_days;
mod beside;
mod commands;
mod door;
mod fixture;
mod full;
mod history;
#[path = "../shared/install.rs"]
mod install;
mod load;
mod mariadb;
mod model;
mod moments;
mod postgres;
mod readme;
mod scenarios;
mod server;
mod system;
mod writer;
