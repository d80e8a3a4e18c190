//! Frames with their length in front. The first byte chooses the longest that is taken; the others are the stream. It
//! gives each frame once, with its number and its bytes as they came, in whatever blocks they came; a length above the
//! limit costs that frame and no memory; a source that ends within a frame says how much is missing.

use super::stream::{self, Event, Out, Way, owned, said};
use fencepost::source::{Fault, Format, Position, frames};

/// See the module.
pub fn check(bytes: &[u8]) {
    let Some((first, stream)) = bytes.split_first() else { return };
    let limit = [3, 40, 300, 2_000][usize::from(first % 4)];
    stream::check(Format::Frames, limit, stream, model);
}

fn model(way: Way, bytes: &[u8]) -> Out {
    let mut out = Out { events: Vec::new(), position: Position::default(), has_left: false };
    let mut rest = bytes;
    while !rest.is_empty() {
        let number = out.position.lines + 1;
        let (length, content) = rest.split_at(rest.len().min(frames::LENGTH_BYTES));
        let length = <[u8; 4]>::try_from(length).ok().map(u32::from_be_bytes);
        let (outcome, raw, taken) = match length {
            Some(len) if len as usize > way.limit => {
                let here = content.len().min(len as usize);
                let raw = &content[..here.min(way.limit)];
                let fault = Fault::FrameTooLong { len, limit: way.limit };
                // Before so much is there, nobody says that it is too long: more may come.
                let is_unfinished = content.len() < way.limit;
                if is_unfinished && way.leaves_unfinished {
                    out.has_left = true;
                    break;
                }
                (Err(said(&fault)), raw, frames::LENGTH_BYTES + here)
            }
            Some(len) if content.len() >= len as usize => {
                let frame = &content[..len as usize];
                let parsed = frames::parse(frame).map(|trigger| owned(&trigger));
                (parsed.map_err(|error| said(&Fault::from(error))), frame, frames::LENGTH_BYTES + frame.len())
            }
            _ if way.leaves_unfinished => {
                out.has_left = true;
                break;
            }
            Some(len) => {
                let fault = Fault::FrameCut { missing: len as usize - content.len() };
                (Err(said(&fault)), content, rest.len())
            }
            None => {
                let fault = Fault::FrameCut { missing: frames::LENGTH_BYTES - rest.len() };
                (Err(said(&fault)), rest, rest.len())
            }
        };
        if number > way.known {
            out.events.push(Event { line: number, outcome, raw: raw.to_vec() });
        }
        out.position = Position { lines: number, offset: out.position.offset + taken as u64 };
        rest = &rest[taken..];
    }
    out
}
