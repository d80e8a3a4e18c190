//! The host: which CPUs the process may use, and which of them a thread shall use.
//!
//! [`affinity`] is the only caller of the scheduler. The policy is `none` or a list of kernel CPU ids for now.

pub mod affinity;
pub mod fork;
pub mod memory;

use std::fmt;

/// A set of kernel CPU ids, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<usize>);

impl CpuSet {
    /// The ids, sorted and once each.
    #[must_use]
    pub fn new(mut ids: Vec<usize>) -> CpuSet {
        ids.sort_unstable();
        ids.dedup();
        CpuSet(ids)
    }

    /// The ids.
    #[must_use]
    pub fn ids(&self) -> &[usize] {
        &self.0
    }

    /// Whether `id` is in it.
    #[must_use]
    pub fn contains(&self, id: usize) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// What is in `self` and not in `other`.
    #[must_use]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.iter().copied().filter(|id| !other.contains(*id)).collect())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for CpuSet {
    /// `0-3,8`, as the kernel writes it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let [first, ..] = *rest {
            let run = rest.iter().zip(first..).take_while(|(id, want)| **id == *want).count();
            match run {
                1 => write!(out, "{separator}{first}")?,
                _ => write!(out, "{separator}{first}-{}", first + run - 1)?,
            }
            (rest, separator) = (&rest[run..], ",");
        }
        Ok(())
    }
}

/// Where each shard runs, and where everything else does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One CPU per shard; empty: not pinned.
    pub shards: Vec<usize>,
    /// For the client library's threads and our own others.
    pub others: CpuSet,
    /// Something a person should know about it.
    pub warning: Option<String>,
}

/// Why shards cannot be placed as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A CPU this process may not use.
    #[error("engine.pin = {got:?}: CPU {cpu} is not one this process may use; allowed: {allowed}")]
    NotAllowed {
        /// What was asked for.
        got: Vec<usize>,
        /// The CPU that cannot be had.
        cpu: usize,
        /// What can.
        allowed: CpuSet,
    },
    /// Not one CPU per shard.
    #[error("engine.pin = {got:?} names {} CPUs for engine.shards = {shards}: name one CPU per shard", got.len())]
    Count {
        /// What was asked for.
        got: Vec<usize>,
        /// How many shards there are.
        shards: usize,
    },
    /// A CPU twice.
    #[error("engine.pin = {got:?} names CPU {cpu} twice: two shards on one CPU wait for each other; name another")]
    Twice {
        /// What was asked for.
        got: Vec<usize>,
        /// The CPU named twice.
        cpu: usize,
    },
}

/// Places `shards` shards on the CPUs of `pin` (empty: wherever the scheduler likes) within `allowed`.
///
/// # Errors
/// [`PlacementError`] when `pin` cannot be followed.
pub fn place(shards: usize, pin: &[usize], allowed: &CpuSet) -> Result<Placement, PlacementError> {
    if pin.is_empty() {
        return Ok(Placement { shards: Vec::new(), others: allowed.clone(), warning: None });
    }
    let got = || pin.to_vec();
    if let Some(&cpu) = pin.iter().find(|cpu| !allowed.contains(**cpu)) {
        return Err(PlacementError::NotAllowed { got: got(), cpu, allowed: allowed.clone() });
    }
    if let Some(index) = (1..pin.len()).find(|index| pin[..*index].contains(&pin[*index])) {
        return Err(PlacementError::Twice { got: got(), cpu: pin[index] });
    }
    if pin.len() != shards {
        return Err(PlacementError::Count { got: got(), shards });
    }
    let others = allowed.without(&CpuSet::new(pin.to_vec()));
    if others.is_empty() {
        let warning = format!(
            "the shards take every CPU this process may use ({allowed}); the client library's threads share them"
        );
        return Ok(Placement { shards: pin.to_vec(), others: allowed.clone(), warning: Some(warning) });
    }
    Ok(Placement { shards: pin.to_vec(), others, warning: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h1_shards_go_to_the_kernel_ids_of_the_allowed_set() {
        let allowed = CpuSet::new(vec![4, 5, 6, 7]);
        let placement = place(2, &[5, 7], &allowed).unwrap();
        assert_eq!(placement.shards, [5, 7]);
        assert_eq!(placement.others, CpuSet::new(vec![4, 6]));
        assert_eq!(placement.warning, None);
        let error = place(2, &[0, 5], &allowed).unwrap_err();
        assert!(error.to_string().contains("CPU 0") && error.to_string().contains("4-7"), "{error}");
    }

    #[test]
    fn where_nothing_is_left_threads_share_and_start_says_so() {
        let placement = place(2, &[0, 1], &CpuSet::new(vec![0, 1])).unwrap();
        assert_eq!(placement.others.ids(), [0, 1]);
        assert!(placement.warning.unwrap().contains("share"));
    }

    #[test]
    fn one_cpu_per_shard_and_none_twice() {
        let allowed = CpuSet::new((0..8).collect());
        assert!(matches!(place(3, &[0, 1], &allowed), Err(PlacementError::Count { .. })));
        assert!(matches!(place(2, &[3, 3], &allowed), Err(PlacementError::Twice { cpu: 3, .. })));
    }

    #[test]
    fn a_set_is_written_as_the_kernel_writes_it() {
        assert_eq!(CpuSet::new(vec![8, 0, 1, 2, 3]).to_string(), "0-3,8");
        assert_eq!(CpuSet::new(vec![5]).to_string(), "5");
        assert_eq!(CpuSet::default().to_string(), "");
    }
}
