//! Walks a segment's records, whole or damaged: the one reader under recovery, drain, copying and the offline check.
//!
//! Reads in pieces of 256 KiB into one buffer. Where a header does not pass, the walk goes on at the next one that does;
//! where the disk cannot read, page by page around the hole.

use super::disk::DiskFile;
use super::format::{ALIGN, Header, RECORD_HEADER, RECORD_MARK, read_header};
use crate::canary::{Canary, is_planted};

/// Bytes that are read at once.
pub const PIECE: usize = 256 << 10;
const PAGE: usize = 4 << 10;
/// What a disk writes whole or not at all.
const SECTOR: u64 = 512;
/// So many zeros at a sector's edge are no payload of ours. Where a record begins, any are too many.
const HOLE: u64 = 32;

/// What is at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole record; if it was wanted, its payload is [`Scanner::payload`].
    Record {
        /// Its header.
        header: Header,
        /// Where it begins.
        at: u64,
        /// Where the next one begins.
        next: u64,
    },
    /// Something that is no whole record.
    Damaged {
        /// The header, when that at least passes.
        header: Option<Header>,
        /// Where it begins.
        at: u64,
        /// Where the next record begins.
        next: u64,
        /// Whether it looks like a write that never reached the disk: part of a sector is zero.
        torn: bool,
    },
    /// Nothing more up to the end but zeros, or `junk` bytes that hold no record.
    End {
        /// Where the records end.
        at: u64,
        /// From there to the last byte that is not zero.
        junk: u64,
    },
}

/// The buffer, and what it holds.
pub struct Scanner {
    buffer: Vec<u8>,
    segment: u64,
    from: u64,
    held: usize,
    /// Pages that could not be read at all.
    pub unreadable_pages: u64,
}

impl Scanner {
    /// An empty one.
    pub fn new() -> Scanner {
        Scanner { buffer: vec![0; PIECE], segment: 0, from: 0, held: 0, unreadable_pages: 0 }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The bytes from `offset`, `need` of them or up to `end`.
    fn bytes<F: DiskFile>(&mut self, file: &F, segment: u64, offset: u64, need: usize, end: u64) -> &[u8] {
        let need = need.min(end.saturating_sub(offset) as usize);
        let inside =
            self.segment == segment && offset >= self.from && offset + need as u64 <= self.from + self.held as u64;
        if !inside {
            if need > self.buffer.len() {
                // Only for a record longer than a piece, whose header has passed: bounded by the longest payload.
                self.buffer.resize(need.next_multiple_of(PAGE), 0);
            }
            let want = (self.buffer.len() as u64).min(end.saturating_sub(offset)) as usize;
            (self.segment, self.from) = (segment, offset);
            self.held = match file.read_at(&mut self.buffer[..want], offset) {
                Ok(got) => got,
                Err(_) => self.around_the_hole(file, offset, want),
            };
        }
        let start = (offset - self.from) as usize;
        &self.buffer[start.min(self.held)..(start + need).min(self.held)]
    }

    /// Page by page; one that cannot be read becomes bytes that pass as nothing.
    fn around_the_hole<F: DiskFile>(&mut self, file: &F, offset: u64, want: usize) -> usize {
        let mut at = 0;
        while at < want {
            // To the next page's edge, so that one bad page spoils no other.
            let page = (PAGE - (offset as usize + at) % PAGE).min(want - at);
            match file.read_at(&mut self.buffer[at..at + page], offset + at as u64) {
                Ok(got) if got < page => return at + got,
                Ok(_) => {}
                Err(_) => {
                    self.buffer[at..at + page].fill(0xEE);
                    self.unreadable_pages += 1;
                }
            }
            at += page;
        }
        at
    }

    /// What is at `at`. `end` is where the segment ends. The payload of a record that is not `wanted` is stepped over,
    /// unread and unchecked.
    pub fn step<F: DiskFile>(
        &mut self,
        file: &F,
        segment: u64,
        at: u64,
        end: u64,
        wanted: impl Fn(&Header) -> bool,
    ) -> Step {
        let front = self.bytes(file, segment, at, RECORD_HEADER, end);
        if front.is_empty() {
            return Step::End { at, junk: 0 };
        }
        let Some(header) = read_header(front, segment, at) else {
            return self.resync(file, segment, at, end);
        };
        let next = at + header.record_bytes() as u64;
        if next <= end && !wanted(&header) {
            return Step::Record { header, at, next };
        }
        let record = self.bytes(file, segment, at, header.record_bytes(), end);
        let payload = record.get(RECORD_HEADER..RECORD_HEADER + header.length as usize);
        if next <= end && payload.is_some_and(|payload| is_whole(payload, &header)) {
            return Step::Record { header, at, next };
        }
        let next = next.min(end);
        let torn = self.has_hole(file, segment, at, next, end);
        Step::Damaged { header: Some(header), at, next, torn }
    }

    /// The payload of the record that [`Scanner::step`] found last.
    pub fn payload(&self, at: u64, header: &Header) -> &[u8] {
        let start = (at - self.from) as usize + RECORD_HEADER;
        &self.buffer[start..start + header.length as usize]
    }

    /// Looks for the next header from `at` on.
    fn resync<F: DiskFile>(&mut self, file: &F, segment: u64, at: u64, end: u64) -> Step {
        let mark = RECORD_MARK.to_le_bytes();
        let (mut offset, mut last_set) = (at, at);
        while offset < end {
            let piece = self.bytes(file, segment, offset, PIECE, end);
            if piece.is_empty() {
                break;
            }
            let mut found = None;
            for (nth, word) in piece.chunks(ALIGN).enumerate() {
                if word.iter().any(|&byte| byte != 0) {
                    let place = offset + (nth * ALIGN) as u64;
                    if word.starts_with(&mark) && place > at {
                        found = Some(place);
                        break;
                    }
                    last_set = place + word.len() as u64;
                }
            }
            let read_to = offset + piece.len() as u64;
            let Some(place) = found else {
                offset = read_to;
                continue;
            };
            let front = self.bytes(file, segment, place, RECORD_HEADER, end);
            if read_header(front, segment, place).is_some() {
                let torn = self.has_hole(file, segment, at, place, end);
                return Step::Damaged { header: None, at, next: place, torn };
            }
            last_set = place + ALIGN as u64;
            offset = place + ALIGN as u64;
        }
        Step::End { at, junk: last_set.min(end) - at }
    }

    /// Whether some sector's share of `from..to` is zero: it was allocated, and never written.
    fn has_hole<F: DiskFile>(&mut self, file: &F, segment: u64, from: u64, to: u64, end: u64) -> bool {
        let mut at = from;
        while at < to {
            let next = (at / SECTOR + 1) * SECTOR;
            let share = next.min(to) - at;
            let bytes = self.bytes(file, segment, at, share as usize, end);
            if (share >= HOLE || at == from) && bytes.iter().all(|&byte| byte == 0) {
                return true;
            }
            at = next;
        }
        false
    }
}

fn is_whole(payload: &[u8], header: &Header) -> bool {
    crc32c::crc32c(payload) == header.payload_crc || is_planted(Canary::TornTailAccepted)
}
