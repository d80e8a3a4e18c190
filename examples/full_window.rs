//! What a turn costs while a full window is diverted: every partition's window is full, the connection goes, all of it gets
//! its shadow, and triggers keep coming; then the brokers answer and everything is drained. One shard on the simulator's
//! sink and disk, turned by hand; a turn's time is the machine's, and includes what the simulated sink spends on a copy of
//! each frame. CASES P5 asks for a P99.9 below 1 ms.
//!
//! `cargo run --release --no-default-features --features sim --example full_window [TRIGGERS_A_TURN] [TURNS]`

use fencepost::config::{AgeLimit, Config};
use fencepost::engine::Blueprint;
use fencepost::ingress::{Ingress, Refused};
use fencepost::metrics::Histogram;
use fencepost::shard::Policy;
use fencepost::sim::clock::SimClock;
use fencepost::sim::host::{Host, small_spill};
use fencepost::spill::SpillLimits;
use fencepost::spill::faulty::FaultyDisk;
use fencepost::trigger::{State, Trigger};
use fencepost::units::Nanos;
use std::error::Error;
use std::time::Instant;

const PARTITIONS: u32 = 12;
const DEVICES: u64 = 4_000;

struct Load {
    host: Host,
    ingress: Ingress<SimClock>,
    a_turn: u64,
    submitted: u64,
    shed: u64,
}

impl Load {
    /// One turn, with as many submits before it. Returns how long it took.
    fn turn(&mut self) -> Result<Nanos, Refused> {
        let now_ms = self.host.clock.wall_ms();
        for _ in 0..self.a_turn {
            let (device, fence) = (format!("veh:{}", self.submitted % DEVICES), format!("zone:{}", self.submitted));
            match self.ingress.submit(&Trigger::new(&device, &fence, State::Enter, now_ms)) {
                Ok(_) => self.submitted += 1,
                Err(Refused::Shed(_)) => self.shed += 1,
                Err(other) => return Err(other),
            }
        }
        let began = Instant::now();
        self.host.shards[0].turn();
        let took = Nanos(began.elapsed().as_nanos() as u64);
        // The disk thread and the rest, and the shard's next turn, which is not counted.
        self.host.turn();
        self.host.clock.advance_ms(1);
        Ok(took)
    }

    /// Turns so many times, or until nothing is unsettled, and prints what the turns took.
    fn phase(&mut self, name: &str, turns: u64, until_settled: bool) -> Result<(), Refused> {
        let (times, mut most) = (Histogram::default(), Nanos(0));
        let mut count = 0;
        while count < turns {
            let took = self.turn()?;
            times.record(took);
            (most, count) = (most.max(took), count + 1);
            let counts = self.host.counts();
            if until_settled && counts.unsettled() + counts.in_spill == 0 {
                break;
            }
        }
        let of = |share: f64| times.snapshot().quantile(share).0 as f64 / 1_000.0;
        println!(
            "{name:<28} {count:>6} turns  P50 {:>7.1} us  P99 {:>7.1}  P99.9 {:>7.1}  most {:>7.1}",
            of(0.5),
            of(0.99),
            of(0.999),
            most.0 as f64 / 1_000.0
        );
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let a_turn = arguments.next().transpose()?.unwrap_or(50);
    let turns = arguments.next().transpose()?.unwrap_or(4_000);
    let mut config = Config::default();
    config.time.past_limit = Some(AgeLimit::Off);
    let blueprint = Blueprint {
        limits: config.limits()?,
        partitions: PARTITIONS,
        router_id: "router".to_owned(),
        incarnation: 1,
        record_time_is_event: false,
        policy: Policy::Spill,
        has_disk: true,
        has_letters: true,
        hash_seed: Some(1),
    };
    let spill = SpillLimits {
        limit_bytes: 1 << 30,
        partition_bytes: 1 << 30,
        segment_bytes: 16 << 20,
        reserve_bytes: 64 << 20,
        ..small_spill(PARTITIONS)
    };
    let host = Host::new(blueprint, Some(spill), SimClock::new(), FaultyDisk::new(1));
    let ingress = host.common.ingress().ok_or("there is a lane")?;
    let mut load = Load { host, ingress, a_turn, submitted: 0, shed: 0 };
    let window = config.inflight.partition as u64 * u64::from(PARTITIONS);
    println!("{} triggers a turn, {PARTITIONS} partitions, windows of {}", a_turn, config.inflight.partition);
    for broker in &load.host.brokers {
        broker.state().keeps_log = false;
    }
    load.phase("filling the windows", window.min(config.inflight.total as u64) / a_turn, false)?;
    load.phase("full, and diverted", turns, false)?;
    for broker in &load.host.brokers {
        broker.state().acks_by_itself = true;
    }
    load.phase("drained beside live traffic", turns, false)?;
    load.a_turn = 0;
    load.phase("drained to the end", 1_000_000, true)?;
    let counts = load.host.counts();
    println!("{counts}\nshed {}, over the disk {}", load.shed, counts.spilled);
    if counts.unsettled() > 0 || counts.in_spill > 0 || counts.delivered != load.submitted {
        return Err(format!("{} submitted, {} delivered", load.submitted, counts.delivered).into());
    }
    Ok(())
}
