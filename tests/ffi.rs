//! The C ABI: the header, what it exports, C hosts beside a mock cluster, and every way to call it wrongly.

use fencepost::ffi::*;
use fencepost::wire;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TOPIC: &str = "triggers";
const PARTITIONS: i32 = 6;
/// Only a hang takes longer; `script/sanitize` gives ten times as much.
const HANG: Duration = Duration::from_secs(if option_env!("FENCEPOST_PATIENCE_X10").is_some() { 600 } else { 60 });

// -- a router on a mock cluster, through the boundary ---------------------------------------------------------------

struct Bench {
    mock: MockCluster<'static, DefaultProducerContext>,
    router: *mut FencepostRouter,
}

fn mock_cluster() -> MockCluster<'static, DefaultProducerContext> {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic(TOPIC, PARTITIONS, 1).expect("a topic");
    mock
}

impl Bench {
    fn new() -> Bench {
        Bench::with("")
    }

    fn with(toml: &str) -> Bench {
        let mock = mock_cluster();
        let toml = format!("kafka.bootstrap = '{}'\ntopic.name = '{TOPIC}'\n{toml}", mock.bootstrap_servers());
        let (status, router, why) = start(toml.as_bytes());
        assert_eq!(status, FencepostStatus::Ok, "{why}");
        Bench { mock, router }
    }

    fn ingress(&self) -> *mut FencepostIngress {
        let mut ingress = null_mut();
        // SAFETY: the router runs; `ingress` may be written.
        assert_eq!(unsafe { fencepost_ingress(self.router, &mut ingress) }, FencepostStatus::Ok);
        ingress
    }

    fn counts(&self) -> FencepostCounts {
        let mut counts = FencepostCounts::default();
        // SAFETY: the router runs; `counts` may be written.
        let status = unsafe { fencepost_counts(self.router, &mut counts, size_of_val(&counts)) };
        assert_eq!(status, FencepostStatus::Ok);
        counts
    }

    /// Stops the router; the mock stays.
    fn shutdown(&mut self) -> (FencepostStatus, FencepostReport) {
        let mut report = FencepostReport::default();
        let router = std::mem::replace(&mut self.router, null_mut());
        // SAFETY: the router runs and is not used again; `report` may be written.
        let status = unsafe { fencepost_shutdown(router, 20_000, &mut report, size_of_val(&report)) };
        assert_eq!(report.adds_up, 1, "{report:?}");
        (status, report)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !self.router.is_null() && !std::thread::panicking() {
            let (status, report) = self.shutdown();
            assert_eq!(status, FencepostStatus::Ok, "{report:?}");
        }
    }
}

fn start(toml: &[u8]) -> (FencepostStatus, *mut FencepostRouter, String) {
    // Not null: whatever the answer is, it must be written.
    let mut router = std::ptr::dangling_mut();
    let mut why = [b'#' as c_char; 2_048];
    // SAFETY: the text and the buffer have the lengths that are given.
    let status = unsafe { fencepost_start(toml.as_ptr().cast(), toml.len(), &mut router, why.as_mut_ptr(), why.len()) };
    (status, router, text(&why))
}

fn text(place: &[c_char]) -> String {
    let bytes: Vec<u8> = place.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).expect("a text ends with NUL").to_str().expect("a text is UTF-8").to_owned()
}

fn static_text(place: *const c_char) -> &'static str {
    // SAFETY: the library's static text, which ends with NUL.
    unsafe { CStr::from_ptr(place) }.to_str().expect("a name is UTF-8")
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

fn trigger(device_id: &[u8], fence_id: &[u8]) -> FencepostTrigger {
    FencepostTrigger {
        device_id: device_id.as_ptr().cast(),
        device_id_len: device_id.len(),
        fence_id: fence_id.as_ptr().cast(),
        fence_id_len: fence_id.len(),
        attributes: null(),
        attributes_len: 0,
        event_time_ms: now_ms(),
        state: FencepostState::Enter as u32,
        priority: 0,
    }
}

fn submit(ingress: *mut FencepostIngress, trigger: &FencepostTrigger) -> (FencepostAnswer, String) {
    let mut why = [b'#' as c_char; 512];
    // Zero is a legal value of every field.
    let mut answer = FencepostAnswer {
        seq: u64::MAX,
        status: FencepostStatus::BadArgument,
        reason: FencepostReason::None,
        pressure: FencepostPressure::Clear,
        reserved: 1,
    };
    // SAFETY: the ingress is not freed, the trigger's pointers have their lengths, the rest may be written.
    let status = unsafe { fencepost_submit(ingress, trigger, &mut answer, why.as_mut_ptr(), why.len()) };
    assert_eq!((status, answer.reserved), (answer.status, 0));
    (answer, text(&why))
}

fn settled(ingress: *mut FencepostIngress) -> u64 {
    let mut seq = u64::MAX;
    // SAFETY: the ingress is not freed; `seq` may be written.
    assert_eq!(unsafe { fencepost_settled(ingress, &mut seq) }, FencepostStatus::Ok);
    seq
}

fn wait_settled(ingress: *mut FencepostIngress, seq: u64) {
    let began = Instant::now();
    while settled(ingress) < seq {
        assert!(began.elapsed() < HANG, "settled up to {}, not to {seq}", settled(ingress));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn free(ingress: *mut FencepostIngress) {
    // SAFETY: each test frees an ingress once.
    assert_eq!(unsafe { fencepost_ingress_free(ingress) }, FencepostStatus::Ok);
}

/// The keys and values of all records of the topic.
fn consume(bootstrap: &str, count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let consumer: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "reader")
        .create()
        .expect("a consumer");
    let mut places = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        places.add_partition_offset(TOPIC, partition, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&places).expect("an assignment");
    let mut records = Vec::new();
    let began = Instant::now();
    while records.len() < count {
        assert!(began.elapsed() < HANG, "{} of {count} records came", records.len());
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let (key, value) = (message.key().expect("a key"), message.payload().expect("a value"));
                records.push((key.to_vec(), value.to_vec()));
            }
            Some(Err(error)) => println!("the consumer says: {error}"),
            None => {}
        }
    }
    records
}

