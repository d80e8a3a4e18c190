//! One peer of a socket. It is read as fast as the router takes what it sends. Answers wait in a bounded place; a peer
//! that does not read them, or leaves a line unfinished for too long, is cut. What it sent before is delivered all the
//! same, and its ingress is given back only when that is settled, so that a peer that comes again is behind itself.

use super::Setup;
use super::pump::{Deadline, Host, Pump, Tally, Went};
use crate::cli::signals::Signals;
use crate::source::{Feed, Trail};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Answers that wait for a peer to read them.
const ANSWER_BYTES: usize = 64 * 1_024;
/// An answer's longest message; ours are shorter, but they may quote what came.
const ANSWER_ROOM: usize = 2_048;
/// How long one write waits for a peer, so that its triggers do not wait for its reading.
const WRITE_WAIT: Duration = Duration::from_millis(20);
/// How long a read waits when nothing is to be told.
const READ_WAIT: Duration = Duration::from_millis(50);
/// The same when the peer wants to know what settles.
const READ_WAIT_ACKS: Duration = Duration::from_millis(2);
/// What a peer gets to read its last answers.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A connection of either kind.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(super) fn set_nonblocking(&self, is_set: bool) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(is_set),
            Stream::Tcp(stream) => stream.set_nonblocking(is_set),
        }
    }

    /// Nothing more will be said.
    pub(super) fn end_answers(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn set_read_timeout(&self, wait: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(Some(wait)),
            Stream::Tcp(stream) => stream.set_read_timeout(Some(wait)),
        }
    }

    fn set_write_timeout(&self, wait: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_write_timeout(Some(wait)),
            Stream::Tcp(stream) => stream.set_write_timeout(Some(wait)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(place),
            Stream::Tcp(stream) => stream.read(place),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The peer, as it is answered.
struct Peer<'a> {
    stream: Stream,
    answers: Vec<u8>,
    wants_acks: bool,
    acked: u64,
    /// Why nothing more is read from it, nor said to it.
    cut: Option<String>,
    signals: &'a Signals,
}

/// What a peer may ask for in front of its triggers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    acks: bool,
}

/// Serves a peer until it ends, is cut, or a signal comes, and then until what it sent is settled.
pub(super) fn serve(number: u64, stream: Stream, mut feed: Feed, mut pump: Pump<'_>, setup: &Setup<'_>) {
    let mut peer = Peer {
        stream,
        answers: Vec::with_capacity(ANSWER_BYTES),
        wants_acks: false,
        acked: 0,
        cut: None,
        signals: setup.signals,
    };
    if let Err(error) = peer.stream.set_write_timeout(WRITE_WAIT) {
        peer.cut_off(format!("its socket takes no time-out: {error}"));
    }
    converse(&mut peer, &mut feed, &mut pump, setup.config.route.line_timeout);
    // While the router runs there is no hurry: the broker may be away. A stop sets the limit.
    let mut deadline = Deadline::new(setup.shutdown_limit);
    pump.drain(&mut peer, || setup.signals.asked_to_stop() && deadline.has_passed());
    pump.end(&mut peer);
    let until = Instant::now() + LAST_WORDS;
    while peer.cut.is_none() && !peer.answers.is_empty() && Instant::now() < until {
        peer.send_answers();
    }
    if let Some(why) = &peer.cut {
        Tally::add(&setup.tally.cut, 1);
        log::warn!("connection {number} was cut behind line {}: {why}", feed.position().lines);
    }
}

