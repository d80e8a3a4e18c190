//! Segment files of the spill. The bytes are the files themselves, or the steps by which files are made: records that are
//! whole but say anything, damage, zeros, cuts. Whatever lies there, a start never panics; hands out no record that is not
//! in the files, whole, by a reader of its own; counts what it hands out and what is missing; is what `verify` foretold;
//! and leaves a directory in which the next start finds the same, without a trace of a crash.

use super::input::Input;
use fencepost::spill::faulty::FaultyDisk;
use fencepost::spill::format::{self, Cursor, Entry, SEGMENT_END, SEGMENT_HEADER};
use fencepost::spill::{self, Budget, Kind, OpenError, Record, Recovery, Spill, SpillLimits, SurveyError};
use fencepost::units::PartitionId;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

const PARTITIONS: u32 = 4;
const DIR: &str = "spill";
/// The files together, so that the limit is not what is tried.
const FILES_BYTES_MAX: usize = 96 << 10;

fn limits() -> SpillLimits {
    SpillLimits {
        partitions: PARTITIONS,
        limit_bytes: 512 << 10,
        reserve_bytes: 8 << 10,
        partition_bytes: 256 << 10,
        segment_bytes: 16 << 10,
        batch_bytes: 4 << 10,
        record_bytes: 300,
        marks: 16,
    }
}

/// See the module.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let files = if input.below(4) == 0 { as_they_are(&mut input) } else { made(&mut input) };
    let disk = FaultyDisk::new(bytes.len() as u64);
    for (id, content) in &files {
        disk.put(&Path::new(DIR).join(format::file_name(*id, SEGMENT_END)), content.clone());
    }
    let foretold = foretold(&disk);
    let (spill, recovery) = match Spill::open(disk.clone(), Path::new(DIR), limits()) {
        Ok(opened) => opened,
        Err(OpenError::Survey(SurveyError::Version { .. } | SurveyError::Partition { .. })) => return,
        Err(why) => panic!("the disk is sound, and it does not open: {why}"),
    };
    let (found, sequences) = foretold.expect("what opens can be looked at");
    assert_eq!(recovery, found, "verify says what a start will find");
    let mut first = Start { spill, recovery };
    let held = first.held();
    let (whole, is_a_log) = whole_records(&files);
    let read = held.iter().flatten().map(|(sequence, _)| *sequence);
    assert!(!is_a_log || read.eq(sequences), "read from outside, it is the same");
    for (partition, lane) in held.iter().enumerate() {
        for (&sequence, Held { kind, meta, frame }) in lane {
            let record = (partition as u32, sequence, *kind as u8, meta.clone(), frame.clone());
            assert!(whole.contains(&record), "nothing like {partition}/{sequence} is in the files");
        }
    }
    first.adds_up(&held);

    // The process ends, and the machine may as well.
    let mut last = first;
    for round in 0..2 {
        let Start { spill, recovery: then } = last;
        drop(spill);
        match round {
            0 => disk.end_process(),
            _ => disk.crash(),
        }
        let (spill, now) = Spill::open(disk.clone(), Path::new(DIR), limits()).expect("it opened before");
        last = Start { spill, recovery: now.clone() };
        let again = last.held();
        last.adds_up(&again);
        // Of what no spill ever wrote, the first start may have believed more than the next one can.
        if is_a_log {
            assert_eq!(again, held, "the next start finds the same");
            assert_eq!((now.records, now.lost, &now.lost_ranges), (then.records, then.lost, &then.lost_ranges));
            assert_eq!((now.unsettled_kept, now.unsettled_dropped), (0, 0), "what was kept is settled now");
            assert!(now.quarantined.is_empty(), "what was set aside stays aside: {now:?}");
            assert!(now.damaged <= then.damaged && now.torn_bytes <= then.torn_bytes, "{now:?} after {then:?}");
        }
    }
    if is_a_log {
        goes_on(last, &disk, &held);
    }
}

/// A record as it was handed out.
#[derive(PartialEq)]
struct Held {
    kind: Kind,
    meta: Vec<u8>,
    frame: Vec<u8>,
}

impl std::fmt::Debug for Held {
    /// Their lengths and sums: whoever reads of a failure wants to see which is missing.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Held { kind, meta, frame } = self;
        write!(out, "{kind:?} {}+{} {:08x}", meta.len(), frame.len(), crc32c(crc32c(0, meta), frame))
    }
}

/// By partition and sequence.
type Lanes = Vec<BTreeMap<u64, Held>>;

struct Start {
    spill: Spill<FaultyDisk>,
    recovery: Recovery,
}

impl Start {
    fn held(&mut self) -> Lanes {
        (0..PARTITIONS).map(|partition| lane(&mut self.spill, PartitionId(partition))).collect()
    }

