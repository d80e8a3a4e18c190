//! What a hostile reader found in the diversion: each a way to lose, turn around or hold up triggers for good.

use crate::support::model::{Draft, trigger};
use crate::support::rig::{Death, Rig, small_config, spill_limits};
use fencepost::breaker::Cause;
use fencepost::hlc::Hlc;
use fencepost::ingress::Refused;
use fencepost::shard::shared::WarmBox;
use fencepost::shard::{Fences, Warm};
use fencepost::sink::{Fault, Persisted};
use fencepost::spill::SpillLimits;
use fencepost::spill::faulty::{FaultyDisk, Operation};
use fencepost::trigger::{Key, Reason};
use fencepost::units::{Nanos, PartitionId};
use fencepost::wire;
use std::sync::Arc;

const P0: PartitionId = PartitionId(0);
const UNAUTHORIZED: i32 = 29;
const TOO_LARGE: i32 = 10;

struct Only(&'static [u8]);

impl Fences for Only {
    fn has(&self, fence_id: &[u8]) -> bool {
        fence_id.starts_with(self.0)
    }
}

/// A commit that is made because its batch is full, and fails: what is ordered behind it is refused with it.
#[test]
fn what_follows_a_full_batch_that_failed_is_not_written_in_front_of_it() {
    let disk = FaultyDisk::new(1);
    let limits = SpillLimits { batch_bytes: 16 << 10, ..spill_limits(1) };
    let mut rig = Rig::with_disk(&small_config(), 1, limits, disk.clone());
    rig.shards[0].trip(P0, Cause::Lag);
    rig.pass_ms(10);
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        disk.set_likelihood(operation, 65_536);
    }
    for _ in 0..200 {
        let draft = rig.fresh("device");
        rig.accept(0, &draft);
    }
    rig.turn();
    disk.heal();
    rig.pass_ms(2_000);
    assert_eq!(rig.counts().spilled, 200, "{}", rig.counts());
    let mut ids = Vec::new();
    rig.each_frame_on_disk(|frame| ids.push(wire::decode(frame).unwrap().frame.partition_seq));
    assert!(ids.is_sorted(), "{ids:?}");
    (0..3).for_each(|_| rig.shards[0].good_read(P0));
    rig.finish();
}

/// A repeat that hangs on something that is in no line is nothing to probe with.
#[test]
fn a_repeat_of_what_waits_for_the_disk_does_not_hold_up_the_probe() {
    let disk = FaultyDisk::new(1);
    let mut rig = Rig::with_disk(&small_config(), 1, spill_limits(1), disk.clone());
    rig.submit_fresh("device", 1);
    rig.pass_ms(1_100);
    rig.submit_fresh("device", 5);
    rig.pass_ms(20);
    assert_eq!(rig.counts().spilled, 5);
    rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false);
    rig.pass_ms(20);
    assert_eq!(rig.counts().dead_lettered, 1, "{}", rig.counts());
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        disk.set_likelihood(operation, 65_536);
    }
    let draft = rig.fresh("device");
    rig.accept(0, &draft);
    rig.accept(0, &draft);
    rig.pass_ms(20);
    rig.broker().state().acks_by_itself = true;
    rig.pass_ms(30_000);
    let counts = rig.counts();
    assert_eq!((counts.delivered, counts.deduplicated, counts.in_flight), (6, 1, 0), "{counts}");
}