// -- the header -----------------------------------------------------------------------------------------------------

fn in_repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn generated_header() -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        include_guard: Some("FENCEPOST_H".into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        header: Some(
            "/*\n * fencepost delivers geofence triggers to Apache Kafka: in order per device, deduplicated, nothing lost in\n \
             * silence. docs/embedding.md says who owns what and which thread may call what; examples/c is a whole host.\n \
             *\n * Generated from src/ffi; write it anew with FENCEPOST_BLESS=1 cargo test --features ffi --test ffi header\n \
             */"
            .into(),
        ),
        line_length: 110,
        tab_width: 4,
        usize_is_size_t: true,
        style: cbindgen::Style::Type,
        export: cbindgen::ExportConfig {
            include: ["FencepostState", "FencepostPriority", "FencepostLogLevel"].map(String::from).to_vec(),
            ..Default::default()
        },
        enumeration: cbindgen::EnumConfig {
            rename_variants: cbindgen::RenameRule::QualifiedScreamingSnakeCase,
            ..Default::default()
        },
        ..Default::default()
    };
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["numbers", "types", "router", "ingress", "log_to"] {
        builder = builder.with_src(in_repo(&format!("src/ffi/{file}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("the sources of the boundary are understood").write(&mut header);
    // What Rust calls so is what a C caller has to see to.
    String::from_utf8(header).expect("a header is text").replace(" * # Safety\n", " * The caller's part:\n")
}

#[test]
fn the_header_is_up_to_date() {
    let path = in_repo("include/fencepost.h");
    if std::env::var_os("FENCEPOST_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, generated_header()).expect("include/fencepost.h can be written");
    }
    let on_disk = std::fs::read_to_string(&path).expect("include/fencepost.h is there");
    assert!(
        on_disk == generated_header(),
        "include/fencepost.h is out of date; write it anew with FENCEPOST_BLESS=1 cargo test --features ffi --test ffi header"
    );
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(in_repo("include/fencepost.h")).expect("include/fencepost.h is there");
    let mut names = BTreeSet::new();
    for line in header.lines().filter(|line| !line.trim_start().starts_with(['*', '/'])) {
        let Some((before, _)) = line.split_once('(') else { continue };
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        if name.starts_with("fencepost_") {
            names.insert(name.to_owned());
        }
    }
    names
}

/// Numbers are never reused and never move: this list only grows.
#[test]
fn the_numbers_are_those_of_the_first_release() {
    let statuses = [
        "ok",
        "shed_queue",
        "shed_partition",
        "shed_window",
        "rejected",
        "closed_stopping",
        "closed_failed",
        "closed_forked",
        "null_argument",
        "bad_config",
        "unavailable",
        "no_ingress_left",
        "nothing",
        "internal",
        "in_use",
        "bad_argument",
        "shed_space",
        "shed_letters",
        "no_letters",
    ];
    let reasons = [
        "none",
        "device_id_not_utf8",
        "fence_id_not_utf8",
        "empty_device_id",
        "device_id_too_long",
        "empty_fence_id",
        "fence_id_too_long",
        "attributes_too_long",
        "event_time_not_positive",
        "event_time_in_future",
        "event_time_too_old",
        "event_time_in_seconds",
        "frame_too_large",
        "unknown_state",
        "unknown_priority",
    ];
    let header = std::fs::read_to_string(in_repo("include/fencepost.h")).expect("include/fencepost.h is there");
    let declares = |kind: &str, name: &str, number: usize| {
        let line = format!("FENCEPOST_{kind}_{} = {number},", name.to_uppercase());
        assert!(header.contains(&line), "the header lacks {line}");
    };
    assert_eq!(FencepostStatus::ALL.len(), statuses.len());
    for (number, name) in statuses.into_iter().enumerate() {
        assert_eq!(static_text(fencepost_status_name(number as u32)), name);
        assert_eq!(FencepostStatus::ALL[number] as usize, number);
        declares("STATUS", name, number);
    }
    assert_eq!(FencepostReason::ALL.len(), reasons.len());
    for (number, name) in reasons.into_iter().enumerate() {
        assert_eq!(static_text(fencepost_reason_name(number as u32)), name);
        assert_eq!(FencepostReason::ALL[number] as usize, number);
        declares("REASON", name, number);
    }
    for number in [19, 255, u32::MAX] {
        assert_eq!(static_text(fencepost_status_name(number)), "unknown");
        assert_eq!(static_text(fencepost_reason_name(number)), "unknown");
    }
    assert_eq!(static_text(fencepost_version()), env!("CARGO_PKG_VERSION"));
    // The names are those that metrics and other answers use.
    use fencepost::Reason;
    for reason in [Reason::EmptyDeviceId, Reason::FenceIdTooLong { len: 257 }, Reason::EventTimeInSeconds { got: 1 }] {
        assert_eq!(static_text(fencepost_reason_name(FencepostReason::from(reason) as u32)), reason.code());
    }
}

// -- C hosts --------------------------------------------------------------------------------------------------------

/// Where cargo put the libraries that belong to this test.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its file");
    let path = test.parent().expect("it is in a folder").join(name);
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

/// A folder of this test alone.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ffi-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Compiles a C file as strictly as a careful host does, against one of the libraries.
fn compile(source: &str, library_name: &str, into: &Path) -> PathBuf {
    let program = into.join("host");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(in_repo("include"));
    command.arg(in_repo(source)).arg("-o").arg(&program).arg(library(library_name));
    succeed(command.args(["-lpthread", "-ldl", "-lm"]));
    program
}

#[test]
fn the_header_is_good_c_and_good_cpp() {
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language]);
        succeed(command.arg(in_repo("include/fencepost.h")));
    }
    succeed(
        Command::new("cc")
            .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c"])
            .arg(in_repo("include/fencepost.h")),
    );
}

