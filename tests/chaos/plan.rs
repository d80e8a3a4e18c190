//! What luck decides of a round, all of it from the seed. When the kill comes is decided too; what the processes are doing
//! just then is the machine's, so a seed gives the same plan, not the same instant.

use fencepost::sim::random::Random;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A unix socket that asks for acks; the position is the peer's.
    Socket,
    /// A file with `route.resume`; the position is the router's own.
    File,
}

/// When our process dies, by SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// So long after it was started, ready or not.
    AfterSpawn(Duration),
    /// So long after it said that it is ready.
    AfterReady(Duration),
    /// So long after it was asked to stop, which is `running` after it was ready.
    InShutdown { running: Duration, stopping: Duration },
}

/// What happens to the broker, counted from the start of our process; it may outlast the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Freeze { after: Duration, lasting: Duration },
    Kill { after: Duration, down: Duration },
    Restart { after: Duration },
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub source: Source,
    pub death: Death,
    pub fault: Option<Fault>,
    /// Lines a second of a socket.
    pub rate: u32,
    /// Lines that the file grows by before the round.
    pub lines: u64,
    pub shards: u32,
    /// Whether the start waits for the broker.
    pub require_broker: bool,
}

impl Plan {
    pub fn draw(random: &mut Random, round: u64) -> Plan {
        let source = if round.is_multiple_of(2) { Source::Socket } else { Source::File };
        // A file is read as fast as the topic takes it, and is at its end sooner than a peer that sends at a rate.
        let life_ms = if source == Source::Socket { 3_000 } else { 900 };
        let death = match random.below(20) {
            0..=4 => Death::AfterSpawn(between(random, 50, 1_000)),
            5..=16 => Death::AfterReady(between(random, 20, life_ms)),
            _ => Death::InShutdown { running: between(random, 20, life_ms), stopping: between(random, 0, 300) },
        };
        let fault = match random.below(100) {
            0..35 => Some(Fault::Freeze { after: between(random, 0, 4_000), lasting: between(random, 50, 4_000) }),
            35..45 => Some(Fault::Kill { after: between(random, 0, 3_000), down: between(random, 0, 2_000) }),
            45..50 => Some(Fault::Restart { after: between(random, 0, 3_000) }),
            _ => None,
        };
        Plan {
            source,
            death,
            fault,
            rate: 2_000 + random.below(10_000),
            lines: u64::from(10_000 + random.below(50_000)),
            shards: 1 + random.below(2),
            require_broker: random.below(4) > 0,
        }
    }
}

fn between(random: &mut Random, from_ms: u32, to_ms: u32) -> Duration {
    Duration::from_millis(u64::from(from_ms + random.below(to_ms - from_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_plan_and_every_kind_of_death_and_fault_is_drawn() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..200).map(|round| Plan::draw(&mut random, round)).collect::<Vec<_>>()
        };
        let plans = draw(1);
        assert_eq!(format!("{plans:?}"), format!("{:?}", draw(1)));
        assert_ne!(format!("{plans:?}"), format!("{:?}", draw(2)));
        let any = |holds: fn(&Plan) -> bool| assert!(plans.iter().any(holds));
        any(|plan| matches!(plan.death, Death::AfterSpawn(_)));
        any(|plan| matches!(plan.death, Death::AfterReady(_)));
        any(|plan| matches!(plan.death, Death::InShutdown { .. }));
        any(|plan| matches!(plan.fault, Some(Fault::Freeze { .. })));
        any(|plan| matches!(plan.fault, Some(Fault::Kill { .. })));
        any(|plan| matches!(plan.fault, Some(Fault::Restart { .. })));
        any(|plan| plan.fault.is_none());
        assert_eq!(plans.iter().filter(|plan| plan.source == Source::File).count(), 100);
    }
}
