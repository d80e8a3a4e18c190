//! The pipes between a shard and the disk thread: messages whole and in order, and news before what follows from them.

use crate::{Seen, explore};
use fencepost::divert::{DivertLimits, KeeperEnd, Level, News, Order, Parcel, Room, ShardEnd, ends};
use fencepost::spill::Kind;
use fencepost::units::PartitionId;
use loom::thread;
use std::sync::Arc;

const LINE: PartitionId = PartitionId(0);

/// Pipes for little more than one message.
fn narrow() -> (ShardEnd, KeeperEnd) {
    ends(&DivertLimits { slots: 1, order_bytes: 56, drained_bytes: 64, letter_bytes: 64 })
}

#[test]
fn orders_come_whole_and_in_order_round_the_end_of_the_memory() {
    explore(Some(2), || {
        let (mut shard, mut keeper) = narrow();
        let ordering = thread::spawn(move || {
            for slot in 1..=2 {
                let frame = [slot as u8; 7];
                let order = Order::Append { slot, epoch: 0, partition: LINE, kind: Kind::Spilled, frame: &frame };
                while !shard.order(&order) {
                    thread::yield_now();
                }
            }
            shard
        });
        let mut next = 1;
        while next <= 2 {
            let taken = keeper.take_order(|order| {
                let Order::Append { slot, frame, .. } = order else { panic!("{order:?} was not ordered") };
                assert_eq!((slot, frame), (next, &[next as u8; 7][..]));
            });
            match taken {
                Some(()) => next += 1,
                None => thread::yield_now(),
            }
        }
        ordering.join().unwrap();
    });
}

/// The shard asks in this order: is a record there, what is the news, then the record (`Core::hear_disk`).
#[test]
fn who_sees_a_drained_record_hears_what_was_said_before_it() {
    let (seen, was_seen) = (Seen::default(), Seen::default());
    let (note, note_other) = (seen.clone(), was_seen.clone());
    explore(None, move || {
        let (mut shard, mut keeper) = narrow();
        let keeping = thread::spawn(move || {
            keeper.say(News::Synced { slot: 3, sequence: 9 });
            assert!(keeper.send(&Parcel::Record { partition: LINE, sequence: 9, frame: b"frame" }));
            keeper
        });
        let is_there = shard.has_drained();
        note.note(is_there);
        note_other.note(!is_there);
        if is_there {
            assert_eq!(shard.news(), Some(News::Synced { slot: 3, sequence: 9 }), "the record came before its news");
            let sequence = shard.drained(|parcel| match parcel {
                Parcel::Record { sequence, frame: b"frame", .. } => sequence,
                other => panic!("{other:?} was not sent"),
            });
            assert_eq!(sequence, Some(9));
        }
        keeping.join().unwrap();
    });
    assert!(seen.was() && was_seen.was());
}

/// `Relaxed` is enough for this: a level that was seen is not followed by an older one, and the last one stays.
#[test]
fn a_level_does_not_go_back() {
    explore(None, || {
        let room = Arc::new(Room::new(1));
        let keeping = {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                room.say(Some(LINE), Level::NoLow);
                room.say(None, Level::OnlyHigh);
                room.say(None, Level::Nothing);
            })
        };
        let (first, second) = (room.level(0), room.level(0));
        assert!(first <= second, "{first:?}, then {second:?}");
        keeping.join().unwrap();
        assert_eq!((room.level(0), room.volume()), (Level::Nothing, Level::Nothing));
    });
}
