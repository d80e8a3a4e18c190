//! Diversion: what a partition does not take goes to the disk, comes back in its order before anything newer, and is
//! delivered once.

use crate::support::model::Draft;
use crate::support::rig::{Death, Rig, small_config};
use fencepost::breaker::Cause;
use fencepost::shard::Policy;
use fencepost::shard::shared::Gate;
use fencepost::sink::{Fault, Persisted};
use fencepost::spill::faulty::Operation;
use fencepost::units::{Nanos, PartitionId};
use std::time::Duration;

const UNAUTHORIZED: i32 = 29;
const SHORT: Nanos = Nanos::from_millis(2_000);
const P0: PartitionId = PartitionId(0);

/// A device of each partition.
fn devices(rig: &Rig) -> Vec<String> {
    (0..rig.partitions).map(|partition| rig.devices_of(partition, "device", 1).remove(0)).collect()
}

/// Partition 0 has made no progress for the grace, with one trigger in flight.
fn open_breaker(rig: &mut Rig, device: &str) {
    rig.submit_fresh(device, 1);
    rig.pass_ms(1_100);
    assert_eq!(rig.counts().breakers_opened, 1);
}

/// A full window is diverted at once, breaker or not; the other partition flows on; back to live without a gap.
#[test]
fn a_full_window_is_diverted_and_live_again_without_a_gap() {
    let mut config = small_config();
    config.inflight.partition = 64;
    let mut rig = Rig::spilling(&config, 2);
    let devices = devices(&rig);
    for _ in 0..20 {
        rig.submit_fresh(&devices[0], 10);
        rig.submit_fresh(&devices[1], 1);
        rig.broker().ack(1, usize::MAX);
        rig.clock.advance_ms(5);
    }
    rig.pass_ms(20);
    let counts = rig.counts();
    assert_eq!((counts.breakers_opened, counts.shed, counts.in_flight), (0, 0, 0), "{counts}");
    assert_eq!(rig.settled(0), 220, "shadows and spilled ones are settled");
    assert!(counts.spilled >= 130, "{counts}");
    assert_eq!(rig.broker().in_flight_of(0) as u64 + counts.spilled, 200, "what was not handed over was spilled");
    // The way back, with new ones coming in all the while.
    for _ in 0..200 {
        rig.broker().ack_all();
        rig.submit_fresh(&devices[0], 1);
        rig.clock.advance_ms(5);
    }
    assert_eq!(rig.common.shard_pages[0].diverted.get(), 0, "live again");
    let spilled = rig.counts().spilled;
    rig.submit_fresh(&devices[0], 10);
    rig.pass_ms(10);
    assert_eq!(rig.counts().spilled, spilled, "nothing goes to the disk any more");
    rig.finish();
    assert_eq!(rig.log_ids().len(), 430);
}

/// W7: 1,000 of d1 spilled; up again; 10 new of d1 during the drain → the consumer sees 1…1010.
#[test]
fn w7_what_comes_in_during_the_drain_comes_behind() {
    for shards in [1, 2] {
        let mut config = small_config();
        config.engine.shards = shards;
        let mut rig = Rig::spilling(&config, 4);
        let devices = devices(&rig);
        let (d1, other) = (&devices[1], &devices[0]);
        let broker = rig.brokers[usize::from(shards) - 1].clone();
        rig.submit_fresh(d1, 1);
        rig.pass_ms(1_100);
        for _ in 0..999 {
            let draft = rig.fresh(d1);
            rig.accept(0, &draft);
            if rig.model.next_id() % 50 == 0 {
                rig.pass_ms(5);
            }
        }
        rig.pass_ms(20);
        assert_eq!((rig.settled(0), rig.counts().spilled), (1_000, 999), "{shards} shards");
        let mut made = 0;
        for _ in 0..10_000 {
            broker.ack(1, 20);
            rig.clock.advance_ms(1);
            rig.turn();
            let drained = rig.counts().drained;
            if drained > 100 && made < 10 {
                assert!(rig.counts().in_spill > 100, "in the middle of the drain");
                rig.submit_fresh(d1, 1);
                made += 1;
            }
        }
        assert_eq!((made, rig.log_ids_of(1)), (10, (0..1_010).collect()), "{shards} shards");
        rig.submit_fresh(other, 1);
        rig.finish();
        assert_eq!(rig.counts().delivered, 1_011);
    }
}

