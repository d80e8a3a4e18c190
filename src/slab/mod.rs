//! The slab: where a frame lives from the moment the shard encodes it until nothing needs it any more.
//!
//! A slot is an index that the whole shard knows a trigger by. A slot may hold a frame: bytes at an address that does
//! not move, so that the client library can send them without a copy. While a frame is **lent**, nobody writes to it
//! and nobody frees it; that is a state checked here, not a convention.
//!
//! All memory is taken at construction (zeroed, so untouched pages cost address space only). `take` and `free` are a
//! pop and a push on a list: about 4 ns. A frame takes the next of eleven sizes; pages of 16 KiB are dealt to a size
//! when it needs one and come back when the last frame of a page is gone.

mod arena;

pub use arena::{Arena, Lent};

use crate::prefetch::{prefetch, prefetch_at, prefetch_for_write_at};
use std::ptr::NonNull;
use std::sync::Arc;

/// The block sizes, in bytes. A typical frame (two ids of 20 to 40 bytes) is 110 to 170 bytes.
const BLOCK_BYTES: [usize; 11] = [64, 128, 192, 256, 320, 384, 512, 640, 896, 1280, 1792];
/// The longest frame a slot can hold.
pub const FRAME_BYTES_MAX: usize = BLOCK_BYTES[BLOCK_BYTES.len() - 1];
/// A page is dealt to one block size at a time.
const PAGE_BYTES: usize = 16 * 1024;
const UNIT_BYTES: usize = 64;
const UNITS_PER_PAGE: usize = PAGE_BYTES / UNIT_BYTES;
/// "No such slot, page or block".
const NONE: u32 = u32::MAX;
const NONE_16: u16 = u16::MAX;
/// In a slot's class: a reader that will not report may still read the block.
const STRANDED: u8 = 0x80;

/// A slot: an index, always below [`SlabLimits::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// How large a slab is. Both bounds hold: a slab is full when either is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabLimits {
    /// How many slots, below 2³².
    pub slots: usize,
    /// How many bytes of frames, rounded up to whole pages.
    pub frame_bytes: usize,
}

/// Room that is kept for one purpose. Both are kept: slots, and pages without a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Slots.
    pub slots: usize,
    /// Pages that hold no frame.
    pub pages: usize,
}

impl Kept {
    /// Enough for so many frames, of whatever sizes.
    #[must_use]
    pub fn for_frames(count: usize) -> Kept {
        let a_page = PAGE_BYTES / FRAME_BYTES_MAX;
        Kept { slots: count, pages: count.min(BLOCK_BYTES.len() + count / a_page) }
    }
}

