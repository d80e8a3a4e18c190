//! The disk thread: opens what lies in the state directory, turns the keeper, and keeps the file of offsets.

use crate::clock::Clock;
use crate::config::Limits;
use crate::divert::{DivertLimits, Keeper, LetterRoom, Room, ShardEnd, SpillRoom, ends};
use crate::hlc::Hlc;
use crate::letter::{Desk, DeskLimits, Letter, LetterSink, PostBusy, Posted};
use crate::metrics::SpillPage;
use crate::shard::shared::{Gate, Shared};
use crate::spill::{Budget, Disk, OpenError, RealDisk, Recovery, Spill, SpillLimits};
use crate::state::{Ceiling, OffsetTrail, Offsets, OffsetsFile};
use crate::topology::{CpuSet, affinity};
use crate::units::{Nanos, PartitionId};
use crate::wire;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Under the state directory: what is spilled.
pub const SPILL_DIR: &str = "spill";
/// Under the state directory: dead letters that their topic has not taken.
pub const LETTER_DIR: &str = "dead-letters";
/// Between two writes of the offsets.
const OFFSETS_INTERVAL: Nanos = Nanos::from_millis(1_000);
/// How long the thread sleeps after a turn without work, while there was work lately, and later.
const NAP: Duration = Duration::from_millis(1);
const LONG_NAP: Duration = Duration::from_millis(5);
/// Without work for this long, it sleeps longer.
const QUIET: Nanos = Nanos::from_millis(100);
/// What the dead letters' topic gets at the stop for the answers that are due.
const ANSWERS_LIMIT: Nanos = Nanos::from_millis(100);
/// The same error about the offsets is logged once in so long.
const LOG_INTERVAL: Nanos = Nanos::from_millis(10_000);

/// Where dead letters go.
pub enum Letters<L> {
    /// To a topic.
    Topic(L),
    /// Nowhere but to the disk.
    DiskOnly,
}

impl<L: LetterSink> LetterSink for Letters<L> {
    fn post(&mut self, token: u64, letter: &Letter<'_>) -> Result<(), PostBusy> {
        match self {
            Letters::Topic(sink) => sink.post(token, letter),
            Letters::DiskOnly => Err(PostBusy::NotReady),
        }
    }

    fn collect(&mut self, each: &mut dyn FnMut(u64, Posted<'_>)) {
        if let Letters::Topic(sink) = self {
            sink.collect(each);
        }
    }
}

/// What the state directory holds, open.
pub struct Opened<D: Disk> {
    spill: Spill<D>,
    spill_limits: SpillLimits,
    letters: Spill<D>,
    letters_found: Recovery,
    /// The highest stamp of everything on disk.
    pub highest: Hlc,
    /// What was found of the spill.
    pub recovery: Recovery,
    /// How long it took.
    pub took: Duration,
    /// What a person should know.
    pub warnings: Vec<String>,
}

impl Opened<RealDisk> {
    /// Opens the spill and the dead letters of a state directory, and mends what a crash left.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(state: &Path, limits: &Limits, partitions: u32) -> Result<Opened<RealDisk>, OpenError> {
        let began = Instant::now();
        let spill_limits = limits.spill(partitions);
        let (mut spill, recovery) = Spill::open(RealDisk, &state.join(SPILL_DIR), spill_limits.clone())?;
        let (mut letters, letters_found) =
            Spill::open(RealDisk, &state.join(LETTER_DIR), limits.dead_letters(partitions))?;
        let highest = highest_of(&mut spill, &mut letters, partitions);
        let mut warnings = Vec::new();
        for (what, found) in [(SPILL_DIR, &recovery), (LETTER_DIR, &letters_found)] {
            if !found.is_whole() {
                warnings.push(format!(
                    "the disk damaged {what}: {} settled records lost {:?}, {} damaged places, {} files set aside {:?}; \
                     `fencepost spill verify {}` says more",
                    found.lost,
                    found.lost_ranges,
                    found.damaged + found.unreadable_pages,
                    found.quarantined.len(),
                    found.quarantined,
                    state.join(what).display()
                ));
            }
        }
        Ok(Opened { spill, spill_limits, letters, letters_found, highest, recovery, took: began.elapsed(), warnings })
    }
}

