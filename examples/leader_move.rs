//! What the graceful move of one partition's leader costs the partitions that other brokers lead.
//!
//! A router gets triggers for all partitions at a steady rate, in an open loop. Windows of a few seconds take turns: one
//! with a move in its middle, one without (A B, B A …). A trigger's time begins when it was due and ends when it and all
//! before it of its partition are settled, which without anything spilled means acknowledged by all replicas in sync:
//! each partition has an ingress of its own, whose watermark is the partition's. (`LogAppendTime` would be the leader's
//! time before the followers have it, in whole milliseconds.) The moves are asked for over a socket and cost nothing; an
//! independent reader compares the topic with what was accepted. Run it by `script/leader-move`.

#[path = "../tests/common_kafka/mod.rs"]
mod common_kafka;

use common_kafka::admin::Admin;
use common_kafka::cluster::Cluster;
use common_kafka::leaders::Leaders;
use common_kafka::reader::{judge, read_topic};
use common_kafka::{Mock, PATIENCE, Scratch, fresh_topic, now_ms};
use fencepost::clock::SystemClock;
use fencepost::engine::{Report, Router};
use fencepost::ingress::{Ingress, Refused};
use fencepost::partition::partition_of;
use fencepost::trigger::{State, Trigger};
use fencepost::verify::{Ledger, Verdict};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 12;
const DEVICES_A_PARTITION: u64 = 50;
/// Load before the first window, so that everything is warm: brokers compile what they run most.
const WARM_UP: Duration = Duration::from_secs(20);
/// What a new topic gets to be known to every broker, also on a busy machine.
const TOPIC_KNOWN: Duration = Duration::from_secs(3);
/// Between two windows: what is late in one is over before the next.
const GAP: Duration = Duration::from_millis(1_500);
/// From a move on, what is looked at once more by itself.
const AFTER_MOVE: Duration = Duration::from_secs(2);
/// How long what was spilled may take to the topic, at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(180);
/// How often the driver looks at what is due and what is settled.
const LOOK: Duration = Duration::from_micros(500);

struct Options {
    rate: u64,
    pairs: usize,
    window: Duration,
    json: bool,
    /// `linger.ms`; what the configuration has by itself where it is not given.
    linger: Option<u64>,
    /// In this process, by the client library's mock: brokers that take hardly any of the cores.
    mock: bool,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { rate: 5_000, pairs: 8, window: Duration::from_secs(6), json: false, linger: None, mock: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--json" {
            options.json = true;
            continue;
        }
        if name == "--mock" {
            options.mock = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let number: u64 = value.parse().map_err(|_| format!("{name} = {value} is no number"))?;
        match name.as_str() {
            "--rate" if number > 0 => options.rate = number,
            "--pairs" if number > 0 => options.pairs = number as usize,
            "--linger" if number > 0 => options.linger = Some(number),
            "--window" if number >= 4 => options.window = Duration::from_secs(number),
            "--rate" | "--pairs" | "--window" | "--linger" => return Err(format!("{name} = {value} is too small")),
            _ => return Err(format!("there is no {name}; see script/leader-move --help")),
        }
    }
    Ok(options)
}

/// What a partition is to a move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Moved,
    /// Led by the broker that gives the leadership, or by the one that takes it.
    Shared,
    /// Led by a third.
    Other,
}

const GROUPS: [(Group, &str); 3] =
    [(Group::Moved, "moved"), (Group::Shared, "same_brokers"), (Group::Other, "other_leaders")];

/// One move: the windows of a pair look at the same groups.
struct Move {
    partition: u32,
    to: i32,
    /// The new order of its replicas.
    replicas: Vec<i32>,
    groups: Vec<Group>,
}

