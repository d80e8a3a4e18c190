//! fencepost takes geofence triggers from an evaluator's threads and delivers them to Apache Kafka: in order per
//! device, deduplicated, with pressure turned into an answer the caller gets at once, and nothing lost in silence.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

// -- ground: what numbers mean, time as an argument, and the defects that only a build for their finders carries
pub mod canary;
pub mod clock;
#[doc(hidden)]
pub mod prefetch;
#[doc(hidden)]
pub mod sync;
pub mod units;
// -- data
pub mod config;
pub mod hlc;
pub mod partition;
pub mod trigger;
pub mod wire;
// -- mechanisms: they never see one another
pub mod breaker;
pub mod dedup;
pub mod letter;
pub mod metrics;
pub mod ring;
pub mod sink;
pub mod slab;
pub mod source;
pub mod spill;
pub mod topology;
// -- assembly: the shard is where they meet
pub mod divert;
pub mod engine;
pub mod ingress;
pub mod replay;
pub mod shard;
pub mod state;
// -- faces and proof: the checkers recompute the slow, obvious way
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "ffi")]
pub mod ffi;
#[cfg(feature = "sim")]
pub mod sim;
pub mod verify;

pub use config::Config;
pub use engine::{Report, Router};
pub use ingress::{Accepted, ClosedWhy, Ingress, Refused, ShedWhy};
pub use ring::Pressure;
pub use shard::shared::{Failed, FailedReason};
pub use trigger::{Priority, Reason, State, Trigger};

/// The README's example is compiled with the documentation tests.
#[cfg(all(doctest, feature = "kafka"))]
#[doc = include_str!("../README.md")]
struct Readme;
