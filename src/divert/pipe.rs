//! A pipe: messages of one thread to another, bytes in a ring of fixed size. A message is a head of 32 bytes and a body;
//! it is there as a whole or not at all.

use crate::sync::rtrb::{Consumer, Producer, RingBuffer};

/// What precedes each body. The last four bytes hold the body's length.
pub(super) const HEAD: usize = 32;
/// Where in the head the body's length is.
const LENGTH_AT: usize = HEAD - 4;

/// The writing end.
pub(super) struct PipeWriter(Producer<u8>);

/// The reading end.
pub(super) struct PipeReader {
    bytes: Consumer<u8>,
    body: Vec<u8>,
}

/// A pipe for so many bytes, whose bodies are at most `body_max` long.
pub(super) fn pipe(bytes: usize, body_max: usize) -> (PipeWriter, PipeReader) {
    let (producer, consumer) = RingBuffer::new(bytes);
    (PipeWriter(producer), PipeReader { bytes: consumer, body: Vec::with_capacity(body_max) })
}

impl PipeWriter {
    /// Bytes of heads and bodies that fit now.
    pub(super) fn room(&self) -> usize {
        self.0.slots()
    }

    /// Writes a message. False: there is no room; nothing was written.
    pub(super) fn write(&mut self, head: [u8; HEAD], body: &[u8]) -> bool {
        self.write_three(head, body, &[], &[])
    }

    /// As [`PipeWriter::write`], with a body in three parts.
    pub(super) fn write_three(&mut self, mut head: [u8; HEAD], body: &[u8], second: &[u8], third: &[u8]) -> bool {
        let length = body.len() + second.len() + third.len();
        head[LENGTH_AT..].copy_from_slice(&(length as u32).to_le_bytes());
        let Ok(mut chunk) = self.0.write_chunk(HEAD + length) else { return false };
        let (front, back) = chunk.as_mut_slices();
        copy_in(front, back, 0, &head);
        copy_in(front, back, HEAD, body);
        copy_in(front, back, HEAD + body.len(), second);
        copy_in(front, back, HEAD + body.len() + second.len(), third);
        chunk.commit_all();
        true
    }
}

impl PipeReader {
    /// The next message's head, left where it is.
    pub(super) fn peek(&mut self) -> Option<[u8; HEAD]> {
        let chunk = self.bytes.read_chunk(HEAD).ok()?;
        let (first, second) = chunk.as_slices();
        let mut head = [0; HEAD];
        copy_out(first, second, 0, &mut head);
        Some(head)
    }

    /// The next message; it stays until [`PipeReader::pop`].
    pub(super) fn front(&mut self) -> Option<([u8; HEAD], &[u8])> {
        let head = self.peek()?;
        let length = length_in(&head);
        // A message is published as a whole: who sees its head sees its body.
        let chunk = self.bytes.read_chunk(HEAD + length).expect("a message is there as a whole");
        self.body.resize(length, 0);
        let (first, second) = chunk.as_slices();
        copy_out(first, second, HEAD, &mut self.body);
        Some((head, &self.body))
    }

    /// Takes out the message that [`PipeReader::front`] shows.
    pub(super) fn pop(&mut self) {
        let length = self.body.len();
        self.bytes.read_chunk(HEAD + length).expect("the message is there").commit_all();
    }

    /// The next message, taken out.
    pub(super) fn read(&mut self) -> Option<([u8; HEAD], &[u8])> {
        let (head, _) = self.front()?;
        self.pop();
        Some((head, &self.body))
    }
}

fn length_in(head: &[u8; HEAD]) -> usize {
    u32::from_le_bytes([head[LENGTH_AT], head[LENGTH_AT + 1], head[LENGTH_AT + 2], head[LENGTH_AT + 3]]) as usize
}

/// Copies `from` to place `at` of two slices that follow on one another.
fn copy_in(first: &mut [u8], second: &mut [u8], at: usize, from: &[u8]) {
    let split = first.len().saturating_sub(at).min(from.len());
    if split > 0 {
        first[at..at + split].copy_from_slice(&from[..split]);
    }
    let rest = &from[split..];
    if !rest.is_empty() {
        let start = (at + split) - first.len();
        second[start..start + rest.len()].copy_from_slice(rest);
    }
}

/// The reverse of [`copy_in`].
fn copy_out(first: &[u8], second: &[u8], at: usize, into: &mut [u8]) {
    let split = first.len().saturating_sub(at).min(into.len());
    if split > 0 {
        into[..split].copy_from_slice(&first[at..at + split]);
    }
    let rest = &mut into[split..];
    if !rest.is_empty() {
        let start = (at + split) - first.len();
        let length = rest.len();
        rest.copy_from_slice(&second[start..start + length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn a_pipe_is_a_queue_of_messages(steps in prop::collection::vec((any::<bool>(), any::<u8>(), 0usize..200), 1..400)) {
            let (mut writer, mut reader) = pipe(512, 200);
            let mut model: VecDeque<(u8, Vec<u8>)> = VecDeque::new();
            for (is_write, mark, length) in steps {
                if is_write {
                    let used: usize = model.iter().map(|(_, body)| HEAD + body.len()).sum();
                    let body = vec![mark; length];
                    let mut head = [0; HEAD];
                    head[0] = mark;
                    let fits = used + HEAD + length <= 512;
                    prop_assert_eq!(writer.room(), 512 - used);
                    prop_assert_eq!(writer.write(head, &body), fits);
                    if fits {
                        model.push_back((mark, body));
                    }
                } else {
                    prop_assert_eq!(reader.peek().map(|head| head[0]), model.front().map(|(mark, _)| *mark));
                    let got = reader.read().map(|(head, body)| (head[0], body.to_vec()));
                    prop_assert_eq!(got, model.pop_front());
                }
            }
        }
    }
}
