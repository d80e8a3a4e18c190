//! Dedup through the whole engine. What happens when two keys have the same hash is a matter of the window's own tests,
//! which can choose the hasher; here the keys only look alike.

use crate::support::model::Draft;
use crate::support::rig::{Rig, small_config};
use fencepost::config::Config;
use fencepost::shard::shared::FailedReason;
use fencepost::sink::{Fault, Persisted};
use std::time::Duration;

/// The code for a record that is too large, as the protocol has it.
const TOO_LARGE: i32 = 10;

/// A window of the smallest capacity, on one partition.
fn smallest_window() -> Config {
    let mut config = small_config();
    config.dedup.capacity = 1_024;
    config.inflight.total = 256;
    config.inflight.waiting = 256;
    config
}

fn key(rig: &Rig, number: u32) -> Draft {
    rig.draft("device", &format!("k{number}"))
}

/// Submits a trigger and lets it land. Returns its number.
fn deliver(rig: &mut Rig, draft: &Draft) -> u64 {
    let id = rig.accept(0, draft);
    rig.turn();
    rig.broker().ack_all();
    rig.turn();
    id
}

/// D1, for as long as there is neither a dead-letter topic nor a disk. The topic refuses K1 for good: `failed`, the key
/// is released, the watermark is held until `take_failed`; K1 again: delivered, exactly one record.
#[test]
fn d1_refused_for_good_then_again() {
    let mut rig = Rig::new(&small_config(), 1);
    let k1 = key(&rig, 1);
    let first = rig.accept(0, &k1);
    rig.turn();
    assert_eq!(rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false), 1);
    rig.turn();
    assert_eq!((rig.counts().failed, rig.counts().dedup_keys), (1, 0));
    assert_eq!(rig.settled(0), 0, "the watermark is held until the caller has it back");
    let taken = rig.take_failed(0);
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].seq.0, taken[0].reason), (1, FailedReason::Refused { code: TOO_LARGE }));
    assert_eq!(rig.settled(0), 1);

    let second = deliver(&mut rig, &k1);
    assert_eq!((rig.model.landed(first), rig.model.landed(second)), (0, 1));
    assert_eq!(rig.settled(0), 2);
    rig.finish();
    assert_eq!(rig.log_ids(), [second]);
}

/// D2, at the smallest capacity there is, 1,024: k1…k1025 acknowledged, then k1025, k2, k1 → duplicate, duplicate,
/// accepted as new; `dedup_evicted_early` = 1 before the last submit.
#[test]
fn d2_at_capacity_the_oldest_key_goes_and_only_that() {
    let mut rig = Rig::new(&smallest_window(), 1);
    rig.model.ttl_ms = None; // a key is evicted: its second record is right
    for number in 1..=1_025 {
        let draft = key(&rig, number);
        deliver(&mut rig, &draft);
        assert!(rig.counts().dedup_keys <= 1_024);
    }
    assert_eq!(rig.counts().dedup_evicted_early, 1);
    for number in [1_025, 2] {
        let draft = key(&rig, number);
        let id = deliver(&mut rig, &draft);
        assert_eq!(rig.model.landed(id), 0, "k{number} is a duplicate");
    }
    assert_eq!((rig.counts().deduplicated, rig.counts().dedup_evicted_early), (2, 1));
    let k1 = key(&rig, 1);
    let id = deliver(&mut rig, &k1);
    assert_eq!(rig.model.landed(id), 1, "k1 is new again");
    rig.finish();
}