/// There and back again, one partition after the other: no broker ever leads more than one above its share.
fn moves(pairs: usize, mut leaders: Vec<i32>, mut replicas: Vec<Vec<i32>>) -> Vec<Move> {
    let mut home = 0;
    let plan = |pair: usize| {
        let partition = pair / 2 * 5 % PARTITIONS as usize;
        let from = leaders[partition];
        let to = if pair.is_multiple_of(2) {
            home = from;
            // By turns to each of the two others.
            let others: Vec<i32> = replicas[partition].iter().copied().filter(|&replica| replica != from).collect();
            others[pair / 2 % others.len()]
        } else {
            home
        };
        let group = |(other, leader): (usize, &i32)| match *leader {
            _ if other == partition => Group::Moved,
            leader if leader == from || leader == to => Group::Shared,
            _ => Group::Other,
        };
        let groups = leaders.iter().enumerate().map(group).collect();
        leaders[partition] = to;
        replicas[partition].sort_by_key(|&replica| replica != to);
        Move { partition: partition as u32, to, replicas: replicas[partition].clone(), groups }
    };
    (0..pairs).map(plan).collect()
}

/// A window, in the time since the load began.
#[derive(Clone, Copy)]
struct Window {
    pair: usize,
    is_moved: bool,
    begin: Duration,
    middle: Duration,
    end: Duration,
}

fn windows(options: &Options) -> Vec<Window> {
    let window = |nth: usize| {
        let (pair, is_first) = (nth / 2, nth.is_multiple_of(2));
        let begin = WARM_UP + (options.window + GAP) * nth as u32;
        Window {
            pair,
            is_moved: pair.is_multiple_of(2) == is_first,
            begin,
            middle: begin + options.window / 2,
            end: begin + options.window,
        }
    };
    (0..options.pairs * 2).map(window).collect()
}

/// How long one trigger took.
struct Sample {
    due: Duration,
    took: Duration,
    partition: u32,
}

/// The devices of each partition by turns; each trigger is one of its own.
struct Load {
    devices: Vec<Vec<String>>,
    first_ms: i64,
}

impl Load {
    fn new() -> Load {
        let mut devices = vec![Vec::new(); PARTITIONS as usize];
        let is_short = |devices: &[Vec<String>]| devices.iter().any(|of| of.len() < DEVICES_A_PARTITION as usize);
        for number in 0.. {
            if !is_short(&devices) {
                break;
            }
            let device = format!("veh:{number}");
            let of = &mut devices[partition_of(device.as_bytes(), PARTITIONS).0 as usize];
            if of.len() < DEVICES_A_PARTITION as usize {
                of.push(device);
            }
        }
        Load { devices, first_ms: now_ms() - 6 * 86_400_000 }
    }

    fn trigger<'a>(&'a self, number: u64, fence: &'a mut String) -> Trigger<'a> {
        let (partition, nth) = (number % u64::from(PARTITIONS), number / u64::from(PARTITIONS));
        let turn = nth / DEVICES_A_PARTITION;
        let state = if turn.is_multiple_of(2) { State::Enter } else { State::Exit };
        fence.clear();
        write!(fence, "cell:{}", turn / 2).expect("to a string nothing fails");
        let device = &self.devices[partition as usize][(nth % DEVICES_A_PARTITION) as usize];
        Trigger::new(device, fence, state, self.first_ms + turn as i64 * 1_000)
    }
}

/// One partition's way in, and what is under way there.
struct Lane {
    ingress: Ingress<SystemClock>,
    ledger: Ledger,
    /// When the unsettled ones were due, from the lowest seq on.
    due: VecDeque<Duration>,
    settled: u64,
}

struct Driven {
    samples: Vec<Sample>,
    ledgers: Vec<Ledger>,
    shed: u64,
    failed: u64,
    /// The longest time between two looks: what is slower than this is not the router's doing.
    longest_look: Duration,
}