/// A partition refused, and then its only record in memory turned out to be poison: what lies on disk is read all the same.
#[test]
fn a_careful_line_that_ends_in_poison_goes_on_with_what_lies_on_disk() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.submit_fresh("device", 1);
    rig.shards[0].trip(P0, Cause::Lag);
    rig.submit_fresh("device", 10);
    rig.pass_ms(20);
    assert_eq!(rig.counts().spilled, 10);
    rig.broker().refuse(0, 0, 1, Fault::Partition(UNAUTHORIZED), Persisted::No, false);
    rig.turn();
    (0..3).for_each(|_| rig.shards[0].good_read(P0));
    rig.pass_ms(100);
    assert_eq!(rig.broker().in_flight(), 1, "one goes ahead");
    rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false);
    rig.broker().state().acks_by_itself = true;
    rig.pass_ms(500);
    let counts = rig.counts();
    assert_eq!((counts.delivered, counts.dead_lettered, counts.in_spill), (10, 1, 0), "{counts}");
    assert_eq!(counts.breakers_opened, 1, "by the test alone");
}

/// The disk died in an outage, with more waiting for it than a window holds: once the broker is back, all of it is
/// delivered from memory.
#[test]
fn a_dead_disk_does_not_keep_a_partition_from_a_broker_that_is_back() {
    for in_flight in [0, 1, 100] {
        let disk = FaultyDisk::new(1);
        let mut rig = Rig::with_disk(&small_config(), 1, spill_limits(1), disk.clone());
        if in_flight > 0 {
            rig.submit_fresh("device", in_flight);
        }
        rig.shards[0].trip(P0, Cause::Progress);
        for operation in [Operation::Write, Operation::Sync, Operation::Create] {
            disk.set_likelihood(operation, 65_536);
        }
        for _ in 0..8 {
            rig.submit_fresh("device", 50);
            rig.pass_ms(5);
        }
        rig.pass_ms(10_000);
        assert_eq!(rig.counts().in_flight, 400 + in_flight as u64, "the disk took nothing: {}", rig.counts());
        rig.broker().state().acks_by_itself = true;
        rig.pass_ms(30_000);
        let counts = rig.counts();
        assert_eq!((counts.delivered, counts.in_flight), (400 + in_flight as u64, 0), "{counts}");
        disk.heal();
        rig.finish();
    }
}

/// A record on disk is kept until it, or what it is a repeat of, is durable elsewhere.
#[test]
fn a_record_is_not_released_for_a_later_repeat_that_is_not_durable() {
    let disk = FaultyDisk::new(1);
    let mut config = small_config();
    config.dedup.ttl = std::time::Duration::from_secs(1);
    let mut rig = Rig::with_disk(&config, 1, spill_limits(1), disk.clone());
    rig.shards[0].trip(P0, Cause::Lag);
    let first = rig.draft("device", "old");
    rig.accept(0, &first);
    rig.submit_fresh("device", 1);
    rig.pass_ms(2_000);
    assert_eq!(rig.counts().spilled, 2);
    // The fence is gone, and the trigger comes again; its dead letter is taken by nobody.
    rig.common.shared().set_fences(Some(Arc::new(Only(b"fence"))));
    rig.letters.state().is_away = true;
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        disk.set_likelihood(operation, 65_536);
    }
    rig.pass_ms(10);
    rig.accept(0, &Draft { ..first.clone() });
    rig.pass_ms(10);
    (0..3).for_each(|_| rig.shards[0].good_read(P0));
    rig.broker().state().acks_by_itself = true;
    rig.pass_ms(1_000);
    disk.heal();
    rig.letters.state().is_away = true;
    let landed = rig.log_ids();
    let mut kept = Vec::new();
    rig.pass_ms(100);
    rig.each_frame_on_disk(|frame| kept.push(wire::decode(frame).unwrap().frame.partition_seq));
    assert!(landed.contains(&0) || kept.contains(&1), "landed {landed:?}, on disk {kept:?}");
}