/// D9: an outage of 60 s, ttl 10 s: K at second 1, K again at second 31, both spilled → 1 record after the drain.
#[test]
fn d9_a_repeat_later_than_the_ttl_is_collapsed_by_the_drain() {
    let mut rig = Rig::spilling(&small_config(), 1);
    open_breaker(&mut rig, "device");
    let k = rig.fresh("device");
    let first = rig.accept(0, &k);
    rig.pass_ms(30_000);
    rig.submit_fresh("device", 3);
    let second = rig.accept(0, &k);
    rig.submit_fresh("device", 3);
    rig.pass_ms(29_000);
    assert_eq!((rig.counts().spilled, rig.settled(0)), (8, 9), "both lie on disk");
    rig.finish();
    assert_eq!((rig.model.landed(first), rig.model.landed(second)), (1, 0));
    assert_eq!((rig.counts().delivered, rig.counts().deduplicated), (8, 1));
}

/// D9, when the original's key is still known: the repeat settles at once and is not spilled.
#[test]
fn d9_a_repeat_within_the_ttl_settles_at_once() {
    let mut rig = Rig::spilling(&small_config(), 1);
    open_breaker(&mut rig, "device");
    let k = rig.fresh("device");
    rig.accept(0, &k);
    rig.turn();
    // While it is being written, and once it is.
    rig.accept(0, &k);
    rig.pass_ms(20);
    rig.accept(0, &k);
    rig.pass_ms(5_000);
    rig.accept(0, &k);
    rig.turn();
    assert_eq!((rig.counts().spilled, rig.counts().deduplicated, rig.settled(0)), (1, 3, 5));
    // From the moment it is drained its time begins anew.
    rig.broker().ack_all();
    for _ in 0..20 {
        rig.pass_ms(5);
        rig.broker().ack_all();
    }
    assert_eq!(rig.counts().delivered, 2);
    rig.pass_ms(8_000);
    rig.accept(0, &k);
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().deduplicated), (2, 4));
}

/// D9, when the repeat is not on disk yet while the original is drained: the original is the one that is delivered, and
/// the repeat settles as a duplicate, whether the disk takes it in the end or the partition is live before.
#[test]
fn d9_a_repeat_that_is_still_spilling_meets_its_original() {
    for heals in [false, true] {
        let mut rig = Rig::spilling(&small_config(), 1);
        open_breaker(&mut rig, "device");
        let k = rig.fresh("device");
        let first = rig.accept(0, &k);
        rig.pass_ms(30_000);
        rig.disk.set_likelihood(Operation::Sync, 65_536);
        let second = rig.accept(0, &k);
        let third = rig.accept(0, &k);
        rig.pass_ms(20);
        assert_eq!(rig.settled(0), 2, "the repeats are not durable");
        assert_eq!(rig.counts().in_flight, 2);
        // The broker is back: the first is acknowledged, K is read and handed over.
        rig.broker().ack_all();
        rig.pass_ms(10);
        assert_eq!((rig.counts().drained, rig.broker().in_flight()), (1, 1));
        assert_eq!((rig.model.landed(first), rig.model.landed(second)), (0, 0));
        if heals {
            rig.disk.heal();
            rig.pass_ms(2_000);
        }
        rig.broker().ack_all();
        rig.pass_ms(20);
        rig.finish();
        assert_eq!([first, second, third].map(|id| rig.model.landed(id)), [1, 0, 0], "the disk heals: {heals}");
        assert_eq!((rig.counts().delivered, rig.counts().deduplicated), (2, 2));
    }
}

/// P5, the work of a turn: with a full window and the connection gone, one turn orders at most 1,024 shadows, and takes
/// what comes in all the same.
#[test]
fn p5_a_full_window_costs_a_turn_no_more_than_1024_shadows() {
    let mut config = small_config();
    config.queue.capacity = 8_192;
    config.settle.window = 32_768;
    config.dedup.capacity = 32_768;
    config.inflight.partition = 8_192;
    config.inflight.total = 8_192;
    config.inflight.waiting = 16_384;
    let mut rig = Rig::spilling(&config, 1);
    while rig.broker().in_flight() < 8_192 {
        for _ in 0..128 {
            let draft = rig.fresh("device");
            rig.accept(0, &draft);
        }
        rig.turn_unchecked();
    }
    let (mut before, mut most, mut turns) = (rig.spill().partition(P0).appended, 0, 0);
    while rig.counts().in_flight > 0 {
        rig.clock.advance_ms(1);
        rig.turn_unchecked();
        let appended = rig.spill().partition(P0).appended;
        (most, before, turns) = (most.max(appended - before), appended, turns + 1);
        assert!(turns < 10_000, "{}", rig.counts());
    }
    println!("{before} shadows, at most {most} a turn, {turns} turns of 1 ms");
    assert!(most <= 1_024, "{most} in one turn");
    assert_eq!(rig.broker().in_flight(), 8_192, "the window is bounded, and what is in it stays");
    rig.check();
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().failed), (before, 0));
}

