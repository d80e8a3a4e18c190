//! The tests of this room. `serde_json` is the oracle of what JSON is.

use super::*;
use crate::trigger::{Priority, State, Trigger};
use proptest::prelude::*;

const USUAL: &str =
    r#"{"device_id":"vessel-119","fence_id":"cell:30.080:32.560","state":"enter","event_time_ms":1616198400000}"#;

type Owned = (String, String, State, i64, Priority, Vec<u8>);

fn owned(trigger: &Trigger<'_>) -> Owned {
    let Trigger { device_id, fence_id, state, event_time_ms, priority, attributes } = *trigger;
    (device_id.into(), fence_id.into(), state, event_time_ms, priority, attributes.into())
}

fn parsed(line: &[u8]) -> Result<Owned, NotATrigger> {
    ndjson::parse(&mut line.to_vec()).map(|trigger| owned(&trigger))
}

/// The same, read by the oracle: `None` if it is no JSON, or not the object of a trigger.
fn by_the_oracle(line: &[u8]) -> Option<Owned> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    let object = value.as_object()?;
    let known = ["device_id", "fence_id", "state", "event_time_ms", "priority", "attributes"];
    if object.keys().any(|key| !known.contains(&key.as_str())) {
        return None;
    }
    let text = |key: &str| object.get(key).and_then(|value| value.as_str()).map(str::to_string);
    let state = match text("state")?.as_str() {
        "enter" => State::Enter,
        "exit" => State::Exit,
        "dwell" => State::Dwell,
        _ => return None,
    };
    let priority = match object.get("priority") {
        None => Priority::Normal,
        Some(word) => match word.as_str()? {
            "low" => Priority::Low,
            "normal" => Priority::Normal,
            "high" => Priority::High,
            _ => return None,
        },
    };
    let attributes = match object.get("attributes") {
        None => Vec::new(),
        Some(text) => text.as_str()?.as_bytes().to_vec(),
    };
    Some((text("device_id")?, text("fence_id")?, state, object.get("event_time_ms")?.as_i64()?, priority, attributes))
}

