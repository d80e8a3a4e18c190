//! An outage in the middle of a steady load: what is settled meanwhile, what goes over the disk, how fast it comes back, and
//! whether anything was lost, doubled or reordered.
//!
//! Brokers are frozen by SIGSTOP: their connections stay open and nothing answers, which is worse than a broker that is gone.

use super::consumer::{Tail, Watching};
use super::context::{Context, Progress};
use super::driver::{Driver, Fencepost, check_counts};
use super::ground::Where;
use super::histogram::{curve, quantile_row, quantile_table};
use super::load::Load;
use super::outcome::{Band, Chart, Outcome, Unit};
use super::pace::Pace;
use super::timeline::Timeline;
use super::{CliError, Ground};
use crate::cli::table::{bytes, grouped};
use crate::verify::Verdict;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// The longest freeze of the mock: it does not know the sequences of an idempotent producer, so what is sent again after
/// the client's socket time-out of 5 s would be there twice.
const MOCK_SECONDS_MAX: u64 = 3;
/// What the ledger and the checker may hold, about 2 GB of them.
const TRIGGERS_MAX: u64 = 20_000_000;
/// A drain that takes longer is given up.
const DRAIN_LIMIT: Duration = Duration::from_secs(900);
/// Between two looks at an emptying spill.
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Args)]
pub(super) struct Outage {
    #[command(flatten)]
    at: Where,
    /// The processes of the brokers, to be frozen; needed with --kafka, once for each broker. They are thawed however the
    /// measurement ends, unless it is killed by SIGKILL: kill -CONT does it then.
    #[arg(long, value_name = "PID")]
    broker_pid: Vec<u32>,
    /// Triggers a second.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// How long the brokers are frozen, in seconds; the mock bears at most 3.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    outage: u64,
    /// Load before the outage, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    before: u64,
    /// Load after the last trigger has come back from the disk, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    after: u64,
}

/// Brokers that do not answer; they do again when this is dropped.
pub(super) struct Frozen(Vec<u32>);

impl Frozen {
    pub(super) fn freeze(processes: &[u32]) -> Result<Frozen, CliError> {
        let mut frozen = Frozen(Vec::new());
        for &process in processes {
            send(process, Signal::STOP).map_err(|error| {
                let why = format!("broker process {process} cannot be frozen: {error}");
                CliError::Unavailable(format!("{why}; name a running process of this user as --broker-pid"))
            })?;
            frozen.0.push(process);
        }
        Ok(frozen)
    }

    /// Lets a process go on, whether it was frozen or not.
    pub(super) fn thaw(process: u32) {
        if let Err(error) = send(process, Signal::CONT) {
            log::warn!("broker process {process} cannot be thawed: {error}");
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().for_each(|process| Frozen::thaw(*process));
    }
}

fn send(process: u32, signal: Signal) -> std::io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    Ok(kill_process(pid, signal)?)
}

/// The brokers' processes: the mock's own, or those that were named.
pub(super) fn processes(ground: &Ground, named: &[u32], context: &Context) -> Result<Vec<u32>, CliError> {
    if let Some(mock) = &ground.mock {
        return Ok(vec![mock.process()]);
    }
    if named.is_empty() {
        let why =
            "no --broker-pid: on real brokers the outage is made by freezing them; name the process of each broker";
        return Err(CliError::Usage(why.into()));
    }
    for &process in named {
        context.at_forced_end(move || Frozen::thaw(process));
    }
    Ok(named.to_vec())
}

/// When what happened, from the beginning, and what the counters said then.
#[derive(Default)]
struct Moments {
    frozen: Option<Duration>,
    thawed: Option<Duration>,
    drained: Option<Duration>,
    accepted_frozen: u64,
    accepted_thawed: u64,
    settled_frozen: u64,
    settled_thawed: u64,
    drained_thawed: u64,
    drained_end: u64,
}

