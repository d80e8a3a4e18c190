//! The watermark: bounded behind a frozen one, right when a lane passes from one ingress to the next, and for batches.

use crate::support::model::{self, Draft};
use crate::support::rig::{Rig, small_config};
use fencepost::ingress::{Refused, ShedWhy};
use fencepost::sink::{Fault, Persisted};
use fencepost::trigger::Trigger;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn fresh(rig: &Rig, device: &str) -> Draft {
    rig.draft(device, &format!("fence-{}", rig.model.next_id()))
}

/// P9, the answers: a watermark frozen by one seq; later ones settle until the settle window is full, then `submit` sheds
/// with that reason, on this ingress only; once the one settles, it takes triggers again. (`tests/allocations.rs` runs
/// millions behind it and counts the memory.)
#[test]
fn p9_a_frozen_watermark_sheds_at_the_settle_window() {
    let mut config = small_config();
    config.settle.window = 2_048;
    let mut rig = Rig::new(&config, 2);
    let other = rig.add_caller();
    let (frozen, quick) = (rig.devices_of(0, "frozen", 1).remove(0), rig.devices_of(1, "quick", 1).remove(0));
    {
        let mut state = rig.broker().state();
        state.acks_by_itself = true;
        state.stalled.push(0);
    }
    let draft = fresh(&rig, &frozen);
    rig.accept(0, &draft);
    let mut refused = None;
    for _ in 0..10_000 {
        let draft = fresh(&rig, &quick);
        match rig.submit(0, &draft) {
            Ok(_) => rig.turn(),
            Err(why) => {
                refused = Some(why);
                break;
            }
        }
    }
    assert_eq!(refused, Some(Refused::Shed(ShedWhy::SettleWindow)));
    assert_eq!(rig.callers[0].ids.len(), 2_048, "to the last seq of the window");
    rig.turn();
    rig.turn();
    assert_eq!((rig.settled(0), rig.counts().in_flight), (0, 1), "all but one are settled");
    for _ in 0..5_000 {
        let draft = fresh(&rig, &quick);
        rig.accept(other, &draft);
        rig.turn();
    }
    let draft = fresh(&rig, &quick);
    assert_eq!(rig.submit(0, &draft), Err(Refused::Shed(ShedWhy::SettleWindow)));
    rig.broker().state().stalled.clear();
    rig.turn();
    assert_eq!(rig.settled(0), 2_048);
    rig.accept(0, &draft);
    rig.finish();
}

/// An ingress is dropped with triggers pending and its lane goes to a new one: what was accepted is delivered, the new
/// one's seqs begin at 1, and its watermark passes nothing of its own that is unsettled.
#[test]
fn a_lane_passes_to_the_next_ingress() {
    let mut config = small_config();
    config.queue.ingresses = 1;
    config.engine.shards = 2;
    let mut rig = Rig::new(&config, 2);
    let (even, odd) = (rig.devices_of(0, "even", 1).remove(0), rig.devices_of(1, "odd", 1).remove(0));
    for number in 0..10 {
        let draft = fresh(&rig, if number % 2 == 0 { &even } else { &odd });
        rig.accept(0, &draft);
    }
    assert!(rig.common.ingress().is_none(), "queue.ingresses = 1");
    for _ in 0..2 {
        rig.turn();
        let old = rig.callers.remove(0);
        drop(old.ingress);
        assert_eq!(rig.add_caller(), 0);
        assert_eq!(rig.settled(0), 0);
    }
    // Its first is on the second shard, whose older ones are acknowledged; the first shard's are not.
    let draft = fresh(&rig, &odd);
    assert_eq!(rig.submit(0, &draft).map(|accepted| accepted.seq.0), Ok(1));
    rig.turn();
    assert_eq!(rig.settled(0), 0);
    rig.brokers[1].ack_all();
    rig.turn();
    let settled = rig.settled(0);
    assert!(settled <= 1);
    rig.brokers[0].ack_all();
    rig.turn();
    assert_eq!(rig.settled(0), 1);
    rig.finish();
    assert_eq!(rig.counts().delivered, 11);
}

