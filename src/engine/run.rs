//! The life of a shard's thread: pinned, turned until it may leave, and a panic made known.

use crate::clock::Clock;
use crate::shard::Shard;
use crate::shard::idle::{Idle, Strategy};
use crate::shard::shared::{Gate, Shared, Waker};
use crate::sink::Sink;
use crate::topology::{CpuSet, affinity};
use crate::units::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long a shard stays after the gate closed: a submit that passed the gate a moment before is still taken.
const LINGER: Nanos = Nanos::from_millis(20);

/// Turns the shard until the router stops and everything is settled, or it is told to leave at once.
pub fn shard_thread<S: Sink, C: Clock>(
    shard: Shard<S, C>,
    shared: &Shared,
    waker: &Waker,
    idle: Strategy,
    cpu: Option<usize>,
    others: &CpuSet,
) {
    waker.bind();
    let placed = match cpu {
        Some(cpu) => affinity::pin_to(cpu),
        None => Ok(()),
    };
    if let Err(error) = placed {
        log::error!("the shard runs unpinned: {error}");
    }
    let mut shard = shard;
    // The shard is not used after a panic but to be dropped, so a broken invariant of it is not seen by anyone.
    let turned = catch_unwind(AssertUnwindSafe(|| turn_until_done(&mut shard, shared, waker, idle)));
    if turned.is_err() {
        shared.close(Gate::Broken);
        log::error!("a shard panicked; the router refuses triggers from now on");
    }
    // Dropping the sink gives the client library's handle to a thread of its own; that one shall not inherit the pin.
    if cpu.is_some()
        && let Err(error) = affinity::restrict_to(others)
    {
        log::warn!("the shard's last thread stays pinned: {error}");
    }
    drop(shard);
    if turned.is_err() {
        // Seen by `Report::lost_shards`.
        std::panic::resume_unwind(Box::new("a shard panicked"));
    }
}

fn turn_until_done<S: Sink, C: Clock>(shard: &mut Shard<S, C>, shared: &Shared, waker: &Waker, strategy: Strategy) {
    let mut idle = Idle::new(strategy);
    let mut closed_at = None;
    loop {
        if shared.is_aborted() {
            return;
        }
        let turn = shard.turn();
        if turn.taken + turn.reports > 0 {
            idle.worked(turn.began);
            continue;
        }
        if shared.gate() != Gate::Open {
            let closed_at = *closed_at.get_or_insert(turn.began);
            // What is settled and still at the sink is waited for as long as the broker acknowledges.
            let is_done = shard.is_settled() && (shard.is_quiet() || shared.is_spilling_rest());
            if is_done && turn.began.since(closed_at) >= LINGER {
                return;
            }
        }
        idle.wait(turn.began, turn.lent > 0, waker, || shard.has_come());
    }
}
