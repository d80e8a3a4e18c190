//! Who is measured: each offers records by number and says how far they are acknowledged. The loops that drive them are
//! the same for all.

use super::load::Load;
use super::process;
use super::{CliError, Ground};
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
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Flood {
    /// Acknowledged records a second, from the first offer to the last acknowledgement.
    pub(super) rate: f64,
    /// CPU time of this process for each of them, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// How many.
    pub(super) records: u64,
}

/// As fast as it goes for `span`, then until everything is acknowledged. `watch` sees each look at the clock.
pub(super) fn flood(
    driver: &mut dyn Driver,
    span: Duration,
    watch: &mut dyn FnMut(Duration, u64),
) -> Result<Flood, CliError> {
    let (first, began, cpu) = (driver.taken(), Instant::now(), process::cpu_time()?);
    while began.elapsed() < span {
        for _ in 0..OFFERS {
            if !driver.offer()? {
                std::thread::sleep(REST);
                break;
            }
        }
        let acknowledged = driver.acknowledged()?.saturating_sub(first);
        watch(began.elapsed(), acknowledged);
    }
    drain(driver)?;
    let (took, records) = (began.elapsed(), driver.taken() - first);
    let cpu = process::cpu_time()? - cpu;
    Ok(Flood {
        rate: records as f64 / took.as_secs_f64(),
        cpu_ns: cpu.as_nanos() as f64 / records.max(1) as f64,
        records,
    })
}

/// Waits until everything that was taken is acknowledged.
pub(super) fn drain(driver: &mut dyn Driver) -> Result<(), CliError> {
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

/// The router, fed by one ingress.
pub(super) struct Fencepost<'a> {
    router: Router,
    ingress: Ingress,
    load: &'a Load,
}

impl<'a> Fencepost<'a> {
    pub(super) fn start(ground: &Ground, load: &'a Load) -> Result<Fencepost<'a>, CliError> {
        let (router, _) = Router::start(&ground.config)?;
        let ingress = router.ingress().expect("a fresh router has an ingress left");
        Ok(Fencepost { router, ingress, load })
    }

    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    /// Stops the router. Everything was acknowledged before, so this takes no time.
    pub(super) fn stop(self) -> Report {
        self.router.shutdown(Duration::from_secs(5))
    }
}

impl Driver for Fencepost<'_> {
    fn name(&self) -> &'static str {
        "fencepost"
    }

    fn offer(&mut self) -> Result<bool, CliError> {
        match self.ingress.submit(&self.load.trigger(self.ingress.accepted())) {
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
