//! Where frames lie, and what a reader holds of one.

use super::{PAGE_BYTES, SlotId};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The memory of the frames. Shared by the slab and by whoever was lent a frame, so that it outlives the last reader.
pub struct Arena {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

// WHY: the client library's threads read lent frames while the shard's thread writes others.
// SAFETY: `Arena` itself only hands out its address; every access goes through `Slab`, which gives out one block to one
// holder at a time, or through a `Lent`, whose block nobody writes to.
unsafe impl Send for Arena {}
// SAFETY: as above; a shared reference to an arena allows no access to its bytes.
unsafe impl Sync for Arena {}

impl Arena {
    /// Zeroed memory of so many bytes, whole pages of them.
    pub(super) fn new(bytes: usize) -> Arena {
        let layout = Arena::layout(bytes);
        // SAFETY: the layout is not empty: a slab asks for at least one page.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Arena { start, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE_BYTES).expect("an arena is smaller than the address space")
    }

    /// Whether a lent frame lies in it.
    #[must_use]
    pub fn holds(&self, lent: &Lent) -> bool {
        let offset = lent.start.as_ptr().addr().wrapping_sub(self.start.as_ptr().addr());
        offset < self.bytes && lent.len() <= self.bytes - offset
    }

    /// How many bytes it spans.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and dropped once.
        unsafe { dealloc(self.start.as_ptr(), Arena::layout(self.bytes)) }
    }
}

/// A frame that someone else reads until they say they are done (a report says so).
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    pub(super) slot: SlotId,
    pub(super) start: NonNull<u8>,
    pub(super) len: u32,
}

impl Lent {
    /// The slot it came from: what a report names.
    #[must_use]
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// Where the frame starts. The bytes stay valid and unchanged while the frame is lent.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How long the frame is, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame is empty; no lent frame is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