/// The shared library exports what the header declares, and nothing else.
#[test]
fn the_libraries_export_what_the_header_declares() {
    let symbols = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library("libfencepost.so")));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert_eq!(exported, declared());
    let symbols = succeed(Command::new("nm").args(["-g", "--defined-only"]).arg(library("libfencepost.a")));
    let defined: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    for name in declared() {
        assert!(defined.contains(name.as_str()), "libfencepost.a lacks {name}");
    }
}

#[test]
fn the_example_runs_on_both_libraries() {
    for library in ["libfencepost.so", "libfencepost.a"] {
        let mock = mock_cluster();
        let folder = scratch(library);
        let program = compile("examples/c/embed.c", library, &folder);
        let out = succeed(Command::new(&program).args([&mock.bootstrap_servers(), TOPIC]));
        assert_eq!(out, "accepted 3, delivered 3, deduplicated 0, failed 0, unsettled 0\n", "{library}");
        assert_eq!(consume(&mock.bootstrap_servers(), 3).len(), 3);
        std::fs::remove_dir_all(folder).expect("the test's own folder");
    }
}

/// Connections break while a host with the default SIGPIPE writes: it lives, and its handlers are as they were.
#[test]
fn f1_a_host_with_the_default_sigpipe_lives_and_keeps_its_handlers() {
    let mock = mock_cluster();
    let folder = scratch("host");
    let program = compile("tests/ffi/host.c", "libfencepost.so", &folder);
    let mut host = Command::new(&program)
        .args([&mock.bootstrap_servers(), TOPIC])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the host starts");
    let mut lines = BufReader::new(host.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "half");
    for _ in 0..5 {
        mock.broker_down(1).expect("the broker goes");
        std::thread::sleep(Duration::from_millis(200));
        mock.broker_up(1).expect("the broker comes back");
        std::thread::sleep(Duration::from_millis(200));
    }
    host.stdin.take().expect("piped").write_all(b"go\n").expect("the host lives");
    assert_eq!(lines.next().expect("a line").expect("text"), "settled 1000, delivered 1000, signals as before");
    // A signal that ended it would show here.
    assert!(host.wait().expect("the host ends").success());
    std::fs::remove_dir_all(folder).expect("the test's own folder");
}

// -- ids ------------------------------------------------------------------------------------------------------------

#[test]
fn f3_hostile_ids_are_byte_equal_at_the_consumer_or_refused_with_the_reason() {
    let mut bench = Bench::new();
    let ingress = bench.ingress();
    let longest = [b'x'; 256];
    let trucks = "\u{1f69a}".repeat(64);
    let legal: [&[u8]; 12] = [
        b"\0",
        b"a\0b",
        b"\0\0\0",
        b":",
        b"a:b",
        b"#",
        b"veh#3",
        b" ",
        b"\n",
        "車両-12".as_bytes(),
        &longest,
        trucks.as_bytes(),
    ];
    let attributes = [0_u8, 255, 10, 0];
    let mut expected = BTreeSet::new();
    for id in legal {
        for (device, fence) in [(id, &b"f"[..]), (b"d", id), (id, id)] {
            let mut trigger = trigger(device, fence);
            (trigger.attributes, trigger.attributes_len) = (attributes.as_ptr().cast(), attributes.len());
            let (answer, why) = submit(ingress, &trigger);
            assert_eq!((answer.status, why.as_str()), (FencepostStatus::Ok, ""), "{device:?} {fence:?}");
            expected.insert((device.to_vec(), fence.to_vec()));
            assert_eq!(answer.seq, expected.len() as u64);
        }
    }

    let long = [b'x'; 257];
    // Neither is read: its length already says that it cannot be right.
    let mut absurd = trigger(b"d", b"f");
    absurd.device_id_len = usize::MAX;
    let mut absurd_attributes = trigger(b"d", b"f");
    (absurd_attributes.attributes, absurd_attributes.attributes_len) = (attributes.as_ptr().cast(), usize::MAX);
    let mut past = trigger(b"d", b"f");
    past.event_time_ms /= 1_000;
    let mut future = trigger(b"d", b"f");
    future.event_time_ms *= 1_000;
    let mut unset = trigger(b"d", b"f");
    unset.event_time_ms = 0;
    let mut no_state = trigger(b"d", b"f");
    no_state.state = 0;
    // Its low byte would be a state.
    let mut wide_state = trigger(b"d", b"f");
    wide_state.state = 257;
    let mut no_priority = trigger(b"d", b"f");
    no_priority.priority = 4;
    use FencepostReason as R;
    let refused = [
        (trigger(b"", b"f"), R::EmptyDeviceId, "device_id is empty"),
        (trigger(b"d", b""), R::EmptyFenceId, "fence_id is empty"),
        (trigger(&long, b"f"), R::DeviceIdTooLong, "device_id has 257 bytes"),
        (trigger(b"d", &long), R::FenceIdTooLong, "fence_id has 257 bytes"),
        (trigger(b"ab\xff", b"f"), R::DeviceIdNotUtf8, "byte 2 starts no character"),
        (trigger(b"d", b"\xc0\x80"), R::FenceIdNotUtf8, "byte 0 starts no character"),
        (trigger(b"a\xed\xa0\x80", b"f"), R::DeviceIdNotUtf8, "byte 1 starts no character"),
        (absurd, R::DeviceIdTooLong, "device_id has 18446744073709551615 bytes"),
        (absurd_attributes, R::AttributesTooLong, "attributes have 18446744073709551615 bytes"),
        (past, R::EventTimeTooOld, "event_time_ms"),
        (future, R::EventTimeInFuture, "event_time_ms"),
        (unset, R::EventTimeNotPositive, "event_time_ms = 0"),
        (no_state, R::UnknownState, "state = 0, allowed 1 (enter)"),
        (wide_state, R::UnknownState, "state = 257"),
        (no_priority, R::UnknownPriority, "priority = 4, allowed"),
    ];
    for (trigger, reason, says) in &refused {
        let (answer, why) = submit(ingress, trigger);
        assert_eq!((answer.status, answer.reason, answer.seq), (FencepostStatus::Rejected, *reason, 0), "{why}");
        assert!(why.starts_with("rejected: ") && why.contains(says), "{why}");
    }
    wait_settled(ingress, expected.len() as u64);
    free(ingress);
    let counts = bench.counts();
    assert_eq!(counts.rejected, refused.len() as u64);
    let (status, report) = bench.shutdown();
    assert_eq!((status, report.counts.delivered), (FencepostStatus::Ok, expected.len() as u64));

    let mut arrived = BTreeSet::new();
    for (key, value) in consume(&bench.mock.bootstrap_servers(), expected.len()) {
        let frame = wire::decode(&value).expect("a frame").frame;
        assert_eq!(key, frame.device_id);
        assert_eq!(frame.attributes, attributes);
        arrived.insert((frame.device_id.to_vec(), frame.fence_id.to_vec()));
    }
    assert_eq!(arrived, expected);
}

