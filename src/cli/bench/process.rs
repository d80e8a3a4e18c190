//! What this process has used, from `/proc`: CPU time in ticks of 10 ms, which is a thousandth of a turn of some seconds
//! on two cores, and memory in pages.

use crate::cli::CliError;
use std::fs;
use std::time::Duration;

/// CPU time of all threads so far.
pub(super) fn cpu_time() -> Result<Duration, CliError> {
    // After the name in parentheses: state is field 3, user and system time are 14 and 15 (proc(5)).
    let text = read("/proc/self/stat")?;
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let ticks = |field: usize| fields.as_ref()?.get(field - 3)?.parse::<u64>().ok();
    match (ticks(14), ticks(15)) {
        // Linux shows ticks of 1/100 s, whatever its own are.
        (Some(user), Some(system)) => Ok(Duration::from_millis((user + system) * 10)),
        _ => Err(CliError::Unavailable("/proc/self/stat does not say what CPU time was used".into())),
    }
}

/// Memory that is really there, in bytes.
pub(super) fn memory() -> Result<u64, CliError> {
    let text = read("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1_024).ok_or_else(|| CliError::Unavailable("/proc/self/status does not say VmRSS".into()))
}

fn read(path: &str) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|error| CliError::Unavailable(format!("{path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_uses_cpu_time_and_pages_use_memory() {
        let (before, began) = (cpu_time().unwrap(), std::time::Instant::now());
        while cpu_time().unwrap() - before < Duration::from_millis(50) {
            assert!(began.elapsed() < Duration::from_secs(30), "no CPU time is counted");
        }
        let before = memory().unwrap();
        let pages = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = memory().unwrap();
        drop(pages);
        assert!(after > before + (32 << 20), "{before} -> {after}");
    }
}
