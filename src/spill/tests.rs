//! The cases W1 to W12 as far as they are the disk's, and a model under crashes, failures and rot.

use super::faulty::{FaultyDisk, Operation};
use super::format::{self, SEGMENT_HEADER, file_name, put_checkpoint, seal_record, segment_header};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const DIR: &str = "spill";

fn limits(partitions: u32) -> SpillLimits {
    SpillLimits {
        partitions,
        limit_bytes: 1 << 20,
        reserve_bytes: 64 << 10,
        partition_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        batch_bytes: 64 << 10,
        record_bytes: 1_024,
        marks: 32,
    }
}

fn open(disk: &FaultyDisk, limits: &SpillLimits) -> (Spill<FaultyDisk>, Recovery) {
    Spill::open(disk.clone(), Path::new(DIR), limits.clone()).unwrap()
}

/// The frame of a record: says which it is, and is a multiple of eight with its metadata, so that every byte counts.
fn frame(partition: u32, nth: u64) -> Vec<u8> {
    let mut frame = format!("<frame {nth:06} of partition {partition:03}>").into_bytes();
    frame.resize(60 + (nth % 7) as usize * 8, b'.');
    frame
}

fn append(spill: &mut Spill<FaultyDisk>, partition: u32, frame: &[u8]) -> Result<RecordId, AppendError> {
    spill.append(Record { partition: PartitionId(partition), kind: Kind::Spilled, meta: b"meta", frame })
}

fn fill(spill: &mut Spill<FaultyDisk>, partition: u32, sequences: std::ops::RangeInclusive<u64>) {
    for nth in sequences {
        let id = match append(spill, partition, &frame(partition, nth)) {
            Err(AppendError::CommitFirst) => {
                spill.commit().unwrap();
                append(spill, partition, &frame(partition, nth)).unwrap()
            }
            other => other.unwrap(),
        };
        assert_eq!(id, RecordId { partition: PartitionId(partition), sequence: nth });
    }
}

/// Everything of a partition, by sequence.
fn all(spill: &mut Spill<FaultyDisk>, partition: u32) -> BTreeMap<u64, Vec<u8>> {
    let (mut got, mut last, mut next) = (BTreeMap::new(), 0, 1);
    loop {
        let done = spill.read(PartitionId(partition), next, Budget::default(), |stored| {
            assert_eq!(stored.id.partition, PartitionId(partition));
            assert!(stored.id.sequence > last, "in order");
            last = stored.id.sequence;
            assert_eq!((stored.record.kind, stored.record.meta), (Kind::Spilled, &b"meta"[..]));
            got.insert(stored.id.sequence, stored.record.frame.to_vec());
        });
        next = done.next;
        if !done.more {
            return got;
        }
    }
}

fn expect(spill: &mut Spill<FaultyDisk>, partition: u32, sequences: impl IntoIterator<Item = u64>) {
    let want: BTreeMap<u64, Vec<u8>> = sequences.into_iter().map(|nth| (nth, frame(partition, nth))).collect();
    let got = all(spill, partition);
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>());
    assert_eq!(got, want);
}

/// The newest segment that holds records, and where the first byte of `text` lies in it.
fn find(disk: &FaultyDisk, text: &[u8]) -> (PathBuf, u64) {
    let segments = disk.files().into_iter().map(|(path, _)| path).filter(|path| path.extension().unwrap() == "seg");
    segments
        .rev()
        .find_map(|path| {
            let content = disk.content(&path);
            let at = content.windows(text.len()).position(|window| window == text)?;
            Some((path, at as u64))
        })
        .expect("some segment holds it")
}

#[test]
fn what_is_committed_is_there_in_order_and_one_sync_serves_all_partitions() {
    let disk = FaultyDisk::new(1);
    let (mut spill, recovery) = open(&disk, &limits(24));
    assert_eq!(recovery, Recovery::default());
    for nth in 1..=10 {
        for partition in 0..24 {
            fill(&mut spill, partition, nth..=nth);
        }
    }
    assert!(all(&mut spill, 3).is_empty(), "nothing is there before its commit");
    let before = disk.count(Operation::Sync);
    let done = spill.commit().unwrap();
    assert_eq!((done.records, done.syncs), (240, 1));
    assert_eq!(disk.count(Operation::Sync) - before, 1);
    for partition in 0..24 {
        expect(&mut spill, partition, 1..=10);
    }
    assert_eq!(spill.commit().unwrap(), Committed::default(), "nothing to do, no sync");
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(24));
    assert_eq!((recovery.records, recovery.recovered(), recovery.is_whole()), (240, 240, true));
    for partition in 0..24 {
        expect(&mut spill, partition, 1..=10);
    }
}

#[test]
fn w1_a_flip_costs_one_record_wherever_it_is() {
    let disk = FaultyDisk::new(1);
    let limits = SpillLimits { segment_bytes: 256 << 10, batch_bytes: 256 << 10, limit_bytes: 2 << 20, ..limits(1) };
    let (mut spill, _) = open(&disk, &limits);
    fill(&mut spill, 0, 1..=1_000);
    assert_eq!(spill.commit().unwrap().syncs, 1);
    let (path, at) = find(&disk, &frame(0, 500));
    let start = at - 4 - format::RECORD_HEADER as u64;
    let whole = disk.content(&path);
    for byte in start..at + frame(0, 500).len() as u64 {
        disk.end_process();
        disk.put(&path, whole.clone());
        disk.flip(&path, byte, 1 << (byte % 8));
        let (mut spill, recovery) = open(&disk, &limits);
        assert_eq!((recovery.records, recovery.lost, recovery.damaged), (999, 1, 1), "byte {}", byte - start);
        assert_eq!(recovery.lost_ranges, [Lost { partition: 0, first: 500, last: 500 }]);
        expect(&mut spill, 0, (1..=1_000).filter(|&nth| nth != 500));
    }
}

