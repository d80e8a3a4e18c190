//! "Did you mean": the known name nearest to one that is not known.

/// The edits that turn `a` into `b`: insert, remove, replace, or swap two neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Three rows of the table of prefixes are enough: a swap looks back two.
    let mut older: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for row in 1..=a.len() {
        let mut current = vec![row; b.len() + 1];
        for column in 1..=b.len() {
            let replace = above[column - 1] + usize::from(a[row - 1] != b[column - 1]);
            let mut best = replace.min(above[column] + 1).min(current[column - 1] + 1);
            if row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1] {
                best = best.min(older[column - 2] + 1);
            }
            current[column] = best;
        }
        older = std::mem::replace(&mut above, current);
    }
    above[b.len()]
}

/// A dotted name as its table and its last part; a name without a table has an empty one.
fn parts(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

/// How far `unknown` is from `known`; `None` when it is too far to be what was meant.
fn edits(unknown: &str, known: &str) -> Option<usize> {
    let whole = distance(unknown, known);
    let ((table, key), (known_table, known_key)) = (parts(unknown), parts(known));
    let part = distance(key, known_key);
    [
        // A third of the letters, at most.
        (whole <= unknown.chars().count().div_ceil(3).min(6)).then_some(whole),
        // A key in the wrong table must match better: tables share words such as `timeout`.
        (part <= key.chars().count() / 4).then_some(part + 2),
        // More or less of the same word: `bootstrap_servers` for `bootstrap`.
        (table == known_table && key.len().min(known_key.len()) >= 4)
            .then(|| key.starts_with(known_key) || known_key.starts_with(key))
            .and_then(|same| same.then_some(4)),
    ]
    .into_iter()
    .flatten()
    .min()
}

/// The known dotted name nearest to `unknown`, by the whole name or by its last part; `None` when nothing is near
/// enough to be what was meant.
pub(super) fn nearest<'k>(unknown: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A name this long was not mistyped, and its distances would cost its length squared.
    if unknown.len() > 200 {
        return None;
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let unknown = plain(unknown);
    known
        .into_iter()
        .filter_map(|name| edits(&unknown, &plain(name)).map(|edits| (edits, name)))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_distances() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("linger", "lniger", 1),
            ("flaw", "lawn", 2),
            ("größe", "grosse", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn near_enough_and_not() {
        let known = ["queue.capacity", "dedup.capacity", "engine.shards", "publish.timeout"];
        assert_eq!(nearest("queue.capasity", known), Some("queue.capacity"));
        assert_eq!(nearest("queue.capacty", known), Some("queue.capacity"));
        assert_eq!(nearest("dedupe.capacity", known), Some("dedup.capacity"));
        assert_eq!(nearest("shards", known), Some("engine.shards"));
        assert_eq!(nearest("Engine.Shards", known), Some("engine.shards"));
        assert_eq!(nearest("publish-timeout", known), Some("publish.timeout"));
        assert_eq!(nearest("publish.timeout_in_milliseconds", known), Some("publish.timeout"));
        assert_eq!(nearest("colour.of.the.fence", known), None);
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"q".repeat(100_000), known), None);
    }
}
