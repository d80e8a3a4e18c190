//! Known answers (the cases D2, D3, D4, D5, D10), then bounds by counting, then a model.

use super::arena::{Cut, State};
use super::window::{Seen, Window};
use super::{WindowLimits, arena};
use crate::trigger::{self, Key};
use crate::units::Nanos;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const TTL: Nanos = Nanos(10 * SECOND);
/// Segments small enough that a short test goes through many.
const SMALL_SEGMENT_WORDS: usize = 256;

/// A key that owns its ids: key `n`, its device padded to `device_len`.
struct Owned {
    device: String,
    n: u64,
}

impl Owned {
    fn new(n: u64) -> Owned {
        Owned { device: format!("vehicle-{n}"), n }
    }

    fn with_device_len(n: u64, device_len: usize) -> Owned {
        Owned { device: format!("{n:0>device_len$}"), n }
    }

    fn key(&self) -> Key<'_> {
        let state = trigger::State::Enter;
        Key { device_id: self.device.as_bytes(), fence_id: b"yard", state, event_second: 1_790_000_000 }
    }

    fn hash(&self) -> u64 {
        mix(self.n)
    }

    fn words(&self) -> usize {
        arena::record_words(self.key().stored_len())
    }

    fn stored(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.key().stored_len()];
        self.key().write_to(&mut bytes);
        bytes
    }
}

