//! The ring between an ingress and a shard: whole records in order, nothing left behind, counts that never go below none.

use crate::explore;
use fencepost::ring::{Incoming, RingLimits, RingReader, RingWriter, Shed, Take, ring};
use fencepost::trigger::{Priority, State};
use fencepost::units::{Nanos, PartitionId, Seq};
use loom::thread;

fn small_ring(triggers: usize) -> (RingWriter, RingReader) {
    let (lines, full) = (RingLimits::LINES_MIN, 1.0);
    ring(RingLimits { triggers, lines, pause_ratio: 0.01, shed_low_ratio: full, shed_normal_ratio: full })
}

fn record(seq: u64, attributes: &[u8]) -> Incoming<'_> {
    Incoming {
        seq: Seq(seq),
        accepted: Nanos(seq),
        event_time_ms: 1,
        hash: seq,
        partition: PartitionId(0),
        state: State::Enter,
        priority: Priority::High,
        device_id: b"d",
        fence_id: b"f",
        attributes,
    }
}

/// Pushes until there is room.
fn insist(writer: &mut RingWriter, seq: u64, attributes: &[u8]) {
    while let Err(shed) = writer.push(&record(seq, attributes)) {
        assert_eq!(shed, Shed::Full);
        thread::yield_now();
    }
}

/// Takes what is there; each must be the next one, and whole.
fn take_next(reader: &mut RingReader, next: &mut u64) -> usize {
    reader.take(8, |incoming| {
        assert_eq!((incoming.seq.0, incoming.hash), (*next, *next));
        assert!(incoming.attributes.iter().all(|byte| u64::from(*byte) == *next));
        *next += 1;
        Take::Taken
    })
}

#[test]
fn records_come_whole_and_in_order_round_the_end_of_the_memory() {
    explore(Some(2), || {
        let (mut writer, mut reader) = small_ring(8);
        let writing = thread::spawn(move || (1..=3).for_each(|seq| insist(&mut writer, seq, &[seq as u8; 700])));
        let mut next = 1;
        while next <= 3 {
            if take_next(&mut reader, &mut next) == 0 {
                thread::yield_now();
            }
        }
        writing.join().unwrap();
        assert!(reader.is_empty());
    });
}

#[test]
fn a_batch_is_seen_as_a_whole() {
    explore(None, || {
        let (mut writer, mut reader) = small_ring(8);
        let writing = thread::spawn(move || {
            for batch in [[1, 2], [3, 4]] {
                batch.iter().for_each(|seq| assert!(writer.stage(&record(*seq, &[])).is_ok()));
                writer.publish();
            }
            writer
        });
        let mut next = 1;
        take_next(&mut reader, &mut next);
        assert!(next % 2 == 1, "half a batch was seen");
        take_next(&mut reader, &mut next);
        assert!(next % 2 == 1, "half a batch was seen");
        writing.join().unwrap();
    });
}

#[test]
fn what_was_accepted_is_there_when_the_writer_has_gone() {
    explore(Some(3), || {
        let (mut writer, mut reader) = small_ring(8);
        let writing = thread::spawn(move || {
            writer.push(&record(1, &[])).unwrap();
            // Staged, and shown by nothing but the drop.
            writer.stage(&record(2, &[])).unwrap();
        });
        let mut next = 1;
        while !reader.is_finished() {
            if take_next(&mut reader, &mut next) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(next, 3, "the ring was called finished with a record in it");
        writing.join().unwrap();
    });
}

#[test]
fn a_ring_never_holds_more_triggers_than_it_may() {
    explore(Some(2), || {
        let (mut writer, mut reader) = small_ring(1);
        let writing = thread::spawn(move || (1..=3).for_each(|seq| insist(&mut writer, seq, &[])));
        let mut next = 1;
        while next <= 3 {
            let taken = take_next(&mut reader, &mut next);
            assert!(taken <= 1, "{taken} triggers were in a ring for one");
            if taken == 0 {
                thread::yield_now();
            }
        }
        writing.join().unwrap();
    });
}

#[test]
fn the_gauge_never_counts_below_none() {
    explore(Some(2), || {
        let (mut writer, mut reader) = small_ring(8);
        let gauge = writer.gauge();
        let writing = thread::spawn(move || (1..=2).for_each(|seq| insist(&mut writer, seq, &[])));
        let reading = thread::spawn(move || {
            let mut next = 1;
            while next <= 2 {
                if take_next(&mut reader, &mut next) == 0 {
                    thread::yield_now();
                }
            }
        });
        for _ in 0..2 {
            let in_ring = gauge.in_ring();
            assert!(in_ring <= 2, "{in_ring} of 2 are in the ring");
        }
        writing.join().unwrap();
        reading.join().unwrap();
        assert_eq!((gauge.pushed(), gauge.taken(), gauge.in_ring()), (2, 2, 0));
    });
}
