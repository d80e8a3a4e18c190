//! The router, the client alone and the Rust client's producer in turns.

use super::base::Base;
use super::driver::{Driver, Fencepost, Flood, flood};
use super::load::Load;
use super::raw::Raw;
use super::{CliError, Common, Exit, Ground, Spread};
use crate::cli::table::grouped;
use clap::Args;
use serde_json::json;
use std::time::Duration;

/// The turns, in this order and then in the opposite one, so that whoever comes first comes last the next time.
const NAMES: [&str; 3] = ["fencepost", "raw", "base"];

#[derive(Args)]
pub(super) struct Versus {
    #[command(flatten)]
    common: Common,
    /// How many times each has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pairs: u64,
    /// Leave the Rust client's producer out.
    #[arg(long)]
    without_base: bool,
}

impl Versus {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let ground = Ground::prepare(&self.common)?;
        let load = Load::new();
        let span = Duration::from_secs(self.common.seconds);
        let mut names: Vec<&str> = NAMES.into_iter().filter(|name| *name != "base" || !self.without_base).collect();
        let mut turns: Vec<[Option<Flood>; 3]> = Vec::new();
        for pair in 1..=self.pairs {
            let mut turn = [None; 3];
            for name in &names {
                let flood = take_turn(name, &ground, &load, span)?;
                tell!("  {pair:>2}  {name:<9}  {:>9}/s  {:>6.0} ns CPU", grouped(flood.rate as u64), flood.cpu_ns);
                turn[place(name)] = Some(flood);
            }
            names.reverse();
            turns.push(turn);
        }
        self.print(&ground, &turns);
        Ok(Exit::Done)
    }

    fn print(&self, ground: &Ground, turns: &[[Option<Flood>; 3]]) {
        let of = |name: &str, what: fn(&Flood) -> f64| {
            let values: Vec<f64> = turns.iter().filter_map(|turn| turn[place(name)].as_ref().map(what)).collect();
            (!values.is_empty()).then(|| Spread::of(values))
        };
        let ratio = |name: &str, to: &str, what: fn(&Flood) -> f64| {
            let each =
                |turn: &[Option<Flood>; 3]| Some(what(turn[place(name)].as_ref()?) / what(turn[place(to)].as_ref()?));
            let values: Vec<f64> = turns.iter().filter_map(each).collect();
            (!values.is_empty()).then(|| Spread::of(values))
        };
        let rate: fn(&Flood) -> f64 = |flood| flood.rate;
        let cpu: fn(&Flood) -> f64 = |flood| flood.cpu_ns;
        if self.common.json {
            let rows: Vec<_> = NAMES
                .iter()
                .filter_map(|name| {
                    Some(json!({
                        "name": name, "rate": of(name, rate)?, "cpu_ns": of(name, cpu)?,
                        "ratio": ratio(name, "raw", rate), "cpu_ratio": ratio(name, "raw", cpu),
                    }))
                })
                .collect();
            let head = json!({
                "bench": "vs-librdkafka", "brokers": ground.brokers, "partitions": ground.partitions,
                "seconds": self.common.seconds, "pairs": self.pairs, "rows": rows,
            });
            say!("{head}");
            return;
        }
        say!(
            "{} pairs of {} s on {} with {} partitions; medians, and the middle half of the turns",
            self.pairs,
            self.common.seconds,
            ground.brokers,
            ground.partitions
        );
        say!("             records/s                          of raw              CPU each   of raw");
        for name in NAMES {
            let (Some(rates), Some(cpus)) = (of(name, rate), of(name, cpu)) else { continue };
            let (Some(rate_ratio), Some(cpu_ratio)) = (ratio(name, "raw", rate), ratio(name, "raw", cpu)) else {
                continue;
            };
            say!(
                "{name:<10}  {:>9} ({:>9} to {:>9})  {:.2} ({:.2} to {:.2})  {:>6.0} ns  {:.2}",
                grouped(rates.median as u64),
                grouped(rates.low as u64),
                grouped(rates.high as u64),
                rate_ratio.median,
                rate_ratio.low,
                rate_ratio.high,
                cpus.median,
                cpu_ratio.median
            );
        }
    }
}

fn place(name: &str) -> usize {
    NAMES.iter().position(|known| *known == name).expect("a name of the list")
}

/// Starts the one named, lets it go as fast as it can, and stops it.
fn take_turn(name: &str, ground: &Ground, load: &Load, span: Duration) -> Result<Flood, CliError> {
    let run = |driver: &mut dyn Driver| flood(driver, span, &mut |_, _| {});
    match name {
        "fencepost" => {
            let mut fencepost = Fencepost::start(ground, load)?;
            let flood = run(&mut fencepost)?;
            let report = fencepost.stop();
            if report.counts.delivered != flood.records || !report.counts.add_up() {
                return Err(CliError::Wrong(format!("the router's counters do not add up: {}", report.counts)));
            }
            Ok(flood)
        }
        "raw" => run(&mut Raw::start(ground, load)?),
        _ => run(&mut Base::start(ground, load)?),
    }
}
