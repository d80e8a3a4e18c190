//! The time from submit to acknowledgement, and to a consumer, at a rate.

use super::consumer::{Tail, Watching};
use super::context::Context;
use super::driver::{Driver, Fencepost};
use super::ground::Where;
use super::histogram::{QUANTILES, curve, new_histogram, quantile_row, quantile_table, quantiles};
use super::load::Load;
use super::outcome::{Chart, Outcome, Table, Unit};
use super::pace::{Pace, Paced};
use super::raw::Raw;
use super::{CliError, Ground, Seconds, Spread, process};
use crate::cli::table::{bytes, grouped, span};
use crate::units::Nanos;
use clap::Args;
use hdrhistogram::Histogram;
use std::time::Instant;

/// Seconds left out at the start of each turn: caches, branch predictors and the brokers' own buffers are cold.
const LEAD_IN: u64 = 1;
/// Seconds after which a turn's memory is looked at for the first time: buffers are there by then, and the dedup window
/// takes its keys only later, as the plan says.
const SETTLED_IN: u64 = 10;
/// Memory counts as flat when less than this share is added from then on, or less than [`GROWTH_BYTES`].
const GROWTH_MAX: f64 = 0.05;
const GROWTH_BYTES: u64 = 16 << 20;
/// The turns of a pair.
const NAMES: [&str; 2] = ["fencepost", "raw"];

#[derive(Args)]
pub(super) struct E2e {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    seconds: Seconds,
    /// Triggers a second.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=5_000_000))]
    rate: u64,
    /// How many times the router and the client alone have their turn.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pairs: u64,
    /// Leave the client alone out: the router has every turn.
    #[arg(long)]
    without_raw: bool,
    /// Leave the consumer out: it shares this machine with the router.
    #[arg(long)]
    without_consumer: bool,
}

/// One turn.
struct Turn {
    paced: Paced,
    /// From due to consumer, and how many records arrived; not of the client alone, whose frames were made beforehand.
    consumed: Option<(Histogram<u64>, u64)>,
    shed: u64,
    adds_up: bool,
    /// Resident once it has settled in and at the end, of the router's turns that are long enough.
    memory: Option<[u64; 2]>,
}

