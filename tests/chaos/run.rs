//! The rounds: a process, two sources by turns, one broker, and at the end of each batch a topic that is read back and
//! judged. Everything luck decides is drawn from one seed, which is printed first. The logs of every process stay in
//! `target/chaos/SEED` when a batch fails.

use super::broker::Faults;
use super::child::{Ended, Route};
use super::feeder::{Fed, Order, Plant, feed};
use super::judge::{History, Life, Seen, Sent, Verdict, judge};
use super::plan::{Death, Plan, Source};
use super::rows::{Key, Rows};
use crate::common_kafka::admin::Admin;
use crate::common_kafka::cluster::Cluster;
use crate::common_kafka::reader::{Kept, read_topic};
use crate::common_kafka::{PATIENCE, Scratch, fresh_topic};
use fencepost::config::DivertPolicy;
use fencepost::sim::random::Random;
use fencepost::trigger::Trigger;
use fencepost::verify::frame::Frame;
use fencepost::verify::{Checker, CheckerOptions, Ledger, Record};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 12;
/// Rounds on one topic and one state directory.
const BATCH: u64 = 20;
const SOCKET: usize = 0;
const FILE: usize = 1;
/// Fresh rows of each source beside what is left, when a batch is drained.
const DRAIN_ROWS: u64 = 5_000;
/// How long a round waits for a process to be ready before its time begins to run anyway.
const READY_WAIT: Duration = Duration::from_secs(6);

pub struct Options {
    pub seed: u64,
    pub rounds: u64,
    /// `divert.policy`.
    pub policy: String,
    pub plant: Option<fn(&Rows) -> Plant>,
}