impl SlabLimits {
    /// The fewest bytes of frames a slab works with: a page for each block size.
    pub const FRAME_BYTES_MIN: usize = PAGE_BYTES * BLOCK_BYTES.len();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Holder {
    Nobody,
    Shard,
    Client,
}

/// What the slab knows of a slot: one word.
#[derive(Clone, Copy)]
struct Slot {
    /// Where the frame starts, in units; `NONE`: no frame. On the free list: the next free slot.
    unit: u32,
    len: u16,
    class: u8,
    holder: Holder,
}

struct Page {
    /// The next page of the same size with a free block, or the next free page.
    next: u32,
    prev: u32,
    /// The first freed block, as a unit of the page.
    freed: u16,
    /// Blocks never used yet start here.
    fresh: u16,
    used: u16,
    class: u8,
    listed: bool,
}

/// The slots of one shard and their frames. One thread's own.
pub struct Slab {
    arena: Arc<Arena>,
    slots: Vec<Slot>,
    free_slot: u32,
    free_slots: usize,
    pages: Vec<Page>,
    /// Per unit of the arena: the next freed block of its page.
    next_freed: Vec<u16>,
    free_page: u32,
    /// Pages without a frame, dealt or not.
    empty_pages: usize,
    /// Per block size: the pages that have a free block.
    roomy: [u32; BLOCK_BYTES.len()],
    /// Per block size: the page that stays with it though it is empty.
    idle: [u32; BLOCK_BYTES.len()],
    /// What [`Slab::take`] leaves to [`Slab::take_kept`].
    kept: Kept,
    lent: usize,
    leaked_bytes: usize,
}

impl Slab {
    /// Takes all memory the slab will ever have.
    ///
    /// # Panics
    /// If there is no slot, more than 2³²−2 of them, or fewer frame bytes than [`SlabLimits::FRAME_BYTES_MIN`].
    #[must_use]
    pub fn new(limits: SlabLimits) -> Slab {
        assert!(limits.slots > 0 && limits.slots < NONE as usize, "a slab has 1 to 2^32-2 slots, not {}", limits.slots);
        assert!(
            limits.frame_bytes >= SlabLimits::FRAME_BYTES_MIN,
            "a slab has at least {} bytes of frames, not {}",
            SlabLimits::FRAME_BYTES_MIN,
            limits.frame_bytes
        );
        let page_count = limits.frame_bytes.div_ceil(PAGE_BYTES);
        let slot_count = limits.slots as u32;
        let slots = (1..=slot_count)
            .map(|next| Slot {
                unit: if next == slot_count { NONE } else { next },
                len: 0,
                class: 0,
                holder: Holder::Nobody,
            })
            .collect();
        let pages = (1..=page_count as u32)
            .map(|next| Page {
                next: if next as usize == page_count { NONE } else { next },
                prev: NONE,
                freed: NONE_16,
                fresh: 0,
                used: 0,
                class: 0,
                listed: false,
            })
            .collect();
        Slab {
            arena: Arc::new(Arena::new(page_count * PAGE_BYTES)),
            slots,
            free_slot: 0,
            free_slots: limits.slots,
            pages,
            next_freed: vec![0; page_count * UNITS_PER_PAGE],
            free_page: 0,
            empty_pages: page_count,
            roomy: [NONE; BLOCK_BYTES.len()],
            idle: [NONE; BLOCK_BYTES.len()],
            kept: Kept::default(),
            lent: 0,
            leaked_bytes: 0,
        }
    }

    /// A slot with room for a frame of `frame_len` bytes, or without a frame if that is 0. `None`: the slab is full, but
    /// for what is [kept](Slab::keep).
    ///
    /// # Panics
    /// If the frame is longer than [`FRAME_BYTES_MAX`]; validation refuses such a trigger at submit.
    pub fn take(&mut self, frame_len: usize) -> Option<SlotId> {
        self.take_leaving(frame_len, self.kept)
    }

    /// As [`Slab::take`], of what is kept too.
    pub fn take_kept(&mut self, frame_len: usize) -> Option<SlotId> {
        self.take_leaving(frame_len, Kept::default())
    }

    /// From now on [`Slab::take`] leaves so much free.
    pub fn keep(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// What [`Slab::take`] leaves.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.kept
    }

    #[inline]
    fn take_leaving(&mut self, frame_len: usize, kept: Kept) -> Option<SlotId> {
        if self.free_slots <= kept.slots {
            return None;
        }
        let (unit, class) = if frame_len == 0 { (NONE, 0) } else { self.take_block(frame_len, kept.pages)? };
        let id = self.free_slot;
        let slot = &mut self.slots[id as usize];
        self.free_slot = slot.unit;
        *slot = Slot { unit, len: frame_len as u16, class, holder: Holder::Shard };
        self.free_slots -= 1;
        Some(SlotId(id))
    }

