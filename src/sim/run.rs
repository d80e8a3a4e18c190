//! A run from its seed to its verdict, and the shrinking of a history that fails.

use super::ledger::Story;
use super::plan::Plan;
use super::step::Step;
use super::verdict::{Met, Verdict, Violation};
use super::world::World;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

/// The smallest history that still fails, as far as the time reached.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What is left of it.
    pub steps: Vec<Step>,
    /// What does not hold in it.
    pub violation: Violation,
    /// Runs that this took.
    pub runs: u32,
}

thread_local! {
    /// What the last panic of this thread said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the words of panics for the verdict in place of printing them. Once, before the first run.
pub fn hear_panics() {
    std::panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        SAID.with(|said| *said.borrow_mut() = info.to_string());
    }));
}

/// All steps of a plan.
#[must_use]
pub fn steps(plan: &Plan) -> Vec<Step> {
    (0..plan.steps).map(|number| Step { number }).collect()
}

/// Runs a history, and tells each of its steps and events.
#[must_use]
pub fn tell(plan: &Plan, steps: &[Step]) -> Vec<String> {
    let story = Story::default();
    // What it ends with is known from the run before.
    let _ = run_as(plan, steps, Some(Story::clone(&story)));
    story.take()
}

/// Runs a history: the steps with their faults, then the phase in which everything must settle.
#[must_use]
pub fn run(plan: &Plan, steps: &[Step]) -> Verdict {
    run_as(plan, steps, None)
}

fn run_as(plan: &Plan, steps: &[Step], story: Option<Story>) -> Verdict {
    let mut met = Met::default();
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(plan);
        if let Some(story) = story {
            world.tell(story);
        }
        let answer = steps.iter().try_for_each(|step| world.step(*step)).and_then(|()| world.finish());
        met = world.met();
        answer
    }));
    let violation = match played {
        Ok(answer) => answer.err(),
        Err(_) => Some(Violation { check: "panic", what: SAID.with(|said| said.borrow().clone()) }),
    };
    Verdict { met, violation }
}

/// Takes steps out of a history that fails for as long as the same check goes on failing: halves, quarters, and so on down
/// to single ones, or until `is_over` (Zeller, Hildebrandt: "Simplifying and isolating failure-inducing input", 2002).
#[must_use]
pub fn shrink(plan: &Plan, violation: Violation, mut is_over: impl FnMut() -> bool) -> Shrunk {
    let mut best = Shrunk { steps: steps(plan), violation, runs: 0 };
    let mut size = best.steps.len() / 2;
    while size > 0 {
        let (mut from, mut has_shrunk) = (0, false);
        while from < best.steps.len() && !is_over() {
            let mut fewer = best.steps.clone();
            fewer.drain(from..(from + size).min(fewer.len()));
            best.runs += 1;
            match run(plan, &fewer).violation {
                Some(found) if found.check == best.violation.check => {
                    (best.steps, best.violation, has_shrunk) = (fewer, found, true);
                }
                _ => from += size,
            }
        }
        if is_over() {
            break;
        }
        if !has_shrunk || size > best.steps.len() {
            size /= 2;
        }
    }
    best
}