fn mix(n: u64) -> u64 {
    let x = (n ^ (n >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn limits(capacity: usize, tokens: u32) -> WindowLimits {
    let key_bytes = (capacity * 96).max(WindowLimits::key_bytes_min(tokens));
    WindowLimits { capacity, key_bytes, tokens, ttl: TTL }
}

fn small(limits: WindowLimits) -> Window {
    Window::with_cut(limits, limits.cut(SMALL_SEGMENT_WORDS))
}

fn ask(window: &mut Window, n: u64, now: Nanos, token: u32) -> Seen {
    let owned = Owned::new(n);
    window.ask(owned.key(), owned.hash(), now, token)
}

/// Asks for a key that must be new, and settles it.
fn add(window: &mut Window, n: u64, now: Nanos, token: u32) {
    assert_eq!(ask(window, n, now, token), Seen::New, "key {n}");
    window.commit(token);
}

#[test]
fn d2_at_capacity_the_oldest_goes_one_at_a_time() {
    let mut window = Window::new(limits(1_000, 10));
    for n in 1..=1_001 {
        add(&mut window, n, Nanos(n), 0);
    }
    assert_eq!(ask(&mut window, 1_001, Nanos(2_000), 0), Seen::Settled);
    assert_eq!(ask(&mut window, 2, Nanos(2_000), 0), Seen::Settled);
    assert_eq!(window.evicted_early(), 1);
    assert_eq!(ask(&mut window, 1, Nanos(2_000), 0), Seen::New);
    assert_eq!((window.evicted_early(), window.len()), (2, 1_000));
    window.assert_consistent();
}

#[test]
fn d3_a_release_forgets_and_leaves_nothing_behind() {
    let capacity = 1_000;
    let mut window = small(limits(capacity, 10));
    assert_eq!(ask(&mut window, 0, Nanos(1), 0), Seen::New);
    window.release(0);
    assert_eq!((window.len(), window.pending()), (0, 0));
    add(&mut window, 0, Nanos(2), 0);
    for n in 1..capacity as u64 {
        add(&mut window, n, Nanos(3), 0);
    }
    assert_eq!(
        ask(&mut window, 0, Nanos(4), 0),
        Seen::Settled,
        "the released entry of A must not take the later one along"
    );
    window.assert_consistent();

    // One below capacity, so that no release costs a settled key its place.
    let mut window = small(limits(capacity, 10));
    for n in 0..capacity as u64 - 1 {
        add(&mut window, n, Nanos(5), 0);
    }
    for cycle in 0..10_000 {
        assert_eq!(ask(&mut window, 1_000_000 + cycle, Nanos(6), 1), Seen::New);
        assert!(window.len() <= capacity);
        window.release(1);
    }
    assert_eq!((window.len(), window.evicted_early()), (capacity - 1, 0));
    for n in 0..capacity as u64 - 1 {
        assert_eq!(ask(&mut window, n, Nanos(7), 0), Seen::Settled, "key {n}");
    }
    window.assert_consistent();
}

#[test]
fn d4_a_repeat_does_not_extend_the_window() {
    let mut window = Window::new(limits(1_000, 10));
    let mut delivered = Vec::new();
    for second in 0..=30 {
        match ask(&mut window, 7, Nanos(second * SECOND), 0) {
            Seen::New => {
                delivered.push(second);
                window.commit(0);
            }
            seen => assert_eq!(seen, Seen::Settled),
        }
        window.assert_consistent();
    }
    assert_eq!(delivered, [0, 10, 20, 30]);
    assert_eq!((window.len(), window.evicted_early()), (1, 0));
}

#[test]
fn d5_two_keys_of_one_hash_are_both_new() {
    let mut window = Window::new(limits(1_000, 1_000));
    let same_hash = 0x0123_4567_89ab_cdef;
    for n in 0..1_000 {
        assert_eq!(window.ask(Owned::new(n).key(), same_hash, Nanos(n), n as u32), Seen::New);
    }
    for n in 0..1_000 {
        assert_eq!(window.ask(Owned::new(n).key(), same_hash, Nanos(n), 0), Seen::Pending(n as u32));
    }
    for n in 0..1_000 {
        if n % 2 == 0 { window.commit(n) } else { window.release(n) }
    }
    window.assert_consistent();
    for n in (0..1_000).rev() {
        let expected = if n % 2 == 0 { Seen::Settled } else { Seen::New };
        assert_eq!(window.ask(Owned::new(n).key(), same_hash, Nanos(2_000), n as u32), expected, "key {n}");
    }
    window.assert_consistent();
}

#[test]
fn d10_no_pending_key_is_evicted_however_many_come_after_it() {
    let (capacity, stuck) = (1_000_000, 5_000);
    let mut window = Window::new(limits(capacity, stuck + 1));
    for n in 0..u64::from(stuck) {
        assert_eq!(ask(&mut window, n, Nanos(n), n as u32), Seen::New);
    }
    for n in 0..1_000_001 {
        add(&mut window, 10_000_000 + n, Nanos(n), stuck);
    }
    assert_eq!((window.len(), window.pending()), (capacity, stuck as usize));
    assert_eq!(window.evicted_early(), u64::from(stuck) + 1);
    for n in 0..u64::from(stuck) {
        // Long after its time-to-live, too.
        assert_eq!(ask(&mut window, n, Nanos(100 * SECOND), stuck), Seen::Pending(n as u32), "key {n}");
    }
    window.assert_consistent();
    for token in 0..stuck {
        window.commit(token);
    }
    assert_eq!(window.pending(), 0);
}

#[test]
fn a_time_to_live_ends_exactly_on_time() {
    for (age, expected) in [(TTL.0 - 1, Seen::Settled), (TTL.0, Seen::New), (TTL.0 + 1, Seen::New)] {
        let mut window = Window::new(limits(10, 2));
        add(&mut window, 1, Nanos(5), 0);
        assert_eq!(ask(&mut window, 1, Nanos(5 + age), 0), expected, "age {age}");
    }
}

#[test]
fn a_time_to_live_runs_from_the_first_acceptance_not_from_the_ack() {
    let mut window = Window::new(limits(10, 2));
    assert_eq!(ask(&mut window, 1, Nanos(0), 0), Seen::New);
    assert_eq!(ask(&mut window, 1, Nanos(30 * SECOND), 1), Seen::Pending(0), "pending keys do not expire");
    window.commit(0);
    assert_eq!(ask(&mut window, 1, Nanos(30 * SECOND), 1), Seen::New);
    window.assert_consistent();
}

#[test]
fn what_has_expired_leaves_two_for_one() {
    let mut window = small(limits(1_000, 2));
    for n in 0..1_000 {
        add(&mut window, n, Nanos(n), 0);
    }
    for n in 0..400 {
        add(&mut window, 10_000 + n, TTL + Nanos(1_000), 0);
        assert_eq!(window.len(), 1_000 - n as usize - 1);
    }
    assert_eq!(window.evicted_early(), 0, "whose time is over is not evicted early");
    window.assert_consistent();
}

#[test]
fn the_byte_limit_pushes_out_the_oldest_too() {
    let tokens = 4;
    let key_bytes = WindowLimits::key_bytes_min(tokens);
    let mut window = small(WindowLimits { capacity: 1_000, key_bytes, tokens, ttl: TTL });
    let longest: Vec<_> = (0..6)
        .map(|n| {
            let (device, fence) = (format!("{n:0>256}"), "f".repeat(256));
            (device, fence, mix(n))
        })
        .collect();
    let key = |n: usize| {
        let (device, fence, hash) = &longest[n];
        let (device_id, fence_id) = (device.as_bytes(), fence.as_bytes());
        (Key { device_id, fence_id, state: trigger::State::Exit, event_second: 1 }, *hash)
    };
    for n in 0..5 {
        let (key, hash) = key(n);
        assert_eq!(WindowLimits::record_bytes(key.stored_len()), WindowLimits::RECORD_BYTES_MAX);
        assert_eq!(window.ask(key, hash, Nanos(0), 0), Seen::New);
        window.commit(0);
    }
    assert_eq!((window.len(), window.evicted_early()), (4, 1));
    // All tokens pending with the longest keys: they fit, and the settled ones have made way.
    let mut window = small(WindowLimits { capacity: 4, key_bytes, tokens, ttl: TTL });
    for round in 0..1_000 {
        for n in 0..4 {
            let (key, hash) = key((n + round) % 6);
            match window.ask(key, hash, Nanos(round as u64), n as u32) {
                Seen::New | Seen::Settled => {}
                Seen::Pending(owner) => panic!("owner {owner}"),
            }
        }
        window.assert_consistent();
        for n in 0..4 {
            if window.is_pending(n) {
                window.commit(n);
            }
        }
    }
}

#[test]
fn squeezing_out_the_dead_costs_at_most_three_copies_a_key() {
    // The worst mix: the window is full of live keys up to its bytes, and all that comes is released again.
    let owned = |n| Owned::with_device_len(n, 40);
    let capacity = 2_000;
    let key_bytes = capacity * owned(0).words() * 8;
    let mut window =
        small(WindowLimits { capacity: capacity + 1, key_bytes: key_bytes + 200, tokens: 8, ttl: Nanos::MAX });
    for n in 0..capacity as u64 {
        assert_eq!(window.ask(owned(n).key(), owned(n).hash(), Nanos(n), 0), Seen::New);
        window.commit(0);
    }
    assert_eq!(window.carried(), 0);
    let releases = 200_000;
    for n in 0..releases {
        let key = owned(1_000_000 + n);
        assert_eq!(window.ask(key.key(), key.hash(), Nanos(0), 0), Seen::New);
        window.release(0);
    }
    window.assert_consistent();
    assert_eq!((window.len(), window.evicted_early()), (capacity, 0));
    assert!(window.carried() > 0, "the arena must have been squeezed");
    assert!(window.carried() <= 3 * releases, "{} copies for {releases} keys", window.carried());
}

#[test]
fn keys_that_stay_pending_cost_at_most_one_copy_a_key() {
    // Half of the window is pending for good, and each new key has to find a settled one to push out.
    let tokens = 1_001;
    let mut window = small(limits(2 * tokens as usize, tokens));
    for n in 0..1_000 {
        assert_eq!(ask(&mut window, n, Nanos(0), n as u32), Seen::New);
    }
    let asks = 200_000;
    for n in 0..asks {
        add(&mut window, 1_000_000 + n, Nanos(0), 1_000);
    }
    window.assert_consistent();
    assert_eq!(window.pending(), 1_000);
    assert!(window.carried() >= 1_000, "the pending keys must have come to the tail");
    assert!(window.carried() <= asks, "{} copies for {asks} keys", window.carried());
}

#[test]
fn memory_is_known_before_it_is_taken() {
    for (capacity, tokens) in [(1, 1), (3, 1), (6, 2), (7, 7), (100, 10), (57_343, 64), (57_344, 64), (250_000, 16_384)]
    {
        let limits = limits(capacity, tokens);
        assert_eq!(Window::new(limits).memory_bytes(), limits.memory_bytes(), "{limits:?}");
    }
}

#[test]
#[should_panic(expected = "capacity = 9 is less than tokens = 10")]
fn fewer_keys_than_tokens_are_refused() {
    let _ = Window::new(limits(9, 10));
}

#[test]
#[should_panic(expected = "10 pending keys of the longest ids need 5520")]
fn fewer_bytes_than_the_tokens_need_are_refused() {
    let _ = Window::new(WindowLimits { key_bytes: 5_519, ..limits(10, 10) });
}

#[test]
fn the_exact_limits_work() {
    let tokens = 10;
    let key_bytes = WindowLimits::key_bytes_min(tokens);
    let mut window = Window::new(WindowLimits { capacity: 10, key_bytes, tokens, ttl: TTL });
    for n in 0..10 {
        assert_eq!(ask(&mut window, n, Nanos(0), n as u32), Seen::New);
    }
    assert_eq!((window.len(), window.pending()), (10, 10));
    window.assert_consistent();
}

#[test]
#[should_panic(expected = "token 0 is in use")]
fn a_token_in_use_is_refused() {
    let mut window = Window::new(limits(10, 2));
    let _ = ask(&mut window, 1, Nanos(0), 0);
    let _ = ask(&mut window, 2, Nanos(0), 0);
}

#[test]
#[should_panic(expected = "nothing is pending under token 1")]
fn a_token_is_settled_once() {
    let mut window = Window::new(limits(10, 2));
    add(&mut window, 1, Nanos(0), 1);
    window.commit(1);
}

/// What the model knows of a key: the slow, obvious way.
#[derive(Clone, Debug)]
struct Known {
    n: u64,
    first_seen: Nanos,
    /// `None` once it has settled.
    token: Option<u32>,
    /// It has settled on disk.
    is_parked: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64),
    /// Commits or releases the i-th pending key, counted modulo their number.
    Commit(usize),
    Release(usize),
    /// Settles the i-th pending key on disk; passes it on to another token.
    Park(usize),
    PassOn(usize),
    /// A trigger that comes back from disk, and a key of the topic's tail.
    AskDrained(u64),
    Restore(u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // An ask takes a twentieth of a second: with this wait, the one before is as old as it may get, to the nanosecond.
    let edge = TTL.0 - SECOND / 20 - 1;
    let step = prop_oneof![
        20 => (0..60_u64).prop_map(Step::Ask),
        12 => (0..64_usize).prop_map(Step::Commit),
        4 => (0..64_usize).prop_map(Step::Release),
        6 => (0..64_usize).prop_map(Step::Park),
        2 => (0..64_usize).prop_map(Step::PassOn),
        8 => (0..60_u64).prop_map(Step::AskDrained),
        2 => (0..60_u64).prop_map(Step::Restore),
        2 => (0..2 * SECOND).prop_map(Step::Wait),
        1 => (edge..edge + 3).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..1_500)
}

/// Runs the steps on the window and on the model and compares after each.
fn check(steps: &[Step], capacity: usize, tokens: u32, spare_bytes: usize, hashes: u64) -> Result<u64, TestCaseError> {
    let owned = |n: u64| Owned::with_device_len(n, 1 + (n as usize * 37) % 256);
    let hash = |n: u64| mix(n % hashes);
    let key_bytes = WindowLimits::key_bytes_min(tokens) + spare_bytes;
    let limits = WindowLimits { capacity, key_bytes, tokens, ttl: TTL };
    let mut window = small(limits);
    let mut known: Vec<Known> = Vec::new();
    let mut now = Nanos(0);
    for step in steps {
        match *step {
            Step::Wait(span) => now = now + Nanos(span),
            Step::Commit(i) | Step::Release(i) | Step::Park(i) | Step::PassOn(i) => {
                let pending: Vec<_> = (0..known.len()).filter(|at| known[*at].token.is_some()).collect();
                if pending.is_empty() {
                    continue;
                }
                let at = pending[i % pending.len()];
                let token = known[at].token.expect("chosen among the pending");
                match step {
                    Step::Commit(_) => {
                        window.commit(token);
                        known[at].token = None;
                    }
                    Step::Park(_) => {
                        window.park(token, u32::MAX - i as u32);
                        (known[at].token, known[at].is_parked) = (None, true);
                    }
                    Step::PassOn(_) => {
                        let free = (0..tokens).find(|token| known.iter().all(|key| key.token != Some(*token)));
                        if let Some(free) = free {
                            window.pass_on(token, free);
                            known[at].token = Some(free);
                        }
                    }
                    _ => {
                        window.release(token);
                        known.remove(at);
                    }
                }
            }
            Step::Restore(n) => {
                let (before, early) = (window.keys(), window.evicted_early());
                let got = window.restore(owned(n).key(), hash(n), now);
                let old = known.iter().find(|key| key.n == n).cloned();
                prop_assert_eq!(got, old.as_ref().and_then(|key| key.token));
                // What is parked has settled by that; what is pending or has settled stays as it is.
                if old.is_none_or(|key| key.token.is_none() && key.is_parked) {
                    known.retain(|key| key.n != n);
                    let (mut after, mut early) = (window.keys(), window.evicted_early() - early);
                    // Where all others are pending, it is the one that has to go, once all settled ones have.
                    if after.iter().any(|key| key.0 == owned(n).stored()) {
                        known.push(Known { n, first_seen: now, token: None, is_parked: false });
                    } else {
                        early -= 1;
                        prop_assert!(after.iter().all(|key| key.1 == State::Pending), "it went before a settled one");
                        after.push((owned(n).stored(), State::Settled, now));
                    }
                    let others: Vec<_> = before.into_iter().filter(|key| key.0 != owned(n).stored()).collect();
                    forget_what_left(&mut known, &others, &after, now, &limits, early)?;
                }
            }
            Step::Ask(n) | Step::AskDrained(n) => {
                let is_drained = matches!(step, Step::AskDrained(_));
                let Some(token) = (0..tokens).find(|token| known.iter().all(|key| key.token != Some(*token))) else {
                    continue;
                };
                now = now + Nanos(SECOND / 20);
                let expected = match known.iter().find(|key| key.n == n) {
                    Some(Known { token: Some(owner), .. }) => Seen::Pending(*owner),
                    // What is parked is taken over by whoever comes back from there, however old it is.
                    Some(key) if is_drained && key.is_parked => Seen::New,
                    Some(key) if now.since(key.first_seen) < TTL => Seen::Settled,
                    _ => Seen::New,
                };
                let (before, early) = (window.keys(), window.evicted_early());
                let carried = window.carried();
                // Looking ahead changes nothing.
                window.foresee(hash(n));
                let got = match is_drained {
                    true => window.ask_drained(owned(n).key(), hash(n), now, token),
                    false => window.ask(owned(n).key(), hash(n), now, token),
                };
                prop_assert_eq!(got, expected);
                if expected == Seen::New {
                    known.retain(|key| key.n != n);
                    known.push(Known { n, first_seen: now, token: Some(token), is_parked: false });
                    let after = window.keys();
                    forget_what_left(&mut known, &before, &after, now, &limits, window.evicted_early() - early)?;
                    if carried == 0 {
                        prop_assert!(before.is_sorted_by_key(|key| key.2), "the order to leave is that of age");
                    }
                }
            }
        }
        window.assert_consistent();
        let mut keys: Vec<_> = window.keys();
        let mut model: Vec<_> = known
            .iter()
            .map(|key| {
                let state = match (key.token, key.is_parked) {
                    (Some(_), _) => State::Pending,
                    (None, true) => State::Parked,
                    (None, false) => State::Settled,
                };
                (owned(key.n).stored(), state, key.first_seen)
            })
            .collect();
        keys.sort_by(|one, other| one.0.cmp(&other.0));
        model.sort_by(|one, other| one.0.cmp(&other.0));
        prop_assert_eq!(keys, model);
        prop_assert_eq!(window.len(), known.len());
        prop_assert_eq!(window.pending(), known.iter().filter(|key| key.token.is_some()).count());
    }
    Ok(window.carried())
}

/// Which keys leave is the window's choice within rules: checks the rules, then takes those keys out of the model.
fn forget_what_left(
    known: &mut Vec<Known>,
    before: &[(Vec<u8>, State, Nanos)],
    after: &[(Vec<u8>, State, Nanos)],
    now: Nanos,
    limits: &WindowLimits,
    evicted_early: u64,
) -> Result<(), TestCaseError> {
    let is_in = |keys: &[(Vec<u8>, State, Nanos)], key: &(Vec<u8>, State, Nanos)| keys.iter().any(|one| one.0 == key.0);
    let is_over = |key: &(Vec<u8>, State, Nanos)| now.since(key.2) >= TTL;
    let words =
        |keys: &[(Vec<u8>, State, Nanos)]| -> usize { keys.iter().map(|key| arena::record_words(key.0.len())).sum() };
    let left: Vec<_> = before.iter().filter(|key| !is_in(after, key)).collect();
    let early: Vec<_> = left.iter().filter(|key| !is_over(key)).collect();
    prop_assert!(left.iter().all(|key| key.1 != State::Pending), "a pending key was evicted");
    prop_assert_eq!(early.len() as u64, evicted_early);
    if let Some(last) = early.last() {
        // It had to go: with it, and what left behind it (an older key that was carried there), the limits would be
        // exceeded. And all settled keys before it went first.
        let still: Vec<_> = left.iter().skip_while(|key| key.0 != last.0).map(|key| (*key).clone()).collect();
        let with_it =
            after.len() + still.len() > limits.capacity || words(after) + words(&still) > limits.key_bytes / 8;
        prop_assert!(with_it, "a key was evicted though it would have fitted");
        let at = before.iter().position(|key| key.0 == last.0).expect("it was there");
        prop_assert!(
            before[..at].iter().all(|key| key.1 == State::Pending || !is_in(after, key) || after_is_new(after, key))
        );
    }
    known.retain(|key| {
        let stored = Owned::with_device_len(key.n, 1 + (key.n as usize * 37) % 256).stored();
        after.iter().any(|one| one.0 == stored)
    });
    Ok(())
}

/// Whether `key` is in `after` because it has just come again.
fn after_is_new(after: &[(Vec<u8>, State, Nanos)], key: &(Vec<u8>, State, Nanos)) -> bool {
    after.iter().any(|one| one.0 == key.0 && one.1 == State::Pending)
}

/// A case compares the whole window after each of up to 1,500 steps: fewer than usual will do, unless somebody asks.
fn cases() -> u32 {
    let usual = if cfg!(debug_assertions) { 60 } else { 1_000 };
    std::env::var_os("PROPTEST_CASES").map_or(usual, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn the_window_is_a_map_with_timestamps(
        steps in steps(),
        tokens in 1..6_u32,
        more_keys in 0..20_usize,
        spare_bytes in 0..4_000_usize,
        hashes in prop_oneof![Just(u64::MAX), Just(3), Just(1)],
    ) {
        check(&steps, tokens as usize + more_keys, tokens, spare_bytes, hashes)?;
    }
}

#[test]
fn the_model_meets_carrying_and_squeezing() {
    // The same check on steps that are known to wrap the arena, carry pending keys and squeeze out the dead.
    let mut steps = vec![Step::Ask(59)];
    for n in 0..3_000_u64 {
        steps.push(Step::Ask(n % 59));
        // The first pending key, 59, stays; of the others some are released.
        steps.push(if n % 3 == 0 { Step::Release(1) } else { Step::Commit(1) });
    }
    let carried = check(&steps, 40, 3, 3_000, u64::MAX).expect("the window agrees with the model");
    assert!(carried > 50, "{carried}");
}

#[test]
fn a_segment_filled_to_its_last_word_is_not_an_empty_arena() {
    // Records of 32 words fill a segment of 256 exactly: the head then stands where the next segment begins. With the
    // tail at the start of that one, "tail == head" would read as empty.
    let owned = |n| Owned::with_device_len(n, 215);
    assert_eq!(owned(0).words(), 32);
    let mut arena = arena::Arena::new(Cut::of(1_000, SMALL_SEGMENT_WORDS));
    let mut live = 0;
    for n in 0..10_000 {
        // The number of live records swings, so that tail and head meet in every way.
        arena.append(&owned(n).key(), n, Nanos(n), 0);
        live += 1;
        while live > (n / 7) % 12 {
            let place = arena.tail().expect("there are live records");
            assert_eq!(arena.header(place).hash, n + 1 - live);
            arena.pass(32);
            live -= 1;
        }
        assert_eq!(arena.places().count() as u64, live);
        assert_eq!(arena.tail().is_some(), live > 0);
    }
}

#[test]
fn a_cut_always_has_room_for_what_lives() {
    for live_words in [69, 690, 10_000, 1_000_000] {
        let cut = Cut::of(live_words, SMALL_SEGMENT_WORDS);
        let usable = SMALL_SEGMENT_WORDS - (arena::RECORD_WORDS_MAX - 1);
        assert!((cut.segments - cut.reserve) * usable >= live_words + live_words / 2, "{cut:?}");
        assert!(cut.low < cut.segments);
    }
}