    /// The frame, to be written.
    ///
    /// # Panics
    /// If the frame is lent, or the slot is free.
    pub fn frame_mut(&mut self, id: SlotId) -> &mut [u8] {
        let slot = self.slots[id.0 as usize];
        assert!(slot.holder == Holder::Shard && slot.class & STRANDED == 0, "{id:?} is not the shard's to write to");
        if slot.unit == NONE {
            return &mut [];
        }
        // WHY: frames lie in memory that client threads read in other places at the same time; one slice over all of it
        // would claim bytes that are theirs.
        // SAFETY: the block was given to this slot alone by `take_block`, lies inside the arena, was zeroed at the
        // start, and is not lent (asserted), so nobody else reads or writes it while `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot.unit).as_ptr(), slot.len as usize) }
    }

    /// The frame, to be read. Allowed while it is lent too.
    ///
    /// # Panics
    /// If the slot is free.
    #[must_use]
    pub fn frame(&self, id: SlotId) -> &[u8] {
        let slot = self.slots[id.0 as usize];
        assert_ne!(slot.holder, Holder::Nobody, "{id:?} is free");
        if slot.unit == NONE {
            return &[];
        }
        // SAFETY: as in `frame_mut`; a lent frame is only read by its borrower, so shared reads do not race.
        unsafe { std::slice::from_raw_parts(self.address(slot.unit).as_ptr(), slot.len as usize) }
    }

    /// Gives the frame to a reader that works on after this call. It is neither written nor freed until taken back.
    ///
    /// # Panics
    /// If the slot has no frame or is already lent.
    #[inline]
    pub fn lend(&mut self, id: SlotId) -> Lent {
        let slot = &mut self.slots[id.0 as usize];
        assert!(slot.holder == Holder::Shard && slot.unit != NONE, "{id:?} has no frame of ours to lend");
        slot.holder = Holder::Client;
        self.lent += 1;
        let (unit, len) = (slot.unit, u32::from(slot.len));
        Lent { slot: id, start: self.address(unit), len }
    }

    /// The reader is done with the frame.
    ///
    /// # Panics
    /// If it was not lent: a sink reported a frame twice.
    pub(crate) fn take_back(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.0 as usize];
        assert_eq!(slot.holder, Holder::Client, "{id:?} was reported but is not lent");
        slot.holder = Holder::Shard;
        self.lent -= 1;
    }

    /// The reader is done with the frame, and so is the shard: [`Slab::take_back`] and [`Slab::free`] in one, with their
    /// panics. Returns how long the frame was.
    #[inline]
    pub(crate) fn retire(&mut self, id: SlotId) -> usize {
        let slot = &mut self.slots[id.0 as usize];
        assert!(slot.holder == Holder::Client, "{id:?} was reported but is not lent");
        let Slot { unit, len, class, .. } = *slot;
        *slot = Slot { unit: self.free_slot, len: 0, class: 0, holder: Holder::Nobody };
        self.free_slot = id.0;
        self.free_slots += 1;
        self.lent -= 1;
        if class & STRANDED == 0 {
            self.free_block(unit, class);
        }
        len as usize
    }

    /// Lends a frame to nobody and takes it back: what the slab's part of a round trip costs, for measuring it alone. Panics
    /// as [`Slab::lend`].
    pub fn lend_to_nobody(&mut self, id: SlotId) {
        self.lend(id);
        self.take_back(id);
    }

    /// The reader will never say whether it is done. The frame is the shard's again, to be lent once more or freed, but
    /// not to be written; its block is never used for another frame.
    ///
    /// # Panics
    /// If the frame is not lent.
    pub(crate) fn strand(&mut self, id: SlotId) {
        self.take_back(id);
        let slot = &mut self.slots[id.0 as usize];
        if slot.class & STRANDED == 0 {
            self.leaked_bytes += BLOCK_BYTES[slot.class as usize];
            slot.class |= STRANDED;
        }
    }

    /// The slot and its frame are free again.
    ///
    /// # Panics
    /// If the frame is lent or the slot is free already.
    pub fn free(&mut self, id: SlotId) {
        let slot = self.slots[id.0 as usize];
        assert_eq!(slot.holder, Holder::Shard, "{id:?} is not the shard's to free");
        if slot.unit != NONE && slot.class & STRANDED == 0 {
            self.free_block(slot.unit, slot.class);
        }
        self.slots[id.0 as usize] = Slot { unit: self.free_slot, len: 0, class: 0, holder: Holder::Nobody };
        self.free_slot = id.0;
        self.free_slots += 1;
    }

