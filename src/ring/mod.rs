//! Ring: triggers from one ingress thread to one shard thread, whole records only, in order.
//!
//! Promises: what was accepted reaches the reader, also when the writer is dropped at once; the number of triggers and
//! the number of bytes are both bounded, and the fuller of the two decides who is shed (Low first, High only when a
//! record does not fit); a reader never sees half a record. Neither end ever waits.
//!
//! Costs: a record is a header of 40 bytes and its parts, in whole cache lines: two for ids of 80 bytes in all, one up
//! to 24. In and out in batches of 32 takes 13.9 ns a record of 80-byte ids on one thread and from 20 ns between two.
//! All memory is sized by [`RingLimits`]; nothing is allocated after [`ring`].
//!
//! # The layout, and why
//!
//! It is `rtrb::RingBuffer<Line>`, a line being 64 bytes. A batch is encoded into a stage of the writer and copied into
//! the ring by one safe call; a record that straddles the end of the memory is put together in a buffer of the reader,
//! once a lap. So there is no padding and no waste, the bounds are exact, and there is no `unsafe`.
//!
//! Measured on 2026-11-30, two shared cores of an AMD EPYC, `cargo bench --no-default-features --bench ring`, medians of
//! 151 alternating rounds, batches of 32, ratio to staged lines (two threads: ratio of the best rounds):
//!
//! | layout | 80-byte ids, one thread | two threads | 24-byte ids, one thread | two threads | 256 + 256 + 1024, one thread | two threads |
//! |---|---|---|---|---|---|---|
//! | lines, staged | 1.00 (11.8 ns) | 1.00 (16.8 ns) | 1.00 (11.7 ns) | 1.00 (14.4 ns) | 1.00 (64.2 ns) | 1.00 (110.7 ns) |
//! | lines, in place, `unsafe` commit | 1.13 | 1.08 | 1.14 | 1.21 | 0.76 | 0.85 |
//! | lines, in place, published one by one | 1.18 | 1.13 | 1.18 | 1.22 | 0.77 | 0.87 |
//! | slots of 128 bytes, staged | 1.00 | 1.03 | 1.01 | 1.17 | 1.02 | 1.10 |
//! | words, staged | 0.99 | 1.03 | 0.94 | 0.99 | 1.05 | 0.99 |
//! | words, in place, `unsafe` commit | 0.98 | 0.98 | 0.98 | 1.05 | 0.56 | 0.75 |
//! | bytes, staged | 0.95 | 0.98 | 0.91 | 0.97 | 0.95 | 0.98 |
//! | bytes, in place, `unsafe` commit | 0.88 | 0.91 | 0.87 | 0.97 | 0.60 | 0.78 |
//! | this ring (levels, counts, priorities) | 1.18 | 1.19 | 1.13 | 1.34 | 0.81 | 0.82 |
//!
//! Staged lines, because two records never share a cache line between the two threads, and fill is counted in what is
//! really taken; bytes would save one nanosecond and, in place, 1.4 for an `unsafe`: not enough. Only the longest
//! records, which are rare, gain from being written in place. Our stage is 4 KiB whatever the batch, which is why this
//! ring beats its own layout there.

mod counts;
mod record;
#[cfg(test)]
mod tests;

pub use counts::RingGauge;
pub use record::{ATTRIBUTES_BYTES_MAX, ID_BYTES_MAX, Incoming, RECORD_LINES_MAX, lines_of};

use crate::prefetch::prefetch;
use crate::sync::rtrb::chunks::ReadChunk;
use crate::sync::rtrb::{Consumer, Producer, RingBuffer};
use crate::trigger::Priority;
use counts::Counts;
use record::{Head, LINE_BYTES, Line};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// Lines that a writer stages before it publishes by itself: 32 records of two lines, 4 KiB, at home in the L1.
const STAGE_LINES: usize = 64;
/// So many lines behind the next record are asked for while one is taken: two or three records.
const LINES_AHEAD: usize = 4;
const _: () = assert!(STAGE_LINES >= RECORD_LINES_MAX, "the longest record fits an empty stage");

/// The least ratio: they are kept in millionths.
const RATIO_MIN: f64 = 0.000_001;

/// The size of a ring and the fills at which it answers otherwise.
///
/// A ratio is the greater of triggers over `triggers` and lines over `lines`. Ratios are kept to six decimals and turned
/// into counts once: no float is touched per trigger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingLimits {
    /// The most triggers inside, at least 1.
    pub triggers: usize,
    /// The most cache lines of 64 bytes inside, at least [`RingLimits::LINES_MIN`].
    pub lines: usize,
    /// From this fill on, accepted comes with [`Pressure::SlowDown`].
    pub pause_ratio: f64,
    /// From this fill on, Low is shed.
    pub shed_low_ratio: f64,
    /// From this fill on, Normal is shed.
    pub shed_normal_ratio: f64,
}

