//! `fencepost demo`: the whole way of a trigger inside one process, and a consumer that checks what came out of it.
//!
//! ```text
//! fleet ─▶ ingress threads ─▶ router ─▶ in-process brokers ─▶ consumer ─▶ inspector
//!             └ ledgers: what was accepted, in order ───────────────────────▶ verdict
//! ```
//!
//! Everything is real but the brokers and the fleet. The router, its client library and the consumer know nothing of the
//! demo. In the middle the brokers freeze, see [`cluster`]; the router spills what comes in meanwhile to a directory of
//! the demo's own, and drains it afterwards.

mod cluster;
mod consumer;
mod inspector;
mod live;
mod load;
mod outage;
mod outcome;

use super::scratch::Scratch;
use super::signals::Signals;
use super::{CliError, Exit};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, DeadLetterTopic, DivertPolicy};
use crate::engine::Router;
use crate::sim::fleet::{Fleet, FleetOptions};
use crate::units::{Nanos, UnixMs};
use crate::verify::Verdict;
use clap::Args;
use cluster::{Cluster, PARTITIONS, TOPIC};
use consumer::{Progress, ReadOut, Reader};
use inspector::{Inspected, Inspection, Plant, inspect};
use live::{Live, Moment};
use load::{Driven, Pace, drive};
use outage::OutagePlan;
use outcome::{Asked, Outcome};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most triggers of one run: what the ledgers and the checker may hold, about 2 GB of them.
const TRIGGERS_MAX: u64 = 20_000_000;
/// Between two looks of the main thread at everything.
const TICK: Duration = Duration::from_millis(10);
/// How long what is in flight or on disk may take after the load has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// Progress is shown from here on.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the spill may take: a long run at the highest rate stays below.
const SPILL_BYTES: u64 = 2 << 30;
/// Small files, so that little more is allocated ahead than the reserve.
const SEGMENT_BYTES: u64 = 16 << 20;
/// No trigger of the demo becomes a dead letter; its room is the least there may be.
const DEAD_LETTER_BYTES: u64 = 8 << 20;

/// Shows the router at work, and checks everything it delivers.
///
/// The demo needs nothing but this program: it starts three Kafka brokers inside its own process (the client library's
/// mock), routes the triggers of a simulated fleet to them, and reads every record back with a real consumer. In the
/// middle the brokers freeze, for three tenths of the run but at most 3 seconds. What comes in once a partition has made
/// no progress for a second is spilled to a temporary directory on disk, and goes to the topic in order when the brokers
/// answer again. At the end the demo says whether anything was lost, doubled or reordered, whether the counters add up,
/// and how long each stage took. Ctrl-C ends the load early; what was accepted is still delivered and checked. The
/// directory is removed at the end.
///
/// Progress goes to standard error, the result to standard output. The exit code is 0 when all is well and 1 when
/// anything was lost, doubled, reordered, left unsettled or left on disk, or when the counters do not add up.
#[derive(Args)]
pub struct Demo {
    /// How many triggers a second the fleet causes, over all ingresses. At most 20 for each device.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// For how many seconds. The outage is in the middle; to see triggers spilled, take 5 or more.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Decides everything that luck decides in the fleet: the same seed causes the same triggers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many threads submit, each through an ingress of its own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ingresses: u32,
    /// How many shards the router has. The topic has 12 partitions, so more than 12 would have nothing to do.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(PARTITIONS)))]
    shards: u16,
    /// How many devices the fleet has.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    devices: u32,
    /// Print one JSON object on standard output instead of tables.
    #[arg(long)]
    json: bool,
    /// For tests: spoil what the checker sees, to prove that it notices. The exit code must then be 1.
    #[arg(long, value_name = "FAULT", hide = true)]
    plant: Option<Plant>,
}

