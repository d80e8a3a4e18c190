//! The simulator is held against planted defects: it must find each within so many seeds, or it proves nothing.
//!
//! `cargo test --profile sim --no-default-features --features canary --test canaries`; half a minute on two cores.

use fencepost::canary::{CANARIES, Canary, plant};
use fencepost::sim::plan::Plan;
use fencepost::sim::run;

const STEPS: u32 = 1_000;

/// Within how many seeds, from 0 on, and by which check. A change of the drawing of plans may move them.
const FOUND: [(Canary, u64, &[&str]); 15] = [
    (Canary::KeySettledAtAdmission, 50, &["watermark", "kept"]),
    (Canary::DrainOvertaken, 50, &["order"]),
    (Canary::WatermarkTooFar, 50, &["watermark"]),
    (Canary::PermitNotReturned, 50, &["panic", "liveness"]),
    (Canary::NewestEvicted, 200, &["window", "repeats"]),
    (Canary::TornTailAccepted, 200, &["kept", "panic"]),
    (Canary::SyncRetried, 200, &["kept", "watermark"]),
    (Canary::SyncLeftOut, 50, &["kept", "watermark"]),
    (Canary::ShadowNotSkipped, 200, &["repeats", "window"]),
    (Canary::StampNotFollowed, 50, &["stamps"]),
    (Canary::WindowNotFilled, 50, &["window", "repeats"]),
    (Canary::TimeRefreshed, 50, &["window"]),
    (Canary::ProbeNotLetIn, 600, &["liveness"]),
    (Canary::DoubtTakenForAck, 50, &["kept", "watermark"]),
    (Canary::SheddingSticks, 50, &["liveness"]),
];

fn first_that_fails(most: u64) -> Option<(u64, &'static str)> {
    (0..most).find_map(|seed| {
        let plan = Plan::draw(seed, STEPS);
        let verdict = run::run(&plan, &run::steps(&plan));
        verdict.violation.map(|violation| (seed, violation.check))
    })
}

#[test]
fn the_simulator_finds_every_planted_defect() {
    run::hear_panics();
    let mut missed = Vec::new();
    for (canary, most, checks) in FOUND {
        let (_, name) = CANARIES.iter().find(|(known, _)| *known == canary).expect("each has a name");
        plant(Some(canary));
        let found = first_that_fails(most);
        plant(None);
        match found {
            Some((seed, check)) if checks.contains(&check) => println!("{name}: seed {seed}, by {check}"),
            found => missed.push(format!("{name}: {found:?} of {most} seeds; by one of {checks:?} it should be")),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{missed:#?}");
    assert_eq!(FOUND.len(), CANARIES.len(), "each of them is looked for");
    assert_eq!(first_that_fails(20), None, "without a canary nothing is found");
}
