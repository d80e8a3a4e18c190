//! The warm start against known answers, and against a plain model of sets and sorted lists.

use super::*;
use crate::trigger::{Priority, State};
use proptest::prelude::*;
use std::collections::HashSet;

const LIMITS: WarmLimits =
    WarmLimits { shards: 2, partitions: 6, keys_per_shard: 100, key_bytes_per_shard: 1 << 20, ranges: 1_000 };

/// What a test varies of a frame.
#[derive(Clone, Debug)]
struct Made {
    router: String,
    incarnation: u64,
    number: u64,
    device: String,
    accepted: i64,
    hlc: u64,
    second: i64,
}

impl Made {
    fn new(device: &str, number: u64) -> Made {
        let (device, time) = (device.to_string(), number as i64);
        Made { router: "r".into(), incarnation: 1, number, device, accepted: time, hlc: number, second: time }
    }

    fn frame(&self) -> Frame<'_> {
        Frame {
            device_id: self.device.as_bytes(),
            fence_id: b"fence",
            state: State::Enter,
            event_time_ms: self.second * 1_000,
            hlc: Hlc(self.hlc),
            accepted: UnixMicros(self.accepted),
            priority: Priority::Normal,
            attributes: b"",
            router_id: self.router.as_bytes(),
            incarnation: self.incarnation,
            partition_seq: self.number,
            salt: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let frame = self.frame();
        let mut bytes = vec![0; wire::encoded_len(&frame)];
        wire::encode(&frame, &mut bytes);
        bytes
    }
}

/// Device, second and partition of each key.
fn drained(keys: &mut WarmKeys) -> Vec<(String, i64, u32)> {
    let count = keys.len();
    let mut all = Vec::new();
    keys.drain(&mut |key, partition| {
        assert_eq!((key.fence_id, key.state), (&b"fence"[..], State::Enter));
        all.push((String::from_utf8(key.device_id.to_vec()).unwrap(), key.event_second, partition.0));
    });
    assert_eq!(all.len(), count);
    assert!(keys.is_empty());
    all
}

fn home(device: &str, limits: &WarmLimits) -> usize {
    (partition_of(device.as_bytes(), limits.partitions).0 % u32::from(limits.shards)) as usize
}

#[test]
fn frames_become_keys_of_their_devices_shard_and_others_are_counted() {
    let mut start = WarmStart::new(LIMITS);
    for (number, device) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        // Not the device's own partition: the shard is the device's all the same.
        start.record(PartitionId(4), &Made::new(device, number as u64 + 1).bytes());
    }
    for foreign in [&b""[..], b"{}", &Made::new("a", 1).bytes()[..20]] {
        start.record(PartitionId(4), foreign);
    }
    let mut warm = start.finish();
    assert_eq!((warm.frames, warm.foreign, warm.keys_dropped, warm.stamps_refused), (5, 3, 0, 0));
    assert_eq!(warm.highest, Hlc(5));
    assert_eq!(accepted_of(&Made::new("a", 9).bytes()), Some(UnixMicros(9)));
    assert_eq!(accepted_of(b"{}"), None);
    let mut devices = Vec::new();
    for shard in 0..2 {
        for (device, _, partition) in drained(warm.keys_of(ShardId(shard))) {
            assert_eq!((home(&device, &LIMITS), partition), (usize::from(shard), 4));
            devices.push(device);
        }
    }
    devices.sort();
    assert_eq!(devices, ["a", "b", "c", "d", "e"]);
}

