//! `fencepost route`, run as a person runs it, on a mock cluster of two brokers: the first leads the topic, the second the
//! dead letters. What a source gets wrong arrives there as it came, and nothing is said to be settled behind it before.

use crate::common_kafka::{Mock, PATIENCE, Scratch, alone, fresh_topic, now_ms};
use fencepost::wire::decode;
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Headers;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 4;
/// The broker that leads the topic, and that of the dead letters.
const OF_TOPIC: i32 = 1;
const OF_LETTERS: i32 = 2;
/// Long enough for what must not happen to happen.
const A_WHILE: Duration = Duration::from_millis(1_500);

// -- the place ------------------------------------------------------------------------------------------------------------

struct Place {
    mock: Mock,
    topic: String,
    letters: String,
    scratch: Scratch,
}

/// A record with what its headers say.
struct Kept {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Kept {
    fn header(&self, name: &str) -> &str {
        let (_, value) = self.headers.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no {name}"));
        std::str::from_utf8(value).unwrap()
    }

    /// Reason, stage and detail.
    fn words(&self) -> [&str; 3] {
        ["fencepost.reason", "fencepost.stage", "fencepost.detail"].map(|name| self.header(name))
    }

    fn printed_key(&self) -> String {
        decode(&self.value).unwrap().frame.key().to_string()
    }
}

impl Place {
    fn new() -> Place {
        let mock = Mock::new(2);
        let topic = fresh_topic("routed");
        let letters = format!("{topic}.dlq");
        for (name, leader) in [(&topic, OF_TOPIC), (&letters, OF_LETTERS)] {
            mock.create_topic(name, PARTITIONS);
            (0..PARTITIONS).for_each(|partition| mock.set_leader(name, partition, leader));
        }
        Place { mock, topic, letters, scratch: Scratch::new("routed") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }

    fn command(&self, route: &str, rest: &str) -> Command {
        let path = self.path("fencepost.toml");
        let text = format!(
            "topic.name = {:?}\nkafka.bootstrap = {:?}\ndedup.capacity = 200000\n{rest}\n[route]\n{route}\n",
            self.topic,
            self.mock.bootstrap()
        );
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        command.args(["route", "--json", "-c"]).arg(path).env_remove("RUST_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, route: &str, rest: &str) -> Running {
        let mut child = self.command(route, rest).spawn().unwrap();
        let (said_in, lines) = channel();
        let said = Arc::new(Mutex::new(String::new()));
        let (errors, all) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                *all.lock().unwrap() += &format!("{line}\n");
                // Whoever listens no more has heard what it wanted.
                let _ = said_in.send(line);
            }
        });
        let stdin = child.stdin.take();
        Running { child, stdin, lines, said }
    }

    /// Routes these bytes from standard input: the exit code, the counters, and what was told.
    fn pipe(&self, bytes: &[u8], route: &str, rest: &str) -> (Option<i32>, Value, String) {
        let mut running = self.start(route, rest);
        running.stdin.take().unwrap().write_all(bytes).unwrap();
        running.finish()
    }

