//! What all measurements read: triggers of the simulated fleet. The same seed gives the same rows on every machine.

use fencepost::sim::fleet::{Fleet, FleetOptions, RATE_PER_DEVICE_MAX};
use fencepost::trigger::State;
use std::io::{Result, Write};

/// One trigger that owns its ids.
pub struct Row {
    /// Who, as a number below the fleet's size.
    pub device: u32,
    /// Who, as written.
    pub device_id: String,
    /// Where.
    pub fence_id: String,
    /// What.
    pub state: State,
    /// When.
    pub event_time_ms: i64,
}

/// Triggers without repeats, of so many devices and fences; the popularity of fences follows a power law.
///
/// # Panics
/// If the fleet refuses the options.
pub fn rows(count: usize, devices: u32, fences: u32, seed: u64) -> Vec<Row> {
    let rate = FleetOptions::default().rate.min(devices * RATE_PER_DEVICE_MAX);
    let options = FleetOptions { seed, devices, fences, rate, repeat_ratio: 0.0, ..FleetOptions::default() };
    let mut fleet = Fleet::new(options).expect("the fleet's options are within its bounds");
    (0..count)
        .map(|_| {
            let sample = fleet.next();
            Row {
                device: sample.device,
                device_id: sample.trigger.device_id.to_owned(),
                fence_id: sample.trigger.fence_id.to_owned(),
                state: sample.trigger.state,
                event_time_ms: sample.trigger.event_time_ms,
            }
        })
        .collect()
}

/// Rows as `fencepost route` reads them, 5 % of them repeats.
///
/// # Errors
/// What writing says.
pub fn write(count: u64, seed: u64, out: &mut impl Write) -> Result<()> {
    let mut fleet = Fleet::new(FleetOptions { seed, ..FleetOptions::default() }).expect("the default with a seed");
    for _ in 0..count {
        let trigger = fleet.next().trigger;
        // Ids of a fleet have letters of all kinds, and some that JSON escapes.
        let [device, fence] = [trigger.device_id, trigger.fence_id].map(serde_json::Value::from);
        let (state, time) = (trigger.state.name(), trigger.event_time_ms);
        writeln!(out, r#"{{"device_id":{device},"fence_id":{fence},"state":"{state}","event_time_ms":{time}}}"#)?;
    }
    Ok(())
}

/// Recorded rows over and over, as `fencepost route` reads them: each time round with other devices, an hour later, and one row
/// in ten is an exact repeat of one of the hundred before it.
///
/// # Errors
/// What the recording or writing says.
pub fn write_again(recorded: &str, count: u64, out: &mut impl Write) -> std::result::Result<(), super::Failed> {
    const AGO: usize = 100;
    const ROUND_MS: i64 = 3_600_000;
    let recorded: Vec<serde_json::Value> =
        recorded.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
    if recorded.is_empty() {
        return Err("the recording has no rows".into());
    }
    let (mut fresh, mut last) = (0, std::collections::VecDeque::with_capacity(AGO));
    for nth in 0..count {
        if nth % 10 == 9 {
            let line: &String = &last[(nth as usize * 7_919) % last.len()];
            out.write_all(line.as_bytes())?;
            continue;
        }
        let (row, round) = (&recorded[fresh % recorded.len()], fresh / recorded.len());
        fresh += 1;
        let text = |name: &str| row[name].as_str().ok_or_else(|| format!("a row without {name}: {row}"));
        let time = row["event_time_ms"].as_i64().ok_or("a row without its time")? + round as i64 * ROUND_MS;
        let device = serde_json::Value::from(format!("{}-{round}", text("device_id")?));
        let (fence, state) = (&row["fence_id"], text("state")?);
        let line =
            format!("{{\"device_id\":{device},\"fence_id\":{fence},\"state\":\"{state}\",\"event_time_ms\":{time}}}\n");
        out.write_all(line.as_bytes())?;
        if last.len() == AGO {
            last.pop_front();
        }
        last.push_back(line);
    }
    Ok(())
}

/// The middle of some figures, and the least and the most.
pub fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// 1,234,567 for people.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `median (least to most)`.
pub fn spread_text(values: Vec<f64>, show: impl Fn(f64) -> String) -> String {
    let (median, least, most) = spread(values);
    if least.to_bits() == most.to_bits() {
        return show(median);
    }
    format!("{} ({} to {})", show(median), show(least), show(most))
}