impl RingLimits {
    /// The fewest lines a ring may have: the longest record must fit an empty ring.
    pub const LINES_MIN: usize = RECORD_LINES_MAX;

    /// A ring of `triggers` triggers with two lines for each (ids and attributes of 88 bytes in all) and the default ratios.
    #[must_use]
    pub const fn for_triggers(triggers: usize) -> RingLimits {
        let lines = if 2 * triggers > RingLimits::LINES_MIN { 2 * triggers } else { RingLimits::LINES_MIN };
        RingLimits { triggers, lines, pause_ratio: 0.70, shed_low_ratio: 0.80, shed_normal_ratio: 0.90 }
    }

    /// The bytes both ends take together, for the sum printed at start. Pages of the ring itself are touched as it
    /// fills for the first time, or by [`RingWriter::touch`].
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        (self.lines + STAGE_LINES + RECORD_LINES_MAX) * LINE_BYTES
            + size_of::<RingBuffer<Line>>()
            + size_of::<Counts>()
            + size_of::<RingWriter>()
            + size_of::<RingReader>()
    }
}

/// How an accepted trigger found the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Below the pause ratio.
    Clear,
    /// With this trigger in it, the ring is at or above the pause ratio.
    SlowDown,
}

/// Why a ring did not take a trigger. Nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shed {
    /// The ring is at or above the fill from which this priority is shed.
    #[error("the ring is too full for this priority")]
    Priority,
    /// The record does not fit, whatever its priority.
    #[error("the ring is full")]
    Full,
}

/// What the reader's function did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// It is the shard's now; its room is freed.
    Taken,
    /// It stays the first of the ring, and [`RingReader::take`] stops.
    Leave,
}

/// Triggers and lines: an amount in a ring, or a level that it may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fill {
    triggers: usize,
    lines: usize,
}

impl Fill {
    /// The least fill whose ratio to `whole` is `ratio` or more.
    fn at(ratio: f64, whole: Fill) -> Fill {
        // Through millionths: `ratio` times a count in floats would put 0.7 of 10 at 8 or at 7, as the rounding falls.
        let millionths = (ratio * 1e6).round() as u128;
        let of = |count: usize| (count as u128 * millionths).div_ceil(1_000_000) as usize;
        Fill { triggers: of(whole.triggers), lines: of(whole.lines) }
    }

    /// Whether the greater of the two ratios has come to `level`.
    const fn reaches(self, level: Fill) -> bool {
        self.triggers >= level.triggers || self.lines >= level.lines
    }

    const fn exceeds(self, level: Fill) -> bool {
        self.triggers > level.triggers || self.lines > level.lines
    }

    const fn with_one_of(self, lines: usize) -> Fill {
        Fill { triggers: self.triggers + 1, lines: self.lines + lines }
    }
}

/// The two ends of a new ring.
///
/// # Panics
/// If a limit is out of its range, or the ratios do not rise in the order pause, Low, Normal, from a millionth to 1.
/// The configuration refuses both, by the same bounds, with the key's name.
#[must_use]
pub fn ring(limits: RingLimits) -> (RingWriter, RingReader) {
    let RingLimits { triggers, lines, pause_ratio, shed_low_ratio, shed_normal_ratio } = limits;
    assert!(triggers >= 1, "a ring holds at least one trigger");
    assert!(
        lines >= RingLimits::LINES_MIN,
        "a ring has at least {} lines, so that the longest record fits; got {lines}",
        RingLimits::LINES_MIN
    );
    assert!(
        RATIO_MIN <= pause_ratio
            && pause_ratio <= shed_low_ratio
            && shed_low_ratio <= shed_normal_ratio
            && shed_normal_ratio <= 1.0,
        "{RATIO_MIN} <= pause <= low <= normal <= 1 must hold; got {pause_ratio}, {shed_low_ratio}, {shed_normal_ratio}"
    );
    let whole = Fill { triggers, lines };
    let counts = Arc::new(Counts::default());
    let (producer, consumer) = RingBuffer::new(lines);
    let writer = RingWriter {
        lines: producer,
        stage: vec![Line::default(); STAGE_LINES].into_boxed_slice(),
        staged: 0,
        seen: Fill { triggers: 0, lines: 0 },
        pushed: 0,
        whole,
        pause: Fill::at(pause_ratio, whole),
        shed_low: Fill::at(shed_low_ratio, whole),
        shed_normal: Fill::at(shed_normal_ratio, whole),
        counts: Arc::clone(&counts),
    };
    let reader = RingReader {
        lines: consumer,
        straddling: vec![Line::default(); RECORD_LINES_MAX].into_boxed_slice(),
        taken: 0,
        counts,
    };
    (writer, reader)
}

