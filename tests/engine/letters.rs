//! What cannot be delivered: a dead letter where anything takes one, handed back where nothing does, waiting where both
//! are blocked.

use crate::support::rig::{Death, Rig, small_config};
use fencepost::ingress::{Refused, ShedWhy};
use fencepost::shard::Policy;
use fencepost::shard::shared::FailedReason;
use fencepost::sink::{Fault, Persisted};
use fencepost::spill::Kind;
use fencepost::spill::Record;
use fencepost::spill::faulty::{FaultyDisk, Operation};
use fencepost::units::{Nanos, PartitionId};

/// The code for a record that is too large, as the protocol has it.
const TOO_LARGE: i32 = 10;
const P0: PartitionId = PartitionId(0);
const SHORT: Nanos = Nanos::from_millis(2_000);

fn refuse_one(rig: &mut Rig) {
    assert_eq!(rig.broker().refuse(0, 0, 1, Fault::Frame(TOO_LARGE), Persisted::No, false), 1);
}

/// D1, first half: the topic refuses K1 for good, the dead-letter topic too, the disk too → failed, the key released, the
/// watermark held until it is taken back; K1 again → delivered, exactly one record.
#[test]
fn d1_what_nothing_takes_is_handed_back_and_delivered_later() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.letters.state().refuses = true;
    for operation in [Operation::Sync, Operation::Write] {
        rig.disk.set_likelihood(operation, 65_536);
    }
    let k1 = rig.fresh("device");
    let first = rig.accept(0, &k1);
    let repeat = rig.accept(0, &k1);
    rig.turn();
    refuse_one(&mut rig);
    rig.pass_ms(2_000);
    assert_eq!((rig.counts().failed, rig.counts().dead_lettered, rig.counts().dedup_keys), (2, 0, 0));
    assert_eq!(rig.settled(0), 0, "held until the caller has it back");
    let taken = rig.take_failed(0);
    assert_eq!(taken.iter().map(|failed| failed.seq.0).collect::<Vec<_>>(), [1, 2]);
    assert!(taken.iter().all(|failed| failed.reason == FailedReason::Refused { code: TOO_LARGE }));
    assert_eq!(rig.settled(0), 2);
    let second = rig.accept(0, &k1);
    rig.turn();
    rig.broker().ack_all();
    rig.turn();
    assert_eq!([first, repeat, second].map(|id| rig.model.landed(id)), [0, 0, 1]);
    assert_eq!(rig.settled(0), 3);
    rig.disk.heal();
    rig.finish();
}

/// D1, second half: with dead letters up, one dead letter, and the second settles as a duplicate.
#[test]
fn d1_with_dead_letters_up_the_second_is_a_duplicate() {
    let mut rig = Rig::spilling(&small_config(), 1);
    let k1 = rig.fresh("device");
    let first = rig.accept(0, &k1);
    rig.turn();
    refuse_one(&mut rig);
    rig.pass_ms(20);
    assert_eq!((rig.counts().dead_lettered, rig.settled(0)), (1, 1));
    let second = rig.accept(0, &k1);
    rig.pass_ms(20);
    assert_eq!((rig.counts().deduplicated, rig.settled(0)), (1, 2));
    rig.finish();
    assert_eq!([first, second].map(|id| rig.model.landed(id)), [0, 0]);
    assert_eq!(rig.model.buried(), 1);
    assert_eq!(rig.letters.state().log[0].1, "refused");
}

/// The dead-letter topic refuses too, and the disk is sound: the letter is durable there, and settled.
#[test]
fn d1_a_letter_that_its_topic_refuses_is_kept_on_disk() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.letters.state().refuses = true;
    rig.submit_fresh("device", 1);
    refuse_one(&mut rig);
    rig.pass_ms(100);
    assert_eq!((rig.counts().dead_lettered, rig.settled(0), rig.letters_on_disk()), (1, 1, 1));
    rig.restart(Death::Machine, SHORT, |_, _| 0);
    rig.letters.state().refuses = false;
    rig.pass_ms(100);
    assert_eq!((rig.model.buried(), rig.letters_on_disk()), (1, 0), "the next run tries again");
    rig.finish();
}