#[test]
fn the_oldest_keys_go_whichever_partition_was_read_first() {
    let limits = WarmLimits { shards: 1, keys_per_shard: 4, ..LIMITS };
    let mut start = WarmStart::new(limits);
    let mut take = |partition, accepted| {
        let made = Made { accepted, ..Made::new("a", accepted as u64) };
        start.record(PartitionId(partition), &made.bytes());
    };
    // The first partition is read first, and its keys are the newest.
    [50, 60, 70].into_iter().for_each(|time| take(0, time));
    [10, 20, 55, 65].into_iter().for_each(|time| take(1, time));
    let mut warm = start.finish();
    let seconds: Vec<i64> = drained(warm.keys_of(ShardId(0))).iter().map(|(_, second, _)| *second).collect();
    assert_eq!(seconds, [55, 60, 65, 70]);
    assert_eq!(warm.keys_dropped, 3);
}

#[test]
fn bytes_are_a_limit_too() {
    let len = Made::new("a", 1).frame().key().stored_len();
    let limits = WarmLimits { shards: 1, key_bytes_per_shard: 3 * len + 1, ..LIMITS };
    let mut start = WarmStart::new(limits);
    for number in 1..=10 {
        start.record(PartitionId(0), &Made::new("a", number).bytes());
    }
    let mut warm = start.finish();
    assert_eq!(warm.keys_of(ShardId(0)).len(), 3);
    assert_eq!(drained(warm.keys_of(ShardId(0)))[0].1, 8);
}

#[test]
fn a_stamp_that_is_no_date_does_not_count() {
    let mut start = WarmStart::new(LIMITS);
    for hlc in [7, Hlc::OBSERVED_MAX.0 + 1, u64::MAX, 5] {
        start.record(PartitionId(0), &Made { hlc, ..Made::new("a", 1) }.bytes());
    }
    let warm = start.finish();
    assert_eq!((warm.highest, warm.stamps_refused), (Hlc(7), 2));
}

#[test]
fn w11_a_record_is_told_by_router_run_partition_and_number() {
    let mut start = WarmStart::new(LIMITS);
    for number in [5, 6, 7, 9] {
        start.record(PartitionId(3), &Made::new("a", number).bytes());
    }
    let already = start.finish().already;
    for number in 0..12 {
        assert_eq!(already.contains(b"r", 1, PartitionId(3), number), [5, 6, 7, 9].contains(&number), "{number}");
    }
    assert!(!already.contains(b"r2", 1, PartitionId(3), 5));
    assert!(!already.contains(b"r", 2, PartitionId(3), 5));
    assert!(!already.contains(b"r", 1, PartitionId(2), 5));
    assert_eq!((already.ranges(), already.left_out()), (2, 0));
}

#[test]
fn a_million_numbers_in_a_row_are_one_range_and_too_many_ranges_are_left_out() {
    let mut set = AlreadyThere::new(3);
    for number in 1..=1_000_000 {
        set.insert(b"r", 1, PartitionId(0), number);
    }
    assert_eq!(set.ranges(), 1);
    for number in [0, u64::MAX, u64::MAX - 1, 2_000_000] {
        set.insert(b"r", 1, PartitionId(0), number);
    }
    assert_eq!((set.ranges(), set.left_out()), (3, 0));
    set.insert(b"r", 1, PartitionId(0), 3_000_000);
    set.insert(b"other", 1, PartitionId(0), 1);
    assert_eq!((set.ranges(), set.left_out()), (3, 2));
    assert!(!set.contains(b"r", 1, PartitionId(0), 3_000_000) && !set.contains(b"other", 1, PartitionId(0), 1));
    // Full, a range still grows.
    set.insert(b"r", 1, PartitionId(0), 2_000_001);
    assert_eq!(set.left_out(), 2);
    for number in [0, 1_000_000, 2_000_001, u64::MAX] {
        assert!(set.contains(b"r", 1, PartitionId(0), number), "{number}");
    }
}

