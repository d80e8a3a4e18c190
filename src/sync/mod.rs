//! Sync: what threads meet by: atomics, locks, sleep, and the ring of `rtrb`. The rooms that share memory between threads
//! take these from here, so that `tests/loom` can put loom's in their place and try every order of the threads' steps.
//!
//! Promises: without `--cfg loom`, which only that test is built with, there is nothing here but other names of the very
//! same types and functions. Costs: nothing.
//!
//! Not from here come `std::sync::Arc` (nothing of ours hangs on the order of its counts), `OnceLock` (set before anything
//! is shared), the lists of lanes, and the counters of `metrics`, which no memory hangs on: loom sees no step in those, and
//! takes none of them for an order between threads.

#[cfg(loom)]
pub mod model;
#[cfg(loom)]
pub mod rtrb;

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, atomic};
#[cfg(loom)]
pub(crate) use model::{hint, thread};

#[cfg(not(loom))]
pub(crate) use ::rtrb;
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, atomic};
#[cfg(not(loom))]
pub(crate) use std::{hint, thread};
