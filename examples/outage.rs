//! A broker that answers nothing for a minute under full load, and the minutes after: how much went over the disk, how
//! fast it drained beside the live traffic, how much memory that took, and whether anything was lost or reordered.
//!
//! `fencepost route` is a process of its own, fed through a socket at a steady rate; a real broker is frozen by SIGSTOP
//! and thawed. What the topic and the dead-letter topic hold at the end is compared with what was sent. Run it by
//! `script/outage`, which builds all of it in release mode.

#[path = "../tests/common_kafka/mod.rs"]
mod common_kafka;

use common_kafka::admin::Admin;
use common_kafka::cluster::Cluster;
use common_kafka::reader::{consumer, read_topic};
use common_kafka::{Scratch, fresh_topic, now_ms};
use fencepost::trigger::{State, Trigger};
use fencepost::verify::{Checker, CheckerOptions, Ledger, Record};
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 24;
const DEVICES: u64 = 5_000;
/// Load before the outage, so that everything is warm.
const BEFORE: Duration = Duration::from_secs(10);
/// And after the drain, to see that all is as before.
const AFTER: Duration = Duration::from_secs(5);
const SAMPLE: Duration = Duration::from_millis(500);
/// A drain that takes longer is given up.
const DRAIN_LIMIT: Duration = Duration::from_secs(900);
/// Nothing more in the topics for so long: it will not come.
const STALLED: Duration = Duration::from_secs(30);

struct Options {
    route: String,
    policy: String,
    rate: u64,
    outage: Duration,
    json: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        route: "target/release/fencepost".into(),
        policy: "spill".into(),
        rate: 20_000,
        outage: Duration::from_secs(60),
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--json" {
            options.json = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{name} = {value} is no number"));
        match name.as_str() {
            "--route" => options.route = value,
            "--policy" => options.policy = value,
            "--rate" => options.rate = number()?,
            "--outage" => options.outage = Duration::from_secs(number()?),
            _ => return Err(format!("there is no {name}; see script/outage --help")),
        }
    }
    Ok(options)
}

/// Trigger `number`: the devices by turns, each a second later than its last one.
struct Load {
    first_ms: i64,
}

impl Load {
    fn line(&self, number: u64, out: &mut Vec<u8>) {
        let (device, fence, state, time) = self.row(number);
        let state = state.name();
        writeln!(
            out,
            "{{\"device_id\":\"{device}\",\"fence_id\":\"{fence}\",\"state\":\"{state}\",\"event_time_ms\":{time}}}"
        )
        .expect("to a vector nothing fails");
    }

    fn row(&self, number: u64) -> (String, String, State, i64) {
        let turn = number / DEVICES;
        let state = if turn.is_multiple_of(2) { State::Enter } else { State::Exit };
        (format!("veh:{}", number % DEVICES), format!("cell:{}", turn / 2), state, self.first_ms + turn as i64 * 1_000)
    }
}

/// One look at everything.
struct Sample {
    at: Duration,
    sent: u64,
    settled: u64,
    in_topics: u64,
    rss_bytes: u64,
}

#[derive(Default)]
struct Gauges {
    sent: AtomicU64,
    settled: AtomicU64,
    refused: AtomicU64,
    is_enough: AtomicBool,
}

fn main() -> ExitCode {
    match options() {
        Ok(options) => measure(&options),
        Err(why) => {
            eprintln!("outage: {why}");
            ExitCode::from(2)
        }
    }
}

