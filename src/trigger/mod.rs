//! A trigger: the decision that a device entered, left or dwells in a fence. The rules it must obey are one list in
//! [`rules`]; its identity for deduplication is its [`Key`].

mod key;
pub mod rules;

pub use key::{KEY_BYTES_MAX, Key};
pub use rules::{Reason, Rules, Unit};

/// What the device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// The device came into the fence.
    Enter = 1,
    /// The device left the fence.
    Exit = 2,
    /// The device has been inside for as long as the evaluator calls a dwell.
    Dwell = 3,
}

/// Who is shed first when a queue fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Shed from 80 % of a ring on.
    Low = 1,
    /// Shed from 90 % of a ring on.
    #[default]
    Normal = 2,
    /// Shed only when the ring is full.
    High = 3,
}

/// One trigger, borrowed from the caller for the time of a `submit`.
///
/// The ids are text by type. Bytes from a C caller or a socket come in through [`Trigger::from_bytes`], which refuses
/// broken UTF-8 with its own reason. Every other rule of a trigger is checked at submit (see [`rules`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger<'a> {
    /// Who moved. 1 to 256 bytes; any script, colons, `#` and NUL are legal.
    pub device_id: &'a str,
    /// Which fence. 1 to 256 bytes.
    pub fence_id: &'a str,
    /// What happened.
    pub state: State,
    /// When it happened, in Unix milliseconds.
    pub event_time_ms: i64,
    /// Who is shed first.
    pub priority: Priority,
    /// Opaque bytes for the consumer, at most 1 KiB.
    pub attributes: &'a [u8],
}

impl<'a> Trigger<'a> {
    /// A trigger of normal priority without attributes.
    #[must_use]
    pub const fn new(device_id: &'a str, fence_id: &'a str, state: State, event_time_ms: i64) -> Trigger<'a> {
        Trigger { device_id, fence_id, state, event_time_ms, priority: Priority::Normal, attributes: &[] }
    }

    /// The same trigger with another priority.
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Trigger<'a> {
        self.priority = priority;
        self
    }

    /// The same trigger with attributes.
    #[must_use]
    pub const fn with_attributes(mut self, attributes: &'a [u8]) -> Trigger<'a> {
        self.attributes = attributes;
        self
    }

    /// A trigger whose ids come from outside as bytes.
    ///
    /// # Errors
    /// [`Reason::DeviceIdNotUtf8`] and [`Reason::FenceIdNotUtf8`], with the number of good bytes in front of the bad one.
    pub fn from_bytes(
        device_id: &'a [u8],
        fence_id: &'a [u8],
        state: State,
        event_time_ms: i64,
    ) -> Result<Trigger<'a>, Reason> {
        let device_id = std::str::from_utf8(device_id)
            .map_err(|error| Reason::DeviceIdNotUtf8 { valid_up_to: error.valid_up_to() })?;
        let fence_id = std::str::from_utf8(fence_id)
            .map_err(|error| Reason::FenceIdNotUtf8 { valid_up_to: error.valid_up_to() })?;
        Ok(Trigger::new(device_id, fence_id, state, event_time_ms))
    }

    /// The idempotency key.
    #[must_use]
    pub const fn key(&self) -> Key<'a> {
        Key {
            device_id: self.device_id.as_bytes(),
            fence_id: self.fence_id.as_bytes(),
            state: self.state,
            event_second: self.event_time_ms.div_euclid(1_000),
        }
    }
}

impl State {
    /// From its number on the wire.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<State> {
        match number {
            1 => Some(State::Enter),
            2 => Some(State::Exit),
            3 => Some(State::Dwell),
            _ => None,
        }
    }

    /// Its name in JSON and on a screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Enter => "enter",
            State::Exit => "exit",
            State::Dwell => "dwell",
        }
    }
}

impl Priority {
    /// From its number on the wire.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Priority> {
        match number {
            1 => Some(Priority::Low),
            2 => Some(Priority::Normal),
            3 => Some(Priority::High),
            _ => None,
        }
    }

    /// Its name in JSON and on a screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::UnixMs;

    #[test]
    fn numbers_and_names_go_both_ways() {
        for state in [State::Enter, State::Exit, State::Dwell] {
            assert_eq!(State::from_number(state as u8), Some(state));
        }
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            assert_eq!(Priority::from_number(priority as u8), Some(priority));
        }
        for number in [0, 4, 255] {
            assert_eq!(State::from_number(number), None);
            assert_eq!(Priority::from_number(number), None);
        }
        assert_eq!([State::Enter, State::Exit, State::Dwell].map(State::name), ["enter", "exit", "dwell"]);
        assert_eq!([Priority::Low, Priority::Normal, Priority::High].map(Priority::name), ["low", "normal", "high"]);
        assert!(Priority::Low < Priority::Normal && Priority::Normal < Priority::High);
    }

    /// Every id that is text of 1 to 256 bytes is taken as it is, whatever it holds; anything else has its own reason.
    #[test]
    fn hostile_ids_are_kept_byte_for_byte_or_refused_by_name() {
        let now = UnixMs(1_772_000_000_000);
        let longest = "\u{1f69a}".repeat(64);
        assert_eq!(longest.len(), 256);
        for id in ["\0", "a\0b", ":", "a:b", "#", "veh#3", " ", "\n", "車両-12", "сяй", &longest] {
            for (device, fence) in [(id, "f"), ("d", id), (id, id)] {
                let trigger = Trigger::from_bytes(device.as_bytes(), fence.as_bytes(), State::Enter, now.0).unwrap();
                assert_eq!(trigger.device_id.as_bytes(), device.as_bytes());
                assert_eq!(trigger.fence_id.as_bytes(), fence.as_bytes());
                assert_eq!(rules::check(&trigger, now, &Rules::default()), Ok(()), "{device:?} {fence:?}");
            }
        }
        let too_long = [b'x'; 257];
        let device = Trigger::from_bytes(&too_long, b"f", State::Enter, now.0).unwrap();
        assert_eq!(rules::check(&device, now, &Rules::default()), Err(Reason::DeviceIdTooLong { len: 257 }));
        let fence = Trigger::from_bytes(b"d", &too_long, State::Enter, now.0).unwrap();
        assert_eq!(rules::check(&fence, now, &Rules::default()), Err(Reason::FenceIdTooLong { len: 257 }));
        for (broken, valid_up_to) in [
            (&b"\xff"[..], 0),
            (b"ab\xc3", 2),         // a character cut off
            (b"ok\xed\xa0\x80", 2), // half of a surrogate pair
            (b"\xc0\x80", 0),       // NUL in two bytes
            (b"abc\xf5\x80\x80\x80", 3),
        ] {
            assert_eq!(
                Trigger::from_bytes(broken, b"f", State::Enter, now.0),
                Err(Reason::DeviceIdNotUtf8 { valid_up_to })
            );
            assert_eq!(
                Trigger::from_bytes(b"d", broken, State::Enter, now.0),
                Err(Reason::FenceIdNotUtf8 { valid_up_to })
            );
        }
    }

    #[test]
    fn the_key_takes_whole_seconds_rounded_down() {
        for (ms, second) in [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (-1, -1), (-1_000, -1), (-1_001, -2)] {
            assert_eq!(Trigger::new("d", "f", State::Enter, ms).key().event_second, second, "{ms} ms");
        }
    }
}
