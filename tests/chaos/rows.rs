//! What the sources of the chaos send: recorded triggers of real devices where they are at hand, the simulated fleet
//! otherwise, again and again, so that there is no end. Every row has an idempotency key of its own: the number of the
//! pass stands in its fence.

use fencepost::sim::fleet::{Fleet, FleetOptions};
use fencepost::trigger::State;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Rows of the fleet, where there is no recording.
const FLEET_ROWS: usize = 20_000;

/// What makes two triggers the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub device: String,
    pub fence: String,
    pub state: State,
    pub second: i64,
}

impl Key {
    pub fn new(device: &str, fence: &str, state: State, event_time_ms: i64) -> Key {
        Key { device: device.into(), fence: fence.into(), state, second: event_time_ms.div_euclid(1_000) }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub device: String,
    pub fence: String,
    pub state: State,
    pub event_time_ms: i64,
}

impl Row {
    pub fn key(&self) -> Key {
        Key::new(&self.device, &self.fence, self.state, self.event_time_ms)
    }

    /// As a source writes it.
    pub fn line(&self) -> String {
        // The fleet's names hold whatever a name may hold.
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let (device, fence, state) = (text(&self.device), text(&self.fence), self.state.name());
        let event_time_ms = self.event_time_ms;
        format!(
            "{{\"device_id\":{device},\"fence_id\":{fence},\"state\":\"{state}\",\"event_time_ms\":{event_time_ms}}}\n"
        )
    }
}

/// An endless source. Row numbers begin at 0.
pub struct Rows {
    pub name: String,
    base: Vec<Row>,
}

impl Rows {
    /// The recording of this name, below FENCEPOST_DATA or ../shared/data; or a fleet of this seed whose devices carry
    /// the first half of the name.
    pub fn new(recording: &str, seed: u64) -> Rows {
        let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
        let path = std::env::var("FENCEPOST_DATA").map_or_else(|_| beside(), PathBuf::from).join(recording);
        let base = match std::fs::read_to_string(&path) {
            Ok(text) => text.lines().map(read_line).collect(),
            Err(_) => fleet(recording.split('-').next().unwrap_or(recording), seed),
        };
        // What a recording repeats would be collapsed or not, as time goes: here only the chaos shall repeat anything.
        let mut seen = HashSet::new();
        let base: Vec<Row> = base.into_iter().filter(|row| seen.insert(row.key())).collect();
        let kind = if path.exists() { "recorded" } else { "simulated" };
        Rows { name: format!("{recording}, {kind}, {} rows a pass", base.len()), base }
    }

    pub fn row(&self, number: u64) -> Row {
        let pass = number / self.base.len() as u64;
        let mut row = self.base[(number % self.base.len() as u64) as usize].clone();
        row.fence = format!("{}/{pass}", row.fence);
        row
    }
}

fn read_line(line: &str) -> Row {
    let value: serde_json::Value = serde_json::from_str(line).expect("a line of the recording is JSON");
    let text = |key: &str| value[key].as_str().expect("text").to_owned();
    let state = match value["state"].as_str() {
        Some("enter") => State::Enter,
        Some("exit") => State::Exit,
        Some("dwell") => State::Dwell,
        other => panic!("state {other:?}"),
    };
    let event_time_ms = value["event_time_ms"].as_i64().expect("a time");
    Row { device: text("device_id"), fence: text("fence_id"), state, event_time_ms }
}

fn fleet(prefix: &str, seed: u64) -> Vec<Row> {
    let options = FleetOptions { seed, devices: 500, rate: 2_000, repeat_ratio: 0.0, ..FleetOptions::default() };
    let mut fleet = Fleet::new(options).expect("the options hold");
    let row = |_| {
        let trigger = fleet.next().trigger;
        let device = format!("{prefix}-{}", trigger.device_id);
        Row { device, fence: trigger.fence_id.into(), state: trigger.state, event_time_ms: trigger.event_time_ms }
    };
    (0..FLEET_ROWS).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_comes_twice_in_two_passes_and_a_row_is_always_the_same() {
        for name in ["suez-vessels.ndjson", "geolife-phones.ndjson"] {
            let rows = Rows::new(name, 7);
            let pass = rows.base.len() as u64;
            let keys: HashSet<Key> = (0..2 * pass).map(|number| rows.row(number).key()).collect();
            assert_eq!(keys.len() as u64, 2 * pass, "{}", rows.name);
            assert_eq!(rows.row(pass + 3).line(), Rows::new(name, 7).row(pass + 3).line());
            assert_eq!(rows.row(3).device, rows.row(pass + 3).device);
        }
    }
}