#[test]
fn w1_a_start_stops_when_told_and_a_read_ends_at_its_budget() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(2));
    fill(&mut spill, 1, 1..=1);
    fill(&mut spill, 0, 1..=300);
    fill(&mut spill, 1, 2..=2);
    spill.commit().unwrap();
    let budget = Budget { scanned: 1_000, ..Budget::default() };
    let (mut calls, mut next, mut got) = (0, 1, 0);
    loop {
        let done = spill.read(PartitionId(1), next, budget, |_| got += 1);
        (calls, next) = (calls + 1, done.next);
        if !done.more {
            break;
        }
    }
    assert_eq!(got, 2);
    assert!(calls > 30, "300 records of the other partition are passed in steps, not at once: {calls} calls");
    disk.end_process();
    let mut asked = 0;
    let stopped = Spill::open_watched(disk.clone(), Path::new(DIR), limits(2), |_| {
        asked += 1;
        asked < 10
    });
    assert!(matches!(stopped.err().unwrap(), OpenError::Survey(SurveyError::Stopped)));
    assert_eq!(asked, 10);
    let (mut spill, _) = open(&disk, &limits(2));
    expect(&mut spill, 0, 1..=300);
}

#[test]
fn damage_that_shows_while_running_is_counted_and_stepped_over() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(1));
    fill(&mut spill, 0, 1..=300);
    spill.commit().unwrap();
    let (path, at) = find(&disk, &frame(0, 100));
    disk.flip(&path, at, 1);
    let (path, at) = find(&disk, &frame(0, 200));
    disk.spoil(&path, at);
    let got = all(&mut spill, 0);
    let missing: Vec<u64> = (1..=300).filter(|nth| !got.contains_key(nth)).collect();
    assert!(missing.contains(&100) && missing.contains(&200) && missing.len() < 45, "{missing:?}");
    let mut lost = Vec::new();
    spill.take_lost(|range| lost.extend(range.first..=range.last));
    assert_eq!(lost, missing);
    assert_eq!((spill.counts().lost, spill.records()), (missing.len() as u64, 300 - missing.len() as u64));
    assert_eq!(all(&mut spill, 0), got, "counted once");
    assert_eq!(spill.counts().lost, missing.len() as u64);
}

#[test]
fn w2_a_garbage_segment_is_set_aside_and_the_good_one_drains() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(1));
    fill(&mut spill, 0, 1..=100);
    spill.commit().unwrap();
    disk.end_process();
    let garbage: Vec<u8> = (0..5_000_u32).map(|nth| (nth.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
    for id in [0, 99] {
        disk.put(&Path::new(DIR).join(file_name(id, ".seg")), garbage.clone());
    }
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!(recovery.quarantined, [file_name(0, ".seg"), file_name(99, ".seg")]);
    assert_eq!((recovery.records, recovery.lost, recovery.is_whole()), (100, 0, false));
    expect(&mut spill, 0, 1..=100);
    for id in [0, 99] {
        assert_eq!(disk.content(&Path::new(DIR).join(file_name(id, ".corrupt"))), garbage);
    }
    fill(&mut spill, 0, 101..=102);
    spill.commit().unwrap();
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert!(recovery.quarantined.is_empty());
    expect(&mut spill, 0, 1..=102);
}

#[test]
fn w2_a_segment_that_rots_away_in_the_middle_is_counted_to_the_record() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(2));
    let mut sealed = Vec::new();
    for nth in 1..=2_000_u64 {
        fill(&mut spill, (nth % 2) as u32, nth.div_ceil(2)..=nth.div_ceil(2));
        if nth % 50 == 0 {
            spill.commit().unwrap();
        }
    }
    for (path, _) in disk.files() {
        if path.extension().unwrap() == "seg" {
            sealed.push(path);
        }
    }
    let bytes = disk.content(&sealed[1]).len();
    disk.put(&sealed[1], vec![0x5A; bytes]);
    disk.end_process();
    let (mut spill, recovery) = open(&disk, &limits(2));
    assert_eq!(recovery.quarantined.len(), 1);
    let got = all(&mut spill, 0).len() + all(&mut spill, 1).len();
    assert_eq!(recovery.lost, 2_000 - got as u64);
    assert!(recovery.lost > 100, "{}", recovery.lost);
    assert_eq!(recovery.lost_ranges.len(), 2, "one range for each partition");
}

#[test]
fn w3_empty_segments_go_bad_ones_are_set_aside_and_the_order_stays() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(1));
    fill(&mut spill, 0, 1..=50);
    spill.commit().unwrap();
    disk.end_process();
    let put = |id: u64, content: Vec<u8>| disk.put(&Path::new(DIR).join(file_name(id, ".seg")), content);
    put(0, Vec::new());
    put(100, Vec::new());
    put(101, segment_header(101).to_vec());
    put(102, segment_header(102)[..20].to_vec());
    put(103, vec![0; 4_096]);
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!(recovery.removed, 4);
    assert_eq!(recovery.quarantined, [file_name(102, ".seg")]);
    assert_eq!(recovery.lost, 0);
    expect(&mut spill, 0, 1..=50);
    fill(&mut spill, 0, 51..=60);
    spill.commit().unwrap();
    expect(&mut spill, 0, 1..=60);
}

#[test]
fn w4_a_last_segment_cut_short_loses_nothing_that_was_settled() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(1));
    fill(&mut spill, 0, 1..=100);
    spill.commit().unwrap();
    // The second commit is the one whose sync never returned.
    fill(&mut spill, 0, 101..=180);
    let bytes = spill.commit().unwrap().bytes;
    assert!(bytes > 4_096);
    let (path, _) = find(&disk, &frame(0, 180));
    let content = disk.content(&path);
    let end = content.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let mut most_kept = 0;
    for cut in 1..=4_096 {
        disk.end_process();
        for (path, _) in disk.files() {
            if path.extension().unwrap() == "seg" {
                disk.clone().remove(&path).unwrap();
            }
        }
        disk.put(&path, content[..end - cut].to_vec());
        let (mut spill, recovery) = open(&disk, &limits(1));
        assert_eq!((recovery.lost, recovery.quarantined.len()), (0, 0), "cut by {cut}");
        let kept = recovery.records;
        assert!((100..=180).contains(&kept), "cut by {cut}: {kept}");
        assert_eq!(recovery.unsettled_kept, kept - 100, "cut by {cut}");
        expect(&mut spill, 0, 1..=kept);
        most_kept = most_kept.max(kept);
    }
    assert_eq!(most_kept, 180, "a cut that spares the records spares them");
}

#[test]
fn w5_a_preallocated_tail_is_no_data_and_hides_none() {
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let (mut spill, _) = open(&disk, &limits(1));
        fill(&mut spill, 0, 1..=10);
        spill.commit().unwrap();
        let (path, _) = find(&disk, &frame(0, 10));
        assert_eq!(disk.content(&path).len(), 64 << 10, "allocated ahead");
        disk.crash();
        let (mut spill, recovery) = open(&disk, &limits(1));
        assert_eq!((recovery.records, recovery.torn_bytes), (10, 0));
        fill(&mut spill, 0, 11..=110);
        spill.commit().unwrap();
        disk.crash();
        let (mut spill, recovery) = open(&disk, &limits(1));
        assert_eq!((recovery.records, recovery.lost, recovery.torn_bytes), (110, 0, 0));
        expect(&mut spill, 0, 1..=110);
    }
}

