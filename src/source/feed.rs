//! The feed: blocks of bytes in, batches of triggers out. One buffer, sized once; what a block ends within waits at its
//! front for the next one. A second one of the same size takes copies of lines with escapes, which parsing changes: the
//! bytes of every line are there as they came until the next batch.

use super::{Fault, frames, ndjson};
use crate::trigger::{State, Trigger};
use std::io::{self, Read};
use std::ops::Range;

/// Triggers of a batch at the most.
pub const BATCH: usize = 256;
/// Faults of a batch at the most.
pub const FAULTS: usize = 64;

/// How triggers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line; a line's end is a newline, or the source's end.
    Ndjson,
    /// Protobuf with its length before it.
    Frames,
}

/// How far a source was read: whole lines (or frames), blank and malformed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Lines.
    pub lines: u64,
    /// Bytes.
    pub offset: u64,
}

/// A line or frame that is no trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faulty<'a> {
    /// Its number.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
    /// Its bytes as they came, without the newline behind a line or the length in front of a frame; of one that is too
    /// long, the first.
    pub raw: &'a [u8],
}

/// Triggers in order, each with the number of its line, counted from 1; and beside them the faults, in order.
pub struct Batch<'a> {
    triggers: [Trigger<'a>; BATCH],
    lines: [u64; BATCH],
    raws: [&'a [u8]; BATCH],
    len: usize,
    faults: [Option<Faulty<'a>>; FAULTS],
    faults_len: usize,
}

impl<'a> Batch<'a> {
    /// None yet.
    #[must_use]
    pub fn new() -> Batch<'a> {
        Batch {
            triggers: [Trigger::new("", "", State::Enter, 0); BATCH],
            lines: [0; BATCH],
            raws: [&[]; BATCH],
            len: 0,
            faults: [const { None }; FAULTS],
            faults_len: 0,
        }
    }

    /// The triggers.
    #[must_use]
    pub fn triggers(&self) -> &[Trigger<'a>] {
        &self.triggers[..self.len]
    }

    /// The number of the line that each came from.
    #[must_use]
    pub fn lines(&self) -> &[u64] {
        &self.lines[..self.len]
    }

    /// The bytes that each came as, without the newline behind a line or the length in front of a frame.
    #[must_use]
    pub fn raws(&self) -> &[&'a [u8]] {
        &self.raws[..self.len]
    }

    /// The faults.
    pub fn faults(&self) -> impl ExactSizeIterator<Item = &Faulty<'a>> {
        // Those up to the length are there.
        self.faults[..self.faults_len].iter().map(|faulty| faulty.as_ref().expect("pushed"))
    }

    fn push(&mut self, trigger: Trigger<'a>, line: u64, raw: &'a [u8]) {
        self.triggers[self.len] = trigger;
        self.lines[self.len] = line;
        self.raws[self.len] = raw;
        self.len += 1;
    }

    fn push_fault(&mut self, line: u64, fault: Fault, raw: &'a [u8]) {
        self.faults[self.faults_len] = Some(Faulty { line, fault, raw });
        self.faults_len += 1;
    }
}

impl Default for Batch<'_> {
    fn default() -> Self {
        Batch::new()
    }
}

/// What is passed over just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Nothing,
    /// The rest of a line that is too long.
    ToNewline,
    /// So many bytes of a frame that is too long.
    Bytes(u64),
}

/// See the module.
pub struct Feed {
    format: Format,
    buffer: Box<[u8]>,
    /// As long as the buffer: what is in it, with escapes, is there once more at the most.
    copies: Box<[u8]>,
    start: usize,
    end: usize,
    line_bytes_max: usize,
    skip: Skip,
    position: Position,
    /// Lines up to this number were settled in an earlier run: they are counted and not looked at.
    known: u64,
    /// Lines before the first byte.
    first_lines: u64,
    is_ended: bool,
    /// A last line without its end that is no trigger stays untaken: its writer is not done.
    leaves_unfinished: bool,
    /// It was found, and parsing may have changed its bytes.
    is_left: bool,
}

impl Feed {
    /// A feed that reads up to `block_bytes` at once and takes lines (without their newline) or frames (without their
    /// length) of up to `line_bytes_max`. It holds twice the sum of both in memory.
    ///
    /// # Panics
    /// If either is 0.
    #[must_use]
    pub fn new(format: Format, line_bytes_max: usize, block_bytes: usize) -> Feed {
        assert!(line_bytes_max > 0 && block_bytes > 0, "a feed holds at least a byte");
        let bytes = line_bytes_max + frames::LENGTH_BYTES + block_bytes;
        Feed {
            format,
            buffer: vec![0; bytes].into_boxed_slice(),
            copies: vec![0; bytes].into_boxed_slice(),
            start: 0,
            end: 0,
            line_bytes_max,
            skip: Skip::Nothing,
            position: Position::default(),
            known: 0,
            first_lines: 0,
            is_ended: false,
            leaves_unfinished: false,
            is_left: false,
        }
    }