    fn adds_up(&self, held: &Lanes) {
        let Start { spill, recovery } = self;
        assert_eq!(recovery.records, held.iter().map(|lane| lane.len() as u64).sum::<u64>());
        assert_eq!((spill.records(), spill.counts().lost), (recovery.records, 0), "all that is lost was seen at start");
        let lost_in = |partition: u32| -> u128 {
            let ranges = recovery.lost_ranges.iter().filter(|lost| lost.partition == partition);
            ranges.map(|lost| u128::from(lost.last - lost.first) + 1).sum()
        };
        assert!(recovery.lost_ranges.len() < spill::LOST_NAMED, "the files are too small for so many gaps");
        let lost: u128 = (0..PARTITIONS).map(lost_in).sum();
        assert_eq!(u128::from(recovery.lost), lost.min(u64::MAX.into()));
        for (partition, lane) in held.iter().enumerate() {
            let id = PartitionId(partition as u32);
            let state = spill.partition(id);
            assert_eq!(state.records, lane.len() as u64);
            assert!(lane.keys().all(|sequence| (state.released + 1..=state.committed).contains(sequence)));
            assert!(state.appended >= state.committed, "{state:?}");
            let there = u128::from(state.records) + lost_in(id.0) + u128::from(spill.marked(id));
            let all = u128::from(state.committed.saturating_sub(state.released));
            assert_eq!(there, all, "each is there, lost or marked, once: {state:?}, {recovery:?}");
        }
    }
}

fn lane(spill: &mut Spill<FaultyDisk>, partition: PartitionId) -> BTreeMap<u64, Held> {
    let (mut lane, mut next) = (BTreeMap::<u64, Held>::new(), 1);
    loop {
        let done = spill.read(partition, next, Budget::default(), |stored| {
            assert_eq!(stored.id.partition, partition);
            assert!(lane.last_key_value().is_none_or(|(last, _)| *last < stored.id.sequence), "in order");
            let Record { kind, meta, frame, .. } = stored.record;
            lane.insert(stored.id.sequence, Held { kind, meta: meta.to_vec(), frame: frame.to_vec() });
        });
        assert!(done.next >= next, "a read goes forward");
        next = done.next;
        if !done.more {
            return lane;
        }
    }
}

/// What is said of the directory from outside, which leaves it as it is: the sums, and the sequences in order.
fn foretold(disk: &FaultyDisk) -> Option<(Recovery, Vec<u64>)> {
    let contents = || disk.files().into_iter().map(|(path, _)| (disk.content(&path), path)).collect::<Vec<_>>();
    let before = contents();
    let verified = spill::verify(&mut disk.clone(), Path::new(DIR), |_| true);
    let mut sequences = Vec::new();
    let read =
        spill::read_all(&mut disk.clone(), Path::new(DIR), |_| true, |stored| sequences.push(stored.id.sequence));
    assert_eq!(contents(), before, "looking changes nothing");
    let (verified, read) = (verified.ok()?.0, read.expect("verify could read it"));
    assert_eq!(verified, read);
    Some((verified, sequences))
}

/// What is written now stands behind all that was there, and what is released is gone for good.
fn goes_on(start: Start, disk: &FaultyDisk, held: &Lanes) {
    let Start { mut spill, .. } = start;
    let mut fresh = Vec::new();
    for partition in (0..PARTITIONS).map(PartitionId) {
        let before = spill.partition(partition);
        let frame = [partition.0 as u8; 40];
        match spill.append(Record { partition, kind: Kind::Spilled, meta: b"new", frame: &frame }) {
            Ok(id) => {
                assert!(id.sequence > before.committed.max(before.released), "{id:?} after {before:?}");
                fresh.push(id);
            }
            Err(spill::AppendError::NoSequence) => assert_eq!(before.appended, format::SEQUENCE_MAX),
            Err(why) => panic!("there is room: {why}"),
        }
    }
    spill.commit().expect("the disk is sound");
    drop(spill);
    disk.crash();
    let (mut spill, _) = Spill::open(disk.clone(), Path::new(DIR), limits()).expect("it opened before");
    for (partition, before) in held.iter().enumerate() {
        let partition = PartitionId(partition as u32);
        let mut now = lane(&mut spill, partition);
        if let Some(id) = fresh.iter().find(|id| id.partition == partition) {
            let record = now.remove(&id.sequence).expect("what was committed is there");
            assert_eq!((&record.meta[..], record.frame), (&b"new"[..], vec![partition.0 as u8; 40]));
        }
        assert_eq!(now, *before);
        spill.release(partition, spill.partition(partition).committed);
    }
    spill.commit().expect("the disk is sound");
    drop(spill);
    disk.crash();
    let (spill, recovery) = Spill::open(disk.clone(), Path::new(DIR), limits()).expect("it opened before");
    assert_eq!((spill.records(), recovery.records, recovery.lost), (0, 0, 0), "all of it is done with");
}

