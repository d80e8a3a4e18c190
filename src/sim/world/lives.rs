//! From one life of the router to the next: deaths, stops in good order, and starts that may die too.

use super::World;
use crate::clock::Clock;
use crate::shard::Policy;
use crate::sim::host::Death;
use crate::sim::ledger::{Draft, Event};
use crate::sim::plan::Kind;
use crate::sim::random::Random;
use crate::sim::verdict::Violation;
use crate::units::Nanos;
use std::collections::VecDeque;

impl World {
    /// The host dies and begins again.
    pub(super) fn die(&mut self, death: Death, random: &mut Random) -> Result<(), Violation> {
        let backlogs = self.leave();
        self.kill(death, random)?;
        self.host.clock.advance(Nanos::from_millis([1, 1_000, 90_000][random.below(3) as usize]));
        self.begin(backlogs, random)
    }

    /// The host is stopped in good order, and begins again.
    pub(super) fn stop(&mut self, random: &mut Random) -> Result<(), Violation> {
        let limit = Nanos::from_millis(u64::from(random.below(3_000)));
        let (brokers_answer, leaders) = (self.host.clock.mono() >= self.broker_away, self.leaders_away.clone());
        let began = self.host.clock.mono();
        let mut luck = Random::new(random.bits());
        self.host.stop(limit, |host| {
            host.clock.advance_ms(1 + u64::from(luck.below(5)));
            let now = host.clock.mono();
            for broker in host.brokers.iter().filter(|_| brokers_answer) {
                for partition in broker.partitions() {
                    if now >= leaders[partition as usize] && luck.below(3) > 0 {
                        broker.ack(partition, luck.below(40) as usize);
                    }
                }
            }
        });
        self.ledger.landed_since = Some(began);
        self.read_logs()?;
        self.ledger.landed_since = None;
        if self.host.disk.is_dead() {
            return self.die(Death::Process, random);
        }
        self.take_failed()?;
        self.look()?;
        let counts = self.host.counts();
        let is_sound = self.disk_heals == Nanos(u64::MAX) && self.plan.has_disk && !self.host.disk.dies();
        if is_sound && counts.unsettled() > 0 && self.host.policy() == Policy::Spill {
            let shards: String = self.host.shards.iter().map(crate::shard::Shard::describe).collect();
            let what = format!("stopped with a sound disk, and something is not settled: {counts}\n{shards}");
            return Err(Violation { check: "stop", what });
        }
        self.die(Death::Process, random)
    }

    /// What each caller has to send again, in order: what is not settled, then what it had not submitted.
    fn leave(&mut self) -> Vec<(VecDeque<u64>, Vec<Draft>)> {
        let ledger = &self.ledger;
        let callers = self.callers.drain(..);
        callers
            .map(|caller| {
                let unsettled = caller.ids[caller.checked as usize..].iter().copied();
                let again = unsettled.filter(|id| ledger.entry(*id).failed.is_none());
                (again.chain(caller.outbox).collect(), caller.recent)
            })
            .collect()
    }

    fn kill(&mut self, death: Death, random: &mut Random) -> Result<(), Violation> {
        if self.host.policy() == Policy::DeadLetter {
            // It gives up the order of what is diverted, and what was on its way to the dead letters is sent again.
            self.ledger.note_all_refusable();
        }
        // Half of the time nothing lands on the way out: then only what is durable counts.
        let lands = random.below(2) == 0;
        self.host.kill(death, |_, held| if lands { random.below(held as u32 + 1) as usize } else { 0 });
        self.read_logs()?;
        self.see(&Event::Died)
    }

    fn begin(&mut self, backlogs: Vec<(VecDeque<u64>, Vec<Draft>)>, random: &mut Random) -> Result<(), Violation> {
        self.heal_disk();
        if self.plan.rate(Kind::DiesAtDisk) > 0 && random.below(4) == 0 {
            self.host.disk.die_after(u64::from(random.below(12)));
        }
        let mut tries = 0;
        loop {
            self.met.starts += 1;
            let is_cold = std::mem::take(&mut self.is_cold_next) && self.plan.has_disk;
            let answer = self.host.begin(is_cold);
            if !self.host.disk.is_dead() {
                if let Err(error) = answer {
                    return Err(Violation { check: "start", what: format!("a sound disk is refused: {error}") });
                }
                self.ledger.is_cold = self.host.is_cold();
                if is_cold {
                    let now = self.host.clock.mono();
                    self.broker_away = now + Nanos::from_millis(u64::from(random.below(30_000)));
                }
                break;
            }
            tries += 1;
            assert!(tries < 100, "a disk dies once");
            let death = if random.below(2) == 0 { Death::Process } else { Death::Machine };
            self.kill(death, random)?;
            self.heal_disk();
        }
        self.ledger.began_at = self.host.clock.mono();
        self.ledger.now = self.ledger.began_at;
        self.is_lost.fill(false);
        self.has_rule = false;
        for (outbox, recent) in backlogs {
            self.add_caller(outbox, recent);
        }
        self.look_at_disk();
        let unknown = self.ledger.accepted().find(|(id, entry)| entry.is_settled && !self.ledger.is_kept(*id));
        if let Some((id, entry)) = unknown {
            let what = format!("submit {id} was settled and is lost: {:?}", entry.draft);
            return Err(Violation { check: "kept", what });
        }
        Ok(())
    }
}