/// Appends until refused; how many went in, and the refusal.
fn until_refused(spill: &mut Spill<FaultyDisk>, next: &mut u64, reserve: bool) -> (u64, AppendError) {
    let before = *next;
    loop {
        let frame = frame(0, *next);
        let record = Record { partition: PartitionId(0), kind: Kind::Spilled, meta: b"meta", frame: &frame };
        let outcome = if reserve { spill.append_from_reserve(record) } else { spill.append(record) };
        match outcome {
            Ok(_) => *next += 1,
            Err(AppendError::CommitFirst) => {
                spill.commit().unwrap();
            }
            Err(why) => return (*next - before, why),
        }
    }
}

#[test]
fn w6_the_reserve_is_kept_for_what_is_accepted_and_is_real_space() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(1));
    let mut next = 1;
    let (_, why) = until_refused(&mut spill, &mut next, false);
    assert!(matches!(why, AppendError::NoSpace { .. }), "{why}");
    assert!(spill.room().only_reserve);
    // The volume fills up: others take all that is not ours already.
    disk.set_capacity(disk.used());
    let (taken, why) = until_refused(&mut spill, &mut next, true);
    assert!(matches!(why, AppendError::NoSpace { reserve: 0, .. }), "{why}");
    assert!(taken * 100 >= limits(1).reserve_bytes, "the reserve takes {taken} records of 100 to 152 bytes");
    spill.commit().unwrap();
    assert!(spill.room().used_bytes <= limits(1).limit_bytes);
    expect(&mut spill, 0, 1..next);
    // Drained: what comes free is used again, at once.
    spill.release(PartitionId(0), next / 2);
    let done = spill.commit().unwrap();
    assert!(!done.deferred);
    spill.commit().unwrap();
    assert!(!spill.room().only_reserve, "{:?}", spill.room());
    fill(&mut spill, 0, next..=next + 10);
    spill.commit().unwrap();
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!(recovery.lost, 0);
    expect(&mut spill, 0, next / 2 + 1..=next + 10);
}

#[test]
fn w6_a_full_volume_refuses_keeps_its_word_and_recovers_when_space_comes() {
    let disk = FaultyDisk::new(1);
    disk.set_capacity(320 << 10);
    let (mut spill, _) = open(&disk, &limits(1));
    let mut next = 1;
    let (_, why) = until_refused(&mut spill, &mut next, false);
    assert!(matches!(why, AppendError::NoSpace { .. }), "{why}");
    spill.commit().unwrap();
    assert!(spill.room().volume_full);
    until_refused(&mut spill, &mut next, true);
    spill.commit().unwrap();
    expect(&mut spill, 0, 1..next);
    // Full to the brim, a restart still opens and drains.
    disk.set_capacity(disk.used());
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!((recovery.lost, recovery.records), (0, next - 1));
    expect(&mut spill, 0, 1..next);
    disk.set_capacity(4 << 20);
    let mut commits = 0;
    while spill.room().only_reserve {
        spill.commit().unwrap();
        commits += 1;
        assert!(commits <= 200, "at one commit each 5 ms this is a second");
    }
    fill(&mut spill, 0, next..=next + 10);
    spill.commit().unwrap();
    expect(&mut spill, 0, 1..=next + 10);
}

#[test]
fn w6_draining_a_brimful_volume_in_small_steps_frees_it() {
    let disk = FaultyDisk::new(1);
    disk.set_capacity(320 << 10);
    let (mut spill, _) = open(&disk, &limits(1));
    let mut next = 1;
    until_refused(&mut spill, &mut next, true);
    spill.commit().unwrap();
    disk.set_capacity(disk.used());
    for upto in 1..next {
        spill.release(PartitionId(0), upto);
        spill.commit().unwrap();
    }
    assert_eq!(spill.records(), 0);
    let mut more = next;
    assert!(until_refused(&mut spill, &mut more, true).0 > 100);
}

/// A disk on which nothing can be renamed or removed for long: what could not be begun stays on it, and goes on counting.
#[test]
fn w6_segments_that_cannot_be_begun_nor_removed_do_not_fill_the_disk() {
    let disk = FaultyDisk::new(1);
    let limits = limits(1);
    let (mut spill, _) = open(&disk, &limits);
    fill(&mut spill, 0, 1..=1);
    spill.commit().unwrap();
    for operation in [Operation::Sync, Operation::Rename, Operation::Remove] {
        disk.set_likelihood(operation, 65_536);
    }
    for _ in 0..200 {
        let id = append(&mut spill, 0, &frame(0, 2));
        assert!(spill.commit().is_err() || id.is_err(), "nothing is durable");
        spill.take_back(|_| {});
        assert!(disk.used() <= limits.limit_bytes, "{} bytes on disk, {} allowed", disk.used(), limits.limit_bytes);
    }
    disk.heal();
    (0..64).for_each(|_| drop(spill.commit()));
    fill(&mut spill, 0, 2..=2);
    spill.commit().unwrap();
    expect(&mut spill, 0, 1..=2);
}

#[test]
fn a_partition_has_its_share_and_no_more() {
    let disk = FaultyDisk::new(1);
    let limits = SpillLimits { partition_bytes: 10_000, ..limits(2) };
    let (mut spill, _) = open(&disk, &limits);
    let mut next = 1;
    let (taken, why) = until_refused(&mut spill, &mut next, false);
    assert!(matches!(why, AppendError::PartitionFull { partition: PartitionId(0), limit: 10_000, .. }), "{why}");
    assert!((60..100).contains(&taken), "{taken}");
    fill(&mut spill, 1, 1..=5);
    assert!(until_refused(&mut spill, &mut next, true).0 > 100, "what is accepted goes beyond it");
    spill.commit().unwrap();
    spill.release(PartitionId(0), next - 1);
    spill.commit().unwrap();
    fill(&mut spill, 0, next..=next);
}

