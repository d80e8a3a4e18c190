//! Park and wake: what a submit pushes while a shard goes to sleep is taken, since no sleep is longer than its limit. That
//! limit is needed: a wake-up can be missed.

use crate::explore;
use fencepost::ring::{Incoming, RingLimits, Take, ring};
use fencepost::shard::idle::{Idle, Strategy};
use fencepost::shard::shared::Waker;
use fencepost::trigger::{Priority, State};
use fencepost::units::{Nanos, PartitionId, Seq};
use loom::thread;
use std::sync::Arc;

/// Long after the last work: a shard without any parks.
const QUIET: Nanos = Nanos::from_millis(1_000);

/// A shard that looks at its ring and sleeps, and an ingress that pushes and wakes; each as the product does.
fn push_while_parking() {
    let (mut writer, mut reader) = ring(RingLimits::for_triggers(4));
    let waker = Arc::new(Waker::default());
    let mut idle = Idle::new(Strategy::Park);
    // It has spun before; the next turn without work is followed by a sleep.
    (0..3).for_each(|_| idle.wait(QUIET, false, &waker, || false));
    let pushing = {
        let waker = Arc::clone(&waker);
        thread::spawn(move || {
            let record = Incoming {
                seq: Seq(1),
                accepted: QUIET,
                event_time_ms: 1,
                hash: 1,
                partition: PartitionId(0),
                state: State::Enter,
                priority: Priority::Normal,
                device_id: b"d",
                fence_id: b"f",
                attributes: &[],
            };
            writer.push(&record).unwrap();
            waker.wake();
        })
    };
    let turning = thread::spawn(move || {
        waker.bind();
        while reader.take(1, |_| Take::Taken) == 0 {
            idle.wait(QUIET, false, &waker, || !reader.is_empty());
        }
    });
    pushing.join().unwrap();
    turning.join().unwrap();
}

#[test]
fn what_is_pushed_while_the_shard_goes_to_sleep_is_taken() {
    explore(None, push_while_parking);
}

/// The other half of the promise: were it not for `PARK_MAX`, a trigger could lie in its ring for ever.
#[test]
#[should_panic(expected = "deadlock")]
fn a_sleep_without_its_limit_could_miss_its_wake_up() {
    explore(None, || {
        fencepost::sync::model::stop_time();
        push_while_parking();
    });
}