// -- calls that are wrong -------------------------------------------------------------------------------------------

#[test]
fn null_is_a_status_in_every_argument() {
    let bench = Bench::new();
    let ingress = bench.ingress();
    let good = trigger(b"d", b"f");
    let mut answer = FencepostAnswer {
        seq: 7,
        status: FencepostStatus::BadArgument,
        reason: FencepostReason::None,
        pressure: FencepostPressure::Clear,
        reserved: 0,
    };
    let mut failed = FencepostFailed { seq: 7, reason: FencepostFailedReason::Refused, code: 7 };
    let mut counts = FencepostCounts::default();
    let mut router = null_mut();
    let mut other = null_mut();
    let mut seq = 7;
    let (no_router, no_ingress): (*mut FencepostRouter, *mut FencepostIngress) = (null_mut(), null_mut());
    // SAFETY: what is not null is alive and has its length.
    let answers = unsafe {
        [
            fencepost_start(null(), 5, &mut router, null_mut(), 0),
            fencepost_start(c"".as_ptr(), 0, null_mut(), null_mut(), 0),
            fencepost_start_file(null(), &mut router, null_mut(), 9),
            fencepost_start_file(c"x".as_ptr(), null_mut(), null_mut(), 0),
            fencepost_health(no_router),
            fencepost_counts(no_router, &mut counts, size_of_val(&counts)),
            fencepost_counts(bench.router, null_mut(), size_of_val(&counts)),
            fencepost_ingress(no_router, &mut other),
            fencepost_ingress(bench.router, null_mut()),
            fencepost_submit(no_ingress, &good, &mut answer, null_mut(), 0),
            fencepost_submit(ingress, null(), &mut answer, null_mut(), 0),
            fencepost_submit(ingress, &good, null_mut(), null_mut(), 0),
            fencepost_dead_letter(no_ingress, &good, null(), &mut answer, null_mut(), 0),
            fencepost_dead_letter(ingress, null(), null(), &mut answer, null_mut(), 0),
            fencepost_dead_letter(ingress, &good, null(), null_mut(), null_mut(), 0),
            fencepost_submit_batch(no_ingress, &good, 1, &mut answer),
            fencepost_submit_batch(ingress, null(), 1, &mut answer),
            fencepost_submit_batch(ingress, &good, 1, null_mut()),
            fencepost_settled(no_ingress, &mut seq),
            fencepost_settled(ingress, null_mut()),
            fencepost_take_failed(no_ingress, &mut failed, null_mut(), 0),
            fencepost_take_failed(ingress, null_mut(), null_mut(), 0),
            fencepost_ingress_free(no_ingress),
            fencepost_shutdown(no_router, 0, null_mut(), 0),
            fencepost_log_to(None, null_mut(), 1),
        ]
    };
    for (index, status) in answers.into_iter().enumerate() {
        assert_eq!(status, FencepostStatus::NullArgument, "call {index}");
    }
    for (name, set) in [
        ("device_id", (|trigger| trigger.device_id = null()) as fn(&mut FencepostTrigger)),
        ("fence_id", |trigger| trigger.fence_id = null()),
        ("attributes", |trigger| trigger.attributes_len = 3),
    ] {
        let mut trigger = good;
        set(&mut trigger);
        let (answer, why) = submit(ingress, &trigger);
        assert_eq!(answer.status, FencepostStatus::NullArgument);
        assert_eq!(why, format!("{name} is null, but its length is not 0"));
    }
    // No bytes may be null: that is an empty id, which has its own reason; a text for nobody; a batch of none.
    let mut empty = trigger(b"d", b"");
    empty.fence_id = null();
    assert_eq!(submit(ingress, &empty).0.reason, FencepostReason::EmptyFenceId);
    // SAFETY: as above.
    unsafe {
        assert_eq!(fencepost_submit_batch(ingress, null(), 0, null_mut()), FencepostStatus::Ok);
        assert_eq!(fencepost_submit(ingress, &good, &mut answer, null_mut(), 100), FencepostStatus::Ok);
        assert_eq!(fencepost_take_failed(ingress, &mut failed, null_mut(), 0), FencepostStatus::Nothing);
    }
    assert_eq!((failed.seq, seq, other), (7, 7, null_mut()), "nothing is written where nothing was done");
    assert_eq!(bench.counts().accepted, 1);
    free(ingress);
}

