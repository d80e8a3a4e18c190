//! The spill at work: takes the shards' orders, makes them durable with one commit each `spill.sync`, and reads back what
//! is asked for.

use super::order::{News, Order, Parcel, RefusedWhy};
use super::pipe::HEAD;
use super::room::{Level, Room};
use super::{Found, KeeperEnd, tell};
use crate::metrics::SpillPage;
use crate::slab::FRAME_BYTES_MAX;
use crate::spill::{
    AppendError, Budget, CommitError, CommitWhy, Disk, PartitionState, Record, RecordId, Spill, SpillLimits,
};
use crate::sync::rtrb;
use crate::units::{Nanos, PartitionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Orders taken from one shard before the next one has its turn.
const ORDERS_A_TURN: usize = 4_096;
/// What is reckoned for a drained record in its pipe, and the least that is worth a read.
const PARCEL_BYTES: usize = 1_024;
const READ_BYTES_MIN: usize = 8 * PARCEL_BYTES;
/// Bytes of log that one read may step over: bounds the time of a turn.
const SCANNED_A_READ: u64 = 4 << 20;
/// The same error is logged once in so long.
const LOG_INTERVAL: Nanos = Nanos::from_millis(10_000);
/// Levels of partitions are measured at each of so many commits.
const MEASURED_COMMITS: u32 = 4;

/// What the keeper says to whoever asks how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeeperError {
    /// The last error of the disk, while the disk has not worked since.
    pub text: Option<String>,
}

/// An append that waits for its commit.
struct Pending {
    shard: u16,
    slot: u32,
    epoch: u32,
    id: RecordId,
}

/// A read that was asked for.
struct Asked {
    shard: u16,
    partition: PartitionId,
    from: u64,
    most: u32,
}

/// The spill, and what the shards were promised of it.
pub struct SpillRoom<D: Disk> {
    spill: Spill<D>,
    limits: SpillLimits,
    /// In the order of the appends.
    pending: VecDeque<Pending>,
    asked: VecDeque<Asked>,
    /// Marks for which there was no room yet, at most as many as the spill keeps. What finds no place here either is read
    /// again after a crash, and looked up in the topic.
    unmarked: VecDeque<RecordId>,
    /// By partition: appends of this epoch and earlier ones are refused. 0: none is.
    refused_epoch: Box<[u32]>,
    room: Arc<Room>,
    page: Arc<SpillPage>,
    interval: Nanos,
    commit_at: Nanos,
    commits: u32,
    error: KeeperError,
    logged: Nanos,
}

impl<D: Disk> SpillRoom<D> {
    /// On an open spill. Commits every `interval`.
    #[must_use]
    pub fn new(
        spill: Spill<D>,
        limits: SpillLimits,
        interval: Nanos,
        room: Arc<Room>,
        page: Arc<SpillPage>,
    ) -> SpillRoom<D> {
        let partitions = limits.partitions as usize;
        let mut spilling = SpillRoom {
            spill,
            limits,
            pending: VecDeque::with_capacity(1 << 16),
            asked: VecDeque::with_capacity(partitions),
            unmarked: VecDeque::new(),
            refused_epoch: vec![0; partitions].into_boxed_slice(),
            room,
            page,
            interval,
            commit_at: Nanos(0),
            commits: 0,
            error: KeeperError::default(),
            logged: Nanos(0),
        };
        spilling.measure();
        spilling
    }

    /// What was found of a partition at open: before the first turn.
    #[must_use]
    pub fn found(&self, partition: PartitionId) -> Found {
        let PartitionState { released, committed, records, .. } = self.spill.partition(partition);
        let (released, marked) = (released.min(committed), self.spill.marked(partition));
        // At open every mark is durable, and what is marked is among the records no more.
        Found { released, committed, marked, lost: committed - released - marked - records }
    }

    /// How the disk is.
    #[must_use]
    pub fn error(&self) -> &KeeperError {
        &self.error
    }

    /// Marks that wait for room.
    #[must_use]
    pub fn waiting_marks(&self) -> usize {
        self.unmarked.len()
    }

    /// The spill, for a test or a simulator that looks into it.
    pub fn spill_mut(&mut self) -> &mut Spill<D> {
        &mut self.spill
    }

    /// One turn: orders in, a commit if it is time, reads out. Returns whether there was work.
    pub(super) fn turn(&mut self, ends: &mut [KeeperEnd], now: Nanos) -> bool {
        let mut worked = self.take_orders(ends, now);
        if now >= self.commit_at {
            worked |= self.commit(ends, now);
        }
        worked | self.serve_reads(ends)
    }