/// S2: the time to deliver is over, and the client's queue is purged → what was in flight is spilled in order, committed
/// once synced, and nothing failed; the next run delivers it.
#[test]
fn s2_what_is_purged_at_the_stop_is_on_disk_in_order() {
    for is_diverted in [false, true] {
        let mut config = small_config();
        config.inflight.partition = 32;
        let mut rig = Rig::spilling(&config, 1);
        rig.submit_fresh("device", 30);
        if is_diverted {
            rig.pass_ms(1_100);
            rig.submit_fresh("device", 20);
        } else {
            for _ in 0..20 {
                let draft = rig.fresh("device");
                rig.accept(0, &draft);
            }
        }
        rig.common.shared().close(Gate::Stopping);
        rig.broker().lose_handle();
        rig.broker().purge(|_, _| 0);
        rig.common.shared().spill_rest();
        rig.pass_ms(50);
        assert!(rig.shards[0].is_settled());
        let counts = rig.counts();
        assert_eq!((counts.in_spill, counts.failed, counts.in_flight + counts.in_rings), (50, 0, 0), "{counts}");
        assert_eq!(rig.settled(0), 50);
        rig.restart(Death::Machine, SHORT, |_, _| 0);
        assert_eq!(rig.counts().recovered, 50);
        rig.finish();
        assert_eq!(rig.log_ids(), (0..50).collect::<Vec<_>>());
    }
}

/// S6 with a diversion under way: the wall clock steps back an hour. Nothing stalls, stamps still rise, times to live are
/// unaffected.
#[test]
fn s6_the_wall_clock_steps_back_while_diverted() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.model.ttl_ms = None;
    open_breaker(&mut rig, "device");
    rig.submit_fresh("device", 20);
    rig.clock.step_wall(-3_600_000_000);
    let k = rig.fresh("device");
    rig.accept(0, &k);
    rig.pass_ms(20);
    assert_eq!(rig.settled(0), 22, "the disk takes them at once");
    rig.pass_ms(5_000);
    rig.accept(0, &k);
    rig.turn();
    assert_eq!(rig.counts().deduplicated, 1);
    rig.broker().ack_all();
    rig.submit_fresh("device", 5);
    for _ in 0..20 {
        rig.pass_ms(5);
        rig.broker().ack_all();
    }
    assert_eq!(rig.counts().delivered, 27, "within 100 ms of the first acknowledgement");
    rig.finish();
}

/// W9: a delivery that is refused during the drain: neither the read nor the release goes past it. A crash then finds it
/// on disk still.
#[test]
fn w9_a_refused_delivery_stays_on_disk() {
    for death in [Death::Process, Death::Machine] {
        let mut rig = Rig::spilling(&small_config(), 1);
        open_breaker(&mut rig, "device");
        rig.submit_fresh("device", 20);
        rig.pass_ms(20);
        rig.broker().ack_all();
        rig.pass_ms(20);
        assert_eq!((rig.counts().drained, rig.broker().in_flight()), (20, 20));
        rig.broker().ack(0, 5);
        rig.broker().refuse(0, 0, 15, Fault::Partition(UNAUTHORIZED), Persisted::No, false);
        rig.pass_ms(20);
        // The shadow of the first, and five.
        assert_eq!(rig.spill().partition(P0).released, 6);
        assert_eq!((rig.counts().delivered, rig.counts().in_spill), (6, 15));
        // It is tried again, alone, and refused again.
        rig.pass_ms(500);
        rig.broker().refuse(0, 0, usize::MAX, Fault::Partition(UNAUTHORIZED), Persisted::No, false);
        rig.pass_ms(20);
        assert_eq!(rig.spill().partition(P0).released, 6);
        rig.restart(death, SHORT, |_, _| 0);
        assert_eq!(rig.counts().recovered, 15, "{death:?}");
        rig.finish();
        assert_eq!(rig.log_ids(), (0..21).collect::<Vec<_>>());
    }
}

/// L6 with a diversion: nothing of the partition is in memory, so the probe comes from the disk. It is the only one,
/// however long it stays unanswered, and its late ack closes.
#[test]
fn l6_the_probe_comes_from_the_disk() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.shards[0].trip(P0, Cause::Progress);
    rig.submit_fresh("device", 10);
    rig.pass_ms(50);
    assert_eq!((rig.counts().spilled, rig.counts().in_flight, rig.broker().in_flight()), (10, 0, 0));
    rig.pass_ms(5_000);
    assert_eq!((rig.counts().drained, rig.broker().in_flight()), (1, 1), "one probe, from the disk");
    for _ in 0..10 {
        rig.submit_fresh("device", 1);
        rig.pass_ms(5_000);
        assert_eq!((rig.counts().drained, rig.broker().in_flight()), (1, 1), "never a second one");
    }
    rig.broker().ack_all();
    rig.pass_ms(20);
    assert!(rig.counts().drained > 1, "its late ack closes");
    rig.finish();
    assert_eq!(rig.log_ids(), (0..20).collect::<Vec<_>>());
}