#[test]
fn w8_a_writer_that_vanishes_leaves_all_that_was_settled() {
    for seed in 0..50 {
        let disk = FaultyDisk::new(seed);
        let (mut spill, _) = open(&disk, &limits(2));
        for nth in 1..=40 {
            fill(&mut spill, 0, nth..=nth);
            fill(&mut spill, 1, nth..=nth);
            spill.commit().unwrap();
        }
        fill(&mut spill, 0, 41..=60);
        drop(spill);
        disk.crash();
        let (mut spill, recovery) = open(&disk, &limits(2));
        assert_eq!((recovery.records, recovery.lost), (80, 0));
        expect(&mut spill, 0, 1..=40);
        expect(&mut spill, 1, 1..=40);
    }
}

/// A segment that says nothing but how far partition 0 is.
fn put_far_segment(disk: &FaultyDisk, high: u64) {
    let mut bytes = segment_header(1).to_vec();
    let cursor = format::Cursor { partition: 0, released: high, high };
    put_checkpoint(&mut bytes, [cursor].into_iter(), [].into_iter());
    seal_record(&mut bytes[SEGMENT_HEADER..], 1, 1, SEGMENT_HEADER as u64);
    disk.put(&Path::new(DIR).join(file_name(1, ".seg")), bytes);
}

#[test]
fn w8_sequences_stay_in_order_beyond_32_bits_and_end_before_they_wrap() {
    let disk = FaultyDisk::new(1);
    put_far_segment(&disk, u64::from(u32::MAX) - 2);
    let (mut spill, _) = open(&disk, &limits(1));
    let ids: Vec<u64> = (0..6).map(|nth| append(&mut spill, 0, &frame(0, nth)).unwrap().sequence).collect();
    assert_eq!(ids, (u64::from(u32::MAX) - 1..).take(6).collect::<Vec<_>>());
    spill.commit().unwrap();
    disk.crash();
    let (mut spill, _) = open(&disk, &limits(1));
    assert_eq!(all(&mut spill, 0).into_keys().collect::<Vec<_>>(), ids);

    let disk = FaultyDisk::new(1);
    put_far_segment(&disk, SEQUENCE_MAX - 2);
    let (mut spill, _) = open(&disk, &limits(1));
    assert_eq!(append(&mut spill, 0, b"one").unwrap().sequence, SEQUENCE_MAX - 1);
    assert_eq!(append(&mut spill, 0, b"two").unwrap().sequence, SEQUENCE_MAX);
    assert_eq!(append(&mut spill, 0, b"three"), Err(AppendError::NoSequence));
    spill.commit().unwrap();
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!((recovery.records, recovery.lost), (2, 0));
    assert_eq!(all(&mut spill, 0).len(), 2);
    spill.release(PartitionId(0), SEQUENCE_MAX);
    spill.commit().unwrap();
    assert_eq!(spill.records(), 0);
    assert_eq!(append(&mut spill, 0, b"three"), Err(AppendError::NoSequence));
}

#[test]
fn losses_beyond_the_last_number_are_counted_up_to_it() {
    let disk = FaultyDisk::new(1);
    let mut bytes = segment_header(1).to_vec();
    let cursor = |partition| format::Cursor { partition, released: 0, high: SEQUENCE_MAX };
    put_checkpoint(&mut bytes, [0, 1].map(cursor).into_iter(), [].into_iter());
    seal_record(&mut bytes[SEGMENT_HEADER..], 1, 1, SEGMENT_HEADER as u64);
    disk.put(&Path::new(DIR).join(file_name(1, ".seg")), bytes);
    let (_, recovery) = open(&disk, &limits(2));
    assert_eq!((recovery.records, recovery.lost, recovery.recovered()), (0, u64::MAX, u64::MAX));
    let lost = |partition| Lost { partition, first: 1, last: SEQUENCE_MAX };
    assert_eq!(recovery.lost_ranges, [0, 1].map(lost));
}

#[test]
fn a_commit_beyond_the_last_one_is_damage_and_none_wraps() {
    for (commit, is_believed) in
        [(format::COMMIT_MAX - 1_000, true), (format::COMMIT_MAX + 1, false), (u64::MAX, false)]
    {
        let disk = FaultyDisk::new(1);
        let mut bytes = segment_header(1).to_vec();
        let cursor = format::Cursor { partition: 0, released: 7, high: 7 };
        put_checkpoint(&mut bytes, [cursor].into_iter(), [].into_iter());
        seal_record(&mut bytes[SEGMENT_HEADER..], commit, 1, SEGMENT_HEADER as u64);
        disk.put(&Path::new(DIR).join(file_name(1, ".seg")), bytes);
        let (mut spill, recovery) = open(&disk, &limits(1));
        assert_eq!(recovery.quarantined.is_empty(), is_believed, "{commit:x}");
        let next = if is_believed { 8 } else { 1 };
        fill(&mut spill, 0, next..=next);
        spill.commit().unwrap();
        disk.crash();
        let (mut spill, recovery) = open(&disk, &limits(1));
        assert_eq!((recovery.records, recovery.lost), (1, 0), "{commit:x}");
        expect(&mut spill, 0, [next]);
    }
}

#[test]
fn w9_reading_moves_nothing_and_a_release_holds_once_committed() {
    let disk = FaultyDisk::new(3);
    let (mut spill, _) = open(&disk, &limits(1));
    fill(&mut spill, 0, 1..=20);
    spill.commit().unwrap();
    expect(&mut spill, 0, 1..=20);
    expect(&mut spill, 0, 1..=20); // Delivery was refused: it is all there again.
    spill.release(PartitionId(0), 7);
    expect(&mut spill, 0, 8..=20);
    spill.commit().unwrap();
    spill.release(PartitionId(0), 12); // Not committed: either may be so after a crash.
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!((recovery.records, recovery.lost), (13, 0));
    expect(&mut spill, 0, 8..=20);
    assert_eq!(
        spill.partition(PartitionId(0)),
        PartitionState {
            released: 7,
            committed: 20,
            appended: 20,
            records: 13,
            bytes: spill.partition(PartitionId(0)).bytes,
        }
    );
}