fn converse(peer: &mut Peer<'_>, feed: &mut Feed, pump: &mut Pump<'_>, line_timeout: Duration) {
    let mut wait = Duration::ZERO;
    let mut unfinished: Option<(u64, Instant)> = None;
    let (connected, mut has_spoken) = (Instant::now(), false);
    let (mut is_asked, mut blank) = (false, 0);
    while !peer.is_over() {
        let wanted = if peer.wants_acks && !pump.is_settled() { READ_WAIT_ACKS } else { READ_WAIT };
        if wait != wanted {
            if let Err(error) = peer.stream.set_read_timeout(wanted) {
                return peer.cut_off(format!("its socket takes no time-out: {error}"));
            }
            wait = wanted;
        }
        let is_at_end = match feed.fill(&mut peer.stream) {
            Ok(count) => {
                has_spoken = true;
                count == 0
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                pump.look_after(peer);
                false
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => false,
            Err(error) => return peer.cut_off(error.to_string()),
        };
        // Blank lines may stand in front of it, and it is not counted as a line itself.
        if !is_asked && pump.is_at_first_line(feed, &mut blank) {
            is_asked = feed.peek().is_some_and(|first| peer.hears_request(first));
            if is_asked {
                feed.drop_peeked();
            }
        }
        match pump.take(feed, peer) {
            Went::On => {}
            Went::Over => return,
            Went::Closed(why) => return peer.cut_off(why.to_string()),
        }
        if is_at_end {
            return;
        }
        // Whoever has sent nothing at all loses nothing by it, and holds a place that others want.
        if !has_spoken && connected.elapsed() > line_timeout {
            let why = format!(
                "nothing was sent within {line_timeout:?} (route.line_timeout); connect again with something to send"
            );
            peer.answer(&json!({"error": "silent", "message": why}));
            return peer.cut_off(why);
        }
        let lines = feed.position().lines;
        unfinished = match unfinished {
            _ if !feed.is_within() => None,
            Some((line, since)) if line == lines => Some((line, since)),
            _ => Some((lines, Instant::now())),
        };
        if unfinished.is_some_and(|(_, since)| since.elapsed() > line_timeout) {
            let why = format!("the line was not finished within {line_timeout:?} (route.line_timeout)");
            // Whatever comes of it, nothing more is read.
            pump.abandon(feed, "line_unfinished", &why, peer);
            return peer.cut_off(why);
        }
    }
}

impl Peer<'_> {
    /// Whether this first line is not a trigger but a wish, which is then noted.
    fn hears_request(&mut self, first: &[u8]) -> bool {
        let request: Result<Request, _> = serde_json::from_slice(first);
        self.wants_acks = request.as_ref().is_ok_and(|request| request.acks);
        request.is_ok()
    }

    fn answer(&mut self, answer: &serde_json::Value) {
        if self.cut.is_some() {
            return;
        }
        // To a `Vec` nothing fails.
        let _ = writeln!(self.answers, "{answer}");
        if self.answers.len() + ANSWER_ROOM > ANSWER_BYTES {
            self.send_answers();
            if self.answers.len() + ANSWER_ROOM > ANSWER_BYTES {
                self.cut_off(format!("it does not read its answers, of which {ANSWER_BYTES} bytes wait"));
            }
        }
    }

    /// Sends what the peer takes just now.
    fn send_answers(&mut self) {
        if self.answers.is_empty() || self.cut.is_some() {
            return;
        }
        match self.stream.write(&self.answers) {
            Ok(0) => self.cut_off("it takes no answers".into()),
            Ok(count) => drop(self.answers.drain(..count)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => self.cut_off(error.to_string()),
        }
    }

    /// The last answers go out if the peer takes them at once; then nothing is said any more.
    fn cut_off(&mut self, why: String) {
        if self.cut.is_none() {
            if !self.answers.is_empty() {
                // Whatever it does not take now is lost to it, which is what being cut means.
                let _ = self.stream.write(&self.answers);
            }
            // It may be closed already.
            let _ = self.stream.end_answers();
            self.cut = Some(why);
        }
    }
}

impl Host for Peer<'_> {
    fn refused(&mut self, line: u64, code: &str, why: &dyn Display) {
        self.answer(&json!({"line": line, "error": code, "message": why.to_string()}));
    }

    fn tick(&mut self, settled: u64, _: &Trail) {
        // One number at a time: a peer that reads slowly gets the latest.
        if self.wants_acks && settled > self.acked && self.answers.is_empty() {
            self.acked = settled;
            self.answer(&json!({"settled": settled}));
        }
        self.send_answers();
    }

    fn end(&mut self, settled: u64, _: &Trail) {
        if self.wants_acks && settled > self.acked {
            self.acked = settled;
            self.answer(&json!({"settled": settled}));
        }
    }

    fn is_over(&mut self) -> bool {
        self.cut.is_some() || self.signals.asked_to_stop()
    }
}
