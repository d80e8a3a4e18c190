//! The router, the client alone and the Rust client's producer in turns.

use super::base::Base;
use super::context::{Context, Progress};
use super::driver::{Driver, Fencepost, Flood, Until, flood};
use super::ground::Where;
use super::load::Load;
use super::outcome::{Axis, Chart, Outcome, Table, Unit};
use super::raw::Raw;
use super::{CliError, Ground, Seconds, Spread};
use crate::cli::table::grouped;
use clap::Args;

/// The turns, in this order and then in the opposite one, so that whoever comes first comes last the next time.
const NAMES: [&str; 3] = ["fencepost", "raw", "base"];

#[derive(Args)]
pub(super) struct Versus {
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    seconds: Seconds,
    /// How many times each has its turn.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pairs: u64,
    /// Leave the Rust client's producer out.
    #[arg(long)]
    without_base: bool,
}

/// One turn of each, by [`NAMES`].
#[derive(Default)]
struct Turns {
    floods: [Option<Flood>; 3],
    /// The router's counters, where they do not add up.
    wrong: Option<String>,
}

impl Versus {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        let ground = Ground::prepare(&self.at, context)?;
        let load = Load::new();
        let mut places: Vec<usize> =
            (0..NAMES.len()).filter(|place| NAMES[*place] != "base" || !self.without_base).collect();
        let mut turns: Vec<Turns> = Vec::new();
        for pair in 1..=self.pairs {
            let mut turn = Turns::default();
            for &place in &places {
                let name = NAMES[place];
                let flood = self.take_turn(name, &ground, &load, context, &mut turn.wrong)?;
                tell!("  {pair:>2}  {name:<9}  {:>9}/s  {:>6.0} ns CPU", grouped(flood.rate as u64), flood.cpu_ns);
                turn.floods[place] = Some(flood);
            }
            places.reverse();
            turns.push(turn);
            if context.is_stopped() {
                break;
            }
        }
        Ok(self.outcome(&ground, &turns))
    }

    /// Starts the one named, lets it go as fast as it can, and stops it.
    fn take_turn(
        &self,
        name: &str,
        ground: &Ground,
        load: &Load,
        context: &Context,
        wrong: &mut Option<String>,
    ) -> Result<Flood, CliError> {
        let until = Until::Span(self.seconds.span());
        let run = |driver: &mut dyn Driver| {
            let mut progress = Progress::new();
            flood(driver, until, context, &mut |_, elapsed, acked| {
                progress
                    .tell(|| format!("    {name:<9}  {:>4} s  {:>14} acknowledged", elapsed.as_secs(), grouped(acked)));
                Ok(())
            })
        };
        match name {
            "fencepost" => {
                let mut fencepost = Fencepost::start(ground, load)?;
                let flood = run(&mut fencepost)?;
                let counts = fencepost.stop().counts;
                if counts.delivered != flood.records || !counts.add_up() {
                    *wrong = Some(counts.to_string());
                }
                Ok(flood)
            }
            "raw" => run(&mut Raw::start(ground, load)?),
            _ => run(&mut Base::start(ground, load)?),
        }
    }

    fn outcome(&self, ground: &Ground, turns: &[Turns]) -> Outcome {
        let title = "The router, librdkafka alone and the Rust client's producer, as fast as each goes, in turns.";
        let mut outcome = Outcome::new("vs-librdkafka", title.into());
        ground.describe(&mut outcome);
        outcome.set("seconds", "each turn", self.seconds.seconds, Unit::Seconds);
        outcome.set("pairs", "pairs", self.pairs, Unit::Count);
        let of = |place: usize, what: fn(&Flood) -> f64| {
            Spread::of(turns.iter().filter_map(|turn| turn.floods[place].as_ref().map(what)))
        };
        let of_raw = |place: usize, what: fn(&Flood) -> f64| {
            Spread::of(
                turns
                    .iter()
                    .filter_map(|turn| Some(what(turn.floods[place].as_ref()?) / what(turn.floods[1].as_ref()?))),
            )
        };
        let rate: fn(&Flood) -> f64 = |flood| flood.rate;
        let cpu: fn(&Flood) -> f64 = |flood| flood.cpu_ns;
        let columns = [
            ("who", Unit::None),
            ("records/s", Unit::PerSecond),
            ("low", Unit::PerSecond),
            ("high", Unit::PerSecond),
            ("of raw", Unit::Ratio),
            ("low", Unit::Ratio),
            ("high", Unit::Ratio),
            ("CPU each", Unit::Nanos),
            ("of raw", Unit::Ratio),
        ];
        let mut table = Table::new("Medians of the turns; low and high bound the middle half of them", &columns);
        let y = Axis::linear("records a second", Unit::PerSecond);
        let mut chart = Chart::new("Rate by turn", Axis::linear("pair", Unit::Count), y);
        for (place, name) in NAMES.iter().enumerate() {
            let spreads = (of(place, rate), of_raw(place, rate), of(place, cpu), of_raw(place, cpu));
            let (Some(rates), Some(ratio), Some(cpus), Some(cpu_ratio)) = spreads else { continue };
            table.row([
                (*name).into(),
                rates.median.into(),
                rates.low.into(),
                rates.high.into(),
                ratio.median.into(),
                ratio.low.into(),
                ratio.high.into(),
                cpus.median.into(),
                cpu_ratio.median.into(),
            ]);
            let rates =
                turns.iter().enumerate().filter_map(|(nth, turn)| Some((nth as f64 + 1.0, turn.floods[place]?.rate)));
            chart.curve(name, rates);
        }
        outcome.figure("ratio", "rate ÷ raw's", of_raw(0, rate).map(|spread| spread.median), Unit::Ratio);
        outcome.figure("cpu_ratio", "CPU time ÷ raw's", of_raw(0, cpu).map(|spread| spread.median), Unit::Ratio);
        let records: u64 = turns.iter().filter_map(|turn| turn.floods[0].as_ref().map(|flood| flood.records)).sum();
        outcome.figure("records", "of the router, in all", records, Unit::Count);
        let wrong: Vec<&str> = turns.iter().filter_map(|turn| turn.wrong.as_deref()).collect();
        outcome.check(
            "adds_up",
            wrong.is_empty(),
            match wrong.first() {
                None => format!("all {} triggers of the router's turns are acknowledged", grouped(records)),
                Some(counts) => format!("the router's counters do not add up in {} turns: {counts}", wrong.len()),
            },
        );
        outcome.tables.push(table);
        outcome.charts.push(chart);
        outcome.notes.push(
            "All have the same properties, records and partitions. raw is librdkafka alone: frames made beforehand, \
             handed over without a copy by one thread, reports taken as events; base is the safe producer of the Rust \
             client on top of it."
                .into(),
        );
        outcome
    }
}
