//! Mounts made by the program, and real database servers that live on them.

mod bad_days;
mod commands;
mod fixture;
mod full;
mod history;
mod lab;
mod load;
mod mariadb;
mod model;
mod postgres;
mod scenarios;
mod server;
mod writer;
