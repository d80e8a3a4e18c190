//! A frame out and in: what the shard writes for each trigger, and what a reader makes of it.

use super::{Body, Size};
use crate::support::ids::{COUNT, Item, items};
use fencepost::wire;
use std::hint::black_box;

/// Frames of a run.
pub fn operations(size: Size) -> u64 {
    size.pick(256, COUNT as u64)
}

/// All of them, each in bytes of its own, decoded and compared.
fn encoded(items: &[Item]) -> Vec<Vec<u8>> {
    let encode = |(at, item): (usize, &Item)| {
        let frame = item.frame(at);
        let mut place = vec![0; wire::encoded_len(&frame)];
        assert_eq!(wire::encode(&frame, &mut place), place.len());
        assert_eq!(wire::decode(&place).expect("our own frame").frame, frame, "what went in comes out");
        place
    };
    items.iter().enumerate().map(encode).collect()
}

fn bytes_of(items: &[Item]) -> u64 {
    encoded(items).iter().map(|bytes| bytes.len() as u64).sum()
}

/// A frame into its place.
pub struct Encode {
    items: Vec<Item>,
    place: Box<[u8; wire::FRAME_BYTES_MAX]>,
    runs: u64,
    bytes: u64,
}

impl Encode {
    pub fn new(ids: &str, size: Size) -> Encode {
        let items = items(ids, operations(size) as usize);
        Encode { items, place: Box::new([0; wire::FRAME_BYTES_MAX]), runs: 0, bytes: 0 }
    }
}

impl Body for Encode {
    fn run(&mut self) {
        for (at, item) in self.items.iter().enumerate() {
            let frame = item.frame(at);
            self.bytes += wire::encode(black_box(&frame), &mut self.place[..]) as u64;
            black_box(&mut self.place);
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        let all = encoded(&self.items);
        assert_eq!(self.bytes, self.runs * bytes_of(&self.items));
        let last = &all[all.len() - 1];
        assert_eq!(&self.place[..last.len()], &last[..], "the last frame stands where it was written");
    }
}

/// How long a frame will be, asked before its place is taken.
pub struct Length {
    items: Vec<Item>,
    runs: u64,
    bytes: u64,
}

impl Length {
    pub fn new(ids: &str, size: Size) -> Length {
        Length { items: items(ids, operations(size) as usize), runs: 0, bytes: 0 }
    }
}

impl Body for Length {
    fn run(&mut self) {
        for (at, item) in self.items.iter().enumerate() {
            let frame = item.frame(at);
            self.bytes += wire::encoded_len(black_box(&frame)) as u64;
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        assert_eq!(self.bytes, self.runs * bytes_of(&self.items));
    }
}

/// A frame read, all of its fields.
pub struct Decode {
    frames: Vec<Vec<u8>>,
    items: Vec<Item>,
    runs: u64,
    seqs: u64,
}

impl Decode {
    pub fn new(ids: &str, size: Size) -> Decode {
        let items = items(ids, operations(size) as usize);
        Decode { frames: encoded(&items), items, runs: 0, seqs: 0 }
    }
}

impl Body for Decode {
    fn run(&mut self) {
        for bytes in &self.frames {
            let decoded = wire::decode(black_box(bytes)).expect("our own frame");
            self.seqs += black_box(&decoded).frame.partition_seq;
        }
        self.runs += 1;
    }

    fn check(&mut self) {
        let seqs: u64 = self.items.iter().enumerate().map(|(at, item)| item.frame(at).partition_seq).sum();
        assert_eq!(self.seqs, self.runs * seqs);
    }
}