/// Submits what is due until the end, and waits until all of it is settled.
fn drive(lanes: Vec<Lane>, load: &Load, rate: u64, began: Instant, end: Duration) -> Driven {
    let all = (end.as_secs_f64() * rate as f64) as u64;
    let mut lanes = lanes;
    let mut driven = Driven {
        samples: Vec::with_capacity(all as usize),
        ledgers: Vec::new(),
        shed: 0,
        failed: 0,
        longest_look: Duration::ZERO,
    };
    let (mut next, mut fence, mut last) = (0, String::new(), Duration::ZERO);
    loop {
        let now = began.elapsed();
        driven.longest_look = driven.longest_look.max(now - last);
        last = now;
        while next < all && Duration::from_secs_f64(next as f64 / rate as f64) <= now {
            let lane = &mut lanes[(next % u64::from(PARTITIONS)) as usize];
            let trigger = load.trigger(next, &mut fence);
            match lane.ingress.submit(&trigger) {
                Ok(_) => {
                    lane.ledger.accept(&trigger);
                    lane.due.push_back(Duration::from_secs_f64(next as f64 / rate as f64));
                }
                Err(Refused::Shed(_)) => driven.shed += 1,
                Err(other) => panic!("{trigger:?}: {other}"),
            }
            next += 1;
        }
        for (partition, lane) in (0..).zip(&mut lanes) {
            let settled = lane.ingress.settled().0;
            if settled > lane.settled {
                let now = began.elapsed();
                let newly = lane.due.drain(..(settled - lane.settled) as usize);
                driven.samples.extend(newly.map(|due| Sample { due, took: now.saturating_sub(due), partition }));
                lane.settled = settled;
            }
            while lane.ingress.take_failed().is_some() {
                driven.failed += 1;
            }
        }
        if next == all && lanes.iter().all(|lane| lane.due.is_empty()) {
            break;
        }
        assert!(now < end + PATIENCE, "not everything is settled");
        std::thread::sleep(LOOK);
    }
    driven.ledgers = lanes.into_iter().map(|lane| lane.ledger).collect();
    driven
}

fn main() -> ExitCode {
    let say = |why: String, code: u8| {
        eprintln!("leader-move: {why}");
        ExitCode::from(code)
    };
    match options() {
        Ok(options) => measure(&options).unwrap_or_else(|why| say(why, 1)),
        Err(why) => say(why, 2),
    }
}

fn measure(options: &Options) -> Result<ExitCode, String> {
    let topic = fresh_topic("leader-move");
    let place = if options.mock { Place::mock(&topic) } else { Place::real(&topic) };
    let bootstrap = place.bootstrap();
    let scratch = Scratch::new("leader-move");
    let mut config = fencepost::config::Config::default();
    config.topic.name = topic.clone();
    config.kafka.bootstrap = Some(bootstrap.clone());
    config.state.dir = Some(scratch.0.join("state"));
    // All else is the default. The memory that this adds is taken back by smaller rings and windows.
    config.queue.ingresses = PARTITIONS as usize;
    config.queue.capacity = 50_000;
    config.settle.window = 1 << 19;
    if let Some(linger) = options.linger {
        config.kafka.properties.set("linger.ms", linger.to_string());
        config.publish.timeout = Duration::from_millis(linger * 5);
    }
    let (router, _) = Router::start(&config).map_err(|error| error.to_string())?;
    router.warnings().iter().for_each(|warning| eprintln!("leader-move: {warning}"));
    let windows = windows(options);
    let end = windows.last().expect("there is a pair").end + GAP;
    let each = (end.as_secs_f64() * options.rate as f64) as usize / PARTITIONS as usize + 1;
    let lane = |_| {
        let ingress = router.ingress().expect("as many as partitions");
        let ledger = Ledger::with_capacity(each, DEVICES_A_PARTITION as usize);
        Lane { ingress, ledger, due: VecDeque::with_capacity(each.min(65_536)), settled: 0 }
    };
    let lanes: Vec<Lane> = (0..PARTITIONS).map(lane).collect();
    let moves = moves(options.pairs, place.leaders(&topic), place.replicas(&topic));
    let mut place = place;
    let load = Load::new();
    let load_average = load_average();
    let began = Instant::now();
    let (driven, moved) = std::thread::scope(|scope| {
        let driver = scope.spawn(|| drive(lanes, &load, options.rate, began, end));
        let moved = order_moves(&windows, &moves, &topic, &mut place, began);
        (driver.join().expect("the driver ends"), moved)
    });
    let load_average = format!("{load_average} to {}", self::load_average());
    // What a stop leaves on disk is settled and for the next start: here it has to be in the topic.
    let drained = Instant::now();
    while router.counts().in_spill + router.counts().in_flight > 0 && drained.elapsed() < DRAIN_LIMIT {
        std::thread::sleep(Duration::from_millis(100));
    }
    let report = router.shutdown(Duration::from_secs(30));
    let kept = read_topic(&bootstrap, &topic, PARTITIONS);
    let verdict = judge(&kept, PARTITIONS, &driven.ledgers);
    let result = result(options, &windows, &moves, &driven, &moved?, &report, &verdict, &load_average);
    if options.json {
        println!("{result}");
    } else {
        print_table(&result);
    }
    let never = ["lost", "repeated", "reordered", "foreign", "shed", "failed", "in_spill"];
    let is_right = never.iter().all(|name| result[name] == 0);
    // Half of the pairs at least, or it is no measurement.
    let is_good = is_right && result["clean_pairs"].as_u64() >= Some(options.pairs.div_ceil(2) as u64);
    Ok(ExitCode::from(u8::from(!is_good)))
}