impl Outage {
    pub(super) fn run(&self, context: &Context) -> Result<Outcome, CliError> {
        self.check_size()?;
        let mut ground = Ground::prepare(&self.at, context)?;
        self.check_span(&ground)?;
        let processes = processes(&ground, &self.broker_pid, context)?;
        let scratch = context.scratch()?;
        ground.spill_to(scratch.path());
        let load = Load::new();
        let mut fencepost = Fencepost::start(&ground, &load)?;
        let tail = Tail::start(&ground, &load, Watching::Everything)?;
        let pace = Pace::new(self.rate, fencepost.taken(), 0);
        tail.set_pace(pace);
        let (before, outage) = (Duration::from_secs(self.before), Duration::from_secs(self.outage));
        let after = Duration::from_secs(self.after);
        let (mut timeline, mut progress) = (Timeline::of(before + 2 * outage + after), Progress::new());
        let (mut moments, mut frozen) = (Moments::default(), None);
        let mut watch = |fencepost: &mut Fencepost<'_>, now: Duration| {
            let settled = fencepost.acknowledged()?;
            let router = fencepost.router();
            timeline.look(now, router)?;
            let counts = router.counts();
            let (phase, mut goes_on) = match &mut moments {
                Moments { frozen: None, .. } if now < before => ("before", true),
                moments @ Moments { frozen: None, .. } => {
                    frozen = Some(Frozen::freeze(&processes)?);
                    (moments.frozen, moments.accepted_frozen) = (Some(now), counts.accepted);
                    moments.settled_frozen = settled;
                    ("frozen", true)
                }
                moments @ Moments { thawed: None, .. } => {
                    if now >= moments.frozen.unwrap_or(now) + outage || context.is_stopped() {
                        frozen = None;
                        (moments.thawed, moments.accepted_thawed) = (Some(now), counts.accepted);
                        (moments.settled_thawed, moments.drained_thawed) = (settled, counts.drained);
                    }
                    ("frozen", true)
                }
                moments @ Moments { drained: None, .. } => {
                    if counts.in_spill == 0 {
                        (moments.drained, moments.drained_end) = (Some(now), counts.drained);
                    }
                    ("draining", now < moments.thawed.unwrap_or(now) + DRAIN_LIMIT)
                }
                Moments { drained, .. } => ("after", now < drained.unwrap_or(now) + after),
            };
            goes_on &= counts.accepted < TRIGGERS_MAX;
            progress.tell(|| {
                let (accepted, delivered) = (grouped(counts.accepted), grouped(counts.delivered));
                let (on_disk, seconds) = (grouped(counts.in_spill), now.as_secs_f64());
                format!("{seconds:>6.1} s  {phase:<8}  accepted {accepted:>11}  delivered {delivered:>11}  in spill {on_disk:>10}")
            });
            Ok(goes_on)
        };
        let paced = pace.drive(&mut fencepost, TRIGGERS_MAX, context, &mut watch)?;
        drop(frozen);
        if moments.thawed.is_some() && moments.drained.is_none() {
            wait_for_the_disk(&fencepost, &mut timeline, pace.began)?;
            (moments.drained, moments.drained_end) = (Some(pace.began.elapsed()), fencepost.router().counts().drained);
        }
        wait_for_the_disk(&fencepost, &mut timeline, pace.began)?;
        let taken = fencepost.taken();
        let report = fencepost.stop();
        let mut seen = tail.finish()?;
        let latency = std::mem::replace(&mut seen.latency, super::histogram::new_histogram());
        tell!("  comparing {} records with {} accepted triggers", grouped(seen.records), grouped(taken));

        let rate = Unit::PerSecond.text(self.rate as f64);
        let title = format!("Brokers frozen for {} s in the middle of a load of {rate}.", self.outage);
        let mut outcome = Outcome::new("outage", title);
        ground.describe(&mut outcome);
        outcome.set("rate", "rate", self.rate, Unit::PerSecond);
        outcome.set("outage_seconds", "frozen for", self.outage, Unit::Seconds);
        self.describe_outage(&mut outcome, &moments, &timeline);
        outcome.figure("spilled", "settled by the disk alone", report.counts.spilled, Unit::Count);
        outcome.figure("in_spill_max", "on disk, at most", timeline.most(|sample| sample.in_spill), Unit::Count);
        outcome.figure("drained", "back from the disk", report.counts.drained, Unit::Count);
        outcome.figure("shed", "shed", report.counts.shed, Unit::Count);
        check_counts(&mut outcome, &report, taken);
        check_topic(&mut outcome, seen, &load, taken);
        let mut table = quantile_table("From due to …");
        quantile_row(&mut table, "settled", &paced.settled);
        quantile_row(&mut table, "consumer", &latency);
        outcome.tables.extend([table, timeline.table()]);
        let mut by_quantile = Chart::by_quantile("From due to settled and to consumer");
        by_quantile.curve("settled, by broker or disk", curve(&paced.settled));
        by_quantile.curve("consumer", curve(&latency));
        let mut charts = [timeline.throughput(), timeline.in_spill(), timeline.memory()];
        charts.iter_mut().for_each(|chart| moments.shade(chart));
        outcome.charts.extend(charts);
        outcome.charts.push(by_quantile);
        outcome.notes.push(
            "A trigger settles when it and all before it are acknowledged or synced to the disk. One that went over the disk \
             reaches a consumer after the outage: that is what the upper quantiles of the consumer show. Resident memory is \
             that of this process: the consumer and its checker, about 100 bytes a record, are in it."
                .into(),
        );
        Ok(outcome)
    }

    fn check_span(&self, ground: &Ground) -> Result<(), CliError> {
        if ground.mock.is_some() && self.outage > MOCK_SECONDS_MAX {
            return Err(CliError::Usage(format!(
                "--outage {} on the mock, allowed 1..={MOCK_SECONDS_MAX}: it does not know an idempotent producer's \
                 sequences, and would hold twice what the client sends again after 5 s; give --kafka and --broker-pid",
                self.outage
            )));
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), CliError> {
        let planned = self.rate.saturating_mul(self.before + self.outage + self.after);
        if planned > TRIGGERS_MAX {
            return Err(CliError::Usage(format!(
                "--rate {} for --before {}, --outage {} and --after {} seconds is {planned} triggers, allowed up to \
                 {TRIGGERS_MAX}, which the checker remembers: take a lower rate or shorter spans",
                self.rate, self.before, self.outage, self.after
            )));
        }
        Ok(())
    }

    fn describe_outage(&self, outcome: &mut Outcome, moments: &Moments, timeline: &Timeline) {
        let Moments { frozen: Some(frozen), thawed: Some(thawed), .. } = *moments else {
            outcome.notes.push("It was ended before the outage was over.".into());
            return;
        };
        let span = thawed - frozen;
        let accepted = moments.accepted_thawed - moments.accepted_frozen;
        outcome.figure("frozen_seconds", "frozen for", span.as_secs_f64(), Unit::Seconds);
        outcome.figure("accepted_in_outage", "accepted during the outage", accepted, Unit::Count);
        let settled = moments.settled_thawed.saturating_sub(moments.settled_frozen);
        outcome.figure("settled_in_outage", "settled during the outage", settled, Unit::Count);
        if let Some(drained) = moments.drained {
            let took = (drained - thawed).as_secs_f64();
            outcome.figure("drain_seconds", "from the thaw to an empty disk", took, Unit::Seconds);
            let count = moments.drained_end - moments.drained_thawed;
            if count > 0 {
                outcome.figure("drain_rate", "drained", count as f64 / took.max(1e-9), Unit::PerSecond);
            }
        }
        let most = |from: Duration, to: Duration| {
            timeline.most(|sample| if (from..to).contains(&sample.at) { sample.memory_bytes } else { 0 })
        };
        for (name, label, from, to) in [
            ("memory_before_bytes", "resident before the outage, at most", Duration::ZERO, frozen),
            ("memory_outage_bytes", "resident during the outage, at most", frozen, thawed),
            ("memory_after_bytes", "resident after it, at most", thawed, Duration::MAX),
        ] {
            let bytes = most(from, to);
            outcome.figure(name, label, (bytes > 0).then_some(bytes), Unit::Bytes);
        }
    }
}