#[test]
fn lines_as_they_come() {
    let usual = || {
        ("vessel-119".into(), "cell:30.080:32.560".into(), State::Enter, 1_616_198_400_000, Priority::Normal, vec![])
    };
    assert_eq!(parsed(USUAL.as_bytes()), Ok(usual()));
    for same in [
        USUAL.replace(':', ": ").replace(",\"", ", \"").replace("cell: 30.080: 32", "cell:30.080:32"),
        format!("{USUAL}\r"),
        format!(" \t{USUAL} "),
        USUAL.replace("vessel", "\\u0076essel"),
        USUAL.replace("device_id", "devic\\u0065_id"),
        USUAL.replace("\"enter\"", "\"\\u0065nter\""),
        USUAL.replace('}', ",\"priority\":\"normal\"}"),
        USUAL.replace('}', ",\"attributes\":\"\"}"),
        r#"{"event_time_ms":1616198400000,"state":"enter","fence_id":"cell:30.080:32.560","device_id":"vessel-119"}"#
            .into(),
    ] {
        assert_eq!(parsed(same.as_bytes()), Ok(usual()), "{same}");
    }
    let full = r#"{ "device_id" : "\ud83d\ude9a\n\"\\\/\b\f\r\t\u0000" , "attributes":"\u00e4ä","fence_id":"車両","priority":"low","state":"dwell","event_time_ms":-9223372036854775808}"#;
    let (device, fence, state, time, priority, attributes) = parsed(full.as_bytes()).unwrap();
    assert_eq!(device, "\u{1f69a}\n\"\\/\u{8}\u{c}\r\t\0");
    assert_eq!((fence.as_str(), state, time, priority), ("車両", State::Dwell, i64::MIN, Priority::Low));
    assert_eq!(attributes, "ää".as_bytes());
    for (word, priority) in [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)] {
        let line = USUAL.replace('}', &format!(",\"priority\":\"{word}\"}}"));
        assert_eq!(parsed(line.as_bytes()).unwrap().4, priority);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (line, want) in [
        ("", "column 1: expected {, the start of a trigger"),
        ("[]", "column 1: expected {, the start of a trigger"),
        ("{}", "device_id is missing"),
        (r#"{"device_id":"d","fence_id":"f","state":"enter"}"#, "event_time_ms is missing"),
        (&USUAL.replace("fence_id", "fence"), "column 27: unknown key \"fence\", allowed are"),
        (&USUAL.replace('}', ",\"priorty\":\"high\"}"), "column 105: unknown key \"priorty\""),
        (&USUAL.replace('}', ",\"state\":\"exit\"}"), "column 105: state comes a second time"),
        (&USUAL.replace("enter", "entre"), "column 67: state is \"entre\", allowed \"enter\", \"exit\" and \"dwell\""),
        (&USUAL.replace("\"enter\"", "1"), "column 67: expected text in double quotes"),
        (&USUAL.replace('}', ",\"priority\":null}"), "column 116: expected text in double quotes"),
        (&USUAL.replace('}', ",\"priority\":\"urgent\"}"), "priority is \"urgent\", allowed \"low\""),
        (&USUAL.replace("1616198400000", "1616198400.5"), "column 91: expected a whole number"),
        (&USUAL.replace("1616198400000", "1e12"), "column 91: expected a whole number"),
        (&USUAL.replace("1616198400000", "\"1616198400000\""), "column 91: expected a whole number"),
        (&USUAL.replace("1616198400000", "01"), "column 91: expected a whole number"),
        (&USUAL.replace("1616198400000", "-0"), "column 91: expected a whole number"),
        (&USUAL.replace("1616198400000", "9223372036854775808"), "column 91: expected a whole number"),
        (&USUAL.replace('}', ""), "column 104: expected , or } behind a value"),
        (&USUAL.replace('}', ",}"), "column 105: expected a key in double quotes"),
        (&format!("{USUAL}{USUAL}"), "column 105: expected the end of the line"),
        (&USUAL.replace("vessel-119\"", "vessel-119"), "column 27: expected , or }"),
        (&USUAL.replace("vessel", "ves\\sel"), "column 18: expected an escape of JSON"),
        (&USUAL.replace("vessel", "\\ud83d"), "column 15: expected both halves of a surrogate pair"),
        (&USUAL.replace("vessel", "\\ud83d\\u0041"), "column 15: expected both halves of a surrogate pair"),
        (&USUAL.replace("vessel", "\\ude9a"), "column 15: expected both halves of a surrogate pair"),
        (&USUAL.replace("vessel", "\\u00g0"), "column 19: expected four hexadecimal digits"),
        (&USUAL.replace("vessel", "a\tb"), "column 16: expected no control character"),
        ("{\"device_id\":\"d", "column 16: expected the closing \""),
        ("{\"device_id\":\"d\\", "column 16: expected an escape"),
    ] {
        let got = parsed(line.as_bytes()).unwrap_err().to_string();
        assert!(got.starts_with(want) || got.contains(want), "{line}\n  got  {got}\n  want {want}");
    }
    let mut broken = USUAL.as_bytes().to_vec();
    broken[16] = 0xff;
    assert_eq!(parsed(&broken), Err(NotATrigger::NotUtf8 { column: 17 }));
    let long = USUAL.replace("fence_id", &"k".repeat(40));
    assert!(parsed(long.as_bytes()).unwrap_err().to_string().contains(&format!("\"{}\"…", "k".repeat(32))));
}

/// JSON text of a string, escaped by luck.
fn any_json_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => "[ -~]".prop_filter("must be escaped", |text| !["\"", "\\"].contains(&text.as_str())),
        2 => "\\PC",
        1 => any::<u16>().prop_map(|unit| format!("\\u{unit:04x}")),
        1 => any::<char>().prop_map(|c| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect()),
        1 => "\\\\[\"\\\\/bfnrt]",
        1 => Just("\u{1}".to_string()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn any_line() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        20 => (0usize..6).prop_map(|at| {
            format!("\"{}\"", ["device_id", "fence_id", "state", "event_time_ms", "priority", "attributes"][at])
        }),
        1 => any_json_text(),
    ];
    let value = prop_oneof![
        6 => any_json_text(),
        6 => prop::sample::select(vec!["\"enter\"", "\"exit\"", "\"dwell\"", "\"low\"", "\"high\"", "null", "[]", "{}"])
            .prop_map(str::to_string),
        6 => any::<i64>().prop_map(|number| number.to_string()),
        2 => prop::sample::select(vec!["1.0", "-0", "01", "1e3", "1.", "true", "-", "9223372036854775808", "0"])
            .prop_map(str::to_string),
    ];
    let space = prop::sample::select(vec!["", "", "", " ", "\t\r "]);
    let member = (key, space.clone(), value, space).prop_map(|(key, a, value, b)| format!("{key}{a}:{b}{value}"));
    prop::collection::vec(member, 0..8).prop_map(|members| format!("{{{}}}", members.join(",")))
}

