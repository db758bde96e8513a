//! The report: its numbers are those of the results, and a real browser draws it.

mod all;
mod benchmarks;
mod beside;
mod browser;
mod fixture;
mod numbers;
mod opened;
mod sentences;