#[test]
fn w11_shadows_done_with_out_of_their_turn_stay_done_with() {
    let disk = FaultyDisk::new(3);
    let (mut spill, _) = open(&disk, &limits(1));
    fill(&mut spill, 0, 1..=20);
    spill.commit().unwrap();
    let mark = |spill: &mut Spill<FaultyDisk>, sequence| {
        assert!(spill.mark(RecordId { partition: PartitionId(0), sequence }));
    };
    for sequence in [3, 4, 9, 1] {
        mark(&mut spill, sequence);
    }
    spill.commit().unwrap();
    expect(&mut spill, 0, [2, 5, 6, 7, 8].into_iter().chain(10..=20));
    disk.crash();
    let (mut spill, recovery) = open(&disk, &limits(1));
    assert_eq!((recovery.records, recovery.lost), (16, 0), "what is marked is not missing");
    expect(&mut spill, 0, [2, 5, 6, 7, 8].into_iter().chain(10..=20));
    mark(&mut spill, 2);
    assert_eq!(spill.partition(PartitionId(0)).released, 4, "1 to 4 are done with");
    spill.commit().unwrap();
    disk.crash();
    let (mut spill, _) = open(&disk, &limits(1));
    assert_eq!(spill.partition(PartitionId(0)).released, 4);
    spill.release(PartitionId(0), 8);
    assert_eq!(spill.partition(PartitionId(0)).released, 9, "the mark that follows on is passed");
    spill.commit().unwrap();
    // There is room for so many, and the rest is told.
    let marked = (11..=20).chain(30..200).take_while(|&sequence| {
        if sequence == 30 {
            fill(&mut spill, 0, 21..=300);
            spill.commit().unwrap();
        }
        spill.mark(RecordId { partition: PartitionId(0), sequence })
    });
    assert_eq!(marked.count(), limits(1).marks);
}

#[test]
fn w12_a_partition_away_for_long_pins_nobodys_space() {
    const PARTITIONS: u32 = 24;
    let disk = FaultyDisk::new(12);
    let limits = SpillLimits { partition_bytes: 256 << 10, ..limits(PARTITIONS) };
    let (mut spill, _) = open(&disk, &limits);
    let memory = spill.memory_bytes();
    let mut next = [1_u64; PARTITIONS as usize];
    let (mut bytes, mut runs_most) = (0, 0);
    for round in 0..3_000_u64 {
        // The one that is away trickles; of the others eight at a time fail, then recover and drain.
        if round % 12 == 0 {
            fill(&mut spill, 0, next[0]..=next[0]);
            next[0] += 1;
        }
        for turn in 0..8 {
            let partition = 1 + ((round / 60 * 8 + turn) % 23) as u32;
            let at = &mut next[partition as usize];
            fill(&mut spill, partition, *at..=*at + 2);
            *at += 3;
        }
        bytes += spill.commit().unwrap().bytes;
        if round % 60 == 59 {
            for partition in 1..PARTITIONS {
                let upto = next[partition as usize] - 1;
                let first = spill.partition(PartitionId(partition)).released + 1;
                expect(&mut spill, partition, first..=upto);
                spill.release(PartitionId(partition), upto);
            }
            spill.commit().unwrap();
        }
        assert!(spill.room().used_bytes <= limits.limit_bytes);
        runs_most = runs_most.max(spill.lanes[0].line.runs().len());
        if round % 500 == 499 {
            disk.crash();
            let (again, recovery) = open(&disk, &limits);
            assert_eq!(recovery.lost, 0);
            spill = again;
        }
    }
    assert!(bytes > 5 * limits.limit_bytes, "the space was used many times over: {bytes}");
    assert!(spill.partition(PartitionId(0)).records == 250);
    expect(&mut spill, 0, 1..=250);
    assert!(runs_most <= 2 * 16 + 17, "{runs_most} runs");
    assert!(spill.memory_bytes() <= memory * 2, "{memory} at first, {} now", spill.memory_bytes());
}

#[test]
fn a_line_that_is_scattered_is_gathered() {
    let disk = FaultyDisk::new(12);
    let (mut spill, _) = open(&disk, &limits(2));
    // Each release of partition 1 leaves one more sliver of partition 0 to be copied.
    let (mut a, mut b) = (1, 1);
    for _ in 0..400 {
        fill(&mut spill, 0, a..=a);
        fill(&mut spill, 1, b..=b + 150);
        (a, b) = (a + 1, b + 151);
        spill.commit().unwrap();
        spill.release(PartitionId(1), b - 1);
        spill.commit().unwrap();
    }
    assert!(spill.counts().copied > 100);
    assert!(spill.lanes[0].line.runs().len() <= 2 * 16 + 17, "{} runs", spill.lanes[0].line.runs().len());
    expect(&mut spill, 0, 1..a);
}

#[test]
fn a_failed_sync_is_not_asked_again_and_its_records_are_written_anew() {
    for seed in 0..100 {
        let disk = FaultyDisk::new(seed);
        let (mut spill, _) = open(&disk, &limits(1));
        fill(&mut spill, 0, 1..=20);
        spill.commit().unwrap();
        let (path, _) = find(&disk, &frame(0, 1));
        fill(&mut spill, 0, 21..=40);
        disk.fail_next(if seed % 2 == 0 { Operation::Sync } else { Operation::Write }, 1);
        let done = spill.commit().unwrap();
        assert_eq!((done.records, spill.counts().failed_writes), (20, 1));
        assert_ne!(find(&disk, &frame(0, 40)).0, path, "in another segment");
        disk.crash();
        let (mut spill, recovery) = open(&disk, &limits(1));
        assert_eq!((recovery.records, recovery.lost), (40, 0), "seed {seed}");
        expect(&mut spill, 0, 1..=40);
    }
}

#[test]
fn what_no_segment_takes_is_handed_back_in_order() {
    for seed in 0..100 {
        let disk = FaultyDisk::new(seed);
        let (mut spill, _) = open(&disk, &limits(2));
        fill(&mut spill, 0, 1..=20);
        spill.commit().unwrap();
        fill(&mut spill, 0, 21..=40);
        fill(&mut spill, 1, 1..=5);
        assert!(spill.mark(RecordId { partition: PartitionId(0), sequence: 30 }));
        disk.set_likelihood(Operation::Sync, 65_536);
        let error = spill.commit().unwrap_err();
        assert!(matches!(error.why, CommitWhy::Io { .. }), "{error}");
        assert!(spill.is_dirty());
        disk.heal();
        if seed % 2 == 0 {
            assert_eq!(spill.commit().unwrap().records, 25, "it waited, and is taken now");
            expect(&mut spill, 0, (1..=40).filter(|&nth| nth != 30));
        } else {
            let mut back = Vec::new();
            spill.take_back(|stored| {
                back.push((stored.id.partition.0, stored.id.sequence, stored.record.frame.to_vec()))
            });
            let want: Vec<_> = (21..=40).map(|nth| (0, nth, frame(0, nth))).collect();
            assert_eq!(back[..20], want);
            assert_eq!(back.len(), 25);
            expect(&mut spill, 0, 1..=20);
            // The sequences are given again, to other records, and those are the ones that count.
            let ids: Vec<u64> = (0..3).map(|_| append(&mut spill, 0, b"another").unwrap().sequence).collect();
            assert_eq!(ids, [21, 22, 23]);
            spill.commit().unwrap();
            disk.crash();
            let (mut spill, recovery) = open(&disk, &limits(2));
            assert_eq!((recovery.lost, recovery.records), (0, 23), "seed {seed}");
            assert!(all(&mut spill, 0).range(21..).all(|(_, frame)| frame == b"another"));
            assert!(all(&mut spill, 1).is_empty());
        }
    }
}

