//! Pressure: what is shed, what waits, and that one partition's trouble stays its own.

use crate::support::model::Draft;
use crate::support::rig::{Rig, bare, small_config};
use fencepost::config::Config;
use fencepost::ingress::{Refused, ShedWhy};
use fencepost::ring::Pressure;
use fencepost::sink::{Fault, Persisted};
use fencepost::trigger::{Priority, Reason, Trigger};
use std::collections::HashSet;

const POLICY_VIOLATION: i32 = 44;

fn fresh(rig: &Rig, device: &str) -> Draft {
    rig.draft(device, &format!("fence-{}", rig.model.next_id()))
}

/// P2: 200,000 submits before the first broker connection exists → accepted up to the bound, then shed; all accepted are
/// delivered.
#[test]
fn p2_submits_before_the_first_connection() {
    let config = Config::default();
    let mut rig = Rig::new(&config, 12);
    rig.broker().state().is_away = true;
    let (mut accepted, mut shed) = (0_usize, 0);
    for number in 0..200_000 {
        let draft = fresh(&rig, &format!("device-{}", number % 5_000));
        match rig.submit(0, &draft) {
            Ok(_) => accepted += 1,
            Err(Refused::Shed(ShedWhy::PartitionBlocked | ShedWhy::Queue)) => shed += 1,
            Err(other) => panic!("{other}"),
        }
        if number % 200 == 0 {
            rig.turn_unchecked();
        }
    }
    rig.check();
    let bound = config.inflight.total + config.inflight.waiting + config.queue.capacity;
    assert!(shed > 0 && accepted <= bound, "{accepted} accepted, {shed} shed, bound {bound}");
    assert!(accepted > 12 * config.inflight.partition / 2, "{accepted} accepted");
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().failed), (accepted as u64, 0));
}

/// P3: ring filled with Low, then 20 High → Low is shed first, 0 High shed until full; the total bound holds.
#[test]
fn p3_low_priority_is_shed_first() {
    let mut config = small_config();
    config.queue.capacity = 1_000;
    let mut rig = Rig::new(&config, 1);
    let submit = |rig: &mut Rig, priority| {
        let draft = Draft { priority, ..fresh(rig, "device") };
        rig.submit(0, &draft)
    };
    let shed = Err(Refused::Shed(ShedWhy::Queue));
    let mut low = 0;
    while let Ok(accepted) = submit(&mut rig, Priority::Low) {
        low += 1;
        assert_eq!(accepted.pressure == Pressure::SlowDown, low >= 700, "asked to pace from 700 on, at {low}");
    }
    assert_eq!(low, 800);
    for _ in 0..20 {
        assert!(submit(&mut rig, Priority::High).is_ok());
    }
    assert_eq!(submit(&mut rig, Priority::Low), shed);
    for _ in 820..900 {
        assert!(submit(&mut rig, Priority::Normal).is_ok());
    }
    assert_eq!(submit(&mut rig, Priority::Normal), shed);
    for _ in 900..1_000 {
        assert!(submit(&mut rig, Priority::High).is_ok());
    }
    assert_eq!(submit(&mut rig, Priority::High), shed, "full");
    assert_eq!(rig.counts().in_rings, 1_000);
    rig.check();
    rig.finish();
    assert_eq!(rig.counts().delivered, 1_000);
}

/// P4: the broker answers policy-violation 10 times, then success → delivered; 0 failed but `would_reorder` ones, and
/// those only if later frames had landed.
#[test]
fn p4_a_policy_violation_is_tried_again() {
    let mut rig = Rig::new(&small_config(), 1);
    let first = fresh(&rig, "device");
    let first = rig.accept(0, &first);
    let mut refusals = 0;
    // After the grace the breaker leaves it at one try in five seconds.
    for _ in 0..60_000 {
        rig.turn();
        if rig.broker().in_flight() > 0 {
            if refusals < 10 {
                rig.broker().refuse(0, 0, 1, Fault::Partition(POLICY_VIOLATION), Persisted::No, false);
                refusals += 1;
            } else {
                rig.broker().ack_all();
            }
        }
        rig.clock.advance_ms(1);
    }
    assert_eq!((refusals, rig.model.landed(first)), (10, 1));
    assert_eq!((rig.counts().failed, rig.counts().refused_batches), (0, 10));

    // With a later frame of the same device behind the refused one, which the client then lands.
    let (early, other, late) = (fresh(&rig, "device"), fresh(&rig, "other"), fresh(&rig, "device"));
    let early = rig.accept(0, &early);
    let other = rig.accept(0, &Draft { fence: "o".into(), ..other });
    rig.accept(0, &Draft { fence: "l".into(), ..late });
    rig.turn();
    rig.broker().refuse(0, 0, 2, Fault::Partition(POLICY_VIOLATION), Persisted::No, false);
    rig.turn();
    rig.broker().ack(0, 1);
    rig.finish();
    assert_eq!((rig.counts().failed, rig.counts().would_reorder), (1, 1));
    assert_eq!((rig.model.landed(early), rig.model.landed(other)), (0, 1));
}

