//! The program of the lab, as people and scripts use it.

mod fixture;
mod results;
mod signals;
mod usage;
