//! The scheduler's answers and orders. The only place that calls it.

use super::CpuSet;
use std::io;

/// The CPUs the calling thread may use.
///
/// # Errors
/// What the kernel says; a host with more than 1,024 CPUs is one reason.
pub fn allowed() -> io::Result<CpuSet> {
    // SAFETY: a cpu_set_t is an array of integers, for which all zeroes is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // WHY: the standard library has no call for it. SAFETY: the size is that of the set the kernel writes to.
    let answer = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: ids below CPU_SETSIZE are inside the set.
    let is_set = |id: &usize| unsafe { libc::CPU_ISSET(*id, &set) };
    Ok(CpuSet::new((0..libc::CPU_SETSIZE as usize).filter(is_set).collect()))
}

/// Keeps the calling thread, and every thread it will create, on these CPUs.
///
/// # Errors
/// What the kernel says: an empty set, or none of the CPUs may be used.
pub fn restrict_to(cpus: &CpuSet) -> io::Result<()> {
    // SAFETY: a cpu_set_t is an array of integers, for which all zeroes is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &id in cpus.ids() {
        if id >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("CPU {id} is beyond the kernel's set")));
        }
        // SAFETY: the id is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(id, &mut set) }
    }
    // SAFETY: the size is that of the set the kernel reads.
    let answer = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When the scheduler refuses.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if core_affinity::set_for_current(core_affinity::CoreId { id: cpu }) {
        return Ok(());
    }
    Err(io::Error::other(format!("the scheduler did not pin the thread to CPU {cpu}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put_and_so_do_its_children() {
        let allowed_here = allowed().unwrap();
        let first = allowed_here.ids()[0];
        let inherited = std::thread::spawn(move || {
            restrict_to(&CpuSet::new(vec![first])).unwrap();
            std::thread::spawn(|| allowed().unwrap()).join().unwrap()
        });
        assert_eq!(inherited.join().unwrap().ids(), [first]);
        assert_eq!(allowed().unwrap(), allowed_here, "other threads are not touched");
    }

    #[test]
    fn an_empty_set_is_an_error() {
        assert!(restrict_to(&CpuSet::default()).is_err());
    }
}
