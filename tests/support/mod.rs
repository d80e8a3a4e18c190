//! What the engine's tests share: a rig that turns a host by hand while a model, kept the slow and obvious way, says what
//! must hold after each step.
#![allow(dead_code, reason = "each test binary uses some of it")]

pub mod model;
pub mod rig;