/// S3: 3 of 100 fail for good, then everything is flushed → 97 delivered, 3 dead letters, and the counts say so.
#[test]
fn s3_three_of_a_hundred_are_dead_letters() {
    let mut rig = Rig::spilling(&small_config(), 1);
    for device in 0..100 {
        let draft = rig.fresh(&format!("device-{device}"));
        rig.accept(0, &draft);
    }
    rig.turn();
    for bad in [10, 49, 0] {
        rig.broker().ack(0, bad);
        refuse_one(&mut rig);
        rig.turn();
    }
    rig.finish();
    let counts = rig.counts();
    assert_eq!((counts.delivered, counts.dead_lettered, counts.failed), (97, 3, 0), "{counts}");
    assert_eq!(rig.settled(0), 100);
}

/// L4: main and dead-letter topics both blocked, and the disk full: the watermark is frozen; unblocked it moves, and
/// nothing is lost.
#[test]
fn l4_both_topics_blocked_freeze_the_watermark_and_lose_nothing() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.disk.set_capacity(0);
    rig.letters.state().is_away = true;
    rig.submit_fresh("device", 5);
    refuse_one(&mut rig);
    rig.turn();
    // What is behind the refused one is sent, and not answered.
    rig.pass_ms(60_000);
    assert_eq!(rig.settled(0), 0, "frozen");
    assert_eq!((rig.counts().failed, rig.counts().in_flight), (0, 5), "blocked is not failed");
    rig.letters.state().is_away = false;
    rig.pass_ms(1_000);
    assert_eq!((rig.settled(0), rig.counts().dead_lettered), (1, 1), "the letter is out");
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().failed, rig.settled(0)), (4, 0, 5));
}

/// L4, with a sound disk: it takes both, so the watermark moves, and both go on when their topics do.
#[test]
fn l4_with_a_disk_the_watermark_moves_and_all_comes_back() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.letters.state().is_away = true;
    rig.submit_fresh("device", 5);
    refuse_one(&mut rig);
    rig.pass_ms(7_000);
    rig.submit_fresh("device", 5);
    rig.pass_ms(50);
    assert_eq!((rig.settled(0), rig.counts().dead_lettered, rig.letters_on_disk()), (10, 1, 1));
    rig.restart(Death::Machine, SHORT, |_, _| 0);
    rig.letters.state().is_away = false;
    rig.finish();
    rig.pass_ms(100);
    assert_eq!((rig.log_ids(), rig.model.buried()), ((1..10).collect(), 1));
}

/// Policy `dead-letter`: what comes in while the breaker is open becomes a dead letter, reason `diverted`, and settles;
/// what is in flight is delivered; live again once the breaker closes.
#[test]
fn the_policy_dead_letter_diverts_to_the_letters_and_comes_back() {
    let mut rig = Rig::with_policy(&small_config(), 1, Policy::DeadLetter, FaultyDisk::new(1));
    rig.submit_fresh("device", 10);
    rig.pass_ms(1_100);
    for _ in 0..20 {
        rig.submit_fresh("device", 1);
        rig.pass_ms(5);
    }
    rig.pass_ms(20);
    let counts = rig.counts();
    assert_eq!((counts.dead_lettered, counts.in_flight, counts.spilled, counts.in_spill), (20, 10, 0, 0), "{counts}");
    assert_eq!(rig.settled(0), 0, "what is in flight is not settled");
    assert!(rig.letters.state().log.iter().all(|(_, reason)| reason == "diverted"));
    rig.broker().ack_all();
    rig.pass_ms(50);
    assert_eq!((rig.settled(0), rig.counts().delivered), (30, 10));
    rig.submit_fresh("device", 5);
    assert_eq!(rig.broker().in_flight(), 5, "live again");
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().dead_lettered), (15, 20));
}

