//! Order per device when batches are refused and handles are lost.

use crate::support::rig::{Rig, small_config};
use fencepost::ingress::Refused;
use fencepost::shard::shared::FailedReason;
use fencepost::sink::{Fault, Persisted};
use fencepost::trigger::{Reason, Unit};

/// The codes for a record that is too large, for a policy violation and for a lost permission, as the protocol has them.
const TOO_LARGE: i32 = 10;
const POLICY_VIOLATION: i32 = 44;
const NOT_AUTHORIZED: i32 = 29;

/// Accepts a trigger of `device`, of a fence of its own. Returns its number.
fn accept(rig: &mut Rig, device: &str) -> u64 {
    let draft = rig.draft(device, &format!("fence-{}", rig.model.next_id()));
    rig.accept(0, &draft)
}

/// O4: 1 of 5 partitions fails in a burst of 1,000 → only its triggers are re-sent; the others see no repeat.
#[test]
fn o4_only_the_failed_partition_is_sent_again() {
    let mut config = small_config();
    config.inflight.partition = 512;
    let mut rig = Rig::new(&config, 5);
    for number in 0..1_000 {
        accept(&mut rig, &format!("device-{}", number % 97));
        if number % 200 == 199 {
            rig.turn();
        }
    }
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 1_000);
    let failing = rig.broker().in_flight_of(2);
    assert!(failing > 50);
    rig.broker().refuse(2, 0, failing, Fault::Partition(POLICY_VIOLATION), Persisted::No, false);
    for partition in [0, 1, 3, 4] {
        rig.broker().ack(partition, usize::MAX);
    }
    rig.turn();
    assert_eq!((rig.counts().delivered, rig.counts().refused_batches), (1_000 - failing as u64, 1));
    rig.finish();
    assert_eq!(rig.broker().state().produced, 1_000 + failing as u64);
    let mut ids = rig.log_ids();
    ids.sort_unstable();
    assert_eq!(ids, (0..1_000).collect::<Vec<u64>>(), "each once");
    assert_eq!(rig.counts().failed, 0);
}

/// O6: acks arrive for seq 2, 3, 4 but not 1 → watermark 0; then 1 → 4. Seq 1 is of another partition: within one,
/// acknowledgements come in order.
#[test]
fn o6_the_watermark_waits_for_the_first() {
    let mut rig = Rig::new(&small_config(), 2);
    let (late, early) = (rig.devices_of(0, "late", 1).remove(0), rig.devices_of(1, "early", 1).remove(0));
    for device in [&late, &early, &early, &early] {
        accept(&mut rig, device);
    }
    rig.turn();
    rig.broker().ack(1, 3);
    rig.turn();
    assert_eq!((rig.counts().delivered, rig.settled(0)), (3, 0));
    rig.broker().ack(0, 1);
    rig.turn();
    assert_eq!(rig.settled(0), 4);
    rig.finish();
}

/// O12: a batch refused as a whole with one bad frame among 100 devices, later frames of 3 of them already handed over →
/// 96 delivered in order, 3 `would_reorder`, 1 poison; the refused batch counted once.
#[test]
fn o12_a_refused_batch_with_one_bad_frame() {
    let mut rig = Rig::new(&small_config(), 1);
    let devices: Vec<String> = (0..100).map(|number| format!("device-{number}")).collect();
    let first: Vec<u64> = devices.iter().map(|device| accept(&mut rig, device)).collect();
    let overtaken = [10, 50, 90];
    let later: Vec<u64> = overtaken.iter().map(|&device| accept(&mut rig, &devices[device])).collect();
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 103);
    rig.broker().refuse(0, 0, 100, Fault::Frame(TOO_LARGE), Persisted::No, false);
    rig.turn();
    assert_eq!(rig.counts().refused_batches, 1);
    assert_eq!(rig.broker().in_flight(), 3, "nothing is sent while later frames are on their way");
    rig.broker().ack(0, 3);
    let bad = 42;
    // What is left goes out in groups, in order; a broker refuses each that holds the bad one, as a whole.
    let left: Vec<usize> = (0..100).filter(|device| !overtaken.contains(device)).collect();
    let (mut at, mut rounds) = (0, 0);
    while at < left.len() {
        rig.turn();
        let group = rig.broker().in_flight();
        if group == 0 {
            rig.clock.advance_ms(1);
            continue;
        }
        rounds += 1;
        if left[at..at + group].contains(&bad) {
            rig.broker().refuse(0, 0, group, Fault::Frame(TOO_LARGE), Persisted::No, false);
            at += usize::from(group == 1);
        } else {
            rig.broker().ack(0, group);
            at += group;
        }
    }
    assert!(rounds <= 24, "the bad one among 97 took {rounds} rounds");
    rig.turn();
    let mut failed = rig.take_failed(0);
    failed.sort_by_key(|failed| failed.seq.0);
    let reasons: Vec<(u64, FailedReason)> = failed.iter().map(|failed| (failed.seq.0 - 1, failed.reason)).collect();
    let want = [
        (first[10], FailedReason::WouldReorder),
        (first[bad], FailedReason::Refused { code: TOO_LARGE }),
        (first[50], FailedReason::WouldReorder),
        (first[90], FailedReason::WouldReorder),
    ];
    assert_eq!(reasons, want);
    let innocent = (0..100).filter(|device| !overtaken.contains(device) && *device != bad).map(|device| first[device]);
    assert_eq!(rig.log_ids(), later.iter().copied().chain(innocent).collect::<Vec<u64>>(), "96 in order");
    assert_eq!((rig.counts().would_reorder, rig.counts().refused_batches), (3, 1));
    rig.finish();
}