    /// The first `count` records of a topic, by partition and offset; no more are there.
    #[track_caller]
    fn read(&self, topic: &str, count: usize) -> Vec<Kept> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.mock.bootstrap())
            .set("group.id", "routed")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "50")
            .set("log_level", "3")
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        let mut there = 0;
        for partition in 0..PARTITIONS as i32 {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
            there += consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap().1;
        }
        assert_eq!(there, count as i64, "records of {topic}");
        consumer.assign(&list).unwrap();
        let (began, mut all) = (Instant::now(), Vec::new());
        while all.len() < count {
            assert!(began.elapsed() < PATIENCE, "{topic}: {} of {count}", all.len());
            let Some(Ok(record)) = consumer.poll(Duration::from_millis(100)) else { continue };
            let headers = record.headers().map_or_else(Vec::new, |headers| {
                let each = headers.iter().map(|one| (one.key.to_owned(), one.value.unwrap_or_default().to_vec()));
                each.collect()
            });
            let kept = Kept {
                key: record.key().map(<[u8]>::to_vec),
                value: record.payload().unwrap_or_default().to_vec(),
                headers,
            };
            all.push((record.partition(), record.offset(), kept));
        }
        all.sort_by_key(|(partition, offset, _)| (*partition, *offset));
        all.into_iter().map(|(_, _, kept)| kept).collect()
    }

    fn ends_of(&self, topic: &str) -> i64 {
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", self.mock.bootstrap()).set("log_level", "3").create().unwrap();
        (0..PARTITIONS as i32).map(|part| consumer.fetch_watermarks(topic, part, PATIENCE).unwrap().1).sum()
    }

    #[track_caller]
    fn wait_for(&self, topic: &str, count: i64) {
        let began = Instant::now();
        while self.ends_of(topic) < count {
            assert!(began.elapsed() < PATIENCE, "{} of {count} records of {topic}", self.ends_of(topic));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Arc<Mutex<String>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a test that failed; one that ended well has waited for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// The next line on standard error with this in it.
    #[track_caller]
    fn hear(&self, what: &str) -> String {
        let began = Instant::now();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            if line.contains(what) {
                return line;
            }
        }
        panic!("{what:?} was not said:\n{}", self.said.lock().unwrap());
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    #[track_caller]
    fn finish(mut self) -> (Option<i32>, Value, String) {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{}", self.said.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut out, code) = (String::new(), self.child.wait().unwrap().code());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let said = self.said.lock().unwrap().clone();
        let counters = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{said}"));
        (code, counters, said)
    }
}

/// A good line, each of its own device and second.
fn line(number: i64, fence: &str) -> String {
    let time = now_ms() - 100_000_000 + number * 1_000;
    format!(r#"{{"device_id":"veh-{number}","fence_id":"{fence}","state":"enter","event_time_ms":{time}}}"#)
}

// -- byte for byte ----------------------------------------------------------------------------------------------------------

#[test]
fn what_is_no_trigger_arrives_as_it_came_and_in_its_order() {
    let _alone = alone();
    let place = Place::new();
    let long = format!("{}\r", "\\u0041x".repeat(20_000));
    // In the escapes is what parsing resolves in place; the last but one is a trigger that breaks a rule.
    let wrong: Vec<Vec<u8>> = vec![
        br#"{"device_id":"\u0041\u00e4\n","fence":"f"}"#.to_vec(),
        b"\0{\"device_id\":\"a\0b\"".to_vec(),
        b"{\"device_id\":\"\xff\xfe\\u0041\",\"fence_id\":\"f\",\"state\":\"exit\",\"event_time_ms\":1}".to_vec(),
        b"rubbish\r".to_vec(),
        long.clone().into_bytes(),
        br#"{"device_id":"\u0041\ud83d\ude9a","fence_id":"\u0000","state":"exit","event_time_ms":-5 } "#.to_vec(),
        b"cut \\u00".to_vec(),
    ];
    let details = [
        "line 2: column 31: unknown key \"fence\"",
        "line 4: column 1: expected {",
        "line 6: column 15: not UTF-8",
        "line 8: column 1: expected {",
        "line 10: the line is longer than 65536 bytes",
        "line 12: event_time_ms",
        "line 14: column 1: expected {",
    ];
    let mut input = Vec::new();
    for (number, wrong) in wrong.iter().enumerate() {
        let good = line(number as i64, "zone");
        input.extend([good.as_bytes(), wrong].join(&b'\n'));
        // The last line has no end, and blank ones are none.
        input.extend(if number < 6 { &b"\n"[..] } else { b"" });
    }
    let (code, counted, said) = place.pipe(&input, "", "");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!((&counted["malformed"], &counted["rejected"]), (&6.into(), &1.into()), "{counted}");
    assert_eq!((&counted["delivered"], &counted["dead_lettered"]), (&7.into(), &7.into()), "{counted}");
    assert_eq!((&counted["lines"], &counted["adds_up"]), (&14.into(), &true.into()), "{counted}");
    let kept = place.read(&place.letters, 7);
    for ((kept, wrong), detail) in kept.iter().zip(&wrong).zip(details) {
        let whole = &wrong[..wrong.len().min(65_536)];
        assert!(kept.value == whole, "{detail}: {:?}", String::from_utf8_lossy(&kept.value));
        let [reason, stage, said] = kept.words();
        assert_eq!((reason, stage), ("malformed", "source"));
        assert!(said.starts_with(detail), "{said}\n  want {detail}");
        assert_eq!((kept.key.as_deref().unwrap_or_default(), kept.header("fencepost.key")), (&b""[..], ""));
    }
    assert!(kept[4].words()[2].ends_with("; its first 65536 bytes are kept"), "{:?}", kept[4].words());
    assert_eq!(place.read(&place.topic, 7).len(), 7);
}

#[test]
fn frames_that_are_none_arrive_without_their_length() {
    let _alone = alone();
    let place = Place::new();
    let long = vec![b'\\'; 70_000];
    let contents: [&[u8]; 3] = [b"gar\\u0041bage\0\xff", &[], &long];
    let mut input: Vec<u8> =
        contents.iter().flat_map(|content| [&(content.len() as u32).to_be_bytes()[..], content].concat()).collect();
    input.extend([0, 0, 1, 0, 1, 2, b'\n']);
    let (code, counted, said) = place.pipe(&input, "format = \"frames\"", "");
    assert_eq!((code, &counted["malformed"], &counted["dead_lettered"]), (Some(1), &4.into(), &4.into()), "{said}");
    let kept = place.read(&place.letters, 4);
    let values: Vec<&[u8]> = kept.iter().map(|kept| &kept.value[..]).collect();
    assert!(values == [contents[0], contents[1], &long[..65_536], &[1, 2, b'\n']], "{said}");
    let details: Vec<&str> = kept.iter().map(|kept| kept.words()[2]).collect();
    assert!(details[2].starts_with("line 3: the frame is said to have 70000 bytes, allowed are 65536"), "{details:?}");
    assert!(details[3].starts_with("line 4: the source ended 253 bytes before the end"), "{details:?}");
}

/// L2: through a source, an event that is far too large is a dead letter, and the next one is delivered.
#[test]
fn l2_a_large_event_is_a_dead_letter_and_the_next_one_is_delivered() {
    let _alone = alone();
    let place = Place::new();
    let large = line(1, "zone").replace('}', &format!(",\"attributes\":\"{}\"}}", "x".repeat(2 << 20)));
    let input = format!("{}\n{large}\n{}\n", line(0, "zone"), line(2, "zone"));
    let (code, counted, said) = place.pipe(input.as_bytes(), "", "");
    assert_eq!((code, &counted["delivered"], &counted["dead_lettered"]), (Some(1), &2.into(), &1.into()), "{said}");
    let kept = place.read(&place.letters, 1);
    assert!(kept[0].value == large.as_bytes()[..65_536]);
    assert!(kept[0].words()[2].starts_with("line 2: the line is longer than 65536 bytes"), "{:?}", kept[0].words());
    let delivered = place.read(&place.topic, 2);
    let keys: BTreeSet<_> = delivered.iter().filter_map(|kept| kept.key.clone()).collect();
    assert_eq!(keys, [b"veh-0".to_vec(), b"veh-2".to_vec()].into());
}

// -- what is settled ----------------------------------------------------------------------------------------------------------

#[test]
fn a_peer_is_told_that_a_wrong_line_is_settled_when_the_dead_letters_have_it() {
    let _alone = alone();
    let place = Place::new();
    let running = place.start("source = \"tcp\"\nlisten = \"127.0.0.1:0\"", "");
    let ready = running.hear("ready:");
    place.mock.set_down(OF_LETTERS);
    let mut peer = TcpStream::connect(ready.split_whitespace().nth(2).unwrap()).unwrap();
    peer.set_read_timeout(Some(A_WHILE)).unwrap();
    // Blank lines in front of the wish are none of it, and are counted.
    let good: Vec<String> = (0..200).map(|number| line(number, "zone")).collect();
    write!(peer, "\n \r\n{{\"acks\":true}}\n{}\nrubbish\n{}\n", good[0], good[1..].join("\n")).unwrap();
    place.wait_for(&place.topic, 200);
    // Lines 1 and 2 are blank, 3 is delivered, 4 waits. The answers end when none comes for a while.
    let mut answers = BufReader::new(peer);
    let mut next = || {
        let mut answer = String::new();
        answers.read_line(&mut answer).ok().map(|_| serde_json::from_str::<Value>(&answer).unwrap())
    };
    let (mut settled, mut wrong) = (0, Vec::new());
    while let Some(answer) = next() {
        match answer["settled"].as_u64() {
            Some(line) => settled = line,
            None => wrong.push(answer),
        }
    }
    assert_eq!(settled, 3, "everything but the dead letter is delivered");
    assert_eq!((wrong.len(), &wrong[0]["line"], &wrong[0]["error"]), (1, &4.into(), &"malformed".into()), "{wrong:?}");
    place.mock.set_up(OF_LETTERS);
    let began = Instant::now();
    while settled < 203 {
        assert!(began.elapsed() < PATIENCE, "{settled}");
        settled = next().and_then(|answer| answer["settled"].as_u64()).unwrap_or(settled);
    }
    drop(answers);
    running.signal("TERM");
    let (code, counted, said) = running.finish();
    assert_eq!((code, &counted["dead_lettered"], &counted["lines"]), (Some(0), &1.into(), &203.into()), "{said}");
    assert_eq!(place.read(&place.letters, 1)[0].value, b"rubbish");
}

#[test]
fn a_file_goes_on_at_the_wrong_line_that_was_not_durable() {
    let _alone = alone();
    let place = Place::new();
    let (file, state) = (place.path("rows.ndjson"), place.path("state"));
    let good: Vec<String> = (0..100).map(|number| line(number, "zone")).collect();
    std::fs::write(&file, format!("{}\n\\u0041 rubbish\n{}\n", good[0], good[1..].join("\n"))).unwrap();
    let route = format!("source = \"file\"\npath = {file:?}\nresume = true");
    // For as long as the first run lives, the disk does not stand in for the topic.
    let rest = format!("state.dir = {state:?}\ndead_letter.grace = \"10m\"\nshutdown.limit = \"20s\"");
    place.mock.set_down(OF_LETTERS);
    let mut running = place.start(&route, &rest);
    running.hear("ready:");
    place.wait_for(&place.topic, 100);
    let kept_line = || {
        let kept: toml::Table = std::fs::read_to_string(state.join("source.toml")).unwrap_or_default().parse().unwrap();
        kept.get("line").and_then(toml::Value::as_integer)
    };
    let began = Instant::now();
    while kept_line() != Some(1) {
        assert!(began.elapsed() < PATIENCE, "{:?}", kept_line());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(A_WHILE);
    assert_eq!(kept_line(), Some(1), "the second line is not durable");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    drop(running);
    place.mock.set_up(OF_LETTERS);
    let running = place.start(&route, &rest);
    let (code, counted, said) = running.finish();
    assert_eq!((code, &counted["malformed"], &counted["lines"]), (Some(1), &1.into(), &100.into()), "{said}");
    assert_eq!(kept_line(), Some(101));
    let kept = place.read(&place.letters, 1);
    assert_eq!((&kept[0].value[..], kept[0].header("fencepost.reason")), (&b"\\u0041 rubbish"[..], "malformed"));
    assert!(kept[0].words()[2].starts_with("line 2: "), "{:?}", kept[0].words());
}

/// More than all memory on the way holds, while the topic is away: the source waits, and nothing is passed over.
#[test]
fn a_source_waits_while_the_dead_letters_have_no_room() {
    const COUNT: i64 = 300;
    let _alone = alone();
    let place = Place::new();
    let mut running = place.start("", "");
    running.hear("ready:");
    place.mock.set_down(OF_LETTERS);
    let mut stdin = running.stdin.take().unwrap();
    let (told, done) = channel();
    let writer = std::thread::spawn(move || {
        for number in 0..COUNT {
            let large = "\\".repeat(40_000);
            stdin.write_all(format!("{}\n{number} {large}\n", line(number, "zone")).as_bytes()).unwrap();
        }
        told.send(()).unwrap();
    });
    // As long as the letters have no room, the writer does not get rid of it all.
    assert!(done.recv_timeout(4 * A_WHILE).is_err(), "12 MB were taken while nobody took the letters");
    place.mock.set_up(OF_LETTERS);
    done.recv_timeout(PATIENCE).unwrap();
    writer.join().unwrap();
    let (_, counted, said) = running.finish();
    assert!(counted["waits"].as_u64().unwrap() > 0, "{counted}");
    assert_eq!((&counted["delivered"], &counted["dead_lettered"]), (&COUNT.into(), &COUNT.into()), "{said}");
    assert_eq!((&counted["malformed"], &counted["unsettled"]), (&COUNT.into(), &0.into()), "{counted}");
    assert_eq!((place.ends_of(&place.letters), place.ends_of(&place.topic)), (COUNT, COUNT));
}

/// A line that is begun and never ended is kept too.
#[test]
fn an_unfinished_line_of_a_peer_is_kept() {
    let _alone = alone();
    let place = Place::new();
    let running = place.start("source = \"tcp\"\nlisten = \"127.0.0.1:0\"\nline_timeout = \"300ms\"", "");
    let ready = running.hear("ready:");
    let mut peer = TcpStream::connect(ready.split_whitespace().nth(2).unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(peer, "{}\n{{\"device_id\":\"\\u0041", line(0, "zone")).unwrap();
    let mut said = String::new();
    peer.read_to_string(&mut said).unwrap();
    assert!(said.contains("\"line_unfinished\""), "{said}");
    running.signal("TERM");
    let (code, counted, said) = running.finish();
    assert_eq!((code, &counted["dead_lettered"], &counted["delivered"]), (Some(0), &1.into(), &1.into()), "{said}");
    let kept = place.read(&place.letters, 1);
    assert_eq!(kept[0].value, b"{\"device_id\":\"\\u0041");
    assert!(kept[0].words()[2].starts_with("line 2: the line was not finished"), "{:?}", kept[0].words());
}

// -- what is shed -------------------------------------------------------------------------------------------------------------

#[test]
fn what_is_shed_goes_to_the_dead_letters_and_the_source_goes_on() {
    let _alone = alone();
    let place = Place::new();
    let small = "queue.capacity = 128\nsettle.window = 65536\ninflight.partition = 32\ninflight.total = 128\n\
                 inflight.waiting = 64\n";
    place.mock.set_round_trip_ms(OF_TOPIC, 100);
    let all: Vec<String> = (0..3_000).map(|number| line(number, "zone")).collect();
    let (code, counted, said) =
        place.pipe(format!("{}\n", all.join("\n")).as_bytes(), "on_shed = \"dead-letter\"", small);
    place.mock.set_round_trip_ms(OF_TOPIC, 0);
    let count = |name: &str| counted[name].as_u64().unwrap() as usize;
    assert_eq!((code, count("accepted"), count("failed")), (Some(0), 3_000, 0), "{counted}\n{said}");
    assert!(count("delivered") > 0 && count("dead_lettered") > 0, "{counted}");
    assert_eq!(count("delivered") + count("dead_lettered"), 3_000, "{counted}");
    let letters = place.read(&place.letters, count("dead_lettered"));
    for letter in &letters {
        assert_eq!((letter.header("fencepost.reason"), letter.header("fencepost.stage")), ("shed", "submit"));
        assert_eq!(letter.header("fencepost.key"), letter.printed_key());
    }
    let delivered = place.read(&place.topic, count("delivered"));
    let keys: BTreeSet<String> = delivered.iter().chain(&letters).map(Kept::printed_key).collect();
    assert_eq!(keys.len(), 3_000, "each is in one of the two");
}

// -- the list of fences ---------------------------------------------------------------------------------------------------------

#[test]
fn a_hangup_reads_the_list_of_fences_anew() {
    let _alone = alone();
    let place = Place::new();
    let fences = place.path("fences.txt");
    std::fs::write(&fences, "zone-1\n").unwrap();
    let mut running = place.start("", &format!("validate.fences = {fences:?}"));
    running.hear("ready:");
    let mut stdin = running.stdin.take().unwrap();
    let mut number = 0;
    let mut send = |fence: &str| {
        writeln!(stdin, "{}", line(number, fence)).unwrap();
        number += 1;
    };
    send("zone-1");
    send("zone-2");
    place.wait_for(&place.topic, 1);
    place.wait_for(&place.letters, 1);
    let kept = place.read(&place.letters, 1);
    assert_eq!((kept[0].header("fencepost.reason"), kept[0].key.as_deref()), ("unknown_fence", Some(&b"veh-1"[..])));

    std::fs::write(&fences, "zone-1\nzone-2\n").unwrap();
    running.signal("HUP");
    running.hear("SIGHUP: reloaded validate.fences, 2 fences are known");
    // The shards take it over a moment later.
    let began = Instant::now();
    while place.ends_of(&place.topic) < 2 {
        assert!(began.elapsed() < PATIENCE, "zone-2 stays unknown");
        send("zone-2");
        std::thread::sleep(Duration::from_millis(50));
    }

    // A list that cannot be used leaves the old one in place, and is no reason to end.
    std::fs::write(&fences, "\n").unwrap();
    running.signal("HUP");
    let said = running.hear("SIGHUP: the list of fences stays as it was");
    assert!(said.contains("names no fence"), "{said}");
    std::fs::remove_file(&fences).unwrap();
    running.signal("HUP");
    running.hear("cannot be read");
    let before = place.ends_of(&place.topic);
    send("zone-2");
    place.wait_for(&place.topic, before + 1);
    send("zone-3");
    drop(stdin);
    let (code, counted, said) = running.finish();
    assert_eq!((&counted["ended"], &counted["failed"]), (&"end".into(), &0.into()), "{code:?} {said}");
    let letters = place.read(&place.letters, counted["dead_lettered"].as_u64().unwrap() as usize);
    assert!(letters.iter().all(|letter| letter.header("fencepost.reason") == "unknown_fence"));
    assert!(letters.iter().any(|letter| decode(&letter.value).unwrap().frame.fence_id == b"zone-3"));
}
