//! The machine's facts that figures hang on, as far as the system tells them to this user. What it does not tell is absent.

use serde::{Deserialize, Serialize};
use std::fs;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The CPU's name.
    pub(super) cpu: Option<String>,
    /// CPUs that this process may use.
    pub(super) cores: u64,
    pub(super) kernel: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    /// How the clock of CPU 0 is governed.
    pub(super) governor: Option<String>,
    /// Processes that ran or wanted to, averaged over a minute: when the measurement began, and at its end.
    pub(super) load_before: Option<f64>,
    pub(super) load_after: Option<f64>,
}

impl Machine {
    /// As it is now; the load at the end is still to be noted.
    pub(super) fn read() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Machine {
            cpu: text("/proc/cpuinfo").as_deref().and_then(cpu_of),
            cores,
            kernel: text("/proc/sys/kernel/osrelease"),
            memory_bytes: text("/proc/meminfo").as_deref().and_then(|text| kib_of(text, "MemTotal:")),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_before: load(),
            load_after: None,
        }
    }

    pub(super) fn note_end(&mut self) {
        self.load_after = load();
    }
}

/// What could be taken now without pushing anything out, in bytes.
pub(super) fn available_bytes() -> Option<u64> {
    kib_of(&text("/proc/meminfo")?, "MemAvailable:")
}

fn text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

fn load() -> Option<f64> {
    text("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

/// x86 says `model name`, others name the hardware, or only its parts.
fn cpu_of(cpuinfo: &str) -> Option<String> {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_string())
    };
    value("model name").or_else(|| value("Hardware")).or_else(|| value("CPU part").map(|part| format!("part {part}")))
}

fn kib_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_what_the_kernel_writes() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: X\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\n";
        assert_eq!(cpu_of(cpuinfo).as_deref(), Some("AMD EPYC 7B13"));
        assert_eq!(cpu_of("processor : 0\nCPU part : 0xd0c\n").as_deref(), Some("part 0xd0c"));
        assert_eq!(cpu_of(""), None);
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:   12 kB\n";
        assert_eq!(kib_of(meminfo, "MemAvailable:"), Some(12_288));
        assert_eq!(kib_of(meminfo, "MemFree:"), None);
        assert!(Machine::read().cores > 0);
    }
}
