//! The tail of a topic, read as a start reads it.

use crate::common_kafka::raw::{BEGAN_MS, Got, Raw, SOON, frame, known, offsets_of, plan, read_all, unknown};
use crate::common_kafka::{Mock, alone, config, fresh_topic};
use fencepost::sink::kafka::tail::{Began, TailError, TailPart, may_read, read_tail};
use fencepost::topology::affinity;
use fencepost::units::{PartitionId, UnixMicros};
use std::time::{Duration, Instant};

#[test]
fn d8_known_offsets_are_read_to_the_end_in_order_and_once() {
    let _alone = alone();
    let topic = fresh_topic("known");
    let mock = Mock::with_topic(3, &topic, 6);
    let raw = Raw::new(&mock.bootstrap());
    for partition in 0..5 {
        raw.send_frames(&topic, partition, 0..2_500);
    }
    raw.flush();
    let config = config(&mock.bootstrap(), &topic);
    let parts = vec![known(3, 2_499), known(0, 0), known(1, 700), known(4, 2_500), known(5, 0)];
    let (read, all) = read_all(&plan(&config, parts)).unwrap();
    assert_eq!(read.warnings, [""; 0]);
    assert_eq!(offsets_of(&all, 0), (0..2_500).collect::<Vec<i64>>());
    assert_eq!(offsets_of(&all, 1), (700..2_500).collect::<Vec<i64>>());
    assert_eq!(offsets_of(&all, 2), [0; 0], "it is not in the plan");
    assert_eq!(offsets_of(&all, 3), [2_499]);
    assert_eq!(offsets_of(&all, 4), [0; 0]);
    assert_eq!(offsets_of(&all, 5), [0; 0]);
    for Got { partition, offset, key, value, timestamp_ms } in &all {
        assert_eq!(key, b"device");
        assert_eq!(*value, frame(*partition, *offset as u64, BEGAN_MS + offset));
        assert!(timestamp_ms.is_some_and(|time| time > 1_700_000_000_000));
    }
    for part in &read.partitions {
        assert_eq!((part.end, part.upto), if part.partition.0 == 5 { (0, 0) } else { (2_500, 2_500) });
        assert_eq!(part.began, Began::Known);
    }
}

#[test]
fn without_an_offset_the_end_is_searched_until_a_frame_is_older_than_the_ttl() {
    let _alone = alone();
    let topic = fresh_topic("search");
    let mock = Mock::with_topic(1, &topic, 6);
    let raw = Raw::new(&mock.bootstrap());
    raw.send_frames(&topic, 0, 0..30_000);
    raw.send_frames(&topic, 1, 0..999);
    // All within the ttl.
    raw.send_frames(&topic, 2, 0..9_000);
    for number in 0..5_000_u64 {
        // No frames at all; and frames among others, of which every 1,500th is one.
        raw.send(&topic, 3, b"", b"foreign");
        match number % 1_500 {
            1_499 => raw.send(&topic, 4, b"device", &frame(4, number, BEGAN_MS + number as i64 * 10)),
            _ => raw.send(&topic, 4, b"", b""),
        }
    }
    raw.flush();
    let config = config(&mock.bootstrap(), &topic);
    let (read, all) = read_all(&plan(&config, (0..6).map(unknown).collect())).unwrap();
    assert_eq!(read.warnings, [""; 0]);
    let began = |partition: usize| (read.partitions[partition].from, read.partitions[partition].began);
    // One a millisecond: 8,000 back are younger than ten seconds, 16,000 are not.
    assert_eq!(began(0), (14_000, Began::Searched));
    assert_eq!(offsets_of(&all, 0), (14_000..30_000).collect::<Vec<i64>>());
    assert_eq!(began(1), (0, Began::Low));
    assert_eq!(offsets_of(&all, 1).len(), 999);
    assert_eq!(began(2), (0, Began::Low));
    assert_eq!(began(3), (0, Began::Low));
    assert_eq!(offsets_of(&all, 3).len(), 5_000);
    // Frames at 1,499, 2,999 and 4,499: the last is the newest, and the one before is 15 s older.
    assert_eq!(began(4), (3_000 - 2_000, Began::Searched));
    assert_eq!(began(5), (0, Began::Low));

    // One frame from the future does not end the search; the clock does not say where it ends either.
    raw.send(&topic, 0, b"device", &frame(0, 30_000, BEGAN_MS + 7_000_000_000_000));
    raw.flush();
    let mut again = plan(&config, vec![unknown(0)]);
    again.now = UnixMicros((BEGAN_MS + 30_000) * 1_000);
    let (read, _) = read_all(&again).unwrap();
    assert_eq!((read.partitions[0].from, read.partitions[0].began), (30_001 - 16_000, Began::Searched));

    // A limit is kept, and told of.
    again.records_max_per_partition = 5_000;
    let (read, all) = read_all(&again).unwrap();
    assert_eq!((read.partitions[0].from, read.partitions[0].began), (25_001, Began::Limit));
    assert_eq!(all.len(), 5_000);
    assert!(read.warnings[0].contains("[0]") && read.warnings[0].contains("dedup.ttl"), "{:?}", read.warnings);
}

