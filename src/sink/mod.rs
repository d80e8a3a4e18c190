//! A sink takes frames for partitions and reports, later and in arrays, what became of each. [`kafka`] is the real
//! one, [`null`] measures, the simulator brings its own.
//!
//! The contract: a frame that `produce` took is reported exactly once, unless the sink says it replaced its handle
//! ([`Condition::Replaced`]); until then its bytes stay lent. Within one partition, frames are delivered in the order
//! they were produced, and reported in that order when they are delivered.

#[cfg(feature = "kafka")]
pub mod kafka;
pub mod liveness;
pub mod null;
#[cfg(feature = "sim")]
pub mod steered;

use crate::slab::{Lent, SlotId};
use crate::units::{PartitionId, UnixMs};

/// A frame on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Where it goes.
    pub partition: PartitionId,
    /// The frame, which is also the record's value.
    pub frame: Lent,
    /// Where in the frame the record's key is: offset and length.
    pub key: (u16, u16),
    /// The record's timestamp; `None`: now.
    pub record_time: Option<UnixMs>,
}

/// Why a sink did not take a frame just now. The frame is the shard's again; it waits its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Its queue is full.
    QueueFull,
    /// Its handle is being replaced, or it is not connected yet and will not queue.
    NotReady,
    /// It answered with an error for this partition.
    Fault(Fault),
}

/// What went wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The broker refused this frame, or the batch it was in, for what it is: too large, not valid. The code is the
    /// client library's number.
    Frame(i32),
    /// The broker refused it for the state of the partition, the topic or the cluster: it may be tried again.
    Partition(i32),
    /// Its batch was refused for another record, which is named: nothing is wrong with this one.
    Neighbour,
    /// It was taken back from the queue while a handle was given up.
    Purged,
}

/// What is known about whether a frame that failed is in the log all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persisted {
    /// It is not.
    No,
    /// Nobody knows.
    Possibly,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In the log, at this offset, acknowledged by all in-sync replicas. −1: the sink does not know the offset.
    Acked {
        /// The record's offset in its partition.
        offset: i64,
    },
    /// Not acknowledged, and the sink will not try again.
    Failed {
        /// What went wrong.
        fault: Fault,
        /// Whether it may be in the log.
        persisted: Persisted,
    },
}

/// One frame's outcome.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The frame's slot; it is no longer lent once the shard has seen this.
    pub slot: SlotId,
    /// What became of it.
    pub outcome: Outcome,
    /// How many frames shared its batch and its blame. A refusal of one alone is about that frame.
    pub batch: u32,
    /// Whether this is the first report of its batch: a refused batch counts as one failure.
    pub first: bool,
}

/// How a sink is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It takes frames.
    Ready,
    /// It gave up its handle and waits for a new one; `produce` answers [`Busy::NotReady`], reports still come.
    Replacing,
    /// A new handle is in place, said once. Frames still lent belong to the old one and will never be reported.
    Replaced,
}

/// Where a shard's frames go. One thread's own.
///
/// # Safety
/// An implementation reports a frame only once it, and whatever it hands frames to, is done reading it: the shard writes to
/// that memory, or gives it away, as soon as it has seen the report. The same holds for [`Condition::Replaced`], except
/// that the frames of the old handle may still be read.
pub unsafe trait Sink: Send {
    /// Hands a frame over.
    ///
    /// # Errors
    /// [`Busy`]: it was not taken; nothing will be reported.
    fn produce(&mut self, outgoing: Outgoing) -> Result<(), Busy>;

    /// Puts the reports that are there at the end of `reports`, batch by batch until there were `most`; never waits, and never
    /// splits a batch: the shard judges a refused one as a whole.
    fn collect(&mut self, most: usize, reports: &mut Vec<Report>);

    /// How the sink is; called once a turn.
    fn condition(&mut self) -> Condition {
        Condition::Ready
    }

    /// What an error code means, in the client library's words.
    fn explain(&self, code: i32) -> String {
        format!("error code {code}")
    }

    /// Errors the client library raised that are not about one frame.
    fn errors(&self) -> u64 {
        0
    }
}
