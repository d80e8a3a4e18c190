//! What a run ends with.

use crate::units::Nanos;
use std::fmt;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What it met.
    pub met: Met,
    /// What did not hold; `None`: everything did.
    pub violation: Option<Violation>,
}

/// What does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The check's name; `panic` where the router's own assertions failed, `liveness` where it did not settle.
    pub check: &'static str,
    /// What is wrong.
    pub what: String,
}

/// What a run met, so that nobody takes an idle one for a proof.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// Submits that were accepted.
    pub accepted: u64,
    /// Records in the topic.
    pub landed: u64,
    /// Repeats that were collapsed.
    pub collapsed: u64,
    /// Triggers that went over the disk.
    pub spilled: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Triggers that were given back.
    pub given_back: u64,
    /// Submits that were shed.
    pub shed: u64,
    /// Deaths and stops.
    pub starts: u64,
    /// Handles that were replaced.
    pub rebuilds: u64,
    /// Breakers that opened.
    pub opened: u64,
    /// Simulated time.
    pub simulated: Nanos,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.check, self.what)
    }
}
