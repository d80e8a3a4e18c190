//! The time from submit to acknowledgement at a rate.
//!
//! The loop is open: record n is due n / rate after the start, whatever became of the ones before, and its time begins
//! then. A loop that was held up offers what is due at once. All who take turns are driven by the same loop.

use super::consumer::Tail;
use super::driver::{DRAIN_LIMIT, Driver, Fencepost};
use super::load::Load;
use super::raw::Raw;
use super::{CliError, Common, Exit, Ground, Spread, process};
use crate::cli::table::span;
use crate::units::Nanos;
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;
use std::time::{Duration, Instant};

/// What is reported, by name.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
/// How long the loop rests when nothing is due; with the kernel's slack about 150 µs.
const REST: Duration = Duration::from_micros(100);
/// Left out at the start of each turn: caches, branch predictors and the brokers' own buffers are cold.
const LEAD_IN: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(super) struct E2e {
    #[command(flatten)]
    common: Common,
    /// Triggers a second.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=5_000_000))]
    rate: u64,
    /// How many times the router and the client alone have their turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pairs: u64,
    /// Read the topic too, on a thread of its own, and report the time from submit to consumer of the router's turns.
    #[arg(long)]
    consumer: bool,
}

/// One turn.
struct Turn {
    /// In nanoseconds, by [`QUANTILES`].
    ack: [f64; 4],
    consumed: Option<[f64; 4]>,
    /// How late the loop itself was, the same quantiles.
    late: [f64; 4],
    cpu_ns: f64,
    shed: u64,
}