/// A line with all keys in any order, whose values are mostly right.
fn any_good_line() -> impl Strategy<Value = String> {
    let members =
        (any_json_text(), any_json_text(), 0usize..3, any::<i64>(), 0usize..4, any_json_text(), any::<bool>());
    members
        .prop_flat_map(|(device, fence, state, time, priority, attributes, has_attributes)| {
            let mut members = vec![
                format!("\"device_id\":{device}"),
                format!("\"fence_id\" : {fence}"),
                format!("\"state\":\"{}\"", ["enter", "exit", "dwell"][state]),
                format!("\"event_time_ms\":{time}"),
            ];
            if let Some(word) = ["low", "normal", "high"].get(priority) {
                members.push(format!("\"priority\":\"{word}\""));
            }
            if has_attributes {
                members.push(format!("\"attributes\":{attributes}"));
            }
            (Just(members.clone()).prop_shuffle(), Just(members), any::<bool>())
        })
        .prop_map(|(shuffled, sorted, in_order)| format!("{{{}}}", if in_order { sorted } else { shuffled }.join(",")))
}

/// Whether an object has two equal keys, which the oracle's own map does not show.
fn names_a_key_twice(line: &[u8]) -> bool {
    struct Keys(Vec<String>);
    struct Collect;
    impl<'de> serde::de::Visitor<'de> for Collect {
        type Value = Keys;
        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("an object")
        }
        fn visit_map<M: serde::de::MapAccess<'de>>(self, mut members: M) -> Result<Keys, M::Error> {
            let mut keys = Vec::new();
            while let Some((key, _)) = members.next_entry::<String, serde::de::IgnoredAny>()? {
                keys.push(key);
            }
            Ok(Keys(keys))
        }
    }
    impl<'de> serde::Deserialize<'de> for Keys {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Keys, D::Error> {
            from.deserialize_map(Collect)
        }
    }
    let Ok(Keys(mut keys)) = serde_json::from_slice(line) else { return false };
    keys.sort();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// What is accepted has the oracle's values, and what the oracle does not take for a trigger is refused. The oracle keeps
/// the last of two equal keys, where we refuse: the one difference.
fn agrees(line: &[u8]) -> Result<(), TestCaseError> {
    let (ours, oracle) = (parsed(line), by_the_oracle(line));
    match (&ours, &oracle) {
        (Ok(got), Some(want)) => prop_assert_eq!(got, want),
        (Ok(got), None) => prop_assert!(false, "accepted, and it is none: {got:?}"),
        (Err(NotATrigger::DuplicateKey { .. }), _) | (Err(_), None) => {}
        // The first of two equal keys may be refused for its value before the second one is seen.
        (Err(_), Some(_)) if names_a_key_twice(line) => {}
        (Err(error), Some(want)) => prop_assert!(false, "refused ({error}), and it is one: {want:?}"),
    }
    Ok(())
}