    /// Everything that was ordered is made durable, or refused, now.
    pub(super) fn finish(&mut self, ends: &mut [KeeperEnd], now: Nanos) {
        while self.take_orders(ends, now) {}
        self.commit(ends, now);
        self.serve_reads(ends);
    }

    fn take_orders(&mut self, ends: &mut [KeeperEnd], now: Nanos) -> bool {
        let mut worked = false;
        for shard in 0..ends.len() {
            for _ in 0..ORDERS_A_TURN {
                let end = &mut ends[shard];
                let KeeperEnd { orders, news, .. } = end;
                let Some((head, frame)) = orders.read() else { break };
                worked = true;
                let order = Order::decode(&head, frame);
                let spill = &mut self.spill;
                match order {
                    Order::Append { slot, epoch, partition, kind, frame } => {
                        let refused = &mut self.refused_epoch[partition.0 as usize];
                        if epoch <= *refused {
                            refuse(news, slot, epoch, RefusedWhy::Follows);
                            continue;
                        }
                        let record = Record { partition, kind, meta: &[], frame };
                        let id = match spill.append_from_reserve(record) {
                            Err(AppendError::CommitFirst) => {
                                let copy = frame.to_vec();
                                self.commit(ends, now);
                                if epoch <= self.refused_epoch[partition.0 as usize] {
                                    // What was ordered before it was refused just now: it does not go in front of that.
                                    refuse(&mut ends[shard].news, slot, epoch, RefusedWhy::Follows);
                                    continue;
                                }
                                self.spill.append_from_reserve(Record { partition, kind, meta: &[], frame: &copy })
                            }
                            other => other,
                        };
                        match id {
                            Ok(id) => self.pending.push_back(Pending { shard: shard as u16, slot, epoch, id }),
                            Err(error) => {
                                let why = match error {
                                    AppendError::NoSpace { .. } | AppendError::PartitionFull { .. } => {
                                        RefusedWhy::NoSpace
                                    }
                                    _ => RefusedWhy::Disk,
                                };
                                self.refused_epoch[partition.0 as usize] = epoch;
                                refuse(&mut ends[shard].news, slot, epoch, why);
                                self.note_error(&error.to_string(), now);
                            }
                        }
                    }
                    Order::Release { partition, upto } => spill.release(partition, upto),
                    Order::Mark { partition, sequence } => {
                        let id = RecordId { partition, sequence };
                        let is_marked = self.unmarked.is_empty() && spill.mark(id);
                        if !is_marked && self.unmarked.len() < self.limits.marks {
                            self.unmarked.push_back(id);
                        }
                    }
                    Order::Read { partition, from, most } => {
                        self.asked.push_back(Asked { shard: shard as u16, partition, from, most });
                    }
                }
            }
        }
        worked
    }

    /// Makes durable what waits, and says so. Returns whether anything waited.
    fn commit(&mut self, ends: &mut [KeeperEnd], now: Nanos) -> bool {
        self.commit_at = now + self.interval;
        while let Some(id) = self.unmarked.front()
            && self.spill.mark(*id)
        {
            self.unmarked.pop_front();
        }
        let was_dirty = self.spill.is_dirty();
        match self.spill.commit() {
            Ok(_) => {
                if was_dirty && self.error.text.take().is_some() {
                    log::warn!("the spill works again");
                }
                self.announce(ends, self.pending.len());
            }
            Err(CommitError { why, done }) => {
                self.announce(ends, done.records as usize);
                let refusal = match why {
                    CommitWhy::NoSpace { .. } => RefusedWhy::NoSpace,
                    CommitWhy::Io { .. } => RefusedWhy::Disk,
                };
                self.refuse_pending(ends, refusal);
                self.note_error(&why.to_string(), now);
            }
        }
        self.measure();
        was_dirty
    }

    /// The oldest `count` appends are durable.
    fn announce(&mut self, ends: &mut [KeeperEnd], count: usize) {
        for Pending { shard, slot, id, .. } in self.pending.drain(..count) {
            tell(&mut ends[shard as usize].news, News::Synced { slot, sequence: id.sequence });
        }
    }

    /// What was not made durable goes back to its shards; a record is never asked of the same segment twice.
    fn refuse_pending(&mut self, ends: &mut [KeeperEnd], why: RefusedWhy) {
        self.spill.take_back(|_| {});
        for Pending { shard, slot, epoch, id } in self.pending.drain(..) {
            let refused = &mut self.refused_epoch[id.partition.0 as usize];
            *refused = (*refused).max(epoch);
            refuse(&mut ends[shard as usize].news, slot, epoch, why);
        }
    }

