//! `fencepost route` and `fencepost check`, run as a person runs them, on librdkafka's mock cluster. What is in the topic
//! afterwards is read back and held against what was sent, by the checkers.
#![cfg(feature = "cli")]

use fencepost::trigger::{Priority, State, Trigger};
use fencepost::verify::{Checker, CheckerOptions, Ledger, Record, Verdict};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{Offset, TopicPartitionList};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TOPIC: &str = "triggers";
const PARTITIONS: u32 = 4;
/// Beyond this a test has hung; nothing here is measured.
const PATIENCE: Duration = Duration::from_secs(90);

// -- the place ----------------------------------------------------------------------------------------------------------

/// A mock cluster and a directory, of one test alone.
struct Place {
    mock: MockCluster<'static, DefaultProducerContext>,
    dir: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed has its own word to say.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new(name: &str) -> Place {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic(TOPIC, PARTITIONS as i32, 1).unwrap();
        let dir = std::env::temp_dir().join(format!("fencepost-route-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Place { mock, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A configuration for this cluster; `route` stands in its own table, `rest` in others.
    fn config(&self, route: &str, rest: &str) -> PathBuf {
        let path = self.path("fencepost.toml");
        let bootstrap = self.mock.bootstrap_servers();
        let text = format!(
            "topic.name = \"{TOPIC}\"\nkafka.bootstrap = \"{bootstrap}\"\ndedup.capacity = 200000\n{rest}\n[route]\n{route}\n"
        );
        fs::write(&path, text).unwrap();
        path
    }

    fn route(&self, route: &str, rest: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        command.args(["route", "--json", "-c"]).arg(self.config(route, rest));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a socket source, and returns it when it says that it is ready, with the line that says so.
    fn serve(&self, route: &str, rest: &str) -> Server {
        let mut child = self.route(route, rest).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut ready = String::new();
        while !ready.starts_with("ready:") {
            ready.clear();
            assert!(errors.read_line(&mut ready).unwrap() > 0, "it ended before it was ready");
        }
        Server { child, errors, ready }
    }

    /// Everything in the topic, held against what was sent. Each sender is an ingress of its own.
    fn verdict(&self, sent: &[&[Sent]]) -> Verdict {
        let ledgers: Vec<Ledger> = sent
            .iter()
            .map(|rows| {
                let mut ledger = Ledger::with_capacity(rows.len(), 16);
                rows.iter().for_each(|row| ledger.accept(&row.trigger()));
                ledger
            })
            .collect();
        let mut checker = Checker::new(CheckerOptions { from_start: true, ..CheckerOptions::new(PARTITIONS) });
        self.read_topic(|partition, offset, key, value| checker.record(&Record::new(partition, offset, key, value)));
        checker.finish(&ledgers)
    }

    fn read_topic(&self, mut each: impl FnMut(u32, i64, &[u8], &[u8])) {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.mock.bootstrap_servers())
            .set("group.id", "reader")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut assignment = TopicPartitionList::new();
        let mut left = 0;
        for partition in 0..PARTITIONS as i32 {
            assignment.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
            let (low, high) = consumer.fetch_watermarks(TOPIC, partition, Duration::from_secs(30)).unwrap();
            assert_eq!(low, 0, "the mock has thrown records away: the test sends too much");
            left += high;
        }
        consumer.assign(&assignment).unwrap();
        let until = Instant::now() + PATIENCE;
        while left > 0 {
            assert!(Instant::now() < until, "{left} records are not read");
            let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
            let message = message.unwrap();
            let (key, value) = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
            each(message.partition() as u32, message.offset(), key, value);
            left -= 1;
        }
    }
}

struct Server {
    child: Child,
    errors: BufReader<ChildStderr>,
    ready: String,
}

impl Server {
    fn stop(mut self) -> (Option<i32>, serde_json::Value, String) {
        signal(&self.child, "TERM");
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        let output = finish(self.child);
        (output.status.code(), counters(&output), said)
    }
}

/// Waits for its end, within reason.
fn finish(mut child: Child) -> Output {
    let until = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Feeds standard input, closes it, and waits.
fn feed(mut command: Command, bytes: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(sent.success());
}

fn counters(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", text(&output.stdout), text(&output.stderr)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// -- what is sent -------------------------------------------------------------------------------------------------------

#[derive(Clone)]
struct Sent {
    device: String,
    fence: String,
    state: State,
    event_time_ms: i64,
}

impl Sent {
    fn trigger(&self) -> Trigger<'_> {
        Trigger::new(&self.device, &self.fence, self.state, self.event_time_ms)
    }

    fn line(&self) -> String {
        let Sent { device, fence, state, event_time_ms } = self;
        let state = state.name();
        format!(r#"{{"device_id":"{device}","fence_id":"{fence}","state":"{state}","event_time_ms":{event_time_ms}}}"#)
    }

    /// As an evaluator encodes it: nothing that a router sets.
    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0x08, 1, 0x12, self.device.len() as u8];
        frame.extend(self.device.as_bytes());
        frame.extend([0x1a, self.fence.len() as u8]);
        frame.extend(self.fence.as_bytes());
        frame.extend([0x20, self.state as u8, 0x28]);
        let mut rest = self.event_time_ms as u64;
        while rest >= 0x80 {
            frame.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        frame.push(rest as u8);
        [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
    }
}

/// Rows of a few devices, each of its own second, so that none is a repeat.
fn rows(name: &str, count: usize) -> Vec<Sent> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let row = |at: usize| Sent {
        device: format!("{name}-{}", at % 13),
        fence: format!("cell:{}", at % 7),
        state: [State::Enter, State::Exit, State::Dwell][at % 3],
        event_time_ms: now - 200_000_000 + at as i64 * 1_000,
    };
    (0..count).map(row).collect()
}

fn lines(rows: &[Sent]) -> String {
    rows.iter().map(|row| row.line() + "\n").collect()
}

#[track_caller]
fn assert_clean(verdict: &Verdict, count: usize) {
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((verdict.distinct, verdict.accepted), (count as u64, count as u64), "{verdict}");
}

// -- files and pipes ----------------------------------------------------------------------------------------------------

#[test]
fn a_pipe_goes_to_the_topic_and_every_line_that_does_not_is_named() {
    let place = Place::new("pipe");
    let sent = rows("veh", 5_000);
    let mut input = String::new();
    for (at, row) in sent.iter().enumerate() {
        match at {
            100 => input += "{\"device_id\":\"veh-1\",\"fence\":\"f\"}\n",
            200 => input += "\n \t\r\n",
            300 => input += &format!("{}\n", "x".repeat(70_000)),
            400 => {
                input += "{\"device_id\":\"\",\"fence_id\":\"f\",\"state\":\"exit\",\"event_time_ms\":1616198400000}\n"
            }
            500 => input += "garbage\n",
            _ => {}
        }
        input += &row.line();
        // The last line has no newline, and counts.
        input += if at + 1 < sent.len() { "\n" } else { "" };
    }
    let output = feed(place.route("", ""), input.as_bytes());
    let (said, counted) = (text(&output.stderr), counters(&output));
    assert_eq!(output.status.code(), Some(1), "{said}");
    for want in [
        "line 101: malformed: column 22: unknown key \"fence\"",
        "line 304: line_too_long: the line is longer than 65536 bytes",
        "line 405: rejected: device_id is empty",
        "line 506: malformed: column 1: expected {",
        "3 lines were malformed",
        "1 triggers were rejected",
    ] {
        assert!(said.contains(want), "{want}\nis not in\n{said}");
    }
    for (name, want) in [
        ("lines", 5_006),
        ("malformed", 3),
        ("rejected", 1),
        ("accepted", 5_000),
        ("delivered", 5_000),
        ("unsettled", 0),
    ] {
        assert_eq!(counted[name], want, "{name} of {counted}");
    }
    assert_eq!(counted["bytes"], input.len());
    assert_eq!((&counted["ended"], &counted["adds_up"]), (&"end".into(), &true.into()));
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn a_file_goes_to_the_topic_and_a_clean_one_ends_well() {
    let place = Place::new("file");
    let sent = rows("veh", 3_000);
    let path = place.path("rows.ndjson");
    fs::write(&path, lines(&sent)).unwrap();
    let route = format!("source = \"file\"\npath = {path:?}");
    let output = place.route(&route, "").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(counters(&output)["lines"], 3_000);
    assert_clean(&place.verdict(&[&sent]), sent.len());
    // The command line's word stands above the file's, and what is not there is named.
    let output = place.route(&route, "").args(["--from", "/nowhere/rows.ndjson"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("/nowhere/rows.ndjson"), "{}", text(&output.stderr));
}

#[test]
fn a_dead_standard_error_or_output_stops_no_delivery() {
    let place = Place::new("dead");
    let sent = rows("veh", 500);
    let path = place.path("rows.ndjson");
    fs::write(&path, format!("{}garbage\n", lines(&sent))).unwrap();
    let route = format!("source = \"file\"\npath = {path:?}");
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    // Nobody reads what is told: the garbage is counted all the same.
    let output = place.route(&route, "").stderr(closed.try_clone().unwrap()).output().unwrap();
    assert_eq!((output.status.code(), &counters(&output)["delivered"]), (Some(1), &500.into()));
    assert_clean(&place.verdict(&[&sent]), sent.len());
    let output = place.route(&route, "").stderr(full()).output().unwrap();
    assert_eq!((output.status.code(), &counters(&output)["accepted"]), (Some(1), &500.into()));
    // A result that cannot be said: with words when the disk is full, without when the reader has gone.
    fs::write(&path, lines(&sent)).unwrap();
    let output = place.route(&route, "").stdout(full()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("standard output: ") && !said.contains("panicked"), "{said}");
    let output = place.route(&route, "").stdout(closed).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(!said.contains("fencepost: ") && !said.contains("panicked"), "{said}");
}

#[test]
fn frames_go_to_the_topic_with_garbage_between_them() {
    let place = Place::new("frames");
    let sent = rows("veh", 500);
    let mut input: Vec<u8> = sent.iter().flat_map(Sent::frame).collect();
    input.extend([0, 0, 0, 7]);
    input.extend(b"garbage");
    input.extend([0, 0, 1, 0, 1, 2, 3]);
    let output = feed(place.route("format = \"frames\"", ""), &input);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("line 501: frame_bad_tag") && said.contains("line 502: frame_cut"), "{said}");
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn a_signal_drains_a_pipe_that_stays_open() {
    let place = Place::new("signal");
    let sent = rows("veh", 2_000);
    let mut child = place.route("", "").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines(&sent).as_bytes()).unwrap();
    let until = Instant::now() + PATIENCE;
    let mut high = 0;
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", place.mock.bootstrap_servers()).create().unwrap();
    while high < 2_000 {
        assert!(Instant::now() < until, "{high} records are there");
        let marks = (0..PARTITIONS as i32).map(|part| consumer.fetch_watermarks(TOPIC, part, Duration::from_secs(30)));
        high = marks.map(|marks| marks.unwrap().1).sum();
    }
    signal(&child, "TERM");
    let output = finish(child);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let counted = counters(&output);
    assert_eq!((&counted["ended"], &counted["delivered"]), (&"signal".into(), &2_000.into()));
    drop(stdin);
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn a_signal_before_the_start_is_done_ends_at_once() {
    let place = Place::new("early");
    let path = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Nobody writes to it: opening it waits.
    let mut child = place.route(&format!("source = \"file\"\npath = {path:?}"), "").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "it waits for a writer");
    signal(&child, "TERM");
    assert_eq!(finish(child).status.signal(), Some(15));
}

#[test]
fn a_hangup_ends_nothing() {
    let place = Place::new("hangup");
    let mut server = place.serve("source = \"tcp\"\nlisten = \"127.0.0.1:0\"", "");
    for _ in 0..2 {
        signal(&server.child, "HUP");
        let mut said = String::new();
        while !said.contains("there is nothing to reload") {
            said.clear();
            assert!(server.errors.read_line(&mut said).unwrap() > 0, "it ended");
        }
    }
    let (code, counted, said) = server.stop();
    assert_eq!((code, &counted["ended"]), (Some(0), &"signal".into()), "{said}");
}

/// Memory far smaller than what comes.
const SMALL: &str = "queue.capacity = 128\nsettle.window = 1024\ninflight.partition = 32\ninflight.total = 128\n\
                     inflight.waiting = 64\n";

#[test]
fn what_a_pipe_gave_before_a_signal_is_delivered_or_counted() {
    for limit in ["60s", "1s"] {
        let place = Place::new(&format!("read-{limit}"));
        let sent = rows("veh", 1_500);
        let mut server = place.serve("", &format!("{SMALL}shutdown.limit = \"{limit}\""));
        // With the short limit the broker is too slow for what was read.
        let round_trip = if limit == "1s" { 3_000 } else { 0 };
        place.mock.broker_round_trip_time(1, Duration::from_millis(round_trip)).unwrap();
        let mut stdin = server.child.stdin.take().unwrap();
        stdin.write_all(lines(&sent).as_bytes()).unwrap();
        // Its blocks have room for all of it, and are read without delay.
        std::thread::sleep(Duration::from_millis(500));
        let (code_now, counted, said) = server.stop();
        drop(stdin);
        let count = |name: &str| counted[name].as_u64().unwrap();
        assert_eq!(count("lines"), 1_500, "{counted}");
        assert_eq!(count("accepted") + count("unoffered"), 1_500, "{counted}");
        let (code, has_rest) = if limit == "1s" { (1, true) } else { (0, false) };
        assert_eq!((code_now, count("unoffered") > 0), (Some(code), has_rest), "{counted}\n{said}");
    }
}

#[test]
fn a_stopped_file_that_is_resumed_ends_well_and_loses_nothing() {
    let place = Place::new("stopped");
    place.mock.broker_round_trip_time(1, Duration::from_millis(40)).unwrap();
    let (path, state) = (place.path("rows.ndjson"), place.path("state"));
    let sent = rows("veh", 20_000);
    fs::write(&path, lines(&sent)).unwrap();
    let route = format!("source = \"file\"\npath = {path:?}\nresume = true");
    // Pressure shall reach the file, and not be taken by the disk.
    let keys = format!("state.dir = {state:?}\ndivert.policy = \"refuse\"\nshutdown.limit = \"1s\"\n{SMALL}");
    let server = place.serve(&route, &keys);
    std::thread::sleep(Duration::from_millis(500));
    let (code, counted, said) = server.stop();
    assert!(counted["unoffered"].as_u64().unwrap() > 0, "{counted}");
    // What is not delivered at the limit is on disk then, and the exit code says whether something is.
    let expected = if counted["in_spill"] == 0 { 0 } else { 3 };
    assert_eq!((code, &counted["unsettled"]), (Some(expected), &0.into()), "{said}");
    place.mock.broker_round_trip_time(1, Duration::ZERO).unwrap();
    let output = place.route(&route, &format!("state.dir = {state:?}")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let verdict = place.verdict(&[&sent]);
    assert_eq!((verdict.lost, verdict.distinct), (0, 20_000), "{verdict}");
}

#[test]
fn a_pipe_that_does_not_wait_is_read_to_its_end() {
    let place = Place::new("nonblocking");
    let sent = rows("veh", 200);
    let (router_end, mut ours) = UnixStream::pair().unwrap();
    router_end.set_nonblocking(true).unwrap();
    let child = place.route("", "").stdin(std::os::fd::OwnedFd::from(router_end)).spawn().unwrap();
    for part in sent.chunks(100) {
        std::thread::sleep(Duration::from_millis(300));
        ours.write_all(lines(part).as_bytes()).unwrap();
    }
    drop(ours);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn pressure_reaches_a_pipe_and_nothing_is_lost_or_reordered() {
    let place = Place::new("pressure");
    place.mock.broker_round_trip_time(1, Duration::from_millis(20)).unwrap();
    // Rings and windows far smaller than what comes.
    let small = "queue.capacity = 128\nsettle.window = 1024\ninflight.partition = 32\ninflight.total = 128\n\
                 inflight.waiting = 64\n";
    let sent = rows("veh", 6_000);
    let output = feed(place.route("", small), lines(&sent).as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let counted = counters(&output);
    assert!(counted["waits"].as_u64().unwrap() > 0, "{counted}");
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

// -- what is on disk -----------------------------------------------------------------------------------------------------

/// A disk for what a partition does not take, and a partition counts as stalled soon.
fn disk(state: &Path) -> String {
    format!(
        "state.dir = {state:?}\nbreaker.grace = \"100ms\"\nspill.limit = \"256MiB\"\nspill.segment = \"4MiB\"\n\
         dead_letter.limit = \"8MiB\"\ndead_letter.grace = \"100ms\"\nqueue.capacity = 4096\nqueue.ingresses = 1\n\
         inflight.total = 4096\ninflight.partition = 1024\ninflight.waiting = 1024\n"
    )
}

/// Brokers that are slow and take everything are no reason to write a file to the disk and to read it back: it is read at their
/// pace. (Without that, windows of 1,024 are full after a moment, and what does not fit is diverted.)
#[test]
fn a_file_that_could_be_read_faster_than_brokers_take_it_does_not_go_over_the_disk() {
    let place = Place::new("own-pace");
    place.answer_after(30);
    let sent = rows("veh", 20_000);
    let path = place.path("rows.ndjson");
    fs::write(&path, lines(&sent)).unwrap();
    let state = place.path("state");
    // A slow machine is no stalled partition here.
    let patient = disk(&state).replace("grace = \"100ms\"", "grace = \"60s\"");
    let output = place.route(&format!("source = \"file\"\npath = {path:?}"), &patient).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let counted = counters(&output);
    assert_eq!((&counted["spilled"], &counted["delivered"]), (&0.into(), &20_000.into()), "{counted}");
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

/// How many of the rows are on their way when the broker falls silent: of all devices, so that every partition stalls.
const ON_THEIR_WAY: usize = 100;

impl Place {
    /// A broker that answers, from now on, this much later. Below the client's time-out nothing is sent twice.
    fn answer_after(&self, millis: u64) {
        self.mock.broker_round_trip_time(1, Duration::from_millis(millis)).unwrap();
    }

    /// Feeds a pipe while the broker is silent: the first rows are on their way, the rest comes once they are stuck.
    fn feed_silent(&self, server: &mut Server, sent: &[Sent]) -> std::process::ChildStdin {
        self.answer_after(4_000);
        let mut stdin = server.child.stdin.take().unwrap();
        stdin.write_all(lines(&sent[..ON_THEIR_WAY]).as_bytes()).unwrap();
        for _ in 0..PARTITIONS {
            let mut said = String::new();
            while !said.contains("breaker open") {
                assert!(server.errors.read_line(&mut said).unwrap() > 0, "no partition stalls: {said}");
            }
        }
        stdin.write_all(lines(&sent[ON_THEIR_WAY..]).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        stdin
    }

    /// A run that was stopped while the broker was silent. What it left on disk, as it counts it.
    fn leave_on_disk(&self, sent: &[Sent], keys: &str) -> u64 {
        let mut server = self.serve("", &format!("{keys}shutdown.limit = \"1s\"\n"));
        let stdin = self.feed_silent(&mut server, sent);
        let (code, counted, said) = server.stop();
        drop(stdin);
        let left = counted["in_spill"].as_u64().unwrap();
        assert_eq!(
            (code, &counted["unsettled"], &counted["accepted"]),
            (Some(3), &0.into(), &sent.len().into()),
            "{said}"
        );
        assert!(left >= (sent.len() - ON_THEIR_WAY) as u64, "{counted}");
        let sentence = format!("{left} triggers wait on disk in ");
        assert!(said.contains(&sentence) && said.contains("the next run delivers them"), "{said}");
        self.answer_after(0);
        left
    }

    fn replay(&self, keys: &str, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        command.args(["spill", "replay", "--json", "-c"]).arg(self.config("", keys)).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

#[test]
fn an_outage_at_the_end_of_a_source_is_waited_out() {
    let place = Place::new("waited");
    let sent = rows("veh", 3_000);
    let mut server = place.serve("", &disk(&place.path("state")));
    drop(place.feed_silent(&mut server, &sent));
    // The source has ended, everything is settled, and the broker is still silent.
    std::thread::sleep(Duration::from_millis(1_000));
    assert!(server.child.try_wait().unwrap().is_none(), "it waits for what is on disk");
    place.answer_after(0);
    let mut said = String::new();
    server.errors.read_to_string(&mut said).unwrap();
    let output = finish(server.child);
    let counted = counters(&output);
    assert_eq!(output.status.code(), Some(0), "{counted}\n{said}");
    assert_eq!((&counted["in_spill"], &counted["delivered"]), (&0.into(), &3_000.into()), "{counted}");
    assert!(counted["spilled"].as_u64().unwrap() > 1_000, "{counted}");
    assert_eq!(counted["spilled"], counted["drained"], "{counted}");
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn a_source_that_ended_gives_up_on_a_broker_that_stays_away() {
    let place = Place::new("given-up");
    let sent = rows("veh", 1_000);
    let keys = disk(&place.path("state"));
    let mut server = place.serve("", &format!("{keys}shutdown.limit = \"1s\"\n"));
    drop(place.feed_silent(&mut server, &sent));
    let mut said = String::new();
    server.errors.read_to_string(&mut said).unwrap();
    let output = finish(server.child);
    let counted = counters(&output);
    assert_eq!((output.status.code(), &counted["ended"]), (Some(3), &"end".into()), "{counted}\n{said}");
    assert!(said.contains("it is left to the next run") && said.contains("triggers wait on disk in "), "{said}");
    // The next run has nothing of its own to send.
    place.answer_after(0);
    let output = feed(place.route("", &keys), b"");
    let (said, counted) = (text(&output.stderr), counters(&output));
    assert_eq!((output.status.code(), &counted["in_spill"]), (Some(0), &0.into()), "{counted}\n{said}");
    assert!(
        said.contains("recovered: 1,000 triggers of earlier runs from ") && said.contains("warm start: "),
        "{said}"
    );
    assert_eq!(counted["recovered"], 1_000, "{counted}");
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn a_replay_goes_on_where_it_was_stopped_until_nothing_is_left() {
    let place = Place::new("replay");
    let sent = rows("veh", 3_000);
    let keys = disk(&place.path("state"));
    let left = place.leave_on_disk(&sent, &keys);
    // It is looked at without a broker, and stays as it is.
    place.mock.broker_down(1).unwrap();
    for _ in 0..2 {
        let output = place.replay(&keys, &["--dry-run"]).output().unwrap();
        let found = counters(&output);
        assert_eq!((output.status.code(), &found["in_spill"]), (Some(0), &left.into()), "{}", text(&output.stderr));
        assert_eq!(found["partitions"].as_array().map(Vec::len), Some(PARTITIONS as usize), "{found}");
    }
    // Without a broker it says what is left.
    let output = place.replay(&format!("{keys}start.timeout = \"2s\"\n"), &[]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let (thousands, rest) = (left / 1_000, left % 1_000);
    assert!(said.contains(&format!("{thousands},{rest:03} triggers are left on disk in ")), "{said}");
    place.mock.broker_up(1).unwrap();
    // A part of it.
    let output = place.replay(&keys, &["--max", "200"]).output().unwrap();
    let counted = counters(&output);
    assert_eq!((output.status.code(), &counted["ended"]), (Some(0), &"max".into()), "{}", text(&output.stderr));
    let after_max = counted["left"].as_u64().unwrap();
    assert!((left / 4..=left - 200).contains(&after_max), "{left} before: {counted}");
    assert_eq!((&counted["found"], &counted["adds_up"]), (&left.into(), &true.into()), "{counted}");
    // Slowly, and interrupted.
    place.answer_after(300);
    let slow = format!("{keys}shutdown.limit = \"2s\"\n").replace("partition = 1024", "partition = 16");
    let mut child = place.replay(&slow, &[]).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("recovered: ") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "it ended before it began: {said}");
    }
    signal(&child, "INT");
    errors.read_to_string(&mut said).unwrap();
    let output = finish(child);
    let counted = counters(&output);
    assert_eq!((output.status.code(), &counted["ended"]), (Some(3), &"signal".into()), "{counted}\n{said}");
    assert!((1..=after_max).contains(&counted["left"].as_u64().unwrap()), "{after_max} before: {counted}");
    // And the rest.
    place.answer_after(0);
    let output = place.replay(&keys, &[]).output().unwrap();
    let counted = counters(&output);
    assert_eq!((output.status.code(), &counted["ended"]), (Some(0), &"drained".into()), "{}", text(&output.stderr));
    assert_eq!((&counted["left"], &counted["in_spill"]), (&0.into(), &0.into()), "{counted}");
    let output = place.replay(&keys, &[]).output().unwrap();
    assert_eq!((output.status.code(), &counters(&output)["found"]), (Some(0), &0.into()), "there is nothing any more");
    assert_clean(&place.verdict(&[&sent]), sent.len());
}

#[test]
fn a_replay_names_what_the_disk_has_lost_and_delivers_the_rest() {
    let place = Place::new("lost");
    let sent = rows("veh", 2_000);
    let state = place.path("state");
    let keys = disk(&state);
    let left = place.leave_on_disk(&sent, &keys);
    // A record in the middle of those that nobody else has.
    let row = &sent[1_000];
    let mut flipped = 0;
    for entry in fs::read_dir(state.join("spill")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let frame = row.frame()[6..].to_vec();
        for at in 0..bytes.len().saturating_sub(frame.len()) {
            if bytes[at..].starts_with(&frame) {
                bytes[at] ^= 1;
                flipped += 1;
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(flipped, 1, "the record is on disk once");
    assert_eq!(place.replay(&keys, &["--dry-run"]).output().unwrap().status.code(), Some(1));
    let output = place.replay(&keys, &[]).output().unwrap();
    let (counted, said) = (counters(&output), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{counted}\n{said}");
    assert!(said.contains("1 triggers were settled on disk, and the disk has lost them"), "{said}");
    assert_eq!((&counted["corrupt"], &counted["left"], &counted["found"]), (&1.into(), &0.into(), &left.into()));
    let verdict = place.verdict(&[&sent]);
    assert_eq!((verdict.lost, verdict.repeated, verdict.reordered), (1, 0, 0), "{verdict}");
}

#[test]
fn a_replay_without_its_directory_or_beside_a_router_is_refused_and_an_empty_one_is_done() {
    let place = Place::new("refused");
    let output = place.replay("", &[]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("state.dir is missing in "), "{said}");
    let output = place.replay("", &["--max", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let keys = disk(&place.path("state"));
    for options in [&["--dry-run"][..], &[]] {
        let output = place.replay(&keys, options).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        let named = format!("state.dir = {}: No such file", place.path("state").display());
        assert!(said.contains(&named) && said.contains("mount or name its directory"), "{said}");
        assert!(output.stdout.is_empty() && !place.path("state").exists(), "it makes nothing, and counts nothing");
    }
    fs::create_dir(place.path("state")).unwrap();
    let output = place.replay(&keys, &["--dry-run"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), &counters(&output)["in_spill"]), (Some(0), &0.into()), "{said}");
    assert!(said.contains(&format!("there is no segment in {}", place.path("state/spill").display())), "{said}");
    let server = place.serve("source = \"tcp\"\nlisten = \"127.0.0.1:0\"\nconnections_max = 1", &keys);
    let output = place.replay(&keys, &[]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("process {}", server.child.id())), "{said}");
    assert_eq!(server.stop().0, Some(0));
    // Where nothing is left, no broker is needed.
    place.mock.broker_down(1).unwrap();
    let output = place.replay(&format!("{keys}start.timeout = \"2s\"\n"), &[]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), &counters(&output)["left"]), (Some(0), &0.into()), "{said}");
}

#[test]
fn the_closing_table_has_a_row_for_each_place_a_trigger_may_be_in() {
    let place = Place::new("table");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    command.args(["route", "-c"]).arg(place.config("", &disk(&place.path("state"))));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = feed(command, lines(&rows("veh", 300)).as_bytes());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    for (name, count) in [
        ("accepted", 300),
        ("delivered", 300),
        ("recovered", 0),
        ("spilled", 0),
        ("drained", 0),
        ("in_spill", 0),
        ("dead_lettered", 0),
        ("corrupt", 0),
        ("failed", 0),
        ("unsettled", 0),
    ] {
        let row = format!("{name:>13}  {count:>12}  ");
        assert!(said.lines().any(|line| line.starts_with(&row)), "{row:?} is not in\n{said}");
    }
}

#[test]
fn a_replay_takes_the_limits_that_the_route_of_one_reader_took() {
    let place = Place::new("replay-limits");
    let keys = format!(
        "[state]\ndir = \"{}\"\n[spill]\nlimit = \"400MiB\"\nsegment = \"4MiB\"\n",
        place.path("state").display()
    );
    let output = feed(place.route("", &keys), b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = place.replay(&keys, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn dead_letters_are_named_and_wrong_unless_they_were_asked_for() {
    let place = Place::new("letters");
    place.mock.create_topic(&format!("{TOPIC}.dlq"), PARTITIONS as i32, 1).unwrap();
    let sent = rows("veh", 1_000);
    let keys = disk(&place.path("state"));
    // Asked for: what a silent broker does not take goes there, and the rest is delivered when it is back.
    let mut server = place.serve("", &format!("{keys}divert.policy = \"dead-letter\"\n"));
    drop(place.feed_silent(&mut server, &sent));
    place.answer_after(0);
    let mut said = String::new();
    server.errors.read_to_string(&mut said).unwrap();
    let output = finish(server.child);
    let counted = counters(&output);
    let letters = counted["dead_lettered"].as_u64().unwrap();
    assert_eq!(output.status.code(), Some(0), "{counted}\n{said}");
    assert!(letters > 500, "{counted}");
    assert_eq!(counted["delivered"].as_u64().unwrap() + letters, 1_000, "{counted}");
    let sentence = format!("{letters} triggers became dead letters: they are in the topic {TOPIC}.dlq, or in ");
    assert!(said.contains(&sentence), "{said}");
    // Not asked for: one that the broker refuses for itself.
    let mut server = place.serve("", &keys);
    place.mock.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD]);
    let mut stdin = server.child.stdin.take().unwrap();
    stdin.write_all(lines(&rows("bus", 1)).as_bytes()).unwrap();
    drop(stdin);
    let mut said = String::new();
    server.errors.read_to_string(&mut said).unwrap();
    let output = finish(server.child);
    let counted = counters(&output);
    assert_eq!((output.status.code(), &counted["dead_lettered"]), (Some(1), &1.into()), "{counted}\n{said}");
    assert!(said.contains("1 triggers became dead letters: "), "{said}");
}

// -- going on after a crash -----------------------------------------------------------------------------------------------

/// The line up to which the state directory says that all is settled.
fn kept_line(state: &Path) -> u64 {
    let Ok(kept) = fs::read_to_string(state.join("source.toml")) else { return 0 };
    let kept: toml::Table = kept.parse().unwrap();
    kept["line"].as_integer().unwrap() as u64
}

#[test]
fn a_killed_run_goes_on_behind_its_last_settled_line() {
    let kept = kill_and_go_on("refuse");
    assert!(kept < 20_000, "it was killed on its way: {kept}");
}

#[test]
fn what_a_killed_run_had_settled_on_disk_is_not_lost() {
    kill_and_go_on("spill");
}

/// Returns the line up to which all was said to be settled when the run was killed.
fn kill_and_go_on(policy: &str) -> u64 {
    const COUNT: usize = 20_000;
    let place = Place::new(&format!("resume-{policy}"));
    let (path, state) = (place.path("rows.ndjson"), place.path("state"));
    let sent = rows("veh", COUNT);
    // A line in front that is none, so that lines and seqs differ.
    fs::write(&path, format!("garbage\n{}", lines(&sent))).unwrap();
    let route = format!("source = \"file\"\npath = {path:?}\nresume = true");
    let state_key = format!("state.dir = {state:?}\n");
    // With the disk, no broker's answer comes before its partition counts as stalled.
    let slow = format!(
        "{state_key}divert.policy = \"{policy}\"\nbreaker.grace = \"30ms\"\ninflight.partition = 64\ninflight.total = 256\ninflight.waiting = 64\nqueue.capacity = 128\n"
    );
    place.mock.broker_round_trip_time(1, Duration::from_millis(40)).unwrap();
    let mut child = place.route(&route, &slow).spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while kept_line(&state) < 500 {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "nothing settles");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = kept_line(&state);
    assert!((500..=COUNT as u64 + 1).contains(&kept), "{kept}");
    place.mock.broker_round_trip_time(1, Duration::ZERO).unwrap();
    // Everything said to be settled is in the topic, or on disk on its way there.
    let output = place.replay(&state_key, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let verdict = place.verdict(&[&sent[..kept as usize - 1]]);
    assert_eq!(verdict.lost, 0, "{verdict}");

    let output = place.route(&route, &state_key).output().unwrap();
    let (said, counted) = (text(&output.stderr), counters(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("going on after line {kept}")), "{said}");
    assert_eq!(counted["lines"], COUNT as u64 + 1 - kept);
    let verdict = place.verdict(&[&sent]);
    // What was delivered and not yet kept is sent again, for consumers to collapse by key; nothing else is wrong.
    assert_eq!((verdict.lost, verdict.foreign, verdict.unreadable, verdict.unchecked), (0, 0, 0, 0), "{verdict}");
    assert_eq!(verdict.distinct, COUNT as u64);
    assert_eq!(kept_line(&state), COUNT as u64 + 1);

    // Nothing new: nothing is sent. Then two lines are appended: exactly those are.
    let output = place.route(&route, &state_key).output().unwrap();
    assert_eq!((output.status.code(), &counters(&output)["lines"]), (Some(0), &0.into()), "{}", text(&output.stderr));
    let more = rows("bus", 2);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(lines(&more).as_bytes()).unwrap();
    let output = place.route(&route, &state_key).output().unwrap();
    assert_eq!(
        (output.status.code(), &counters(&output)["delivered"]),
        (Some(0), &2.into()),
        "{}",
        text(&output.stderr)
    );
    kept
}

#[test]
fn a_half_written_last_line_is_delivered_once_it_is_whole() {
    let place = Place::new("half");
    let (path, state) = (place.path("rows.ndjson"), place.path("state"));
    let sent = rows("veh", 101);
    let all = lines(&sent);
    let route = format!("source = \"file\"\npath = {path:?}\nresume = true");
    let state_key = format!("state.dir = {state:?}\n");
    fs::write(&path, &all[..all.len() - 20]).unwrap();
    let output = place.route(&route, &state_key).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), &counters(&output)["delivered"]), (Some(0), &100.into()), "{said}");
    assert!(said.contains("line 101: unfinished: "), "{said}");
    assert_eq!(kept_line(&state), 100);
    // The writer goes on, and cuts a line that is far too long.
    let append = |text: &str| {
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
    };
    append(&all[all.len() - 20..]);
    append(&"x".repeat(70_000));
    let output = place.route(&route, &state_key).output().unwrap();
    assert_eq!(
        (output.status.code(), &counters(&output)["delivered"]),
        (Some(1), &1.into()),
        "{}",
        text(&output.stderr)
    );
    // Its end is no line of its own.
    let more = rows("bus", 1);
    append(&format!("{}\n{}", more[0].line(), lines(&more)));
    let output = place.route(&route, &state_key).output().unwrap();
    assert_eq!(
        (output.status.code(), &counters(&output)["delivered"]),
        (Some(0), &1.into()),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(kept_line(&state), 103);
    assert_clean(&place.verdict(&[&sent, &more]), 102);
}

#[test]
fn a_file_that_is_not_the_one_of_before_is_refused() {
    let place = Place::new("replaced");
    let (path, state) = (place.path("rows.ndjson"), place.path("state"));
    let route = format!("source = \"file\"\npath = {path:?}\nresume = true");
    let state_key = format!("state.dir = {state:?}\n");
    let all = lines(&rows("veh", 100));
    fs::write(&path, &all).unwrap();
    assert_eq!(place.route(&route, &state_key).output().unwrap().status.code(), Some(0));
    let refused = |want: &str| {
        let output = place.route(&route, &state_key).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(want) && said.contains("remove") && said.contains("source.toml"), "{said}");
    };
    fs::write(&path, &all[..5_000]).unwrap();
    refused("it was truncated");
    fs::write(&path, all.replace("veh", "bus")).unwrap();
    refused("was replaced by another file");
    fs::write(place.path("copy"), &all).unwrap();
    fs::rename(place.path("copy"), &path).unwrap();
    refused("was replaced by another file");
    fs::remove_file(state.join("source.toml")).unwrap();
    assert_eq!(place.route(&route, &state_key).output().unwrap().status.code(), Some(0));
}

// -- sockets ------------------------------------------------------------------------------------------------------------

/// Reads answers until everything up to `line` is settled; each watermark is above the one before. Returns the others.
fn read_until_settled(answers: impl Read, line: u64) -> Vec<serde_json::Value> {
    let (mut settled, mut others) = (0, Vec::new());
    for answer in BufReader::new(answers).lines() {
        let answer: serde_json::Value = serde_json::from_str(&answer.unwrap()).unwrap();
        match answer["settled"].as_u64() {
            Some(now) => {
                assert!(now > settled, "{now} after {settled}");
                settled = now;
            }
            None => others.push(answer),
        }
        if settled == line {
            return others;
        }
    }
    panic!("the connection ended at {settled} of {line}");
}

/// kill -9 within the binding leaves a directory named by the process; in a container the next process has its number.
#[test]
fn what_a_killed_process_of_the_same_number_left_beside_the_socket_is_no_hindrance() {
    let place = Place::new("leftover");
    let path = place.path("in.sock");
    let config = place.config(&format!("source = \"unix\"\npath = {path:?}"), "");
    // The shell's number is that of the route which takes its place.
    let script =
        "mkdir -m 700 \"$1/.fencepost-$$-0\" && touch \"$1/.fencepost-$$-0/s\" && exec \"$2\" route --json -c \"$3\"";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([place.dir.as_path(), Path::new(env!("CARGO_BIN_EXE_fencepost")), &config])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("ready:") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "it ended before it was ready: {said}");
    }
    // The leftover is not ours to remove: where processes have their own numbers, it may be a living one's.
    assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 3, "the socket, the configuration and the leftover");
    let server = Server { child, errors, ready: said };
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_unix_socket_answers_its_peer_and_is_nobody_elses() {
    let place = Place::new("unix");
    let path = place.path("in.sock");
    // A socket that somebody left behind.
    drop(UnixListener::bind(&path).unwrap());
    let route = format!("source = \"unix\"\npath = {path:?}");
    let server = place.serve(&route, "time.past_limit = \"off\"");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 2, "nothing but the socket and the configuration");

    let sent = rows("veh", 3_000);
    let mut peer = UnixStream::connect(&path).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let answers = peer.try_clone().unwrap();
    let reader = std::thread::spawn(move || read_until_settled(answers, 3_002));
    let input = format!("{{\"acks\":true}}\nrubbish\n{}{{\"device_id\":\"\",", lines(&sent));
    peer.write_all(input.as_bytes()).unwrap();
    // The rest of a line may come later.
    std::thread::sleep(Duration::from_millis(50));
    peer.write_all(b"\"fence_id\":\"f\",\"state\":\"exit\",\"event_time_ms\":1616198400000}\n").unwrap();
    let others = reader.join().unwrap();
    assert_eq!(others.len(), 2, "{others:?}");
    assert_eq!((&others[0]["line"], &others[0]["error"]), (&1.into(), &"malformed".into()));
    assert_eq!((&others[1]["line"], &others[1]["error"]), (&3_002.into(), &"rejected".into()));
    assert!(others[1]["message"].as_str().unwrap().contains("device_id is empty"), "{others:?}");

    // The place is taken: by a router that listens, and then by a file that is no socket.
    let second = place.route(&route, "").output().unwrap();
    assert_eq!(second.status.code(), Some(3));
    assert!(text(&second.stderr).contains("another process listens"), "{}", text(&second.stderr));
    let no_socket = place.route(&format!("source = \"unix\"\npath = {:?}", place.path("fencepost.toml")), "").output();
    assert_eq!(no_socket.unwrap().status.code(), Some(2));

    // The peer is still there, and is drained all the same.
    let more = rows("bus", 50);
    peer.write_all(lines(&more).as_bytes()).unwrap();
    read_until_settled(peer.try_clone().unwrap(), 3_052);
    let (code, counted, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        (&counted["delivered"], &counted["malformed"], &counted["rejected"]),
        (&3_050.into(), &1.into(), &1.into())
    );
    assert!(!path.exists(), "the socket is removed");
    let all = [sent, more].concat();
    assert_clean(&place.verdict(&[&all]), all.len());
}

#[test]
fn hostile_peers_hold_up_nobody_else() {
    let place = Place::new("hostile");
    let server = place.serve(
        "source = \"tcp\"\nlisten = \"127.0.0.1:0\"\nconnections_max = 6\nline_timeout = \"700ms\"",
        "time.past_limit = \"off\"",
    );
    let address = server.ready.split_whitespace().nth(2).unwrap().to_string();
    let connect = || {
        let peer = TcpStream::connect(&address).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer
    };
    let (first, second) = (rows("veh", 2_000), rows("bus", 2_000));
    let mut good = connect();
    good.write_all(format!("{{\"acks\":true}}\n{}", lines(&first)).as_bytes()).unwrap();

    // One that never finishes its line, one that is cut within it, one that sends bytes of every value and never reads.
    let mut slow = connect();
    slow.write_all(b"{\"device").unwrap();
    let mut cut = connect();
    cut.write_all(b"{\"device_id\":\"half").unwrap();
    drop(cut);
    let mut garbage = connect();
    let bytes: Vec<u8> = (0..4_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let newlines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    let flood = std::thread::spawn(move || {
        // It may be cut before it has sent it all.
        let _ = garbage.write_all(&bytes);
    });

    // A hundred more than there is room for: those within wait, those without are told.
    let crowd: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    let mut turned_away = 0;
    for mut peer in crowd {
        peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut said = String::new();
        match peer.read_to_string(&mut said) {
            Ok(_) if said.contains("too_many_connections") => turned_away += 1,
            // It was within for too long.
            Ok(_) if said.contains("\"silent\"") => {}
            Ok(_) => panic!("closed without a word: {said:?}"),
            // Within: nobody has anything to say to it.
            Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
        }
    }
    assert!(turned_away >= 94, "{turned_away}");

    good.write_all(lines(&second).as_bytes()).unwrap();
    assert!(read_until_settled(good.try_clone().unwrap(), 4_000).is_empty());
    let mut said = String::new();
    slow.read_to_string(&mut said).unwrap();
    assert!(said.contains("\"line_unfinished\""), "{said}");
    flood.join().unwrap();
    // The place of those that are gone is free again.
    let until = Instant::now() + PATIENCE;
    loop {
        let mut late = connect();
        late.write_all(b"{\"acks\":true}\nx\n").unwrap();
        let mut line = String::new();
        // One that is turned away may see its connection reset before it has read why.
        let read = BufReader::new(late).read_line(&mut line);
        if read.is_ok() && line.contains("malformed") {
            break;
        }
        assert!(Instant::now() < until, "no place gets free: {line}");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(good);
    let (code, counted, errors) = server.stop();
    assert_eq!(code, Some(0), "{errors}");
    let count = |name: &str| counted[name].as_u64().unwrap();
    assert!(count("turned_away") >= 94 && count("cut") >= 1, "{counted}");
    // The flood's peer was cut like the slow one, or every line of it was refused.
    assert!(newlines > 1_000, "{newlines}");
    assert!(count("cut") >= 2 || count("malformed") >= newlines, "{counted}");
    assert_eq!(count("delivered"), 4_000);
    let all = [first, second].concat();
    assert_clean(&place.verdict(&[&all]), all.len());
}

#[test]
fn a_silent_peer_gives_its_place_to_another() {
    let place = Place::new("silent");
    let server =
        place.serve("source = \"tcp\"\nlisten = \"127.0.0.1:0\"\nconnections_max = 1\nline_timeout = \"500ms\"", "");
    let mut peer = TcpStream::connect(server.ready.split_whitespace().nth(2).unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = String::new();
    peer.read_to_string(&mut said).unwrap();
    assert!(said.contains("\"silent\"") && said.contains("route.line_timeout"), "{said}");
    let (code, counted, _) = server.stop();
    assert_eq!((code, &counted["cut"]), (Some(0), &1.into()));
}

#[test]
fn peers_of_a_socket_send_at_once_each_in_its_own_order() {
    let place = Place::new("peers");
    let path = place.path("in.sock");
    let server =
        place.serve(&format!("source = \"unix\"\npath = {path:?}\nformat = \"frames\""), "time.past_limit = \"off\"");
    let all: Vec<Vec<Sent>> = (0..4).map(|peer| rows(&format!("p{peer}"), 1_500)).collect();
    std::thread::scope(|scope| {
        for sent in &all {
            let path = &path;
            scope.spawn(move || {
                let mut peer = UnixStream::connect(path).unwrap();
                peer.set_read_timeout(Some(PATIENCE)).unwrap();
                let request = b"{\"acks\":true}";
                peer.write_all(&(request.len() as u32).to_be_bytes()).unwrap();
                peer.write_all(request).unwrap();
                let answers = peer.try_clone().unwrap();
                let reader = std::thread::spawn(move || read_until_settled(answers, 1_500));
                for row in sent {
                    peer.write_all(&row.frame()).unwrap();
                }
                assert!(reader.join().unwrap().is_empty());
            });
        }
    });
    let (code, _, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    let ledgers: Vec<&[Sent]> = all.iter().map(Vec::as_slice).collect();
    assert_clean(&place.verdict(&ledgers), 6_000);
}

// -- real rows ------------------------------------------------------------------------------------------------------------

#[test]
fn real_rows_go_to_the_topic_in_order() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    if !data.is_dir() {
        println!("skipped: ../shared is absent");
        return;
    }
    for name in ["suez-vessels", "geolife-phones"] {
        let path = data.join(format!("{name}.ndjson"));
        let place = Place::new(name);
        let mut ledger = Ledger::with_capacity(100_000, 1_000);
        let input = fs::read_to_string(&path).unwrap();
        for line in input.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let state = match row["state"].as_str().unwrap() {
                "enter" => State::Enter,
                "exit" => State::Exit,
                _ => State::Dwell,
            };
            let (device, fence) = (row["device_id"].as_str().unwrap(), row["fence_id"].as_str().unwrap());
            let trigger = Trigger::new(device, fence, state, row["event_time_ms"].as_i64().unwrap());
            ledger.accept(&trigger.with_priority(Priority::Normal));
        }
        let output = place.route("", "").arg("--from").arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut checker = Checker::new(CheckerOptions { from_start: true, ..CheckerOptions::new(PARTITIONS) });
        place.read_topic(|partition, offset, key, value| checker.record(&Record::new(partition, offset, key, value)));
        let verdict = checker.finish(&[ledger]);
        assert!(verdict.is_clean(), "{name}: {verdict}");
        let counted = counters(&output);
        assert_eq!(counted["lines"], input.lines().count());
        assert_eq!(counted["delivered"], verdict.distinct, "{name}");
    }
}

// -- check ----------------------------------------------------------------------------------------------------------------

fn check(place: &Place, route: &str, rest: &str) -> (Option<i32>, String) {
    let config = place.config(route, rest);
    let output = Command::new(env!("CARGO_BIN_EXE_fencepost")).args(["check", "-c"]).arg(config).output().unwrap();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn check_says_what_is_there_and_what_is_not() {
    let place = Place::new("check");
    let (code, said) = check(&place, "", "");
    assert_eq!(code, Some(0), "{said}");
    for want in [
        "is valid",
        "librdkafka",
        "lz4",
        "answers, 1 brokers",
        "has 4; none are pinned yet",
        "may be read",
        // The mock cluster names no controller to ask.
        "warn  writing        topic triggers: it cannot be told whether WRITE is granted: _TIMED_OUT",
        "bytes will be taken",
        "topic triggers.dlq does not exist",
        "what cannot be delivered is handed back",
    ] {
        assert!(said.contains(want), "{want}\nis not in\n{said}");
    }
    let state = place.path("check-state");
    let (code, said) = check(&place, "", &format!("state.dir = {state:?}"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("are free") && said.contains("they stay on disk until then"), "{said}");
    // No volume has this much.
    let (code, said) = check(&place, "", &format!("state.dir = {state:?}\nspill.limit = \"900TiB\""));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("spill.limit is 900.0 TiB"), "{said}");
    let (code, said) = check(&place, "", "topic.partitions = 12");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("topic triggers has 4, 12 are pinned"), "{said}");
    let (code, said) = check(&place, "source = \"file\"\npath = \"/nowhere\"", "");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("route.path = /nowhere"), "{said}");
    let (code, said) = check(&place, "", "engine.shards = 0");
    assert_eq!(code, Some(2), "{said}");
    let config = place.config("", "");
    let json =
        Command::new(env!("CARGO_BIN_EXE_fencepost")).args(["check", "--json", "-c"]).arg(config).output().unwrap();
    let answer = counters(&json);
    assert_eq!((&answer["ok"], &answer["exit"]), (&true.into(), &0.into()), "{answer}");
    // A port where nothing listens.
    let config = place.path("away.toml");
    fs::write(&config, "kafka.bootstrap = \"127.0.0.1:1\"\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fencepost")).args(["check", "-c"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("is kafka.bootstrap right"), "{}", text(&output.stdout));
}

/// M4: what is asked for and not there is named, the path of a file too; no secret is printed.
#[test]
fn m4_check_names_the_missing_feature_or_path_and_no_secret() {
    let place = Place::new("m4");
    let built_in = fencepost::sink::kafka::features::built_in().unwrap();
    let secret = "sesame-open-4711";
    for (feature, properties) in [
        ("zstd", "kafka.properties.\"compression.type\" = \"zstd\"".to_string()),
        ("ssl", "kafka.properties.\"security.protocol\" = \"ssl\"".to_string()),
        (
            "sasl_scram",
            format!(
                "kafka.properties.\"security.protocol\" = \"sasl_plaintext\"\nkafka.properties.\"sasl.mechanism\" = \
                 \"SCRAM-SHA-512\"\nkafka.properties.\"sasl.username\" = \"me\"\nkafka.properties.\"sasl.password\" = \"{secret}\""
            ),
        ),
    ] {
        if built_in.iter().any(|known| known == feature) {
            println!("this build has {feature}: its absence cannot be tested");
            continue;
        }
        let (code, said) = check(&place, "", &properties);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("`{feature}`")) && said.contains("FAIL"), "{said}");
        assert!(!said.contains(secret), "{said}");
    }
    let (code, said) = check(&place, "", "kafka.properties.\"ssl.ca.location\" = \"/nowhere/ca.pem\"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("ssl.ca.location = /nowhere/ca.pem"), "{said}");
}

/// A state directory of another topic is a mistake of the configuration, whoever meets it.
#[test]
fn the_state_directory_of_another_topic_is_a_fault_of_the_configuration() {
    let place = Place::new("other-topic");
    let state = place.path("state");
    let keys = format!("state.dir = {state:?}");
    assert_eq!(feed(place.route("", &keys), b"").status.code(), Some(0));
    let remembered = fs::read_to_string(state.join("router.toml")).unwrap();
    fs::write(state.join("router.toml"), remembered.replace(TOPIC, "positions")).unwrap();
    for output in [feed(place.route("", &keys), b""), place.replay(&keys, &[]).output().unwrap()] {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("belongs to topic positions, not triggers") && said.contains("topic.name"), "{said}");
    }
    let (code, said) = check(&place, "", &keys);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn where_refuses_what_no_router_takes() {
    let find = |device: &str, partitions: &str, shards: &str| {
        let arguments = ["where", device, "--partitions", partitions, "--shards", shards];
        Command::new(env!("CARGO_BIN_EXE_fencepost")).args(arguments).output().unwrap().status.code()
    };
    assert_eq!(find(&"x".repeat(256), "4", "4"), Some(0));
    assert_eq!(find(&"x".repeat(257), "4", "4"), Some(2));
    assert_eq!(find("", "4", "4"), Some(2));
    assert_eq!(find("veh-1", "3", "4"), Some(2));
}

/// Where files may not grow (`ulimit -f`), the spill has no space; the process goes on.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_of_the_disk() {
    let place = Place::new("ulimit");
    let state = place.path("state");
    let config = place.config("source = \"stdin\"", &format!("state.dir = {state:?}"));
    // In blocks of 512 bytes: less than a segment.
    let script = "ulimit -f 40000 && exec \"$1\" route --json -c \"$2\"";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([Path::new(env!("CARGO_BIN_EXE_fencepost")), &config])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sent = rows("veh", 200);
    child.stdin.take().unwrap().write_all(lines(&sent).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(counters(&output)["delivered"], 200);
}