    /// Asks the memory for the frame's front, where its key is, and does not wait for it.
    #[inline]
    pub fn foresee(&self, id: SlotId) {
        let unit = self.slots[id.0 as usize].unit;
        if unit != NONE {
            prefetch_at(self.address(unit).as_ptr());
            prefetch_at(self.address(unit).as_ptr().wrapping_add(UNIT_BYTES));
        }
    }

    /// Asks the memory for what the slab knows of a slot.
    #[inline]
    pub fn foresee_slot(&self, id: SlotId) {
        prefetch(&self.slots[id.0 as usize]);
    }

    /// The slot that the next [`Slab::take`] gives, if there is one.
    #[inline]
    pub fn next_slot(&self) -> Option<SlotId> {
        (self.free_slot != NONE).then_some(SlotId(self.free_slot))
    }

    /// How long the slot's frame is.
    #[must_use]
    pub fn frame_len(&self, id: SlotId) -> usize {
        self.slots[id.0 as usize].len as usize
    }

    /// How many pages hold no frame.
    #[must_use]
    pub fn free_pages(&self) -> usize {
        self.empty_pages
    }

    /// How many pages of frames there are.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Whether a reader still holds the frame.
    #[must_use]
    pub fn is_lent(&self, id: SlotId) -> bool {
        self.slots[id.0 as usize].holder == Holder::Client
    }

    /// How many slots are free.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.free_slots
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many frames are lent.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Bytes lost to readers that never came back.
    #[must_use]
    pub fn leaked_bytes(&self) -> usize {
        self.leaked_bytes
    }

    /// The memory of the frames, for a sink that must keep it alive as long as it reads.
    #[must_use]
    pub fn arena(&self) -> Arc<Arena> {
        Arc::clone(&self.arena)
    }

    /// Bytes taken at construction for `limits`.
    #[must_use]
    pub fn memory_bytes(limits: SlabLimits) -> usize {
        let pages = limits.frame_bytes.div_ceil(PAGE_BYTES);
        pages * (PAGE_BYTES + UNITS_PER_PAGE * size_of::<u16>() + size_of::<Page>()) + limits.slots * size_of::<Slot>()
    }

    fn address(&self, unit: u32) -> NonNull<u8> {
        let at = unit as usize * UNIT_BYTES;
        debug_assert!(at < self.arena.bytes);
        // SAFETY: units are handed out by `take_block` below `pages * UNITS_PER_PAGE`, so the offset is in the arena.
        unsafe { self.arena.start.add(at) }
    }

    fn take_block(&mut self, len: usize, kept_pages: usize) -> Option<(u32, u8)> {
        let class = class_of(len);
        let mut index = self.roomy[class];
        if index == self.idle[class] {
            // Either there is none with room, or it is an empty one.
            if self.empty_pages <= kept_pages {
                return None;
            }
            if index == NONE {
                index = self.deal_page(class);
            }
            self.idle[class] = NONE;
            self.empty_pages -= 1;
        }
        let block_units = (BLOCK_BYTES[class] / UNIT_BYTES) as u16;
        let base = index * UNITS_PER_PAGE as u32;
        let page = &mut self.pages[index as usize];
        let unit = if page.freed == NONE_16 {
            let unit = page.fresh;
            page.fresh += block_units;
            unit
        } else {
            let unit = page.freed;
            page.freed = self.next_freed[(base + u32::from(unit)) as usize];
            if page.freed != NONE_16 {
                // The one behind it is on its way while this one is written.
                let next = (base + u32::from(page.freed)) as usize * UNIT_BYTES;
                let next = self.arena.start.as_ptr().wrapping_add(next);
                prefetch_for_write_at(next);
                prefetch_for_write_at(next.wrapping_add(UNIT_BYTES));
            }
            unit
        };
        page.used += 1;
        let is_full = page.freed == NONE_16 && page.fresh + block_units > UNITS_PER_PAGE as u16;
        if is_full {
            self.unlist_page(index);
        }
        Some((base + u32::from(unit), class as u8))
    }