/// The same where the probe is refused: it is the probe again, and nothing overtakes it.
#[test]
fn l6_a_refused_probe_from_the_disk_is_tried_again() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.shards[0].trip(P0, Cause::Failures);
    rig.submit_fresh("device", 10);
    let mut probes = 0;
    for _ in 0..12_000 {
        rig.pass_ms(5);
        let lent = rig.broker().in_flight();
        assert!(lent <= 1, "{lent} at once");
        if lent == 1 {
            probes += 1;
            rig.broker().refuse(0, 0, 1, Fault::Partition(UNAUTHORIZED), Persisted::No, false);
        }
    }
    assert!((8..=14).contains(&probes), "{probes} in a minute");
    assert_eq!((rig.counts().drained, rig.counts().in_spill), (1, 10));
    rig.finish();
    assert_eq!(rig.log_ids(), (0..10).collect::<Vec<_>>());
}

/// L12 with a diversion: a breaker that lag opened on a healthy broker is not closed by an ack, and three good reads close
/// it; meanwhile what comes in is spilled, and then all of it comes in order.
#[test]
fn l12_lag_diverts_until_three_good_reads() {
    let mut rig = Rig::spilling(&small_config(), 2);
    let devices = devices(&rig);
    rig.submit_fresh(&devices[0], 5);
    rig.shards[0].trip(P0, Cause::Lag);
    rig.submit_fresh(&devices[0], 20);
    rig.broker().ack_all();
    rig.pass_ms(100);
    let counts = rig.counts();
    assert_eq!((counts.delivered, counts.spilled, counts.in_spill), (5, 20, 20), "an ack does not close it: {counts}");
    for good in 1..=3 {
        rig.submit_fresh(&devices[1], 1);
        rig.broker().ack_all();
        rig.pass_ms(20);
        assert_eq!((rig.counts().drained, rig.counts().in_spill), (0, 20), "before good read {good}");
        rig.shards[0].good_read(P0);
    }
    rig.pass_ms(20);
    assert_eq!(rig.counts().drained, 20);
    rig.finish();
    assert_eq!(rig.log_ids_of(0), (0..25).collect::<Vec<_>>());
}

/// Policy `refuse`, with what an earlier run left on disk: that is drained first, and what comes in goes behind it.
#[test]
fn leftovers_are_drained_first_whatever_the_policy() {
    for policy in [Policy::Refuse, Policy::DeadLetter, Policy::Spill] {
        let mut rig = Rig::spilling(&small_config(), 1);
        open_breaker(&mut rig, "device");
        rig.submit_fresh("device", 30);
        rig.pass_ms(20);
        rig.set_policy(policy);
        rig.restart(Death::Process, SHORT, |_, _| 0);
        assert_eq!(rig.counts().recovered, 31);
        rig.submit_fresh("device", 10);
        rig.pass_ms(20);
        rig.finish();
        assert_eq!(rig.log_ids(), (0..41).collect::<Vec<_>>(), "{policy:?}");
        assert_eq!((rig.counts().dead_lettered, rig.counts().failed), (0, 0), "{policy:?}");
        // And the policy holds from now on.
        let spilled = rig.counts().spilled;
        rig.submit_fresh("device", 1);
        rig.pass_ms(1_100);
        let draft = rig.fresh("device");
        assert_eq!(rig.submit(0, &draft).is_err(), policy == Policy::Refuse);
        rig.pass_ms(50);
        assert_eq!(rig.counts().spilled - spilled, u64::from(policy == Policy::Spill), "{policy:?}");
        rig.finish();
        assert_eq!(rig.counts().dead_lettered, u64::from(policy == Policy::DeadLetter), "{policy:?}");
    }
}

/// Two shards, each with one partition away: the others of both flow on, and both come back in order.
#[test]
fn two_shards_divert_each_its_own() {
    let mut config = small_config();
    config.engine.shards = 2;
    config.dedup.ttl = Duration::from_secs(60);
    let mut rig = Rig::spilling(&config, 4);
    let devices = devices(&rig);
    let mut settled = 0;
    for _ in 0..500 {
        for device in &devices {
            let draft: Draft = rig.fresh(device);
            rig.accept(0, &draft);
        }
        rig.pass_ms(5);
        rig.brokers[0].ack(2, usize::MAX);
        rig.brokers[1].ack(3, usize::MAX);
        settled = rig.settled(0);
    }
    assert_eq!((rig.counts().breakers_opened, rig.counts().shed), (2, 0));
    assert!(settled > 1_900, "the disk settles what two partitions do not take: {settled}");
    assert!(rig.counts().spilled > 400);
    rig.finish();
    for partition in 0..4 {
        let ids = rig.log_ids_of(partition);
        assert_eq!((ids.len(), ids.is_sorted()), (500, true), "partition {partition}");
    }
}