/// The settle times of three partitions over 0.8 s at 50,000/s while the fourth stalls or does not: count and longest.
fn others_while_one_stalls(stalls: bool) -> (u64, u64, u64) {
    let mut rig = Rig::new(&Config::default(), 4);
    let devices: Vec<Vec<String>> = (0..4).map(|partition| rig.devices_of(partition, "device", 50)).collect();
    for step in 0..800_usize {
        for number in 0..50 {
            let draft = fresh(&rig, &devices[number % 4][(step + number) % 50]);
            rig.accept(0, &draft);
        }
        rig.turn();
        rig.clock.advance_ms(1);
        // An acknowledgement takes 2 ms: it comes with the turn after next.
        for partition in usize::from(stalls)..4 {
            let in_flight = rig.broker().in_flight_of(partition as u32);
            rig.broker().ack(partition as u32, in_flight.saturating_sub(12));
        }
    }
    let settle = rig.common.shard_pages[0].settle.snapshot();
    let shed = rig.counts().shed;
    rig.finish();
    (settle.count(), settle.max().0, shed)
}

/// P8: one partition of a shard stalls for 0.8 s at full rate → the others of the shard: nothing shed, their times
/// unmoved.
#[test]
fn p8_one_stalled_partition_leaves_the_others_alone() {
    let (all, calm, calm_shed) = others_while_one_stalls(false);
    let (others, stalled, stalled_shed) = others_while_one_stalls(true);
    assert_eq!((calm_shed, stalled_shed), (0, 0));
    assert!(others > all * 7 / 10 && others < all, "{others} of {all}");
    assert_eq!(stalled, calm, "the longest time of the others, in nanoseconds");
    assert!(calm <= 5_000_000);
}

/// A window that is full blocks its partition and no other; once it drains, submits are taken again.
#[test]
fn a_full_window_blocks_its_partition_only() {
    let mut config = small_config();
    config.inflight.partition = 64;
    let mut rig = Rig::new(&config, 3);
    let devices: Vec<String> = (0..3).map(|partition| rig.devices_of(partition, "device", 1).remove(0)).collect();
    let mut shed = None;
    for _ in 0..200 {
        let draft = fresh(&rig, &devices[1]);
        if let Err(refused) = rig.submit(0, &draft) {
            shed = Some(refused);
            break;
        }
        rig.turn();
    }
    assert_eq!(shed, Some(Refused::Shed(ShedWhy::PartitionBlocked)));
    assert_eq!(rig.broker().in_flight_of(1), 64, "the window is the bound");
    for device in [&devices[0], &devices[2]] {
        for _ in 0..50 {
            let draft = fresh(&rig, device);
            rig.accept(0, &draft);
            rig.turn();
        }
    }
    // It unblocks at seven eighths, so that it does not flicker.
    rig.broker().ack(1, 7);
    rig.turn();
    let draft = fresh(&rig, &devices[1]);
    assert_eq!(rig.submit(0, &draft), Err(Refused::Shed(ShedWhy::PartitionBlocked)));
    rig.broker().ack(1, 1);
    rig.turn();
    rig.accept(0, &draft);
    rig.finish();
}