#[test]
fn a_key_named_twice_is_refused_whatever_its_first_value() {
    let line = br#"{"event_time_ms":0,"state":"","fence_id":"enter","state":"enter","device_id":""}"#;
    assert!(names_a_key_twice(line) && parsed(line).is_err());
    assert!(!names_a_key_twice(USUAL.as_bytes()));
}

proptest! {
    #[test]
    fn lines_mean_what_the_oracle_says(line in any_line()) {
        agrees(line.as_bytes())?;
    }

    #[test]
    fn good_lines_mean_what_the_oracle_says(line in any_good_line()) {
        agrees(line.as_bytes())?;
    }

    #[test]
    fn a_flipped_byte_is_judged_as_the_oracle_judges(line in any_good_line(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut line = line.into_bytes();
        let at = at.index(line.len());
        line[at] = to;
        agrees(&line)?;
    }

    #[test]
    fn a_flipped_byte_of_the_usual_shape_is_judged_as_the_oracle_judges(at in 0..USUAL.len(), to in any::<u8>()) {
        let mut line = USUAL.as_bytes().to_vec();
        line[at] = to;
        agrees(&line)?;
        agrees(&line[..at])?;
    }

    /// However the bytes come in, the same lines come out, each once, with the same numbers.
    #[test]
    fn blocks_do_not_matter(
        lines in prop::collection::vec(prop_oneof![
            3 => Just(USUAL.to_string()),
            1 => Just(String::new()),
            1 => Just("garbage".to_string()),
            1 => (1_000usize..4_000).prop_map(|len| "x".repeat(len)),
            1 => any_good_line(),
        ], 0..40),
        ends_with_newline in any::<bool>(),
        blocks in prop::collection::vec(1usize..700, 1..30),
    ) {
        let mut text = lines.join("\n");
        if ends_with_newline && !lines.is_empty() {
            text.push('\n');
        }
        let all = read_all(Format::Ndjson, text.as_bytes(), &[usize::MAX]);
        prop_assert_eq!(&read_all(Format::Ndjson, text.as_bytes(), &blocks), &all);
        let mut want = Vec::new();
        for (line, number) in lines.iter().zip(1..) {
            if line.len() > LINE_BYTES_MAX {
                want.push((number, Err("line_too_long")));
            } else if !line.trim_matches([' ', '\t', '\r']).is_empty() {
                want.push((number, parsed(line.as_bytes()).map_err(|_| "malformed")));
            }
        }
        prop_assert_eq!(all.0, want);
        prop_assert_eq!(all.1.offset, text.len() as u64);
    }
}

const LINE_BYTES_MAX: usize = 2_000;

type Outcome = Result<Owned, &'static str>;

/// Everything that a feed makes of `bytes`, which come in blocks of these sizes, over and over.
fn read_all(format: Format, bytes: &[u8], blocks: &[usize]) -> (Vec<(u64, Outcome)>, Position) {
    let mut feed = Feed::new(format, LINE_BYTES_MAX, 1_024);
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut sizes = blocks.iter().cycle();
    let mut is_over = false;
    while !is_over {
        let size = (*sizes.next().unwrap()).min(rest.len());
        let mut block = &rest[..size];
        let count = feed.fill(&mut block).unwrap();
        rest = &rest[count..];
        is_over = count == 0;
        loop {
            let mut batch = Batch::new();
            if !feed.batch(&mut batch) {
                break;
            }
            all.extend(batch.triggers().iter().zip(batch.lines()).map(|(trigger, line)| (*line, Ok(owned(trigger)))));
            all.extend(batch.faults().map(|faulty| (faulty.line, Err(faulty.fault.code()))));
        }
    }
    assert!(!feed.is_within() || matches!(all.last(), Some((_, Err("line_too_long" | "frame_too_long")))));
    all.sort_by_key(|(line, _)| *line);
    (all, feed.position())
}

#[test]
fn a_line_is_as_long_as_the_limit_or_it_is_too_long() {
    for (len, is_taken) in [(LINE_BYTES_MAX - 1, true), (LINE_BYTES_MAX, true), (LINE_BYTES_MAX + 1, false)] {
        let line = format!("{USUAL}{}", " ".repeat(len - USUAL.len()));
        for text in [line.clone(), format!("{line}\n"), format!("{line}\n{USUAL}\n")] {
            let (all, position) = read_all(Format::Ndjson, text.as_bytes(), &[100]);
            assert_eq!(all[0].1.is_ok(), is_taken, "{len}");
            assert_eq!(position, Position { lines: text.lines().count() as u64, offset: text.len() as u64 });
        }
    }
}

fn framed(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32).to_be_bytes()[..], content].concat()
}

