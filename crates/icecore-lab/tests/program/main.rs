//! The program of the lab, as people and scripts use it.

mod disks;
mod fixture;
mod hanging;
mod missing;
mod results;
mod signals;
mod usage;
mod user;
