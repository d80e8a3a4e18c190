//! A record through the product's ring, in batches of 32, both ends on one thread.

use super::{Body, Size};
use crate::support::ids::{COUNT, Item, items};
use fencepost::ring::{Incoming, RingLimits, RingReader, RingWriter, Take, ring};
use fencepost::trigger::{Priority, Trigger};
use fencepost::units::{Nanos, PartitionId, Seq};
use std::hint::black_box;

/// Records that are published together, and taken together.
const BATCH: usize = 32;

/// Records of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(256, COUNT as u64)
}

/// Records in and out.
pub struct Records {
    items: Vec<Item>,
    writer: RingWriter,
    reader: RingReader,
    runs: u64,
    seqs: u64,
    bytes: u64,
}

impl Records {
    pub fn new(ids: &str, size: Size) -> Records {
        let (mut writer, reader) = ring(RingLimits::for_triggers(4_096));
        writer.touch();
        let items = items(ids, operations(size) as usize);
        Records { items, writer, reader, runs: 0, seqs: 0, bytes: 0 }
    }
}

fn incoming<'a>(trigger: &Trigger<'a>, seq: u64) -> Incoming<'a> {
    Incoming {
        seq: Seq(seq),
        accepted: Nanos(seq),
        event_time_ms: trigger.event_time_ms,
        hash: seq.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        partition: PartitionId((seq % 24) as u32),
        state: trigger.state,
        priority: Priority::Normal,
        device_id: trigger.device_id.as_bytes(),
        fence_id: trigger.fence_id.as_bytes(),
        attributes: trigger.attributes,
    }
}

fn bytes_of(incoming: &Incoming<'_>) -> u64 {
    (incoming.device_id.len() + incoming.fence_id.len() + incoming.attributes.len()) as u64
}

impl Body for Records {
    fn run(&mut self) {
        let mut seq = self.runs * self.items.len() as u64;
        for batch in self.items.chunks(BATCH) {
            for item in batch {
                seq += 1;
                let staged = self.writer.stage(&incoming(&item.trigger(), seq));
                assert!(staged.is_ok(), "an empty ring takes a batch");
            }
            self.writer.publish();
            let (seqs, bytes) = (&mut self.seqs, &mut self.bytes);
            let taken = self.reader.take(BATCH, |incoming| {
                *seqs += black_box(&incoming).seq.0;
                *bytes += bytes_of(&incoming);
                Take::Taken
            });
            assert_eq!(taken, batch.len());
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        let count = self.runs * self.items.len() as u64;
        assert_eq!(self.seqs, count * (count + 1) / 2, "each record came out, once");
        let bytes: u64 = self.items.iter().map(|item| bytes_of(&incoming(&item.trigger(), 0))).sum();
        assert_eq!(self.bytes, self.runs * bytes);
        // Once more, byte for byte.
        for item in &self.items {
            let want = incoming(&item.trigger(), 7);
            self.writer.push(&want).expect("it is empty");
            let taken = self.reader.take(1, |got| {
                assert_eq!((got.seq, got.device_id, got.fence_id), (want.seq, want.device_id, want.fence_id));
                assert_eq!((got.hash, got.partition, got.attributes), (want.hash, want.partition, want.attributes));
                Take::Taken
            });
            assert_eq!(taken, 1);
        }
    }
}
