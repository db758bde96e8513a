//! The benchmark lab of icecore: experiments that hold the store's promises against measurements, and the
//! demonstration.
//!
//! [`run`] runs one experiment and answers one [`Report`]; [`demo()`] runs the demonstration. The program
//! `icecore-lab` calls both, and `icecore lab run` and `icecore demo` start that.

pub mod all;
mod bonnie;
pub mod chart;
pub mod charts;
pub mod child;
mod clock;
pub mod compare;
mod compress;
mod conditions;
pub mod copy_area;
pub mod counted;
mod counters;
pub mod demo;
mod device;
pub mod disks;
pub mod doctor;
mod driving;
mod error;
pub mod expected;
pub mod experiments;
pub mod figure;
mod fileio;
mod fio;
pub mod flush;
pub mod guest;
pub mod machine;
pub mod options;
pub mod page;
pub mod pairs;
pub mod policies;
mod programs;
pub mod published;
pub mod random;
pub mod report;
mod room;
mod served;
mod server;
mod settle;
mod snapshotting;
pub mod sqlite;

pub mod statistics;
pub mod stored;
mod storefile;
mod studies;
pub mod systems;
pub mod targets;
mod tool;
pub mod trace;
pub mod valuation;

pub use demo::{DemoOptions, DemoProgress, DemoReport, DemoStep, demo};
pub use error::{Error, Result};
pub use experiments::{EXPERIMENTS, run};
pub use options::{DatabaseServer, LoadTool, Options};
pub use report::{Check, Report};
