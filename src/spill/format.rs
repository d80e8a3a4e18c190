//! The bytes of a segment: its header, its records, and what a commit says. Drawn in `docs/formats.md`.
//!
//! All numbers are little-endian; a record begins at a multiple of eight. A record's header carries a checksum that is
//! seeded with the segment's number and the header's own offset: bytes that look like a header but belong elsewhere (in
//! the payload of another record, or of another segment) do not pass. So a reader that lost its way finds the next
//! record by trying every eighth byte, and a flip in a length costs that record alone.

/// The layout this version writes and reads.
pub const VERSION: u16 = 1;
/// The first eight bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"fp-spill";
/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 64;
/// The first four bytes of a record: what a lost reader looks for.
pub const RECORD_MARK: u32 = 0xF3_9D_A7_1C;
/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 40;
/// Records begin at multiples of it.
pub const ALIGN: usize = 8;
/// The longest payload the layout allows. Limits may say less.
pub const PAYLOAD_MAX: u32 = 4 << 20;
/// The last sequence of a partition: at a million a second it is 580,000 years away.
pub const SEQUENCE_MAX: u64 = u64::MAX - 1;
/// The last commit that a reader believes in: at a million a second it is 290,000 years away. What says more is damage, and
/// not where the next commit would go on from, and wrap.
pub const COMMIT_MAX: u64 = u64::MAX >> 1;
/// Payload bytes of one record of a checkpoint, at most.
const CHECKPOINT_PAYLOAD: usize = 64 << 10;
const CURSOR: usize = 20;
const MARK: usize = 12;
const CONTROL_COUNTS: usize = 8;

const _: () = assert!(RECORD_HEADER.is_multiple_of(ALIGN) && SEGMENT_HEADER.is_multiple_of(ALIGN));

/// What a record is. The numbers are part of the format and are never used again for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Diverted: never handed to the client library.
    Spilled = 1,
    /// Handed to the client library, without an answer yet: may be in the topic.
    Shadow = 2,
    /// A dead letter that no topic took.
    DeadLetter = 3,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        match number {
            1 => Some(Kind::Spilled),
            2 => Some(Kind::Shadow),
            3 => Some(Kind::DeadLetter),
            _ => None,
        }
    }
}

/// What the record at hand is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Something a caller stored.
    Data(Kind),
    /// Closes the records before it: they were one commit.
    Commit,
    /// Opens a segment: every partition's cursors and all marks. `left` more records of it follow.
    Checkpoint {
        /// Records of the checkpoint still to come.
        left: u64,
    },
}

const KIND_CHECKPOINT: u8 = 0x80;
const KIND_COMMIT: u8 = 0x81;

/// A record's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub entry: Entry,
    /// Bytes of metadata at the front of the payload.
    pub meta: u16,
    /// Bytes of payload, without padding.
    pub length: u32,
    /// Place in its partition; 1 is the first.
    pub sequence: u64,
    /// Which commit wrote it. Rises; an attempt that failed has used its number up.
    pub commit: u64,
    /// Whose it is.
    pub partition: u32,
    /// Of the payload.
    pub payload_crc: u32,
}

impl Header {
    /// Bytes of the whole record, with padding.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        record_bytes(self.length as usize)
    }
}

/// Bytes on disk of a record with this payload.
#[must_use]
pub const fn record_bytes(payload: usize) -> usize {
    (RECORD_HEADER + payload).next_multiple_of(ALIGN)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A segment's header.
#[must_use]
pub fn segment_header(id: u64) -> [u8; SEGMENT_HEADER] {
    let mut header = [0; SEGMENT_HEADER];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header[10..12].copy_from_slice(&(SEGMENT_HEADER as u16).to_le_bytes());
    header[16..24].copy_from_slice(&id.to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// What the front of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeader {
    /// A segment of this version, with this number.
    Good(u64),
    /// Whole, and of a version this program does not know.
    OtherVersion(u16),
    /// Damaged, or not a segment.
    Bad,
}

/// Judges the front of a file.
#[must_use]
pub fn read_segment_header(bytes: &[u8]) -> SegmentHeader {
    if bytes.len() < SEGMENT_HEADER || bytes[..8] != SEGMENT_MAGIC || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60])
    {
        return SegmentHeader::Bad;
    }
    match u16::from_le_bytes([bytes[8], bytes[9]]) {
        VERSION => SegmentHeader::Good(u64_at(bytes, 16)),
        other => SegmentHeader::OtherVersion(other),
    }
}

fn header_crc(header: &[u8], segment: u64, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&segment.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), &header[..36])
}