/// A start takes a record on disk for one in the topic by its number; so a trigger that never had its turn has none that
/// another one has, whoever publishes its dead letter later.
#[test]
fn a_dead_letter_has_no_number_that_a_record_of_the_topic_has() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.common.shared().set_fences(Some(Arc::new(Only(b"known"))));
    rig.pass_ms(10);
    let unknown = rig.draft("device", "unknown");
    rig.accept(0, &unknown);
    let known = rig.draft("device", "known");
    rig.accept(0, &known);
    rig.finish();
    let number = |value: &[u8]| wire::decode(value).unwrap().frame.partition_seq;
    let letters: Vec<u64> = rig.letters.state().log.iter().map(|(value, _)| number(value)).collect();
    let records: Vec<u64> = rig.broker().state().log.iter().map(|record| number(&record.value)).collect();
    assert_eq!((letters.len(), records), (1, vec![1]));
    assert!(letters[0] != 1, "{letters:?}");
}

/// While nobody takes dead letters, the disk thread sleeps.
#[test]
fn a_full_desk_is_no_work() {
    let disk = FaultyDisk::new(1);
    let mut rig = Rig::with_disk(&small_config(), 1, spill_limits(1), disk.clone());
    rig.letters.state().is_away = true;
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        disk.set_likelihood(operation, 65_536);
    }
    let bytes = vec![b'x'; 8 << 10];
    for _ in 0..400 {
        if rig.callers[0].ingress.dead_letter_raw(&bytes, "malformed", "").is_err() {
            rig.clock.advance_ms(5);
            rig.turn_unchecked();
        }
    }
    let mut worked = 0;
    for _ in 0..100 {
        rig.clock.advance_ms(1);
        let now = fencepost::clock::Clock::mono(&rig.clock);
        worked += u32::from(rig.keeper.as_mut().unwrap().turn(now));
    }
    assert!(worked < 50, "{worked} of 100 turns say that they did something");
}

/// A start without its broker stamps above what was found on disk from the first trigger on.
#[test]
fn s6_a_cold_start_stamps_above_what_lies_on_disk() {
    let mut rig = Rig::spilling(&small_config(), 1);
    let highest = Hlc::new(rig.clock.wall_ms() as u64 + 3_600_000, 7);
    rig.shards[0].set_cold(Arc::default(), highest);
    rig.submit_fresh("device", 3);
    rig.pass_ms(20);
    assert_eq!(rig.counts().spilled, 3);
    let mut stamps = Vec::new();
    rig.each_frame_on_disk(|frame| stamps.push(wire::decode(frame).unwrap().frame.hlc));
    assert!(stamps.iter().all(|stamp| *stamp > highest), "{stamps:?}, not above {highest:?}");
}

/// S6 with the broker away at the next start: the topic's tail is not known, and the wall clock is an hour back. What the
/// last run stamped is below the file of offsets' ceiling, and that is what the cold start stamps above; also one after
/// another cold start, which stamped nothing, and one whose last run saw the wall clock step forward just before its end.
#[test]
fn s6_a_cold_start_with_the_wall_an_hour_back_stamps_above_the_last_life() {
    for forward_s in [0, 3, 7_200] {
        let mut rig = Rig::spilling(&small_config(), 1);
        for _ in 0..30 {
            rig.submit_fresh("device", 1);
            rig.pass_ms(100);
            rig.broker().ack_all();
        }
        rig.clock.step_wall(forward_s * 1_000_000);
        rig.pass_ms(21); // a submit reads the wall clock every 20 ms
        rig.submit_fresh("device", 1);
        rig.turn();
        rig.broker().ack_all();
        rig.turn();
        rig.read_logs();
        let of_topic: Vec<Hlc> =
            rig.broker().state().log.iter().map(|record| wire::decode(&record.value).unwrap().frame.hlc).collect();
        assert_eq!((of_topic.len(), rig.settled(0)), (31, 31));
        let highest = *of_topic.iter().max().unwrap();
        // Nothing lies on disk: the file of offsets alone knows of those stamps.
        rig.clock.step_wall(-(forward_s + 3_600) * 1_000_000);
        rig.restart_cold(Nanos::from_millis(1_000));
        rig.pass_ms(2_000);
        rig.restart_cold(Nanos::from_millis(1_000));
        rig.submit_fresh("device", 3);
        rig.pass_ms(20);
        let mut stamps = Vec::new();
        rig.each_frame_on_disk(|frame| stamps.push(wire::decode(frame).unwrap().frame.hlc));
        assert_eq!(stamps.len(), 3);
        assert!(stamps.iter().all(|stamp| *stamp > highest), "{stamps:?}, not above {highest:?}");
        let ahead_ms = stamps.iter().map(|stamp| stamp.ms().0).max().unwrap() - highest.ms().0;
        assert!(ahead_ms <= 6_000, "{ahead_ms} ms above the last life, more than the margin");
        // The model checks the stamps of each device once they land.
        rig.host.thaw();
        rig.broker().state().acks_by_itself = true;
        rig.finish();
        assert_eq!(rig.broker().state().log.len(), 34);
    }
}

