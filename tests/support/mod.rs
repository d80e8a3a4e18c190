//! What the engine's tests share: a clock and a sink that a test steers, and a rig that turns shards by hand while a
//! model, kept the slow and obvious way, says what must hold after each step.
#![allow(dead_code, reason = "each test binary uses some of it")]

pub mod clock;
pub mod letters;
pub mod model;
pub mod rig;
pub mod sink;