impl E2e {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        let ground = Ground::prepare(&self.at, context)?;
        let load = Load::new();
        let mut turns: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
        for pair in 0..self.pairs {
            // Whoever came first comes last the next time.
            let order = if pair.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for who in order.into_iter().filter(|who| *who == 0 || !self.without_raw) {
                if context.is_stopped() && !turns[0].is_empty() {
                    break;
                }
                let turn = if who == 0 {
                    self.router_turn(&ground, &load, context)?
                } else {
                    self.raw_turn(&ground, &load, context)?
                };
                let p99 = |histogram: &Histogram<u64>| span(Nanos(histogram.value_at_quantile(0.99)));
                let (ack, late) = (p99(&turn.paced.settled), p99(&turn.paced.late));
                tell!("  {:>2}  {:<9}  P99 {ack:>8}  loop late {late:>8}", pair + 1, NAMES[who]);
                turns[who].push(turn);
            }
        }
        Ok(self.outcome(&ground, &turns))
    }

    fn router_turn(&self, ground: &Ground, load: &Load, context: &Context) -> Result<Turn, CliError> {
        let mut router = Fencepost::start(ground, load)?;
        let tail = self.tail(ground, load, Watching::Latency)?;
        let mut settled_in = None;
        let paced = self.paced(&mut router, tail.as_ref(), context, &mut settled_in)?;
        let at_end = process::memory()?;
        let consumed = match tail {
            Some(tail) => Some(tail.finish()?),
            None => None,
        };
        let counts = router.stop().counts;
        Ok(Turn {
            adds_up: counts.add_up() && counts.delivered == paced.records,
            consumed: consumed.map(|seen| (seen.latency, seen.records)),
            shed: counts.shed,
            memory: settled_in.map(|settled_in| [settled_in, at_end]),
            paced,
        })
    }

    /// With a consumer too, if the router has one: what it takes of the machine must be taken from both.
    fn raw_turn(&self, ground: &Ground, load: &Load, context: &Context) -> Result<Turn, CliError> {
        let mut raw = Raw::start(ground, load)?;
        let tail = self.tail(ground, load, Watching::Nothing)?;
        let paced = self.paced(&mut raw, None, context, &mut None)?;
        if let Some(tail) = tail {
            tail.finish()?;
        }
        Ok(Turn { paced, consumed: None, shed: 0, adds_up: true, memory: None })
    }

    fn tail(&self, ground: &Ground, load: &Load, watching: Watching) -> Result<Option<Tail>, CliError> {
        if self.without_consumer { Ok(None) } else { Tail::start(ground, load, watching).map(Some) }
    }

    /// `settled_in`: the memory that is resident once the first tenth of the turn is over, at least [`SETTLED_IN`] of it.
    fn paced<D: Driver>(
        &self,
        driver: &mut D,
        tail: Option<&Tail>,
        context: &Context,
        settled_in: &mut Option<u64>,
    ) -> Result<Paced, CliError> {
        let pace = Pace::new(self.rate, driver.taken(), self.rate * LEAD_IN);
        if let Some(tail) = tail {
            tail.set_pace(pace);
        }
        let count = self.rate * (self.seconds.seconds + LEAD_IN);
        let (mut told, name) = (Instant::now(), driver.name());
        let settles_at = (self.seconds.seconds / 10).max(SETTLED_IN);
        pace.drive(driver, count, context, &mut |driver, now| {
            if settled_in.is_none() && now.as_secs() >= settles_at {
                *settled_in = Some(process::memory()?);
            }
            if told.elapsed().as_secs() >= 2 {
                told = Instant::now();
                tell!("      {name:<9}  {:>4} s  {:>12} offered", now.as_secs(), driver.taken());
            }
            Ok(true)
        })
    }

    fn outcome(&self, ground: &Ground, turns: &[Vec<Turn>; 2]) -> Outcome {
        let rate = Unit::PerSecond.text(self.rate as f64);
        let title = format!("From the moment a trigger was due to its acknowledgement and to a consumer, at {rate}.");
        let mut outcome = Outcome::new("e2e", title);
        ground.describe(&mut outcome);
        outcome.set("rate", "rate", self.rate, Unit::PerSecond);
        outcome.set("seconds", "each turn", self.seconds.seconds, Unit::Seconds);
        outcome.set("pairs", "pairs", self.pairs, Unit::Count);

        // The curves and the table are of all turns together; the figures are medians of the turns, as ratios are.
        let mut chart = Chart::by_quantile("Latency by quantile");
        let mut table = quantile_table("All turns together");
        let mut show = |name: &str, of: &mut dyn Iterator<Item = &Histogram<u64>>| {
            let mut all = new_histogram();
            of.for_each(|histogram| all.add(histogram).expect("both have the same bounds"));
            if !all.is_empty() {
                quantile_row(&mut table, name, &all);
                chart.curve(name, curve(&all));
            }
        };
        let [router, raw] = turns;
        show("fencepost, to acknowledged", &mut router.iter().map(|turn| &turn.paced.settled));
        let consumed = || router.iter().filter_map(|turn| turn.consumed.as_ref());
        show("fencepost, to consumer", &mut consumed().map(|consumed| &consumed.0));
        show("raw, to acknowledged", &mut raw.iter().map(|turn| &turn.paced.settled));
        show("the loop itself, late", &mut router.iter().map(|turn| &turn.paced.late));

        let columns = ["quantile", "fencepost", "raw", "ratio", "ratio, low", "ratio, high", "to consumer"];
        let units = [Unit::None, Unit::Nanos, Unit::Nanos, Unit::Ratio, Unit::Ratio, Unit::Ratio, Unit::Nanos];
        let columns: Vec<_> = columns.into_iter().zip(units).collect();
        let mut medians = Table::new("Medians of the turns", &columns);
        for (at, (name, _)) in QUANTILES.iter().enumerate() {
            let value = |turn: &Turn| quantiles(&turn.paced.settled)[at];
            let ratio = Spread::of(router.iter().zip(raw).map(|(router, raw)| value(router) / value(raw)));
            let to_consumer = Spread::of(consumed().map(|consumed| quantiles(&consumed.0)[at]));
            medians.row([
                (*name).into(),
                Spread::of(router.iter().map(value)).map(|spread| spread.median).into(),
                Spread::of(raw.iter().map(value)).map(|spread| spread.median).into(),
                ratio.map(|spread| spread.median).into(),
                ratio.map(|spread| spread.low).into(),
                ratio.map(|spread| spread.high).into(),
                to_consumer.map(|spread| spread.median).into(),
            ]);
        }
        let (p50, p99) = (medians.rows[0][1].clone(), medians.rows[2].clone());
        outcome.figure("ack_p50_ns", "P50 to acknowledged", p50, Unit::Nanos);
        for (name, label, cell, unit) in [
            ("ack_p99_ns", "P99 to acknowledged", 1, Unit::Nanos),
            ("raw_ack_p99_ns", "P99 of raw", 2, Unit::Nanos),
            ("ack_p99_ratio", "P99 to acknowledged ÷ raw's", 3, Unit::Ratio),
            ("consumer_p99_ns", "P99 to the consumer", 6, Unit::Nanos),
        ] {
            outcome.figure(name, label, p99[cell].clone(), unit);
        }
        for (name, label, turns) in [("cpu_ns", "CPU a trigger", router), ("raw_cpu_ns", "CPU a trigger of raw", raw)] {
            let cpu = Spread::of(turns.iter().map(|turn| turn.paced.cpu_ns));
            outcome.figure(name, label, cpu.map(|spread| spread.median), Unit::Nanos);
        }
        let taken: u64 = router.iter().map(|turn| turn.paced.records).sum();
        let shed: u64 = router.iter().map(|turn| turn.shed).sum();
        outcome.figure("accepted", "accepted", taken, Unit::Count);
        outcome.figure("shed", "shed", shed, Unit::Count);
        outcome.tables.extend([medians, table]);
        outcome.charts.push(chart);
        let adds_up = router.iter().all(|turn| turn.adds_up);
        outcome.check(
            "adds_up",
            adds_up,
            if adds_up {
                "all triggers that were accepted are acknowledged"
            } else {
                "not every trigger was delivered"
            },
        );
        if let Some([early, end]) =
            router.iter().filter_map(|turn| turn.memory).max_by_key(|[early, end]| end.saturating_sub(*early))
        {
            outcome.figure("memory_early_bytes", "resident after a tenth of the turn", early, Unit::Bytes);
            outcome.figure("memory_end_bytes", "resident at its end", end, Unit::Bytes);
            let is_flat = end <= early + GROWTH_BYTES.max((early as f64 * GROWTH_MAX) as u64);
            outcome.check(
                "memory_is_flat",
                is_flat,
                format!("resident memory went from {} to {}", bytes(early), bytes(end)),
            );
        }
        outcome.check("shed", shed == 0, format!("{shed} submits were refused for pressure"));
        if !self.without_consumer {
            let arrived: u64 = consumed().map(|consumed| consumed.1).sum();
            outcome.figure("consumed", "read by the consumer", arrived, Unit::Count);
            outcome.check(
                "consumed",
                arrived == taken,
                format!("the consumer read {} of {} triggers", grouped(arrived), grouped(taken)),
            );
        }
        outcome.notes.push(
            "A trigger's time begins when it was due, not when the loop came to it (coordinated omission). It ends when it \
             and all before it are acknowledged, or when the consumer has it. raw is librdkafka alone, with frames made \
             beforehand, for which only the acknowledgement is timed."
                .into(),
        );
        outcome
    }
}
