//! The faults, one by one, and what callers and operators do beside them.

use super::{Caller, World};
use crate::breaker::Cause;
use crate::clock::Clock;
use crate::ingress::Refused;
use crate::shard::{Fences, Policy};
use crate::sim::host::Death;
use crate::sim::plan::Kind;
use crate::sim::random::Random;
use crate::sim::verdict::Violation;
use crate::sink::steered::Broker;
use crate::sink::{Fault, Persisted};
use crate::spill::faulty::Operation;
use crate::units::{Nanos, PartitionId};
use std::sync::Arc;

/// Every other fence.
struct SomeFences;

impl Fences for SomeFences {
    fn has(&self, fence_id: &[u8]) -> bool {
        fence_id.last().is_none_or(|last| last % 2 == 0)
    }
}

impl World {
    fn some_broker(&self, random: &mut Random) -> (usize, Broker) {
        let index = random.below(self.host.brokers.len() as u32) as usize;
        (index, self.host.brokers[index].clone())
    }

    pub(super) fn act(&mut self, kind: Kind, random: &mut Random) -> Result<(), Violation> {
        let now = self.host.clock.mono();
        let soon = |random: &mut Random, most_ms: u32| now + Nanos::from_millis(u64::from(random.below(most_ms)));
        match kind {
            Kind::LeaderAway => {
                let partition = random.below(self.plan.partitions) as usize;
                self.leaders_away[partition] = soon(random, 20_000);
            }
            Kind::BrokerAway => self.broker_away = soon(random, 60_000),
            Kind::QueueFull => {
                let (_, broker) = self.some_broker(random);
                broker.state().queue_max = if random.below(2) == 0 { random.below(20) as usize } else { usize::MAX };
            }
            Kind::Refusal => refuse(&self.some_broker(random).1, random),
            Kind::RefusalAtOnce => {
                let (_, broker) = self.some_broker(random);
                let partition = random.below(self.plan.partitions);
                let fault = if random.below(4) == 0 { Fault::Frame(10) } else { Fault::Partition(29) };
                broker.state().faults.entry(partition).or_default().push_back(fault);
            }
            Kind::HandleLost => self.turn_a_handle(random),
            Kind::ReportsSlow => {
                let (_, broker) = self.some_broker(random);
                broker.state().report_max =
                    if random.below(2) == 0 { 1 + random.below(8) as usize } else { usize::MAX };
            }
            Kind::LettersAway => {
                self.letters_away = soon(random, 30_000);
                let mut letters = self.host.letters.state();
                *(if random.below(2) == 0 { &mut letters.is_away } else { &mut letters.refuses }) = true;
            }
            Kind::DiskFails => {
                const OPERATIONS: [Operation; 7] = [
                    Operation::Sync,
                    Operation::Write,
                    Operation::Create,
                    Operation::Rename,
                    Operation::Remove,
                    Operation::SyncDir,
                    Operation::Truncate,
                ];
                let operation = OPERATIONS[random.below(7).min(random.below(7)) as usize];
                match random.below(3) {
                    0 => self.host.disk.set_likelihood(operation, random.below(65_536)),
                    _ => self.host.disk.fail_next(operation, 1 + random.below(4)),
                }
                self.disk_heals = soon(random, 20_000);
            }
            Kind::DiskFull => {
                self.host.disk.set_capacity(self.host.disk.used() + u64::from(random.below(1 << 20)));
                self.disk_heals = soon(random, 20_000);
            }
            Kind::DiskSlow => {
                self.host.disk.set_delay(Nanos::from_micros(u64::from(random.below(200_000))));
                self.disk_heals = soon(random, 20_000);
            }
            Kind::ClockSet => {
                let most_ms = [10, 2_000, 3_600_000, 90_000_000][random.below(4) as usize];
                let by_us = i64::from(random.below(most_ms)) * 1_000;
                self.host.clock.step_wall(if random.below(2) == 0 { by_us } else { -by_us });
            }
            Kind::ProcessKilled => self.die(Death::Process, random)?,
            Kind::MachineStops => self.die(Death::Machine, random)?,
            Kind::DiesAtDisk => self.host.disk.die_after(u64::from(random.below(40))),
            Kind::Stopped => self.stop(random)?,
            Kind::ColdStart => self.is_cold_next = true,
            Kind::PolicyChanged => {
                let policies = [Policy::Spill, Policy::DeadLetter, Policy::Refuse];
                if self.plan.has_disk {
                    self.host.blueprint.policy = policies[random.below(3) as usize];
                }
            }
            Kind::Tripped => {
                let partition = PartitionId(random.below(self.plan.partitions));
                let shard = partition.0 as usize % self.host.shards.len();
                match random.below(3) {
                    0 => self.host.shards[shard].trip(partition, Cause::Lag),
                    1 => self.host.shards[shard].trip(partition, Cause::Sla),
                    _ => (0..3).for_each(|_| self.host.shards[shard].good_read(partition)),
                }
            }
            Kind::FencesChanged => {
                self.ledger.note_all_refusable();
                self.has_rule = true;
                let some = (random.below(2) == 0).then(|| Arc::new(SomeFences) as Arc<dyn Fences>);
                self.host.common.shared().set_fences(some);
            }
            Kind::TooLarge => {
                self.ledger.note_all_refusable();
                self.has_rule = true;
                let bytes = if random.below(3) == 0 { 300 + random.below(600) as usize } else { usize::MAX };
                self.host.common.set_record_bytes_max(bytes);
            }
            Kind::GivenToLetters => self.give_to_letters(random)?,
            Kind::CallerMoves => self.move_caller(random),
        }
        Ok(())
    }