/// The ingress's end.
///
/// [`stage`](RingWriter::stage) accepts a trigger and may keep it back; [`publish`](RingWriter::publish) shows the reader
/// all that was staged, at the price of one store. An ingress stages over several rings and publishes each once.
pub struct RingWriter {
    lines: Producer<Line>,
    /// Whole records not published yet, in front.
    stage: Box<[Line]>,
    /// Lines of the stage in use.
    staged: usize,
    /// What is inside, staged lines included, as far as this end knows: never less than what is.
    seen: Fill,
    /// Triggers accepted since the start, staged ones included.
    pushed: u64,
    whole: Fill,
    pause: Fill,
    shed_low: Fill,
    shed_normal: Fill,
    counts: Arc<Counts>,
}

impl RingWriter {
    /// Whether the ring would take a trigger of this priority whose ids and attributes are `bytes` long in all. Records
    /// nothing; the next `stage` or `push` of that size will answer the same or, if the reader moved, better.
    ///
    /// # Errors
    /// [`Shed`], by priority or because it does not fit.
    #[inline]
    pub fn admit(&mut self, priority: Priority, bytes: usize) -> Result<Pressure, Shed> {
        self.admit_lines(priority, lines_of(bytes))
    }

    #[inline]
    fn admit_lines(&mut self, priority: Priority, lines: usize) -> Result<Pressure, Shed> {
        // What this end knows can only be too much, so below the pause level there is nothing to ask the reader.
        if !self.seen.with_one_of(lines).reaches(self.pause) {
            return Ok(Pressure::Clear);
        }
        self.weigh(priority, lines)
    }

    /// The verdict when a level seems to be reached: first sees what the reader has freed.
    #[cold]
    fn weigh(&mut self, priority: Priority, lines: usize) -> Result<Pressure, Shed> {
        // Triggers first: the Acquire in `taken` makes the head that rtrb reads next at least as new. An older one would only
        // make the ring seem fuller.
        let triggers = self.pushed - self.counts.taken();
        self.seen = Fill { triggers: triggers as usize, lines: self.whole.lines - self.lines.slots() + self.staged };
        let with_it = self.seen.with_one_of(lines);
        if with_it.exceeds(self.whole) {
            return Err(Shed::Full);
        }
        let shed = match priority {
            Priority::Low => self.seen.reaches(self.shed_low),
            Priority::Normal => self.seen.reaches(self.shed_normal),
            Priority::High => false,
        };
        if shed {
            Err(Shed::Priority)
        } else if with_it.reaches(self.pause) {
            Ok(Pressure::SlowDown)
        } else {
            Ok(Pressure::Clear)
        }
    }

    /// Accepts a trigger, to be shown to the reader by the next [`publish`](RingWriter::publish) (or before, when the
    /// stage is full; or when this end is dropped: what was accepted is never taken back).
    ///
    /// # Errors
    /// [`Shed`]: the trigger is still the caller's, nothing was recorded.
    ///
    /// # Panics
    /// If an id is not 1 to 256 bytes long or the attributes are longer than 1,024: submit refuses those before.
    #[inline]
    pub fn stage(&mut self, incoming: &Incoming<'_>) -> Result<Pressure, Shed> {
        let lines = lines_of(incoming.bytes());
        let pressure = self.admit_lines(incoming.priority, lines)?;
        if self.staged + lines > STAGE_LINES {
            self.publish();
        }
        // Counted only when it is whole: a panic in between leaves the stage as it was.
        record::encode(incoming, &mut self.stage[self.staged..self.staged + lines]);
        self.staged += lines;
        self.seen = self.seen.with_one_of(lines);
        self.pushed += 1;
        Ok(pressure)
    }

    /// Shows the reader everything that was staged. One copy, two stores; nothing to do when nothing is staged.
    #[inline]
    pub fn publish(&mut self) {
        if self.staged == 0 {
            return;
        }
        self.counts.publish_pushed(self.pushed);
        self.lines.push_entire_slice(&self.stage[..self.staged]).expect("staged lines were admitted, so they fit");
        self.staged = 0;
    }

    /// Accepts a trigger and shows it to the reader at once.
    ///
    /// # Errors
    /// As [`stage`](RingWriter::stage).
    ///
    /// # Panics
    /// As [`stage`](RingWriter::stage).
    #[inline]
    pub fn push(&mut self, incoming: &Incoming<'_>) -> Result<Pressure, Shed> {
        let pressure = self.stage(incoming)?;
        self.publish();
        Ok(pressure)
    }

