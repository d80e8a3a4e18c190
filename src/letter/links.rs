//! Lists through a table of places: put in, take out and move in one step each, nothing allocated after the start.

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// One list's ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
    pub(super) len: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    /// Its last place, or [`NONE`].
    pub(super) fn tail(&self) -> u32 {
        self.tail
    }
}

/// The neighbours of every place. A place is in at most one list of a table.
pub(super) struct Links(Box<[(u32, u32)]>);

impl Links {
    pub(super) fn new(places: usize) -> Links {
        Links(vec![(NONE, NONE); places].into())
    }

    pub(super) fn push_back(&mut self, list: &mut List, place: u32) {
        self.0[place as usize] = (list.tail, NONE);
        match list.tail {
            NONE => list.head = place,
            tail => self.0[tail as usize].1 = place,
        }
        list.tail = place;
        list.len += 1;
    }

    pub(super) fn push_front(&mut self, list: &mut List, place: u32) {
        self.0[place as usize] = (NONE, list.head);
        match list.head {
            NONE => list.tail = place,
            head => self.0[head as usize].0 = place,
        }
        list.head = place;
        list.len += 1;
    }

    pub(super) fn remove(&mut self, list: &mut List, place: u32) {
        let (before, after) = self.0[place as usize];
        match before {
            NONE => {
                debug_assert_eq!(list.head, place, "the place is in this list");
                list.head = after;
            }
            before => self.0[before as usize].1 = after,
        }
        match after {
            NONE => list.tail = before,
            after => self.0[after as usize].0 = before,
        }
        list.len -= 1;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn places(links: &Links, list: &List) -> VecDeque<u32> {
        let (mut all, mut at) = (VecDeque::new(), list.head);
        while at != NONE {
            all.push_back(at);
            at = links.0[at as usize].1;
        }
        assert_eq!(all.len(), list.len as usize);
        assert_eq!(all.back().copied().unwrap_or(NONE), list.tail());
        all
    }

    #[test]
    fn a_list_is_what_a_deque_is() {
        let (mut links, mut list, mut model) = (Links::new(8), List::EMPTY, VecDeque::new());
        let mut luck = 7_u32;
        for _ in 0..2_000 {
            luck = luck.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = (luck >> 16) % 8;
            match model.iter().position(|&there| there == place) {
                Some(index) => {
                    model.remove(index);
                    links.remove(&mut list, place);
                }
                None if luck >> 31 == 0 => {
                    model.push_back(place);
                    links.push_back(&mut list, place);
                }
                None => {
                    model.push_front(place);
                    links.push_front(&mut list, place);
                }
            }
            assert_eq!(places(&links, &list), model);
        }
    }
}