/// What failed of an ingress that is gone is not handed to the next one of its lane, and does not hold its watermark.
#[test]
fn the_next_ingress_is_not_given_what_failed_before_it() {
    let mut config = small_config();
    config.queue.ingresses = 1;
    let mut rig = Rig::new(&config, 1);
    for _ in 0..3 {
        let draft = fresh(&rig, "device");
        rig.accept(0, &draft);
    }
    rig.turn();
    rig.broker().refuse(0, 0, 1, Fault::Frame(10), Persisted::No, false);
    rig.turn();
    let old = rig.callers.remove(0);
    drop(old.ingress);
    rig.add_caller();
    let draft = fresh(&rig, "device");
    rig.accept(0, &draft);
    rig.turn();
    rig.broker().refuse(0, 0, 1, Fault::Frame(10), Persisted::No, false);
    rig.broker().ack_all();
    rig.turn();
    assert_eq!((rig.counts().failed, rig.counts().delivered), (2, 2));
    assert_eq!(rig.settled(0), 1);
    assert!(rig.take_failed(0).is_empty());
    assert!(rig.shards[0].is_settled());
}

/// A batch has one answer a trigger, in order; a refusal of one says nothing of the next.
#[test]
fn a_batch_answers_each_trigger() {
    let mut rig = Rig::new(&small_config(), 3);
    let now = rig.clock.wall_ms();
    let drafts: Vec<Draft> =
        (0..100).map(|number| Draft::new(format!("device-{}", number % 9), format!("fence-{number}"), now)).collect();
    let numbers: Vec<[u8; 8]> = (0..100_u64).map(|number| (number - u64::from(number > 40)).to_le_bytes()).collect();
    let mut triggers: Vec<Trigger> =
        drafts.iter().zip(&numbers).map(|(draft, number)| model::trigger(draft, number)).collect();
    triggers[40].device_id = "";
    let (mut answers, mut ids) = (Vec::new(), Vec::new());
    rig.callers[0].ingress.submit_batch(&triggers, |index, answer| answers.push((index, answer)));
    for (place, (index, answer)) in answers.iter().enumerate() {
        assert_eq!(place, *index);
        match answer {
            Ok(accepted) => {
                ids.push(rig.model.accept(&drafts[*index]));
                assert_eq!(accepted.seq.0, ids.len() as u64);
            }
            Err(refused) => assert!(*index == 40 && matches!(refused, Refused::Rejected(_)), "{refused}"),
        }
    }
    rig.callers[0].ids = ids;
    rig.finish();
    assert_eq!((rig.counts().delivered, rig.counts().rejected), (99, 1));
}

/// The caller's function panics in the middle of a batch: what it was told is accepted arrives all the same, and so does
/// what was accepted behind it.
#[test]
fn a_batch_that_panics_keeps_what_was_accepted() {
    let mut rig = Rig::new(&small_config(), 1);
    let now = rig.clock.wall_ms();
    let drafts: Vec<Draft> = (0..10).map(|number| Draft::new("device", format!("fence-{number}"), now)).collect();
    let numbers: Vec<[u8; 8]> = (0..10_u64).map(u64::to_le_bytes).collect();
    let triggers: Vec<Trigger> =
        drafts.iter().zip(&numbers).map(|(draft, number)| model::trigger(draft, number)).collect();
    let mut told = 0;
    let ingress = &mut rig.callers[0].ingress;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        ingress.submit_batch(&triggers, |index, answer| {
            assert!(answer.is_ok());
            told += 1;
            assert!(index < 5, "the caller's own mistake");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!((told, ingress.accepted()), (6, 10));
    for draft in &drafts {
        let id = rig.model.accept(draft);
        rig.callers[0].ids.push(id);
    }
    rig.finish();
    assert_eq!(rig.counts().delivered, 10);
}
