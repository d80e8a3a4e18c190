//! Who is measured: each offers records by number and says how far they are acknowledged. The loops that drive them are
//! the same for all.

use super::context::Context;
use super::load::Load;
use super::outcome::{Outcome, Unit};
use super::process;
use super::{CliError, Ground};
use crate::cli::table::grouped;
use crate::engine::{Report, Router};
use crate::ingress::{Ingress, Refused};
use crate::ring::Pressure;
use std::time::{Duration, Instant};

/// How long what is in flight may take after a turn has ended.
pub(super) const DRAIN_LIMIT: Duration = Duration::from_secs(60);
/// How long a loop that runs ahead of its records rests.
const REST: Duration = Duration::from_micros(500);
/// Offers between two looks at the clock and at what came back.
const OFFERS: usize = 256;

/// Something that takes records to Kafka, used by one thread.
pub(super) trait Driver {
    /// What it is called in results.
    fn name(&self) -> &'static str;

    /// Hands over the next record of the load. False: it takes none just now; rest a little.
    fn offer(&mut self) -> Result<bool, CliError>;

    /// Takes what came back. All records up to the number answered are acknowledged, counted from 1 as they were taken.
    fn acknowledged(&mut self) -> Result<u64, CliError>;

    /// Records taken so far.
    fn taken(&self) -> u64;
}

/// What one turn came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    /// Acknowledged records a second, from the first offer to the last acknowledgement.
    pub(super) rate: f64,
    /// CPU time of this process for each of them, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// How many.
    pub(super) records: u64,
}

/// When a flood ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// After so long.
    Span(Duration),
    /// After so many records.
    Records(u64),
}

/// As fast as it goes until the end, or until somebody asks for it; then until everything is acknowledged. `watch` sees
/// each look at the clock.
pub(super) fn flood<D: Driver + ?Sized>(
    driver: &mut D,
    until: Until,
    context: &Context,
    watch: &mut dyn FnMut(&D, Duration, u64) -> Result<(), CliError>,
) -> Result<Flood, CliError> {
    let (first, began, cpu) = (driver.taken(), Instant::now(), process::cpu_time()?);
    let mut is_over = false;
    while !is_over && !context.is_stopped() {
        for _ in 0..OFFERS {
            is_over = matches!(until, Until::Records(most) if driver.taken() - first >= most);
            if is_over {
                break;
            }
            if !driver.offer()? {
                std::thread::sleep(REST);
                break;
            }
        }
        is_over |= matches!(until, Until::Span(span) if began.elapsed() >= span);
        let acknowledged = driver.acknowledged()?.saturating_sub(first);
        watch(driver, began.elapsed(), acknowledged)?;
    }
    drain(driver)?;
    let (took, records) = (began.elapsed(), driver.taken() - first);
    let cpu = process::cpu_time()?.saturating_sub(cpu);
    Ok(Flood {
        rate: records as f64 / took.as_secs_f64(),
        cpu_ns: cpu.as_nanos() as f64 / records.max(1) as f64,
        records,
    })
}

/// Waits until everything that was taken is acknowledged.
pub(super) fn drain<D: Driver + ?Sized>(driver: &mut D) -> Result<(), CliError> {
    let began = Instant::now();
    while driver.acknowledged()? < driver.taken() {
        if began.elapsed() > DRAIN_LIMIT {
            let (acked, taken) = (driver.acknowledged()?, driver.taken());
            let text = format!("{}: {acked} of {taken} records are acknowledged after {DRAIN_LIMIT:?}", driver.name());
            return Err(CliError::Unavailable(text));
        }
        std::thread::sleep(REST);
    }
    Ok(())
}

/// One ingress of the router and its share of the load: every `of`th trigger, from `index` on.
pub(super) struct Submitter<'a> {
    ingress: Ingress,
    load: &'a Load,
    index: u64,
    of: u64,
}

impl<'a> Submitter<'a> {
    /// # Panics
    /// If the router has no ingress left: there are as many as were configured.
    pub(super) fn new(router: &Router, load: &'a Load, index: u64, of: u64) -> Submitter<'a> {
        let ingress = router.ingress().expect("there are as many ingresses as were configured");
        Submitter { ingress, load, index, of }
    }
}

impl Driver for Submitter<'_> {
    fn name(&self) -> &'static str {
        "fencepost"
    }

    fn offer(&mut self) -> Result<bool, CliError> {
        let number = self.index + self.of * self.ingress.accepted();
        match self.ingress.submit(&self.load.trigger(number)) {
            Ok(accepted) => Ok(accepted.pressure == Pressure::Clear),
            Err(Refused::Shed(_)) => Ok(false),
            Err(refused) => Err(CliError::Unavailable(format!("the router took no more: {refused}"))),
        }
    }

    fn acknowledged(&mut self) -> Result<u64, CliError> {
        if let Some(failed) = self.ingress.take_failed() {
            return Err(CliError::Unavailable(format!("record {} failed: {}", failed.seq, failed.reason)));
        }
        Ok(self.ingress.settled().0)
    }

    fn taken(&self) -> u64 {
        self.ingress.accepted()
    }
}

/// The router, fed by one ingress with the load from its beginning.
pub(super) struct Fencepost<'a> {
    router: Router,
    submitter: Submitter<'a>,
}

impl<'a> Fencepost<'a> {
    pub(super) fn start(ground: &Ground, load: &'a Load) -> Result<Fencepost<'a>, CliError> {
        let (router, _) = Router::start(&ground.config)?;
        Ok(Fencepost::on(router, load, 0))
    }

    /// A router that runs, with the load from this number on.
    pub(super) fn on(router: Router, load: &'a Load, first: u64) -> Fencepost<'a> {
        let submitter = Submitter::new(&router, load, first, 1);
        Fencepost { router, submitter }
    }

    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    /// Stops the router. Everything was settled before, so this takes no time.
    pub(super) fn stop(self) -> Report {
        self.router.shutdown(Duration::from_secs(5))
    }
}

impl Driver for Fencepost<'_> {
    fn name(&self) -> &'static str {
        self.submitter.name()
    }

    fn offer(&mut self) -> Result<bool, CliError> {
        self.submitter.offer()
    }

    fn acknowledged(&mut self) -> Result<u64, CliError> {
        self.submitter.acknowledged()
    }

    fn taken(&self) -> u64 {
        self.submitter.taken()
    }
}

/// The check that every measurement with a router makes: its counters add up, and all that was taken was delivered.
pub(super) fn check_counts(outcome: &mut Outcome, report: &Report, taken: u64) {
    let counts = &report.counts;
    let is_good = counts.add_up() && counts.delivered == taken && report.lost_shards.is_empty();
    let figures = [("accepted", "accepted", counts.accepted), ("delivered", "delivered", counts.delivered)];
    for (name, label, count) in figures {
        outcome.figure(name, label, count, Unit::Count);
    }
    let found = if is_good {
        format!("all {} triggers that were accepted are acknowledged, and the counters add up", grouped(taken))
    } else {
        format!("{} triggers were taken; {counts}", grouped(taken))
    };
    outcome.check("adds_up", is_good, found);
}
