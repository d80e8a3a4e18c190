//! Reading a directory from outside, for people: every record that a start would find, read and not touched.

use super::disk::Disk;
use super::format::{Entry, Header};
use super::scan::{Scanner, Step};
use super::survey::{self, Recovery, SurveyError};
use super::{Stored, limits, stored};
use std::path::Path;

/// Hands over every record that is to be drained, partition by partition and in order. Nothing is changed: what is marked
/// or lost is left out, as a drain would. `watch` is told the bytes read so far and says whether to go on.
///
/// # Errors
/// [`SurveyError`].
pub fn read_all<D: Disk>(
    disk: &mut D,
    dir: &Path,
    mut watch: impl FnMut(u64) -> bool,
    mut each: impl FnMut(Stored<'_>),
) -> Result<Recovery, SurveyError> {
    let mut scanner = Scanner::new();
    let survey = survey::survey(disk, dir, *limits::PARTITIONS.end(), false, &mut scanner, &mut watch)?;
    let mut read_bytes = survey.recovery.read_bytes;
    for (partition, found) in survey.found.iter().enumerate() {
        for run in found.line.runs() {
            let segment = &survey.segments[run.slot as usize];
            let ours = |header: &Header| {
                header.partition == partition as u32
                    && (run.first..=run.last).contains(&header.sequence)
                    && matches!(header.entry, Entry::Data(_))
            };
            let mut at = run.start;
            // Within a run offsets rise with the sequences, so the last one ends it.
            while at <= run.end {
                match scanner.step(&segment.file, segment.id, at, segment.end, ours) {
                    Step::Record { header, at: place, next } => {
                        read_bytes += next - at;
                        at = next;
                        let Entry::Data(kind) = header.entry else { continue };
                        if ours(&header) && !survey.marks.contains(&(header.partition, header.sequence)) {
                            each(stored(&header, kind, scanner.payload(place, &header)));
                        }
                    }
                    Step::Damaged { next, .. } => at = next,
                    Step::End { .. } => break,
                }
                if !watch(read_bytes) {
                    return Err(SurveyError::Stopped);
                }
            }
        }
    }
    Ok(survey.recovery)
}

#[cfg(test)]
mod tests {
    use super::super::faulty::FaultyDisk;
    use super::super::{Kind, Record, Spill, SpillLimits};
    use super::*;
    use crate::units::PartitionId;

    #[test]
    fn what_is_not_released_comes_back_in_order_and_the_directory_is_as_it_was() {
        let (disk, dir) = (FaultyDisk::new(7), Path::new("letters"));
        let limits = SpillLimits {
            limit_bytes: 16 << 20,
            reserve_bytes: 0,
            partition_bytes: 4 << 20,
            segment_bytes: 1 << 20,
            marks: 64,
            ..SpillLimits::new(4)
        };
        let (mut spill, _) = Spill::open(disk.clone(), dir, limits).unwrap();
        let mut ids = Vec::new();
        // Several segments, with two partitions side by side.
        for number in 0_u32..3_000 {
            let frame = vec![number as u8; 1_000];
            let record = Record {
                partition: PartitionId(number % 2),
                kind: Kind::DeadLetter,
                meta: &number.to_le_bytes(),
                frame: &frame,
            };
            ids.push(spill.append(record).unwrap());
            if number % 100 == 99 {
                spill.commit().unwrap();
            }
        }
        spill.release(PartitionId(0), 10);
        assert!(spill.mark(ids[1_001]));
        spill.commit().unwrap();
        drop(spill);
        let before = disk.files();
        let mut read = Vec::new();
        let recovery = read_all(
            &mut disk.clone(),
            dir,
            |_| true,
            |stored| {
                let number = u32::from_le_bytes(stored.record.meta.try_into().unwrap());
                assert_eq!(stored.record.frame, vec![number as u8; 1_000]);
                assert_eq!((stored.record.kind, stored.record.partition.0), (Kind::DeadLetter, number % 2));
                read.push(number);
            },
        )
        .unwrap();
        let zero = (10..1_500).map(|nth| nth * 2);
        let one = (0..1_500).map(|nth| nth * 2 + 1).filter(|number| *number != 1_001);
        assert_eq!(read, zero.chain(one).collect::<Vec<u32>>());
        assert!(recovery.is_whole() && recovery.segments > 2, "{recovery:?}");
        assert_eq!(disk.files(), before);
        let stopped = read_all(&mut disk.clone(), dir, |_| false, |_| ());
        assert!(matches!(stopped, Err(SurveyError::Stopped)));
    }
}
