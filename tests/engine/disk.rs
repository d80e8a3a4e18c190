//! The disk under a diversion: full, rotten, or with more to remember than it has room for.

use crate::support::model::Draft;
use crate::support::rig::{Death, Rig, SPILL_DIR, small_config, spill_limits};
use fencepost::breaker::Cause;
use fencepost::clock::Clock;
use fencepost::ingress::{Refused, ShedWhy};
use fencepost::sink::{Fault, Persisted};
use fencepost::spill::SpillLimits;
use fencepost::spill::faulty::{FaultyDisk, Operation};
use fencepost::trigger::Priority;
use fencepost::units::{Nanos, PartitionId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const P0: PartitionId = PartitionId(0);
const SHORT: Nanos = Nanos::from_millis(2_000);
const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

/// The smallest spill that has a reserve for what these tests accept.
fn tiny(partitions: u32) -> SpillLimits {
    SpillLimits {
        limit_bytes: 2 << 20,
        reserve_bytes: 256 << 10,
        partition_bytes: 2 << 20,
        segment_bytes: 128 << 10,
        batch_bytes: 32 << 10,
        record_bytes: 1_024,
        marks: 64,
        ..SpillLimits::new(partitions)
    }
}

/// Offers one of each priority. Says which were taken.
fn offer(rig: &mut Rig, device: &str) -> [Result<(), Refused>; 3] {
    PRIORITIES.map(|priority| {
        let draft = Draft { priority, ..rig.fresh(device) };
        rig.submit(0, &draft).map(|_| ())
    })
}

/// W6: the volume is full while spilling, by its own limit or by somebody else's files. What was accepted is settled
/// within the reserve; the partition is shed by priority, with its own reason, and no other is; after space is freed it is
/// taken again within a second.
#[test]
fn w6_a_full_volume_sheds_by_priority_and_recovers() {
    for by_others in [false, true] {
        let disk = FaultyDisk::new(1);
        let mut rig = Rig::with_disk(&small_config(), 2, tiny(2), disk.clone());
        let devices = [0, 1].map(|partition| rig.devices_of(partition, "device", 1).remove(0));
        rig.submit_fresh(&devices[0], 1);
        rig.pass_ms(1_100);
        let no_space = Err(Refused::Shed(ShedWhy::SpillNoSpace));
        let mut shed_first = [None; 3];
        for round in 0..40_000 {
            if by_others && round == 200 {
                disk.set_capacity(disk.used());
            }
            for (answer, first) in offer(&mut rig, &devices[0]).into_iter().zip(&mut shed_first) {
                if answer.is_err() {
                    assert_eq!(answer, no_space, "round {round}");
                    first.get_or_insert(round);
                }
            }
            if round % 8 == 0 {
                rig.clock.advance_ms(5);
                rig.turn_unchecked();
            }
            if shed_first[2].is_some() {
                break;
            }
        }
        let [low, normal, high] = shed_first.map(|round| round.expect("in the end all are shed"));
        assert!(low <= normal && normal < high, "{low}, {normal}, {high}");
        rig.pass_ms(100);
        let counts = rig.counts();
        assert_eq!((counts.in_flight, counts.in_rings, counts.failed), (0, 0, 0), "the reserve takes it: {counts}");
        assert_eq!(rig.settled(0), rig.callers[0].ids.len() as u64);
        assert_eq!(rig.common.shard_pages[0].refused_spills.get(), 0, "nothing that was accepted was refused");
        // The other partition is not shed.
        assert_eq!(offer(&mut rig, &devices[1]), [Ok(()); 3]);
        if by_others {
            disk.set_capacity(u64::MAX / 2);
        } else {
            // Its own limit: draining frees it.
            rig.broker().state().acks_by_itself = true;
            let full = rig.counts().in_spill;
            while rig.counts().in_spill > full / 2 {
                rig.pass_ms(5);
            }
        }
        rig.pass_ms(1_000);
        assert_eq!(offer(&mut rig, &devices[0]), [Ok(()); 3], "within a second; by others: {by_others}");
        rig.finish();
        assert!(rig.log_ids_of(0).is_sorted());
    }
}

/// Where the record of a trigger lies: its file, and an offset within its frame. Looked for in the files, since what the
/// spill has read it may know still.
fn place_of(rig: &Rig, id: u64) -> (PathBuf, u64) {
    let fence = format!("fence-{id}");
    for (path, _) in rig.disk.files() {
        let content = rig.disk.content(&path);
        let ends = |at: usize| !content[at + fence.len()].is_ascii_digit();
        let mut places = content.windows(fence.len()).enumerate().filter(|(_, window)| *window == fence.as_bytes());
        if path.starts_with(Path::new(SPILL_DIR))
            && let Some((at, _)) = places.find(|(at, _)| ends(*at))
        {
            return (path, at as u64);
        }
    }
    panic!("submit {id} is in no file");
}

/// A byte under a parked record flips, while the router runs or while it is down: the record is counted as corrupt, once,
/// the sum holds, and those around it are delivered.
#[test]
fn a_lost_record_is_counted_once_and_the_sum_holds() {
    for (is_down, is_shadow) in [(false, false), (true, false), (true, true)] {
        let mut rig = Rig::spilling(&small_config(), 1);
        rig.submit_fresh("device", 5);
        rig.pass_ms(1_100);
        rig.submit_fresh("device", 20);
        rig.pass_ms(50);
        assert_eq!(rig.settled(0), 25);
        let lost: &[u64] = if is_shadow { &[2, 3] } else { &[10, 24] };
        for &id in lost {
            let (path, at) = place_of(&rig, id);
            rig.disk.flip(&path, at, 0x40);
            rig.model.damage(id);
        }
        if is_down {
            rig.restart(Death::Process, SHORT, |_, _| 0);
            assert_eq!((rig.counts().recovered, rig.counts().corrupt), (25, 2), "known at once");
        }
        rig.finish();
        let counts = rig.counts();
        assert_eq!((counts.corrupt, counts.delivered), (2, 23), "{counts}");
        let kept: Vec<u64> = (0..25).filter(|id| !lost.contains(id)).collect();
        assert_eq!(rig.log_ids(), kept, "down: {is_down}");
        // And once is once.
        rig.pass_ms(20);
        rig.restart(Death::Process, SHORT, |_, _| 0);
        assert_eq!((rig.counts().recovered, rig.counts().corrupt), (0, 0));
        rig.finish();
    }
}

/// A spill of 201 records that has room for so many marks, being drained. The first is refused for itself, and its dead
/// letter is not durable: its record stays in front of all others.
fn with_a_head_that_stays(marks: usize) -> Rig {
    let mut config = small_config();
    config.dedup.ttl = Duration::from_secs(600);
    // All of it before the dead letter has waited so long that it is written to the disk.
    config.breaker.reset = Duration::from_millis(300);
    let mut rig = Rig::with_disk(&config, 1, SpillLimits { marks, ..spill_limits(1) }, FaultyDisk::new(3));
    rig.submit_fresh("poison", 1);
    rig.pass_ms(1_100);
    rig.submit_fresh("device", 200);
    rig.pass_ms(50);
    rig.letters.state().is_away = true;
    rig.broker().refuse(0, 0, 1, Fault::Frame(10), Persisted::No, false);
    rig
}

/// More is done with out of its turn than the disk can remember: what is not marked is found again after a crash, and
/// looked up in the topic; nothing is sent twice, nothing is counted twice.
#[test]
fn marks_beyond_their_room_cost_a_look_and_nothing_else() {
    for (death, marks) in [(Death::Process, 16), (Death::Machine, 16), (Death::Process, 0)] {
        let mut rig = with_a_head_that_stays(marks);
        rig.turn();
        for _ in 0..400 {
            rig.pass_ms(5);
            rig.broker().ack_all();
            if rig.counts().delivered == 100 {
                break;
            }
        }
        rig.broker().ack_all();
        rig.pass_ms(100);
        let delivered = rig.counts().delivered;
        assert!(delivered >= 100, "{}", rig.counts());
        assert_eq!(rig.spill().partition(P0).released, 0);
        assert_eq!(rig.spill().marked(P0), marks as u64);
        rig.restart(death, SHORT, |_, _| 0);
        let counts = rig.counts();
        assert_eq!((counts.recovered, counts.corrupt), (201 - marks as u64, 0), "{counts}");
        rig.letters.state().is_away = false;
        rig.finish();
        assert_eq!(rig.common.shard_pages[0].found_in_topic.get(), delivered - marks as u64);
        let mut ids = rig.log_ids();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rig.log_ids().len(), "nothing twice");
        assert_eq!(ids.len() as u64 + rig.model.buried(), 201);
    }
}

