//! What came of a demo: judged in one place, then printed as tables or as JSON.

use super::cluster::{BROKERS, PARTITIONS};
use super::inspector::{Delivery, Plant};
use super::load::Driven;
use crate::cli::table::{bytes, grouped, right, span, wrapped};
use crate::engine::{Report, Stages};
use crate::ingress::Ingress;
use crate::metrics::Snapshot;
use crate::sim::fleet::FleetOptions;
use crate::units::Nanos;
use crate::verify::{Ledger, Verdict, conservation};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Columns of the text.
const WIDTH: usize = 100;
/// Quantiles and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
/// The machine did not keep up below this share of the rate asked for.
const REACHED_MIN: f64 = 0.98;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Of the fleet.
    pub seed: u64,
    /// Triggers a second.
    pub rate: u64,
    /// For so long.
    pub seconds: u64,
    /// All triggers.
    pub total: u64,
    /// Threads that submit.
    pub ingresses: u64,
    /// Shards of the router.
    pub shards: u16,
    /// Devices of the fleet.
    pub devices: u32,
    /// The fault to plant.
    pub plant: Option<Plant>,
    /// The whole fleet.
    pub fleet: FleetOptions,
}

/// The outage as it was.
#[derive(Clone, Debug, Default)]
pub struct Outage {
    /// After the load began; `None` if the run ended before.
    pub at: Option<Duration>,
    /// How long the brokers were frozen.
    pub frozen: Duration,
    /// From its beginning until everything it had held up was through; `None` if the run ended before.
    pub over_after: Option<Duration>,
    /// The most triggers that waited in the router meanwhile.
    pub backlog_max: u64,
    /// The most that lay on disk at once.
    pub in_spill_max: u64,
    /// From the thaw until nothing was left on disk; `None` if nothing ever was, or if something is at the end.
    pub drained_after: Option<Duration>,
    /// Records a second that came back from the disk meanwhile.
    pub drain_rate: f64,
    /// Late acknowledgements from its beginning until it was over.
    pub late: u64,
    /// The stages before it and after it was over.
    pub outside: Stages,
}

/// What the threads of the load did together.
#[derive(Clone, Debug, Default)]
pub struct Driving {
    /// Triggers offered.
    pub offered: u64,
    /// Of those: repeats, as the fleet made them.
    pub repeats: u64,
    /// The furthest that the load came behind its times.
    pub behind_max: Duration,
    /// Accepted, but behind an ingress's watermark at the end.
    pub behind_watermark: u64,
    /// Handed back as failed.
    pub taken_back: u64,
}

/// The process's own memory, where the system tells it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    /// Resident now.
    pub now: Option<u64>,
    /// Resident at its peak.
    pub max: Option<u64>,
}

/// Everything about a run.
pub struct Outcome {
    /// What was asked for.
    pub asked: Asked,
    /// From the first trigger due to the last one offered.
    pub took: Duration,
    /// Whether a signal ended it early.
    pub is_interrupted: bool,
    /// The load.
    pub driving: Driving,
    /// The router's report.
    pub report: Report,
    /// The outage.
    pub outage: Outage,
    /// Submit to consumer.
    pub delivery: Delivery,
    /// The checker's.
    pub verdict: Verdict,
    /// Records that the consumer never saw, since the brokers forgot them or did not hand them out.
    pub unread: u64,
    /// From when on the router calls an acknowledgement late.
    pub publish_timeout: Nanos,
    /// The router's memory sum.
    pub router_bytes: u64,
    /// The process.
    pub process: ProcessMemory,
    /// Whether headings stand out: on a terminal.
    pub is_bold: bool,
}

