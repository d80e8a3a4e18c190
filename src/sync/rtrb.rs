//! A stand-in for `rtrb` 0.4.1 in model checks, since that knows nothing of loom: the same functions over loom's atomics.
//!
//! Promises: every load and store of head, tail and flags stands where rtrb has it, with rtrb's ordering, and both ends
//! keep what they saw of the other as rtrb does. Each slot is a cell that loom watches: a model fails when two threads
//! touch one without an order between them, or one reads what was never written. So what is shown here holds for our use
//! of rtrb, as long as rtrb does what its source says; its own proof is its own matter.
//!
//! What differs: a chunk is a copy. Values are read when a chunk is asked for and written when it is committed, where
//! rtrb reads and writes in place in between; in the order of the thread's own steps that is the same to every other
//! thread. Values are `Copy`, as all of ours are, and memory is taken slot by slot, at its first write.

pub use ::rtrb::chunks::ChunkError;
pub use ::rtrb::{PopError, PushError};
use loom::cell::Cell as Watched;
use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

const IS_ABANDONED: u8 = 0b1000_0000;

/// Both ends' memory.
pub struct RingBuffer<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    flags: AtomicU8,
    slots: Box<[Slot<T>]>,
}

/// Where one value lies.
struct Slot<T>(OnceLock<Watched<T>>);

// WHY: `Shard` and `Ingress` must be `Send` in a model as anywhere, and loom's cells are not `Sync`.
// SAFETY: loom runs all threads of a model one after another on a single one, and panics before an access to the cell
// that has no order with another thread's.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T: Copy> Slot<T> {
    fn read(&self) -> T {
        self.0.get().expect("a slot is written before it is read").get()
    }

    fn write(&self, value: T) {
        // The cell takes its making for a write by the thread that makes it.
        if let Err(again) = self.0.set(Watched::new(value)) {
            self.0.get().expect("set says it is there").set(again.into_inner());
        }
    }
}

impl<T: Copy> RingBuffer<T> {
    /// The two ends of a ring with so many slots.
    #[allow(clippy::new_ret_no_self)] // As rtrb has it.
    #[must_use]
    pub fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
        let slots = (0..capacity).map(|_| Slot(OnceLock::new())).collect();
        let (head, tail, flags) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU8::new(0));
        let buffer = Arc::new(RingBuffer { head, tail, flags, slots });
        let producer = Producer { buffer: Arc::clone(&buffer), cached_head: Cell::new(0), cached_tail: Cell::new(0) };
        (producer, Consumer { buffer, cached_head: Cell::new(0), cached_tail: Cell::new(0) })
    }

    /// Positions run to twice the capacity, so that full and empty differ.
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position % self.slots.len()]
    }

    fn increment(&self, position: usize, by: usize) -> usize {
        (position + by) % (2 * self.slots.len())
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        (2 * self.slots.len() + to - from) % (2 * self.slots.len())
    }

    /// Where a chunk's values lie, in order, and how many of them come before the end of the memory.
    fn chunk(&self, position: usize, length: usize) -> (impl Iterator<Item = &Slot<T>>, usize) {
        let start = position % self.slots.len();
        ((start..start + length).map(|at| self.slot(at)), length.min(self.slots.len() - start))
    }
}

impl<T> RingBuffer<T> {
    /// rtrb's `ArcRingBuffer::drop`: whoever drops first says so; whoever drops last frees the memory.
    ///
    /// A model that has failed is over: a step of loom's then would be a second panic, in a drop.
    fn abandon(&self) {
        if std::thread::panicking() {
            return;
        }
        if self.flags.fetch_or(IS_ABANDONED, Ordering::Release) & IS_ABANDONED != 0 {
            self.flags.load(Ordering::Acquire);
        }
    }
}

/// The writing end.
pub struct Producer<T> {
    buffer: Arc<RingBuffer<T>>,
    cached_head: Cell<usize>,
    cached_tail: Cell<usize>,
}

impl<T> Producer<T> {
    /// Whether the reading end is gone.
    pub fn is_abandoned(&self) -> bool {
        self.buffer.flags.load(Ordering::Acquire) & IS_ABANDONED != 0
    }
}

impl<T: Copy> Producer<T> {
    /// Slots that are free.
    pub fn slots(&self) -> usize {
        self.cached_head.set(self.buffer.head.load(Ordering::Acquire));
        self.free()
    }

    /// Slots that are free as far as this end knows.
    fn free(&self) -> usize {
        self.buffer.slots.len() - self.buffer.distance(self.cached_head.get(), self.cached_tail.get())
    }