#[test]
fn a_topic_that_ends_before_what_was_acknowledged_is_searched_with_a_warning() {
    let _alone = alone();
    let topic = fresh_topic("other");
    let mock = Mock::with_topic(1, &topic, 3);
    let raw = Raw::new(&mock.bootstrap());
    for partition in 0..3 {
        raw.send_frames(&topic, partition, 0..100);
    }
    raw.flush();
    let config = config(&mock.bootstrap(), &topic);
    let acked =
        |partition, from, acked| TailPart { partition: PartitionId(partition), from: Some(from), acked: Some(acked) };
    // One beyond the end; one before it, of a topic that was longer; one that is as it was.
    let parts = vec![known(0, 101), acked(1, 50, 100), acked(2, 50, 99)];
    let (read, all) = read_all(&plan(&config, parts)).unwrap();
    assert_eq!(read.warnings.len(), 1);
    assert!(read.warnings[0].contains("[0, 1]") && read.warnings[0].contains("made anew"), "{:?}", read.warnings);
    assert_eq!([0, 1, 2].map(|partition| offsets_of(&all, partition).len()), [100, 100, 50]);
}

#[test]
fn what_comes_while_it_is_read_is_left_out_and_the_reader_can_stop_it() {
    let _alone = alone();
    let topic = fresh_topic("grows");
    let mock = Mock::with_topic(1, &topic, 2);
    let raw = Raw::new(&mock.bootstrap());
    raw.send_frames(&topic, 0, 0..3_000);
    raw.flush();
    let config = config(&mock.bootstrap(), &topic);
    let mut count = 0;
    let read = read_tail(&plan(&config, vec![known(0, 0), known(1, 0)]), &mut |_| {
        if count == 0 {
            raw.send_frames(&topic, 0, 3_000..4_000);
            raw.send_frames(&topic, 1, 0..1_000);
            raw.flush();
        }
        count += 1;
        true
    })
    .unwrap();
    assert_eq!((count, read.records, read.is_stopped), (3_000, 3_000, false));

    let mut count = 0;
    let read = read_tail(&plan(&config, vec![known(0, 0), known(1, 0)]), &mut |_| {
        count += 1;
        count < 10
    })
    .unwrap();
    assert_eq!((count, read.records, read.is_stopped), (10, 10, true));

    let nothing = read_tail(&plan(&config, Vec::new()), &mut |_| true).unwrap();
    assert_eq!((nothing.records, nothing.partitions), (0, Vec::new()));
}

#[test]
fn a_deadline_is_kept_and_names_the_partition_and_why() {
    let _alone = alone();
    let began = Instant::now();
    let mut away = plan(&config("127.0.0.1:9", "late"), vec![known(0, 0)]);
    away.deadline = began + Duration::from_secs(1);
    let error = read_all(&away).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, TailError::Deadline { .. }), "{text}");
    assert!(text.contains("within 1000 ms") || text.contains("within 999 ms"), "{text}");
    assert!(text.contains("refused") && text.contains("start.timeout"), "the client's own words: {text}");

    // A broker goes away before its first records come; those of the other do.
    let topic = fresh_topic("cut");
    let mock = Mock::with_topic(2, &topic, 2);
    mock.set_leader(&topic, 0, 1);
    mock.set_leader(&topic, 1, 2);
    let raw = Raw::new(&mock.bootstrap());
    raw.send_frames(&topic, 0, 0..100);
    raw.send_frames(&topic, 1, 0..100);
    raw.flush();
    mock.set_round_trip_ms(2, 1_000);
    let mut cut = plan(&config(&mock.bootstrap(), &topic), vec![known(0, 0), known(1, 0)]);
    cut.deadline = Instant::now() + Duration::from_secs(12);
    let mut count = 0;
    let error = read_tail(&cut, &mut |record| {
        assert_eq!(record.partition, PartitionId(0));
        if count == 0 {
            mock.set_down(2);
        }
        count += 1;
        true
    });
    let error = error.expect_err("one partition cannot be read");
    let TailError::Deadline { partition, operation, ref progress, .. } = error else { panic!("{error}") };
    assert_eq!((count, partition, operation), (100, Some(PartitionId(1)), "reading the tail"), "{error}");
    assert!(progress.contains("at offset 0 of 100, 1 partitions to go"), "{error}");
    assert!(began.elapsed() < SOON);
}

#[test]
fn it_can_be_told_whether_reading_is_allowed() {
    let _alone = alone();
    let topic = fresh_topic("may");
    let mock = Mock::with_topic(1, &topic, 2);
    let raw = Raw::new(&mock.bootstrap());
    raw.send_frames(&topic, 0, 0..100);
    raw.flush();
    let config = config(&mock.bootstrap(), &topic);
    let properties = plan(&config, Vec::new()).properties;
    let cpus = affinity::allowed().unwrap();
    for partition in 0..2 {
        may_read(&properties, &topic, PartitionId(partition), &cpus, SOON).unwrap();
    }
    let limit = Duration::from_millis(500);
    let unknown = may_read(&properties, &fresh_topic("no"), PartitionId(99), &cpus, limit);
    assert!(matches!(unknown, Err(TailError::Deadline { .. })), "{unknown:?}");
}
