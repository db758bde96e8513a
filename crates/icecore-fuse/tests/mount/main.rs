//! Real mounts, used as programs use them.

mod cookies;
mod data;
mod datasets;
mod files;
mod fixture;
mod limits;
mod refusals;
