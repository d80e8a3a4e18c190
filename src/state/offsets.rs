//! How far each partition was acknowledged: what a start reads the topic's tail from. `acked` is the last acknowledged
//! offset, `from` the one that was the last a dedup ttl earlier, so that a start from there sees every key that the window
//! still held, and whatever landed in the topic without an acknowledgement. Beside them stands the stamp ceiling
//! ([`super::ceiling`]), which a start follows that cannot read the topic.
//!
//! The file is small (16 bytes a partition), has a version, the topic's name and a checksum, and is written whole: aside,
//! synced, renamed, the directory synced. One that cannot be understood is no reason to refuse a start: without it the
//! topic is searched from its end, which only takes longer.
//!
//! [`OffsetTrail`] is the memory behind `from`: pure, sized once, 16 samples a partition.

use super::{StateDir, StateError, replace};
use crate::hlc::Hlc;
use crate::units::{Nanos, PartitionId};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const OFFSETS_FILE: &str = "offsets";
const MAGIC: [u8; 8] = *b"fp-acked";
const VERSION: u16 = 2;
/// As it was before there was a ceiling: the same without it. Still read.
const VERSION_OLD: u16 = 1;
/// Magic, version, length of the topic, number of partitions.
const HEADER: usize = 16;
const CEILING: usize = 8;
const PARTITION: usize = 16;
const CRC: usize = 4;

/// Nothing is known of a partition.
const UNKNOWN: i64 = -1;

/// Two offsets of one partition; −1: not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// The last one that was acknowledged.
    pub acked: i64,
    /// The first one that a warm start reads: a record of ours, or the end of the partition while it had none.
    pub from: i64,
}

impl PartitionOffsets {
    /// A partition of which nothing is known.
    pub const UNKNOWN: PartitionOffsets = PartitionOffsets { acked: UNKNOWN, from: UNKNOWN };

    /// The last acknowledged offset, if there was one.
    #[must_use]
    pub fn acked(&self) -> Option<i64> {
        Some(self.acked).filter(|offset| *offset >= 0)
    }

    /// Where to begin, if that is known.
    #[must_use]
    pub fn from(&self) -> Option<i64> {
        Some(self.from).filter(|offset| *offset >= 0)
    }
}

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The topic.
    pub topic: String,
    /// Above every stamp that was given out; [`Hlc::ZERO`]: not known.
    pub ceiling: Hlc,
    /// By partition.
    pub partitions: Vec<PartitionOffsets>,
}

/// Why bytes are no such file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffsetsDamage {
    /// Shorter, longer, or another kind of file.
    #[error("{got} bytes that are no file of offsets")]
    Layout {
        /// Its length.
        got: usize,
    },
    /// Of another version.
    #[error("version {got}, this program reads {VERSION_OLD} and {VERSION}")]
    Version {
        /// The one that came.
        got: u16,
    },
    /// Some byte is not what was written.
    #[error("its checksum does not match")]
    Checksum,
    /// The topic is no text, the ceiling no date, or an offset is one that cannot be.
    #[error("{what} cannot be")]
    Content {
        /// What it holds.
        what: String,
    },
}

impl Offsets {
    /// Nothing known of any partition, nor of a stamp.
    #[must_use]
    pub fn unknown(topic: &str, partitions: u32) -> Offsets {
        let partitions = vec![PartitionOffsets::UNKNOWN; partitions as usize];
        Offsets { topic: topic.to_string(), ceiling: Hlc::ZERO, partitions }
    }