impl Options {
    /// From the environment: FENCEPOST_ROUNDS, FENCEPOST_SEED, FENCEPOST_POLICY. The policy is by itself the best that
    /// this version has.
    pub fn from_env(rounds: u64) -> Options {
        let number = |name: &str, unset: u64| {
            std::env::var(name).map_or(unset, |text| text.parse().unwrap_or_else(|_| panic!("{name} = {text:?}")))
        };
        let best = if DivertPolicy::NAMES.contains(&"spill") { "spill" } else { "refuse" };
        let now = crate::common_kafka::now_ms() as u64;
        Options {
            seed: number("FENCEPOST_SEED", now),
            rounds: number("FENCEPOST_ROUNDS", rounds),
            policy: std::env::var("FENCEPOST_POLICY").unwrap_or_else(|_| best.into()),
            plant: None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Tally {
    pub rounds: u64,
    pub kills: u64,
    pub killed_before_ready: u64,
    pub killed_in_shutdown: u64,
    pub ended_before: u64,
    pub sent: u64,
    pub settled: u64,
    pub records: u64,
    pub repeats: u64,
    pub collapsible: u64,
    pub breakers: u64,
    pub rebuilds: u64,
    pub spilled: u64,
    pub recovered: u64,
    pub freezes: u32,
    pub broker_kills: u32,
    pub broker_restarts: u32,
}

/// Runs all rounds. Returns at the first batch whose verdict is not clean, with that verdict.
pub fn run(options: &Options, cluster: &Arc<Cluster>) -> (Tally, Verdict) {
    let Options { seed, rounds, policy, .. } = options;
    println!("seed {seed}: {rounds} rounds, policy {policy}; again: FENCEPOST_SEED={seed} FENCEPOST_ROUNDS={rounds}");
    let name = if options.plant.is_some() { format!("{seed}-planted") } else { seed.to_string() };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/chaos").join(name);
    // Of an earlier run with this seed.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("target can be written");
    let mut random = Random::new(*seed);
    let mut faults = Faults::new(Arc::clone(cluster));
    let mut tally = Tally::default();
    let mut verdict = Verdict::default();
    while tally.rounds < *rounds && verdict.is_clean() {
        let batch_dir = dir.join(format!("batch-{:02}", tally.rounds / BATCH));
        let began = Instant::now();
        let mut batch = Batch::new(options, cluster, &batch_dir);
        let until = rounds.min(&(tally.rounds + BATCH)).to_owned();
        while tally.rounds < until {
            let plan = Plan::draw(&mut random, tally.rounds);
            batch.round(&plan, tally.rounds, &mut faults, &mut tally);
            tally.rounds += 1;
        }
        faults.end();
        batch.drain(&mut tally);
        verdict = batch.judge(cluster);
        tally.records += verdict.records;
        tally.repeats += verdict.repeats;
        tally.collapsible += verdict.collapsible;
        tally.settled += verdict.settled;
        println!("after {} rounds, {:.0} s for this batch: {verdict}", tally.rounds, began.elapsed().as_secs_f64());
    }
    (tally.freezes, tally.broker_kills, tally.broker_restarts) = (faults.freezes, faults.kills, faults.restarts);
    println!("{tally:?}");
    if verdict.is_clean() || options.plant.is_some() {
        fs::remove_dir_all(&dir).expect("our own directory");
    } else {
        let text = verdict.devices.iter().fold(format!("{verdict}\n"), |mut text, (device, orders)| {
            write!(text, "\ndevice {device}\n{orders}").expect("to a string nothing fails");
            text
        });
        fs::write(dir.join("verdict.txt"), &text).expect("our own directory");
        let shown: String = text.lines().take(120).fold(String::new(), |shown, line| shown + line + "\n");
        println!("{shown}all of it, and the logs: {}", dir.display());
    }
    (tally, verdict)
}

/// Some rounds on one topic and one state directory.
struct Batch<'a> {
    options: &'a Options,
    bootstrap: String,
    topic: String,
    dir: PathBuf,
    /// The socket's path must be short.
    scratch: Scratch,
    rows: [Rows; 2],
    plant: Plant,
    /// Rows below were sent, or stand in the file.
    sent: [u64; 2],
    settled: [u64; 2],
    lives: Vec<Life>,
    shards: u32,
}

impl Batch<'_> {
    fn new<'a>(options: &'a Options, cluster: &Cluster, dir: &Path) -> Batch<'a> {
        let topic = fresh_topic("chaos");
        let admin = Admin::new(&cluster.bootstrap);
        // The broker's own time of appending: see the judge.
        admin.create_topic(&topic, PARTITIONS, &[("message.timestamp.type", "LogAppendTime")]);
        admin.create_topic(&format!("{topic}.dlq"), PARTITIONS, &[]);
        fs::create_dir_all(dir).expect("target can be written");
        let rows = [Rows::new("suez-vessels.ndjson", options.seed), Rows::new("geolife-phones.ndjson", options.seed)];
        println!("sources: {}; {}", rows[SOCKET].name, rows[FILE].name);
        fs::write(dir.join("rows.ndjson"), "").expect("our own directory");
        Batch {
            options,
            bootstrap: cluster.bootstrap.clone(),
            topic,
            dir: dir.to_owned(),
            scratch: Scratch::new("chaos"),
            plant: options.plant.map_or(Plant::Nothing, |plant| plant(&rows[SOCKET])),
            rows,
            sent: [0; 2],
            settled: [0; 2],
            lives: Vec::new(),
            shards: 1,
        }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.0.join("s")
    }

    fn config(&self, source: Source, require_broker: bool) -> PathBuf {
        let Batch { bootstrap, topic, dir, shards, options: Options { policy, .. }, .. } = self;
        let (source, path, resume) = match source {
            Source::Socket => ("unix", self.socket(), false),
            Source::File => ("file", dir.join("rows.ndjson"), true),
        };
        let text = format!(
            "topic.name = \"{topic}\"\ntopic.partitions = {PARTITIONS}\nkafka.bootstrap = \"{bootstrap}\"\n\
             engine.shards = {shards}\nqueue.capacity = 20000\nqueue.ingresses = 2\nsettle.window = 131072\n\
             dedup.capacity = 200000\ninflight.partition = 8192\ninflight.total = 32768\ninflight.waiting = 8192\n\
             breaker.reset = \"1s\"\ndivert.policy = \"{policy}\"\ntime.past_limit = \"off\"\n\
             start.require_broker = {require_broker}\nstart.timeout = \"60s\"\nstate.dir = {:?}\n\
             [route]\nconnections_max = 2\nsource = \"{source}\"\npath = {path:?}\nresume = {resume}\n",
            dir.join("state")
        );
        let path = dir.join("fencepost.toml");
        fs::write(&path, text).expect("our own directory");
        path
    }

    fn round(&mut self, plan: &Plan, number: u64, faults: &mut Faults, tally: &mut Tally) {
        self.shards = plan.shards;
        if plan.source == Source::File {
            self.grow_file(plan.lines);
        }
        let config = self.config(plan.source, plan.require_broker);
        let fault = plan.fault.filter(|fault| faults.begin(*fault));
        let route = Route::spawn(&config, &self.dir.join(format!("round-{number:03}.log")));
        let (ended, fed) = match plan.source {
            Source::Socket => self.with_peer(u64::MAX, plan.rate, |_| live_and_die(route, plan.death)),
            Source::File => (live_and_die(route, plan.death), None),
        };
        let ready = ended.said.ready_ms;
        tally.kills += u64::from(ended.signal == Some(9));
        tally.killed_before_ready += u64::from(ended.signal == Some(9) && ready.is_none());
        tally.killed_in_shutdown +=
            u64::from(ended.signal == Some(9) && matches!(plan.death, Death::InShutdown { .. }));
        tally.ended_before += u64::from(ended.code.is_some());
        self.learn(&ended, fed, tally);
        let (sent, settled) = (self.sent, self.settled);
        let note = format!(
            "round {number}: {plan:?}, fault begun: {fault:?}\n{ended:?}\nsent {sent:?}, settled {settled:?}\n"
        );
        let mut notes =
            OpenOptions::new().create(true).append(true).open(self.dir.join("rounds.txt")).expect("our own");
        notes.write_all(note.as_bytes()).expect("our own directory");
        // By itself it ends only when all is done: the file was read to its end, or a stop was heard. One that is asked to
        // stop before it is ready has taken nothing, and ends by the signal.
        let was_early = ended.signal == Some(15) && ended.said.ready_ms.is_none();
        assert!(
            ended.signal == Some(9) || matches!(ended.code, Some(0 | 3)) || was_early,
            "{note}logs: {}",
            self.dir.display()
        );
        assert!(!ended.said.panicked, "{note}logs: {}", self.dir.display());
    }

    /// Runs `live` beside a peer of the socket that sends what is not settled. `live` is told when the peer has ended.
    fn with_peer<T>(&self, until: u64, rate: u32, live: impl FnOnce(&AtomicBool) -> T) -> (T, Option<Fed>) {
        let path = self.socket();
        let order =
            Order { path: &path, rows: &self.rows[SOCKET], plant: self.plant, from: self.settled[SOCKET], until, rate };
        let (stop, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let fed = feed(&order, &stop);
                // Release, for the Acquire of `live`.
                has_ended.store(true, Ordering::Release);
                fed
            });
            let lived = live(&has_ended);
            // Release, for the peer's Acquire: the process is gone.
            stop.store(true, Ordering::Release);
            (lived, Some(peer.join().expect("the peer does not panic")))
        })
    }

    fn grow_file(&mut self, lines: u64) {
        let mut text = String::new();
        for number in self.sent[FILE]..self.sent[FILE] + lines {
            text += &self.rows[FILE].row(number).line();
        }
        let mut file = OpenOptions::new().append(true).open(self.dir.join("rows.ndjson")).expect("our own file");
        file.write_all(text.as_bytes()).expect("our own file");
        self.sent[FILE] += lines;
    }

    /// What a life left behind: how far the sources are, and what it owed.
    fn learn(&mut self, ended: &Ended, fed: Option<Fed>, tally: &mut Tally) {
        if let Some(fed) = fed {
            assert!(
                fed.refused.is_empty(),
                "no line of a peer is refused: {:?}",
                &fed.refused[..fed.refused.len().min(5)]
            );
            self.sent[SOCKET] = fed.sent.max(self.sent[SOCKET]);
            assert!(fed.settled <= self.sent[SOCKET], "{} settled of {} sent", fed.settled, self.sent[SOCKET]);
            self.settled[SOCKET] = fed.settled;
        }
        if let Ok(text) = fs::read_to_string(self.dir.join("state/source.toml")) {
            let kept: toml::Table = text.parse().expect("source.toml is TOML at any time");
            let line = kept["line"].as_integer().expect("a number") as u64;
            assert!(
                line >= self.settled[FILE],
                "what was settled up to {} is so up to {line} only",
                self.settled[FILE]
            );
            assert!(line <= self.sent[FILE], "{line} settled of {} lines", self.sent[FILE]);
            self.settled[FILE] = line;
        }
        let said = &ended.said;
        self.lives.push(Life {
            spawned_ms: ended.spawned_ms,
            ready_ms: said.ready_ms,
            is_cold: said.is_cold,
            killed_ms: ended.killed_ms,
            gone_ms: ended.gone_ms,
            unsettled: (0..2).map(|source| self.settled[source]..self.sent[source]).collect(),
            rebuilds_ms: said.rebuilds_ms.clone(),
        });
        tally.breakers += u64::from(said.breakers);
        tally.rebuilds += said.rebuilds_ms.len() as u64;
        if let Some(report) = &ended.report {
            assert_eq!(report["adds_up"], true, "{report}");
            tally.spilled += report["spilled"].as_u64().unwrap_or(0);
            tally.recovered += report["recovered"].as_u64().unwrap_or(0);
        }
    }

    /// On a healthy broker, until both sources are settled and the disk holds nothing any more.
    fn drain(&mut self, tally: &mut Tally) {
        let all = self.sent[SOCKET] + DRAIN_ROWS;
        let config = self.config(Source::Socket, true);
        let route = Route::spawn(&config, &self.dir.join("drain-socket.log"));
        let (ended, fed) = self.with_peer(all, 50_000, |has_ended| stop_when_served(route, has_ended));
        let report = self.finish(ended, fed, tally);
        assert_eq!(self.settled[SOCKET], all, "the peer was told that all is settled: {report}");
        self.grow_file(DRAIN_ROWS);
        let config = self.config(Source::File, true);
        let route = Route::spawn(&config, &self.dir.join("drain-file.log"));
        let report = self.finish(route.wait("the drain of the file"), None, tally);
        assert_eq!(self.settled[FILE], self.sent[FILE], "the file is settled to its end: {report}");
        let mut in_spill = report["in_spill"].as_u64().unwrap_or(0);
        let began = Instant::now();
        while in_spill > 0 {
            assert!(began.elapsed() < PATIENCE, "{in_spill} are still in the spill, the broker is there");
            let config = self.config(Source::Socket, true);
            let mut route = Route::spawn(&config, &self.dir.join("drain-spill.log"));
            route.wait_ready(PATIENCE);
            std::thread::sleep(Duration::from_secs(15));
            println!("{in_spill} were in the spill after {:.0} s", began.elapsed().as_secs_f64());
            route.ask_to_stop();
            let report = self.finish(route.wait("the drain of the spill"), None, tally);
            in_spill = report["in_spill"].as_u64().unwrap_or(0);
        }
        tally.sent += self.sent.iter().sum::<u64>();
    }

    fn finish(&mut self, ended: Ended, fed: Option<Fed>, tally: &mut Tally) -> serde_json::Value {
        // 3: everything is settled, and some of it waits on disk.
        let in_spill = ended.report.as_ref().and_then(|report| report["in_spill"].as_u64()).unwrap_or(0);
        let code = if in_spill > 0 { 3 } else { 0 };
        assert_eq!((ended.code, ended.said.panicked), (Some(code), false), "{ended:?}; logs: {}", self.dir.display());
        self.learn(&ended, fed, tally);
        ended.report.expect("a process that ends by itself reports")
    }

    fn judge(&self, cluster: &Cluster) -> Verdict {
        let kept = read_topic(&cluster.bootstrap, &self.topic, PARTITIONS);
        let dead = read_topic(&cluster.bootstrap, &format!("{}.dlq", self.topic), PARTITIONS);
        let aside: HashSet<Key> = dead.iter().map(|record| key_of(&read(record))).collect();
        let seen: Vec<Seen> = kept.iter().map(see).collect();
        let source = |at: usize| Sent {
            keys: (0..self.sent[at]).map(|number| self.rows[at].row(number).key()).collect(),
            settled: self.settled[at],
        };
        let has_spill = self.options.policy != "refuse";
        let history =
            History { sources: vec![source(SOCKET), source(FILE)], lives: self.lives.clone(), has_spill, aside };
        let verdict = judge(&seen, &history);
        self.ask_the_checkers(&kept, &dead, &verdict);
        verdict
    }

    /// The checkers of the product see the same, and nothing of what only they look at.
    fn ask_the_checkers(&self, kept: &[Kept], dead: &[Kept], verdict: &Verdict) {
        let mut checker = Checker::new(CheckerOptions::new(PARTITIONS));
        for record in kept {
            checker.record(&Record::new(record.partition, record.offset, &record.key, &record.value));
        }
        for record in dead {
            assert!(checker.set_aside(record.partition, &record.value), "a dead letter is a frame");
        }
        let ledger = |at: usize| {
            let mut ledger = Ledger::with_capacity(self.sent[at] as usize, 1_024);
            for number in 0..self.sent[at] {
                let row = self.rows[at].row(number);
                ledger.accept(&Trigger::new(&row.device, &row.fence, row.state, row.event_time_ms));
            }
            ledger
        };
        let second = checker.finish(&[ledger(SOCKET), ledger(FILE)]);
        let first = (verdict.lost.len(), verdict.foreign.len(), verdict.repeats);
        assert_eq!(first, (second.lost as usize, second.foreign as usize, second.repeated), "{verdict}\n{second}");
        if dead.is_empty() {
            assert_eq!(verdict.reordered.len() as u64, second.reordered, "{verdict}\n{second}");
        }
        println!("{second}");
        let others: HashMap<&str, u64> = second.faults().into_iter().collect();
        for fault in ["unreadable", "wrong_partition", "key_mismatch"] {
            assert_eq!(others[fault], 0, "{fault}: {second}");
        }
    }
}