/// Appends a record to `into`, all but what [`seal_record`] fills in when its place is known.
pub fn put_record(into: &mut Vec<u8>, entry: Entry, partition: u32, sequence: u64, meta: &[u8], body: &[u8]) {
    let (kind, sequence) = match entry {
        Entry::Data(kind) => (kind as u8, sequence),
        Entry::Commit => (KIND_COMMIT, sequence),
        Entry::Checkpoint { left } => (KIND_CHECKPOINT, left),
    };
    let length = meta.len() + body.len();
    debug_assert!(length <= PAYLOAD_MAX as usize && meta.len() <= usize::from(u16::MAX));
    let payload_crc = crc32c::crc32c_append(crc32c::crc32c(meta), body);
    let mut header = [0_u8; RECORD_HEADER];
    header[0..4].copy_from_slice(&RECORD_MARK.to_le_bytes());
    header[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[24..28].copy_from_slice(&partition.to_le_bytes());
    header[28..32].copy_from_slice(&payload_crc.to_le_bytes());
    header[32] = kind;
    header[34..36].copy_from_slice(&(meta.len() as u16).to_le_bytes());
    into.extend_from_slice(&header);
    into.extend_from_slice(meta);
    into.extend_from_slice(body);
    into.resize(into.len().next_multiple_of(ALIGN), 0);
}

/// Gives the record at the front of `record` its commit and its place.
pub fn seal_record(record: &mut [u8], commit: u64, segment: u64, offset: u64) {
    record[16..24].copy_from_slice(&commit.to_le_bytes());
    let crc = header_crc(record, segment, offset);
    record[36..40].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a header that this program itself put into memory and has not sealed yet.
#[must_use]
pub fn own_header(record: &[u8]) -> Header {
    parse(record).expect("put_record wrote it")
}

/// Reads the header at the front of `bytes` if it is one, and of this place.
#[must_use]
pub fn read_header(bytes: &[u8], segment: u64, offset: u64) -> Option<Header> {
    if bytes.len() < RECORD_HEADER || u32_at(bytes, 0) != RECORD_MARK {
        return None;
    }
    let is_whole = u32_at(bytes, 36) == header_crc(bytes, segment, offset);
    is_whole.then(|| parse(bytes)).flatten().filter(|header| header.commit <= COMMIT_MAX)
}

fn parse(bytes: &[u8]) -> Option<Header> {
    let sequence = u64_at(bytes, 8);
    let entry = match bytes[32] {
        KIND_COMMIT => Entry::Commit,
        KIND_CHECKPOINT => Entry::Checkpoint { left: sequence },
        number => Entry::Data(Kind::of(number)?),
    };
    let (length, meta) = (u32_at(bytes, 4), u16::from_le_bytes([bytes[34], bytes[35]]));
    let commit = u64_at(bytes, 16);
    let (partition, payload_crc) = (u32_at(bytes, 24), u32_at(bytes, 28));
    (length <= PAYLOAD_MAX && u32::from(meta) <= length && sequence <= SEQUENCE_MAX).then_some(Header {
        entry,
        meta,
        length,
        sequence,
        commit,
        partition,
        payload_crc,
    })
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The partition.
    pub partition: u32,
    /// Every record up to here is done with.
    pub released: u64,
    /// Every record up to here was committed.
    pub high: u64,
}

/// One record out of its turn that is done with.
pub type Mark = (u32, u64);

/// Bytes on disk of a control record.
#[must_use]
pub const fn control_bytes(cursors: usize, marks: usize) -> usize {
    record_bytes(CONTROL_COUNTS + cursors * CURSOR + marks * MARK)
}

/// Bytes on disk of a whole checkpoint, at most.
#[must_use]
pub const fn checkpoint_bytes(cursors: usize, marks: usize) -> usize {
    let records = (cursors * CURSOR + marks * MARK) / (CHECKPOINT_PAYLOAD - CONTROL_COUNTS - CURSOR) + 2;
    cursors * CURSOR + marks * MARK + records * (RECORD_HEADER + CONTROL_COUNTS + ALIGN)
}

/// Appends the record that closes a commit of `records` records.
pub fn put_commit(
    into: &mut Vec<u8>,
    records: u64,
    cursors: impl ExactSizeIterator<Item = Cursor>,
    marks: impl ExactSizeIterator<Item = Mark>,
) {
    let entry = Entry::Commit;
    put_control(into, entry, records, cursors, marks);
}

/// Appends a checkpoint, in as many records as it takes.
pub fn put_checkpoint(
    into: &mut Vec<u8>,
    mut cursors: impl ExactSizeIterator<Item = Cursor>,
    mut marks: impl ExactSizeIterator<Item = Mark>,
) {
    let cursors_each = (CHECKPOINT_PAYLOAD - CONTROL_COUNTS) / CURSOR;
    let marks_each = (CHECKPOINT_PAYLOAD - CONTROL_COUNTS) / MARK;
    // At least one, which says that there is nothing.
    let mut left = (cursors.len().div_ceil(cursors_each) + marks.len().div_ceil(marks_each)).max(1) as u64;
    while left > 0 {
        left -= 1;
        let cursors_now = cursors.len().min(cursors_each);
        let marks_now = if cursors_now == 0 { marks.len().min(marks_each) } else { 0 };
        let entry = Entry::Checkpoint { left };
        put_control(into, entry, left, Taken(&mut cursors, cursors_now), Taken(&mut marks, marks_now));
    }
}

/// The next so many of an iterator, with their number.
struct Taken<'a, I>(&'a mut I, usize);

impl<I: Iterator> Iterator for Taken<'_, I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        self.1 = self.1.checked_sub(1)?;
        self.0.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1, Some(self.1))
    }
}

