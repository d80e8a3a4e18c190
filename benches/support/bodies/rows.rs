//! A row of a source: a block cut into lines and each read into a trigger, as `fencepost route` does.
//!
//! Rows are fixed, without luck; their ids are as the vessels of the Suez canal have them:
//! - `usual`: as most programs write it, dense;
//! - `spaced`: with a space behind each colon and comma, as Python's `json.dumps` writes it;
//! - `sorted`: keys in the order of the alphabet;
//! - `laden`: with a priority and 200 bytes of attributes, some of them escaped;
//! - `frames`: the same rows as `usual`, as frames.

use super::{Body, Size};
use fencepost::source::{Batch, Feed, Format};
use fencepost::trigger::State;
use std::hint::black_box;

const STATES: [&str; 3] = ["enter", "exit", "dwell"];

fn row(at: usize) -> (String, String, &'static str, i64) {
    let (device, north, east) = (at * 7 % 256, 29_820 + at * 13 % 400, 32_500 + at * 29 % 120);
    let fence = format!("cell:{}.{:03}:{}.{:03}", north / 1_000, north % 1_000, east / 1_000, east % 1_000);
    (format!("vessel-{device}"), fence, STATES[at % 3], 1_616_198_400_000 + at as i64 * 977)
}

fn text(workload: &str, rows: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..rows {
        let (device, fence, state, time) = row(at);
        let line = match workload {
            "usual" => {
                format!(r#"{{"device_id":"{device}","fence_id":"{fence}","state":"{state}","event_time_ms":{time}}}"#)
            }
            "spaced" => {
                format!(
                    r#"{{"device_id": "{device}", "fence_id": "{fence}", "state": "{state}", "event_time_ms": {time}}}"#
                )
            }
            "sorted" => {
                format!(r#"{{"device_id":"{device}","event_time_ms":{time},"fence_id":"{fence}","state":"{state}"}}"#)
            }
            "laden" => {
                let attributes = format!(r#"{{\"speed\":12.5,\"note\":\"{}\"}}"#, "x".repeat(160));
                format!(
                    r#"{{"device_id":"{device}","fence_id":"{fence}","state":"{state}","event_time_ms":{time},"priority":"high","attributes":"{attributes}"}}"#
                )
            }
            _ => {
                let number = STATES.iter().position(|known| *known == state).unwrap() as u8 + 1;
                let mut frame = vec![0x08, 1, 0x12, device.len() as u8];
                frame.extend(device.as_bytes());
                frame.extend([0x1a, fence.len() as u8]);
                frame.extend(fence.as_bytes());
                frame.extend([0x20, number, 0x28]);
                let mut rest = time as u64;
                while rest >= 0x80 {
                    frame.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                frame.push(rest as u8);
                bytes.extend((frame.len() as u32).to_be_bytes());
                bytes.extend(frame);
                continue;
            }
        };
        bytes.extend(line.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// Reads all of it once, as the route does; returns how many rows and a sum that needs every field.
fn read(feed: &mut Feed, bytes: &[u8]) -> (usize, i64) {
    let (mut rows, mut sum, mut rest) = (0, 0i64, bytes);
    while !rest.is_empty() {
        feed.fill(&mut rest).unwrap();
        loop {
            let mut batch = Batch::new();
            if !feed.batch(&mut batch) {
                break;
            }
            assert_eq!(batch.faults().len(), 0);
            for trigger in black_box(batch.triggers()) {
                let state = trigger.state as i64 * (trigger.device_id.len() + trigger.fence_id.len()) as i64;
                sum = sum.wrapping_add(trigger.event_time_ms).wrapping_add(state);
                rows += 1;
            }
        }
    }
    (rows, sum)
}

/// Rows of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(256, 4_096)
}

/// All rows of a block, read.
pub struct Rows {
    bytes: Vec<u8>,
    feed: Feed,
    want: (usize, i64),
    got: (usize, i64),
    runs: usize,
}

impl Rows {
    pub fn new(workload: &str, size: Size) -> Rows {
        assert_eq!(State::Dwell as i64, 3);
        let rows = operations(size) as usize;
        let sum = (0..rows).map(row).fold(0, |sum, (device, fence, state, time)| {
            let state = STATES.iter().position(|known| *known == state).unwrap() as i64 + 1;
            sum + time + state * (device.len() + fence.len()) as i64
        });
        let format = if workload == "frames" { Format::Frames } else { Format::Ndjson };
        let feed = Feed::new(format, 65_536, 262_144);
        Rows { bytes: text(workload, rows), feed, want: (rows, sum), got: (0, 0), runs: 0 }
    }
}

impl Body for Rows {
    fn run(&mut self) {
        let (rows, sum) = read(&mut self.feed, black_box(&self.bytes));
        self.got = (self.got.0 + rows, self.got.1.wrapping_add(sum));
        self.runs += 1;
    }

    fn check(&mut self) {
        assert_eq!(self.got, (self.runs * self.want.0, self.want.1.wrapping_mul(self.runs as i64)));
    }
}
