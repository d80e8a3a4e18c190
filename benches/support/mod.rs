//! What all benchmarks share: named workloads with fixed seeds, ids, and the bodies that are timed, counted and tested.
//!
//! `workloads` makes triggers as a fleet sends them, `ids` makes ids of different lengths. `bodies` is one piece of work
//! for each question, and `measure` hands it to criterion; `benches/counts.rs` hands the same to callgrind.
#![allow(dead_code, unused_imports, reason = "each benchmark uses some of it")]

pub mod bodies;
pub mod ids;
pub mod luck;
pub mod measure;
pub mod workloads;

pub use bodies::{BODIES, Body, Entry, Size};
pub use luck::Luck;
pub use workloads::{NAMES, OwnedTrigger, RATE, Workload};