impl Demo {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let asked = self.check()?;
        let listening = |error| CliError::Unavailable(format!("signals cannot be listened for: {error}"));
        let scratch = Scratch::make("demo")?;
        let signals = Signals::listen_with(scratch.remover()).map_err(listening)?;
        tell!("state and spill lie in {} until the end", scratch.path().display());
        let mut live = Live::new();
        live.say("starting three brokers, a consumer and the router …");
        let stage = Stage::build(&self, &asked, scratch.path())?;
        live.clear();
        let outcome = stage.play(&asked, &signals, &mut live)?;
        live.clear();
        if self.json {
            say!("{}", outcome.json());
        } else {
            super::say::out(format_args!("{}", outcome.text()));
        }
        Ok(if outcome.is_good() { Exit::Done } else { Exit::Wrong })
    }

    /// Everything that is wrong with the options together, in words.
    fn check(&self) -> Result<Asked, CliError> {
        let total = u64::from(self.rate) * u64::from(self.seconds);
        if total > TRIGGERS_MAX {
            let seconds_max = TRIGGERS_MAX / u64::from(self.rate);
            return Err(CliError::Usage(format!(
                "--rate {} for --seconds {} is {total} triggers, and the checker remembers at most {TRIGGERS_MAX}: \
                 at this rate take --seconds {seconds_max} or fewer",
                self.rate, self.seconds
            )));
        }
        let start = SystemClock::new().now().wall.as_ms();
        let fleet = FleetOptions {
            seed: self.seed,
            devices: self.devices,
            rate: self.rate,
            // At a whole second, so that a seed makes the same triggers whenever it is used.
            start: UnixMs(start.0.div_euclid(1_000) * 1_000),
            of: self.ingresses,
            ..FleetOptions::default()
        };
        fleet.check().map_err(|error| CliError::Usage(format!("no fleet can be made of these options: {error}")))?;
        Ok(Asked {
            seed: self.seed,
            rate: self.rate.into(),
            seconds: self.seconds.into(),
            total,
            ingresses: self.ingresses.into(),
            shards: self.shards,
            devices: self.devices,
            plant: self.plant,
            fleet,
        })
    }
}

/// Everybody in place, and nothing submitted yet.
struct Stage {
    router: Router,
    publish_timeout: Nanos,
    fleets: Vec<Fleet>,
    reading: JoinHandle<Result<ReadOut, CliError>>,
    inspecting: JoinHandle<Inspected>,
    progress: Arc<Progress>,
    inspection: Arc<Inspection>,
    /// Last, so that it ends after its clients.
    cluster: Cluster,
}

impl Stage {
    fn build(demo: &Demo, asked: &Asked, state: &Path) -> Result<Stage, CliError> {
        let cluster = Cluster::start()?;
        let fleets = Fleet::split(&FleetOptions { of: 1, ..asked.fleet.clone() }, demo.ingresses)
            .map_err(|error| CliError::Usage(error.to_string()))?;
        let (progress, inspection) = (Arc::new(Progress::default()), Arc::new(Inspection::new()));
        let (sender, chunks) = channel();
        let reader = Reader::connect(&cluster.bootstrap(), Arc::clone(&progress), sender)?;
        let mut config = Config::default();
        config.topic.name = TOPIC.to_owned();
        config.kafka.bootstrap = Some(cluster.bootstrap());
        config.engine.shards = demo.shards;
        // A partition's window fits into its shard's share of all that may be in flight.
        config.inflight.partition = config.inflight.partition.min(config.inflight.total / usize::from(demo.shards));
        config.queue.ingresses = demo.ingresses as usize;
        config.state.dir = Some(state.to_path_buf());
        config.divert.policy = Some(DivertPolicy::Spill);
        (config.spill.limit, config.spill.segment) = (SPILL_BYTES, SEGMENT_BYTES);
        config.dead_letter.topic = Some(DeadLetterTopic::Off);
        config.dead_letter.limit = DEAD_LETTER_BYTES;
        let (router, _) = Router::start(&config)?;
        // The mock cannot say what its topic's limit is, and no record of the demo comes near one.
        for warning in router.warnings().iter().filter(|warning| !warning.contains("max.message.bytes")) {
            tell!("fencepost: {warning}");
        }
        let (plant, seen) = (demo.plant, Arc::clone(&inspection));
        Ok(Stage {
            router,
            publish_timeout: config.publish.timeout.into(),
            fleets,
            reading: spawn("demo-consumer", move || reader.read_all())?,
            inspecting: spawn("demo-inspector", move || inspect(&chunks, &seen, plant))?,
            progress,
            inspection,
            cluster,
        })
    }

