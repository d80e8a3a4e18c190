//! fencepost takes geofence triggers from an evaluator's threads and delivers them to Apache Kafka: in order per
//! device, deduplicated, with pressure turned into an answer the caller gets at once, and nothing lost in silence.

// -- ground: what numbers mean, and time as an argument
pub mod clock;
pub mod units;
// -- data
pub mod config;
pub mod hlc;
pub mod partition;
pub mod trigger;
// -- mechanisms
pub mod dedup;
