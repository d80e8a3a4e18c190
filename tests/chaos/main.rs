//! kill -9 at any moment, on a real Kafka that freezes, dies and comes back: whatever was settled is in the topic, the dead
//! letters or the spill; each device is in order; a repeat has its reason.
//!
//! `fencepost route` is fed by turns through a socket that asks for acks and from a file with `route.resume`, killed at
//! random points of its start, its work and its shutdown, and started again on the same state directory; its source
//! sends again from the last settled position, as a real one does. At the end of each 20 rounds the topic is read back.
//!
//! `script/chaos [ROUNDS]` runs it alone; a seed is printed first and can be given. In the suite there are 5 rounds.
//! It takes the suite's cluster if that has one broker, and starts one otherwise; without KAFKA_BOOTSTRAP it is skipped.
#![cfg(feature = "cli")]

#[path = "../common_kafka/mod.rs"]
mod common_kafka;

mod broker;
mod child;
mod feeder;
mod judge;
mod plan;
mod rows;
mod run;

use common_kafka::cluster::Cluster;
use feeder::Plant;
use run::{Options, run};
use std::sync::Arc;

fn is_kafka_wanted() -> bool {
    let is_set = std::env::var("KAFKA_BOOTSTRAP").is_ok_and(|value| !value.is_empty());
    if !is_set {
        println!("skipped: KAFKA_BOOTSTRAP is not set; run it by script/chaos");
    }
    is_set
}

#[test]
fn kill_9_at_random_points_loses_and_reorders_nothing_that_was_settled() {
    let _alone = common_kafka::alone();
    if !is_kafka_wanted() {
        return;
    }
    let options = Options::from_env(5);
    let (tally, verdict) = run(&options, &Arc::new(Cluster::of(1)));
    assert!(verdict.is_clean(), "seed {}: {verdict}", options.seed);
    assert_eq!(tally.rounds, options.rounds);
    assert!(tally.kills > 0 && tally.settled > 0 && tally.records >= tally.settled, "{tally:?}");
}

/// The harness sees what goes wrong on the way, and not only in its own unit tests.
#[test]
fn a_row_left_out_and_two_rows_swapped_on_the_way_are_found() {
    let _alone = common_kafka::alone();
    if !is_kafka_wanted() {
        return;
    }
    let planted = |plant: fn(&_) -> Plant| Options { rounds: 2, plant: Some(plant), ..Options::from_env(2) };
    let cluster = Arc::new(Cluster::of(1));
    let (_, verdict) = run(&planted(|_| Plant::Loss(1_234)), &cluster);
    assert_eq!((verdict.lost.len(), verdict.foreign.len(), verdict.reordered.len()), (1, 0, 0), "{verdict}");
    let (_, verdict) = run(&planted(|rows| Plant::swap(rows, 1_234)), &cluster);
    assert_eq!((verdict.lost.len(), verdict.foreign.len(), verdict.reordered.len()), (0, 0, 1), "{verdict}");
}