/// Where the topic is.
enum Place {
    Real { cluster: Cluster, admin: Admin, leaders: Leaders },
    Mock { mock: Mock, leaders: Vec<i32> },
}

impl Place {
    fn real(topic: &str) -> Place {
        let cluster = Cluster::of(3);
        let admin = Admin::new(&cluster.bootstrap);
        admin.create_topic(&format!("{topic}.dlq"), PARTITIONS, &[]);
        admin.create_topic(topic, PARTITIONS, &[("min.insync.replicas", "2")]);
        std::thread::sleep(TOPIC_KNOWN);
        let leaders = Leaders::connect(&cluster.bootstrap);
        Place::Real { cluster, admin, leaders }
    }

    fn mock(topic: &str) -> Place {
        let mock = Mock::with_topic(3, topic, PARTITIONS);
        mock.create_topic(&format!("{topic}.dlq"), PARTITIONS);
        let leaders: Vec<i32> = (0..PARTITIONS as i32).map(|partition| partition % 3 + 1).collect();
        (0..).zip(&leaders).for_each(|(partition, leader)| mock.set_leader(topic, partition, *leader));
        Place::Mock { mock, leaders }
    }

    fn bootstrap(&self) -> String {
        match self {
            Place::Real { cluster, .. } => cluster.bootstrap.clone(),
            Place::Mock { mock, .. } => mock.bootstrap(),
        }
    }

    fn leaders(&self, topic: &str) -> Vec<i32> {
        match self {
            Place::Real { admin, .. } => admin.leaders(topic),
            Place::Mock { leaders, .. } => leaders.clone(),
        }
    }

    fn replicas(&self, topic: &str) -> Vec<Vec<i32>> {
        match self {
            Place::Real { admin, .. } => admin.replicas(topic),
            Place::Mock { .. } => vec![vec![1, 2, 3]; PARTITIONS as usize],
        }
    }

    /// The partition's leader moves, gracefully.
    fn lead(&mut self, topic: &str, partition: u32, to: i32, replicas: &[i32]) -> Result<(), String> {
        match self {
            Place::Real { leaders, .. } => {
                leaders.reorder(topic, partition, replicas)?;
                leaders.elect(topic, partition)
            }
            Place::Mock { mock, leaders } => {
                mock.set_leader(topic, partition, to);
                leaders[partition as usize] = to;
                Ok(())
            }
        }
    }