    /// The file's bytes.
    ///
    /// # Panics
    /// If the topic's name has more than 65,535 bytes; Kafka allows 249.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let topic_len = u16::try_from(self.topic.len()).expect("a topic's name has at most 249 bytes");
        let len = HEADER + CEILING + self.topic.len() + self.partitions.len() * PARTITION + CRC;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&topic_len.to_le_bytes());
        bytes.extend_from_slice(&(self.partitions.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.ceiling.0.to_le_bytes());
        bytes.extend_from_slice(self.topic.as_bytes());
        for PartitionOffsets { acked, from } in &self.partitions {
            bytes.extend_from_slice(&acked.to_le_bytes());
            bytes.extend_from_slice(&from.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// [`OffsetsDamage`]: nothing of it is believed then.
    pub fn decode(bytes: &[u8]) -> Result<Offsets, OffsetsDamage> {
        let layout = OffsetsDamage::Layout { got: bytes.len() };
        let Some((head, _)) = bytes.split_first_chunk::<HEADER>().filter(|(head, _)| head[..8] == MAGIC) else {
            return Err(layout);
        };
        let version = u16::from_le_bytes([head[8], head[9]]);
        let ceiling_len = match version {
            VERSION => CEILING,
            VERSION_OLD => 0,
            got => return Err(OffsetsDamage::Version { got }),
        };
        let topic_len = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let count = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        if bytes.len() as u64 != (HEADER + ceiling_len + topic_len + CRC) as u64 + count as u64 * PARTITION as u64 {
            return Err(layout);
        }
        let Some((content, crc)) = bytes.split_last_chunk::<CRC>() else { return Err(layout) };
        if u32::from_le_bytes(*crc) != crc32c::crc32c(content) {
            return Err(OffsetsDamage::Checksum);
        }
        let (ceiling, rest) = content[HEADER..].split_at(ceiling_len);
        let ceiling = ceiling.first_chunk().map_or(Hlc::ZERO, |bytes| Hlc(u64::from_le_bytes(*bytes)));
        if ceiling > Hlc::OBSERVED_MAX {
            return Err(OffsetsDamage::Content { what: format!("a stamp ceiling of {ceiling}, after the year 9999,") });
        }
        let (topic, partitions) = rest.split_at(topic_len);
        let topic = std::str::from_utf8(topic)
            .map_err(|_| OffsetsDamage::Content { what: "a topic's name that is no text".into() })?;
        let (partitions, _) = partitions.as_chunks::<PARTITION>();
        let read = |(index, bytes): (usize, &[u8; PARTITION])| {
            let (acked, from) = bytes.split_at(8);
            let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            let offsets = PartitionOffsets { acked: number(acked), from: number(from) };
            let is_possible = offsets.acked >= UNKNOWN
                && offsets.from >= UNKNOWN
                && (offsets.acked == UNKNOWN || offsets.from <= offsets.acked);
            let what =
                || format!("partition {index} acknowledged up to {} and read from {}", offsets.acked, offsets.from);
            if is_possible { Ok(offsets) } else { Err(OffsetsDamage::Content { what: what() }) }
        };
        let partitions = partitions.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Offsets { topic: topic.to_string(), ceiling, partitions })
    }
}

/// What was found of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsRead {
    /// One for each partition that was asked for; `None`: there is no file, or none that can be believed.
    pub offsets: Option<Offsets>,
    /// What a person should know about that.
    pub warning: Option<String>,
}

/// The file alone: for the thread that keeps it while the router holds the directory.
#[derive(Clone, Debug)]
pub struct OffsetsFile {
    dir: PathBuf,
}

impl OffsetsFile {
    /// The file of a state directory that this process holds.
    #[must_use]
    pub fn new(state_dir: &Path) -> OffsetsFile {
        OffsetsFile { dir: state_dir.to_path_buf() }
    }

    /// What the last run left. A file that cannot be read or understood, or is another topic's, counts as none and is told
    /// of. Partitions it does not know are unknown.
    #[must_use]
    pub fn read(&self, topic: &str, partitions: u32) -> OffsetsRead {
        let path = self.dir.join(OFFSETS_FILE);
        let none = |why: String| OffsetsRead {
            offsets: None,
            warning: Some(format!(
                "state.dir: {} is not used: {why}; the topic's tail is searched from its end instead",
                path.display()
            )),
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return OffsetsRead { offsets: None, warning: None };
            }
            Err(error) => return none(error.to_string()),
        };
        let mut offsets = match Offsets::decode(&bytes) {
            Ok(offsets) => offsets,
            Err(damage) => return none(damage.to_string()),
        };
        if offsets.topic != topic {
            return none(format!("it is of topic {}, not {topic}", offsets.topic));
        }
        offsets.partitions.resize(partitions as usize, PartitionOffsets::UNKNOWN);
        OffsetsRead { offsets: Some(offsets), warning: None }
    }

    /// Replaces it, durably. Costs two syncs: once a second is often enough.
    ///
    /// # Errors
    /// What the disk says; the old file is then still there, whole.
    pub fn write(&self, offsets: &Offsets) -> Result<(), StateError> {
        replace(&self.dir, OFFSETS_FILE, &offsets.encode())
    }

    /// Removes it: the next start searches the topic from its end.
    ///
    /// # Errors
    /// What the disk says; that it is not there is none.
    pub fn remove(&self) -> Result<(), StateError> {
        let path = self.dir.join(OFFSETS_FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateDir::io("removing", &path, error)),
            _ => Ok(()),
        }
    }
}

/// Samples kept of each partition.
const SAMPLES: usize = 16;
/// Samples that a ttl is cut into: those within it, the one that is being replaced and the one before it fit the ring.
const PER_TTL: u64 = SAMPLES as u64 - 3;

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Nanos,
    acked: i64,
}

