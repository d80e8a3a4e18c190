//! Scales: from values to places between 0 and 1, and the ticks that a person reads them by.

use crate::cli::bench::outcome::{Axis, ScaleKind, Unit, trimmed};

/// Ticks on a linear axis, about.
const TICKS: f64 = 6.0;
/// The quantiles that are named on their axis.
const NINES: [f64; 7] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// A scale with its ticks.
#[derive(Clone, Debug)]
pub struct Scale {
    kind: ScaleKind,
    from: f64,
    to: f64,
    /// Values with their texts, rising.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// For values between `least` and `most`. `is_padded`: the axis ends at a tick, so that a curve does not touch the
    /// frame.
    pub(super) fn new(axis: &Axis, least: f64, most: f64, is_padded: bool) -> Scale {
        match axis.scale {
            ScaleKind::Linear => Scale::linear(axis.unit, most, is_padded),
            ScaleKind::Log => Scale::log(axis.unit, least, most),
            ScaleKind::Quantile => Scale::quantile(most),
        }
    }

    fn linear(unit: Unit, most: f64, is_padded: bool) -> Scale {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(unit, most);
        // A little less or more, so that what is a whole number of steps is one in floating point too.
        let count = if is_padded { (most / step * 0.999_999).ceil() } else { (most / step * 1.000_001).floor() };
        let ticks: Vec<(f64, String)> =
            (0..=count as u64).map(|n| n as f64 * step).map(|value| (value, tick_text(unit, value))).collect();
        let to = if is_padded { count * step } else { most };
        Scale { kind: ScaleKind::Linear, from: 0.0, to, ticks }
    }

    fn log(unit: Unit, least: f64, most: f64) -> Scale {
        let least = if least > 0.0 { least } else { 1.0 };
        let most = most.max(least * 1.000_001);
        let (from, to) = (least.log10(), most.log10());
        let decades = || (from.floor() as i32)..=(to.ceil() as i32);
        let steps: &[f64] = if to - from < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let values = decades().flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        let inside = values.filter(|value| (from - 1e-9..=to + 1e-9).contains(&value.log10()));
        let ticks = inside.map(|value| (value, tick_text(unit, value))).collect();
        Scale { kind: ScaleKind::Log, from, to, ticks }
    }

    fn quantile(most: f64) -> Scale {
        // At least two nines, so that a short run has an axis too.
        let to = nines(most).max(2.0);
        let ticks = NINES.iter().filter(|tick| nines(**tick) <= to + 1e-9);
        let ticks = ticks.map(|tick| (*tick, tick_text(Unit::Quantile, *tick))).collect();
        Scale { kind: ScaleKind::Quantile, from: 0.0, to, ticks }
    }

    /// Where a value lies: 0 at the beginning of the axis, 1 at its end. What is outside is at the nearer end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = match self.kind {
            ScaleKind::Linear => value,
            ScaleKind::Log => value.max(f64::MIN_POSITIVE).log10(),
            ScaleKind::Quantile => nines(value),
        };
        ((value - self.from) / (self.to - self.from).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    }
}

/// How many nines a quantile has: 0.99 has two.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-9).log10()
}

/// 1, 2 or 5 of a power of ten; of bytes a power of two.
fn step(unit: Unit, most: f64) -> f64 {
    let rough = most / TICKS;
    if unit == Unit::Bytes {
        return 2f64.powf(rough.log2().ceil()).max(1.0);
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= rough * 0.999_999);
    let step = step.unwrap_or(10.0 * power);
    // There is no half of a thing that is counted.
    if unit == Unit::Count { step.max(1.0) } else { step }
}

/// Short: the axis' label says what it is.
fn tick_text(unit: Unit, value: f64) -> String {
    if value == 0.0 && unit != Unit::Quantile {
        return "0".into();
    }
    let of = |table: &[(f64, &str)]| {
        let fitting = table.iter().rfind(|(least, _)| value >= *least * 0.999_999).unwrap_or(&table[0]);
        format!("{}{}", trimmed(value / fitting.0, 2), fitting.1)
    };
    match unit {
        Unit::Nanos => of(&[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")]),
        Unit::Bytes => of(&[(1.0, " B"), (1_024.0, " KiB"), (1_048_576.0, " MiB"), (1_073_741_824.0, " GiB")]),
        Unit::Count | Unit::PerSecond => of(&[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")]),
        Unit::Seconds => format!("{} s", trimmed(value, 2)),
        Unit::Quantile => unit.text(value),
        Unit::Ratio | Unit::None => trimmed(value, 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|tick| tick.1.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_begins_at_nought_and_ends_at_a_tick() {
        let scale = Scale::new(&Axis::linear("", Unit::Nanos), 1.0, 8.7e6, true);
        assert_eq!(texts(&scale), ["0", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms"]);
        assert_eq!((scale.place(0.0), scale.place(5e6), scale.place(1e9)), (0.0, 0.5, 1.0));
        let scale = Scale::new(&Axis::linear("", Unit::Bytes), 1.0, 150e6, true);
        assert_eq!(texts(&scale), ["0", "32 MiB", "64 MiB", "96 MiB", "128 MiB", "160 MiB"]);
        let scale = Scale::new(&Axis::linear("", Unit::PerSecond), 0.0, 133_372.0, true);
        assert_eq!(texts(&scale), ["0", "50k", "100k", "150k"]);
        let scale = Scale::new(&Axis::linear("", Unit::Count), 1.0, 2.0, false);
        assert_eq!(texts(&scale), ["0", "1", "2"]);
        let nothing = Scale::new(&Axis::linear("", Unit::Seconds), f64::INFINITY, f64::NEG_INFINITY, true);
        assert_eq!(texts(&nothing), ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s"]);
    }

    #[test]
    fn a_time_axis_ends_with_the_run() {
        let scale = Scale::new(&Axis::linear("", Unit::Seconds), 0.1, 9.3, false);
        assert_eq!(texts(&scale), ["0", "2 s", "4 s", "6 s", "8 s"]);
        assert_eq!(scale.place(9.3), 1.0);
    }

    #[test]
    fn each_nine_is_as_wide_as_the_one_before() {
        let axis = Axis { label: String::new(), unit: Unit::Quantile, scale: ScaleKind::Quantile };
        let scale = Scale::new(&axis, 0.0, 0.99999, true);
        assert_eq!(texts(&scale), ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]);
        for (quantile, place) in [(0.0, 0.0), (0.9, 0.2), (0.99, 0.4), (0.999, 0.6), (0.9999, 0.8), (0.99999, 1.0)] {
            assert!((scale.place(quantile) - place).abs() < 1e-6, "{quantile}: {}", scale.place(quantile));
        }
        assert_eq!(texts(&Scale::new(&axis, 0.0, 0.9, true)), ["0 %", "50 %", "90 %", "99 %"]);
    }

    #[test]
    fn a_log_axis_has_its_powers_and_a_short_one_more() {
        let scale = Scale::new(&Axis::log("", Unit::Count), 1e5, 16e6, true);
        assert_eq!(texts(&scale), ["100k", "1M", "10M"]);
        assert!((scale.place(1e5), scale.place(16e6)) == (0.0, 1.0));
        let scale = Scale::new(&Axis::log("", Unit::Count), 1e5, 1e6, true);
        assert_eq!(texts(&scale), ["100k", "200k", "500k", "1M"]);
    }
}