fn measure(options: &Options) -> ExitCode {
    let cluster = Cluster::of(1);
    let topic = fresh_topic("outage");
    let dead = format!("{topic}.dlq");
    let admin = Admin::new(&cluster.bootstrap);
    admin.create_topic(&topic, PARTITIONS, &[]);
    admin.create_topic(&dead, PARTITIONS, &[]);
    let scratch = Scratch::new("outage");
    let socket = scratch.0.join("s");
    let mut route = start(options, &cluster.bootstrap, &topic, &scratch.0, &socket);
    let load = Load { first_ms: now_ms() - 6 * 86_400_000 };
    let (gauges, consumer) = (Gauges::default(), consumer(&cluster.bootstrap));
    let began = Instant::now();
    let mut samples = Vec::new();
    let (mut frozen, mut thawed, mut drained) = (Duration::ZERO, Duration::ZERO, None);
    let mut emptied = Duration::ZERO;
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| feed(&socket, &load, options.rate, &gauges));
        let look = |samples: &mut Vec<Sample>, is_there: bool| {
            // A broker that is away, or busy with coming back, is as far as it was.
            let ends = || Some(ends(&consumer, &topic)? + ends(&consumer, &dead)?);
            let in_topics = is_there.then(ends).flatten();
            let in_topics = in_topics.unwrap_or(samples.last().map_or(0, |sample| sample.in_topics));
            samples.push(Sample {
                at: began.elapsed(),
                // Relaxed: numbers to look at.
                sent: gauges.sent.load(Ordering::Relaxed),
                settled: gauges.settled.load(Ordering::Relaxed),
                in_topics,
                rss_bytes: rss_bytes(route.id()),
            });
        };
        let look_for = |samples: &mut Vec<Sample>, span: Duration, is_there: bool| {
            let until = Instant::now() + span;
            while Instant::now() < until {
                std::thread::sleep(SAMPLE);
                look(samples, is_there);
            }
        };
        look_for(&mut samples, BEFORE, true);
        cluster.order("freeze", &[1]);
        frozen = began.elapsed();
        look_for(&mut samples, options.outage, false);
        cluster.order("thaw", &[1]);
        thawed = began.elapsed();
        let sent_by_thaw = gauges.sent.load(Ordering::Relaxed);
        while drained.is_none() && began.elapsed() - thawed < DRAIN_LIMIT {
            look_for(&mut samples, SAMPLE, true);
            let last = samples.last().expect("one was taken");
            // Partitions are drained in order: when as many are there as had been sent by the thaw, the backlog is gone. What
            // is under way at any time is the live traffic's, and how much that is, the machine decides.
            if last.in_topics >= sent_by_thaw {
                drained = Some(last.at);
            }
        }
        look_for(&mut samples, AFTER, true);
        gauges.is_enough.store(true, Ordering::Release);
        peer.join().expect("the peer ends");
        // Nothing comes in any more: all of it shall be in the topics, as long as that gets more.
        let all = gauges.sent.load(Ordering::Relaxed);
        let (mut most, mut grew) = (0, Instant::now());
        while most < all && grew.elapsed() < STALLED {
            look_for(&mut samples, SAMPLE, true);
            let now = samples.last().expect("one was taken").in_topics;
            if now > most {
                (most, grew) = (now, Instant::now());
            }
        }
        emptied = began.elapsed();
    });
    let report = stop(&mut route);
    let sent = gauges.sent.load(Ordering::Relaxed);
    let verdict = compare(&cluster.bootstrap, &topic, &dead, &load, sent);
    let result = result(options, &samples, (frozen, thawed, drained), emptied, &report, &verdict, &gauges);
    if options.json {
        println!("{result}")
    } else {
        print_table(&result, &samples, (frozen, thawed, drained))
    }
    let is_good = result["lost"] == 0 && result["reordered"] == 0 && result["in_spill"] == 0 && drained.is_some();
    ExitCode::from(u8::from(!is_good))
}

fn start(options: &Options, bootstrap: &str, topic: &str, dir: &Path, socket: &Path) -> Child {
    let config = dir.join("fencepost.toml");
    let Options { policy, .. } = options;
    let text = format!(
        "topic.name = \"{topic}\"\nkafka.bootstrap = \"{bootstrap}\"\nqueue.ingresses = 2\ndivert.policy = \"{policy}\"\n\
         state.dir = {:?}\n[route]\nsource = \"unix\"\npath = {socket:?}\nconnections_max = 2\n",
        dir.join("state")
    );
    fs::write(&config, text).expect("the temporary directory can be written");
    let mut route = Command::new(&options.route)
        .args(["route", "--json", "-c"])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", options.route));
    let mut lines = BufReader::new(route.stderr.take().expect("a pipe")).lines();
    for line in &mut lines {
        let line = line.expect("it writes text");
        if line.starts_with("ready:") {
            break;
        }
        eprintln!("{line}");
    }
    // The rest of what it says, while it runs.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    route
}

/// Sends at the rate until it is enough, then waits until everything is settled.
fn feed(socket: &Path, load: &Load, rate: u64, gauges: &Gauges) {
    let stream = UnixStream::connect(socket).expect("the route listens");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&line).unwrap_or_default();
                match answer["settled"].as_u64() {
                    Some(settled) => gauges.settled.store(settled, Ordering::Relaxed),
                    None => {
                        gauges.refused.fetch_add(1, Ordering::Relaxed);
                        eprintln!("outage: {line}");
                    }
                }
            }
        });
        let mut writer = &stream;
        writer.write_all(b"{\"acks\":true}\n").expect("the route reads");
        let (began, mut next, mut lines) = (Instant::now(), 0, Vec::new());
        while !gauges.is_enough.load(Ordering::Acquire) {
            let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
            lines.clear();
            let until = due.clamp(next, next + 5_000);
            for number in next..until {
                load.line(number, &mut lines);
            }
            next = until;
            writer.write_all(&lines).expect("the route reads");
            gauges.sent.store(next, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
        stream.shutdown(Shutdown::Write).expect("the route is there");
    });
}

fn stop(route: &mut Child) -> Value {
    let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", route.id())]).status().expect("sh can be run");
    assert!(sent.success(), "the route is there");
    let mut text = String::new();
    route.stdout.take().expect("a pipe").read_to_string(&mut text).expect("it writes text");
    let code = route.wait().expect("our own child").code();
    let mut report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    report["exit_code"] = json!(code);
    report
}