/// One partition's ring.
#[derive(Clone, Debug)]
struct Line {
    samples: [Sample; SAMPLES],
    first: u8,
    len: u8,
    /// Where to begin while no sample is old enough.
    base: i64,
    acked: i64,
}

impl Line {
    const EMPTY: Line =
        Line { samples: [Sample { at: Nanos(0), acked: 0 }; SAMPLES], first: 0, len: 0, base: UNKNOWN, acked: UNKNOWN };

    fn sample(&self, index: usize) -> Sample {
        self.samples[(usize::from(self.first) + index) % SAMPLES]
    }

    fn last(&self) -> Option<Sample> {
        self.len.checked_sub(1).map(|last| self.sample(last.into()))
    }

    /// Lets the samples go that are old enough; the newest of them is where to begin from now on.
    fn age(&mut self, now: Nanos, ttl: Nanos) {
        while self.len > 0 && now.since(self.sample(0).at) >= ttl {
            self.base = self.sample(0).acked;
            self.first = (self.first + 1) % SAMPLES as u8;
            self.len -= 1;
        }
    }

    fn push(&mut self, sample: Sample) {
        assert!(usize::from(self.len) < SAMPLES, "samples are a {PER_TTL}th of the ttl apart, and none is older");
        self.samples[(usize::from(self.first) + usize::from(self.len)) % SAMPLES] = sample;
        self.len += 1;
    }
}

/// Which offset was acknowledged a ttl ago, for each partition. Fed about once a second; what comes closer together than
/// a 13th of the ttl makes no sample of its own, so `from` is at most that, and a gap of the feed, older than it could be; it
/// is never younger.
#[derive(Clone, Debug)]
pub struct OffsetTrail {
    lines: Vec<Line>,
    ttl: Nanos,
    apart: Nanos,
}

impl OffsetTrail {
    /// Knows nothing of any partition yet. All its memory is taken here.
    #[must_use]
    pub fn new(partitions: u32, ttl: Nanos) -> OffsetTrail {
        OffsetTrail { lines: vec![Line::EMPTY; partitions as usize], ttl, apart: Nanos(ttl.0.div_ceil(PER_TTL)) }
    }

    /// What it takes.
    #[must_use]
    pub const fn memory_bytes(partitions: u32) -> usize {
        partitions as usize * size_of::<Line>()
    }

    /// What is known at start: `from`, where the warm start began to read (whatever it read has a fresh ttl, so another
    /// start within that would have to read it again), and `acked`, the last record there is. Without a warm start: what
    /// the file said.
    pub fn begin(&mut self, partition: PartitionId, known: PartitionOffsets) {
        let line = &mut self.lines[partition.0 as usize];
        // Nothing was read: what the partition held has gone, and the offset before its end is nobody's.
        let acked = if known.acked < known.from { UNKNOWN } else { known.acked };
        *line = Line { base: known.from, acked, ..Line::EMPTY };
    }

    /// The last acknowledged offset of a partition, now. One that fell is of a topic that was cut, or made anew: what was
    /// known is forgotten then.
    pub fn note(&mut self, now: Nanos, partition: PartitionId, acked: i64) {
        if acked < 0 {
            return;
        }
        let line = &mut self.lines[partition.0 as usize];
        if acked < line.acked {
            *line = Line::EMPTY;
        }
        line.acked = acked;
        line.age(now, self.ttl);
        if line.last().is_none_or(|last| now.since(last.at) >= self.apart) {
            line.push(Sample { at: now, acked });
        }
    }

    /// The two offsets of a partition, now.
    pub fn offsets(&mut self, now: Nanos, partition: PartitionId) -> PartitionOffsets {
        let line = &mut self.lines[partition.0 as usize];
        line.age(now, self.ttl);
        PartitionOffsets { acked: line.acked, from: line.base }
    }