    /// Gives a size an empty page: one that no size has, or the idle page of another size.
    fn deal_page(&mut self, class: usize) -> u32 {
        let mut index = self.free_page;
        if index == NONE {
            let idle = self.idle.iter_mut().find(|idle| **idle != NONE).expect("some page is empty");
            index = std::mem::replace(idle, NONE);
            self.unlist_page(index);
        } else {
            self.free_page = self.pages[index as usize].next;
        }
        let page = &mut self.pages[index as usize];
        (page.class, page.freed, page.fresh, page.used) = (class as u8, NONE_16, 0, 0);
        self.list_page(index);
        index
    }

    fn free_block(&mut self, unit: u32, class: u8) {
        let index = unit / UNITS_PER_PAGE as u32;
        let page = &mut self.pages[index as usize];
        debug_assert_eq!(page.class, class);
        self.next_freed[unit as usize] = page.freed;
        page.freed = (unit % UNITS_PER_PAGE as u32) as u16;
        page.used -= 1;
        let (is_empty, is_listed) = (page.used == 0, page.listed);
        // The last page of a size stays with it: a lone frame that comes and goes would deal a page each time.
        let is_only = self.roomy[class as usize] == index && self.pages[index as usize].next == NONE;
        self.empty_pages += usize::from(is_empty);
        if is_empty && is_only && is_listed {
            self.idle[class as usize] = index;
        } else if is_empty {
            if is_listed {
                self.unlist_page(index);
            }
            let page = &mut self.pages[index as usize];
            page.next = self.free_page;
            self.free_page = index;
        } else if !is_listed {
            self.list_page(index);
        }
    }

    fn list_page(&mut self, index: u32) {
        let class = self.pages[index as usize].class as usize;
        let head = self.roomy[class];
        let page = &mut self.pages[index as usize];
        (page.next, page.prev, page.listed) = (head, NONE, true);
        if head != NONE {
            self.pages[head as usize].prev = index;
        }
        self.roomy[class] = index;
    }

    fn unlist_page(&mut self, index: u32) {
        let page = &mut self.pages[index as usize];
        let (next, prev, class) = (page.next, page.prev, page.class as usize);
        (page.next, page.prev, page.listed) = (NONE, NONE, false);
        if prev == NONE {
            self.roomy[class] = next;
        } else {
            self.pages[prev as usize].next = next;
        }
        if next != NONE {
            self.pages[next as usize].prev = prev;
        }
    }
}

/// The block size for a frame: one load from a table of 29 bytes.
fn class_of(len: usize) -> usize {
    const BY_UNITS: [u8; FRAME_BYTES_MAX / UNIT_BYTES + 1] = {
        let mut table = [0; FRAME_BYTES_MAX / UNIT_BYTES + 1];
        let (mut units, mut class) = (0, 0);
        while units < table.len() {
            if units * UNIT_BYTES > BLOCK_BYTES[class] {
                class += 1;
            }
            table[units] = class as u8;
            units += 1;
        }
        table
    };
    assert!(len <= FRAME_BYTES_MAX, "a frame has at most {FRAME_BYTES_MAX} bytes, not {len}");
    BY_UNITS[len.div_ceil(UNIT_BYTES)] as usize
}

