//! As fast as it goes.

use super::driver::{Driver, Fencepost, flood};
use super::load::Load;
use super::{CliError, Common, Exit, Ground, process};
use crate::cli::table::{bytes, grouped, span};
use clap::Args;
use serde_json::json;
use std::time::Duration;

/// The memory counts as flat when it grows by less than this share in the second half. All of ours is taken at the start,
/// but a page of it is only there once it was used: up to the sum of the plan and [`OTHERS`], growth means nothing.
const GROWTH_MAX: f64 = 0.10;
/// What is not in the plan: the program, the client library's own queues, the load.
const OTHERS: u64 = 64 << 20;

#[derive(Args)]
pub(super) struct Ceiling {
    #[command(flatten)]
    common: Common,
}

impl Ceiling {
    pub(super) fn run(self) -> Result<Exit, CliError> {
        let ground = Ground::prepare(&self.common)?;
        let load = Load::new();
        let length = Duration::from_secs(self.common.seconds);
        let mut fencepost = Fencepost::start(&ground, &load)?;
        let at_start = process::memory()?;
        let (mut halfway, mut shown) = (None, Duration::ZERO);
        let result = flood(&mut fencepost, length, &mut |elapsed, acked| {
            if halfway.is_none() && elapsed >= length / 2 {
                halfway = Some(process::memory());
            }
            if !self.common.json && elapsed >= shown + Duration::from_secs(1) {
                shown = elapsed;
                tell!("  {:>4} s  {:>12} acknowledged", elapsed.as_secs(), grouped(acked));
            }
        })?;
        let at_end = process::memory()?;
        let halfway = halfway.unwrap_or(Ok(at_end))?;
        let taken = fencepost.taken();
        let planned = fencepost.router().memory().total();
        let report = fencepost.stop();
        let is_flat = at_end <= planned + OTHERS || at_end as f64 <= halfway as f64 * (1.0 + GROWTH_MAX);
        let adds_up = report.counts.add_up() && report.counts.delivered == taken;
        if self.common.json {
            let result = json!({
                "bench": "ceiling", "brokers": ground.brokers, "partitions": ground.partitions,
                "seconds": self.common.seconds, "rate": result.rate, "cpu_ns": result.cpu_ns,
                "memory_planned_bytes": planned, "memory_start_bytes": at_start, "memory_halfway_bytes": halfway,
                "memory_end_bytes": at_end, "memory_is_flat": is_flat, "adds_up": adds_up, "counts": report.counts,
            });
            say!("{result}");
        } else {
            say!(
                "{} triggers in {} s on {}, {} partitions",
                grouped(taken),
                self.common.seconds,
                ground.brokers,
                ground.partitions
            );
            say!("  rate     {:>12}/s acknowledged", grouped(result.rate as u64));
            say!("  CPU      {:>12.0} ns a trigger, all threads of this process", result.cpu_ns);
            say!(
                "  memory   {} at the start, {} half way, {} at the end: {}",
                bytes(at_start),
                bytes(halfway),
                bytes(at_end),
                if is_flat { "flat" } else { "it grew" }
            );
            for (name, stage) in report.stages.named() {
                say!(
                    "  {name:<8} P50 {:>8}  P99 {:>8}  max {:>8}",
                    span(stage.quantile(0.5)),
                    span(stage.quantile(0.99)),
                    span(stage.max())
                );
            }
        }
        if !adds_up {
            return Err(CliError::Wrong(format!("not every trigger was delivered: {}", report.counts)));
        }
        Ok(if is_flat { Exit::Done } else { Exit::Wrong })
    }
}