/// The same while the letters are blocked too, and the disk is full: what is accepted is bounded, and all of it has its
/// fate once they are back.
#[test]
fn the_policy_dead_letter_is_bounded_when_the_letters_are_blocked() {
    let mut rig = Rig::with_policy(&small_config(), 2, Policy::DeadLetter, FaultyDisk::new(1));
    rig.disk.set_capacity(0);
    rig.letters.state().is_away = true;
    let devices = [0, 1].map(|partition| rig.devices_of(partition, "device", 1).remove(0));
    rig.submit_fresh(&devices[0], 1);
    rig.pass_ms(1_100);
    let mut shed = None;
    for _ in 0..10_000 {
        let draft = rig.fresh(&devices[0]);
        match rig.submit(0, &draft) {
            Ok(_) => rig.turn(),
            Err(why) => {
                shed = Some(why);
                break;
            }
        }
    }
    assert_eq!(shed, Some(Refused::Shed(ShedWhy::PartitionBlocked)));
    let draft = rig.fresh(&devices[1]);
    assert!(rig.submit(0, &draft).is_ok(), "the other partition is not");
    rig.disk.set_capacity(u64::MAX / 2);
    rig.letters.state().is_away = false;
    rig.finish();
    assert_eq!((rig.counts().failed, rig.counts().delivered), (0, 2));
}

/// A record on disk that this version cannot read becomes a dead letter, `unknown_version`; its place is released only
/// once the letter is durable, and it holds up nothing behind it.
#[test]
fn an_unreadable_record_is_a_dead_letter_and_keeps_its_place_until_then() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.submit_fresh("device", 3);
    rig.pass_ms(1_100);
    // As a later version might have left it: settled, in the middle.
    let strange = Record { partition: P0, kind: Kind::Spilled, meta: &[], frame: b"of another version" };
    let id = rig.spill().append_from_reserve(strange).expect("there is room");
    rig.spill().commit().expect("the disk is sound");
    assert_eq!(id.sequence, 4);
    rig.restart(Death::Process, SHORT, |_, _| 0);
    rig.letters.state().is_away = true;
    rig.submit_fresh("device", 3);
    for _ in 0..20 {
        rig.pass_ms(5);
        rig.broker().ack_all();
    }
    assert_eq!((rig.counts().delivered, rig.counts().recovered), (6, 4), "nothing waits for it: {}", rig.counts());
    assert_eq!(rig.common.shard_pages[0].unreadable.get(), 1);
    assert_eq!((rig.spill().partition(P0).released, rig.counts().in_spill), (3, 1), "it is there still");
    // A crash now, and it is found again.
    rig.restart(Death::Machine, SHORT, |_, _| 0);
    assert_eq!(rig.counts().recovered, 1);
    rig.letters.state().is_away = false;
    rig.finish();
    rig.pass_ms(20);
    assert_eq!(rig.counts().dead_lettered, 1);
    assert_eq!(rig.spill().partition(P0).records, 0);
    let state = rig.letters.state();
    let (value, reason) = state.log.last().expect("there is one");
    assert_eq!((&**value, reason.as_str()), (&b"of another version"[..], "unknown_version"));
}

/// A record that comes back from the disk while its like, taken in this run, is on its way to the dead letters and nobody
/// has taken it: the record is the original, and is delivered in its order; no release rests on the letter.
#[test]
fn a_record_whose_later_like_is_dying_is_delivered() {
    let mut rig = Rig::spilling(&small_config(), 1);
    rig.submit_fresh("device", 1);
    rig.pass_ms(1_100);
    let k = rig.fresh("device");
    rig.accept(0, &k);
    rig.submit_fresh("device", 5);
    rig.pass_ms(20);
    assert_eq!(rig.settled(0), 7);
    rig.broker().state().is_away = true;
    rig.restart(Death::Process, SHORT, |_, _| 1);
    rig.letters.state().is_away = true;
    // In its ring when the topic's limit falls.
    let again = rig.accept(0, &k);
    rig.common.set_record_bytes_max(1);
    rig.model.note_refused(again);
    rig.turn();
    rig.common.set_record_bytes_max(1 << 20);
    rig.pass_ms(50);
    rig.broker().ack_all();
    rig.pass_ms(20);
    assert_eq!((rig.counts().delivered, rig.counts().in_flight), (6, 1), "{}", rig.counts());
    rig.restart(Death::Machine, SHORT, |_, _| 0);
    assert_eq!((rig.counts().recovered, rig.callers[0].backlog.front()), (0, Some(&again)));
    rig.letters.state().is_away = false;
    rig.finish();
    assert_eq!(rig.log_ids().len(), 7);
}