/// D3: A fails cleanly (released), A again (acked), capacity − 1 fresh keys, A → still a duplicate; then 10,000 cycles of
/// add and release: the live count is never above capacity, and no stale entry pushes a key out.
#[test]
fn d3_a_released_key_leaves_nothing_behind() {
    let mut rig = Rig::new(&smallest_window(), 1);
    let a = rig.draft("device", "a");
    rig.accept(0, &a);
    rig.turn();
    rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false);
    rig.turn();
    assert_eq!(rig.take_failed(0).len(), 1);
    assert_eq!(rig.counts().dedup_keys, 0);
    let id = deliver(&mut rig, &a);
    assert_eq!(rig.model.landed(id), 1);
    for number in 1..1_024 {
        let draft = key(&rig, number);
        deliver(&mut rig, &draft);
    }
    let repeat = deliver(&mut rig, &a);
    assert_eq!((rig.model.landed(repeat), rig.counts().deduplicated), (0, 1), "A is still a duplicate");
    assert_eq!((rig.counts().dedup_keys, rig.counts().dedup_evicted_early), (1_024, 0));

    let evicted_before = rig.counts().dedup_evicted_early;
    for number in 0..10_000 {
        let draft = rig.draft("device", &format!("cycle-{number}"));
        rig.accept(0, &draft);
        rig.turn();
        assert!(rig.counts().dedup_keys <= 1_024);
        rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false);
        rig.turn();
        assert_eq!(rig.take_failed(0).len(), 1);
    }
    // The first of the cycles needs the room of one key, A's as the oldest; what is released makes room for the next.
    assert_eq!(rig.counts().dedup_evicted_early - evicted_before, 1);
    assert_eq!(rig.counts().dedup_keys, 1_023);
    let newest = key(&rig, 1_023);
    let repeat = deliver(&mut rig, &newest);
    assert_eq!(rig.model.landed(repeat), 0, "the settled keys were not pushed out by the cycles");
    rig.finish();
}

/// D4: ttl 10 s, the same key each second for 30 s → delivered at 0, 10, 20, 30 s; 27 duplicates.
#[test]
fn d4_the_time_to_live_runs_from_the_first_acceptance() {
    let mut config = small_config();
    config.dedup.ttl = Duration::from_secs(10);
    let mut rig = Rig::new(&config, 1);
    let draft = rig.draft("device", "fence");
    let mut delivered_at = Vec::new();
    for second in 0..=30 {
        let id = deliver(&mut rig, &draft);
        if rig.model.landed(id) == 1 {
            delivered_at.push(second);
        }
        rig.clock.advance_ms(1_000);
    }
    assert_eq!(delivered_at, [0, 10, 20, 30]);
    assert_eq!(rig.counts().deduplicated, 27);
    rig.finish();
}

/// D5's sibling at this level: keys whose parts look alike when joined are different keys; all are delivered.
#[test]
fn d5_keys_that_look_alike_are_all_delivered() {
    let mut rig = Rig::new(&small_config(), 1);
    let now = rig.clock.wall_ms();
    let pairs = [("a:b", "c"), ("a", "b:c"), ("a", "bc"), ("ab", "c"), ("abc", "abc"), ("a\0b", "c"), ("a", "\0b\0c")];
    let mut drafts: Vec<Draft> = pairs.map(|(device, fence)| Draft::new(device, fence, now)).to_vec();
    // The same place, another state; the same state, another second.
    drafts.push(Draft { state: fencepost::trigger::State::Exit, ..drafts[0].clone() });
    drafts.push(Draft { event_time_ms: now - 1_000, ..drafts[0].clone() });
    for draft in &drafts {
        let id = deliver(&mut rig, draft);
        assert_eq!(rig.model.landed(id), 1, "{draft:?}");
    }
    // The same second, another millisecond: the same key.
    let repeat = deliver(&mut rig, &Draft { event_time_ms: now - now % 1_000 + 999, ..drafts[0].clone() });
    assert_eq!(rig.model.landed(repeat), 0);
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().deduplicated), (drafts.len() as u64, 1));
}

/// D7: original pending on ingress 1, its repeat on ingress 2, broker slow → ingress 2's watermark waits for the
/// original's outcome.
#[test]
fn d7_a_repeat_waits_for_its_original_on_another_ingress() {
    let mut rig = Rig::new(&small_config(), 1);
    let other = rig.add_caller();
    let draft = rig.draft("device", "fence");
    rig.accept(0, &draft);
    rig.turn();
    rig.accept(other, &draft);
    for _ in 0..10 {
        rig.clock.advance_ms(1_000); // longer than the ttl: a pending key does not expire
        rig.turn();
        assert_eq!((rig.settled(0), rig.settled(other)), (0, 0));
        assert_eq!(rig.counts().in_flight, 2);
    }
    rig.broker().ack_all();
    rig.turn();
    assert_eq!((rig.settled(0), rig.settled(other)), (1, 1));
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().deduplicated), (1, 1));
}