    /// A broker's handle is lost, or replaced when it was lost and has told of everything.
    fn turn_a_handle(&mut self, random: &mut Random) {
        let (index, broker) = self.some_broker(random);
        if !self.is_lost[index] {
            broker.lose_handle();
            if random.below(2) == 0 {
                broker.purge(|_, held| random.below(held as u32 + 1) as usize);
            }
            self.is_lost[index] = true;
        } else if broker.undelivered_reports() == 0 {
            broker.replace_handle(|_, held| random.below(held as u32 + 1) as usize);
            self.is_lost[index] = false;
        }
    }

    /// What a caller would submit next goes to the dead letters instead.
    fn give_to_letters(&mut self, random: &mut Random) -> Result<(), Violation> {
        let index = random.below(self.callers.len() as u32) as usize;
        let Some(&id) = self.callers[index].outbox.front() else { return Ok(()) };
        let entry = self.ledger.entry(id);
        let attributes = entry.attributes(id);
        match self.callers[index].ingress.dead_letter(&entry.trigger(&attributes), "shed") {
            Ok(accepted) => {
                self.callers[index].outbox.pop_front();
                self.ledger.note_refusable(id);
                self.accepted(index, id, accepted.seq.0)
            }
            Err(Refused::Rejected(_)) => {
                self.callers[index].outbox.pop_front();
                self.ledger.drop_one(id);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// A caller for whom everything has settled leaves its ingress and takes another.
    fn move_caller(&mut self, random: &mut Random) {
        let index = random.below(self.callers.len() as u32) as usize;
        let caller = &mut self.callers[index];
        if caller.checked < caller.ids.len() as u64 {
            return;
        }
        let Caller { ingress, outbox, recent, .. } = self.callers.remove(index);
        drop(ingress);
        self.add_caller(outbox, recent);
        let moved = self.callers.pop().expect("it was just added");
        self.callers.insert(index, moved);
    }
}

/// What is in flight of one partition is refused: for itself or for the partition, surely or perhaps.
pub fn refuse(broker: &Broker, random: &mut Random) {
    let partitions = broker.partitions();
    if partitions.is_empty() {
        return;
    }
    let partition = partitions[random.below(partitions.len() as u32) as usize];
    let count = 1 + random.below(12) as usize;
    let skip = if random.below(4) == 0 { random.below(4) as usize } else { 0 };
    let (fault, persisted) = match random.below(9) {
        0..3 => (Fault::Frame(10), Persisted::No),
        3..6 => (Fault::Partition(44), Persisted::No),
        // Refused on a later try, when the first one had timed out.
        6 => (Fault::Frame(10), Persisted::Possibly),
        _ => (Fault::Partition(20), Persisted::Possibly),
    };
    let lands = persisted == Persisted::Possibly && skip == 0 && random.below(2) == 0;
    if skip == 0 && random.below(4) == 0 {
        broker.refuse_named(partition, count, random.below(count as u32) as usize, 10);
    } else {
        broker.refuse(partition, skip, count, fault, persisted, lands);
    }
}