#[test]
fn what_cannot_be_taken_is_refused_with_both_numbers() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(1));
    assert_eq!(append(&mut spill, 0, &[1; 1_020]).unwrap().sequence, 1);
    assert_eq!(append(&mut spill, 0, &[1; 1_021]), Err(AppendError::TooLong { got: 1_025, most: 1_024 }));
    assert_eq!(append(&mut spill, 1, b"x"), Err(AppendError::NoPartition { got: 1, partitions: 1 }));
    fill(&mut spill, 0, 2..=3);
    spill.commit().unwrap();
    disk.end_process();
    let two = SpillLimits { partitions: 2, ..limits(1) };
    let (mut spill, _) = open(&disk, &two);
    append(&mut spill, 1, b"x").unwrap();
    spill.commit().unwrap();
    disk.end_process();
    let error = Spill::open(disk.clone(), Path::new(DIR), limits(1)).err().unwrap();
    assert!(matches!(error, OpenError::Survey(SurveyError::Partition { got: 1, partitions: 1, .. })), "{error}");
}

#[test]
fn a_directory_of_a_later_version_is_refused_and_not_touched() {
    let disk = FaultyDisk::new(1);
    let mut header = segment_header(1);
    header[8] = 2;
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    disk.put(&Path::new(DIR).join(file_name(1, ".seg")), header.to_vec());
    let before = disk.files();
    let error = Spill::open(disk.clone(), Path::new(DIR), limits(1)).err().unwrap();
    assert!(matches!(error, OpenError::Survey(SurveyError::Version { got: 2, known: 1, .. })), "{error}");
    assert_eq!(disk.files(), before);
}

#[test]
fn a_spill_may_be_moved_to_its_thread() {
    fn is_send<T: Send>() {}
    is_send::<Spill<RealDisk>>();
}

#[test]
fn verify_says_what_open_will_find_and_touches_nothing() {
    let disk = FaultyDisk::new(1);
    let (mut spill, _) = open(&disk, &limits(3));
    fill(&mut spill, 0, 1..=30);
    fill(&mut spill, 2, 1..=10);
    spill.commit().unwrap();
    spill.release(PartitionId(0), 10);
    spill.commit().unwrap();
    let (path, at) = find(&disk, &frame(0, 20));
    disk.flip(&path, at, 1);
    disk.end_process();
    let before = disk.files();
    let (found, rows) = verify(&mut disk.clone(), Path::new(DIR), |_| true).unwrap();
    assert_eq!(disk.files(), before);
    assert_eq!((found.records, found.lost, found.damaged), (29, 1, 1));
    let rows: Vec<_> = rows.iter().map(|row| (row.partition.0, row.released, row.committed, row.records)).collect();
    assert_eq!(rows, [(0, 10, 30, 19), (2, 0, 10, 10)]);
    let (_, recovery) = open(&disk, &limits(3));
    assert_eq!(recovery, found);
}

/// A directory of this test alone, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("fencepost-spill-{}-{name}", std::process::id()));
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn the_real_disk_keeps_what_it_was_given() {
    let scratch = Scratch::new("real");
    for round in 0..3_u64 {
        let (mut spill, recovery) = Spill::open(RealDisk, &scratch.0, limits(2)).unwrap();
        assert_eq!((recovery.records, recovery.is_whole()), (round * 400, true));
        for nth in 1..=1_000 {
            let nth = round * 1_000 + nth;
            let frame = frame(1, nth);
            let record = Record { partition: PartitionId(1), kind: Kind::Spilled, meta: b"", frame: &frame };
            assert_eq!(spill.append(record).unwrap().sequence, nth);
            if nth % 100 == 0 {
                spill.commit().unwrap();
            }
        }
        spill.release(PartitionId(1), (round + 1) * 600);
        spill.commit().unwrap();
        let mut want = (round + 1) * 600;
        let mut next = 1;
        loop {
            let done = spill.read(PartitionId(1), next, Budget::default(), |stored| {
                want += 1;
                assert_eq!((stored.id.sequence, stored.record.frame), (want, &frame(1, want)[..]));
            });
            next = done.next;
            if !done.more {
                break;
            }
        }
        assert_eq!(want, (round + 1) * 1_000);
    }
    assert!(verify(&mut RealDisk, &scratch.0, |_| true).unwrap().0.is_whole());
}

// -- the model ------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Act {
    Append(u32, u8),
    Reserve(u32, u8),
    Commit,
    Release(u32, u8),
    Mark(u32, u8),
    Read(u32),
    Fail(Operation, u32),
    Heal,
    TakeBack,
    Capacity(u64),
    Crash,
    EndProcess,
}

fn act() -> impl Strategy<Value = Act> {
    let operation = prop_oneof![
        Just(Operation::Create),
        Just(Operation::Write),
        Just(Operation::Sync),
        Just(Operation::Rename),
        Just(Operation::Remove),
        Just(Operation::SyncDir),
        Just(Operation::Truncate),
    ];
    prop_oneof![
        20 => (0..4_u32, any::<u8>()).prop_map(|(partition, length)| Act::Append(partition, length)),
        2 => (0..4_u32, any::<u8>()).prop_map(|(partition, length)| Act::Reserve(partition, length)),
        10 => Just(Act::Commit),
        5 => (0..4_u32, any::<u8>()).prop_map(|(partition, share)| Act::Release(partition, share)),
        2 => (0..4_u32, any::<u8>()).prop_map(|(partition, share)| Act::Mark(partition, share)),
        2 => (0..4_u32).prop_map(Act::Read),
        2 => (operation, prop_oneof![Just(1_000_u32), Just(20_000), Just(65_536)]).prop_map(|(o, l)| Act::Fail(o, l)),
        3 => Just(Act::Heal),
        1 => Just(Act::TakeBack),
        1 => (150..1_200_u64).prop_map(|kib| Act::Capacity(kib << 10)),
        2 => Just(Act::Crash),
        1 => Just(Act::EndProcess),
    ]
}

