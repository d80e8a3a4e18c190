//! Moves the leadership of a partition gracefully, and for next to nothing: two requests of Kafka's protocol over a
//! connection that is open beforehand. Kafka's own tools start a Java machine for each, which takes every core of a small
//! machine for seconds; beside that, no latency means anything.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The requests, by their numbers in the protocol. Any broker passes them on to the controller.
const ELECT_LEADERS: i16 = 43;
const ALTER_PARTITION_REASSIGNMENTS: i16 = 45;
/// What the cluster gets for its answer.
const LIMIT: Duration = Duration::from_secs(30);
const PREFERRED: u8 = 0;
/// The preferred replica leads already: as good as done.
const NOT_NEEDED: i16 = 84;

/// One connection to a cluster.
pub struct Leaders {
    stream: TcpStream,
    requests: i32,
}

impl Leaders {
    pub fn connect(bootstrap: &str) -> Leaders {
        let broker = bootstrap.split(',').next().expect("split gives at least one");
        let stream = TcpStream::connect(broker).unwrap_or_else(|error| panic!("{broker}: {error}"));
        stream.set_nodelay(true).expect("a socket may");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket may");
        Leaders { stream, requests: 0 }
    }

    /// Gives a partition's replicas this order. The first is the one that an election prefers; nothing moves yet.
    pub fn reorder(&mut self, topic: &str, partition: u32, replicas: &[i32]) -> Result<(), String> {
        let mut body = limit_ms();
        compact_len(&mut body, 1);
        compact_text(&mut body, topic);
        compact_len(&mut body, 1);
        body.extend((partition as i32).to_be_bytes());
        compact_len(&mut body, replicas.len());
        replicas.iter().for_each(|replica| body.extend(replica.to_be_bytes()));
        // No tagged fields: of the partition, of the topic, of the request.
        body.extend([0, 0, 0]);
        let answer = self.ask(ALTER_PARTITION_REASSIGNMENTS, 0, true, &body).map_err(|error| error.to_string())?;
        let mut answer = Answer(&answer);
        answer.take(4);
        let whole = answer.i16();
        answer.compact_text();
        refused(whole)?;
        for _ in 0..answer.compact_count() {
            answer.compact_text();
            for _ in 0..answer.compact_count() {
                answer.take(4);
                refused(answer.i16())?;
                answer.compact_text();
                answer.take(1);
            }
            answer.take(1);
        }
        Ok(())
    }

    /// Makes the preferred replica the leader. Returns when the controller has decided it.
    pub fn elect(&mut self, topic: &str, partition: u32) -> Result<(), String> {
        let mut body = vec![PREFERRED];
        body.extend(1_i32.to_be_bytes());
        text(&mut body, topic);
        body.extend(1_i32.to_be_bytes());
        body.extend((partition as i32).to_be_bytes());
        body.extend(limit_ms());
        let answer = self.ask(ELECT_LEADERS, 1, false, &body).map_err(|error| error.to_string())?;
        let mut answer = Answer(&answer);
        answer.take(4);
        let whole = answer.i16();
        refused(if whole == NOT_NEEDED { 0 } else { whole })?;
        for _ in 0..answer.i32() {
            answer.text();
            for _ in 0..answer.i32() {
                answer.take(4);
                let code = answer.i16();
                refused(if code == NOT_NEEDED { 0 } else { code })?;
                answer.text();
            }
        }
        Ok(())
    }

    /// Sends one request, and takes its answer without the header. `is_flexible`: with tagged fields, in both headers too.
    fn ask(&mut self, request: i16, version: i16, is_flexible: bool, body: &[u8]) -> std::io::Result<Vec<u8>> {
        self.requests += 1;
        let mut bytes = vec![0; 4];
        bytes.extend(request.to_be_bytes());
        bytes.extend(version.to_be_bytes());
        bytes.extend(self.requests.to_be_bytes());
        text(&mut bytes, "fencepost-tests");
        if is_flexible {
            bytes.push(0);
        }
        bytes.extend(body);
        let len = (bytes.len() - 4) as i32;
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        self.stream.write_all(&bytes)?;
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let mut answer = vec![0; i32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut answer)?;
        assert_eq!(Answer(&answer).i32(), self.requests, "one request is under way at a time");
        answer.drain(..if is_flexible { 5 } else { 4 });
        Ok(answer)
    }
}

fn refused(code: i16) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("the cluster answers with error {code}")) }
}

fn limit_ms() -> Vec<u8> {
    (LIMIT.as_millis() as i32).to_be_bytes().to_vec()
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as i16).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Lengths of the flexible versions: one more than it is, 0 for nothing at all.
fn compact_len(out: &mut Vec<u8>, len: usize) {
    let mut rest = len + 1;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn compact_text(out: &mut Vec<u8>, text: &str) {
    compact_len(out, text.len());
    out.extend(text.as_bytes());
}

/// What is left of an answer. One that is cut short is a broken cluster, and a panic.
struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    /// Passes over a text, or none.
    fn text(&mut self) {
        let len = self.i16();
        self.take(len.max(0) as usize);
    }

    fn compact_count(&mut self) -> usize {
        let (mut len, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            len |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return len.saturating_sub(1);
            }
            shift += 7;
        }
    }

    fn compact_text(&mut self) {
        let len = self.compact_count();
        self.take(len);
    }
}
