//! The counters, told to whatever recorder the host of the library installed through the `metrics` facade. Without one,
//! this costs a few loads a second.

use super::report::Counts;
use metrics::{counter, gauge};

/// Passes the counters on. Counters are absolute: a recorder that starts late still shows all of it.
pub(super) fn publish(counts: &Counts, blocked_partitions: usize) {
    let totals = [
        ("fencepost_accepted_total", counts.accepted),
        ("fencepost_recovered_total", counts.recovered),
        ("fencepost_delivered_total", counts.delivered),
        ("fencepost_deduplicated_total", counts.deduplicated),
        ("fencepost_dead_lettered_total", counts.dead_lettered),
        ("fencepost_failed_total", counts.failed),
        ("fencepost_corrupt_total", counts.corrupt),
        ("fencepost_shed_total", counts.shed),
        ("fencepost_rejected_total", counts.rejected),
        ("fencepost_late_total", counts.late),
        ("fencepost_refused_batches_total", counts.refused_batches),
        ("fencepost_would_reorder_total", counts.would_reorder),
        ("fencepost_uncertain_total", counts.uncertain),
        ("fencepost_producer_rebuilds_total", counts.producer_rebuilds),
        ("fencepost_client_errors_total", counts.client_errors),
        ("fencepost_dedup_evicted_early_total", counts.dedup_evicted_early),
    ];
    for (name, value) in totals {
        counter!(name).absolute(value);
    }
    let levels = [
        ("fencepost_in_flight", counts.in_flight),
        ("fencepost_in_rings", counts.in_rings),
        ("fencepost_in_spill", counts.in_spill),
        ("fencepost_dedup_keys", counts.dedup_keys),
        ("fencepost_blocked_partitions", blocked_partitions as u64),
    ];
    for (name, value) in levels {
        gauge!(name).set(value as f64);
    }
}
