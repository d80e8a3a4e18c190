//! The stop: a submit that passed the gate while it closed. The shard's own thread runs here, with the product's loop.

use crate::{ModelClock, Seen, assemble, explore, trigger};
use fencepost::engine::{Counts, shard_thread};
use fencepost::ingress::{ClosedWhy, Refused};
use fencepost::shard::idle::Strategy;
use fencepost::shard::shared::{Gate, Waker};
use fencepost::topology::CpuSet;
use loom::thread;
use std::sync::Arc;

/// A submit, a shard and a stop at the same time. Answers whether the trigger was accepted, and the last counts.
fn stop_while_submitting(is_short: bool, stop: fn(&fencepost::shard::shared::Shared)) -> (bool, Counts) {
    let clock = ModelClock::default();
    let mut assembly = assemble(1, &clock);
    let mut ingress = assembly.common.ingress().unwrap();
    let (shard, common) = (assembly.shards.remove(0), Arc::new(assembly.common));
    let turning = {
        let common = Arc::clone(&common);
        let (waker, others) = (Waker::default(), CpuSet::default());
        thread::spawn(move || shard_thread(shard, common.shared(), &waker, Strategy::Yield, None, &others))
    };
    let submitting = thread::spawn(move || {
        let answer =
            if is_short { clock.stopped(|| ingress.submit(&trigger("d"))) } else { ingress.submit(&trigger("d")) };
        match answer {
            Ok(accepted) => {
                assert_eq!(accepted.seq.0, 1);
                true
            }
            Err(Refused::Closed(ClosedWhy::Stopping)) => false,
            Err(other) => panic!("{other}"),
        }
    });
    stop(common.shared());
    let is_accepted = submitting.join().unwrap();
    turning.join().unwrap();
    let counts = common.counts();
    assert_eq!(counts.accepted, u64::from(is_accepted));
    assert!(counts.add_up(), "{counts:?}");
    (is_accepted, counts)
}

#[test]
fn what_passed_the_gate_is_delivered_before_the_shard_leaves() {
    let (accepted, refused) = (Seen::default(), Seen::default());
    let (note_accepted, note_refused) = (accepted.clone(), refused.clone());
    explore(Some(2), move || {
        let (is_accepted, counts) = stop_while_submitting(true, |shared| shared.close(Gate::Stopping));
        assert_eq!(counts.delivered, u64::from(is_accepted), "the shard left before its last trigger: {counts:?}");
        note_accepted.note(is_accepted);
        note_refused.note(!is_accepted);
    });
    assert!(accepted.was() && refused.was());
}

/// The limit of that promise, and why a shard lingers: a submit that takes longer than it lingers finds the shard gone.
/// Its trigger is still named, as one in a ring.
#[test]
fn a_submit_that_outlasts_the_lingering_shard_is_counted_in_its_ring() {
    let left = Seen::default();
    let note_left = left.clone();
    explore(Some(2), move || {
        let (is_accepted, counts) = stop_while_submitting(false, |shared| shared.close(Gate::Stopping));
        assert_eq!(counts.delivered + counts.in_rings, u64::from(is_accepted), "{counts:?}");
        note_left.note(counts.in_rings == 1);
    });
    assert!(left.was(), "lingering is needed for nothing");
}

/// A shard that is told to leave at once leaves what it did not settle, and all of it is named.
#[test]
fn what_an_abort_leaves_is_counted() {
    let (delivered, left) = (Seen::default(), Seen::default());
    let (note_delivered, note_left) = (delivered.clone(), left.clone());
    explore(Some(2), move || {
        let (_, counts) = stop_while_submitting(true, |shared| {
            shared.close(Gate::Stopping);
            shared.abort();
        });
        note_delivered.note(counts.delivered == 1);
        note_left.note(counts.in_rings + counts.in_flight == 1);
    });
    assert!(delivered.was() && left.was());
}
