//! The engine on steered sinks and a steered clock: the cases of the field, one test each, and a random model test.
//! Shards are turned by hand, except where threads are the subject.
#![cfg(feature = "sim")]

mod adversary;
mod breaker;
mod crash;
mod crash_random;
mod dedup;
mod disk;
mod divert;
mod letters;
mod order;
mod pressure;
mod random;
mod settle;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;
