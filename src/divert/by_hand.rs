//! The keeper's ends turned by hand, for the model checks (`tests/loom`): what its rooms do with them, without a disk.

use super::order::{News, Order, Parcel};
use super::room::{Level, Room};
use super::{KeeperEnd, tell};
use crate::units::PartitionId;

impl KeeperEnd {
    /// Takes the next order.
    pub fn take_order<T>(&mut self, take: impl FnOnce(Order<'_>) -> T) -> Option<T> {
        let (head, frame) = self.orders.read()?;
        Some(take(Order::decode(&head, frame)))
    }

    /// Says what became of one.
    pub fn say(&mut self, news: News) {
        tell(&mut self.news, news);
    }

    /// Sends something of a read. False: there is no room.
    #[must_use]
    pub fn send(&mut self, parcel: &Parcel<'_>) -> bool {
        let (head, body) = parcel.encode();
        self.drained.write(head, body)
    }
}

impl Room {
    /// Says how much room there is: of a partition, or of the volume.
    pub fn say(&self, partition: Option<PartitionId>, level: Level) {
        match partition {
            Some(partition) => self.set_partition(partition.0, level),
            None => self.set_volume(level),
        }
    }
}