impl Driving {
    /// Adds up what the threads did, and gives back their ledgers. The router must have stopped.
    #[must_use]
    pub fn of(driven: Vec<Driven>) -> (Driving, Vec<Ledger>) {
        let mut sum = Driving::default();
        let ledgers = driven.into_iter().map(|Driven { mut ingress, ledger, offered, repeats, behind_max, .. }| {
            sum.offered += offered;
            sum.repeats += repeats;
            sum.behind_max = sum.behind_max.max(behind_max);
            sum.taken_back += take_all_failed(&mut ingress);
            sum.behind_watermark += ingress.accepted() - ingress.settled().0;
            ledger
        });
        let ledgers = ledgers.collect();
        (sum, ledgers)
    }
}

fn take_all_failed(ingress: &mut Ingress) -> u64 {
    std::iter::from_fn(|| ingress.take_failed()).count() as u64
}

impl ProcessMemory {
    /// As the kernel tells it.
    #[must_use]
    pub fn read() -> ProcessMemory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib * 1_024)
        };
        ProcessMemory { now: field("VmRSS"), max: field("VmHWM") }
    }
}

impl Outcome {
    /// Whether everything is as promised.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.complaints().is_empty()
    }

    /// What is wrong, each in a few words.
    fn complaints(&self) -> Vec<String> {
        let counts = &self.report.counts;
        let mut complaints: Vec<String> = self
            .verdict
            .faults()
            .into_iter()
            .filter(|fault| fault.1 > 0)
            .map(|(name, count)| format!("{} {}", grouped(count), name.replace('_', " ")))
            .collect();
        for (count, words) in [
            (counts.unsettled(), "unsettled in the router"),
            (self.driving.behind_watermark, "behind a watermark that stands still"),
            (counts.in_spill, "still on disk"),
            (counts.dead_lettered, "among the dead letters"),
            (counts.corrupt, "lost by the disk"),
            (counts.failed, "handed back as failed"),
            (counts.rejected, "rejected, although the fleet makes good ones only"),
            (self.verdict.records.abs_diff(counts.delivered), "apart: records read and records acknowledged"),
        ] {
            if count > 0 {
                complaints.push(format!("{} {words}", grouped(count)));
            }
        }
        if self.unread > 0 {
            let unread = grouped(self.unread);
            complaints.push(format!("{unread} never read (the in-process brokers keep 5 MB a partition)"));
        }
        if let Err(imbalance) = self.check_sum() {
            complaints.push(imbalance.to_string());
        }
        if !self.report.lost_shards.is_empty() {
            complaints.push(format!("shards {:?} did not stop in order", self.report.lost_shards));
        }
        complaints
    }

    /// The sum, from the names that a reader of the JSON would use.
    fn check_sum(&self) -> Result<(), conservation::Imbalance> {
        let counts = self.counters();
        conservation::check(|name| counts.get(name).and_then(Value::as_u64))
    }

    fn counters(&self) -> Map<String, Value> {
        match serde_json::to_value(self.report.counts) {
            Ok(Value::Object(counters)) => counters,
            other => unreachable!("counters are a plain struct of numbers, not {other:?}"),
        }
    }

    fn rate_reached(&self) -> f64 {
        self.report.counts.accepted as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// The verdict in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let complaints = self.complaints();
        if !complaints.is_empty() {
            return format!("WRONG: {}.", complaints.join("; "));
        }
        let through = match self.outage.at {
            Some(_) => format!(", through brokers that were frozen for {}", span(self.outage.frozen.into())),
            None => String::new(),
        };
        let shed = match self.report.counts.shed {
            0 => String::new(),
            shed => format!(" The router refused {} triggers at submit, for pressure.", grouped(shed)),
        };
        format!(
            "Nothing was lost, doubled or reordered: each of the {} distinct triggers that were accepted is in the \
             topic once, in the order of its device{through}.{shed}",
            grouped(self.verdict.accepted)
        )
    }

    /// One object, on one line.
    #[must_use]
    pub fn json(&self) -> String {
        let Outcome { asked, driving, verdict, outage, .. } = self;
        let mut object = self.counters();
        let more = json!({
            "lost": verdict.lost,
            "repeated": verdict.repeated,
            "reordered": verdict.reordered,
            "unread": self.unread,
            "unsettled": self.report.counts.unsettled().max(driving.behind_watermark),
            "adds_up": self.check_sum().is_ok(),
            "is_good": self.is_good(),
            "sentence": self.sentence(),
            "seed": asked.seed,
            "rate_asked": asked.rate,
            "rate_reached": rounded(self.rate_reached()),
            "seconds_asked": asked.seconds,
            "seconds": rounded(self.took.as_secs_f64()),
            "interrupted": self.is_interrupted,
            "ingresses": asked.ingresses,
            "shards": asked.shards,
            "partitions": PARTITIONS,
            "devices": asked.devices,
            "offered": driving.offered,
            "offered_distinct": driving.offered - driving.repeats,
            "offered_behind_ms_max": rounded(driving.behind_max.as_secs_f64() * 1e3),
            "stages": stages_json(&self.report.stages, &self.delivery.whole),
            "stages_outside_outage": stages_json(&outage.outside, &self.delivery.outside),
            "outage": outage.at.map(|at| json!({
                "at_ms": at.as_millis() as u64,
                "frozen_ms": outage.frozen.as_millis() as u64,
                "over_after_ms": outage.over_after.map(|after| after.as_millis() as u64),
                "unsettled_max": outage.backlog_max,
                "spilled_max": outage.in_spill_max,
                "drained_after_ms": outage.drained_after.map(|after| after.as_millis() as u64),
                "drain_rate": rounded(outage.drain_rate),
                "late": outage.late,
            })),
            "check": verdict,
            "router_bytes": self.router_bytes,
            "process_bytes": self.process.now,
            "process_bytes_max": self.process.max,
        });
        if let Value::Object(more) = more {
            object.extend(more);
        }
        Value::Object(object).to_string()
    }

    /// Tables for a person, at most [`WIDTH`] columns wide.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let Outcome { asked, .. } = self;
        writeln!(
            out,
            "{} devices, seed {}, {} ingresses ─▶ {} ─▶ {PARTITIONS} partitions on {BROKERS} in-process brokers",
            grouped(asked.devices.into()),
            asked.seed,
            asked.ingresses,
            if asked.shards == 1 { "1 shard".to_owned() } else { format!("{} shards", asked.shards) },
        )?;
        if self.is_interrupted {
            writeln!(out, "ended early by a signal; what was accepted was delivered and checked")?;
        }
        self.write_counters(out)?;
        self.write_stages(out)?;
        self.write_sum(out)?;
        self.heading(out, "Memory")?;
        writeln!(
            out,
            "  {}  the router, reserved at start and never more; untouched pages are not resident",
            right(&bytes(self.router_bytes), 12)
        )?;
        if let Some(max) = self.process.max {
            let words = "resident in this process at its peak, with brokers, clients, fleet and checker";
            writeln!(out, "  {}  {words}", right(&bytes(max), 12))?;
        }
        self.heading(out, "Verdict")?;
        writeln!(out, "{}", wrapped(&self.sentence(), "  ", WIDTH))?;
        for example in &self.verdict.first_examples {
            writeln!(out, "{}", wrapped(example, "    ", WIDTH))?;
        }
        Ok(())
    }

    fn heading(&self, out: &mut String, text: &str) -> std::fmt::Result {
        if self.is_bold { writeln!(out, "\n\x1b[1m{text}\x1b[0m") } else { writeln!(out, "\n{text}") }
    }

    fn write_counters(&self, out: &mut String) -> std::fmt::Result {
        let (counts, driving, verdict) = (&self.report.counts, &self.driving, &self.verdict);
        let percent = |part: u64, whole: u64| format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64);
        let reached = self.rate_reached();
        let pace = format!(
            "in {:.1} s; accepted {}/s, asked for {}/s",
            self.took.as_secs_f64(),
            grouped(reached.round() as u64),
            grouped(self.asked.rate)
        );
        let behind = match driving.behind_max {
            behind if (self.took.as_secs_f64() * REACHED_MIN) > self.asked.seconds as f64 => {
                format!("; this machine offered up to {} too late", span(behind.into()))
            }
            _ => String::new(),
        };
        self.heading(out, "Triggers")?;
        row(out, "offered", driving.offered, &format!("{pace}{behind}"))?;
        row(out, "accepted", counts.accepted, &percent(counts.accepted, driving.offered))?;
        row(out, "delivered", counts.delivered, "acknowledged by the brokers")?;
        let repeats = format!("repeats collapsed; the fleet made {}", grouped(driving.repeats));
        row(out, "deduplicated", counts.deduplicated, &repeats)?;
        row(out, "spilled", counts.spilled, "settled by the disk while their partition was stalled")?;
        row(out, "drained", counts.drained, "of those, back from the disk in their order")?;
        row(out, "in spill", counts.in_spill, "on disk, not delivered yet")?;
        row(out, "shed", counts.shed, "refused at submit for pressure, still the caller's")?;
        let mut late = format!("acknowledged after {}", span(self.publish_timeout));
        if self.outage.at.is_some() {
            let _ = write!(late, "; {} of them due to the outage", grouped(self.outage.late));
        }
        row(out, "late", counts.late, &late)?;
        for (name, count) in [
            ("rejected", counts.rejected),
            ("failed", counts.failed),
            ("dead-lettered", counts.dead_lettered),
            ("corrupt", counts.corrupt),
            ("refused batches", counts.refused_batches),
            ("uncertain", counts.uncertain),
            ("producer rebuilds", counts.producer_rebuilds),
            ("client errors", counts.client_errors),
            ("evicted early", counts.dedup_evicted_early),
        ] {
            if count > 0 {
                row(out, name, count, "")?;
            }
        }
        self.heading(out, "What the consumer read, against what was accepted")?;
        let keys = format!("{} distinct keys, of {} accepted", grouped(verdict.distinct), grouped(verdict.accepted));
        row(out, "records", verdict.records, &keys)?;
        row(out, "lost", verdict.lost, "accepted, and in no partition")?;
        row(out, "doubled", verdict.repeated, "in the topic more than once")?;
        row(out, "reordered", verdict.reordered, "behind a later one of their device")?;
        let others: u64 = verdict.faults().iter().skip(3).map(|fault| fault.1).sum();
        row(out, "other faults", others, "foreign, unreadable, wrong partition or key, gaps, clock, unchecked")
    }

    fn write_stages(&self, out: &mut String) -> std::fmt::Result {
        self.heading(out, "How long it took")?;
        let Outage { at, frozen, over_after, backlog_max, in_spill_max, drained_after, drain_rate, .. } = &self.outage;
        let until = over_after.map_or("not caught up before the end".to_owned(), |over| {
            format!("caught up {} after it began", span(over.into()))
        });
        let disk = match drained_after {
            _ if *in_spill_max == 0 => String::new(),
            None => format!(" At most {} lay on disk at once.", grouped(*in_spill_max)),
            Some(after) => format!(
                " At most {} lay on disk at once; it was drained {} after the thaw, at {}/s.",
                grouped(*in_spill_max),
                span((*after).into()),
                grouped(drain_rate.round() as u64)
            ),
        };
        let outage = match at {
            None => "The run ended before the outage.".to_owned(),
            Some(at) => format!(
                "Brokers frozen at {:.1} s for {}, {until}, {} waiting in memory at most.{disk}",
                at.as_secs_f64(),
                span((*frozen).into()),
                grouped(*backlog_max)
            ),
        };
        writeln!(out, "{}", wrapped(&outage, "  ", WIDTH))?;
        writeln!(out)?;
        let group = |name: &str| format!("{name:─^34}");
        writeln!(out, "  {:24}{}     {}", "", group(" outside the outage "), group(" whole run "))?;
        let names = ["P50", "P95", "P99", "P99.9"].map(|name| right(name, 9)).concat();
        writeln!(out, "  {:22}{names}   {names}", "")?;
        let whole = self.report.stages.named();
        for ((name, whole), (_, outside)) in whole.iter().zip(self.outage.outside.named()) {
            let what = match *name {
                "emit" => "one submit",
                "queue" => "in a ring",
                "dedup" => "ring to client",
                "publish" => "client to ack",
                "settle" => "submit to ack",
                _ => "",
            };
            stage_row(out, name, what, snapshot_cells(outside), snapshot_cells(whole))?;
        }
        let Delivery { whole, outside } = &self.delivery;
        stage_row(out, "deliver", "to consumer", histogram_cells(outside), histogram_cells(whole))
    }

    fn write_sum(&self, out: &mut String) -> std::fmt::Result {
        let counters = self.counters();
        let side = |names: &[&str]| {
            let count = |name: &&str| counters.get(*name).and_then(Value::as_u64).unwrap_or_default();
            let terms: Vec<String> = names.iter().map(|name| format!("{name} {}", grouped(count(name)))).collect();
            terms.join(" + ")
        };
        let (came_in, is_somewhere) = self.report.counts.sides();
        let sign = if came_in == is_somewhere { "=" } else { "≠" };
        self.heading(out, "Conservation: each trigger that was accepted is in exactly one place")?;
        writeln!(out, "    {}", side(&conservation::SOURCES))?;
        let places = wrapped(&side(&conservation::PLACES), "    ", WIDTH);
        writeln!(out, "  {sign}{}", &places[3..])?;
        writeln!(out, "    {} {sign} {}", grouped(came_in), grouped(is_somewhere))
    }
}

