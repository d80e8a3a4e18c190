//! The simulator: a seeded stand-in for what is outside the router. The same seed and options give the same run.
//!
//! [`plan`] draws a run from its seed, [`world`] plays it, [`step`] by step, on a [`host`] whose clock, brokers, disk and topic of
//! dead letters lie, [`checks`] hold each promise against what could be seen from outside, which the [`ledger`] keeps, and
//! [`run`] makes a [`verdict`] of it and shrinks a history that fails. The binary `fencepost-sim` plays many seeds.

pub mod checks;
pub mod clock;
pub mod fleet;
pub mod host;
pub mod ledger;
pub mod letters;
pub mod plan;
pub mod random;
pub mod run;
pub mod step;
pub mod verdict;
pub mod world;