/// The marks are full and then the head is done with: everything is released, and the spill is empty.
#[test]
fn what_found_no_mark_is_released_with_what_held_it() {
    let mut rig = with_a_head_that_stays(16);
    rig.broker().state().acks_by_itself = true;
    rig.pass_ms(1_000);
    assert_eq!((rig.counts().delivered, rig.spill().partition(P0).released), (200, 0));
    let keeper = rig.keeper.as_mut().expect("there is a disk");
    assert_eq!(keeper.spilling().expect("and a spill").waiting_marks(), 16, "memory for no more than there are marks");
    rig.letters.state().is_away = false;
    rig.finish();
    rig.pass_ms(20);
    assert_eq!(rig.spill().partition(P0).released, 201);
    assert_eq!((rig.spill().records(), rig.spill().marked(P0)), (0, 0));
}

/// The disk on a thread of its own, as in a router: while one partition's records come back, others are still being
/// written, and the shard hears of each record that it is durable before it gets it back.
#[test]
fn news_of_a_record_comes_before_the_record() {
    let mut config = small_config();
    config.inflight.partition = 64;
    config.dedup.ttl = Duration::from_secs(600);
    config.dedup.capacity = 100_000;
    let mut rig = Rig::with_disk(&config, 8, spill_limits(8), FaultyDisk::new(5));
    let devices: Vec<String> = (0..8).map(|partition| rig.devices_of(partition, "device", 1).remove(0)).collect();
    rig.broker().state().acks_by_itself = true;
    let (is_done, clock) = (Arc::new(AtomicBool::new(false)), rig.clock.clone());
    let mut keeper = rig.keeper.take().expect("there is a disk");
    let asked = Arc::clone(&is_done);
    let thread = std::thread::spawn(move || {
        // Relaxed: the thread is joined before anything of it is looked at.
        while !asked.load(Ordering::Relaxed) {
            keeper.turn(clock.mono());
        }
        keeper
    });
    for round in 0..8_000_usize {
        for device in &devices {
            let draft = rig.fresh(device);
            // What is shed is not missed here.
            let _ = rig.submit(0, &draft);
        }
        let partition = PartitionId((round / 3 % 8) as u32);
        match round % 3 {
            0 => rig.shards[0].trip(partition, Cause::Lag),
            1 => (0..8).for_each(|partition| (0..3).for_each(|_| rig.shards[0].good_read(PartitionId(partition)))),
            _ => {}
        }
        rig.clock.advance_ms(5);
        rig.shards[0].turn();
        rig.shards[0].check();
    }
    is_done.store(true, Ordering::Relaxed);
    rig.keeper = Some(thread.join().expect("the disk's thread ends"));
    assert!(rig.counts().drained > 1_000, "{}", rig.counts());
    rig.finish();
}