#[test]
fn a_start_that_fails_says_why_and_leaves_null() {
    let unknown = start(b"[topic]\nnaem = 'x'\n");
    assert_eq!((unknown.0, unknown.1), (FencepostStatus::BadConfig, null_mut()));
    assert!(unknown.2.contains("did you mean") && unknown.2.contains("line 2"), "{}", unknown.2);
    let not_utf8 = start(b"topic.name = '\xff'");
    assert_eq!((not_utf8.0, not_utf8.1), (FencepostStatus::BadConfig, null_mut()));
    assert!(not_utf8.2.contains("byte 14"), "{}", not_utf8.2);
    // What a caller computes as `end - start` with the two exchanged.
    let mut router = std::ptr::dangling_mut();
    // SAFETY: the length is refused before the text is read.
    let status = unsafe { fencepost_start(c"".as_ptr(), usize::MAX, &mut router, null_mut(), 0) };
    assert_eq!((status, router), (FencepostStatus::BadConfig, null_mut()));

    let away = b"kafka.bootstrap = '127.0.0.1:1'\ntopic.name = 'x'\nstart.timeout = '1 s'\n";
    let unavailable = start(away);
    assert_eq!((unavailable.0, unavailable.1), (FencepostStatus::Unavailable, null_mut()), "{}", unavailable.2);
    assert!(!unavailable.2.is_empty());

    // Cut to what fits, between characters.
    let mut why = [b'#' as c_char; 9];
    let toml = "schlüssel = 1";
    // SAFETY: the text and the buffer have their lengths; the last byte of the buffer is kept out of it.
    let status = unsafe { fencepost_start(toml.as_ptr().cast(), toml.len(), &mut router, why.as_mut_ptr(), 8) };
    assert_eq!(status, FencepostStatus::BadConfig);
    assert_eq!((text(&why).as_str(), why[8]), ("line 1:", b'#' as c_char));

    let mut why = [0; 512];
    let missing = in_repo("target/no-such-file.toml");
    let path = CString::new(missing.to_str().expect("text")).expect("no NUL");
    // SAFETY: the path ends with NUL, the buffer has its length.
    let status = unsafe { fencepost_start_file(path.as_ptr(), &mut router, why.as_mut_ptr(), why.len()) };
    assert_eq!((status, router), (FencepostStatus::BadConfig, null_mut()));
    assert!(text(&why).contains("no-such-file.toml: cannot be read"), "{}", text(&why));
}

#[test]
fn a_file_starts_a_router_as_its_text_does() {
    let mock = mock_cluster();
    let folder = scratch("file");
    let file = folder.join("fencepost.toml");
    let toml = format!("kafka.bootstrap = '{}'\ntopic.name = '{TOPIC}'\n", mock.bootstrap_servers());
    std::fs::write(&file, toml).expect("a file for the test");
    let path = CString::new(file.to_str().expect("text")).expect("no NUL");
    let (mut router, mut why) = (null_mut(), [b'#' as c_char; 512]);
    // SAFETY: the path ends with NUL, the buffer has its length; the router is shut down once.
    unsafe {
        let status = fencepost_start_file(path.as_ptr(), &mut router, why.as_mut_ptr(), why.len());
        assert_eq!(status, FencepostStatus::Ok, "{}", text(&why));
        assert_eq!(fencepost_health(router), FencepostStatus::Ok);
        // A caller who wants no report.
        assert_eq!(fencepost_shutdown(router, 5_000, null_mut(), 0), FencepostStatus::Ok);
    }
    std::fs::remove_dir_all(folder).expect("the test's own folder");
}

#[test]
fn an_ingress_outlives_its_router_and_there_are_as_many_as_configured() {
    let mut bench = Bench::with("queue.ingresses = 2\n");
    let (first, second) = (bench.ingress(), bench.ingress());
    let mut third = std::ptr::dangling_mut();
    // SAFETY: the router runs; `third` may be written.
    assert_eq!(unsafe { fencepost_ingress(bench.router, &mut third) }, FencepostStatus::NoIngressLeft);
    assert!(third.is_null());
    free(second);
    let second = bench.ingress();
    assert_eq!(submit(first, &trigger(b"d", b"f")).0.seq, 1);
    let (status, report) = bench.shutdown();
    assert_eq!((status, report.counts.delivered, report.unsettled), (FencepostStatus::Ok, 1, 0));
    for ingress in [first, second] {
        let (answer, why) = submit(ingress, &trigger(b"d", b"f"));
        assert_eq!((answer.status, answer.seq), (FencepostStatus::ClosedStopping, 0));
        assert_eq!(why, "closed: the router is stopping");
    }
    assert_eq!(settled(first), 1);
    free(first);
    free(second);
}

#[test]
fn a_batch_answers_each_trigger_at_its_place() {
    let mut bench = Bench::new();
    let ingress = bench.ingress();
    // More than one piece of what the boundary hands over at once; every seventh breaks a rule.
    let ids: Vec<String> = (0..200).map(|index| format!("veh-{index}")).collect();
    let mut triggers: Vec<FencepostTrigger> = ids.iter().map(|id| trigger(id.as_bytes(), b"f")).collect();
    for trigger in triggers.iter_mut().skip(3).step_by(7) {
        trigger.state = 9;
    }
    let blank = submit(ingress, &trigger(b"", b"")).0;
    assert_eq!(blank.status, FencepostStatus::Rejected);
    let mut answers = vec![blank; triggers.len()];
    // SAFETY: both arrays have as many elements as is said.
    let status = unsafe { fencepost_submit_batch(ingress, triggers.as_ptr(), triggers.len(), answers.as_mut_ptr()) };
    assert_eq!(status, FencepostStatus::Rejected, "the first that was not queued");
    let mut seq = 0;
    for (index, answer) in answers.iter().enumerate() {
        if index % 7 == 3 {
            assert_eq!((answer.status, answer.reason), (FencepostStatus::Rejected, FencepostReason::UnknownState));
            assert_eq!(answer.seq, 0);
        } else {
            seq += 1;
            assert_eq!((answer.status, answer.seq), (FencepostStatus::Ok, seq), "{index}");
        }
    }
    wait_settled(ingress, seq);
    free(ingress);
    let (status, report) = bench.shutdown();
    assert_eq!((status, report.counts.delivered), (FencepostStatus::Ok, seq));
    assert_eq!(report.counts.rejected, 1 + 200 - seq);
}