    /// Goes on where an earlier run was: its bytes come from `start.offset` on, and lines up to `known` are passed over.
    #[must_use]
    pub fn starting_at(mut self, start: Position, known: u64) -> Feed {
        (self.position, self.first_lines, self.known) = (start, start.lines, known);
        self
    }

    /// For a source that is read again later: where it ends within a line or frame, that one is not taken. A line that
    /// lacks only its newline is a trigger, and is taken.
    #[must_use]
    pub fn leaving_unfinished(mut self) -> Feed {
        self.leaves_unfinished = true;
        self
    }

    /// Whether the source ended within a line or frame that was left for later.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.leaves_unfinished && self.is_ended && self.start < self.end
    }

    /// Whether [`Feed::position`] lies between two lines or frames, not in the midst of one that is too long.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.skip == Skip::Nothing
    }

    /// Reads once, and returns how many bytes came; 0 is the source's end. To be called when [`Feed::batch`] has
    /// nothing more.
    ///
    /// # Errors
    /// What the source says; nothing is lost then.
    ///
    /// # Panics
    /// If there is no room, since the batches were not taken.
    pub fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        assert!(self.end < self.buffer.len(), "batches are taken before the next block is read");
        let count = source.read(&mut self.buffer[self.end..])?;
        self.end += count;
        self.is_ended |= count == 0;
        Ok(count)
    }

    /// The source has ended: what is left is the last line.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// How far it was read and taken.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many lines were taken that no earlier run had settled.
    #[must_use]
    pub fn fresh_lines(&self) -> u64 {
        self.position.lines.saturating_sub(self.known.max(self.first_lines))
    }

    /// Whether something begun is not complete.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.start < self.end || self.skip != Skip::Nothing
    }

    /// Bytes that were read and not taken yet.
    #[must_use]
    pub fn untaken(&self) -> usize {
        self.end - self.start
    }

    /// The next line or frame, if it is whole; it is not taken.
    #[must_use]
    pub fn peek(&self) -> Option<&[u8]> {
        let rest = &self.buffer[self.start..self.end];
        match self.format {
            Format::Ndjson => memchr::memchr(b'\n', rest).map(|end| &rest[..end]),
            Format::Frames => {
                let (len, rest) = rest.split_first_chunk::<{ frames::LENGTH_BYTES }>()?;
                rest.get(..u32::from_be_bytes(*len) as usize)
            }
        }
    }

    /// Takes the line or frame that [`Feed::peek`] shows, without counting it as one: it was for somebody else.
    pub fn drop_peeked(&mut self) {
        if let Some(item) = self.peek() {
            let bytes = item.len() + if self.format == Format::Frames { frames::LENGTH_BYTES } else { 1 };
            self.start += bytes;
            self.position.offset += bytes as u64;
        }
    }

    /// Takes the blank lines at the front, and returns how many there were.
    pub fn pass_blank(&mut self) -> u64 {
        let before = self.position.lines;
        while self.format == Format::Ndjson && self.is_between() && self.peek().is_some_and(is_blank) {
            self.drop_peeked();
            self.position.lines += 1;
        }
        self.position.lines - before
    }

    /// Takes what is begun and not whole, as a line of its own; nobody waits for its end. `None`: nothing is begun, or it
    /// was taken already, being too long. The fault, where it is known without the end; and the bytes.
    pub fn abandon(&mut self) -> Option<(Option<Fault>, &[u8])> {
        if self.start == self.end || !self.is_between() {
            return None;
        }
        let (from, taken) = (self.start, self.end - self.start);
        self.start = self.end;
        self.position.lines += 1;
        self.position.offset += taken as u64;
        let rest = &self.buffer[from..self.end];
        Some(match (self.format, rest.split_first_chunk::<{ frames::LENGTH_BYTES }>()) {
            (Format::Frames, Some((len, content))) => {
                let (len, limit) = (u32::from_be_bytes(*len), self.line_bytes_max);
                ((len as usize > limit).then_some(Fault::FrameTooLong { len, limit }), content)
            }
            _ => (None, rest),
        })
    }

    /// Takes lines or frames until a bound of the batch is reached or the rest is not whole. False: there was nothing to
    /// take, read on.
    pub fn batch<'a>(&'a mut self, batch: &mut Batch<'a>) -> bool {
        let mut rest = &mut self.buffer[self.start..self.end];
        let mut copies = &mut *self.copies;
        let whole = rest.len();
        let mut lines = self.position.lines;
        let mut left = 0;
        while !self.is_left && batch.len < BATCH && batch.faults_len < FAULTS {
            let cut = match self.format {
                Format::Ndjson => cut_line(rest, self.line_bytes_max, self.is_ended, &mut self.skip),
                Format::Frames => {
                    let is_last = self.is_ended && !self.leaves_unfinished;
                    cut_frame(rest, self.line_bytes_max, is_last, &mut self.skip)
                }
            };
            match cut {
                Cut::Nothing => break,
                Cut::Skip(bytes) => rest = &mut std::mem::take(&mut rest)[bytes..],
                Cut::Fault { bytes, raw, fault } => {
                    let (item, later) = std::mem::take(&mut rest).split_at_mut(bytes);
                    rest = later;
                    lines += 1;
                    if lines > self.known {
                        batch.push_fault(lines, fault, &item[raw]);
                    }
                }
                Cut::Item { before, len, after } => {
                    let (item, later) = std::mem::take(&mut rest)[before..].split_at_mut(len);
                    rest = &mut later[after..];
                    lines += 1;
                    if lines <= self.known {
                        continue;
                    }
                    let (trigger, raw) = match self.format {
                        Format::Ndjson if is_blank(item) && (after > 0 || !self.leaves_unfinished) => continue,
                        Format::Ndjson => {
                            let (trigger, raw) = ndjson::parse_keeping(item, &mut copies);
                            (trigger.map_err(Fault::from), raw)
                        }
                        Format::Frames => {
                            let item: &[u8] = item;
                            (frames::parse(item).map_err(Fault::from), item)
                        }
                    };
                    match trigger {
                        Ok(trigger) => batch.push(trigger, lines, raw),
                        Err(_) if self.leaves_unfinished && self.format == Format::Ndjson && after == 0 => {
                            (self.is_left, left) = (true, len);
                            lines -= 1;
                        }
                        Err(fault) => batch.push_fault(lines, fault, raw),
                    }
                }
            }
        }
        let taken = whole - rest.len() - left;
        self.start += taken;
        self.position.lines = lines;
        self.position.offset += taken as u64;
        taken > 0
    }
}