    /// Writes one value.
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        if self.free() == 0 && self.slots() == 0 {
            return Err(PushError::Full(value));
        }
        self.buffer.slot(self.cached_tail.get()).write(value);
        self.publish(1);
        Ok(())
    }

    fn publish(&mut self, values: usize) {
        let tail = self.buffer.increment(self.cached_tail.get(), values);
        self.buffer.tail.store(tail, Ordering::Release);
        self.cached_tail.set(tail);
    }

    fn reserve(&mut self, length: usize) -> Result<(), ChunkError> {
        if self.free() < length {
            let slots = self.slots();
            if slots < length {
                return Err(ChunkError::TooFewSlots(slots));
            }
        }
        Ok(())
    }

    /// Writes all of a slice, or nothing.
    pub fn push_entire_slice(&mut self, slice: &[T]) -> Result<(), ChunkError> {
        self.reserve(slice.len())?;
        let (slots, _) = self.buffer.chunk(self.cached_tail.get(), slice.len());
        slots.zip(slice).for_each(|(slot, value)| slot.write(*value));
        self.publish(slice.len());
        Ok(())
    }

    /// Room for so many values, all of them their default.
    pub fn write_chunk(&mut self, length: usize) -> Result<WriteChunk<'_, T>, ChunkError>
    where
        T: Default,
    {
        self.reserve(length)?;
        let (slots, split) = self.buffer.chunk(self.cached_tail.get(), length);
        slots.for_each(|slot| slot.write(T::default()));
        Ok(WriteChunk { values: vec![T::default(); length], split, producer: self })
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.buffer.abandon();
    }
}

/// Room to be written to.
pub struct WriteChunk<'a, T> {
    values: Vec<T>,
    split: usize,
    producer: &'a mut Producer<T>,
}

impl<T: Copy> WriteChunk<'_, T> {
    /// Up to the end of the memory, and from its beginning.
    pub fn as_mut_slices(&mut self) -> (&mut [T], &mut [T]) {
        self.values.split_at_mut(self.split)
    }

    /// Shows the reader everything.
    pub fn commit_all(self) {
        let (slots, _) = self.producer.buffer.chunk(self.producer.cached_tail.get(), self.values.len());
        slots.zip(&self.values).for_each(|(slot, value)| slot.write(*value));
        self.producer.publish(self.values.len());
    }
}

/// The reading end.
pub struct Consumer<T> {
    buffer: Arc<RingBuffer<T>>,
    cached_head: Cell<usize>,
    cached_tail: Cell<usize>,
}

impl<T> Consumer<T> {
    /// Whether the writing end is gone.
    pub fn is_abandoned(&self) -> bool {
        self.buffer.flags.load(Ordering::Acquire) & IS_ABANDONED != 0
    }
}

impl<T: Copy> Consumer<T> {
    /// Values that are there.
    pub fn slots(&self) -> usize {
        self.cached_tail.set(self.buffer.tail.load(Ordering::Acquire));
        self.filled()
    }

    /// Values that are there as far as this end knows.
    fn filled(&self) -> usize {
        self.buffer.distance(self.cached_head.get(), self.cached_tail.get())
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.filled() == 0 && self.slots() == 0
    }

    /// Takes one value out.
    pub fn pop(&mut self) -> Result<T, PopError> {
        if self.is_empty() {
            return Err(PopError::Empty);
        }
        let value = self.buffer.slot(self.cached_head.get()).read();
        self.free(1);
        Ok(value)
    }

    fn free(&mut self, values: usize) {
        let head = self.buffer.increment(self.cached_head.get(), values);
        self.buffer.head.store(head, Ordering::Release);
        self.cached_head.set(head);
    }

    /// The oldest so many values, left where they are.
    pub fn read_chunk(&mut self, length: usize) -> Result<chunks::ReadChunk<'_, T>, ChunkError> {
        if self.filled() < length {
            let slots = self.slots();
            if slots < length {
                return Err(ChunkError::TooFewSlots(slots));
            }
        }
        let (slots, split) = self.buffer.chunk(self.cached_head.get(), length);
        let values = slots.map(Slot::read).collect();
        Ok(chunks::ReadChunk { values, split, consumer: self })
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.buffer.head.store(self.cached_head.get(), Ordering::Release);
        }
        self.buffer.abandon();
    }
}

/// What is read many at a time.
pub mod chunks {
    use super::Consumer;

    /// Values that are there until they are committed.
    pub struct ReadChunk<'a, T> {
        pub(super) values: Vec<T>,
        pub(super) split: usize,
        pub(super) consumer: &'a mut Consumer<T>,
    }

    impl<T: Copy> ReadChunk<'_, T> {
        /// Up to the end of the memory, and from its beginning.
        pub fn as_slices(&self) -> (&[T], &[T]) {
            self.values.split_at(self.split)
        }

        /// Frees the oldest of them.
        pub fn commit(self, length: usize) {
            let length = length.min(self.values.len());
            self.consumer.free(length);
        }

        /// Frees all of them.
        pub fn commit_all(self) {
            let length = self.values.len();
            self.commit(length);
        }
    }
}