/// The highest stamp on disk. In a partition of the spill the newest record has it; dead letters are in no order.
fn highest_of<D: Disk>(spill: &mut Spill<D>, letters: &mut Spill<D>, partitions: u32) -> Hlc {
    let mut highest = Hlc::ZERO;
    let mut see = |frame: &[u8]| {
        if let Ok(decoded) = wire::decode(frame)
            && decoded.frame.hlc <= Hlc::OBSERVED_MAX
        {
            highest = highest.max(decoded.frame.hlc);
        }
    };
    for partition in (0..partitions).map(PartitionId) {
        spill.read_newest(partition, |stored| see(stored.record.frame));
        let mut from = 1;
        loop {
            let done = letters.read(partition, from, Budget::default(), |stored| see(stored.record.frame));
            from = done.next;
            if !done.more {
                break;
            }
        }
    }
    highest
}

/// The keeper and the shards' ways to it.
pub struct Made<D: Disk, L: LetterSink> {
    /// For the disk thread.
    pub keeper: Keeper<D, Letters<L>>,
    /// One for each shard.
    pub shard_ends: Vec<ShardEnd>,
    /// How much room the spill has; `None`: there is none.
    pub room: Option<Arc<Room>>,
    /// Its counters.
    pub page: Arc<SpillPage>,
}

/// Who the router is, for the dead letters.
pub struct Who<'a> {
    /// The topic the triggers are meant for.
    pub topic: &'a str,
    /// The router's id.
    pub router: &'a str,
    /// The pinned partition count.
    pub partitions: u32,
}

/// Puts the keeper together.
pub fn make<D: Disk, L: LetterSink>(
    opened: Option<Opened<D>>,
    letters: Letters<L>,
    limits: &Limits,
    who: &Who<'_>,
) -> Made<D, L> {
    let pipes = DivertLimits::new(limits.slots_per_shard);
    let (shard_ends, keeper_ends) = (0..limits.shards).map(|_| ends(&pipes)).unzip();
    let page = Arc::new(SpillPage::default());
    let (mut spilling, mut room, mut on_disk, mut found) = (None, None, None, Recovery::default());
    if let Some(opened) = opened {
        let shown = Arc::new(Room::new(who.partitions));
        room = Some(Arc::clone(&shown));
        let Opened { spill, spill_limits, letters, letters_found, .. } = opened;
        spilling = Some(SpillRoom::new(spill, spill_limits, limits.spill_sync, shown, Arc::clone(&page)));
        (on_disk, found) = (Some(letters), letters_found);
    }
    let letter_bytes = limits.dead_letter_value_bytes + crate::config::NOTES_BYTES_MAX;
    let desk_limits = DeskLimits {
        grace: limits.dead_letter_grace,
        letter_bytes,
        memory_bytes: (8 << 20).max(2 * letter_bytes),
        ..DeskLimits::new(who.partitions)
    };
    let desk = Desk::new(letters, on_disk.map(|spill| (spill, &found)), desk_limits);
    let letter_room = LetterRoom::new(desk, who.topic.to_owned(), who.router.to_owned());
    Made { keeper: Keeper::new(keeper_ends, spilling, Some(letter_room)), shard_ends, room, page }
}

/// Which offsets were acknowledged, and what no stamp has reached, for the next start. One write a second at the most
/// while either moves, and none while the router is idle; one at once when the stamps come near the ceiling.
pub struct OffsetsKeeper {
    file: OffsetsFile,
    trail: OffsetTrail,
    offsets: Offsets,
    written: Offsets,
    ceiling: Ceiling,
    write_at: Nanos,
    /// After a failed write: not before then, however near the ceiling is.
    retry_at: Nanos,
    logged: Option<Nanos>,
}

impl OffsetsKeeper {
    /// Begins with what the start knows.
    #[must_use]
    pub fn new(file: OffsetsFile, known: Offsets, ttl: Nanos) -> OffsetsKeeper {
        let mut trail = OffsetTrail::new(known.partitions.len() as u32, ttl);
        for (index, offsets) in known.partitions.iter().enumerate() {
            trail.begin(PartitionId(index as u32), *offsets);
        }
        let (ceiling, written) = (Ceiling::new(known.ceiling), known.clone());
        let (write_at, retry_at) = (Nanos(0), Nanos(0));
        OffsetsKeeper { file, trail, written, offsets: known, ceiling, write_at, retry_at, logged: None }
    }