    fn put_back(&mut self, topic: &str, partition: u32) -> Result<(), String> {
        match self {
            Place::Real { leaders, .. } => leaders.elect(topic, partition),
            Place::Mock { .. } => Ok(()),
        }
    }
}

/// What became of the moves.
struct Moved {
    /// How long each took, from the first request to the answer of the election.
    took: Vec<Duration>,
    /// Of each pair: whether its move took place when it was due, and nothing else moved in its windows.
    is_clean: Vec<bool>,
}

/// Asks for each move when it is due, and sees after each window that the leaders are those of the plan. Where brokers get
/// too little of the cores, the cluster takes them for dead and moves leaders by itself: such a pair says nothing, and the
/// leaders are put back before the next window.
fn order_moves(
    windows: &[Window],
    moves: &[Move],
    topic: &str,
    place: &mut Place,
    began: Instant,
) -> Result<Moved, String> {
    let mut moved = Moved { took: Vec::new(), is_clean: vec![true; moves.len()] };
    let until = |moment: Duration| std::thread::sleep(moment.saturating_sub(began.elapsed()));
    let mut planned = place.leaders(topic);
    for window in windows {
        let Move { partition, to, replicas, .. } = &moves[window.pair];
        if window.is_moved {
            until(window.middle);
            let asked = Instant::now();
            planned[*partition as usize] = *to;
            match place.lead(topic, *partition, *to, replicas) {
                Ok(()) => moved.took.push(asked.elapsed()),
                Err(why) => {
                    eprintln!("leader-move: no move of partition {partition}: {why}");
                    moved.is_clean[window.pair] = false;
                }
            }
        }
        until(window.end);
        for (partition, (leader, planned)) in (0..).zip(place.leaders(topic).iter().zip(&planned)) {
            if leader != planned {
                eprintln!("leader-move: broker {leader} leads partition {partition}, and not {planned}");
                moved.is_clean[window.pair] = false;
                if let Err(why) = place.put_back(topic, partition) {
                    eprintln!("leader-move: nor can it be put back now: {why}");
                }
            }
        }
        // The cluster was too slow for its turn in the plan: what follows is not where it should be.
        let is_late = began.elapsed() > window.end + GAP;
        moved.is_clean[window.pair] &= !is_late;
    }
    Ok(moved)
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux says it");
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// In milliseconds, of those that were due in a span; nothing is known of an empty group.
fn quantile_ms(samples: &[Sample], groups: &[Group], group: Group, span: (Duration, Duration), quantile: f64) -> f64 {
    let is_meant =
        |sample: &&Sample| (span.0..span.1).contains(&sample.due) && groups[sample.partition as usize] == group;
    let mut took: Vec<Duration> = samples.iter().filter(is_meant).map(|sample| sample.took).collect();
    took.sort_unstable();
    let nth = (took.len() as f64 * quantile).ceil() as usize;
    took.get(nth.saturating_sub(1)).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}

/// The median and the middle half.
fn spread(values: &[f64]) -> Value {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (values.len().max(1) - 1) as f64;
        let (low, high) = (values.get(place.floor() as usize)?, values.get(place.ceil() as usize)?);
        Some(((low + (high - low) * place.fract()) * 1e3).round() / 1e3)
    };
    json!({ "median": at(0.5), "low": at(0.25), "high": at(0.75) })
}

/// One group in the windows of clean pairs: the quantile with a move, without, and their ratio in each pair.
fn compare(
    windows: &[Window],
    moves: &[Move],
    (samples, is_clean): (&[Sample], &[bool]),
    group: Group,
    quantile: f64,
    span: impl Fn(&Window) -> (Duration, Duration),
) -> Value {
    let (mut with, mut without) = (vec![f64::NAN; moves.len()], vec![f64::NAN; moves.len()]);
    for window in windows {
        let value = quantile_ms(samples, &moves[window.pair].groups, group, span(window), quantile);
        if window.is_moved { with[window.pair] = value } else { without[window.pair] = value }
    }
    for values in [&mut with, &mut without] {
        let mut clean = is_clean.iter();
        values.retain(|_| *clean.next().expect("one for each pair"));
    }
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    // What two windows differ by in which nothing happens: no ratio is known better than this.
    let noise: Vec<f64> = without.windows(2).map(|two| two[0].max(two[1]) / two[0].min(two[1])).collect();
    json!({
        "with_ms": spread(&with),
        "without_ms": spread(&without),
        "ratio": spread(&ratios),
        "noise": spread(&noise),
        "each_with_ms": with,
        "each_without_ms": without,
    })
}