impl<I: Iterator> ExactSizeIterator for Taken<'_, I> {}

fn put_control(
    into: &mut Vec<u8>,
    entry: Entry,
    sequence: u64,
    cursors: impl ExactSizeIterator<Item = Cursor>,
    marks: impl ExactSizeIterator<Item = Mark>,
) {
    let start = into.len();
    put_record(into, entry, 0, sequence, &[], &[]);
    into.extend_from_slice(&(cursors.len() as u32).to_le_bytes());
    into.extend_from_slice(&(marks.len() as u32).to_le_bytes());
    for cursor in cursors {
        into.extend_from_slice(&cursor.partition.to_le_bytes());
        into.extend_from_slice(&cursor.released.to_le_bytes());
        into.extend_from_slice(&cursor.high.to_le_bytes());
    }
    for (partition, sequence) in marks {
        into.extend_from_slice(&partition.to_le_bytes());
        into.extend_from_slice(&sequence.to_le_bytes());
    }
    let payload = start + RECORD_HEADER;
    let length = (into.len() - payload) as u32;
    debug_assert!(length <= PAYLOAD_MAX, "limits bound the cursors and marks of one commit");
    let crc = crc32c::crc32c(&into[payload..]);
    into[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    into[start + 28..start + 32].copy_from_slice(&crc.to_le_bytes());
    into.resize(into.len().next_multiple_of(ALIGN), 0);
}

/// The cursors and marks of a control record's payload; `None` if it is not one.
pub fn read_control(
    payload: &[u8],
) -> Option<(impl ExactSizeIterator<Item = Cursor> + '_, impl ExactSizeIterator<Item = Mark> + '_)> {
    if payload.len() < CONTROL_COUNTS {
        return None;
    }
    let (cursors, marks) = (u32_at(payload, 0) as usize, u32_at(payload, 4) as usize);
    if payload.len() as u64 != CONTROL_COUNTS as u64 + cursors as u64 * CURSOR as u64 + marks as u64 * MARK as u64 {
        return None;
    }
    let (cursor_bytes, mark_bytes) = payload[CONTROL_COUNTS..].split_at(cursors * CURSOR);
    let cursors = cursor_bytes.chunks_exact(CURSOR).map(|bytes| Cursor {
        partition: u32_at(bytes, 0),
        released: u64_at(bytes, 4).min(SEQUENCE_MAX),
        high: u64_at(bytes, 12).min(SEQUENCE_MAX),
    });
    Some((cursors, mark_bytes.chunks_exact(MARK).map(|bytes| (u32_at(bytes, 0), u64_at(bytes, 4)))))
}

/// A directory holds `spill-<16 hex digits>.seg`, `.new` while one is being made, `.corrupt` when one is set aside.
pub const SEGMENT_END: &str = ".seg";
/// See [`SEGMENT_END`].
pub const NEW_END: &str = ".new";
/// See [`SEGMENT_END`].
pub const CORRUPT_END: &str = ".corrupt";
const NAME_FRONT: &str = "spill-";

/// The name of a segment's file.
#[must_use]
pub fn file_name(id: u64, end: &str) -> String {
    format!("{NAME_FRONT}{id:016x}{end}")
}

/// The number of the segment whose file has this name.
#[must_use]
pub fn id_of(name: &str, end: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME_FRONT)?.strip_suffix(end)?;
    (digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)))
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_at_its_place_and_at_no_other() {
        let mut bytes = Vec::new();
        put_record(&mut bytes, Entry::Data(Kind::Shadow), 7, SEQUENCE_MAX, b"meta", b"frame");
        assert_eq!(bytes.len(), record_bytes(9));
        seal_record(&mut bytes, 12, 3, 64);
        let header = read_header(&bytes, 3, 64).unwrap();
        assert_eq!(header.entry, Entry::Data(Kind::Shadow));
        assert_eq!((header.partition, header.sequence, header.commit), (7, SEQUENCE_MAX, 12));
        assert_eq!((header.meta, header.length, header.record_bytes()), (4, 9, 56));
        assert_eq!(header.payload_crc, crc32c::crc32c(b"metaframe"));
        assert_eq!(read_header(&bytes, 4, 64), None, "another segment");
        assert_eq!(read_header(&bytes, 3, 72), None, "another offset");
    }

    #[test]
    fn a_flip_of_any_bit_of_a_header_is_seen() {
        let mut bytes = Vec::new();
        put_record(&mut bytes, Entry::Data(Kind::Spilled), 1, 2, b"", b"frame");
        seal_record(&mut bytes, 9, 1, 64);
        for bit in 0..RECORD_HEADER * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_header(&bad, 1, 64), None, "bit {bit}");
        }
        let segment = segment_header(5);
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bad = segment;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_segment_header(&bad), SegmentHeader::Bad, "bit {bit}");
        }
        assert_eq!(read_segment_header(&segment), SegmentHeader::Good(5));
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut header = segment_header(1);
        header[8] = 2;
        let crc = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(read_segment_header(&header), SegmentHeader::OtherVersion(2));
    }

    #[test]
    fn the_layout_is_the_one_that_formats_md_draws() {
        let mut bytes = Vec::new();
        put_record(&mut bytes, Entry::Data(Kind::Spilled), 0x0102_0304, 5, &[0xaa], &[0xbb, 0xcc]);
        seal_record(&mut bytes, 6, 1, 64);
        assert_eq!(bytes[..4], [0x1c, 0xa7, 0x9d, 0xf3]);
        assert_eq!(bytes[4..8], [3, 0, 0, 0]);
        assert_eq!(bytes[8..24], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..28], [4, 3, 2, 1]);
        assert_eq!(bytes[32..36], [1, 0, 1, 0]);
        assert_eq!(bytes[40..], [0xaa, 0xbb, 0xcc, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_control_record_comes_back_and_its_size_is_the_one_foretold() {
        let cursors: Vec<_> = (0..9_000).map(|p| Cursor { partition: p, released: 1, high: SEQUENCE_MAX }).collect();
        let marks: Vec<_> = (0..20_000).map(|s| (3, s)).collect();
        let mut bytes = Vec::new();
        put_commit(&mut bytes, 4, cursors.iter().copied(), marks.iter().copied());
        assert_eq!(bytes.len(), control_bytes(cursors.len(), marks.len()));
        let length = own_header(&bytes).length as usize;
        let (got_cursors, got_marks) = read_control(&bytes[RECORD_HEADER..RECORD_HEADER + length]).unwrap();
        assert!(got_cursors.eq(cursors.iter().copied()) && got_marks.eq(marks.iter().copied()));
        assert!(read_control(&bytes[RECORD_HEADER..RECORD_HEADER + length - 1]).is_none());

        for (cursors, marks) in
            [(&cursors[..], &marks[..]), (&cursors[..1], &marks[..0]), (&[], &marks[..3]), (&[], &[])]
        {
            let mut bytes = Vec::new();
            put_checkpoint(&mut bytes, cursors.iter().copied(), marks.iter().copied());
            assert!(bytes.len() <= checkpoint_bytes(cursors.len(), marks.len()));
            let (mut at, mut got_cursors, mut got_marks) = (0, Vec::new(), Vec::new());
            let mut last_left = None;
            while at < bytes.len() {
                let header = own_header(&bytes[at..]);
                let payload = &bytes[at + RECORD_HEADER..][..header.length as usize];
                let (c, m) = read_control(payload).unwrap();
                got_cursors.extend(c);
                got_marks.extend(m);
                last_left = Some(header.entry);
                at += header.record_bytes();
            }
            assert_eq!(last_left, Some(Entry::Checkpoint { left: 0 }));
            assert_eq!((&got_cursors[..], &got_marks[..]), (cursors, marks));
        }
    }

    #[test]
    fn only_names_of_the_directory_are_taken() {
        assert_eq!(id_of(&file_name(0xab, SEGMENT_END), SEGMENT_END), Some(0xab));
        for other in ["spill-1.seg", "spill-00000000000000AB.seg", "router.toml", "spill-00000000000000ab.seg.bak"] {
            assert_eq!(id_of(other, SEGMENT_END), None, "{other}");
        }
    }
}
