//! What does the spill cost beside a plain sequential write with the same commit interval?
//!
//! Workload: records of 200 bytes (a 160-byte frame, as fleets have it, with 40 bytes of notes) over 24 partitions in
//! turn; a commit after every 100, 250 or 1,000 of them: what 20,000, 50,000 and 200,000 triggers a second bring in 5 ms.
//!
//! The plain writer puts the same bytes one behind the other into one file and syncs after each batch; once into a file
//! that grows, as a log usually does, and once into a file allocated ahead, as the spill's are. Writers alternate round by
//! round, so what the neighbours on the machine do hits them alike; read the ratio. The spill's time includes everything
//! it does besides: checksums, headers, cursors, and the beginning of segments. Then it is drained, partition by
//! partition, and every record is compared.
//!
//! `cargo bench --no-default-features --bench spill` measures; run without `--bench` it only checks the answers.

use fencepost::spill::{Budget, Disk, DiskFile, Kind, RealDisk, Record, Spill, SpillLimits};
use fencepost::units::PartitionId;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 24;
const META: usize = 40;
const FRAME: usize = 160;

/// A directory of this run alone, on the disk that holds the build.
fn directory() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-spill-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("the build directory can be written");
    dir
}

/// The n-th record: different from all others, and cheap to make.
fn fill(nth: u64, meta: &mut [u8; META], frame: &mut [u8; FRAME]) {
    meta[..8].copy_from_slice(&nth.to_le_bytes());
    for (place, word) in frame.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place as u64).to_le_bytes());
    }
}

struct Round {
    took: Duration,
    syncs: u64,
}

fn spilled(dir: &Path, records: u64, interval: u64) -> (Round, Spill<RealDisk>) {
    let (mut spill, recovery) = Spill::open(RealDisk, dir, SpillLimits::new(PARTITIONS)).expect("it opens");
    assert_eq!(recovery.records, 0, "an empty directory");
    let (mut meta, mut frame) = ([7; META], [0; FRAME]);
    let begun = Instant::now();
    for nth in 0..records {
        fill(nth, &mut meta, &mut frame);
        let partition = PartitionId((nth % u64::from(PARTITIONS)) as u32);
        spill.append(Record { partition, kind: Kind::Spilled, meta: &meta, frame: &frame }).expect("there is room");
        if (nth + 1) % interval == 0 {
            spill.commit().expect("the disk works");
        }
    }
    spill.commit().expect("the disk works");
    let took = begun.elapsed();
    assert_eq!(spill.records(), records);
    let counts = spill.counts();
    // The segment that open begins is not of this time.
    let syncs = counts.syncs + counts.segments - 1;
    (Round { took, syncs }, spill)
}

fn drained(spill: &mut Spill<RealDisk>, records: u64) -> Duration {
    let (mut meta, mut frame) = ([7; META], [0; FRAME]);
    let mut seen = 0;
    let begun = Instant::now();
    let mut next = [1; PARTITIONS as usize];
    while seen < records {
        for partition in 0..PARTITIONS {
            let from = next[partition as usize];
            let done = spill.read(PartitionId(partition), from, Budget::default(), |stored| {
                fill((stored.id.sequence - 1) * u64::from(PARTITIONS) + u64::from(partition), &mut meta, &mut frame);
                assert!(stored.record.meta == meta && stored.record.frame == frame, "{:?}", stored.id);
                seen += 1;
            });
            next[partition as usize] = done.next;
            spill.release(PartitionId(partition), done.next - 1);
        }
        spill.commit().expect("the disk works");
    }
    let took = begun.elapsed();
    assert_eq!((spill.records(), spill.counts().lost), (0, 0));
    took
}

fn plain(dir: &Path, records: u64, interval: u64, ahead: bool) -> Round {
    let path = dir.join("plain");
    let bytes = (META + FRAME) as u64;
    let mut file = RealDisk.create(&path, if ahead { records * bytes } else { 1 }).expect("there is room");
    let (mut meta, mut frame) = ([7; META], [0; FRAME]);
    let mut batch = Vec::with_capacity((interval * bytes) as usize);
    let (mut at, mut syncs) = (0, 0);
    let begun = Instant::now();
    for nth in 0..records {
        fill(nth, &mut meta, &mut frame);
        batch.extend_from_slice(&meta);
        batch.extend_from_slice(&frame);
        if (nth + 1) % interval == 0 || nth + 1 == records {
            DiskFile::write_at(&mut file, &batch, at).expect("the disk works");
            file.sync().expect("the disk works");
            (at, syncs) = (at + batch.len() as u64, syncs + 1);
            batch.clear();
        }
    }
    let took = begun.elapsed();
    assert_eq!(file.bytes().expect("it is there"), records * bytes);
    fs::remove_file(&path).expect("it is there");
    Round { took, syncs }
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let rounds = if measures { 9 } else { 1 };
    let dir = directory();
    println!(
        "records of {} bytes, {PARTITIONS} partitions; rates in records/s, median of {rounds} rounds",
        META + FRAME
    );
    for interval in [100, 250, 1_000_u64] {
        let records = if measures { interval * 400 } else { interval * 4 };
        let rate = |took: Duration| records as f64 / took.as_secs_f64();
        let (mut spill_rates, mut grow_ratios, mut ahead_ratios, mut drain_rates) = (vec![], vec![], vec![], vec![]);
        let (mut spill_syncs, mut plain_syncs) = (0, 0);
        for round in 0..rounds {
            let spill_dir = dir.join(format!("spill-{interval}-{round}"));
            let (ours, mut spill) = spilled(&spill_dir, records, interval);
            let grow = plain(&dir, records, interval, false);
            let ahead = plain(&dir, records, interval, true);
            drain_rates.push(rate(drained(&mut spill, records)));
            drop(spill);
            fs::remove_dir_all(&spill_dir).expect("it is ours");
            spill_rates.push(rate(ours.took));
            grow_ratios.push(rate(ours.took) / rate(grow.took));
            ahead_ratios.push(rate(ours.took) / rate(ahead.took));
            (spill_syncs, plain_syncs) = (ours.syncs, grow.syncs);
        }
        let (grow, grow_least, grow_most) = median(grow_ratios);
        let (ahead, ahead_least, ahead_most) = median(ahead_ratios);
        println!(
            "commit of {interval:>5}: spill {:>9.0}  syncs {spill_syncs} beside {plain_syncs}  \
             ratio to a growing file {grow:.2} ({grow_least:.2} to {grow_most:.2}), \
             to one allocated ahead {ahead:.2} ({ahead_least:.2} to {ahead_most:.2})  drain {:>9.0}",
            median(spill_rates).0,
            median(drain_rates).0,
        );
    }
    fs::remove_dir_all(&dir).expect("it is ours");
}