    fn play(self, asked: &Asked, signals: &Signals, live: &mut Live) -> Result<Outcome, CliError> {
        let Stage { router, publish_timeout, fleets, reading, inspecting, progress, inspection, cluster } = self;
        let stop = Arc::new(AtomicBool::new(false));
        // A moment ahead, so that all threads are there when the first trigger is due.
        let began = Instant::now() + Duration::from_millis(20);
        let pace = Pace { began, rate: asked.rate, total: asked.total, ingresses: asked.ingresses };
        let mut drivers = Vec::new();
        for (index, fleet) in (0..).zip(fleets) {
            let none = || CliError::Unavailable(format!("the router gave no ingress {index}"));
            let (ingress, stop) = (router.ingress().ok_or_else(none)?, Arc::clone(&stop));
            drivers.push(spawn("demo-ingress", move || drive(pace, index, fleet, ingress, &stop))?);
        }

        live.begin();
        let mut watch = Watch { router: &router, progress: &progress, inspection: &inspection, live, began };
        let mut outage = OutagePlan::of(Duration::from_secs(asked.seconds));
        while !drivers.iter().all(JoinHandle::is_finished) {
            if signals.asked_to_stop() || !router.is_healthy() {
                // Relaxed: a flag, no other memory hangs on it.
                stop.store(true, Ordering::Relaxed);
            }
            outage.step(&cluster, &watch)?;
            watch.look(outage.remark(&watch));
            std::thread::sleep(TICK);
        }
        let driven: Vec<Driven> = drivers.into_iter().map(join).collect::<Result<_, _>>()?;
        outage.end_load();
        let deadline = Instant::now() + DRAIN_LIMIT;
        let is_left = || {
            let counts = router.counts();
            counts.unsettled() > 0 || counts.in_spill > 0
        };
        while is_left() && Instant::now() < deadline && router.is_healthy() || outage.is_frozen() {
            outage.step(&cluster, &watch)?;
            watch.look(if outage.is_frozen() { "FROZEN" } else { "draining" });
            std::thread::sleep(TICK);
        }
        outage.step(&cluster, &watch)?;

        let outage = outage.finish(&router);
        let router_bytes = router.memory().total();
        let report = router.shutdown(Duration::from_secs(1));
        // Release, partner: the Acquire in the consumer.
        progress.is_drained.store(true, Ordering::Release);
        let read_out = wait_for(reading, live, || {
            format!("reading the rest of the topic: {} records up to now", progress.read.load(Ordering::Relaxed))
        })??;
        let inspected = wait_for(inspecting, live, || {
            let (checked, read) = (inspection.checked.load(Ordering::Relaxed), progress.read.load(Ordering::Relaxed));
            format!("checking records: {checked} of {read}, {} %", checked * 100 / read.max(1))
        })?;
        let ended = driven.iter().map(|driven| driven.ended).max().unwrap_or(began);
        let (sum, ledgers) = outcome::Driving::of(driven);
        let Inspected { checker, delivery, is_planted } = inspected;
        if asked.plant.is_some() && !is_planted {
            let why = "--plant: too few records came to plant the fault; take a higher --rate or fewer --devices";
            return Err(CliError::Usage(why.into()));
        }
        let accepted: usize = ledgers.iter().map(crate::verify::Ledger::len).sum();
        let comparing = spawn("demo-verdict", move || checker.finish(&ledgers))?;
        let verdict: Verdict =
            wait_for(comparing, live, || format!("comparing the topic with {accepted} accepted triggers"))?;
        Ok(Outcome {
            asked: asked.clone(),
            took: ended.saturating_duration_since(began),
            is_interrupted: signals.asked_to_stop(),
            driving: sum,
            report,
            outage,
            delivery,
            verdict,
            unread: read_out.unread,
            publish_timeout,
            router_bytes,
            process: outcome::ProcessMemory::read(),
            is_bold: std::io::stdout().is_terminal(),
        })
    }
}

/// What the main thread looks at while others work.
struct Watch<'a> {
    router: &'a Router,
    progress: &'a Progress,
    inspection: &'a Inspection,
    live: &'a mut Live,
    began: Instant,
}

impl Watch<'_> {
    fn look(&mut self, remark: &'static str) {
        if self.live.is_due() {
            self.show(remark);
        }
    }

    fn show(&mut self, remark: &'static str) {
        let counts = self.router.counts();
        let moment = Moment {
            elapsed: self.began.elapsed(),
            accepted: counts.accepted,
            delivered: counts.delivered,
            in_spill: counts.in_spill,
            shed: counts.shed,
            in_flight: counts.unsettled(),
            remark,
        };
        self.live.show(&moment, self.inspection.take_recent_p99());
    }

    /// Accepted and not yet read by the consumer: what an outage piles up.
    fn backlog(&self) -> u64 {
        let counts = self.router.counts();
        let unread = counts.delivered.saturating_sub(self.progress.read.load(Ordering::Relaxed));
        counts.unsettled() + unread
    }
}

fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, CliError> {
    let refused = |error| CliError::Unavailable(format!("no thread for {name}: {error}"));
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(refused)
}

fn join<T>(thread: JoinHandle<T>) -> Result<T, CliError> {
    let name = thread.thread().name().unwrap_or("a thread").to_owned();
    thread.join().map_err(|_| CliError::Unavailable(format!("{name} panicked; nothing can be said of this run")))
}

/// Joins, and says what is being done once it takes long.
fn wait_for<T>(thread: JoinHandle<T>, live: &mut Live, text: impl Fn() -> String) -> Result<T, CliError> {
    let began = Instant::now();
    while !thread.is_finished() {
        if began.elapsed() >= PATIENCE && live.is_due() {
            live.say(&format!("{}, {:.0} s", text(), began.elapsed().as_secs_f64()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    join(thread)
}