impl E2e {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let ground = Ground::prepare(&self.common)?;
        let load = Load::new();
        let mut turns: Vec<(Turn, Turn)> = Vec::new();
        for pair in 0..self.pairs {
            let (router, raw);
            if pair.is_multiple_of(2) {
                router = self.router_turn(&ground, &load)?;
                raw = self.raw_turn(&ground, &load)?;
            } else {
                raw = self.raw_turn(&ground, &load)?;
                router = self.router_turn(&ground, &load)?;
            }
            for (name, turn) in [("fencepost", &router), ("raw", &raw)] {
                tell!(
                    "  {:>2}  {name:<9}  {}  loop late {}",
                    pair + 1,
                    quantiles_text(&turn.ack),
                    span(Nanos(turn.late[2] as u64))
                );
            }
            turns.push((router, raw));
        }
        self.print(&ground, &turns);
        Ok(if turns.iter().all(|(router, _)| router.shed == 0) { Exit::Done } else { Exit::Wrong })
    }

    fn router_turn(&self, ground: &Ground, load: &Load) -> Result<Turn, CliError> {
        let mut router = Fencepost::start(ground, load)?;
        let tail = if self.consumer { Some(Tail::start(ground)?) } else { None };
        let mut turn = self.paced(&mut router)?;
        turn.shed = router.router().counts().shed;
        turn.consumed = match tail {
            Some(tail) => Some(quantiles(&tail.stop()?)),
            None => None,
        };
        let report = router.stop();
        if !report.counts.add_up() {
            return Err(CliError::Wrong(format!("the router's counters do not add up: {}", report.counts)));
        }
        Ok(turn)
    }

    /// With a consumer too, if the router has one: what it takes of the machine must be taken from both. Its times mean
    /// nothing, since these frames were made beforehand.
    fn raw_turn(&self, ground: &Ground, load: &Load) -> Result<Turn, CliError> {
        let mut raw = Raw::start(ground, load)?;
        let tail = if self.consumer { Some(Tail::start(ground)?) } else { None };
        let turn = self.paced(&mut raw)?;
        if let Some(tail) = tail {
            tail.stop()?;
        }
        Ok(turn)
    }

    /// The loop. What is due is offered; then what came back is looked at; then a rest.
    fn paced(&self, driver: &mut dyn Driver) -> Result<Turn, CliError> {
        let count = self.rate * (self.common.seconds + LEAD_IN.as_secs());
        let lead_in = self.rate * LEAD_IN.as_secs();
        let due = |n: u64| Duration::from_nanos((u128::from(n) * 1_000_000_000 / u128::from(self.rate)) as u64);
        let (mut ack, mut late) = (new_histogram(), new_histogram());
        let first = driver.taken();
        let (mut offered, mut acked) = (0, 0);
        let (began, mut cpu) = (Instant::now(), Duration::ZERO);
        while acked < count {
            let now = began.elapsed();
            if now > due(count) + DRAIN_LIMIT {
                return Err(CliError::Unavailable(format!("{}: {acked} of {count} are acknowledged", driver.name())));
            }
            while offered < count && due(offered) <= now {
                // An answer of "pace yourself" leaves the record taken; only a refusal does not.
                driver.offer()?;
                if driver.taken() - first == offered {
                    break;
                }
                if offered >= lead_in {
                    note(&mut late, began.elapsed().saturating_sub(due(offered)));
                } else if offered + 1 == lead_in {
                    cpu = process::cpu_time()?;
                }
                offered += 1;
            }
            let upto = driver.acknowledged()?.saturating_sub(first);
            let now = began.elapsed();
            while acked < upto {
                if acked >= lead_in {
                    note(&mut ack, now.saturating_sub(due(acked)));
                }
                acked += 1;
            }
            if offered == count || due(offered) > now {
                std::thread::sleep(REST);
            }
        }
        let cpu = process::cpu_time()? - cpu;
        let cpu_ns = cpu.as_nanos() as f64 / (count - lead_in) as f64;
        Ok(Turn { ack: quantiles(&ack), consumed: None, late: quantiles(&late), cpu_ns, shed: 0 })
    }

    fn print(&self, ground: &Ground, turns: &[(Turn, Turn)]) {
        let spread = |of: &dyn Fn(&(Turn, Turn)) -> f64| Spread::of(turns.iter().map(of));
        let by_name = |of: &dyn Fn(&(Turn, Turn), usize) -> f64| {
            let each = QUANTILES
                .iter()
                .enumerate()
                .map(|(at, (name, _))| (name.to_string(), json!(Spread::of(turns.iter().map(|turn| of(turn, at))))));
            serde_json::Value::Object(each.collect())
        };
        let consumed: Vec<&[f64; 4]> = turns.iter().filter_map(|(router, _)| router.consumed.as_ref()).collect();
        let to_consumer =
            (!consumed.is_empty()).then(|| [0, 1, 2, 3].map(|at| Spread::of(consumed.iter().map(|all| all[at]))));
        if self.common.json {
            let result = json!({
                "bench": "e2e", "brokers": ground.brokers, "partitions": ground.partitions, "rate": self.rate,
                "seconds": self.common.seconds, "pairs": self.pairs,
                "ack_ns": { "fencepost": by_name(&|turn, at| turn.0.ack[at]), "raw": by_name(&|turn, at| turn.1.ack[at]) },
                "ratio": by_name(&|turn, at| turn.0.ack[at] / turn.1.ack[at]),
                "consumer_ns": to_consumer.map(|all| json!({ "p50": all[0], "p95": all[1], "p99": all[2], "p999": all[3] })),
                "loop_late_ns": { "fencepost": by_name(&|turn, at| turn.0.late[at]), "raw": by_name(&|turn, at| turn.1.late[at]) },
                "cpu_ns": { "fencepost": spread(&|turn| turn.0.cpu_ns), "raw": spread(&|turn| turn.1.cpu_ns) },
                "shed": turns.iter().map(|(router, _)| router.shed).sum::<u64>(),
            });
            say!("{result}");
            return;
        }
        say!(
            "{}/s for {} s on {} with {} partitions, {} pairs; submit to acknowledged, medians of the turns",
            self.rate,
            self.common.seconds,
            ground.brokers,
            ground.partitions,
            self.pairs
        );
        let medians =
            |of: &dyn Fn(&(Turn, Turn), usize) -> f64| [0, 1, 2, 3].map(|at| spread(&|turn| of(turn, at)).median);
        say!("  fencepost  {}", quantiles_text(&medians(&|turn, at| turn.0.ack[at])));
        say!("  raw        {}", quantiles_text(&medians(&|turn, at| turn.1.ack[at])));
        let ratio = spread(&|turn| turn.0.ack[2] / turn.1.ack[2]);
        say!("  P99 of raw's: {:.2} ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high);
        if let Some(all) = to_consumer {
            say!("  consumer   {}", quantiles_text(&all.map(|spread| spread.median)));
        }
        let (ours, theirs) = (spread(&|turn| turn.0.cpu_ns), spread(&|turn| turn.1.cpu_ns));
        say!("  CPU        {:.0} ns a trigger, raw {:.0} ns", ours.median, theirs.median);
    }
}

/// From a microsecond to a minute, three digits.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are those of the documentation")
}

pub(super) fn note(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

fn quantiles(histogram: &Histogram<u64>) -> [f64; 4] {
    QUANTILES.map(|(_, quantile)| histogram.value_at_quantile(quantile) as f64)
}

fn quantiles_text(values: &[f64; 4]) -> String {
    let named = QUANTILES.iter().zip(values);
    let texts: Vec<String> = named
        .map(|((name, _), value)| {
            format!("{} {:>8}", name.to_uppercase().replace("P999", "P99.9"), span(Nanos(*value as u64)))
        })
        .collect();
    texts.join("  ")
}