#[test]
fn frames_between_garbage_of_every_kind() {
    let good = b"\x08\x01\x12\x01d\x1a\x01f\x20\x01\x28\x01\x4a\x02\xff\x00";
    let trigger: Outcome = Ok(("d".into(), "f".into(), State::Enter, 1, Priority::Normal, vec![0xff, 0]));
    let too_long = vec![7; LINE_BYTES_MAX + 1];
    let bytes = [framed(good), framed(b""), framed(&too_long), framed(good), framed(b"garbage"), framed(good)].concat();
    let want = vec![
        (1, trigger.clone()),
        (2, Err("unknown_version")),
        (3, Err("frame_too_long")),
        (4, trigger.clone()),
        (5, Err("frame_bad_tag")),
        (6, trigger.clone()),
    ];
    for blocks in [&[usize::MAX][..], &[1], &[3, 700]] {
        let (all, position) = read_all(Format::Frames, &bytes, blocks);
        assert_eq!(all, want);
        assert_eq!(position, Position { lines: 6, offset: bytes.len() as u64 });
    }
    for cut in [1, 3, 5, good.len() + 3] {
        assert_eq!(read_all(Format::Frames, &framed(good)[..cut], &[2]).0, [(1, Err("frame_cut"))], "{cut}");
    }
    // A length of 4 GiB takes no memory.
    let (all, _) = read_all(Format::Frames, &[&[0xff; 4][..], &vec![1; 100_000]].concat(), &[1_000]);
    assert_eq!(all, [(1, Err("frame_too_long"))]);
}

#[test]
fn an_earlier_runs_lines_are_counted_and_not_looked_at() {
    let text = format!("garbage\n{USUAL}\n\ngarbage\n{USUAL}\n");
    let mut feed =
        Feed::new(Format::Ndjson, LINE_BYTES_MAX, 1_024).starting_at(Position { lines: 10, offset: 500 }, 12);
    feed.fill(&mut text.as_bytes()).unwrap();
    let mut batch = Batch::new();
    assert!(feed.batch(&mut batch));
    assert_eq!(batch.lines(), [15]);
    assert_eq!(batch.faults().map(|faulty| faulty.line).collect::<Vec<_>>(), [14]);
    assert_eq!(feed.fresh_lines(), 3);
    assert_eq!(feed.position(), Position { lines: 15, offset: 500 + text.len() as u64 });
}