    /// Serves the reads that have room, each once.
    fn serve_reads(&mut self, ends: &mut [KeeperEnd]) -> bool {
        let mut worked = false;
        for _ in 0..self.asked.len() {
            let Some(asked) = self.asked.pop_front() else { break };
            let end = &mut ends[asked.shard as usize];
            let room = end.drained.room();
            if room < READ_BYTES_MIN {
                self.asked.push_back(asked);
                continue;
            }
            worked = true;
            let records = (asked.most as usize).min(room / PARCEL_BYTES - 1).max(1);
            // The last record of a read may go beyond its bytes.
            let bytes = (room - (records + 1) * HEAD).saturating_sub(FRAME_BYTES_MAX).max(1);
            let budget = Budget { records, bytes, scanned: SCANNED_A_READ };
            let first = asked.from.max(self.spill.partition(asked.partition).released + 1);
            let done = self.spill.read(asked.partition, asked.from, budget, |stored| {
                let (partition, sequence) = (stored.id.partition, stored.id.sequence);
                let (head, body) = Parcel::Record { partition, sequence, frame: stored.record.frame }.encode();
                let fits = end.drained.write(head, body);
                assert!(fits, "a read is asked for no more than its pipe holds");
            });
            // Sequences have no gaps: what is neither handed over nor marked is lost.
            let next = if done.more { done.next } else { self.spill.partition(asked.partition).committed + 1 };
            let next = next.max(first);
            let lost = (next - first) - (done.records + done.marked) as u64;
            let (head, body) = Parcel::Done { partition: asked.partition, next, lost }.encode();
            let fits = end.drained.write(head, body);
            assert!(fits, "the end of a read has its room kept");
        }
        worked
    }

    /// Shows the shards how much room there is, and everybody the counters.
    fn measure(&mut self) {
        let room = self.spill.room();
        let level = if !room.only_reserve {
            if room.left_bytes < room.kept_bytes + self.limits.limit_bytes / 16 { Level::NoLow } else { Level::All }
        } else if room.left_bytes < room.kept_bytes / 2 {
            Level::Nothing
        } else {
            Level::OnlyHigh
        };
        if level >= Level::OnlyHigh && self.room.volume() < Level::OnlyHigh {
            log::error!(
                "spill_no_space: {} bytes of the log are left, {} of them kept for what is accepted; triggers that would be \
                 spilled are shed by priority until it is drained (raise spill.limit, or free the volume)",
                room.left_bytes,
                room.kept_bytes
            );
        } else if level < Level::OnlyHigh && self.room.volume() >= Level::OnlyHigh {
            log::warn!("the spill has space again");
        }
        self.room.set_volume(level);
        self.commits = self.commits.wrapping_add(1);
        if self.commits.is_multiple_of(MEASURED_COMMITS) {
            let most = self.limits.partition_bytes;
            for partition in 0..self.limits.partitions {
                let bytes = self.spill.partition(PartitionId(partition)).bytes;
                let level = match bytes {
                    _ if bytes >= most + most / 4 => Level::Nothing,
                    _ if bytes >= most => Level::OnlyHigh,
                    _ if bytes >= most / 16 * 15 => Level::NoLow,
                    _ => Level::All,
                };
                self.room.set_partition(partition, level);
            }
        }
        let (counts, page) = (self.spill.counts(), &self.page);
        page.commits.set(counts.commits);
        page.syncs.set(counts.syncs);
        page.records.set(counts.records);
        page.copied.set(counts.copied);
        page.failed_writes.set(counts.failed_writes);
        page.used_bytes.set(room.used_bytes);
        page.left_bytes.set(room.left_bytes.saturating_sub(room.kept_bytes));
        page.no_space.set(u64::from(level >= Level::OnlyHigh));
    }

    fn note_error(&mut self, text: &str, now: Nanos) {
        let is_new = self.error.text.is_none();
        if is_new || now.since(self.logged) >= LOG_INTERVAL {
            self.logged = now;
            log::error!("{text}; what was accepted waits in memory, and it is tried again");
        }
        self.error.text = Some(text.to_string());
    }
}

fn refuse(ring: &mut rtrb::Producer<News>, slot: u32, epoch: u32, why: RefusedWhy) {
    tell(ring, News::Refused { slot, epoch, why });
}