/// One partition, as it has to be.
#[derive(Default)]
struct Truth {
    /// Committed, by sequence.
    committed: BTreeMap<u64, Vec<u8>>,
    /// Appended and not committed; a sequence that was handed back may have been several records.
    waiting: BTreeMap<u64, Vec<Vec<u8>>>,
    high: u64,
    released: u64,
    released_durable: u64,
    marked: std::collections::BTreeSet<u64>,
    marked_durable: std::collections::BTreeSet<u64>,
}

impl Truth {
    fn done_with(&self, sequence: u64) -> bool {
        sequence <= self.released || self.marked.contains(&sequence)
    }

    fn durably_done_with(&self, sequence: u64) -> bool {
        sequence <= self.released_durable || self.marked_durable.contains(&sequence)
    }
}

struct World {
    disk: FaultyDisk,
    limits: SpillLimits,
    spill: Spill<FaultyDisk>,
    truth: Vec<Truth>,
    made: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let limits = SpillLimits {
            segment_bytes: 16 << 10,
            limit_bytes: 192 << 10,
            reserve_bytes: 16 << 10,
            partition_bytes: 100 << 10,
            batch_bytes: 8 << 10,
            record_bytes: 300,
            ..limits(4)
        };
        let disk = FaultyDisk::new(seed);
        let (spill, _) = open(&disk, &limits);
        World { disk, limits, spill, truth: (0..4).map(|_| Truth::default()).collect(), made: 0 }
    }

    fn append(&mut self, partition: u32, length: u8, reserve: bool) {
        self.made += 1;
        let mut frame = self.made.to_le_bytes().to_vec();
        frame.resize(8 + usize::from(length), (self.made % 251) as u8 + 1);
        let record = Record { partition: PartitionId(partition), kind: Kind::Spilled, meta: b"meta", frame: &frame };
        let outcome = if reserve { self.spill.append_from_reserve(record) } else { self.spill.append(record) };
        if let Ok(id) = outcome {
            self.truth[partition as usize].waiting.entry(id.sequence).or_default().push(frame);
        }
    }

    fn commit(&mut self) {
        let outcome = self.spill.commit();
        let whole = outcome.as_ref().is_ok_and(|done| !done.deferred);
        for (partition, truth) in self.truth.iter_mut().enumerate() {
            let state = self.spill.partition(PartitionId(partition as u32));
            assert!(state.committed >= truth.high);
            for sequence in truth.high + 1..=state.committed {
                let mut frames = truth.waiting.remove(&sequence).unwrap_or_default();
                truth.committed.extend(frames.pop().map(|frame| (sequence, frame)));
            }
            truth.high = state.committed;
            assert_eq!(state.released, truth.released);
            if whole {
                assert_eq!(state.committed.max(state.released), state.appended);
                truth.released_durable = truth.released;
                truth.marked_durable.clone_from(&truth.marked);
            }
        }
        if let Ok(done) = outcome
            && !done.deferred
        {
            assert!(!self.spill.is_dirty());
        }
    }

    /// What is read is what has to be there.
    fn check(&mut self, partition: u32) {
        let got = all(&mut self.spill, partition);
        let truth = &self.truth[partition as usize];
        let want: BTreeMap<u64, Vec<u8>> = truth
            .committed
            .iter()
            .filter(|(sequence, _)| !truth.done_with(**sequence))
            .map(|(sequence, frame)| (*sequence, frame.clone()))
            .collect();
        assert_eq!(got, want, "partition {partition}");
        assert_eq!(self.spill.counts().lost, 0);
    }

    fn release(&mut self, partition: u32, share: u8) {
        let truth = &mut self.truth[partition as usize];
        let state = self.spill.partition(PartitionId(partition));
        let upto = truth.released + (state.appended.max(truth.released) - truth.released) * u64::from(share) / 255;
        self.spill.release(PartitionId(partition), upto);
        truth.released = truth.released.max(upto);
        while truth.marked.contains(&(truth.released + 1)) {
            truth.released += 1;
        }
    }

    fn mark(&mut self, partition: u32, share: u8) {
        let truth = &mut self.truth[partition as usize];
        let state = self.spill.partition(PartitionId(partition));
        if state.appended <= truth.released {
            return;
        }
        let sequence = truth.released + 1 + (state.appended - truth.released - 1) * u64::from(share) / 255;
        if self.spill.mark(RecordId { partition: PartitionId(partition), sequence }) {
            truth.marked.insert(sequence);
            while truth.marked.contains(&(truth.released + 1)) {
                truth.released += 1;
            }
        }
    }

    fn take_back(&mut self) {
        let mut back = BTreeMap::<u32, Vec<u64>>::new();
        self.spill.take_back(|stored| back.entry(stored.id.partition.0).or_default().push(stored.id.sequence));
        for (partition, truth) in self.truth.iter_mut().enumerate() {
            let state = self.spill.partition(PartitionId(partition as u32));
            let back = back.remove(&(partition as u32)).unwrap_or_default();
            // What was handed back is all that waited, in order; of each sequence the last one made.
            assert!(back.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            assert!(back.iter().all(|sequence| truth.waiting.contains_key(sequence)));
            truth.marked.retain(|&sequence| sequence <= state.appended);
        }
    }

    /// Opens again, and compares with what was promised.
    fn reopen(&mut self) {
        // A start may fail half way, more than once, and the machine may die during it.
        let mut tries = 0;
        let (spill, recovery) = loop {
            match Spill::open(self.disk.clone(), Path::new(DIR), self.limits.clone()) {
                Ok(opened) => break opened,
                Err(OpenError::Survey(SurveyError::Io { .. })) if tries < 4 => tries += 1,
                Err(why) => panic!("{why}"),
            }
            match tries {
                1 => self.disk.end_process(),
                2 | 3 => self.disk.crash(),
                _ => self.disk.heal(),
            }
        };
        self.disk.heal();
        self.spill = spill;
        assert_eq!((recovery.lost, &recovery.quarantined[..]), (0, &[][..]), "{recovery:?}");
        let mut records = 0;
        for partition in 0..4 {
            let got = all(&mut self.spill, partition);
            records += got.len() as u64;
            let state = self.spill.partition(PartitionId(partition));
            let truth = &mut self.truth[partition as usize];
            assert!(
                state.committed.max(state.released) >= truth.high,
                "partition {partition}: {state:?}, {}",
                truth.high
            );
            for (sequence, frame) in &truth.committed {
                match got.get(sequence) {
                    Some(there) => {
                        assert!(!truth.durably_done_with(*sequence), "{partition}/{sequence} was done with");
                        assert_eq!(there, frame);
                    }
                    None => assert!(truth.done_with(*sequence), "{partition}/{sequence} is gone"),
                }
            }
            for (sequence, frame) in got.range(truth.high + 1..) {
                // Nobody was told it is settled, and it may be there all the same.
                let made = truth.waiting.get(sequence).expect("somebody appended it");
                assert!(made.contains(frame));
                truth.committed.insert(*sequence, frame.clone());
            }
            // What was asked for and not committed may or may not have become so.
            assert!(state.released >= truth.released_durable && state.released <= truth.released);
            // What is neither there nor lost is marked. Beyond `high` that may be a mark of a commit that failed and was
            // taken back, with its record.
            let marked = (state.released + 1..=state.committed).filter(|sequence| !got.contains_key(sequence));
            let marked: std::collections::BTreeSet<u64> = marked.collect();
            assert!(marked.iter().all(|sequence| truth.marked.contains(sequence) || *sequence > truth.high));
            truth.marked = marked;
            truth.committed.retain(|sequence, _| *sequence <= state.committed);
            (truth.high, truth.released, truth.released_durable) = (state.committed, state.released, state.released);
            truth.marked_durable.clone_from(&truth.marked);
            truth.waiting.clear();
        }
        assert_eq!(recovery.records, records);
    }

    fn run(&mut self, acts: &[Act]) {
        for act in acts {
            match *act {
                Act::Append(partition, length) => self.append(partition, length, false),
                Act::Reserve(partition, length) => self.append(partition, length, true),
                Act::Commit => self.commit(),
                Act::Release(partition, share) => self.release(partition, share),
                Act::Mark(partition, share) => self.mark(partition, share),
                Act::Read(partition) => self.check(partition),
                Act::Fail(operation, likelihood) => self.disk.set_likelihood(operation, likelihood),
                Act::Heal => self.disk.heal(),
                Act::TakeBack => self.take_back(),
                Act::Capacity(bytes) => self.disk.set_capacity(bytes.max(self.disk.used())),
                Act::Crash => {
                    self.disk.crash();
                    self.reopen();
                }
                Act::EndProcess => {
                    self.disk.end_process();
                    self.reopen();
                }
            }
            assert!(self.spill.room().used_bytes <= self.limits.limit_bytes);
        }
        self.disk.crash();
        self.reopen();
        for partition in 0..4 {
            self.check(partition);
        }
    }
}