#[test]
fn an_unfinished_last_line_is_left_for_later() {
    let position_after = |format, bytes: &[u8]| {
        let mut feed = Feed::new(format, LINE_BYTES_MAX, 1_024).leaving_unfinished();
        let (mut rest, mut count) = (bytes, 0);
        loop {
            let is_over = feed.fill(&mut rest).unwrap() == 0;
            loop {
                let mut batch = Batch::new();
                if !feed.batch(&mut batch) {
                    break;
                }
                count += batch.triggers().len();
                assert_eq!(batch.faults().next(), None, "{bytes:?}");
            }
            if is_over {
                return (count, feed.position(), feed.has_left());
            }
        }
    };
    let whole = format!("{USUAL}\n{USUAL}");
    let first = Position { lines: 1, offset: USUAL.len() as u64 + 1 };
    for len in USUAL.len() + 2..whole.len() {
        assert_eq!(position_after(Format::Ndjson, &whole.as_bytes()[..len]), (1, first, true), "{len}");
    }
    let escaped = format!("{USUAL}\n{{\"device_id\":\"\\u0041\\\\");
    assert_eq!(position_after(Format::Ndjson, escaped.as_bytes()), (1, first, true));
    assert_eq!(position_after(Format::Ndjson, format!("{USUAL}\n  ").as_bytes()), (1, first, true));
    // Only its newline is missing.
    let all = Position { lines: 2, offset: whole.len() as u64 };
    assert_eq!(position_after(Format::Ndjson, whole.as_bytes()), (2, all, false));
    let frame = framed(b"\x08\x01\x12\x01d\x1a\x01f\x20\x01\x28\x01");
    let two = [&frame[..], &frame].concat();
    for len in frame.len() + 1..two.len() {
        let first = Position { lines: 1, offset: frame.len() as u64 };
        assert_eq!(position_after(Format::Frames, &two[..len]), (1, first, true), "{len}");
    }
}

#[test]
fn the_first_line_may_be_for_somebody_else() {
    let mut feed = Feed::new(Format::Ndjson, LINE_BYTES_MAX, 1_024);
    feed.fill(&mut &b"{\"acks\""[..]).unwrap();
    assert_eq!(feed.peek(), None);
    feed.fill(&mut format!(":true}}\n{USUAL}\n").as_bytes()).unwrap();
    assert_eq!(feed.peek(), Some(&b"{\"acks\":true}"[..]));
    feed.drop_peeked();
    let mut batch = Batch::new();
    assert!(feed.batch(&mut batch));
    assert_eq!((batch.lines(), batch.faults().len()), (&[1][..], 0));
}

#[test]
fn blank_lines_in_front_are_passed_and_counted() {
    let mut feed = Feed::new(Format::Ndjson, LINE_BYTES_MAX, 1_024);
    feed.fill(&mut &b"\n \t\r\n{\"acks\""[..]).unwrap();
    assert_eq!((feed.pass_blank(), feed.peek()), (2, None));
    feed.fill(&mut format!(":true}}\n\n{USUAL}\n").as_bytes()).unwrap();
    assert_eq!((feed.pass_blank(), feed.peek()), (0, Some(&b"{\"acks\":true}"[..])));
    feed.drop_peeked();
    let mut batch = Batch::new();
    assert!(feed.batch(&mut batch));
    assert_eq!(batch.lines(), [4]);
    assert_eq!(feed.position().lines, 4);
}

/// The bytes of every line as a feed hands them on, with its number.
fn raws(format: Format, bytes: &[u8], blocks: &[usize]) -> Vec<(u64, Vec<u8>)> {
    let mut feed = Feed::new(format, LINE_BYTES_MAX, 1_024);
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut sizes = blocks.iter().cycle();
    loop {
        let size = (*sizes.next().unwrap()).min(rest.len());
        let count = feed.fill(&mut &rest[..size]).unwrap();
        rest = &rest[count..];
        loop {
            let mut batch = Batch::new();
            if !feed.batch(&mut batch) {
                break;
            }
            all.extend(batch.lines().iter().zip(batch.raws()).map(|(line, raw)| (*line, raw.to_vec())));
            all.extend(batch.faults().map(|faulty| (faulty.line, faulty.raw.to_vec())));
        }
        if count == 0 {
            all.sort();
            return all;
        }
    }
}

