//! The peer of the socket: sends lines at a rate from its last settled position on, and reads what is settled until the
//! very end of the connection, so that no promise made before a kill is missed.

use super::rows::Rows;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(10);

/// What is done wrong on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    Nothing,
    /// The row of this number is left out for a copy of the next one, and nobody says so.
    Loss(u64),
    /// The rows of these numbers change places.
    Swap(u64, u64),
}

impl Plant {
    /// The first row from this one on whose device comes again soon, and that next row.
    pub fn swap(rows: &Rows, from: u64) -> Plant {
        let next = |at: u64| (at + 1..at + 1_000).find(|other| rows.row(*other).device == rows.row(at).device);
        let pair = (from..from + 1_000).find_map(|at| next(at).map(|other| (at, other)));
        let (one, other) = pair.expect("a device that comes twice within a thousand rows");
        Plant::Swap(one, other)
    }

    /// The number of the row that is sent in the place of row `number`.
    fn sent_as(self, number: u64) -> u64 {
        match self {
            Plant::Loss(at) if number == at => at + 1,
            Plant::Swap(one, other) if number == one => other,
            Plant::Swap(one, other) if number == other => one,
            _ => number,
        }
    }
}

/// What a peer knows at the end of its connection.
#[derive(Debug, Default)]
pub struct Fed {
    /// Rows below this number were sent, at least in part.
    pub sent: u64,
    /// Rows below this number are settled.
    pub settled: u64,
    /// Answers that are no acks.
    pub refused: Vec<String>,
}

pub struct Order<'a> {
    pub path: &'a Path,
    pub rows: &'a Rows,
    pub plant: Plant,
    /// The first row to send.
    pub from: u64,
    /// The row before which to end; `u64::MAX` for none.
    pub until: u64,
    pub rate: u32,
}

/// Sends until `stop`, or the end, or the death of the other side.
pub fn feed(order: &Order<'_>, stop: &AtomicBool) -> Fed {
    let mut fed = Fed { sent: order.from, settled: order.from, refused: Vec::new() };
    let Some(stream) = connect(order.path, stop) else { return fed };
    let settled = AtomicU64::new(order.from);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            let refused = hear(&stream, order.from, &settled);
            // Release, the writer's Acquire: it stops once nobody answers.
            is_over.store(true, Ordering::Release);
            refused
        });
        fed.sent = send(order, &stream, stop, &is_over);
        fed.refused = answers.join().expect("the answers were read");
    });
    // Relaxed: the thread that wrote it was joined.
    fed.settled = settled.load(Ordering::Relaxed);
    fed
}

fn connect(path: &Path, stop: &AtomicBool) -> Option<UnixStream> {
    while !stop.load(Ordering::Acquire) {
        if let Ok(stream) = UnixStream::connect(path) {
            return Some(stream);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Reads answers to the end of the connection, whoever ends it.
fn hear(stream: &UnixStream, from: u64, settled: &AtomicU64) -> Vec<String> {
    let mut refused = Vec::new();
    for line in BufReader::new(stream).lines() {
        // A reset: nothing more can come.
        let Ok(line) = line else { break };
        let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        match value["settled"].as_u64() {
            Some(count) => drop(settled.fetch_max(from + count, Ordering::Relaxed)),
            None => refused.push(line),
        }
    }
    refused
}

/// Returns the row before which sending ended.
fn send(order: &Order<'_>, mut stream: &UnixStream, stop: &AtomicBool, is_over: &AtomicBool) -> u64 {
    stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a socket takes a time-out");
    let mut left = b"{\"acks\":true}\n".to_vec();
    let (mut next, began) = (order.from, Instant::now());
    loop {
        while !left.is_empty() {
            match stream.write(&left) {
                Ok(count) => drop(left.drain(..count)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                }
                // It is dead, or has stopped reading.
                Err(_) => return next,
            }
            if is_over.load(Ordering::Acquire) {
                return next;
            }
        }
        if next == order.until || stop.load(Ordering::Acquire) {
            // A peer that is gone already needs no goodbye.
            let _ = stream.shutdown(Shutdown::Write);
            return next;
        }
        let due = order.from + (began.elapsed().as_secs_f64() * f64::from(order.rate)) as u64;
        if next >= due.min(order.until) {
            std::thread::sleep(TICK);
            continue;
        }
        // Not more at once than a source would hold.
        let until = due.min(order.until).min(next + 2_000);
        for number in next..until {
            left.extend(order.rows.row(order.plant.sent_as(number)).line().as_bytes());
        }
        next = until;
    }
}