    /// Notes what is acknowledged and stamped, and writes it when it is time and something has changed.
    fn turn(&mut self, shared: &Shared, now: Nanos) {
        self.ceiling.see(shared.highest_stamp());
        let is_urgent = self.ceiling.is_near() && now >= self.retry_at;
        if now < self.write_at && !is_urgent {
            return;
        }
        self.write_at = now + OFFSETS_INTERVAL;
        for index in 0..self.offsets.partitions.len() {
            let partition = PartitionId(index as u32);
            if let Some(acked) = shared.acked(partition) {
                self.trail.note(now, partition, acked);
            }
        }
        self.trail.write_to(now, &mut self.offsets);
        self.offsets.ceiling = self.ceiling.wanted();
        if self.offsets == self.written {
            return;
        }
        match self.file.write(&self.offsets) {
            Ok(()) => {
                self.written.clone_from(&self.offsets);
                self.ceiling.wrote();
            }
            Err(error) => {
                self.retry_at = now + OFFSETS_INTERVAL;
                if self.logged.is_none_or(|logged| now.since(logged) >= LOG_INTERVAL) {
                    self.logged = Some(now);
                    log::error!(
                        "{error}; the next start reads more of the topic than it would have to, and without a broker may \
                         stamp below what is there"
                    );
                }
            }
        }
    }
}

/// What became of the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCommit {
    /// All is durable that was ordered.
    Made,
    /// The thread panicked.
    Failed,
    /// The thread was left behind, and may write still.
    Hangs,
}

/// The thread, and how to end it.
pub struct DiskThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl DiskThread {
    /// Starts it.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<D, L, C>(
        mut keeper: Keeper<D, L>,
        mut offsets: Option<OffsetsKeeper>,
        clock: C,
        shared: Arc<Shared>,
        cpus: CpuSet,
    ) -> std::io::Result<DiskThread>
    where
        D: Disk + Send + 'static,
        D::File: Send,
        L: LetterSink + 'static,
        C: Clock,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let body = move || {
            if let Err(error) = affinity::restrict_to(&cpus) {
                log::warn!("the disk thread is not kept on CPUs {cpus}: {error}");
            }
            // The keeper is not used after a panic but to be dropped, so a broken invariant of it is not seen by anyone.
            let turned = catch_unwind(AssertUnwindSafe(|| {
                let (mut worked_at, mut is_closing) = (Nanos(0), false);
                // Acquire, partner: the Release in `finish`: what the shards ordered before is seen.
                while !is_stopped.load(Ordering::Acquire) {
                    let now = clock.mono();
                    if !is_closing && shared.is_spilling_rest() {
                        is_closing = true;
                        keeper.close_letters(now);
                    }
                    if keeper.turn(now) {
                        worked_at = now;
                    } else {
                        let is_quiet = now.since(worked_at) >= QUIET;
                        std::thread::park_timeout(if is_quiet { LONG_NAP } else { NAP });
                    }
                    if let Some(offsets) = &mut offsets {
                        offsets.turn(&shared, now);
                    }
                }
                let now = clock.mono();
                let mut untaken = keeper.finish(now);
                // What the topic of dead letters has just taken shall not be sent there again by the next run.
                let until = now + ANSWERS_LIMIT;
                while keeper.letters_left().0 > 0 && clock.mono() < until {
                    std::thread::sleep(NAP);
                    untaken = keeper.finish(clock.mono());
                }
                let (_, on_disk) = keeper.letters_left();
                if on_disk > 0 {
                    log::warn!(
                        "{on_disk} dead letters wait on disk for their topic; `fencepost dlq ls --dir` shows them"
                    );
                }
                if let Some(offsets) = &mut offsets {
                    offsets.write_at = Nanos(0);
                    offsets.turn(&shared, now);
                }
                untaken
            }));
            turned.unwrap_or_else(|panic| {
                shared.close(Gate::Broken);
                log::error!("the disk thread panicked; the router refuses triggers from now on");
                std::panic::resume_unwind(panic)
            })
        };
        let thread = std::thread::Builder::new().name("fencepost-disk".into()).spawn(body)?;
        Ok(DiskThread { stop, thread })
    }

    /// The shards have left: waits for the last commit, until then at the latest.
    #[must_use]
    pub fn finish(self, until: Instant) -> LastCommit {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !self.thread.is_finished() {
            log::error!("the disk thread hangs and is left behind");
            return LastCommit::Hangs;
        }
        if self.thread.join().is_ok() { LastCommit::Made } else { LastCommit::Failed }
    }
}