// -- files from bytes -------------------------------------------------------------------------------------------------

type Files = Vec<(u64, Vec<u8>)>;

/// Up to four files, byte for byte.
fn as_they_are(input: &mut Input<'_>) -> Files {
    let mut files = Files::new();
    while !input.is_over() && files.len() < 4 {
        let len = u16::from_le_bytes([input.byte(), input.byte()]);
        files.push((files.len() as u64 + 1, input.take(len.into()).to_vec()));
    }
    files
}

/// Files made step by step, with checksums that fit: without them luck finds nothing but damage.
fn made(input: &mut Input<'_>) -> Files {
    let mut made = Made { files: Files::new(), commit: 1, cursors: [Cursor::default(); PARTITIONS as usize] };
    for (partition, cursor) in (0..).zip(&mut made.cursors) {
        cursor.partition = partition;
    }
    made.segment(1, true);
    while !input.is_over() {
        made.step(input);
        if made.files.iter().map(|(_, content)| content.len()).sum::<usize>() > FILES_BYTES_MAX {
            break;
        }
    }
    made.files
}

struct Made {
    files: Files,
    commit: u64,
    /// As a spill would have them that had written all this.
    cursors: [Cursor; PARTITIONS as usize],
}

impl Made {
    fn segment(&mut self, id: u64, has_header: bool) {
        let header = if has_header { format::segment_header(id) } else { [0x5a; SEGMENT_HEADER] };
        self.files.push((id, header.to_vec()));
    }

    fn content(&mut self) -> &mut Vec<u8> {
        &mut self.files.last_mut().expect("the first is there from the start").1
    }

    /// Seals what `put` appends, at its place.
    fn record(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let commit = self.commit;
        let (id, content) = self.files.last_mut().expect("the first is there from the start");
        content.resize(content.len().next_multiple_of(format::ALIGN), 0);
        let start = content.len();
        put(content);
        format::seal_record(&mut content[start..], commit, *id, start as u64);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => {
                let id = self.files.last().map_or(1, |(id, _)| id + 1 + input.below(3) as u64);
                self.segment(id, input.below(8) > 0);
                // As a spill does it. Where the byte says otherwise, a commit goes on in the next segment.
                if input.below(8) > 0 {
                    let (cursors, marks) = (self.cursors, self.marks(input));
                    self.commit = self.commit.saturating_add(1);
                    self.record(|into| format::put_checkpoint(into, cursors.into_iter(), marks.into_iter()));
                    self.commit = self.commit.saturating_add(1);
                }
            }
            nth @ 1..=5 => {
                let partition = if nth < 5 { input.below(PARTITIONS as usize) as u32 } else { input.number() as u32 };
                let mut free = Cursor::default();
                let cursor = self.cursors.get_mut(partition as usize).unwrap_or(&mut free);
                let sequence = if nth < 4 { cursor.high.saturating_add(1) } else { input.number() };
                cursor.high = cursor.high.max(sequence);
                let kind = [Kind::Spilled, Kind::Shadow, Kind::DeadLetter][input.below(3)];
                let meta = vec![sequence as u8; input.below(16)];
                let frame = vec![sequence as u8 ^ 0xff; usize::from(input.byte())];
                self.record(|into| format::put_record(into, Entry::Data(kind), partition, sequence, &meta, &frame));
            }
            6..=8 => {
                let (cursors, marks) = (self.cursors, self.marks(input));
                self.record(|into| format::put_commit(into, 1, cursors.into_iter(), marks.into_iter()));
                self.commit = self.commit.saturating_add(1);
            }
            9 => {
                let (cursors, marks) = (self.any_cursors(input), self.marks(input));
                self.record(|into| format::put_commit(into, 1, cursors.into_iter(), marks.into_iter()));
                self.commit = self.commit.saturating_add(1);
            }
            10 => {
                let (cursors, marks) = (self.cursors, self.marks(input));
                self.record(|into| format::put_checkpoint(into, cursors.into_iter(), marks.into_iter()));
            }
            11 => {
                let (cursors, marks) = (self.any_cursors(input), self.marks(input));
                self.record(|into| format::put_checkpoint(into, cursors.into_iter(), marks.into_iter()));
            }
            12 => {
                let cursor = &mut self.cursors[input.below(PARTITIONS as usize)];
                cursor.released = input.number().min(cursor.high);
            }
            13 => match input.below(3) {
                0 => self.commit = input.number(),
                1 => self.content().extend_from_slice(input.short()),
                _ => {
                    let zeros = usize::from(input.byte());
                    let len = self.content().len() + zeros;
                    self.content().resize(len, 0);
                }
            },
            14 => {
                let (at, mask) = (usize::from(u16::from_le_bytes([input.byte(), input.byte()])), input.byte());
                let len = self.content().len();
                if len > 0 {
                    self.content()[at % len] ^= mask;
                }
            }
            _ => {
                let cut = usize::from(u16::from_le_bytes([input.byte(), input.byte()]));
                let len = self.content().len();
                self.content().truncate(len - cut % (len + 1));
            }
        }
    }

    fn marks(&self, input: &mut Input<'_>) -> Vec<format::Mark> {
        (0..input.below(4)).map(|_| (input.below(5) as u32, input.number())).collect()
    }

    fn any_cursors(&self, input: &mut Input<'_>) -> Vec<Cursor> {
        let count = input.below(4);
        let cursor = |_| {
            let (partition, released, high) = (input.below(5) as u32, input.number(), input.number());
            // A fifth partition is one too many: seldom, since all ends there.
            let partition = if partition == PARTITIONS && input.below(16) > 0 { 0 } else { partition };
            Cursor { partition, released, high }
        };
        (0..count).map(cursor).collect()
    }
}

