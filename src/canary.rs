//! Canaries: planted defects. A build with the feature `canary` carries them all and has none of them at work until one
//! is switched on, for the whole process; a build without it carries nothing: each question is `false` at compile time.
//!
//! A simulator that does not find them proves nothing: `tests/canaries.rs` shows within how many seeds each is found.

#[cfg(feature = "canary")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A planted defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Canary {
    /// A repeat of a trigger that is still under way counts as settled.
    KeySettledAtAdmission = 1,
    /// While a partition drains, what comes in goes in front of what lies on the disk.
    DrainOvertaken,
    /// The frontier of a ring stands one trigger too far.
    WatermarkTooFar,
    /// What comes back refused keeps its place in the window in flight.
    PermitNotReturned,
    /// At capacity the dedup window drops its newest key.
    NewestEvicted,
    /// A record on disk is read without a look at its checksum.
    TornTailAccepted,
    /// A sync that failed is tried again, and believed.
    SyncRetried,
    /// A commit is told before it is synced.
    SyncLeftOut,
    /// What was in flight and on disk is sent again though the topic has it.
    ShadowNotSkipped,
    /// A start does not follow the highest stamp that it found.
    StampNotFollowed,
    /// A start does not take the topic's keys into its window.
    WindowNotFilled,
    /// A repeat gives its key its time anew.
    TimeRefreshed,
    /// A partition with an open breaker and nothing in flight lets no probe in.
    ProbeNotLetIn,
    /// What may have landed counts as delivered.
    DoubtTakenForAck,
    /// What was shed for a full window stays shed.
    SheddingSticks,
}

/// Each of them, with the name that `fencepost-sim --canary` takes.
pub const CANARIES: [(Canary, &str); 15] = [
    (Canary::KeySettledAtAdmission, "key-settled-at-admission"),
    (Canary::DrainOvertaken, "drain-overtaken"),
    (Canary::WatermarkTooFar, "watermark-too-far"),
    (Canary::PermitNotReturned, "permit-not-returned"),
    (Canary::NewestEvicted, "newest-evicted"),
    (Canary::TornTailAccepted, "torn-tail-accepted"),
    (Canary::SyncRetried, "sync-retried"),
    (Canary::SyncLeftOut, "sync-left-out"),
    (Canary::ShadowNotSkipped, "shadow-not-skipped"),
    (Canary::StampNotFollowed, "stamp-not-followed"),
    (Canary::WindowNotFilled, "window-not-filled"),
    (Canary::TimeRefreshed, "time-refreshed"),
    (Canary::ProbeNotLetIn, "probe-not-let-in"),
    (Canary::DoubtTakenForAck, "doubt-taken-for-ack"),
    (Canary::SheddingSticks, "shedding-sticks"),
];

#[cfg(feature = "canary")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Switches one on, or all off.
#[cfg(feature = "canary")]
pub fn plant(canary: Option<Canary>) {
    // Relaxed: said before the threads that ask are started.
    PLANTED.store(canary.map_or(0, |canary| canary as u8), Ordering::Relaxed);
}

/// Whether the defect is at work.
#[cfg(feature = "canary")]
#[inline]
#[must_use]
pub fn is_planted(canary: Canary) -> bool {
    PLANTED.load(Ordering::Relaxed) == canary as u8
}

/// Whether the defect is at work: never, in this build.
#[cfg(not(feature = "canary"))]
#[inline(always)]
#[must_use]
pub const fn is_planted(_: Canary) -> bool {
    false
}