/// Two threads on one ingress are the caller's mistake; the answer is a status and nothing is lost or made twice.
#[test]
fn two_threads_on_one_ingress_are_told_so() {
    let bench = Bench::new();
    let ingress = bench.ingress() as usize;
    let taken = Mutex::new(BTreeSet::new());
    let not_queued = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (taken, not_queued) = (&taken, &not_queued);
            scope.spawn(move || {
                for index in 0..2_000 {
                    let id = format!("veh-{thread}-{index}");
                    let mut answer = None;
                    // SAFETY: the ingress is not freed while the threads run.
                    let status = unsafe {
                        let mut place = std::mem::MaybeUninit::<FencepostAnswer>::uninit();
                        let trigger = trigger(id.as_bytes(), b"f");
                        let status = fencepost_submit(
                            ingress as *mut FencepostIngress,
                            &trigger,
                            place.as_mut_ptr(),
                            null_mut(),
                            0,
                        );
                        if status == FencepostStatus::Ok {
                            answer = Some(place.assume_init());
                        }
                        status
                    };
                    match (status, answer) {
                        (FencepostStatus::Ok, Some(answer)) => {
                            assert!(taken.lock().unwrap().insert(answer.seq), "a seq was given twice");
                        }
                        // Not queued, and told so: somebody is inside, or the broker does not keep up.
                        (FencepostStatus::InUse | FencepostStatus::ShedQueue | FencepostStatus::ShedPartition, _) => {
                            not_queued.fetch_add(1, Ordering::Relaxed);
                        }
                        (status, _) => panic!("{status:?}"),
                    }
                }
            });
        }
    });
    let taken = taken.into_inner().unwrap();
    println!("{} taken, {not_queued:?} not", taken.len());
    assert_eq!(taken.len() as u64 + not_queued.into_inner(), 8_000);
    assert_eq!(taken.last().copied(), Some(taken.len() as u64), "seqs have no gap");
    let ingress = ingress as *mut FencepostIngress;
    wait_settled(ingress, taken.len() as u64);
    assert_eq!(bench.counts().accepted, taken.len() as u64);
    free(ingress);
}

#[test]
fn a_forked_child_is_told_so() {
    let bench = Bench::new();
    let ingress = bench.ingress();
    let good = trigger(b"d", b"f");
    let mut answer = submit(ingress, &trigger(b"e", b"f")).0;
    // SAFETY: the child calls one function that takes no lock and allocates nothing, and ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            let status = fencepost_submit(ingress, &good, &mut answer, null_mut(), 0);
            libc::_exit(status as i32);
        }
    }
    assert!(child > 0, "fork failed");
    let mut status = 0;
    // SAFETY: waits for the child of this test.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), FencepostStatus::ClosedForked as i32);
    assert_eq!(submit(ingress, &good).0.status, FencepostStatus::Ok, "the parent goes on");
    free(ingress);
}

/// The broker refuses one record for itself: the host takes it back, with the reason, and only then the watermark moves.
#[test]
fn a_failed_trigger_is_handed_back_with_its_reason() {
    let mut bench = Bench::new();
    let ingress = bench.ingress();
    let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD; 8];
    bench.mock.request_errors(RDKafkaApiKey::Produce, &refusals);
    assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.seq, 1);
    let mut failed = FencepostFailed { seq: 0, reason: FencepostFailedReason::TooLarge, code: 0 };
    let mut why = [b'#' as c_char; 256];
    let began = Instant::now();
    loop {
        // SAFETY: the ingress is not freed, the rest may be written.
        match unsafe { fencepost_take_failed(ingress, &mut failed, why.as_mut_ptr(), why.len()) } {
            FencepostStatus::Ok => break,
            FencepostStatus::Nothing => assert_eq!(settled(ingress), 0),
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < HANG, "nothing failed: {:?}", bench.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.mock.clear_request_errors(RDKafkaApiKey::Produce);
    let code = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD as i32;
    assert_eq!(failed, FencepostFailed { seq: 1, reason: FencepostFailedReason::Refused, code });
    assert_eq!(text(&why), format!("the broker refused the record for itself, error code {code}"));
    wait_settled(ingress, 1);
    free(ingress);
    let (status, report) = bench.shutdown();
    assert_eq!((status, report.counts.failed), (FencepostStatus::Ok, 1));
}

/// A full queue and a blocked partition are told apart; what was shed was not taken.
#[test]
fn a_broker_that_is_away_sheds_and_the_report_says_what_is_missing() {
    let mut bench = Bench::with("queue.capacity = 1024\n");
    let ingress = bench.ingress();
    bench.mock.broker_down(1).expect("the broker goes");
    let (mut accepted, mut shed) = (0, 0);
    let began = Instant::now();
    let mut index = 0;
    while shed < 100 {
        assert!(began.elapsed() < HANG, "{:?}", bench.counts());
        index += 1;
        let (answer, why) = submit(ingress, &trigger(format!("veh-{index}").as_bytes(), b"f"));
        match answer.status {
            FencepostStatus::Ok => accepted += 1,
            FencepostStatus::ShedQueue | FencepostStatus::ShedPartition => {
                assert!(why.starts_with("shed: "), "{why}");
                shed += 1;
            }
            other => panic!("{other:?}: {why}"),
        }
    }
    assert_eq!(bench.counts().shed, shed);
    let mut report = FencepostReport::default();
    // SAFETY: the router runs and is not used again.
    let status = unsafe { fencepost_shutdown(bench.router, 100, &mut report, size_of_val(&report)) };
    bench.router = null_mut();
    assert_eq!(status, FencepostStatus::Unavailable);
    assert_eq!(report.counts.accepted, accepted);
    assert_eq!(report.unsettled, accepted - report.counts.delivered, "{report:?}");
    free(ingress);
}

#[test]
fn counts_are_understood_by_older_and_newer_callers() {
    let bench = Bench::new();
    let ingress = bench.ingress();
    assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.seq, 1);
    wait_settled(ingress, 1);
    let known = size_of::<FencepostCounts>() / 8;
    for size in [0, 1, 3, known, known + 4] {
        let mut place = vec![u64::MAX; known + 8];
        // SAFETY: the place has at least `size` words.
        let status = unsafe { fencepost_counts(bench.router, place.as_mut_ptr().cast(), size * 8) };
        assert_eq!(status, FencepostStatus::Ok);
        assert!(place[size..].iter().all(|word| *word == u64::MAX), "nothing behind {size} words is written");
        assert!(place[known..size.max(known)].iter().all(|word| *word == 0), "what only the caller knows is 0");
        if size > 2 {
            assert_eq!((place[0], place[1], place[2]), (1, 0, 1), "accepted, recovered, delivered");
        }
    }
    free(ingress);
}

