//! What the router and its shards say to one another in single words.

use crate::{Seen, explore};
use fencepost::shard::shared::{Gate, Shared, WarmBox};
use fencepost::shard::{Fences, Warm, WarmKeys};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_gate_never_opens_again_and_a_broken_one_stays_broken() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1, 1));
        let closers = [Gate::Stopping, Gate::Broken].map(|gate| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.close(gate))
        });
        let (first, second) = (shared.gate() as u8, shared.gate() as u8);
        assert!(first <= second, "a gate went from {first} to {second}");
        closers.into_iter().for_each(|closer| closer.join().unwrap());
        assert_eq!(shared.gate(), Gate::Broken);
    });
}

struct List(u8);

impl Fences for List {
    fn has(&self, fence_id: &[u8]) -> bool {
        fence_id == [self.0]
    }
}

#[test]
fn a_shard_ends_with_the_newest_list_of_fences() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1, 1));
        let setting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (1..=2).for_each(|number| shared.set_fences(Some(Arc::new(List(number))))))
        };
        let (mut version, mut list) = (0, None);
        while version < 2 {
            if let Some((newer, its_version)) = shared.fences_since(version) {
                assert!(its_version > version, "the version went back");
                (list, version) = (newer, its_version);
                assert!(list.as_ref().is_some_and(|list| list.has(&[version as u8])), "another version's list");
            } else {
                thread::yield_now();
            }
        }
        assert!(list.is_some_and(|list| list.has(&[2])));
        setting.join().unwrap();
    });
}

#[test]
fn what_was_learnt_is_taken_once_and_whole() {
    let (early, late) = (Seen::default(), Seen::default());
    let (was_early, was_late) = (early.clone(), late.clone());
    explore(None, move || {
        let place = Arc::new(WarmBox::default());
        let keys = Arc::new(AtomicU64::new(0));
        let putting = {
            let (place, keys) = (Arc::clone(&place), Arc::clone(&keys));
            thread::spawn(move || {
                let count: WarmKeys = Box::new(move |_| {
                    keys.fetch_add(1, Ordering::Relaxed);
                });
                place.put(Warm { keys: count, ..Warm::nothing() });
            })
        };
        let use_it = |warm: Option<Warm>| warm.map(|warm| (warm.keys)(&mut |_| {})).is_some();
        let mut taken = 0;
        taken += u64::from(use_it(place.take()));
        late.note(taken == 0);
        early.note(taken == 1);
        putting.join().unwrap();
        taken += u64::from(use_it(place.take()));
        assert_eq!((taken, keys.load(Ordering::Relaxed)), (1, 1));
        assert!(place.take().is_none());
    });
    assert!(was_early.was() && was_late.was());
}
