//! How much memory there is for this process: the host's, or what its control group allows if that is less.

/// In bytes; `None` where the kernel does not say.
#[must_use]
pub fn total_bytes() -> Option<u64> {
    let host = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(of_meminfo);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().as_deref().and_then(of_group);
    match (host, group) {
        (Some(host), Some(group)) => Some(host.min(group)),
        (host, group) => host.or(group),
    }
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// `max` means no limit.
fn of_group(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(of_meminfo("MemTotal:       24616160 kB\nMemFree: 1 kB\n"), Some(24_616_160 * 1_024));
        assert_eq!(of_meminfo("MemFree: 1 kB\n"), None);
        assert_eq!((of_group("max\n"), of_group("1073741824\n")), (None, Some(1 << 30)));
    }
}