/// The C counters are the engine's, by name and in the order of the sum.
#[test]
fn the_counters_of_the_header_are_those_of_the_report() {
    let header = std::fs::read_to_string(in_repo("include/fencepost.h")).expect("include/fencepost.h is there");
    let (before, _) = header.split_once("} FencepostCounts;").expect("the structure is there");
    let (_, body) = before.rsplit_once("typedef struct {").expect("it begins");
    let fields: BTreeSet<&str> = body
        .lines()
        .filter_map(|line| line.trim().strip_prefix("uint64_t "))
        .map(|name| name.trim_end_matches(';'))
        .collect();
    let counts = serde_json::to_value(fencepost::engine::Counts::default()).expect("counts are written as JSON");
    let names: BTreeSet<&str> = counts.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(fields, names);
}

// -- the log --------------------------------------------------------------------------------------------------------

static LINES: Mutex<Vec<(usize, u32, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep_line(context: *mut c_void, level: u32, line: *const c_char) {
    // SAFETY: the library's text ends with NUL.
    let line = unsafe { CStr::from_ptr(line) }.to_str().expect("a line is UTF-8").to_owned();
    LINES.lock().expect("no test panics with it").push((context as usize, level, line));
}

/// One owner a process; the only test that takes the log.
#[test]
fn the_log_goes_to_the_host() {
    let context = 0xfe_usize as *mut c_void;
    // SAFETY: the callback may be called from every thread and only carries the context along.
    unsafe {
        assert_eq!(fencepost_log_to(Some(keep_line), context, 0), FencepostStatus::BadArgument);
        assert_eq!(fencepost_log_to(Some(keep_line), context, 6), FencepostStatus::BadArgument);
        assert_eq!(fencepost_log_to(Some(keep_line), context, 2), FencepostStatus::Ok);
        assert_eq!(fencepost_log_to(Some(keep_line), context, 2), FencepostStatus::InUse);
    }
    let long = "\u{1f69a}".repeat(1_000);
    log::warn!("a line of the test: {long}");
    log::info!("a line of the test that is not important enough");
    let lines = LINES.lock().expect("no test panics with it").clone();
    let ours: Vec<_> = lines.iter().filter(|line| line.2.starts_with("a line of the test")).collect();
    assert_eq!(ours.len(), 1, "{lines:?}");
    assert_eq!((ours[0].0, ours[0].1), (0xfe, 2));
    assert!((1_000..1_024).contains(&ours[0].2.len()), "cut between characters: {} bytes", ours[0].2.len());
}

// -- panics ---------------------------------------------------------------------------------------------------------

/// A forced panic in each exported function: the answer is `INTERNAL`, the router that it happened in takes nothing any
/// more, what it had taken is delivered, and the host goes on. The hook is there in builds with debug assertions.
#[cfg(debug_assertions)]
#[test]
fn f2_a_panic_in_each_function_is_a_status_and_fails_the_router() {
    use forced::panic_in_next;

    type Call = fn(&Bench, *mut FencepostIngress) -> FencepostStatus;
    // Functions on a running router; the panic fails it.
    let on_a_router: [(&str, Call); 7] = [
        ("fencepost_health", |bench, _| {
            // SAFETY: the router runs.
            unsafe { fencepost_health(bench.router) }
        }),
        ("fencepost_counts", |bench, _| {
            let mut counts = FencepostCounts::default();
            // SAFETY: the router runs; `counts` may be written.
            unsafe { fencepost_counts(bench.router, &mut counts, size_of_val(&counts)) }
        }),
        ("fencepost_ingress", |bench, _| {
            let mut other = null_mut();
            // SAFETY: the router runs; `other` may be written.
            unsafe { fencepost_ingress(bench.router, &mut other) }
        }),
        ("fencepost_submit", |_, ingress| {
            let mut why = [0; 64];
            let mut answer = std::mem::MaybeUninit::uninit();
            // SAFETY: the ingress is not freed, the rest has its length.
            let status = unsafe {
                fencepost_submit(ingress, &trigger(b"x", b"f"), answer.as_mut_ptr(), why.as_mut_ptr(), why.len())
            };
            assert_eq!(text(&why), "fencepost_submit panicked: forced");
            status
        }),
        ("fencepost_dead_letter", |_, ingress| {
            let mut answer = std::mem::MaybeUninit::uninit();
            // SAFETY: the ingress is not freed, the answer may be written.
            unsafe { fencepost_dead_letter(ingress, &trigger(b"x", b"f"), null(), answer.as_mut_ptr(), null_mut(), 0) }
        }),
        ("fencepost_submit_batch", |_, ingress| {
            let mut answer = std::mem::MaybeUninit::uninit();
            // SAFETY: the ingress is not freed; one trigger, one answer.
            unsafe { fencepost_submit_batch(ingress, &trigger(b"x", b"f"), 1, answer.as_mut_ptr()) }
        }),
        ("fencepost_settled", |_, ingress| {
            let mut seq = 0;
            // SAFETY: the ingress is not freed; `seq` may be written.
            unsafe { fencepost_settled(ingress, &mut seq) }
        }),
    ];
    let mut shown = BTreeSet::new();
    for (function, call) in on_a_router {
        let mut bench = Bench::new();
        let ingress = bench.ingress();
        assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.seq, 1);
        panic_in_next(function);
        assert_eq!(call(&bench, ingress), FencepostStatus::Internal, "{function}");
        failed_for_good(&mut bench, ingress);
        shown.insert(function);
    }
    {
        let mut bench = Bench::new();
        let ingress = bench.ingress();
        assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.seq, 1);
        let mut failed = FencepostFailed { seq: 0, reason: FencepostFailedReason::Refused, code: 0 };
        panic_in_next("fencepost_take_failed");
        // SAFETY: the ingress is not freed, `failed` may be written.
        let status = unsafe { fencepost_take_failed(ingress, &mut failed, null_mut(), 0) };
        assert_eq!(status, FencepostStatus::Internal);
        failed_for_good(&mut bench, ingress);
        shown.insert("fencepost_take_failed");
    }
    {
        // Freed all the same: of two ingresses one is left to be taken.
        let mut bench = Bench::with("queue.ingresses = 2\n");
        let (ingress, other) = (bench.ingress(), bench.ingress());
        assert_eq!(submit(other, &trigger(b"d", b"f")).0.seq, 1);
        panic_in_next("fencepost_ingress_free");
        // SAFETY: not used again.
        assert_eq!(unsafe { fencepost_ingress_free(ingress) }, FencepostStatus::Internal);
        free(bench.ingress());
        failed_for_good(&mut bench, other);
        shown.insert("fencepost_ingress_free");
    }
    {
        // Freed and stopped all the same: what was accepted is delivered, its ingress is told.
        let mut bench = Bench::new();
        let ingress = bench.ingress();
        assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.seq, 1);
        panic_in_next("fencepost_shutdown");
        // SAFETY: not used again.
        let status = unsafe { fencepost_shutdown(bench.router, 5_000, null_mut(), 0) };
        bench.router = null_mut();
        assert_eq!(status, FencepostStatus::Internal);
        assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.status, FencepostStatus::ClosedFailed);
        assert_eq!(consume(&bench.mock.bootstrap_servers(), 1).len(), 1);
        free(ingress);
        shown.insert("fencepost_shutdown");
    }
    // Functions without a router.
    let mut router = std::ptr::dangling_mut();
    panic_in_next("fencepost_start");
    assert_eq!(start(b"").0, FencepostStatus::Internal);
    panic_in_next("fencepost_start_file");
    // SAFETY: the path ends with NUL.
    let status = unsafe { fencepost_start_file(c"x".as_ptr(), &mut router, null_mut(), 0) };
    assert_eq!(status, FencepostStatus::Internal);
    panic_in_next("fencepost_log_to");
    // SAFETY: nothing is called.
    assert_eq!(unsafe { fencepost_log_to(None, null_mut(), 1) }, FencepostStatus::Internal);
    shown.extend(["fencepost_start", "fencepost_start_file", "fencepost_log_to"]);
    panic_in_next("fencepost_version");
    assert_eq!(static_text(fencepost_version()), "internal");
    panic_in_next("fencepost_status_name");
    assert_eq!(static_text(fencepost_status_name(0)), "internal");
    panic_in_next("fencepost_reason_name");
    assert_eq!(static_text(fencepost_reason_name(0)), "internal");
    shown.extend(["fencepost_version", "fencepost_status_name", "fencepost_reason_name"]);
    let shown: BTreeSet<String> = shown.into_iter().map(str::to_owned).collect();
    assert_eq!(shown, declared(), "every function of the header was made to panic");

    // The host lives, and so does a router of its own beside the failed ones.
    let bench = Bench::new();
    let ingress = bench.ingress();
    assert_eq!(submit(ingress, &trigger(b"d", b"f")).0.status, FencepostStatus::Ok);
    wait_settled(ingress, 1);
    free(ingress);
}