#[test]
fn every_line_is_there_as_it_came() {
    let escaped = USUAL.replace("vessel", "\\u0076\\\\\\n\\ud83d\\ude9a");
    let long = "\\u0041".repeat(1_000);
    let lines: Vec<Vec<u8>> = vec![
        USUAL.into(),
        escaped.clone().into(),
        format!("{escaped}\r").into(),
        USUAL.replace("enter", "\\u0065ntre").into(),
        b"{\"device_id\":\"\\u0041\\u0042\", \0 \xff\xfe".to_vec(),
        b"\0\x01\xff\r".to_vec(),
        escaped.replace("1616198400000", "-5").into(),
        long.clone().into(),
        b"\\".to_vec(),
    ];
    let text = lines.join(&b'\n');
    let mut want: Vec<(u64, Vec<u8>)> = (1..).zip(lines).collect();
    want[7].1.truncate(LINE_BYTES_MAX);
    for blocks in [&[usize::MAX][..], &[1], &[7, 900, 61]] {
        assert_eq!(raws(Format::Ndjson, &text, blocks), want, "{blocks:?}");
    }
    let contents: Vec<&[u8]> = vec![b"garbage", b"", long.as_bytes(), b"\x08\x01\\u0041"];
    let bytes: Vec<u8> = contents.iter().flat_map(|content| framed(content)).chain([0, 0, 0, 9, b'\\', 7]).collect();
    for blocks in [&[usize::MAX][..], &[1], &[7, 900, 61]] {
        let got = raws(Format::Frames, &bytes, blocks);
        let kept = |at: usize| (at as u64 + 1, contents[at][..contents[at].len().min(LINE_BYTES_MAX)].to_vec());
        assert_eq!(got, [kept(0), kept(1), kept(2), kept(3), (5, b"\\\x07".to_vec())], "{blocks:?}");
    }
    assert_eq!(raws(Format::Frames, &[0, 0, 1], &[2]), [(1, vec![0, 0, 1])]);
    // Not even its first bytes came.
    assert_eq!(raws(Format::Frames, &[0xff, 0xff, 0xff, 0xff, 7], &[2]), [(1, vec![7])]);
}

#[test]
fn how_long_a_long_line_is_is_said_where_it_is_known() {
    let fault = |text: &str| {
        let mut feed = Feed::new(Format::Ndjson, LINE_BYTES_MAX, 1_024);
        feed.fill(&mut text.as_bytes()).unwrap();
        let mut batch = Batch::new();
        assert!(feed.batch(&mut batch));
        batch.faults().next().unwrap().fault.to_string()
    };
    let long = "x".repeat(LINE_BYTES_MAX + 7);
    assert!(fault(&format!("{long}\n")).contains("longer than 2000 bytes, it has 2007: "));
    assert!(fault(&long).contains("longer than 2000 bytes: "));
}

#[test]
fn what_is_begun_can_be_given_up() {
    let mut feed = Feed::new(Format::Ndjson, LINE_BYTES_MAX, 1_024);
    assert_eq!(feed.abandon(), None);
    feed.fill(&mut &b"{\"device\\u0041"[..]).unwrap();
    assert!(!feed.batch(&mut Batch::new()));
    assert_eq!(feed.abandon(), Some((None, &b"{\"device\\u0041"[..])));
    assert_eq!((feed.position(), feed.abandon()), (Position { lines: 1, offset: 14 }, None));
    let mut feed = Feed::new(Format::Frames, LINE_BYTES_MAX, 1_024);
    feed.fill(&mut &b"GET / HTTP/1.1"[..]).unwrap();
    assert!(!feed.batch(&mut Batch::new()));
    let fault = Fault::FrameTooLong { len: u32::from_be_bytes(*b"GET "), limit: LINE_BYTES_MAX };
    assert_eq!(feed.abandon(), Some((Some(fault), &b"/ HTTP/1.1"[..])));
}