/// A repeat of a trigger that fails, fails with it, on its own ingress; then the key is free.
#[test]
fn repeats_fail_as_their_original_does() {
    let mut rig = Rig::new(&small_config(), 1);
    let other = rig.add_caller();
    let draft = rig.draft("device", "fence");
    for caller in [0, other, other, 0] {
        rig.accept(caller, &draft);
    }
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 1, "the repeats are not sent");
    rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false);
    rig.turn();
    assert_eq!((rig.counts().failed, rig.counts().deduplicated), (4, 0));
    assert_eq!((rig.settled(0), rig.settled(other)), (0, 0));
    let (mine, theirs) = (rig.take_failed(0), rig.take_failed(other));
    for taken in [&mine, &theirs] {
        let mut seqs: Vec<u64> = taken.iter().map(|failed| failed.seq.0).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, [1, 2]);
        assert!(taken.iter().all(|failed| failed.reason == FailedReason::Refused { code: TOO_LARGE }));
    }
    assert_eq!((rig.settled(0), rig.settled(other)), (2, 2));
    let again = deliver(&mut rig, &draft);
    assert_eq!(rig.model.landed(again), 1);
    rig.finish();
}

/// D10: 1,000,001 keys while the oldest are still pending (broker slow) → no pending key evicted; its repeats still wait
/// on it. With the default capacity, 1,000,000.
#[test]
fn d10_no_pending_key_is_evicted() {
    const PENDING: usize = 1_000;
    let mut config = Config::default();
    config.queue.ingresses = 1;
    assert_eq!(config.dedup.capacity, 1_000_000);
    let mut rig = Rig::new(&config, 2);
    {
        let mut state = rig.broker().state();
        (state.acks_by_itself, state.keeps_log) = (true, false);
        state.stalled.push(0);
    }
    let slow = rig.devices_of(0, "slow", PENDING);
    let quick = rig.devices_of(1, "quick", 1).remove(0);
    let now = rig.clock.wall_ms();
    let trigger = |rig: &mut Rig, device: &str, fence: &str| {
        rig.callers[0].ingress.submit(&crate::support::rig::bare(device, fence, now)).expect("there is room");
    };
    for device in &slow {
        trigger(&mut rig, device, "fence");
    }
    for number in 0..1_000_001 - PENDING {
        trigger(&mut rig, &quick, &number.to_string());
        if number % 256 == 0 {
            rig.turn_unchecked();
        }
    }
    while rig.counts().in_rings > 0 {
        rig.turn_unchecked();
    }
    rig.turn_unchecked();
    let before = rig.counts();
    assert!(before.add_up(), "{before}");
    assert_eq!((before.in_flight, before.delivered), (PENDING as u64, 1_000_001 - PENDING as u64));
    assert_eq!((before.dedup_keys, before.dedup_evicted_early), (1_000_000, 1), "one settled key went");
    for device in &slow {
        trigger(&mut rig, device, "fence");
    }
    for _ in 0..10 {
        rig.turn_unchecked();
    }
    let waiting = rig.counts();
    assert_eq!((waiting.in_flight, waiting.delivered), (2 * PENDING as u64, before.delivered), "repeats wait");
    assert_eq!(rig.broker().in_flight(), PENDING);
    rig.broker().state().stalled.clear();
    rig.turn_unchecked();
    let after = rig.counts();
    assert_eq!((after.delivered, after.deduplicated, after.in_flight), (1_000_001, PENDING as u64, 0));
    assert_eq!(rig.settled(0), after.accepted);
    rig.shards[0].check();
}

/// A window of more keys than the caches hold is read ahead, a group of triggers at a time. What is decided is the same:
/// batches shorter than a group, of just a group and longer, with repeats in the same group, in the same batch, and of
/// what has settled.
#[test]
fn a_window_that_is_read_ahead_decides_the_same() {
    let mut config = small_config();
    config.dedup.capacity = 1 << 18;
    let mut rig = Rig::new(&config, 3);
    let (mut fresh, mut repeats, mut number) = (0, 0, 0);
    for length in [1_u32, 31, 32, 33, 63, 64, 65, 200] {
        for at in 0..length {
            let is_repeat = at % 5 == 4;
            number += u32::from(!is_repeat);
            let draft = key(&rig, number);
            rig.accept(0, &draft);
            if is_repeat { repeats += 1 } else { fresh += 1 }
        }
        // One of the batch before, settled by now.
        let draft = key(&rig, 1);
        if number > 1 {
            rig.accept(0, &draft);
            repeats += 1;
        }
        rig.turn();
        rig.broker().ack_all();
        rig.turn();
    }
    rig.settle();
    let counts = rig.counts();
    assert_eq!((counts.delivered, counts.deduplicated), (fresh, repeats));
    rig.finish();
}
