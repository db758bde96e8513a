//! Mounts made by the program, and real database servers that live on them.

mod commands;
mod fixture;
mod mariadb;
mod postgres;
mod server;
mod writer;