/// How many records it holds; `None`: no answer in time.
fn ends(consumer: &BaseConsumer, topic: &str) -> Option<u64> {
    let end = |partition| consumer.fetch_watermarks(topic, partition, Duration::from_secs(2)).ok();
    (0..PARTITIONS as i32).map(|partition| end(partition).map(|(_, end)| end as u64)).sum()
}

fn rss_bytes(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("the route runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
}

/// What the topic and the dead letters hold, against what was sent. The dead letters have no order.
fn compare(bootstrap: &str, topic: &str, dead: &str, load: &Load, sent: u64) -> fencepost::verify::Verdict {
    let mut ledger = Ledger::with_capacity(sent as usize, DEVICES as usize);
    for number in 0..sent {
        let (device, fence, state, time) = load.row(number);
        ledger.accept(&Trigger::new(&device, &fence, state, time));
    }
    let mut checker = Checker::new(CheckerOptions::new(PARTITIONS));
    for record in read_topic(bootstrap, topic, PARTITIONS) {
        checker.record(&Record::new(record.partition, record.offset, &record.key, &record.value));
    }
    for record in read_topic(bootstrap, dead, PARTITIONS) {
        checker.set_aside(record.partition, &record.value);
    }
    checker.finish(&[ledger])
}

type Moments = (Duration, Duration, Option<Duration>);

fn result(
    options: &Options,
    samples: &[Sample],
    (frozen, thawed, drained): Moments,
    emptied: Duration,
    report: &Value,
    verdict: &fencepost::verify::Verdict,
    gauges: &Gauges,
) -> Value {
    let at = |moment: Duration| samples.iter().rfind(|sample| sample.at <= moment).unwrap_or(&samples[0]);
    let per_second = |count: u64, span: Duration| (count as f64 / span.as_secs_f64().max(1e-9)).round();
    let end = drained.unwrap_or(samples.last().expect("samples were taken").at);
    let drain = end - thawed;
    let live = at(end).sent - at(thawed).sent;
    let landed = at(end).in_topics - at(thawed).in_topics;
    let lag = samples.iter().map(|sample| sample.sent.saturating_sub(sample.settled)).max();
    let rss = |filter: &dyn Fn(&Sample) -> bool| {
        samples.iter().filter(|sample| filter(sample)).map(|sample| sample.rss_bytes).max()
    };
    let count = |name: &str| report[name].as_u64();
    json!({
        "policy": options.policy,
        "rate": options.rate,
        "outage_seconds": options.outage.as_secs(),
        "sent": gauges.sent.load(Ordering::Relaxed),
        "sent_in_outage": at(thawed).sent - at(frozen).sent,
        "settled_in_outage": at(thawed).settled - at(frozen).settled,
        "unsettled_max": lag,
        "refused": gauges.refused.load(Ordering::Relaxed),
        "accepted": count("accepted"),
        "spilled": count("spilled"),
        "delivered": count("delivered"),
        "dead_lettered": count("dead_lettered"),
        "in_spill": count("in_spill"),
        "unsettled": count("unsettled"),
        "adds_up": report["adds_up"],
        "exit_code": report["exit_code"],
        "drained": drained.is_some(),
        "drain_seconds": drain.as_secs_f64(),
        "emptied_seconds": emptied.saturating_sub(thawed).as_secs_f64(),
        "drain_rate_topics": per_second(landed, drain),
        "drain_rate_backlog": per_second(landed.saturating_sub(live), drain),
        "drain_rate_live": per_second(live, drain),
        "rss_bytes_before": rss(&|sample| sample.at <= frozen),
        "rss_bytes_outage_max": rss(&|sample| sample.at > frozen && sample.at <= thawed),
        "rss_bytes_drain_max": rss(&|sample| sample.at > thawed),
        "records": verdict.records,
        "set_aside": verdict.set_aside,
        "lost": verdict.lost,
        "repeated": verdict.repeated,
        "reordered": verdict.reordered,
        "foreign": verdict.foreign,
        "first_examples": verdict.first_examples,
    })
}

fn print_table(result: &Value, samples: &[Sample], (frozen, thawed, drained): Moments) {
    println!("{:>7}  {:<8}  {:>9}  {:>9}  {:>9}  {:>9}", "second", "phase", "sent", "settled", "in topics", "RSS MiB");
    for sample in samples.iter().step_by(10) {
        let phase = match sample.at {
            at if at <= frozen => "before",
            at if at <= thawed => "frozen",
            at if drained.is_none_or(|drained| at <= drained) => "drain",
            _ => "after",
        };
        let Sample { at, sent, settled, in_topics, rss_bytes } = sample;
        let (seconds, mib) = (at.as_secs_f64(), *rss_bytes as f64 / 1_048_576.0);
        println!("{seconds:>7.1}  {phase:<8}  {sent:>9}  {settled:>9}  {in_topics:>9}  {mib:>9.1}");
    }
    let Value::Object(all) = result else { return };
    println!();
    for (name, value) in all {
        println!("{name:>22}  {value}");
    }
}
