//! An open loop: record n is due n / rate after the start, whatever became of the ones before, and its time begins then. A
//! loop that was held up offers what is due at once (coordinated omission is thus corrected). All who are measured at a
//! rate are driven by it.

use super::context::Context;
use super::driver::{DRAIN_LIMIT, Driver};
use super::histogram::{new_histogram, note};
use super::process;
use crate::cli::CliError;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// How long the loop rests when nothing is due; with the kernel's slack about 150 µs.
const REST: Duration = Duration::from_micros(100);

/// When which record is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When the first one is due.
    pub(super) began: Instant,
    /// Records a second.
    pub(super) rate: u64,
    /// The number of the first one in its load.
    pub(super) first: u64,
    /// Of the first ones, how many are not timed: caches, branch predictors and the brokers' own buffers are cold.
    pub(super) lead_in: u64,
}

/// How a run at a pace went.
pub(super) struct Paced {
    /// From due to settled.
    pub(super) settled: Histogram<u64>,
    /// From due to offered: how late the loop itself was.
    pub(super) late: Histogram<u64>,
    /// CPU time of this process for each record that was timed, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// How many were taken.
    pub(super) records: u64,
}

impl Pace {
    pub(super) fn new(rate: u64, first: u64, lead_in: u64) -> Pace {
        Pace { began: Instant::now(), rate, first, lead_in }
    }

    /// When the nth of this pace is due, from its beginning.
    fn due(&self, n: u64) -> Duration {
        Duration::from_nanos((u128::from(n) * 1_000_000_000 / u128::from(self.rate)) as u64)
    }

    /// When the record with this number in its load is due; `None` for one that is not timed.
    pub(super) fn due_of(&self, number: u64) -> Option<Instant> {
        let n = number.checked_sub(self.first + self.lead_in)?;
        Some(self.began + self.due(n + self.lead_in))
    }

    /// Offers `count` records, each when it is due, and waits until all that were taken are settled. `watch` is called
    /// whenever the loop comes round, and says whether to go on offering.
    pub(super) fn drive<D: Driver>(
        &self,
        driver: &mut D,
        mut count: u64,
        context: &Context,
        watch: &mut dyn FnMut(&mut D, Duration) -> Result<bool, CliError>,
    ) -> Result<Paced, CliError> {
        let (mut settled, mut late) = (new_histogram(), new_histogram());
        let first = driver.taken();
        let (mut offered, mut done) = (0, 0);
        let mut cpu = process::cpu_time()?;
        let mut moved = Instant::now();
        while done < count {
            let now = self.began.elapsed();
            if !watch(driver, now)? || context.is_stopped() {
                count = offered;
            }
            while offered < count && self.due(offered) <= now {
                // An answer of "pace yourself" leaves the record taken; only a refusal does not.
                driver.offer()?;
                if driver.taken() - first == offered {
                    break;
                }
                if offered >= self.lead_in {
                    note(&mut late, self.began.elapsed().saturating_sub(self.due(offered)));
                } else if offered + 1 == self.lead_in {
                    cpu = process::cpu_time()?;
                }
                offered += 1;
            }
            let upto = driver.acknowledged()?.saturating_sub(first);
            let now = self.began.elapsed();
            while done < upto {
                if done >= self.lead_in {
                    note(&mut settled, now.saturating_sub(self.due(done)));
                }
                done += 1;
                moved = Instant::now();
            }
            if done < offered && moved.elapsed() > DRAIN_LIMIT {
                let why = format!("{}: {done} of {offered} are settled, no more for {DRAIN_LIMIT:?}", driver.name());
                return Err(CliError::Unavailable(why));
            }
            if offered == count || self.due(offered) > now {
                std::thread::sleep(REST);
            }
        }
        let cpu = process::cpu_time()?.saturating_sub(cpu);
        let cpu_ns = cpu.as_nanos() as f64 / offered.saturating_sub(self.lead_in).max(1) as f64;
        Ok(Paced { settled, late, cpu_ns, records: offered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_due_by_its_number_and_the_lead_in_is_not_timed() {
        let pace = Pace::new(1_000, 500, 10);
        assert_eq!(pace.due_of(499), None, "before this pace");
        assert_eq!(pace.due_of(509), None, "of the lead-in");
        assert_eq!(pace.due_of(510), Some(pace.began + Duration::from_millis(10)));
        assert_eq!(pace.due_of(1_500), Some(pace.began + Duration::from_secs(1)));
    }
}
