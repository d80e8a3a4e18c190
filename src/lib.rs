//! fencepost takes geofence triggers from an evaluator's threads and delivers them to Apache Kafka: in order per
//! device, deduplicated, with pressure turned into an answer the caller gets at once, and nothing lost in silence.

// -- ground: what numbers mean, and time as an argument
pub mod clock;
pub mod units;
// -- data
pub mod config;
pub mod trigger;
// -- mechanisms: they never see one another
pub mod metrics;
pub mod ring;
pub mod sink;
pub mod slab;
pub mod topology;
