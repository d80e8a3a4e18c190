//! The simulator itself: the same seed gives the same run, its runs are not idle, and what is shrunk still fails. Many seeds
//! are the business of `fencepost-sim` (`script/test --only sim`, `script/soak`).

use fencepost::sim::plan::Plan;
use fencepost::sim::run;
use fencepost::sim::verdict::{Met, Violation};

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 50, 61] {
        let plan = Plan::draw(seed, 300);
        let story = run::tell(&plan, &run::steps(&plan));
        assert!(story.len() > 300, "{} lines", story.len());
        assert_eq!(story, run::tell(&plan, &run::steps(&plan)), "seed {seed}");
    }
}

#[test]
fn a_few_seeds_hold_every_promise_and_meet_every_fault() {
    let mut sum = Met::default();
    for seed in 0..24 {
        let plan = Plan::draw(seed, 400);
        let verdict = run::run(&plan, &run::steps(&plan));
        assert!(verdict.violation.is_none(), "fencepost-sim --seed {seed} --steps 400: {}", verdict.violation.unwrap());
        let met = verdict.met;
        sum.accepted += met.accepted;
        sum.collapsed += met.collapsed;
        sum.spilled += met.spilled;
        sum.dead_letters += met.dead_letters;
        sum.given_back += met.given_back;
        sum.shed += met.shed;
        sum.starts += met.starts;
        sum.opened += met.opened;
    }
    assert!(sum.accepted > 5_000 && sum.collapsed > 100 && sum.spilled > 100 && sum.dead_letters > 10, "{sum:?}");
    assert!(sum.given_back > 0 && sum.shed > 0 && sum.starts > 0 && sum.opened > 0, "{sum:?}");
}

/// Steps that are taken out leave the others as they were, so a history can be shrunk at all.
#[test]
fn a_step_does_the_same_in_a_shorter_history() {
    let plan = Plan::draw(7, 200);
    let all = run::steps(&plan);
    let half: Vec<_> = all.iter().copied().filter(|step| step.number % 2 == 0).collect();
    let actions = |steps: &[fencepost::sim::step::Step]| -> Vec<_> {
        steps.iter().filter(|step| step.number % 2 == 0).map(|step| step.action(&plan)).collect()
    };
    assert_eq!(actions(&all), actions(&half));
}

/// A history that does not fail is not made to.
#[test]
fn what_does_not_fail_is_not_shrunk() {
    let plan = Plan::draw(1, 60);
    let made_up = Violation { check: "kept", what: "made up".to_owned() };
    let shrunk = run::shrink(&plan, made_up, || false);
    assert_eq!(shrunk.steps, run::steps(&plan));
}
