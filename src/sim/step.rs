//! The steps of a history. A step is drawn from its own number alone, so that a history from which others are taken out
//! still does what its other steps did.

use super::plan::{KINDS, Kind, Plan};
use super::random::Random;
use crate::units::Nanos;
use std::fmt;

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number, from which it is drawn.
    pub number: u32,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A caller submits.
    Submit,
    /// Time passes, in this many slices; in each what can land lands, as luck has it, and everything turns.
    Pass {
        /// In all.
        span: Nanos,
        /// How many turns.
        slices: u32,
    },
    /// A caller takes back what failed.
    TakeFailed,
    /// A fault, or what an operator does.
    Do(Kind),
}

impl Step {
    fn random(self, plan: &Plan) -> Random {
        let mut seeds = Random::new(plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from(self.number));
        Random::new(seeds.bits())
    }

    /// What it does in a run of this plan.
    #[must_use]
    pub fn action(self, plan: &Plan) -> Action {
        self.draw(plan).0
    }

    /// What it does, and its further luck.
    pub(super) fn draw(self, plan: &Plan) -> (Action, Random) {
        let mut random = self.random(plan);
        let mut pick = random.below(10_000);
        for (index, (kind, _, _)) in KINDS.into_iter().enumerate() {
            if pick < plan.rates[index] {
                return (Action::Do(kind), random);
            }
            pick -= plan.rates[index];
        }
        let action = match random.below(100) {
            0..45 => Action::Submit,
            45..97 => {
                let most_ms = plan.pauses_ms[random.below(6) as usize];
                let span = Nanos::from_micros(u64::from(random.below(most_ms * 1_000)));
                Action::Pass { span, slices: 1 + random.below(8) }
            }
            _ => Action::TakeFailed,
        };
        (action, random)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Submit => write!(out, "a caller submits"),
            Action::Pass { span, slices } => write!(out, "{:.3} ms pass in {slices} turns", span.0 as f64 / 1e6),
            Action::TakeFailed => write!(out, "callers take back what failed"),
            Action::Do(kind) => write!(out, "{}", KINDS[*kind as usize].1),
        }
    }
}