const _: () = assert!(size_of::<Slot>() == 8, "the slab's part of a slot is one word");
const _: () = assert!(BLOCK_BYTES[0] == UNIT_BYTES && FRAME_BYTES_MAX <= PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn small() -> Slab {
        Slab::new(SlabLimits { slots: 64, frame_bytes: SlabLimits::FRAME_BYTES_MIN })
    }

    #[test]
    fn every_length_gets_the_smallest_block_that_holds_it() {
        for len in 1..=FRAME_BYTES_MAX {
            let got = BLOCK_BYTES[class_of(len)];
            let want = BLOCK_BYTES.into_iter().find(|bytes| *bytes >= len).unwrap();
            assert_eq!(got, want, "length {len}");
        }
    }

    #[test]
    fn slots_run_out_at_their_number_and_come_back() {
        let mut slab = small();
        let all: Vec<SlotId> = (0..64).map(|_| slab.take(0).unwrap()).collect();
        assert_eq!(slab.take(0), None);
        assert_eq!(slab.free_slots(), 0);
        slab.free(all[7]);
        assert_eq!(slab.take(100), Some(all[7]));
    }

    #[test]
    fn frame_bytes_run_out_before_slots_and_nothing_is_taken_then() {
        let mut slab = Slab::new(SlabLimits { slots: 1_000, frame_bytes: SlabLimits::FRAME_BYTES_MIN });
        let mut count = 0;
        while slab.take(1_792).is_some() {
            count += 1;
        }
        assert_eq!(count, 11 * (PAGE_BYTES / 1_792));
        assert_eq!(slab.free_slots(), 1_000 - count, "a refused frame must not cost a slot");
    }

    #[test]
    fn what_is_kept_is_left_to_those_it_is_kept_for() {
        let mut slab = small();
        slab.keep(Kept { slots: 4, pages: 2 });
        let mut taken = Vec::new();
        while let Some(id) = slab.take(FRAME_BYTES_MAX) {
            taken.push(id);
        }
        assert_eq!((taken.len(), slab.free_slots()), (60, 4));
        assert!((0..4).all(|_| slab.take_kept(0).is_some()));
        assert_eq!(slab.take_kept(0), None);
        let mut slab = Slab::new(SlabLimits { slots: 1_000, frame_bytes: SlabLimits::FRAME_BYTES_MIN });
        slab.keep(Kept { slots: 4, pages: 2 });
        while slab.take(FRAME_BYTES_MAX).is_some() {}
        assert_eq!(slab.free_pages(), 2);
        assert_eq!(slab.take(64), None, "another size would need a page of those");
        assert!(slab.take_kept(64).is_some() && slab.take(64).is_some(), "a page that is begun is everybody's");
        assert_eq!(slab.free_pages(), 1);
    }

    /// Frames of every size came and went, so that each size has a page: one size can still have all of them.
    #[test]
    fn an_empty_page_of_another_size_is_dealt_when_there_is_no_other() {
        let mut slab = Slab::new(SlabLimits { slots: 1_000, frame_bytes: SlabLimits::FRAME_BYTES_MIN });
        for bytes in BLOCK_BYTES {
            let id = slab.take(bytes).unwrap();
            slab.free(id);
        }
        assert_eq!(slab.free_pages(), BLOCK_BYTES.len());
        let a_page = PAGE_BYTES / FRAME_BYTES_MAX;
        assert!((0..BLOCK_BYTES.len() * a_page).all(|_| slab.take(FRAME_BYTES_MAX).is_some()));
        assert_eq!((slab.free_pages(), slab.take(1)), (0, None));
    }

    #[test]
    fn what_is_kept_for_frames_is_enough_for_frames_of_any_size() {
        for count in [0, 1, 5, 11, 12, 40, 99] {
            for first in 0..BLOCK_BYTES.len() {
                let kept = Kept::for_frames(count);
                let mut slab = Slab::new(SlabLimits { slots: 100, frame_bytes: (kept.pages + 11) * PAGE_BYTES });
                slab.keep(kept);
                while slab.take(FRAME_BYTES_MAX).is_some() && slab.free_slots() > kept.slots {}
                let sizes = (0..count).map(|number| BLOCK_BYTES[(first + number) % BLOCK_BYTES.len()]);
                assert!(sizes.into_iter().all(|bytes| slab.take_kept(bytes).is_some()), "{count} from {first}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "not the shard's to free")]
    fn a_lent_frame_cannot_be_freed() {
        let mut slab = small();
        let id = slab.take(100).unwrap();
        slab.lend(id);
        slab.free(id);
    }

    #[test]
    #[should_panic(expected = "not the shard's to write to")]
    fn a_lent_frame_cannot_be_written() {
        let mut slab = small();
        let id = slab.take(100).unwrap();
        slab.lend(id);
        slab.frame_mut(id)[0] = 1;
    }

    #[test]
    #[should_panic(expected = "reported but is not lent")]
    fn a_second_report_of_a_frame_is_caught() {
        let mut slab = small();
        let id = slab.take(100).unwrap();
        slab.lend(id);
        slab.take_back(id);
        slab.take_back(id);
    }

    #[test]
    fn a_stranded_frame_can_be_lent_again_and_its_block_is_never_used_for_another() {
        let mut slab = small();
        let id = slab.take(100).unwrap();
        slab.frame_mut(id).fill(7);
        let old = slab.lend(id).start();
        slab.strand(id);
        assert_eq!(slab.frame(id), [7; 100]);
        assert_eq!(slab.lend(id).start(), old, "both readers read the same bytes");
        slab.strand(id);
        assert_eq!(slab.leaked_bytes(), 128, "a block is lost once");
        slab.free(id);
        for _ in 0..1_000 {
            let other = slab.take(100).unwrap();
            assert_ne!(slab.lend(other).start(), old);
            slab.take_back(other);
            slab.free(other);
        }
    }

    #[test]
    #[should_panic(expected = "not the shard's to write to")]
    fn a_stranded_frame_cannot_be_written() {
        let mut slab = small();
        let id = slab.take(100).unwrap();
        slab.lend(id);
        slab.strand(id);
        slab.frame_mut(id)[0] = 1;
    }

    #[test]
    fn the_arena_outlives_the_slab_while_someone_was_lent_a_frame() {
        let mut slab = small();
        let id = slab.take(5).unwrap();
        slab.frame_mut(id).copy_from_slice(b"fence");
        let (arena, lent) = (slab.arena(), slab.lend(id));
        drop(slab);
        // SAFETY: `arena` keeps the memory alive; nobody writes to a lent frame.
        let read = unsafe { std::slice::from_raw_parts(lent.start().as_ptr(), lent.len()) };
        assert_eq!(read, b"fence");
        drop(arena);
    }

    proptest! {
        /// Against the obvious model: a map from slot to the bytes written there.
        #[test]
        fn frames_never_overlap_and_all_memory_comes_back(
            steps in prop::collection::vec((any::<bool>(), 0usize..=FRAME_BYTES_MAX, any::<u8>()), 1..600)
        ) {
            let mut slab = small();
            let mut model: Vec<(SlotId, usize, u8)> = Vec::new();
            for (is_take, len, fill) in steps {
                if is_take || model.is_empty() {
                    if let Some(id) = slab.take(len) {
                        slab.frame_mut(id).fill(fill);
                        model.push((id, len, fill));
                    }
                } else {
                    let (id, _, _) = model.swap_remove(len % model.len());
                    slab.free(id);
                }
                for (id, len, fill) in &model {
                    let frame = slab.frame(*id);
                    prop_assert_eq!(frame.len(), *len);
                    prop_assert!(frame.iter().all(|byte| byte == fill));
                }
            }
            for (id, _, _) in model.drain(..) {
                slab.free(id);
            }
            prop_assert_eq!((slab.free_slots(), slab.free_pages()), (64, BLOCK_BYTES.len()));
            let mut count = 0;
            while slab.take(FRAME_BYTES_MAX).is_some() {
                count += 1;
            }
            prop_assert_eq!(count, 64, "frames fit after all came back");
        }
    }
}