/// Asks it to stop once its peer has been told that everything is settled.
fn stop_when_served(mut route: Route, has_ended: &AtomicBool) -> Ended {
    let began = Instant::now();
    while !has_ended.load(Ordering::Acquire) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    route.ask_to_stop();
    route.wait("the drain of the socket")
}

/// Lives as planned, and dies.
fn live_and_die(mut route: Route, death: Death) -> Ended {
    match death {
        Death::AfterSpawn(after) => route.sleep_until(after),
        Death::AfterReady(after) => {
            route.wait_ready(READY_WAIT);
            let until = route.age() + after;
            route.sleep_until(until);
        }
        Death::InShutdown { running, stopping } => {
            route.wait_ready(READY_WAIT);
            let until = route.age() + running;
            route.sleep_until(until);
            route.ask_to_stop();
            let until = route.age() + stopping;
            route.sleep_until(until);
        }
    }
    route.kill()
}

fn read(record: &Kept) -> Frame<'_> {
    Frame::read(&record.value).expect("every record is a frame")
}

fn key_of(frame: &Frame<'_>) -> Key {
    Key::new(frame.device_id, frame.fence_id, frame.state, frame.event_time_ms)
}

fn see(record: &Kept) -> Seen {
    let frame = read(record);
    Seen {
        partition: record.partition,
        offset: record.offset,
        appended_ms: record.timestamp_ms,
        accepted_ms: frame.accepted_unix_us.div_euclid(1_000),
        key: key_of(&frame),
    }
}