impl Moments {
    fn shade(&self, chart: &mut Chart) {
        for (label, from, to) in [("frozen", self.frozen, self.thawed), ("draining", self.thawed, self.drained)] {
            if let (Some(from), Some(to)) = (from, to) {
                chart.bands.push(Band { label: label.into(), from: from.as_secs_f64(), to: to.as_secs_f64() });
            }
        }
    }
}

/// Waits until nothing is on disk and nothing under way, as long as that gets less.
pub(super) fn wait_for_the_disk(
    fencepost: &Fencepost<'_>,
    timeline: &mut Timeline,
    began: Instant,
) -> Result<(), CliError> {
    let (mut least, mut moved, mut progress) = (u64::MAX, Instant::now(), Progress::new());
    loop {
        let counts = fencepost.router().counts();
        let left = counts.in_spill + counts.unsettled();
        if left == 0 {
            return Ok(());
        }
        if left < least {
            (least, moved) = (left, Instant::now());
        } else if moved.elapsed() > super::driver::DRAIN_LIMIT {
            return Err(CliError::Wrong(format!(
                "{left} triggers are not delivered, and it does not get less: {counts}"
            )));
        }
        let memory = timeline.last().map_or(0, |sample| sample.memory_bytes);
        progress.tell(|| format!("draining, {:>11} left  {:>10} resident", grouped(left), bytes(memory)));
        timeline.look(began.elapsed(), fencepost.router())?;
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The checks that a consumer of everything makes possible: nothing lost, doubled or reordered.
pub(super) fn check_topic(outcome: &mut Outcome, seen: super::consumer::Seen, load: &Load, accepted: u64) {
    let (unread, records) = (seen.unread, seen.records);
    outcome.figure("records", "read from the topic", records, Unit::Count);
    outcome.check(
        "unread",
        unread == 0,
        if unread == 0 {
            "the consumer read every record".into()
        } else {
            format!("{unread} records were forgotten by the brokers before they were read: take a lower rate")
        },
    );
    let verdict = seen.verdict(load, accepted).unwrap_or_default();
    let Verdict { lost, repeated, reordered, .. } = verdict;
    for (name, count) in [("lost", lost), ("repeated", repeated), ("reordered", reordered)] {
        outcome.figure(name, name, count, Unit::Count);
        outcome.check(
            name,
            count == 0,
            format!("{} of {} accepted triggers are {name}", grouped(count), grouped(accepted)),
        );
    }
    let others =
        verdict.foreign + verdict.unreadable + verdict.wrong_partition + verdict.key_mismatch + verdict.unchecked;
    outcome.check("foreign", others == 0, format!("{others} records are foreign, unreadable, misplaced or unchecked"));
    outcome.notes.extend(verdict.first_examples);
}
