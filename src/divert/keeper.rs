//! The keeper: the disk thread's work, one turn at a time. It has no thread and reads no clock.

use super::callers::CallerLine;
use super::letters::LetterRoom;
use super::spilling::SpillRoom;
use super::{Found, KeeperEnd};
use crate::letter::LetterSink;
use crate::spill::Disk;
use crate::units::{Nanos, PartitionId};

/// The disk thread's half of the diversion.
pub struct Keeper<D: Disk, L: LetterSink> {
    ends: Vec<KeeperEnd>,
    callers: Vec<CallerLine>,
    spilling: Option<SpillRoom<D>>,
    letters: Option<LetterRoom<L, D>>,
}

impl<D: Disk, L: LetterSink> Keeper<D, L> {
    /// With a spill, with dead letters, or both.
    #[must_use]
    pub fn new(
        ends: Vec<KeeperEnd>,
        spilling: Option<SpillRoom<D>>,
        letters: Option<LetterRoom<L, D>>,
    ) -> Keeper<D, L> {
        Keeper { ends, callers: Vec::new(), spilling, letters }
    }

    /// Gives it the letters of the ingresses too, in the order of their lanes.
    pub fn set_callers(&mut self, callers: Vec<CallerLine>) {
        self.callers = callers;
    }

    /// What was found of a partition at open: before the first turn.
    #[must_use]
    pub fn found(&self, partition: PartitionId) -> Found {
        self.spilling.as_ref().map_or_else(Found::default, |spilling| spilling.found(partition))
    }

    /// The spill.
    pub fn spilling(&mut self) -> Option<&mut SpillRoom<D>> {
        self.spilling.as_mut()
    }

    /// Marks of the spill that wait for room.
    #[must_use]
    pub fn waiting_marks(&self) -> usize {
        self.spilling.as_ref().map_or(0, SpillRoom::waiting_marks)
    }

    /// The dead letters.
    pub fn letters(&mut self) -> Option<&mut LetterRoom<L, D>> {
        self.letters.as_mut()
    }

    /// One turn. Returns whether there was work.
    pub fn turn(&mut self, now: Nanos) -> bool {
        let Keeper { ends, callers, spilling, letters } = self;
        let mut worked = false;
        if let Some(spilling) = spilling {
            worked |= spilling.turn(ends, now);
        }
        if let Some(letters) = letters {
            worked |= letters.turn(ends, callers, now);
        }
        worked
    }

    /// The time to deliver is over: dead letters go to the disk at once from now on. Turns go on.
    pub fn close_letters(&mut self, now: Nanos) {
        let Keeper { ends, callers, letters, .. } = self;
        if let Some(letters) = letters {
            letters.finish(ends, callers, now);
        }
    }

    /// Dead letters at their topic whose outcome is due, and those on disk.
    #[must_use]
    pub fn letters_left(&mut self) -> (usize, u64) {
        self.letters.as_mut().map_or((0, 0), |letters| {
            let desk = letters.desk();
            (desk.at_sink(), desk.counts().on_disk)
        })
    }

    /// The shards have left: everything that was ordered is made durable now, or refused. Returns the dead letters that
    /// nobody has taken.
    pub fn finish(&mut self, now: Nanos) -> u64 {
        let Keeper { ends, callers, spilling, letters } = self;
        if let Some(spilling) = spilling {
            spilling.finish(ends, now);
        }
        letters.as_mut().map_or(0, |letters| letters.finish(ends, callers, now))
    }
}
