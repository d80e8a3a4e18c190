//! Where a consumer keeps what it knows of a device: in a map of its own, or in Redis. Eight consumers share 24 partitions as a
//! group does; for each trigger a consumer looks up its device and writes the new state. A device is in one partition,
//! so no two consumers meet at a key.
//!
//! The time of a trigger runs from its lookup to its update's answer; with a pipeline, that of its whole batch, since it waits for
//! that. The local figure includes reading the clock twice, some 50 ns. Afterwards the counts in all states must add up to the
//! triggers that were handled.

use super::Failed;
use super::input::{Row, grouped, rows, spread_text};
use fencepost::partition::partition_of;
use hdrhistogram::Histogram;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 24;
const CONSUMERS: u32 = 8;
/// The local map is so fast that its turn would be too short for a clock with one pass.
const LOCAL_PASSES: usize = 10;

/// One turn.
pub struct Found {
    /// Triggers a second, each a lookup and an update.
    pub rate: f64,
    /// In microseconds.
    pub p99_us: f64,
    /// What the states count in all.
    pub counted: u64,
}

/// What is known of a device.
#[derive(Default)]
struct Known {
    count: u64,
    fence: String,
    state: u8,
}

/// The triggers of each consumer.
pub fn shared_out(triggers: &[Row]) -> Vec<Vec<&Row>> {
    let mut each: Vec<Vec<&Row>> = (0..CONSUMERS).map(|_| Vec::new()).collect();
    for row in triggers {
        let partition = partition_of(row.device_id.as_bytes(), PARTITIONS);
        each[(partition.0 % CONSUMERS) as usize].push(row);
    }
    each
}

