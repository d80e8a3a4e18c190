//! The simulator: a seeded stand-in for what is outside the router. The same seed and options give the same run.

pub mod fleet;
pub mod random;
