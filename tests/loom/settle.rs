//! The watermark that an ingress reads off its rings' frontiers: it never passes what is not settled, nor what failed and
//! was not taken.

use crate::{ModelClock, Seen, assemble, explore, trigger};
use fencepost::partition::partition_of;
use fencepost::shard::shared::FailedReason;
use fencepost::trigger::Trigger;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn the_watermark_waits_until_what_failed_is_taken() {
    let (handed_back, waited) = (Seen::default(), Seen::default());
    let (note_back, note_wait) = (handed_back.clone(), waited.clone());
    explore(Some(2), move || {
        let mut assembly = assemble(1, &ModelClock::default());
        let mut ingress = assembly.common.ingress().unwrap();
        ingress.submit(&trigger("d")).unwrap();
        // From now on nothing fits the topic, so the shard hands back what it takes.
        assembly.common.set_record_bytes_max(1);
        let mut shard = assembly.shards.remove(0);
        let turning = thread::spawn(move || {
            shard.turn();
            shard.turn();
            shard
        });
        for _ in 0..2 {
            assert_eq!(ingress.settled().0, 0, "the watermark passed what failed and nobody took");
        }
        let early = ingress.take_failed();
        note_back.note(early.is_some());
        note_wait.note(early.is_none());
        turning.join().unwrap();
        let failed = early.or_else(|| ingress.take_failed()).expect("it was handed back");
        assert_eq!(failed.seq.0, 1);
        assert!(matches!(failed.reason, FailedReason::TooLarge { .. }));
        assert_eq!(ingress.settled().0, 1);
        assert_eq!(ingress.take_failed(), None);
    });
    assert!(handed_back.was() && waited.was());
}

#[test]
fn the_watermark_is_the_lowest_of_the_rings() {
    let (half, behind) = (Seen::default(), Seen::default());
    let (note_half, note_behind) = (half.clone(), behind.clone());
    explore(Some(2), move || {
        let mut assembly = assemble(2, &ModelClock::default());
        let mut ingress = assembly.common.ingress().unwrap();
        let mut shards = std::mem::take(&mut assembly.shards);
        let mut submit = |shard, number: i64| {
            let id = (0..99).map(|id| format!("d{id}")).find(|id| partition_of(id.as_bytes(), 2).0 == shard).unwrap();
            let offered = trigger(&id);
            ingress.submit(&Trigger { event_time_ms: offered.event_time_ms - number * 1_000, ..offered }).unwrap();
        };
        // Shard 1 is done with the second of three before shard 0 has seen the first.
        submit(0, 1);
        submit(1, 2);
        assert!((0..2).all(|_| shards[1].turn().lent <= 1));
        submit(1, 3);
        // Which shards may have settled theirs; loom takes no order from it.
        let begun = Arc::new(AtomicU64::new(0));
        let turning: Vec<_> = shards
            .into_iter()
            .enumerate()
            .map(|(index, mut shard)| {
                let begun = Arc::clone(&begun);
                thread::spawn(move || {
                    shard.turn();
                    begun.fetch_or(1 << index, Ordering::Relaxed);
                    shard.turn();
                    shard
                })
            })
            .collect();
        let mut last = 0;
        for _ in 0..2 {
            let settled = ingress.settled().0;
            let most = match begun.load(Ordering::Relaxed) {
                0b11 => 3,
                0b01 => 2,
                _ => 0,
            };
            assert!(last <= settled && settled <= most, "settled went from {last} to {settled}, {most} may be");
            note_half.note(settled == 2);
            note_behind.note(settled == 0 && most == 3);
            last = settled;
        }
        turning.into_iter().for_each(|shard| drop(shard.join().unwrap()));
        assert_eq!(ingress.settled().0, 3);
    });
    assert!(half.was(), "one ring was ahead of the other in no run");
    assert!(behind.was(), "the ingress was behind in no run");
}