/// With all slots in use every partition is blocked; nothing is ever stuck, and nothing accepted is lost.
#[test]
fn a_full_slab_blocks_all_and_never_deadlocks() {
    let mut config = small_config();
    config.inflight.partition = 64;
    config.inflight.total = 64;
    config.inflight.waiting = 64;
    let mut rig = Rig::new(&config, 16);
    let (mut blocked, mut ringed) = (0, 0);
    for round in 0..50 {
        for number in 0..400 {
            let draft = fresh(&rig, &format!("device-{}", number % 61));
            match rig.submit(0, &draft) {
                Ok(_) => {}
                Err(Refused::Shed(ShedWhy::PartitionBlocked)) => blocked += 1,
                Err(Refused::Shed(ShedWhy::Queue)) => ringed += 1,
                Err(other) => panic!("{other}"),
            }
            // Submits come faster than turns, so the slots run out before a partition's window does.
            if number % 100 == 0 {
                rig.turn();
            }
        }
        assert!(rig.counts().in_flight <= 128, "{}", rig.counts());
        assert!(rig.broker().in_flight() <= 64);
        if round % 5 == 4 {
            rig.broker().ack_all();
        }
    }
    assert!(blocked > 0 && ringed + blocked > 1_000, "{blocked} blocked, {ringed} shed by the ring");
    assert!(rig.common.shard_pages[0].stalled_turns.get() > 0, "the slab was full");
    rig.finish();
}

/// Bursts of a full queue and of a client that is not ready: nothing is lost, nothing is reordered, nothing spins away.
#[test]
fn bursts_of_queue_full_and_not_ready() {
    let mut rig = Rig::new(&small_config(), 4);
    for step in 0..600 {
        {
            let mut state = rig.broker().state();
            state.is_away = step % 50 < 10;
            state.queue_max = if step % 30 < 15 { 3 } else { usize::MAX };
        }
        for number in 0..3 {
            let draft = fresh(&rig, &format!("device-{}", (step * 3 + number) % 13));
            let _ = rig.submit(0, &draft);
        }
        rig.turn();
        assert!(step % 30 >= 15 || step % 30 == 0 || rig.broker().in_flight() <= 1_000);
        for partition in 0..4 {
            rig.broker().ack(partition, 2);
        }
        rig.clock.advance_ms(1);
    }
    rig.finish();
    assert_eq!((rig.counts().failed, rig.counts().delivered), (0, rig.counts().accepted));
}

/// A partition that waits for a place among many busy ones gets it, although new triggers come all the time.
#[test]
fn no_partition_starves_behind_busy_ones() {
    let mut config = small_config();
    config.inflight.partition = 16;
    config.inflight.total = 16;
    config.inflight.waiting = 256;
    let mut rig = Rig::new(&config, 3);
    let devices: Vec<String> = (0..3).map(|partition| rig.devices_of(partition, "device", 1).remove(0)).collect();
    for number in 0..20 {
        let draft = fresh(&rig, &devices[number % 2]);
        rig.accept(0, &draft);
    }
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 16, "the total is reached");
    let draft = fresh(&rig, &devices[2]);
    let waiting = rig.accept(0, &draft);
    rig.turn();
    assert_eq!(rig.broker().in_flight_of(2), 0);
    for turn in 0.. {
        assert!(turn < 100, "the trigger of the third partition waits behind ever newer ones");
        for partition in 0..2 {
            rig.broker().ack(partition, 2);
        }
        for number in 0..4 {
            let draft = fresh(&rig, &devices[number % 2]);
            let _ = rig.submit(0, &draft);
        }
        rig.turn();
        if rig.broker().in_flight_of(2) == 1 {
            break;
        }
    }
    rig.finish();
    assert_eq!(rig.model.landed(waiting), 1);
}

/// What failed holds its slots until it is taken, never more than there are, and then everything flows on.
#[test]
fn failures_that_nobody_takes_are_bounded() {
    let mut config = small_config();
    config.settle.window = 4_096;
    config.inflight.partition = 128;
    config.inflight.total = 128;
    config.inflight.waiting = 128;
    let mut rig = Rig::new(&config, 1);
    let mut shed = 0;
    for _ in 0..4_000 {
        let draft = fresh(&rig, "device");
        if rig.submit(0, &draft).is_err() {
            shed += 1;
        }
        rig.turn();
        while rig.broker().refuse(0, 0, 1, Fault::Frame(10), Persisted::No, false) > 0 {}
    }
    assert!(shed > 0);
    assert_eq!(rig.settled(0), 0);
    assert!(rig.counts().in_flight <= 256);
    rig.finish();
    assert_eq!(rig.counts().failed, rig.counts().accepted);
    let draft = fresh(&rig, "device");
    let id = rig.accept(0, &draft);
    rig.finish();
    assert_eq!(rig.model.landed(id), 1);
}