#[test]
fn it_takes_no_more_than_its_limits_say() {
    let limits = WarmLimits { keys_per_shard: 1_000, key_bytes_per_shard: 40_000, ranges: 500, ..LIMITS };
    let mut start = WarmStart::new(limits);
    for number in 0..50_000_u64 {
        let device = format!("device-{}", number % 977);
        // Every second number, and many routers: as many ranges as can be. At first by turns, then partition by partition.
        let made = Made { router: format!("r{}", number % 300), ..Made::new(&device, number * 2) };
        let partition = if number < 20_000 { number % 6 } else { number / 5_000 % 6 };
        start.record(PartitionId(partition as u32), &made.bytes());
        assert!(start.memory_bytes() <= limits.memory_bytes_max(), "{} bytes", start.memory_bytes());
    }
    let warm = start.finish();
    assert_eq!(warm.already.ranges(), 500);
    assert_eq!(warm.already.left_out(), 49_500);
    assert!(warm.keys_dropped > 45_000);
}

fn any_made() -> impl Strategy<Value = (u32, Made)> {
    let device = prop::sample::select(vec!["a", "b", "c", "dd", "車"]);
    let router = prop::sample::select(vec!["r1", "r2"]);
    let number = prop_oneof![4 => 1_u64..40, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)];
    (0_u32..6, device, router, 1_u64..3, number, 0_i64..50, any::<u64>(), 0_i64..1_000).prop_map(
        |(partition, device, router, incarnation, number, accepted, hlc, second)| {
            let (device, router) = (device.to_string(), router.to_string());
            (partition, Made { router, incarnation, number, device, accepted, hlc, second })
        },
    )
}

proptest! {
    #[test]
    fn it_is_what_a_plain_model_says(
        records in prop::collection::vec(any_made(), 0..200),
        keys_per_shard in 1_usize..40,
        shards in 1_u16..4,
    ) {
        let limits = WarmLimits { shards, keys_per_shard, ..LIMITS };
        let mut start = WarmStart::new(limits);
        let mut there = HashSet::new();
        // By shard: the keys that are kept, as one list for each partition.
        let mut kept: Vec<Vec<Vec<(i64, String, i64)>>> = vec![vec![Vec::new(); 6]; shards.into()];
        for (partition, made) in &records {
            start.record(PartitionId(*partition), &made.bytes());
            there.insert((made.router.clone(), made.incarnation, *partition, made.number));
            let own = &mut kept[home(&made.device, &limits)];
            own[*partition as usize].push((made.accepted, made.device.clone(), made.second));
            if own.iter().map(Vec::len).sum::<usize>() > keys_per_shard {
                // The oldest head, of the lowest partition if there are several.
                let heads = own.iter().enumerate().filter_map(|(index, list)| Some((list.first()?.0, index)));
                let oldest = heads.min().unwrap().1;
                own[oldest].remove(0);
            }
        }
        let mut warm = start.finish();
        let stamps = records.iter().map(|(_, made)| made.hlc).filter(|hlc| *hlc <= Hlc::OBSERVED_MAX.0);
        prop_assert_eq!(warm.highest.0, stamps.max().unwrap_or(0));
        prop_assert_eq!(warm.frames as usize, records.len());
        prop_assert_eq!(warm.already.left_out(), 0);
        for router in ["r1", "r2", "r3"] {
            for incarnation in 0..4 {
                for partition in 0..7 {
                    for number in (0..42).chain([u64::MAX - 2, u64::MAX - 1, u64::MAX]) {
                        let is_there = there.contains(&(router.to_string(), incarnation, partition, number));
                        let said =
                            warm.already.contains(router.as_bytes(), incarnation, PartitionId(partition), number);
                        prop_assert_eq!(said, is_there);
                    }
                }
            }
        }
        for shard in 0..shards {
            let got = drained(warm.keys_of(ShardId(shard)));
            for partition in 0..6_u32 {
                let of_partition: Vec<(String, i64)> =
                    got.iter().filter(|(.., found)| *found == partition).map(|(d, s, _)| (d.clone(), *s)).collect();
                let expected: Vec<(String, i64)> =
                    kept[usize::from(shard)][partition as usize].iter().map(|(_, d, s)| (d.clone(), *s)).collect();
                prop_assert_eq!(of_partition, expected);
            }
        }
    }
}