#[expect(clippy::too_many_arguments, reason = "all that is known at the end")]
fn result(
    options: &Options,
    windows: &[Window],
    moves: &[Move],
    driven: &Driven,
    moved: &Moved,
    report: &Report,
    verdict: &Verdict,
    load_average: &str,
) -> Value {
    let table = |quantile: f64, span: fn(&Window) -> (Duration, Duration)| {
        let group = |(group, name): (Group, &str)| {
            (name.to_owned(), compare(windows, moves, (&driven.samples, &moved.is_clean), group, quantile, span))
        };
        Value::Object(GROUPS.into_iter().map(group).collect())
    };
    let asked: Vec<f64> = moved.took.iter().map(|asked| asked.as_secs_f64() * 1e3).collect();
    let counts = &report.counts;
    json!({
        "rate": options.rate,
        "pairs": options.pairs,
        "window_seconds": options.window.as_secs(),
        "load_average": load_average,
        "p99": table(0.99, |window| (window.begin, window.end)),
        "p99_after_move": table(0.99, |window| (window.middle, window.middle + AFTER_MOVE)),
        "p50": table(0.5, |window| (window.begin, window.end)),
        "max": table(1.0, |window| (window.begin, window.end)),
        "moves": moved.took.len(),
        "clean_pairs": moved.is_clean.iter().filter(|is_clean| **is_clean).count(),
        "move_ms": spread(&asked),
        "longest_look_ms": driven.longest_look.as_millis() as u64,
        "accepted": counts.accepted,
        "delivered": counts.delivered,
        "spilled": counts.spilled,
        "in_spill": counts.in_spill,
        "in_flight": counts.in_flight,
        "deduplicated": counts.deduplicated,
        "dead_lettered": counts.dead_lettered,
        "shed": driven.shed,
        "failed": driven.failed,
        "late": counts.late,
        "breakers_opened": counts.breakers_opened,
        "producer_rebuilds": counts.producer_rebuilds,
        "uncertain": counts.uncertain,
        "client_errors": counts.client_errors,
        "records": verdict.records,
        "lost": verdict.lost,
        "repeated": verdict.repeated,
        "reordered": verdict.reordered,
        "foreign": verdict.foreign,
        "first_examples": verdict.first_examples,
    })
}

fn print_table(result: &Value) {
    let spread = |value: &Value| {
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        format!("{:.2} ({:.2} to {:.2})", number("median"), number("low"), number("high"))
    };
    println!(
        "due to settled, ms: median of the windows (middle half); noise: two windows without, the slower ÷ the faster"
    );
    println!("{:<15} {:<14} {:>24} {:>24} {:>22} {:>22}", "", "", "with a move", "without", "ratio", "noise");
    for what in ["p50", "p99", "p99_after_move", "max"] {
        for (_, group) in GROUPS {
            let row = &result[what][group];
            let [with, without, ratio, noise] =
                ["with_ms", "without_ms", "ratio", "noise"].map(|name| spread(&row[name]));
            println!("{what:<15} {group:<14} {with:>24} {without:>24} {ratio:>22} {noise:>22}");
        }
    }
    let Value::Object(all) = result else { return };
    println!();
    for (name, value) in all.iter().filter(|(_, value)| value.get("moved").is_none()) {
        let text = if value.is_object() { spread(value) } else { value.to_string() };
        println!("{name:>18}  {text}");
    }
}
