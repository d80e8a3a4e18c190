//! The bytes of letters in memory: blocks of one size, chained. A letter that stays long pins its own blocks and no
//! others, and there is no gap that a letter does not fit into.

use super::links::NONE;

/// Bytes of a block: a trigger and its notes take one.
pub(super) const BLOCK: usize = 512;

/// Blocks, some of them chained to letters, the rest to one another.
pub(super) struct Store {
    bytes: Box<[u8]>,
    next: Box<[u32]>,
    free: u32,
    free_blocks: usize,
}

impl Store {
    pub(super) fn new(bytes: usize) -> Store {
        let blocks = (bytes / BLOCK).max(1);
        let next = (1..=blocks as u32).map(|next| if next as usize == blocks { NONE } else { next });
        Store { bytes: vec![0; blocks * BLOCK].into(), next: next.collect(), free: 0, free_blocks: blocks }
    }

    pub(super) fn blocks(&self) -> usize {
        self.next.len()
    }

    #[cfg(test)]
    pub(super) fn free_blocks(&self) -> usize {
        self.free_blocks
    }

    /// Copies both parts, one behind the other; `None`: no room. There is at least one byte.
    pub(super) fn put(&mut self, meta: &[u8], frame: &[u8]) -> Option<u32> {
        let blocks = (meta.len() + frame.len()).div_ceil(BLOCK);
        debug_assert!(blocks > 0, "a letter has notes");
        if blocks > self.free_blocks {
            return None;
        }
        let head = self.free;
        let mut parts = [meta, frame];
        let mut last = head;
        for _ in 0..blocks {
            let mut place = &mut self.bytes[self.free as usize * BLOCK..][..BLOCK];
            for part in &mut parts {
                let (now, later) = part.split_at(part.len().min(place.len()));
                place[..now.len()].copy_from_slice(now);
                place = &mut place[now.len()..];
                *part = later;
            }
            last = self.free;
            self.free = self.next[self.free as usize];
        }
        self.next[last as usize] = NONE;
        self.free_blocks -= blocks;
        Some(head)
    }

    /// The bytes of a letter: where they lie, or put together in `scratch`.
    pub(super) fn read<'a>(&'a self, head: u32, len: usize, scratch: &'a mut [u8]) -> &'a [u8] {
        if len <= BLOCK {
            return &self.bytes[head as usize * BLOCK..][..len];
        }
        let mut block = head;
        for part in scratch[..len].chunks_mut(BLOCK) {
            part.copy_from_slice(&self.bytes[block as usize * BLOCK..][..part.len()]);
            block = self.next[block as usize];
        }
        &scratch[..len]
    }

    /// Gives a letter's blocks back.
    pub(super) fn free(&mut self, head: u32) {
        let (mut last, mut blocks) = (head, 1);
        while self.next[last as usize] != NONE {
            last = self.next[last as usize];
            blocks += 1;
        }
        self.next[last as usize] = self.free;
        self.free = head;
        self.free_blocks += blocks;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_length_come_back_and_so_do_their_blocks() {
        let mut store = Store::new(16 * BLOCK);
        let mut scratch = vec![0; 16 * BLOCK];
        for round in 0..3 {
            let mut kept = Vec::new();
            for (meta, frame) in [(1, 0), (BLOCK - 1, 1), (BLOCK, 0), (BLOCK, 1), (10, 3 * BLOCK), (3 * BLOCK + 7, 9)] {
                let letter: Vec<u8> = (0..meta + frame).map(|nth| (nth * 7 + meta + round) as u8).collect();
                let head = store.put(&letter[..meta], &letter[meta..]).expect("there is room");
                kept.push((head, letter));
            }
            assert_eq!(store.free_blocks(), 16 - (1 + 1 + 1 + 2 + 4 + 4));
            assert_eq!(store.put(&[1; 3 * BLOCK], &[2]), None, "one block too few");
            // Out of turn, so that the next round's chains are crossed.
            kept.rotate_left(round + 1);
            for (head, letter) in kept {
                assert_eq!(store.read(head, letter.len(), &mut scratch), letter);
                store.free(head);
            }
            assert_eq!(store.free_blocks(), 16);
        }
        let all = vec![9; 16 * BLOCK];
        let head = store.put(&all, b"").expect("it is exactly full then");
        assert_eq!((store.free_blocks(), store.put(b"x", b"")), (0, None));
        assert_eq!(store.read(head, all.len(), &mut scratch), all);
    }
}