/// The router takes nothing any more, on no ingress; what it had taken arrives.
#[cfg(debug_assertions)]
fn failed_for_good(bench: &mut Bench, ingress: *mut FencepostIngress) {
    // SAFETY: the router runs.
    assert_eq!(unsafe { fencepost_health(bench.router) }, FencepostStatus::ClosedFailed);
    let other = bench.ingress();
    for ingress in [ingress, other] {
        let (answer, why) = submit(ingress, &trigger(b"later", b"f"));
        assert_eq!((answer.status, answer.seq), (FencepostStatus::ClosedFailed, 0));
        assert_eq!(why, "closed: the router failed; see its log");
        let mut answer = answer;
        // SAFETY: the ingress is not freed; one trigger, one answer.
        let status = unsafe { fencepost_submit_batch(ingress, &trigger(b"later", b"f"), 1, &mut answer) };
        assert_eq!((status, answer.status), (FencepostStatus::ClosedFailed, FencepostStatus::ClosedFailed));
    }
    wait_settled(ingress, 1);
    let (status, report) = bench.shutdown();
    assert_eq!((status, report.counts.delivered), (FencepostStatus::Ok, 1), "{report:?}");
    assert_eq!(submit(ingress, &trigger(b"later", b"f")).0.status, FencepostStatus::ClosedFailed);
    free(ingress);
    free(other);
}