fn is_blank(line: &[u8]) -> bool {
    match line.first() {
        None => true,
        Some(b'{') => false,
        Some(_) => line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')),
    }
}

/// What stands at the front of the bytes.
enum Cut {
    /// Nothing whole.
    Nothing,
    /// So many bytes of no interest.
    Skip(usize),
    /// A line or frame to be passed over, of which so many bytes are there, and which of them are its own.
    Fault { bytes: usize, raw: Range<usize>, fault: Fault },
    /// A line or frame with what goes around it.
    Item { before: usize, len: usize, after: usize },
}

#[inline(always)]
fn cut_line(rest: &[u8], limit: usize, is_ended: bool, skip: &mut Skip) -> Cut {
    if rest.is_empty() {
        return Cut::Nothing;
    }
    let newline = memchr::memchr(b'\n', rest);
    if *skip == Skip::ToNewline {
        return match newline {
            Some(at) => {
                *skip = Skip::Nothing;
                Cut::Skip(at + 1)
            }
            None => Cut::Skip(rest.len()),
        };
    }
    match newline {
        Some(at) if at > limit => {
            Cut::Fault { bytes: at + 1, raw: 0..limit, fault: Fault::LineTooLong { len: Some(at), limit } }
        }
        Some(at) => Cut::Item { before: 0, len: at, after: 1 },
        None if rest.len() > limit => {
            *skip = Skip::ToNewline;
            let len = is_ended.then_some(rest.len());
            Cut::Fault { bytes: rest.len(), raw: 0..limit, fault: Fault::LineTooLong { len, limit } }
        }
        None if is_ended => Cut::Item { before: 0, len: rest.len(), after: 0 },
        None => Cut::Nothing,
    }
}

#[inline(always)]
fn cut_frame(rest: &[u8], limit: usize, is_ended: bool, skip: &mut Skip) -> Cut {
    if let Skip::Bytes(left) = *skip {
        let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        *skip = if here as u64 == left { Skip::Nothing } else { Skip::Bytes(left - here as u64) };
        return if here == 0 { Cut::Nothing } else { Cut::Skip(here) };
    }
    if rest.is_empty() {
        return Cut::Nothing;
    }
    let cut = |from: usize, missing| match is_ended {
        true => Cut::Fault { bytes: rest.len(), raw: from..rest.len(), fault: Fault::FrameCut { missing } },
        false => Cut::Nothing,
    };
    let Some((len, content)) = rest.split_first_chunk::<{ frames::LENGTH_BYTES }>() else {
        return cut(0, frames::LENGTH_BYTES - rest.len());
    };
    let len = u32::from_be_bytes(*len);
    if len as usize > limit {
        // Its first bytes are kept: they say more than the number does.
        let kept = content.len().min(limit);
        if kept < limit && !is_ended {
            return Cut::Nothing;
        }
        *skip = Skip::Bytes(u64::from(len) - kept as u64);
        let raw = frames::LENGTH_BYTES..frames::LENGTH_BYTES + kept;
        return Cut::Fault { bytes: raw.end, raw, fault: Fault::FrameTooLong { len, limit } };
    }
    let len = len as usize;
    if content.len() < len {
        return cut(frames::LENGTH_BYTES, len - content.len());
    }
    Cut::Item { before: frames::LENGTH_BYTES, len, after: 0 }
}