/// Runs all consumers at once. Afterwards, when the clock has stopped, each says what its states count.
fn together<'a, T>(
    triggers: &'a [Row],
    handled: usize,
    make: impl Fn() -> Result<T, Failed> + Sync,
    consume: impl Fn(&mut T, &[&'a Row], &mut Histogram<u64>) -> Result<(), Failed> + Sync,
    count: impl Fn(T, &[&'a Row]) -> Result<u64, Failed> + Sync,
) -> Result<Found, Failed> {
    let shares = shared_out(triggers);
    let barrier = Barrier::new(shares.len() + 1);
    let (ends, took) = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter()
            .map(|share| {
                scope.spawn(|| {
                    let mut place = make();
                    barrier.wait();
                    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are good");
                    let consumed = place.as_mut().map(|place| consume(place, share, &mut histogram));
                    barrier.wait();
                    if let Ok(consumed) = consumed {
                        consumed?;
                    }
                    Ok::<_, Failed>((histogram, count(place?, share)?))
                })
            })
            .collect();
        barrier.wait();
        let began = Instant::now();
        barrier.wait();
        let took = began.elapsed();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a consumer panicked")).collect();
        (ends, took)
    });
    let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let mut counted = 0;
    for end in ends {
        let (histogram, count) = end?;
        all.add(histogram)?;
        counted += count;
    }
    let rate = handled as f64 / took.as_secs_f64();
    Ok(Found { rate, p99_us: all.value_at_quantile(0.99) as f64 / 1e3, counted })
}

fn note(histogram: &mut Histogram<u64>, took: Duration, times: u64) {
    histogram.saturating_record_n(took.as_nanos() as u64, times);
}

/// A map for each consumer.
///
/// # Errors
/// None.
pub fn local(triggers: &[Row], passes: usize) -> Result<Found, Failed> {
    together(
        triggers,
        triggers.len() * passes,
        || Ok(HashMap::<&str, Known>::new()),
        |known, share, histogram| {
            for _ in 0..passes {
                for row in share {
                    let began = Instant::now();
                    match known.get_mut(row.device_id.as_str()) {
                        Some(known) => {
                            known.count += 1;
                            known.fence.clear();
                            known.fence.push_str(&row.fence_id);
                            known.state = row.state as u8;
                        }
                        None => {
                            let first = Known { count: 1, fence: row.fence_id.clone(), state: row.state as u8 };
                            known.insert(&row.device_id, first);
                        }
                    }
                    note(histogram, began.elapsed(), 1);
                }
            }
            Ok(())
        },
        |known, _| Ok(known.values().map(|known| known.count).sum()),
    )
}

/// A connection to Redis that speaks as much of its protocol as is needed here.
struct Redis {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Redis {
    fn connect(address: &str) -> Result<Redis, Failed> {
        let stream = TcpStream::connect(address).map_err(|error| format!("Redis at {address}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Redis { stream: BufReader::new(stream), out: Vec::new() })
    }

    fn say(&mut self, words: &[&[u8]]) {
        let _ = write!(self.out, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.out, "${}\r\n", word.len());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    fn send(&mut self) -> Result<(), Failed> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    fn answer(&mut self) -> Result<Option<Vec<u8>>, Failed> {
        read_answer(&mut self.stream)
    }
}

/// One answer: a status, a number or a text, `None` for nothing there.
///
/// # Errors
/// What Redis complains of, or what is no answer.
pub fn read_answer(from: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failed> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", rest)) => Ok(Some(rest.as_bytes().to_vec())),
        Some(("$", "-1")) => Ok(None),
        Some(("$", len)) => {
            let mut text = vec![0; len.parse::<usize>()? + 2];
            from.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(Some(text))
        }
        _ => Err(format!("Redis answered {line:?}").into()),
    }
}

/// A state's count, which stands first.
fn count_of(text: &[u8]) -> Result<u64, Failed> {
    let text = std::str::from_utf8(text)?;
    Ok(text.split('|').next().unwrap_or_default().parse()?)
}

/// One Redis for all, in batches of `pipeline`.
///
/// # Errors
/// What Redis or the network says.
pub fn redis(address: &str, triggers: &[Row], pipeline: usize) -> Result<Found, Failed> {
    let mut first = Redis::connect(address)?;
    first.say(&[b"FLUSHALL"]);
    first.send()?;
    first.answer()?;
    together(
        triggers,
        triggers.len(),
        || Redis::connect(address),
        |redis, share, histogram| {
            for batch in share.chunks(pipeline) {
                let began = Instant::now();
                for row in batch {
                    redis.say(&[b"GET", row.device_id.as_bytes()]);
                }
                redis.send()?;
                // A device that comes twice in a batch is looked up once in vain; its count goes on from the newer one.
                let mut counts: HashMap<&str, u64> = HashMap::new();
                for row in batch {
                    let known = redis.answer()?.map_or(Ok(0), |text| count_of(&text))?;
                    counts.entry(&row.device_id).or_insert(known);
                }
                for row in batch {
                    let count = counts.get_mut(row.device_id.as_str()).expect("it was just put in");
                    *count += 1;
                    let text = format!("{count}|{}|{}", row.fence_id, row.state as u8);
                    redis.say(&[b"SET", row.device_id.as_bytes(), text.as_bytes()]);
                }
                redis.send()?;
                for _ in batch {
                    redis.answer()?;
                }
                note(histogram, began.elapsed(), batch.len() as u64);
            }
            Ok(())
        },
        |mut redis, share| {
            let mut counted = 0;
            let devices: HashSet<&str> = share.iter().map(|row| row.device_id.as_str()).collect();
            for device in devices {
                redis.say(&[b"GET", device.as_bytes()]);
                redis.send()?;
                counted += count_of(&redis.answer()?.ok_or("a state is missing")?)?;
            }
            Ok(counted)
        },
    )
}

/// The table, in Markdown.
///
/// # Errors
/// What Redis says, or a sum that is wrong.
pub fn table(redis_at: Option<&str>, count: usize, rounds: u64) -> Result<String, Failed> {
    let triggers = rows(count, 4_000, 6_000, 1);
    let names = ["map of its own", "Redis, a command at a time", "Redis, pipelines of 100"];
    let mut turns: [Vec<Found>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds as usize {
        for turn in 0..3 {
            let who = (round + turn) % 3;
            let (found, want) = match (who, redis_at) {
                (0, _) => (local(&triggers, LOCAL_PASSES)?, count * LOCAL_PASSES),
                (_, None) => continue,
                (1, Some(address)) => (redis(address, &triggers, 1)?, count),
                (_, Some(address)) => (redis(address, &triggers, 100)?, count),
            };
            if found.counted != want as u64 {
                return Err(format!("{}: the states count {} of {want}", names[who], found.counted).into());
            }
            turns[who].push(found);
        }
    }
    let mut text = String::from("| state of a consumer | lookups with update/s, 8 consumers | P99 |\n|---|---|---|\n");
    for (name, found) in names.iter().zip(&turns) {
        if found.is_empty() {
            writeln!(text, "| {name} | skipped: no Redis | |")?;
            continue;
        }
        let rate = spread_text(found.iter().map(|found| found.rate).collect(), grouped);
        let p99 = spread_text(found.iter().map(|found| found.p99_us).collect(), |value| match value {
            ..1_000.0 => format!("{value:.1} µs"),
            _ => format!("{:.1} ms", value / 1e3),
        });
        writeln!(text, "| {name} | {rate} | {p99} |")?;
    }
    Ok(text)
}
