//! What a source costs for each row: cutting a block into lines and reading each into a trigger, as `fencepost route`
//! does, without what the router does with it.
//!
//! Workloads (4,096 rows, ids as the vessels of the Suez canal have them):
//! - `usual`: as most programs write it, dense;
//! - `spaced`: with a space behind each colon and comma, as Python's `json.dumps` writes it;
//! - `sorted`: keys in the order of the alphabet;
//! - `laden`: with a priority and 200 bytes of attributes, some of them escaped;
//! - `frames`: the same rows as `usual`, as frames.
//!
//! The answers are checked before anything is timed. Figures are for one row.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fencepost::source::{Batch, Feed, Format};
use fencepost::trigger::State;
use std::hint::black_box;

const ROWS: usize = 4_096;
const STATES: [&str; 3] = ["enter", "exit", "dwell"];

fn row(at: usize) -> (String, String, &'static str, i64) {
    let (device, north, east) = (at * 7 % 256, 29_820 + at * 13 % 400, 32_500 + at * 29 % 120);
    let fence = format!("cell:{}.{:03}:{}.{:03}", north / 1_000, north % 1_000, east / 1_000, east % 1_000);
    (format!("vessel-{device}"), fence, STATES[at % 3], 1_616_198_400_000 + at as i64 * 977)
}

fn text(workload: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..ROWS {
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

fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("source");
    group.throughput(Throughput::Elements(ROWS as u64));
    for workload in ["usual", "spaced", "sorted", "laden", "frames"] {
        let format = if workload == "frames" { Format::Frames } else { Format::Ndjson };
        let bytes = text(workload);
        let want = (0..ROWS).map(row).fold(0, |sum, (device, fence, state, time)| {
            let state = STATES.iter().position(|known| *known == state).unwrap() as i64 + 1;
            sum + time + state * (device.len() + fence.len()) as i64
        });
        let mut feed = Feed::new(format, 65_536, 262_144);
        assert_eq!(read(&mut feed, &bytes), (ROWS, want), "{workload}");
        assert_eq!(State::Dwell as i64, 3);
        group.bench_function(workload, |bencher| {
            bencher.iter_batched_ref(|| (), |()| read(&mut feed, &bytes), BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, rows);
criterion_main!(benches);