// -- the other reader -------------------------------------------------------------------------------------------------

/// Partition, sequence, kind, metadata, frame.
type Whole = (u32, u64, u8, Vec<u8>, Vec<u8>);

/// Every record that is whole, wherever it lies: by the layout that `docs/formats.md` draws, bit by bit, without a line
/// of the room that is checked. And whether the records keep to the rules of that page, as those that a spill wrote do
/// whatever became of the disk: the commits rise, each is in one segment and ends with a closing record that names what
/// it committed; no segment has a record twice; and a checkpoint opens a segment and names every partition.
fn whole_records(files: &Files) -> (HashSet<Whole>, bool) {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let kinds = [1, 2, 3, 0x80, 0x81];
    let (mut all, mut is_a_log, mut last) = (HashSet::new(), true, 0);
    for (id, content) in files {
        // In a segment, a commit goes on; from one to the next it does not.
        let mut here = HashSet::new();
        let (mut is_open, mut has_begun, mut inside) = (false, false, BTreeMap::new());
        for at in (0..content.len()).step_by(8) {
            let record = &content[at..];
            if record.len() < 40 || record[..4] != [0x1c, 0xa7, 0x9d, 0xf3] {
                continue;
            }
            let place = [id.to_le_bytes(), (at as u64).to_le_bytes()].concat();
            let header_crc = crc32c(crc32c(0, &place), &record[..36]);
            let (length, meta) = (number(&record[4..8]) as usize, number(&record[34..36]) as usize);
            let Some(payload) = record.get(40..40 + length) else { continue };
            let sums = [number(&record[36..40]), number(&record[28..32])];
            if sums != [header_crc, crc32c(0, payload)].map(u64::from) || meta > length || !kinds.contains(&record[32])
            {
                continue;
            }
            let (meta, frame) = payload.split_at(meta);
            let (partition, sequence) = (number(&record[24..28]) as u32, number(&record[8..16]));
            let (commit, kind) = (number(&record[16..24]), record[32]);
            if commit > format::COMMIT_MAX || sequence > format::SEQUENCE_MAX {
                continue;
            }
            // The last commits of all leave no room to go on.
            is_a_log &= (commit > last || (is_open && commit == last)) && commit < format::COMMIT_MAX - 1_000;
            if commit != last {
                inside.clear();
            }
            match kind {
                0x80 => is_a_log &= !has_begun && payload.get(..4).map(number) == Some(u64::from(PARTITIONS)),
                0x81 => {
                    let count = payload.get(..4).map_or(0, number) as usize;
                    let cursors = payload.get(8..).unwrap_or_default().chunks_exact(20).take(count);
                    let named: BTreeMap<_, _> = cursors.map(|one| (number(&one[..4]), number(&one[12..]))).collect();
                    is_a_log &= inside.iter().all(|(partition, upto)| named.get(partition) >= Some(upto));
                    (is_open, has_begun) = (false, true);
                }
                _ => {
                    is_a_log &= here.insert((partition, sequence));
                    let upto = inside.entry(u64::from(partition)).or_insert(sequence);
                    *upto = sequence.max(*upto);
                    (is_open, has_begun) = (true, true);
                }
            }
            last = commit;
            all.insert((partition, sequence, kind, meta.to_vec(), frame.to_vec()));
        }
    }
    (all, is_a_log)
}

fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |sum, byte| {
        let shift = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        (0..8).fold(sum ^ u32::from(*byte), shift)
    })
}