#[cfg(test)]
mod hangs;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlc::Hlc;
    use crate::units::ShardId;
    use std::path::PathBuf;

    const TOPIC: &str = "triggers";
    const SHARD: ShardId = ShardId(1);
    const START_MS: u64 = 1_772_000_000_000;

    fn stamp(ms: u64) -> Hlc {
        Hlc::new(START_MS + ms, 0)
    }

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// A keeper of two partitions, in a directory of its own.
    struct Kept {
        dir: PathBuf,
        keeper: OffsetsKeeper,
        shared: Shared,
    }

    impl Kept {
        fn new(name: &str, ceiling: Hlc) -> Kept {
            let dir = std::env::temp_dir().join(format!("fencepost-keeper-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let known = Offsets { ceiling, ..Offsets::unknown(TOPIC, 2) };
            let keeper = OffsetsKeeper::new(OffsetsFile::new(&dir), known, at(10_000));
            Kept { dir, keeper, shared: Shared::new(2, 2) }
        }

        /// One turn; what the file says of the stamps, if it was written in it.
        fn turn(&mut self, now: Nanos) -> Option<Hlc> {
            self.keeper.turn(&self.shared, now);
            let file = OffsetsFile::new(&self.dir);
            let written = file.read(TOPIC, 2).offsets.map(|offsets| offsets.ceiling);
            file.remove().unwrap();
            written
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.dir).unwrap();
        }
    }

    #[test]
    fn the_ceiling_moves_once_a_second_while_stamps_are_given_out_and_an_idle_router_writes_nothing() {
        let mut kept = Kept::new("idle", Hlc::ZERO);
        assert_eq!(kept.turn(at(0)), None);
        kept.shared.set_stamp(SHARD, stamp(0));
        assert_eq!(kept.turn(at(1)), Some(stamp(5_000)), "the first stamp under no ceiling");
        kept.shared.set_stamp(SHARD, stamp(900));
        assert_eq!(kept.turn(at(900)), None);
        assert_eq!(kept.turn(at(1_001)), Some(stamp(5_900)), "without an offset that changed");
        for second in 2..60 {
            assert_eq!(kept.turn(at(second * 1_001)), None, "second {second} of an idle router");
        }
        kept.shared.set_acked(PartitionId(1), 7);
        assert_eq!(kept.turn(at(60_100)), Some(stamp(5_900)), "an offset alone moves no ceiling");
    }

    #[test]
    fn a_wall_clock_set_forward_is_written_at_once_and_one_set_back_lowers_nothing() {
        let mut kept = Kept::new("forward", Hlc::ZERO);
        kept.shared.set_stamp(SHARD, stamp(0));
        kept.turn(at(1));
        kept.shared.set_stamp(SHARD, stamp(2_499));
        assert_eq!(kept.turn(at(2)), None, "not within half of the margin");
        kept.shared.set_stamp(ShardId(0), stamp(3_600_000));
        assert_eq!(kept.turn(at(3)), Some(stamp(3_605_000)));
        assert_eq!(kept.turn(at(4)), None);
        kept.shared.set_stamp(ShardId(0), stamp(100));
        assert_eq!(kept.turn(at(2_000)), None);
    }

    /// A start that follows the ceiling shows it, and would push it up each time that it fails.
    #[test]
    fn a_start_that_stamps_nothing_leaves_the_ceiling_where_it_was() {
        let mut kept = Kept::new("restart", stamp(5_000));
        kept.shared.set_stamp(SHARD, stamp(5_000));
        assert_eq!((kept.turn(at(1)), kept.turn(at(5_000))), (None, None));
        let first = Hlc(stamp(5_000).0 + 1);
        kept.shared.set_stamp(SHARD, first);
        assert_eq!(kept.turn(at(5_001)), Some(Hlc(stamp(10_000).0 + 1)));
    }

    #[test]
    fn a_disk_that_fails_is_asked_once_a_second_and_the_ceiling_is_written_when_it_works_again() {
        let mut kept = Kept::new("failing", Hlc::ZERO);
        let missing = kept.dir.join("missing");
        kept.keeper.file = OffsetsFile::new(&missing);
        kept.shared.set_stamp(SHARD, stamp(0));
        kept.turn(at(1));
        assert!(kept.keeper.ceiling.is_near(), "nothing is written");
        kept.keeper.file = OffsetsFile::new(&kept.dir);
        assert_eq!(kept.turn(at(1_000)), None, "its second is not over");
        assert_eq!(kept.turn(at(1_001)), Some(stamp(5_000)));
    }
}
