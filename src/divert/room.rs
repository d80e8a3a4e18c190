//! How much room the disk has, as the shards see it: one small number for the volume and one for each partition, written
//! by the disk thread, read by any.

use crate::sync::atomic::{AtomicU8, Ordering};

/// From which priority on triggers are taken. A greater level sheds more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// There is room for all.
    #[default]
    All = 0,
    /// Low is shed.
    NoLow = 1,
    /// Only the reserve is left: Low and Normal are shed.
    OnlyHigh = 2,
    /// Nothing is taken.
    Nothing = 3,
}

impl Level {
    /// From its number.
    #[must_use]
    pub fn of(number: u8) -> Level {
        match number {
            0 => Level::All,
            1 => Level::NoLow,
            2 => Level::OnlyHigh,
            _ => Level::Nothing,
        }
    }
}

/// The levels of a spill.
///
/// `Relaxed` throughout: a shard may see a level a moment late, which the reserve absorbs; no other memory hangs on it.
pub struct Room {
    volume: AtomicU8,
    partitions: Box<[AtomicU8]>,
}

impl Room {
    /// Room for all.
    #[must_use]
    pub fn new(partitions: u32) -> Room {
        Room { volume: AtomicU8::new(0), partitions: (0..partitions).map(|_| AtomicU8::new(0)).collect() }
    }

    /// What a partition's triggers meet: the worse of the volume's level and its own.
    #[must_use]
    pub fn level(&self, partition: u32) -> Level {
        let own = self.partitions[partition as usize].load(Ordering::Relaxed);
        Level::of(own.max(self.volume.load(Ordering::Relaxed)))
    }

    /// The volume's level.
    #[must_use]
    pub fn volume(&self) -> Level {
        Level::of(self.volume.load(Ordering::Relaxed))
    }

    pub(super) fn set_volume(&self, level: Level) {
        self.volume.store(level as u8, Ordering::Relaxed);
    }

    pub(super) fn set_partition(&self, partition: u32, level: Level) {
        self.partitions[partition as usize].store(level as u8, Ordering::Relaxed);
    }
}
