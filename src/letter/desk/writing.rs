//! The desk's way to the disk: which letters, one commit, and what a commit or its failure means for each.

use super::super::account::Settled;
use super::super::links::NONE;
use super::{Core, Place, State, Tell};
use crate::spill::{AppendError, CommitWhy, Disk, RecordId};
use crate::units::Nanos;

impl<D: Disk> Core<D> {
    /// To the disk: what the topic refused, what has waited for the grace, and everything while the topic is stalled.
    pub(super) fn write(&mut self, now: Nanos, each: Tell<'_>) {
        while let Some(place) = self.next_to_write(now) {
            let Place { head, len, meta, partition, .. } = self.places[place as usize];
            let shelf = self.shelf.as_mut().expect("there is a disk to write to");
            let (meta, frame) = self.store.read(head, len as usize, &mut self.scratch).split_at(meta as usize);
            match shelf.append(partition, meta, frame) {
                Ok(sequence) => self.set_appended(place, sequence),
                Err(AppendError::CommitFirst) => self.commit(now, each),
                Err(AppendError::NoSpace { .. }) if self.appended.len > 0 => self.commit(now, each),
                Err(error @ AppendError::NoSpace { .. }) => self.pause_disk(now, &error.to_string()),
                Err(
                    error @ (AppendError::TooLong { .. }
                    | AppendError::NoPartition { .. }
                    | AppendError::NoSequence
                    | AppendError::PartitionFull { .. }),
                ) => {
                    self.say(&error.to_string());
                    self.set_never_on_disk(place, each);
                }
            }
        }
        let (has_letters, at_once) = (self.appended.len > 0, self.is_closing);
        if self.shelf.as_ref().is_some_and(|shelf| shelf.wants_commit(now, has_letters, at_once)) {
            self.commit(now, each);
        }
    }

    fn next_to_write(&self, now: Nanos) -> Option<u32> {
        let shelf = self.shelf.as_ref()?;
        if now < shelf.again_at {
            return None;
        }
        if self.refused.head != NONE {
            return Some(self.refused.head);
        }
        let oldest = (self.age.head != NONE).then_some(self.age.head)?;
        let waited = now.since(self.places[oldest as usize].taken);
        (self.is_closing || self.is_stalled || waited >= self.limits.grace).then_some(oldest)
    }

    fn pause_disk(&mut self, now: Nanos, why: &str) {
        self.counts.disk_errors += 1;
        self.say(why);
        let pause = self.limits.disk_pause;
        self.shelf.as_mut().expect("there is a disk").again_at = now + pause;
    }

    fn set_appended(&mut self, place: u32, sequence: u64) {
        match self.places[place as usize].state {
            State::Waiting => self.lists.remove(&mut self.waiting, place),
            State::Refused => self.lists.remove(&mut self.refused, place),
            State::Posted => {}
            state => unreachable!("a letter that is {state:?} is not written"),
        }
        if self.places[place as usize].state != State::Refused {
            self.ages.remove(&mut self.age, place);
        }
        self.places[place as usize].state = State::Appended(sequence);
        self.lists.push_back(&mut self.appended, place);
    }

    /// The disk will not take this one: it is the topic's alone.
    fn set_never_on_disk(&mut self, place: u32, each: Tell<'_>) {
        if self.places[place as usize].state == State::Refused {
            self.lists.remove(&mut self.refused, place);
            self.tell_refused(place, each);
            return self.free(place);
        }
        self.ages.remove(&mut self.age, place);
        self.places[place as usize].never_on_disk = true;
    }

    /// One commit, and what it means for what was in the batch.
    pub(super) fn commit(&mut self, now: Nanos, each: Tell<'_>) {
        let shelf = self.shelf.as_mut().expect("there is a disk to commit to");
        let error = shelf.commit(now).err();
        // Also a commit that failed may have made the oldest of them durable.
        while self.appended.head != NONE {
            let place = self.appended.head;
            let Place { partition, state, .. } = self.places[place as usize];
            let State::Appended(sequence) = state else { unreachable!("{state:?} among the appended") };
            let shelf = self.shelf.as_ref().expect("as above");
            if sequence > shelf.spill.partition(partition).committed {
                break;
            }
            self.lists.remove(&mut self.appended, place);
            self.set_on_disk(place, RecordId { partition, sequence }, each);
        }
        let Some(error) = error else {
            debug_assert_eq!(self.appended.len, 0, "a commit that did not fail makes everything durable");
            return;
        };
        self.pause_disk(now, &error.to_string());
        if let CommitWhy::Io { .. } = error.why {
            self.take_back(each);
        }
    }

    fn set_on_disk(&mut self, place: u32, id: RecordId, each: Tell<'_>) {
        self.free_bytes(place);
        let Place { is_reported, with_sink, .. } = self.places[place as usize];
        let shelf = self.shelf.as_mut().expect("it was written there");
        shelf.written += 1;
        if is_reported {
            shelf.take_off(id);
            return self.free(place);
        }
        if with_sink {
            shelf.add_shadow(id.partition);
            self.places[place as usize].state = State::Shadow(id.sequence);
        }
        self.tell(place, Settled::Durable { on_disk: true }, each);
        if !with_sink {
            self.free(place);
        }
    }

    /// The disk failed: what is in the batch is in memory still, and its turn comes again; what the topic has refused as
    /// well has nowhere to go.
    fn take_back(&mut self, each: Tell<'_>) {
        self.shelf.as_mut().expect("it failed").spill.take_back(|_| {});
        while self.appended.len > 0 {
            // From the last to the first, each to the front: the order of age stays.
            let place = self.appended.tail();
            self.lists.remove(&mut self.appended, place);
            let Place { is_reported, with_sink, code, .. } = self.places[place as usize];
            if is_reported {
                self.free(place);
            } else if code.is_some() {
                self.tell_refused(place, each);
                self.free(place);
            } else {
                self.ages.push_front(&mut self.age, place);
                if with_sink {
                    self.places[place as usize].state = State::Posted;
                } else {
                    self.places[place as usize].state = State::Waiting;
                    self.lists.push_front(&mut self.waiting, place);
                }
            }
        }
    }
}
