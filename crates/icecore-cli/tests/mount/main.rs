//! Mounts made by the program, and real database servers that live on them.

mod bad_days;
mod commands;
mod fixture;
mod history;
mod lab;
mod mariadb;
mod model;
mod postgres;
mod server;
mod writer;