    /// Writes those of all partitions to `offsets`.
    ///
    /// # Panics
    /// If it has room for another number of partitions.
    pub fn write_to(&mut self, now: Nanos, offsets: &mut Offsets) {
        assert_eq!(self.lines.len(), offsets.partitions.len());
        for (index, place) in offsets.partitions.iter_mut().enumerate() {
            *place = self.offsets(now, PartitionId(index as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scratch;
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Offsets {
        let partitions = [(7, 3), (-1, -1), (i64::MAX, 0), (0, 0), (9, -1), (-1, 5)];
        let partitions = partitions.map(|(acked, from)| PartitionOffsets { acked, from }).to_vec();
        Offsets { topic: "triggers".into(), ceiling: Hlc::new(1_772_000_000_000, 5), partitions }
    }

    #[test]
    fn the_file_byte_for_byte() {
        let partitions = vec![PartitionOffsets { acked: 0x0102, from: -1 }];
        let bytes = Offsets { topic: "ab".into(), ceiling: Hlc(0x0304), partitions }.encode();
        assert_eq!(bytes[..26], *b"fp-acked\x02\0\x02\0\x01\0\0\0\x04\x03\0\0\0\0\0\0ab");
        assert_eq!(bytes[26..42], *b"\x02\x01\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(bytes[42..], crc32c::crc32c(&bytes[..42]).to_le_bytes());
    }

    #[test]
    fn a_file_of_the_version_without_a_ceiling_is_read() {
        let body = b"fp-acked\x01\0\x02\0\x01\0\0\0ab\x02\x01\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
        let bytes = [&body[..], &crc32c::crc32c(body).to_le_bytes()].concat();
        let partitions = vec![PartitionOffsets { acked: 0x0102, from: -1 }];
        assert_eq!(Offsets::decode(&bytes), Ok(Offsets { topic: "ab".into(), ceiling: Hlc::ZERO, partitions }));
        for at in 0..bytes.len() {
            assert!(Offsets::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        for version in [0, 3] {
            let mut body = *body;
            body[8] = version;
            let bytes = [&body[..], &crc32c::crc32c(&body).to_le_bytes()].concat();
            assert_eq!(Offsets::decode(&bytes), Err(OffsetsDamage::Version { got: version.into() }));
        }
    }

    #[test]
    fn a_ceiling_that_is_no_date_is_refused_with_a_good_checksum_too() {
        for (ceiling, is_date) in [(Hlc::OBSERVED_MAX, true), (Hlc(Hlc::OBSERVED_MAX.0 + 1), false)] {
            let bytes = Offsets { ceiling, ..sample() }.encode();
            match Offsets::decode(&bytes) {
                Ok(offsets) => assert!(is_date && offsets.ceiling == ceiling, "{ceiling}"),
                Err(damage) => assert!(!is_date && matches!(damage, OffsetsDamage::Content { .. }), "{damage}"),
            }
        }
    }

    /// A partition whose records retention took has an end and nothing before it: no reason to disbelieve all the others.
    #[test]
    fn a_partition_that_is_empty_does_not_spoil_the_file() {
        let mut trail = OffsetTrail::new(2, Nanos::from_millis(10_000));
        trail.begin(PartitionId(0), PartitionOffsets { acked: 99, from: 100 });
        trail.begin(PartitionId(1), PartitionOffsets { acked: 7, from: 3 });
        let mut offsets = Offsets::unknown("t", 2);
        trail.write_to(Nanos(0), &mut offsets);
        assert_eq!(Offsets::decode(&offsets.encode()), Ok(offsets.clone()));
        assert_eq!((offsets.partitions[0].from(), offsets.partitions[1].from()), (Some(100), Some(3)));
    }

    #[test]
    fn every_flip_and_every_cut_is_noticed() {
        let bytes = sample().encode();
        assert_eq!(Offsets::decode(&bytes), Ok(sample()));
        for at in 0..bytes.len() {
            assert!(Offsets::decode(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(Offsets::decode(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(Offsets::decode(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn offsets_that_cannot_be_are_refused_with_a_good_checksum_too() {
        for (acked, from) in [(-2, -1), (5, -2), (5, 6)] {
            let partitions = vec![PartitionOffsets { acked, from }];
            let damage = Offsets::decode(&Offsets { partitions, ..sample() }.encode()).unwrap_err();
            assert!(matches!(damage, OffsetsDamage::Content { .. }), "{acked} {from}: {damage}");
        }
    }

    #[test]
    fn what_is_written_is_read_by_the_next_run_and_damage_is_a_warning() {
        let scratch = Scratch::new("offsets");
        let dir = StateDir::open(&scratch.0).unwrap();
        assert_eq!(dir.read_offsets("triggers", 6), OffsetsRead { offsets: None, warning: None });
        dir.write_offsets(&sample()).unwrap();
        assert_eq!(dir.read_offsets("triggers", 6), OffsetsRead { offsets: Some(sample()), warning: None });
        let more = dir.read_offsets("triggers", 8).offsets.unwrap();
        assert_eq!(more.partitions[..6], sample().partitions);
        assert_eq!(more.partitions[6..], [PartitionOffsets::UNKNOWN; 2]);

        let other = dir.read_offsets("other", 6);
        assert_eq!(other.offsets, None);
        assert!(other.warning.unwrap().contains("of topic triggers, not other"));
        let path = scratch.0.join(OFFSETS_FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes[30] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let damaged = dir.offsets_file().read("triggers", 6);
        assert_eq!(damaged.offsets, None);
        assert!(damaged.warning.unwrap().contains("checksum"));

        // A directory in its place cannot be read either: a start goes on without it.
        dir.offsets_file().remove().unwrap();
        dir.offsets_file().remove().unwrap();
        fs::create_dir(&path).unwrap();
        let unreadable = dir.read_offsets("triggers", 6);
        assert!(unreadable.offsets.is_none() && unreadable.warning.is_some());
        assert!(dir.write_offsets(&sample()).is_err());
    }

    const P: PartitionId = PartitionId(0);
    const SECOND: u64 = 1_000;

    fn at(second: u64) -> Nanos {
        Nanos::from_millis(second * SECOND)
    }

    #[test]
    fn from_is_what_was_acked_a_ttl_ago() {
        let mut trail = OffsetTrail::new(2, at(10));
        assert_eq!(trail.offsets(at(0), P), PartitionOffsets::UNKNOWN);
        for second in 0..100 {
            trail.note(at(second), P, second as i64 * 50);
            let known = trail.offsets(at(second), P);
            assert_eq!(known.acked, second as i64 * 50);
            assert_eq!(known.from, if second < 10 { -1 } else { (second as i64 - 10) * 50 });
        }
        // Nothing new: after a ttl, the last record is enough, and stays so.
        for second in [109, 200, 10_000] {
            assert_eq!(trail.offsets(at(second), P), PartitionOffsets { acked: 4_950, from: 4_950 });
        }
        assert_eq!(trail.offsets(at(100), PartitionId(1)), PartitionOffsets::UNKNOWN);
    }

    #[test]
    fn what_a_start_read_is_read_again_within_a_ttl() {
        let mut trail = OffsetTrail::new(1, at(10));
        trail.begin(P, PartitionOffsets { acked: 900, from: 400 });
        trail.note(at(0), P, 900);
        trail.note(at(5), P, 1_000);
        assert_eq!(trail.offsets(at(9), P), PartitionOffsets { acked: 1_000, from: 400 });
        assert_eq!(trail.offsets(at(10), P), PartitionOffsets { acked: 1_000, from: 900 });
        assert_eq!(trail.offsets(at(15), P), PartitionOffsets { acked: 1_000, from: 1_000 });
    }

    #[test]
    fn an_offset_that_fell_is_of_another_topic() {
        let mut trail = OffsetTrail::new(1, at(10));
        for second in 0..30 {
            trail.note(at(second), P, 1_000 + second as i64);
        }
        trail.note(at(30), P, 4);
        assert_eq!(trail.offsets(at(39), P), PartitionOffsets { acked: 4, from: -1 });
        assert_eq!(trail.offsets(at(40), P), PartitionOffsets { acked: 4, from: 4 });
        trail.note(at(41), P, -1);
        assert_eq!(trail.offsets(at(41), P).acked, 4, "an ack without an offset says nothing");
    }

    proptest! {
        /// Never younger than the ttl, at most a 13th and one gap of the feed older; at any ttl and any feed.
        #[test]
        fn from_is_old_enough_and_not_much_older(
            ttl_ms in 1_u64..100_000,
            steps in prop::collection::vec((0_u64..9_000, 0_i64..100), 1..200),
        ) {
            let ttl = Nanos::from_millis(ttl_ms);
            let mut trail = OffsetTrail::new(1, ttl);
            let (mut now, mut acked, mut gap_max) = (Nanos(0), 0, Nanos(0));
            let mut fed: Vec<(Nanos, i64)> = Vec::new();
            for (pause_ms, count) in steps {
                now = now + Nanos::from_millis(pause_ms);
                gap_max = gap_max.max(Nanos::from_millis(pause_ms));
                acked += count;
                trail.note(now, P, acked);
                fed.push((now, acked));
                let known = trail.offsets(now, P);
                prop_assert_eq!(known.acked, acked);
                // What was the last one at an instant.
                let as_of = |age: Nanos| fed.iter().rev().find(|(at, _)| now.since(*at) >= age).map(|(_, acked)| *acked);
                let youngest = as_of(ttl).unwrap_or(-1);
                let oldest = as_of(ttl + Nanos(ttl.0.div_ceil(PER_TTL)) + gap_max).unwrap_or(-1);
                prop_assert!(known.from <= youngest, "{} is younger than {}", known.from, youngest);
                prop_assert!(known.from >= oldest, "{} is older than {}", known.from, oldest);
            }
        }
    }
}