/// A start that reads the topic stamps above what it holds, and not by the ceiling's margin more.
#[test]
fn s6_a_start_that_reads_the_topic_does_not_run_ahead_by_the_margin() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.submit_fresh("device", 1);
    rig.turn();
    rig.broker().ack_all();
    rig.pass_ms(1_500);
    rig.restart(Death::Process, Nanos::from_millis(100), |_, _| 0);
    let wall = rig.clock.wall_ms();
    rig.submit_fresh("device", 1);
    rig.turn();
    rig.broker().ack_all();
    rig.turn();
    let newest =
        rig.broker().state().log.iter().map(|record| wire::decode(&record.value).unwrap().frame.hlc.ms()).max();
    assert_eq!(newest.map(|ms| ms.0), Some(wall));
}

/// D8 with the broker away at start: what was sent again before the topic could be read meets what the topic holds.
#[test]
fn d8_what_is_sent_again_to_a_cold_start_meets_what_the_topic_holds() {
    for is_synced in [true, false] {
        let mut rig = Rig::spilling(&small_config(), 1);
        let warm = Arc::new(WarmBox::default());
        rig.shards[0].set_cold(Arc::clone(&warm), Hlc::ZERO);
        rig.pass_ms(10);
        let draft = rig.fresh("device");
        rig.accept(0, &draft);
        if is_synced {
            rig.pass_ms(20);
            assert_eq!(rig.counts().spilled, 1);
        } else {
            rig.turn();
        }
        // It landed before the last run ended, and nobody was told.
        let known = draft.clone();
        let keys = move |each: &mut dyn FnMut(Key<'_>)| each(trigger(&known, &[0; 8]).key());
        warm.put(Warm { keys: Box::new(keys), ..Warm::nothing() });
        rig.broker().state().acks_by_itself = true;
        rig.pass_ms(1_000);
        let counts = rig.counts();
        assert_eq!((counts.delivered, counts.deduplicated, counts.in_spill), (0, 1, 0), "{is_synced}: {counts}");
        assert_eq!(rig.settled(0), 1);
        // Its time runs from then on, and ends.
        rig.pass_ms(11_000);
        rig.accept(0, &draft);
        rig.pass_ms(100);
        assert_eq!(rig.counts().delivered, 1, "{is_synced}: {}", rig.counts());
    }
}

/// Bytes that no dead letter may have are rejected: waiting for room would not end.
#[test]
fn bytes_that_no_dead_letter_may_have_are_rejected() {
    let mut rig = Rig::spilling(&small_config(), 1);
    let ingress = &mut rig.callers[0].ingress;
    for (bytes, is_taken) in [(65_536, true), (65_537, false), (1 << 20, false)] {
        let answer = ingress.dead_letter_raw(&vec![b'x'; bytes], "malformed", "");
        let is_rejected = matches!(answer, Err(Refused::Rejected(Reason::FrameTooLarge { .. })));
        assert_eq!((answer.is_ok(), is_rejected), (is_taken, !is_taken), "{bytes}: {answer:?}");
    }
}