/// L8: one record above the topic's limit among 100, each of its own device → caught before produce: 99 delivered, the
/// caller told. Queued before the limit was known: caught by the shard, handed back with both numbers.
#[test]
fn l8_a_record_above_the_topics_limit() {
    let mut rig = Rig::new(&small_config(), 4);
    rig.common.set_record_bytes_max(600);
    let now = rig.clock.wall_ms();
    let large = [b'x'; 512];
    let mut refused = Vec::new();
    for number in 0..100 {
        let draft = fresh(&rig, &format!("device-{number}"));
        if number == 37 {
            let trigger = Trigger { attributes: &large, ..bare(&draft.device, &draft.fence, now) };
            refused.push(rig.callers[0].ingress.submit(&trigger));
        } else {
            rig.accept(0, &draft);
        }
    }
    match refused[..] {
        [Err(Refused::Rejected(Reason::FrameTooLarge { size, limit: 600 }))] => assert!(size > 600),
        _ => panic!("{refused:?}"),
    }
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().rejected, rig.counts().refused_batches), (99, 1, 0));

    // Queued while the limit was higher.
    rig.common.set_record_bytes_max(1_000_000);
    let long = "x".repeat(200);
    let drafts: Vec<Draft> =
        (0..100).map(|number| fresh(&rig, &format!("{}{number}", if number == 37 { &long } else { "d" }))).collect();
    let ids: Vec<u64> = drafts
        .iter()
        .enumerate()
        .map(|(number, draft)| rig.accept(0, &Draft { fence: format!("f{number}"), ..draft.clone() }))
        .collect();
    rig.common.set_record_bytes_max(400);
    rig.settle();
    match rig.model.failed(ids[37]) {
        Some(fencepost::shard::shared::FailedReason::TooLarge { size, limit: 400 }) => assert!(size > 400),
        other => panic!("{other:?}"),
    }
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().failed), (99 + 99, 1));
}

/// F3, the Rust side: ids holding NUL, `:`, `#`, 256 bytes, 257 bytes, broken UTF-8 → byte-equal at the consumer (the
/// model compares), or refused with the reason.
#[test]
fn f3_hostile_ids() {
    let mut rig = Rig::new(&small_config(), 4);
    let longest = "\u{1f69a}".repeat(64);
    let too_long = format!("{longest}x");
    assert_eq!((longest.len(), too_long.len()), (256, 257));
    let ids = ["\0", "a\0b", ":", "a:b", "#", "veh#3", " ", "\n", "車両-12", longest.as_str()];
    for device in ids {
        for fence in ids {
            let draft = rig.draft(device, fence);
            rig.accept(0, &draft);
        }
        rig.turn();
    }
    let now = rig.clock.wall_ms();
    let rejected = |answer| match answer {
        Err(Refused::Rejected(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let ingress = &mut rig.callers[0].ingress;
    assert_eq!(rejected(ingress.submit(&bare(&too_long, "f", now))), Reason::DeviceIdTooLong { len: 257 });
    assert_eq!(rejected(ingress.submit(&bare("d", &too_long, now))), Reason::FenceIdTooLong { len: 257 });
    assert_eq!(rejected(ingress.submit(&bare("", "f", now))), Reason::EmptyDeviceId);
    assert_eq!(rejected(ingress.submit(&bare("d", "", now))), Reason::EmptyFenceId);
    let broken = Trigger::from_bytes(b"ok\xff", b"f", fencepost::trigger::State::Enter, now);
    assert_eq!(broken, Err(Reason::DeviceIdNotUtf8 { valid_up_to: 2 }));
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().rejected), (100, 4));
    let keys: HashSet<Vec<u8>> = rig.broker().state().log.iter().map(|record| record.key.to_vec()).collect();
    assert_eq!(keys, ids.iter().map(|id| id.as_bytes().to_vec()).collect());
}