/// A refused batch and the acknowledgement of a later one, collected in the same turn: what was refused has been
/// overtaken all the same.
#[test]
fn a_later_ack_in_the_same_turn_overtakes() {
    let mut rig = Rig::new(&small_config(), 1);
    let (refused, other, landed) =
        (accept(&mut rig, "device-a"), accept(&mut rig, "device-b"), accept(&mut rig, "device-a"));
    rig.turn();
    rig.broker().refuse(0, 0, 2, Fault::Partition(POLICY_VIOLATION), Persisted::No, false);
    rig.broker().ack(0, 1);
    rig.settle();
    assert_eq!(rig.model.failed(refused), Some(FailedReason::WouldReorder));
    assert_eq!(rig.log_ids(), [landed, other]);
    rig.finish();
}

/// Batch after batch is refused, as by a lost permission, over many turns: nothing was overtaken, nothing fails, and
/// once it is restored everything arrives in order.
#[test]
fn batches_refused_one_after_another_are_all_sent_again() {
    let mut rig = Rig::new(&small_config(), 1);
    for number in 0..200 {
        accept(&mut rig, &format!("device-{}", number % 7));
    }
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 200);
    for _ in 0..20 {
        rig.broker().refuse(0, 0, 10, Fault::Partition(NOT_AUTHORIZED), Persisted::No, false);
        rig.turn();
    }
    assert_eq!((rig.broker().in_flight(), rig.counts().refused_batches), (0, 20));
    rig.finish();
    assert_eq!((rig.counts().failed, rig.counts().would_reorder), (0, 0));
    assert_eq!(rig.log_ids(), (0..200).collect::<Vec<u64>>());
}

/// A batch is refused, and of a later one nobody knows: what was refused is not sent behind what may be there.
#[test]
fn what_may_have_landed_overtakes_too() {
    let mut rig = Rig::new(&small_config(), 1);
    let (refused, perhaps) = (accept(&mut rig, "device"), accept(&mut rig, "device"));
    rig.turn();
    rig.broker().refuse(0, 0, 1, Fault::Partition(POLICY_VIOLATION), Persisted::No, false);
    rig.turn();
    rig.broker().lose_handle();
    rig.broker().replace_handle(|_, held| held);
    rig.turn();
    rig.settle();
    assert_eq!(rig.model.failed(refused), Some(FailedReason::WouldReorder));
    assert_eq!(rig.log_ids(), [perhaps, perhaps]);
    rig.finish();
}

/// A frame that the client refuses at once for what it is: poison, handed back, and it holds up nothing.
#[test]
fn a_frame_refused_by_the_client_itself_is_poison() {
    let mut rig = Rig::new(&small_config(), 1);
    rig.broker().state().faults.entry(0).or_default().push_back(Fault::Frame(TOO_LARGE));
    let (bad, good) = (accept(&mut rig, "device-a"), accept(&mut rig, "device-b"));
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 1, "what is behind it is sent");
    rig.settle();
    assert_eq!(rig.model.failed(bad), Some(FailedReason::Refused { code: TOO_LARGE }));
    assert_eq!(rig.log_ids(), [good]);
    rig.finish();
}

