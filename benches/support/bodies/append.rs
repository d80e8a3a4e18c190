//! A record into the spill, with and without the commit that makes it durable.
//!
//! Workload: 1,000 records of 200 bytes (a frame of 160 and notes of 40) over 24 partitions in turn. Between runs all of
//! them are committed, read back, compared byte for byte and let go.

use super::{Body, Size};
use fencepost::spill::{Budget, Kind, RealDisk, Record, Spill, SpillLimits};
use fencepost::units::PartitionId;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const PARTITIONS: u32 = 24;
const META: usize = 40;
const FRAME: usize = 160;

/// Records of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(100, 1_000)
}

/// Appends, and a commit after every so many.
pub struct Appends {
    dir: PathBuf,
    spill: Spill<RealDisk>,
    records: Vec<([u8; META], [u8; FRAME])>,
    interval: Option<u64>,
    /// Where each partition is read next.
    next: [u64; PARTITIONS as usize],
    appended: u64,
    compared: u64,
}

impl Appends {
    pub fn new(interval: Option<u64>, size: Size) -> Appends {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only a number that nobody else gets.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("append-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("the build directory can be written");
        let limits = SpillLimits { reserve_bytes: 64 << 20, ..SpillLimits::new(PARTITIONS) };
        let (spill, recovery) = Spill::open(RealDisk, &dir, limits).expect("it opens");
        assert_eq!(recovery.records, 0, "an empty directory");
        let records = (0..operations(size)).map(record).collect();
        Appends { dir, spill, records, interval, next: [1; PARTITIONS as usize], appended: 0, compared: 0 }
    }

    /// Commits, reads and compares everything, and lets it go.
    fn drain(&mut self) {
        self.spill.commit().expect("the disk works");
        for partition in 0..PARTITIONS {
            let at = &mut self.next[partition as usize];
            loop {
                let (records, compared) = (&self.records, &mut self.compared);
                let done = self.spill.read(PartitionId(partition), *at, Budget::default(), |stored| {
                    let place = (stored.record.frame[0] as usize) << 8 | stored.record.frame[1] as usize;
                    let (meta, frame) = &records[place];
                    assert_eq!(place as u32 % PARTITIONS, partition);
                    assert!(stored.record.meta == &meta[..] && stored.record.frame == &frame[..], "{:?}", stored.id);
                    *compared += 1;
                });
                *at = done.next;
                if !done.more {
                    break;
                }
            }
            self.spill.release(PartitionId(partition), *at - 1);
        }
        self.spill.commit().expect("the disk works");
    }
}

/// Different from all others; its first two bytes say which it is.
fn record(nth: u64) -> ([u8; META], [u8; FRAME]) {
    let (mut meta, mut frame) = ([7; META], [0; FRAME]);
    meta[..8].copy_from_slice(&nth.to_le_bytes());
    for (place, word) in frame.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place as u64).to_le_bytes());
    }
    frame[..2].copy_from_slice(&(nth as u16).to_be_bytes());
    (meta, frame)
}

impl Body for Appends {
    fn prepare(&mut self) {
        self.drain();
    }

    fn run(&mut self) {
        for (nth, (meta, frame)) in (0_u64..).zip(&self.records) {
            let partition = PartitionId((nth % u64::from(PARTITIONS)) as u32);
            self.spill.append(Record { partition, kind: Kind::Spilled, meta, frame }).expect("there is room");
            if self.interval.is_some_and(|interval| (nth + 1).is_multiple_of(interval)) {
                self.spill.commit().expect("the disk works");
            }
        }
        self.appended += self.records.len() as u64;
    }

    fn check(&mut self) {
        self.drain();
        assert_eq!(self.compared, self.appended, "what was appended is read back, once");
        assert_eq!((self.spill.records(), self.spill.counts().lost), (0, 0));
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