    /// Triggers accepted since the start, staged ones included.
    #[must_use]
    pub const fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Whether the reader is gone. What is pushed from then on is never taken.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.lines.is_abandoned()
    }

    /// Writes zeros to all free room, so that its pages are there, on this thread's memory node, before the first
    /// trigger needs them.
    pub fn touch(&mut self) {
        let free = self.lines.slots();
        // `write_chunk` fills the room with zero lines; dropped without a commit, it publishes none of them.
        drop(self.lines.write_chunk(free).expect("slots() said they are free"));
    }

    /// A view of the counts for another thread.
    #[must_use]
    pub fn gauge(&self) -> RingGauge {
        RingGauge(Arc::clone(&self.counts))
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.publish();
    }
}

impl fmt::Debug for RingWriter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RingWriter")
            .field("pushed", &self.pushed)
            .field("staged_lines", &self.staged)
            .field("seen", &self.seen)
            .field("whole", &self.whole)
            .finish_non_exhaustive()
    }
}

/// The shard's end.
pub struct RingReader {
    lines: Consumer<Line>,
    /// Where the one record that straddles the end of the memory is put together.
    straddling: Box<[Line]>,
    /// Triggers taken since the start.
    taken: u64,
    counts: Arc<Counts>,
}

impl RingReader {
    /// Hands up to `most` records to `each`, oldest first, in place, and frees the room of those it took, once, at the
    /// end. Answers how many were taken. Should `each` panic, the records it took before are freed and the one it
    /// panicked on stays the first.
    #[inline]
    pub fn take(&mut self, most: usize, mut each: impl FnMut(Incoming<'_>) -> Take) -> usize {
        self.take_with_next(most, |incoming, _| each(incoming))
    }

    /// As [`take`](RingReader::take). With each record comes the hash of the one behind it, so that what that one will need
    /// can be asked for meanwhile; `None`: there is none, or it lies beyond the end of the memory.
    #[inline]
    pub fn take_with_next(&mut self, most: usize, mut each: impl FnMut(Incoming<'_>, Option<u64>) -> Take) -> usize {
        let have = self.lines.slots();
        if have == 0 || most == 0 {
            return 0;
        }
        let batch = Batch {
            chunk: Some(self.lines.read_chunk(have).expect("slots() said they are there")),
            lines: Cell::new(0),
            triggers: Cell::new(0),
            taken: &mut self.taken,
            counts: &self.counts,
        };
        let (front, back) = batch.chunk.as_ref().expect("taken only by drop").as_slices();
        while batch.lines.get() < have && batch.triggers.get() < most {
            let at = batch.lines.get();
            let (part, at_in_part) = if at < front.len() { (front, at) } else { (back, at - front.len()) };
            let head = Head::of(&part[at_in_part]);
            let lines = head.lines();
            let record = match part.get(at_in_part..at_in_part + lines) {
                Some(whole) => whole,
                None => {
                    let (first, second) = self.straddling[..lines].split_at_mut(front.len() - at);
                    first.copy_from_slice(&front[at..]);
                    second.copy_from_slice(&back[..second.len()]);
                    &self.straddling[..lines]
                }
            };
            // The writer's core had it last. (One that is not published yet is left to the writer.)
            if let Some(ahead) = part.get(at_in_part + lines + LINES_AHEAD) {
                prefetch(ahead);
            }
            let next = part.get(at_in_part + lines).map(|line| Head::of(line).hash());
            if each(head.incoming(record), next) == Take::Leave {
                break;
            }
            batch.lines.set(at + lines);
            batch.triggers.set(batch.triggers.get() + 1);
        }
        batch.triggers.get()
    }

    /// Whether nothing published is left to take.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether the writer is gone. There may still be records inside; see [`is_finished`](RingReader::is_finished).
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.lines.is_abandoned()
    }

    /// Whether the writer is gone and everything it accepted was taken: nothing will ever come again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        // In this order: the writer publishes before it goes, so what is seen empty after it went stays empty. The
        // Acquire in rtrb's `is_abandoned` is the partner of the Release with which it sets that flag.
        self.lines.is_abandoned() && self.lines.is_empty()
    }

    /// Triggers taken since the start.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// A view of the counts for another thread.
    #[must_use]
    pub fn gauge(&self) -> RingGauge {
        RingGauge(Arc::clone(&self.counts))
    }
}

impl fmt::Debug for RingReader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RingReader").field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// What one [`RingReader::take`] has done so far; frees it when dropped, also by a panic.
struct Batch<'a> {
    chunk: Option<ReadChunk<'a, Line>>,
    lines: Cell<usize>,
    triggers: Cell<usize>,
    taken: &'a mut u64,
    counts: &'a Counts,
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        let (lines, triggers) = (self.lines.get(), self.triggers.get());
        if triggers == 0 {
            return;
        }
        if let Some(chunk) = self.chunk.take() {
            chunk.commit(lines);
            *self.taken += triggers as u64;
            self.counts.publish_taken(*self.taken);
        }
    }
}
