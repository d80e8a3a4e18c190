//! Our process: `fencepost route`, started, watched, killed.

use crate::common_kafka::{PATIENCE, now_ms};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What it has said so far, with the wall clock's time in ms.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub ready_ms: Option<i64>,
    /// It started without the broker.
    pub is_cold: bool,
    /// A producer was replaced: what was in flight was sent again.
    pub rebuilds_ms: Vec<i64>,
    /// A partition was taken for stalled.
    pub breakers: u32,
    pub panicked: bool,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub spawned_ms: i64,
    /// Just before the order to die.
    pub killed_ms: i64,
    /// When it was gone.
    pub gone_ms: i64,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The closing report, if it came to that.
    pub report: Option<serde_json::Value>,
    pub said: Said,
}

pub struct Route {
    child: Child,
    spawned: Instant,
    spawned_ms: i64,
    said: Arc<Mutex<Said>>,
    errors: JoinHandle<()>,
    output: JoinHandle<String>,
}

impl Route {
    /// Starts it; what it says on standard error goes to the log, each line with its time.
    pub fn spawn(config: &Path, log: &Path) -> Route {
        let spawned_ms = now_ms();
        let mut child = Command::new(env!("CARGO_BIN_EXE_fencepost"))
            .args(["route", "--json", "-c"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let said = Arc::new(Mutex::new(Said::default()));
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let log = File::create(log).expect("the log can be written");
        let heard = Arc::clone(&said);
        let errors = std::thread::spawn(move || listen(errors, log, &heard));
        let mut stdout = child.stdout.take().expect("a pipe");
        let output = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("it writes text");
            text
        });
        Route { child, spawned: Instant::now(), spawned_ms, said, errors, output }
    }

    pub fn said(&self) -> Said {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_none()
    }

    /// Waits until it is ready, or has ended, or the limit is over.
    pub fn wait_ready(&mut self, limit: Duration) {
        let began = Instant::now();
        while self.said().ready_ms.is_none() && began.elapsed() < limit && self.is_running() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sleeps for so long after the start, less if it ends.
    pub fn sleep_until(&mut self, after_spawn: Duration) {
        while self.spawned.elapsed() < after_spawn && self.is_running() {
            let left = after_spawn.saturating_sub(self.spawned.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
    }

    pub fn age(&self) -> Duration {
        self.spawned.elapsed()
    }

    pub fn ask_to_stop(&mut self) {
        if !self.is_running() {
            return;
        }
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.child.id())]).status();
        // It may have ended by itself just now; how it ended is looked at later.
        assert!(sent.is_ok(), "sh can be run");
    }

    /// kill -9.
    pub fn kill(mut self) -> Ended {
        let killed_ms = now_ms();
        self.child.kill().expect("our own child");
        self.gather(killed_ms)
    }

    /// Waits for its own end, within reason.
    pub fn wait(mut self, what: &str) -> Ended {
        let began = Instant::now();
        while self.is_running() {
            if began.elapsed() > PATIENCE {
                let ended = self.kill();
                panic!("{what}: it does not end: {ended:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.gather(now_ms())
    }

    fn gather(mut self, killed_ms: i64) -> Ended {
        let status = self.child.wait().expect("our own child");
        let gone_ms = now_ms();
        let text = self.output.join().expect("its output was read");
        self.errors.join().expect("its log was written");
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ended {
            spawned_ms: self.spawned_ms,
            killed_ms,
            gone_ms,
            code: status.code(),
            signal: status.signal(),
            report: serde_json::from_str(&text).ok(),
            said,
        }
    }
}

fn listen(errors: BufReader<impl Read>, mut log: File, said: &Mutex<Said>) {
    for line in errors.split(b'\n') {
        let line = line.expect("a pipe of our own");
        let line = String::from_utf8_lossy(&line);
        let now = now_ms();
        writeln!(log, "{now} {line}").expect("the log can be written");
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if line.starts_with("ready:") {
            said.ready_ms = Some(now);
        }
        said.is_cold |= line.contains("the broker is away") || line.contains("starts cold");
        if line.contains("is replaced") {
            said.rebuilds_ms.push(now);
        }
        said.breakers += u32::from(line.contains("breaker open"));
        said.panicked |= line.contains("panicked");
    }
}