/// Whether a byte belongs to a commit's closing record or to a checkpoint, or cannot be told because of damage.
fn is_control(disk: &FaultyDisk, path: &Path, byte: u64) -> bool {
    let file = disk.clone().open(path, false).unwrap();
    let id = format::id_of(path.file_name().unwrap().to_str().unwrap(), format::SEGMENT_END).unwrap();
    let (mut scanner, mut at, end) = (Scanner::new(), SEGMENT_HEADER as u64, file.bytes().unwrap());
    while at <= byte {
        match scanner.step(&file, id, at, end, |_| true) {
            scan::Step::Record { header, next, .. } => {
                if byte < next {
                    return !matches!(header.entry, Entry::Data(_));
                }
                at = next;
            }
            scan::Step::Damaged { next, .. } if byte < next => return true,
            scan::Step::Damaged { next, .. } => at = next,
            scan::Step::End { .. } => return false,
        }
    }
    false
}

proptest! {
    #[test]
    fn whatever_the_disk_does_what_was_promised_is_kept(seed in any::<u64>(), acts in proptest::collection::vec(act(), 1..400)) {
        World::new(seed).run(&acts);
    }

    #[test]
    fn losses_by_rot_are_counted_to_the_record(
        acts in proptest::collection::vec(
            prop_oneof![
                12 => (0..4_u32, any::<u8>()).prop_map(|(partition, length)| Act::Append(partition, length)),
                4 => Just(Act::Commit),
                1 => (0..4_u32, 0..60_u8).prop_map(|(partition, share)| Act::Release(partition, share)),
                1 => (0..4_u32, any::<u8>()).prop_map(|(partition, share)| Act::Mark(partition, share)),
            ],
            50..500,
        ),
        flips in proptest::collection::vec((any::<u32>(), any::<u32>(), 0..8_u8), 1..6),
    ) {
        let mut world = World::new(1);
        world.run(&acts);
        world.commit();
        let rotten: Vec<(PathBuf, u64)> = world.disk.files().into_iter().filter(|(path, _)| {
            path.extension().is_some_and(|end| end == "seg")
        }).collect();
        // A last commit that is spared: with it the disk knows how far each partition was.
        for partition in 0..4 {
            world.append(partition, 9, true);
        }
        let before = world.spill.partition(PartitionId(0)).appended;
        world.commit();
        prop_assume!(world.spill.partition(PartitionId(0)).committed == before);
        let newest = find(&world.disk, &world.truth[0].committed[&before][..]);
        world.disk.end_process();
        let mut hit_control = false;
        for (file, at, bit) in flips {
            let (path, bytes) = &rotten[file as usize % rotten.len()];
            let bytes = if *path == newest.0 { newest.1 - 44 } else { *bytes };
            if bytes > 0 && world.disk.files().iter().any(|(there, _)| there == path) {
                let at = u64::from(at) % bytes;
                hit_control |= is_control(&world.disk, path, at);
                world.disk.flip(path, at, 1 << bit);
            }
        }
        let (mut spill, recovery) = open(&world.disk, &world.limits);
        let mut missing = 0;
        for partition in 0..4 {
            let got = all(&mut spill, partition);
            let truth = &world.truth[partition as usize];
            for (sequence, frame) in &truth.committed {
                match got.get(sequence) {
                    Some(there) => prop_assert_eq!(there, frame),
                    None => missing += u64::from(!truth.done_with(*sequence)),
                }
            }
        }
        // Without its cursors a partition may be thought to have lost what was released; never the other way round.
        prop_assert!(recovery.lost == missing || hit_control && recovery.lost > missing, "{} {}", recovery.lost, missing);
        prop_assert_eq!(spill.counts().lost, 0, "all of it was seen at open");
    }
}