fn row(out: &mut String, name: &str, count: u64, remark: &str) -> std::fmt::Result {
    let line = format!("  {name:<17}{}   {remark}", right(&grouped(count), 11));
    writeln!(out, "{}", line.trim_end())
}

fn stage_row(out: &mut String, name: &str, what: &str, outside: [String; 4], whole: [String; 4]) -> std::fmt::Result {
    let cells = |cells: [String; 4]| cells.map(|cell| right(&cell, 9)).concat();
    writeln!(out, "  {name:<8}{what:<14}{}   {}", cells(outside), cells(whole))
}

fn snapshot_cells(snapshot: &Snapshot) -> [String; 4] {
    let is_empty = snapshot.count() == 0;
    QUANTILES.map(|(_, quantile)| if is_empty { "-".to_owned() } else { span(snapshot.quantile(quantile)) })
}

fn histogram_cells(histogram: &Histogram<u64>) -> [String; 4] {
    let at = |quantile| span(Nanos::from_micros(histogram.value_at_quantile(quantile)));
    QUANTILES.map(|(_, quantile)| if histogram.is_empty() { "-".to_owned() } else { at(quantile) })
}

/// Each stage by its name, in µs.
fn stages_json(stages: &Stages, deliver: &Histogram<u64>) -> Value {
    let mut object = Map::new();
    for (name, snapshot) in stages.named() {
        let us = |nanos: Nanos| rounded(nanos.0 as f64 / 1e3);
        let quantiles =
            QUANTILES.map(|(name, quantile)| (format!("{name}_us"), json!(us(snapshot.quantile(quantile)))));
        let mut stage: Map<String, Value> = quantiles.into_iter().collect();
        stage.insert("count".into(), json!(snapshot.count()));
        stage.insert("max_us".into(), json!(us(snapshot.max())));
        object.insert(name.to_owned(), Value::Object(stage));
    }
    let quantiles =
        QUANTILES.map(|(name, quantile)| (format!("{name}_us"), json!(deliver.value_at_quantile(quantile) as f64)));
    let mut stage: Map<String, Value> = quantiles.into_iter().collect();
    stage.insert("count".into(), json!(deliver.len()));
    stage.insert("max_us".into(), json!(deliver.max() as f64));
    object.insert("deliver".into(), Value::Object(stage));
    Value::Object(object)
}

/// Three decimals are enough for anything here.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
