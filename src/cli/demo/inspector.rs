//! The inspector: takes what the consumer read, feeds the checker, and measures submit to consumer. Behind a channel, so
//! that it may fall behind a slow machine without anything being lost; the end then waits for it.
//!
//! A planted fault is put in here, between the consumer and the checker: proof that the checker sees such faults.

use super::cluster::PARTITIONS;
use super::consumer::Chunk;
use crate::units::Nanos;
use crate::verify::frame::Frame;
use crate::verify::{Checker, CheckerOptions, Record};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// The fault is planted behind so many records: some are in order before it.
const PLANTED_AFTER: u64 = 100;

/// A fault that the checker must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// One record is withheld.
    Lost,
    /// One record is shown twice.
    Repeated,
    /// Two neighbours of one device change places.
    Reordered,
}

/// What other threads see of the inspection, and tell it.
pub struct Inspection {
    /// Records checked.
    pub checked: AtomicU64,
    /// When the outage began, in Unix µs.
    pub outage_began_us: AtomicI64,
    /// When everything the outage had held up was through, in Unix µs.
    pub outage_over_us: AtomicI64,
    /// Submit to consumer since somebody last took them, in µs.
    recent: Mutex<Histogram<u64>>,
}

/// Submit to consumer, in µs.
#[derive(Clone)]
pub struct Delivery {
    /// All records.
    pub whole: Histogram<u64>,
    /// Those that arrived before the outage or after it was over.
    pub outside: Histogram<u64>,
}

/// What came of it.
pub struct Inspected {
    /// Has seen every record; to be finished with the ledgers.
    pub checker: Checker,
    /// How long the deliveries took.
    pub delivery: Delivery,
    /// Whether the fault that was asked for could be planted.
    pub is_planted: bool,
}

impl Inspection {
    /// Nothing seen, no outage yet.
    #[must_use]
    pub fn new() -> Inspection {
        Inspection {
            checked: AtomicU64::new(0),
            outage_began_us: AtomicI64::new(i64::MAX),
            outage_over_us: AtomicI64::new(i64::MAX),
            recent: Mutex::new(empty()),
        }
    }

    /// The 99th percentile of submit to consumer since the last call; `None` if nothing arrived.
    pub fn take_recent_p99(&self) -> Option<Nanos> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let p99 = (!recent.is_empty()).then(|| Nanos::from_micros(recent.value_at_quantile(0.99)));
        recent.reset();
        p99
    }

    /// Relaxed: whole numbers, and a record at the very edge may fall on either side.
    fn is_outside_outage(&self, received_us: i64) -> bool {
        received_us < self.outage_began_us.load(Ordering::Relaxed)
            || received_us >= self.outage_over_us.load(Ordering::Relaxed)
    }
}

/// 1 µs to an hour, three digits.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("bounds that the library documents as good")
}

/// Takes chunks until the consumer is done.
#[must_use]
pub fn inspect(chunks: &Receiver<Chunk>, inspection: &Arc<Inspection>, plant: Option<Plant>) -> Inspected {
    let mut delivery = Delivery { whole: empty(), outside: empty() };
    let mut feed = Feed::new(plant);
    for chunk in chunks {
        let mut count = 0;
        let mut recent = inspection.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for record in chunk.records() {
            count += 1;
            // A value that is no frame has no time of acceptance; the checker counts it as unreadable.
            if let (Ok(frame), Some(received)) = (Frame::read(record.value), record.received) {
                let took_us = u64::try_from(received.0 - frame.accepted_unix_us).unwrap_or(0);
                recent.saturating_record(took_us);
                delivery.whole.saturating_record(took_us);
                if inspection.is_outside_outage(received.0) {
                    delivery.outside.saturating_record(took_us);
                }
            }
        }
        drop(recent);
        for record in chunk.records() {
            feed.take(&record);
        }
        // Relaxed: for the display alone.
        inspection.checked.fetch_add(count, Ordering::Relaxed);
    }
    feed.finish(delivery)
}

/// The way to the checker, with the fault on it.
struct Feed {
    checker: Checker,
    plant: Option<Plant>,
    taken: u64,
    is_planted: bool,
    /// Withheld until the next record came.
    held: Option<Held>,
    /// With a fault: offsets as if the brokers had given them out in the order of this feed.
    offsets: [i64; PARTITIONS as usize],
}

struct Held {
    partition: u32,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Feed {
    fn new(plant: Option<Plant>) -> Feed {
        let checker = Checker::new(CheckerOptions::new(PARTITIONS));
        Feed { checker, plant, taken: 0, is_planted: false, held: None, offsets: [0; PARTITIONS as usize] }
    }

    fn take(&mut self, record: &Record<'_>) {
        let Some(plant) = self.plant else { return self.checker.record(record) };
        self.taken += 1;
        if self.taken > PLANTED_AFTER && !self.is_planted {
            match (plant, &self.held) {
                (Plant::Lost, _) => {
                    self.is_planted = true;
                    return;
                }
                (Plant::Repeated, _) => {
                    self.is_planted = true;
                    self.show(record);
                }
                (Plant::Reordered, Some(held)) if held.key == record.key => {
                    self.is_planted = true;
                    self.show(record);
                    self.show_held();
                    return;
                }
                (Plant::Reordered, _) => {
                    // Most turns of a device cause several triggers, so two neighbours of one device soon come.
                    self.show_held();
                    let (key, value) = (record.key.to_vec(), record.value.to_vec());
                    self.held = Some(Held { partition: record.partition, key, value });
                    return;
                }
            }
        }
        self.show(record);
    }

    fn show(&mut self, record: &Record<'_>) {
        let next = &mut self.offsets[record.partition as usize];
        self.checker.record(&Record { offset: *next, ..*record });
        *next += 1;
    }

    fn show_held(&mut self) {
        if let Some(Held { partition, key, value }) = self.held.take() {
            self.show(&Record::new(partition, 0, &key, &value));
        }
    }

    fn finish(mut self, delivery: Delivery) -> Inspected {
        // Nothing came behind it: shown after all, so that it does not turn into a loss.
        self.show_held();
        Inspected { checker: self.checker, delivery, is_planted: self.is_planted }
    }
}
