//! Conservation: every trigger that came in is in exactly one place. The sum is written out here a second time, from
//! the names that `--json` and the metrics carry, so that a counter forgotten in the engine cannot balance itself.

use std::fmt;

/// What came in.
pub const SOURCES: [&str; 2] = ["accepted", "recovered"];

/// Where it is now.
pub const PLACES: [&str; 8] =
    ["delivered", "deduplicated", "dead_lettered", "failed", "corrupt", "in_spill", "in_flight", "in_rings"];

/// Why the counters do not add up. Its message is one line with both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imbalance {
    /// A counter of the sum was not given.
    Absent(&'static str),
    /// The sides differ.
    Unequal {
        /// Each counter of [`SOURCES`], in order.
        sources: [u64; SOURCES.len()],
        /// Each counter of [`PLACES`], in order.
        places: [u64; PLACES.len()],
    },
}

/// Asserts `accepted + recovered = delivered + deduplicated + dead_lettered + failed + corrupt + in_spill + in_flight +
/// in_rings`. `count` gives a counter by its name; a map, a struct or parsed JSON all fit.
///
/// # Errors
/// The counter that is absent, or both sides.
pub fn check(count: impl Fn(&str) -> Option<u64>) -> Result<(), Imbalance> {
    let mut sources = [0; SOURCES.len()];
    for (place, name) in sources.iter_mut().zip(SOURCES) {
        *place = count(name).ok_or(Imbalance::Absent(name))?;
    }
    let mut places = [0; PLACES.len()];
    for (place, name) in places.iter_mut().zip(PLACES) {
        *place = count(name).ok_or(Imbalance::Absent(name))?;
    }
    if sum(&sources) == sum(&places) { Ok(()) } else { Err(Imbalance::Unequal { sources, places }) }
}

/// [`check`] for a list of names and counts. A name given twice counts with its first value.
///
/// # Errors
/// As [`check`].
pub fn check_list(counters: &[(&str, u64)]) -> Result<(), Imbalance> {
    check(|name| counters.iter().find(|counter| counter.0 == name).map(|counter| counter.1))
}

fn sum(counts: &[u64]) -> u128 {
    counts.iter().map(|&count| u128::from(count)).sum()
}

impl fmt::Display for Imbalance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |out: &mut fmt::Formatter<'_>, names: &[&str], counts: &[u64]| {
            for (place, (name, count)) in names.iter().zip(counts).enumerate() {
                write!(out, "{}{name} {count}", if place == 0 { "" } else { " + " })?;
            }
            write!(out, " = {}", sum(counts))
        };
        match self {
            Imbalance::Absent(name) => write!(out, "the counters do not add up: `{name}` is absent"),
            Imbalance::Unequal { sources, places } => {
                let (came, is) = (sum(sources), sum(places));
                let what = if came > is { "vanished" } else { "appeared from nowhere" };
                write!(out, "the counters do not add up, {} {what}: ", came.abs_diff(is))?;
                side(out, &SOURCES, sources)?;
                out.write_str(", but ")?;
                side(out, &PLACES, places)
            }
        }
    }
}

impl std::error::Error for Imbalance {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn balanced() -> BTreeMap<&'static str, u64> {
        let counts = [100, 11, 60, 20, 5, 1, 2, 9, 10, 4];
        SOURCES.into_iter().chain(PLACES).zip(counts).collect()
    }

    #[test]
    fn a_balanced_sum_passes_and_any_counter_off_by_one_does_not() {
        let good = balanced();
        assert_eq!(check(|name| good.get(name).copied()), Ok(()));
        for name in SOURCES.into_iter().chain(PLACES) {
            let mut wrong = good.clone();
            *wrong.get_mut(name).expect("it is there") += 1;
            let error = check(|name| wrong.get(name).copied()).expect_err("one too many");
            let message = error.to_string();
            assert!(message.contains(&format!("{name} {}", wrong[name])), "{message}");
            wrong.remove(name);
            assert_eq!(check(|name| wrong.get(name).copied()), Err(Imbalance::Absent(name)));
        }
    }

    #[test]
    fn the_message_has_both_sides() {
        let mut wrong = balanced();
        wrong.insert("delivered", 57);
        let list: Vec<(&str, u64)> = wrong.into_iter().collect();
        assert_eq!(
            check_list(&list).expect_err("three vanished").to_string(),
            "the counters do not add up, 3 vanished: accepted 100 + recovered 11 = 111, but delivered 57 + \
             deduplicated 20 + dead_lettered 5 + failed 1 + corrupt 2 + in_spill 9 + in_flight 10 + in_rings 4 = 108"
        );
    }

    #[test]
    fn huge_counters_do_not_wrap_into_a_balance() {
        let error = check(|name| Some(if name == "accepted" || name == "delivered" { u64::MAX } else { 1 }));
        assert!(error.is_err());
    }
}