/// A handle is replaced while frames are lent: all are re-sent in order under the same bytes, counted as uncertain,
/// `producer_rebuilds` = 1, every slot comes back, and the blocks that the old handle may read are counted, never reused.
#[test]
fn a_replaced_handle_loses_nothing() {
    let mut rig = Rig::new(&small_config(), 3);
    for number in 0..300 {
        accept(&mut rig, &format!("device-{}", number % 11));
    }
    rig.turn();
    rig.turn();
    let lent = rig.broker().in_flight();
    assert_eq!(lent, 300);
    rig.broker().lose_handle();
    rig.turn();
    accept(&mut rig, "device-3"); // waits for the new handle
    rig.turn();
    assert_eq!(rig.broker().replace_handle(|_, held| held / 3), lent);
    rig.turn();
    assert_eq!(rig.broker().in_flight(), 301);
    let counts = rig.counts();
    assert_eq!((counts.uncertain, counts.producer_rebuilds), (lent as u64, 1));
    let leaked = rig.common.shard_pages[0].leaked_bytes.get();
    assert!(leaked >= 64 * lent as u64, "{leaked} bytes for {lent} frames");
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().failed), (301, 0));
    // Frames that come after are not written over what the old handle may still read.
    for number in 0..500 {
        accept(&mut rig, &format!("device-{}", number % 11));
        if number % 100 == 99 {
            rig.settle();
        }
    }
    rig.finish();
    assert_eq!(rig.common.shard_pages[0].leaked_bytes.get(), leaked, "nothing more is stranded");
}

/// A lost handle gives its queue back over many turns, some of it possibly landed: nothing fails, nothing is reordered.
#[test]
fn what_is_purged_over_many_turns_is_sent_again_in_order() {
    let mut rig = Rig::new(&small_config(), 2);
    for number in 0..300 {
        accept(&mut rig, &format!("device-{}", number % 5));
    }
    rig.turn();
    rig.turn();
    rig.broker().state().report_max = 1;
    rig.broker().lose_handle();
    rig.broker().purge(|_, held| held / 2);
    while rig.broker().undelivered_reports() > 0 {
        rig.turn();
    }
    rig.broker().replace_handle(|_, _| unreachable!("nothing is left at the old handle"));
    rig.finish();
    let counts = rig.counts();
    assert_eq!((counts.delivered, counts.failed, counts.producer_rebuilds), (300, 0, 1));
    assert!(counts.uncertain > 100 && rig.common.shard_pages[0].leaked_bytes.get() == 0);
}

/// S6, this stage's part: the wall clock steps back an hour under load → no negative latency, TTLs unaffected, and the
/// stamps still rise (the model checks them on every record).
#[test]
fn s6_the_wall_clock_steps_back_an_hour() {
    let mut rig = Rig::new(&small_config(), 2);
    let draft = rig.draft("device-0", "the-same");
    rig.accept(0, &draft);
    for step in 0..2_000 {
        if step == 1_000 {
            rig.clock.step_wall(-3_600_000_000);
        }
        accept(&mut rig, &format!("device-{}", step % 20));
        rig.turn();
        rig.broker().ack_all();
        rig.clock.advance_ms(2);
    }
    // Its event now lies an hour ahead: `submit` says so, and the device's clock is to blame or ours.
    assert!(matches!(
        rig.submit(0, &draft),
        Err(Refused::Rejected(Reason::EventTimeInFuture { looks_like: Unit::Milliseconds, .. }))
    ));
    rig.clock.step_wall(3_600_000_000);
    rig.clock.advance_ms(21); // a submit reads the wall clock every 20 ms
    // 4 s later by the only clock that counts, so it is a repeat.
    let repeat = rig.accept(0, &draft);
    rig.finish();
    assert_eq!((rig.model.landed(repeat), rig.counts().deduplicated), (0, 1));
    let page = &rig.common.shard_pages[0];
    for (name, histogram) in [("queue", &page.queue), ("publish", &page.publish), ("settle", &page.settle)] {
        let max = histogram.snapshot().max().0;
        assert!(max <= 100_000_000, "{name}: {max} ns, a step of the wall clock was taken for time");
    }
}
