//! The engine on librdkafka's mock cluster: faults that a real broker shows rarely, at a chosen request.
//!
//! Tests are named after the case they answer. They take turns ([`common_kafka::alone`]): each starts clients with a
//! dozen threads, and some look at all threads of the process.
#![cfg(feature = "kafka")]

#[path = "../common_kafka/mod.rs"]
mod common_kafka;

mod diversion;
#[cfg(feature = "cli")]
mod dlq;
mod letters;
mod order;
mod pressure;
mod rebuild;
#[cfg(feature = "cli")]
mod route;
mod start;
mod steady;
mod tail;