/// What waits for a disk that takes nothing more has as many slots as it can get, from rings that were full; what lies
/// on that disk comes back all the same once the brokers answer, and then the rest follows it.
#[test]
fn what_waits_for_a_disk_leaves_room_for_what_comes_back_from_it() {
    for partitions in [1, 8] {
        let mut rig = Rig::spilling(&small_config(), partitions);
        for _ in 1..4 {
            rig.add_caller();
        }
        // A device is one caller's.
        let of_partitions: Vec<Vec<String>> =
            (0..partitions).map(|partition| rig.devices_of(partition, "device", 4)).collect();
        for wait_ms in [1_100, 0] {
            for devices in &of_partitions {
                rig.submit_fresh(&devices[0], 40);
            }
            rig.pass_ms(wait_ms);
        }
        rig.pass_ms(100);
        assert_eq!(rig.counts().in_flight, 0, "all of it lies on the disk");
        let parked = rig.counts().in_spill;
        rig.disk.set_likelihood(Operation::Write, 65_536);
        for caller in 0..4 {
            for devices in of_partitions.iter().cycle() {
                let draft = rig.fresh(&devices[caller]);
                if rig.submit(caller, &draft).is_err() {
                    break;
                }
            }
        }
        rig.pass_ms(200);
        let counts = rig.counts();
        let stalled = rig.common.shard_pages[0].stalled_turns.get();
        assert!(counts.in_rings > 0 && stalled > 0, "the rings held more than there are slots: {counts}");
        rig.broker().state().acks_by_itself = true;
        for _ in 0..200 {
            rig.pass_ms(50);
            if rig.counts().in_rings + rig.counts().in_flight == 0 {
                break;
            }
        }
        let counts = rig.counts();
        assert_eq!((counts.in_spill, counts.in_rings, counts.in_flight), (0, 0, 0), "of {parked} on disk: {counts}");
        rig.finish();
    }
}

/// A router that starts on a full spill, warm or cold, sheds what it would spill from the first submit on: not one is
/// accepted for which there is no room. With the brokers back it is drained, and taken again.
#[test]
fn a_full_spill_sheds_from_the_first_submit_after_a_start() {
    for is_cold in [false, true] {
        let mut rig = Rig::with_disk(&small_config(), 1, tiny(1), FaultyDisk::new(1));
        rig.submit_fresh("device", 1);
        rig.pass_ms(1_100);
        while offer(&mut rig, "device")[2].is_ok() {
            rig.clock.advance_ms(5);
            rig.turn_unchecked();
        }
        rig.pass_ms(100);
        if is_cold {
            rig.restart_cold(SHORT);
        } else {
            rig.restart(Death::Process, SHORT, |_, _| 0);
        }
        assert_eq!(offer(&mut rig, "device"), [Err(Refused::Shed(ShedWhy::SpillNoSpace)); 3], "cold: {is_cold}");
        if is_cold {
            rig.thaw();
        }
        rig.broker().state().acks_by_itself = true;
        rig.pass_ms(2_000);
        assert_eq!(offer(&mut rig, "device"), [Ok(()); 3], "cold: {is_cold}");
        rig.finish();
    }
}
