//! The readers of bytes that are not ours, on bytes of any kind. `bodies` says what has to hold; `corpus` has inputs for
//! each, by name, among them one for every fault that was found and mended. Here each body runs on its corpus, on what
//! luck makes of the corpus, and on bytes of luck alone; the fuzzers of `fuzz/` call the same bodies and start from the
//! same corpus. `PROPTEST_CASES` says how many inputs luck makes; a failure prints its seed and its smallest input.

mod bodies;

use bodies::BODIES;
use proptest::prelude::*;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The inputs of a body, in the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a folder can be listed").path();
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("an input can be read"))
        })
        .collect();
    inputs.sort();
    inputs
}

#[test]
fn every_input_of_the_corpus_keeps_the_promises() {
    let mut failed = Vec::new();
    for (target, body) in BODIES {
        let inputs = corpus(target);
        assert!(inputs.len() > 4, "{target} has {} inputs", inputs.len());
        for (name, bytes) in inputs {
            if catch_unwind(AssertUnwindSafe(|| body(&bytes))).is_err() {
                failed.push(format!("{target}/{name}"));
            }
        }
    }
    assert!(failed.is_empty(), "the messages are above: {failed:?}");
}

/// A corpus is for the eye and for every clone: what a long run collects does not belong into it.
#[test]
fn the_corpus_is_small_and_belongs_to_bodies_that_are_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for entry in fs::read_dir(&folder).expect("the corpus is there") {
        let target = entry.expect("a folder can be listed").file_name().to_string_lossy().into_owned();
        let is_known = target == "segments" || BODIES.iter().any(|(name, _)| *name == target);
        assert!(is_known, "{target} has no body");
        let bytes: usize = corpus(&target).iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= 16 << 10, "{target} has {bytes} bytes, a few thousand will do");
    }
}

/// One change to an input.
#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    /// A part of another input.
    Splice(prop::sample::Index, prop::sample::Index, prop::sample::Index, usize),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at(), 0_u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        at().prop_map(Damage::Cut),
        (at(), 1_usize..20).prop_map(|(at, count)| Damage::Remove(at, count)),
        (at(), prop::collection::vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (at(), at(), at(), 1_usize..80).prop_map(|(to, of, from, count)| Damage::Splice(to, of, from, count)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>, others: &[(String, Vec<u8>)]) {
        // A place of an input, its end included.
        let place = |at: &prop::sample::Index, bytes: &[u8]| at.index(bytes.len() + 1);
        match self {
            Damage::Insert(at, new) => {
                let at = place(at, bytes);
                bytes.splice(at..at, new.iter().copied());
            }
            Damage::Splice(to, of, from, count) => {
                let (_, other) = of.get(others);
                let (at, from) = (place(to, bytes), place(from, other));
                let part = &other[from..(from + count).min(other.len())];
                bytes.splice(at..at, part.iter().copied());
            }
            Damage::Cut(at) => bytes.truncate(place(at, bytes)),
            Damage::Remove(at, count) => {
                let at = place(at, bytes);
                let end = (at + count).min(bytes.len());
                bytes.drain(at..end);
            }
            Damage::Set(..) | Damage::Flip(..) if bytes.is_empty() => {}
            Damage::Set(at, byte) => *at.get_mut(bytes) = *byte,
            Damage::Flip(at, bit) => *at.get_mut(bytes) ^= 1 << bit,
        }
    }
}

/// For a body: what luck makes of its corpus, and bytes of luck alone.
fn with_luck(target: &str) {
    let (_, body) = BODIES.iter().find(|(name, _)| *name == target).expect("there is such a body");
    let inputs = corpus(target);
    let damaged =
        (any::<prop::sample::Index>(), prop::collection::vec(any_damage(), 1..6)).prop_map(|(at, damages)| {
            let mut bytes = at.get(&inputs).1.clone();
            damages.iter().for_each(|damage| damage.apply(&mut bytes, &inputs));
            bytes
        });
    let any_input = prop_oneof![8 => damaged, 1 => prop::collection::vec(any::<u8>(), 0..400)];
    let config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::default() };
    proptest!(config, |(bytes in any_input)| body(&bytes));
}

#[test]
fn any_text_is_a_config_or_an_error_that_names_its_keys() {
    with_luck("config");
}

#[test]
fn any_bytes_are_a_frame_that_comes_back_or_are_refused() {
    with_luck("frame");
}

#[test]
fn any_stream_of_frames_is_read_the_same_in_all_blocks() {
    with_luck("frames");
}

#[test]
fn any_headers_are_read_and_what_is_written_is_read_again() {
    with_luck("letter");
}

#[test]
fn any_lines_mean_what_serde_json_says() {
    with_luck("ndjson");
}

#[cfg(feature = "sim")]
#[test]
fn any_segments_are_recovered_once_and_for_all() {
    with_luck("segments");
}
