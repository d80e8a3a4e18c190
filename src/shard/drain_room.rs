//! The slots and pages that what comes back from the disk may count on.
//!
//! What waits for a disk that is full, or takes nothing, would fill every slot from rings that are full, and would wait
//! for room that only a drain makes. So the rings leave some to the drains: a **share** for all of them together, and
//! **singles**, one for each partition that has nothing in its line, which a partition that does not get on cannot use up.
//! A record asked for has its room from then on.

use crate::slab::{Kept, Slab};

/// What a shard's drains hold and are promised.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainRoom {
    share: Kept,
    singles: Kept,
    /// Slots of records that came back.
    held: usize,
    /// Records asked for that are not there yet.
    promised: usize,
}

impl DrainRoom {
    /// A sixteenth of the slots as share, and at most a sixteenth as singles for so many partitions.
    #[must_use]
    pub fn new(slab: &Slab, partitions: usize) -> DrainRoom {
        let (slots, pages) = ((slab.slots() / 16).max(1), (slab.pages() / 16).max(1));
        let mut single = partitions.min(slots);
        while Kept::for_frames(single).pages > pages {
            single -= 1;
        }
        let share = Kept { slots, pages: Kept::for_frames(slots).pages.min(pages) };
        DrainRoom { share, singles: Kept::for_frames(single), held: 0, promised: 0 }
    }

    /// What the rings leave.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let promised = Kept::for_frames(self.promised);
        let share = self.share.slots.saturating_sub(self.held);
        Kept {
            slots: self.singles.slots + promised.slots.max(share),
            pages: self.singles.pages + promised.pages.max(self.share.pages.min(share)),
        }
    }

    /// How many records may be asked for, of at most `most`. `is_first`: the line has none.
    #[must_use]
    pub fn most(&self, slab: &Slab, most: u32, is_first: bool) -> u32 {
        let mut count = most as usize;
        while count > 0 && !self.has_room(slab, count) {
            count /= 2;
        }
        if count == 0 && most > 0 && is_first {
            let one_more = Kept::for_frames(self.promised + 1);
            count = usize::from(slab.free_slots() >= one_more.slots && slab.free_pages() >= one_more.pages);
        }
        count as u32
    }

    /// Whether there is room for so many more beside what comes from the rings, or of the share.
    fn has_room(&self, slab: &Slab, count: usize) -> bool {
        let all = Kept::for_frames(self.promised + count);
        let free_slots = slab.free_slots().saturating_sub(self.singles.slots);
        let free_pages = slab.free_pages().saturating_sub(self.singles.pages);
        let is_beside = free_slots > all.slots + slab.slots() / 8 && free_pages > all.pages + slab.pages() / 8;
        let is_of_share =
            self.held + all.slots <= self.share.slots && free_slots >= all.slots && free_pages >= all.pages;
        is_beside || is_of_share
    }

    /// So many were asked for.
    pub fn promise(&mut self, count: u32) {
        self.promised += count as usize;
    }

    /// So many of those will not come.
    pub fn break_off(&mut self, count: u32) {
        self.promised -= count as usize;
    }

    /// One that was asked for came, and has its slot.
    pub fn came(&mut self) {
        self.promised -= 1;
        self.held += 1;
    }

    /// The slot of one that came is free again.
    pub fn left(&mut self) {
        self.held -= 1;
    }

    /// Slots of records that came back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }
}
