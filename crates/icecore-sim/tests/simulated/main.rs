//! Histories, faults, damage and crashes on the simulated disk.
//!
//! They are one program: none of them asks anything of the machine but a processor, and while one takes
//! long, the other processors go on with the rest.

mod absent;
mod check;
mod collect;
mod common;
mod copies;
mod copies_cost;
mod crash;
mod cut_log;
mod damage;
mod faults;
mod fetch;
mod freeing;
mod full;
mod import;
mod lives;
mod model;
mod pages;
mod refusals;
mod regressions;
mod size_limit;
