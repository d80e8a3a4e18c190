//! Every rule of a trigger, in one list: [`check`]. A breach is refused at submit with its own [`Reason`] and is never
//! sent. Each limit is a constant or a field of [`Rules`]; the check and the message read the same one.
//!
//! A pure function of the trigger, the wall clock's time and the limits; it allocates nothing. Cost: one compare a rule,
//! all of them predicted (`benches/rules.rs`).

use super::Trigger;
use crate::units::UnixMs;
use std::fmt;
use std::ops::RangeInclusive;
use thiserror::Error;

/// How many bytes a device id and a fence id may have.
pub const ID_BYTES: RangeInclusive<usize> = 1..=256;

/// How many bytes of attributes a trigger may carry.
pub const ATTRIBUTES_BYTES_MAX: usize = 1_024;

/// The default of [`Rules::future_limit_ms`]: 5 minutes.
pub const FUTURE_LIMIT_MS: i64 = 5 * MINUTE_MS;

/// The default of [`Rules::past_limit_ms`]: 7 days.
pub const PAST_LIMIT_MS: i64 = 7 * DAY_MS;

/// The first millisecond of GPS time, 6 January 1980: no position fix of a geofence is older.
const GPS_EPOCH_MS: i64 = 315_964_800_000;

/// How far ahead of the clock a date may lie to be read as a date at all, when guessing the unit of a time.
const PLAUSIBLE_AHEAD_MS: i64 = 10 * YEAR_MS;

/// 1 January 1990. A time below it may be seconds, see [`check`]; seconds of any plausible date are far below it.
const YEAR_1990_MS: i64 = 631_152_000_000;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;

/// The limits that a configuration sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How far ahead of the router's clock an event time may be (`time.future_limit`).
    pub future_limit_ms: i64,
    /// How old an event time may be (`time.past_limit`); `None` is "off", for sources that replay old data.
    pub past_limit_ms: Option<i64>,
}

impl Default for Rules {
    /// 5 minutes ahead, 7 days back.
    fn default() -> Rules {
        Rules { future_limit_ms: FUTURE_LIMIT_MS, past_limit_ms: Some(PAST_LIMIT_MS) }
    }
}

/// Checks every rule of a trigger; the first one broken is the answer.
///
/// A time in the wrong unit is caught whatever [`Rules::past_limit_ms`] says. Micro- and nanoseconds lie tens of
/// thousands of years ahead, so the future limit refuses them. Seconds read as milliseconds are a day of January 1970,
/// which only a past limit would refuse; so a time before 1990 that is a date between 1980, when GPS time began, and
/// ten years from now once it is read as seconds, is refused for that alone. No real event is lost to that rule: in
/// January 1970 nothing could have been located.
///
/// # Errors
/// The [`Reason`] to hand back to the caller; it says what came, what is allowed and what to mend.
///
/// ```
/// use fencepost::trigger::rules::{self, Reason, Rules, Unit};
/// use fencepost::trigger::{State, Trigger};
/// use fencepost::units::UnixMs;
///
/// let now = UnixMs(1_700_000_000_000);
/// let seconds = Trigger::new("bus-7", "depot", State::Enter, 1_700_000_000);
/// let Err(reason) = rules::check(&seconds, now, &Rules::default()) else { panic!() };
/// assert!(matches!(reason, Reason::EventTimeTooOld { looks_like: Unit::Seconds, .. }));
/// ```
#[inline]
pub fn check(trigger: &Trigger<'_>, now: UnixMs, rules: &Rules) -> Result<(), Reason> {
    let device = trigger.device_id.len();
    let fence = trigger.fence_id.len();
    let attributes = trigger.attributes.len();
    let got = trigger.event_time_ms;

    if device < *ID_BYTES.start() {
        return Err(Reason::EmptyDeviceId);
    }
    if device > *ID_BYTES.end() {
        return Err(Reason::DeviceIdTooLong { len: device });
    }
    if fence < *ID_BYTES.start() {
        return Err(Reason::EmptyFenceId);
    }
    if fence > *ID_BYTES.end() {
        return Err(Reason::FenceIdTooLong { len: fence });
    }
    if attributes > ATTRIBUTES_BYTES_MAX {
        return Err(Reason::AttributesTooLong { len: attributes });
    }
    if got <= 0 {
        return Err(Reason::EventTimeNotPositive { got });
    }
    if got > now.0.saturating_add(rules.future_limit_ms) {
        let looks_like = Unit::guess(got, now);
        return Err(Reason::EventTimeInFuture { got, now: now.0, limit: rules.future_limit_ms, looks_like });
    }
    if let Some(limit) = rules.past_limit_ms
        && got < now.0.saturating_sub(limit)
    {
        return Err(Reason::EventTimeTooOld { got, now: now.0, limit, looks_like: Unit::guess(got, now) });
    }
    if got < YEAR_1990_MS && Unit::guess(got, now) == Unit::Seconds {
        return Err(Reason::EventTimeInSeconds { got });
    }
    Ok(())
}

/// Why a trigger cannot be taken. A retry cannot help; the message says what to mend. Times are Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The device id is not text.
    #[error("device_id is not UTF-8: byte {valid_up_to} starts no character; send the id as UTF-8 text")]
    DeviceIdNotUtf8 {
        /// Good bytes in front of the bad one.
        valid_up_to: usize,
    },
    /// The fence id is not text.
    #[error("fence_id is not UTF-8: byte {valid_up_to} starts no character; send the id as UTF-8 text")]
    FenceIdNotUtf8 {
        /// Good bytes in front of the bad one.
        valid_up_to: usize,
    },
    /// The device id has no bytes: it would be Kafka's null key, and the order per device would be gone.
    #[error("device_id is empty, allowed {allowed:?} bytes; send the id of the device", allowed = ID_BYTES)]
    EmptyDeviceId,
    /// The device id has too many bytes.
    #[error("device_id has {len} bytes, allowed {allowed:?}; shorten the id or send a digest of it", allowed = ID_BYTES)]
    DeviceIdTooLong {
        /// Bytes that came.
        len: usize,
    },
    /// The fence id has no bytes.
    #[error("fence_id is empty, allowed {allowed:?} bytes; send the id of the fence", allowed = ID_BYTES)]
    EmptyFenceId,
    /// The fence id has too many bytes.
    #[error("fence_id has {len} bytes, allowed {allowed:?}; shorten the id or send a digest of it", allowed = ID_BYTES)]
    FenceIdTooLong {
        /// Bytes that came.
        len: usize,
    },
    /// There are too many attribute bytes.
    #[error("attributes have {len} bytes, allowed 0..={ATTRIBUTES_BYTES_MAX}; send a reference to the data instead")]
    AttributesTooLong {
        /// Bytes that came.
        len: usize,
    },
    /// The event time is 1970 or earlier: a field left unset, or an overflow.
    #[error("event_time_ms = {got}, allowed from 1 on; send the time of the event in Unix milliseconds")]
    EventTimeNotPositive {
        /// The time that came.
        got: i64,
    },
    /// The event is later than now by more than the limit.
    #[error(
        "event_time_ms = {got} is {ahead} ahead of the router's clock ({now}), allowed {allowed} \
         (time.future_limit); {fix}",
        ahead = Span(got.saturating_sub(*now)), allowed = Span(*limit), fix = looks_like.fix()
    )]
    EventTimeInFuture {
        /// The time that came.
        got: i64,
        /// The router's clock.
        now: i64,
        /// How far ahead is allowed.
        limit: i64,
        /// The unit in which the time would be a likely date.
        looks_like: Unit,
    },
    /// The event is earlier than now by more than the limit.
    #[error(
        "event_time_ms = {got} is {age} behind the router's clock ({now}), allowed {allowed} (time.past_limit); {fix}",
        age = Span(now.saturating_sub(*got)), allowed = Span(*limit), fix = looks_like.fix_old()
    )]
    EventTimeTooOld {
        /// The time that came.
        got: i64,
        /// The router's clock.
        now: i64,
        /// How old is allowed.
        limit: i64,
        /// The unit in which the time would be a likely date.
        looks_like: Unit,
    },
    /// No limit refuses the event for its age, but it is a day of January 1970, and a likely date if read as seconds.
    #[error("event_time_ms = {got} is a day of January 1970, allowed are Unix milliseconds; {fix}", fix = Unit::Seconds.fix())]
    EventTimeInSeconds {
        /// The time that came.
        got: i64,
    },
    /// The encoded trigger is larger than the topic takes. Found by the router, which knows the topic.
    #[error(
        "the encoded trigger has {size} bytes, allowed {limit} (max.message.bytes of the topic); send fewer attributes \
         or raise the topic's limit"
    )]
    FrameTooLarge {
        /// Bytes of the frame.
        size: usize,
        /// What the topic takes.
        limit: usize,
    },
}

impl Reason {
    /// A short name for metrics and for answers to machines. It never changes; a new reason gets a new one.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Reason::DeviceIdNotUtf8 { .. } => "device_id_not_utf8",
            Reason::FenceIdNotUtf8 { .. } => "fence_id_not_utf8",
            Reason::EmptyDeviceId => "empty_device_id",
            Reason::DeviceIdTooLong { .. } => "device_id_too_long",
            Reason::EmptyFenceId => "empty_fence_id",
            Reason::FenceIdTooLong { .. } => "fence_id_too_long",
            Reason::AttributesTooLong { .. } => "attributes_too_long",
            Reason::EventTimeNotPositive { .. } => "event_time_not_positive",
            Reason::EventTimeInFuture { .. } => "event_time_in_future",
            Reason::EventTimeTooOld { .. } => "event_time_too_old",
            Reason::EventTimeInSeconds { .. } => "event_time_in_seconds",
            Reason::FrameTooLarge { .. } => "frame_too_large",
        }
    }
}

/// The unit a time seems to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// What is asked for; also the answer when no unit makes the time a likely date.
    Milliseconds,
    /// A thousandth of the number that was meant.
    Seconds,
    /// A thousand times the number that was meant.
    Microseconds,
    /// A million times the number that was meant.
    Nanoseconds,
}

impl Unit {
    /// The unit that makes `got` a date between 1980 and ten years from `now`. Such dates differ by less than a factor
    /// of a thousand for centuries to come, so at most one unit does.
    #[cold]
    fn guess(got: i64, now: UnixMs) -> Unit {
        let likely = GPS_EPOCH_MS..=now.0.saturating_add(PLAUSIBLE_AHEAD_MS);
        if likely.contains(&got) {
            Unit::Milliseconds
        } else if likely.contains(&got.saturating_mul(1_000)) {
            Unit::Seconds
        } else if likely.contains(&(got / 1_000)) {
            Unit::Microseconds
        } else if likely.contains(&(got / 1_000_000)) {
            Unit::Nanoseconds
        } else {
            Unit::Milliseconds
        }
    }

    /// Its name, in the plural.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "milliseconds",
            Unit::Seconds => "seconds",
            Unit::Microseconds => "microseconds",
            Unit::Nanoseconds => "nanoseconds",
        }
    }

    /// What to do about a time of this unit that is no good.
    const fn fix(self) -> &'static str {
        match self {
            Unit::Milliseconds => "set the clock that stamps the events, or raise the limit",
            Unit::Seconds => "it looks like seconds: multiply it by 1,000",
            Unit::Microseconds => "it looks like microseconds: divide it by 1,000",
            Unit::Nanoseconds => "it looks like nanoseconds: divide it by 1,000,000",
        }
    }

    /// The same for a time that is too old: old data may be what the sender means to send.
    const fn fix_old(self) -> &'static str {
        match self {
            Unit::Milliseconds => "raise the limit or set it to \"off\" to send old events",
            other => other.fix(),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Milliseconds for people: the largest unit that leaves a whole part, with one decimal where there is a rest.
struct Span(i64);

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SCALE: [(i64, &str); 5] =
            [(YEAR_MS, "y"), (DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")];
        let ms = self.0;
        match SCALE.iter().find(|(unit, _)| ms >= *unit) {
            None => write!(out, "{ms} ms"),
            Some((unit, name)) if ms % unit == 0 => write!(out, "{} {name}", ms / unit),
            Some((unit, name)) => write!(out, "{}.{} {name}", ms / unit, ms % unit / (unit / 10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::State;

    const NOW: UnixMs = UnixMs(1_772_000_000_000);
    const OFF: Rules = Rules { future_limit_ms: FUTURE_LIMIT_MS, past_limit_ms: None };

    /// The check with the default rules, of a trigger that is right but for what the arguments say.
    fn judge(device: &str, fence: &str, attributes: &[u8]) -> Result<(), Reason> {
        check(&Trigger::new(device, fence, State::Enter, NOW.0).with_attributes(attributes), NOW, &Rules::default())
    }

    fn judge_time(got: i64, rules: &Rules) -> Result<(), Reason> {
        check(&Trigger::new("d", "f", State::Dwell, got), NOW, rules)
    }

    #[test]
    fn the_documented_limits() {
        assert_eq!(ID_BYTES, 1..=256);
        assert_eq!(ATTRIBUTES_BYTES_MAX, 1_024);
        assert_eq!(Rules::default(), Rules { future_limit_ms: 300_000, past_limit_ms: Some(604_800_000) });
    }

    #[test]
    fn ids_at_each_edge() {
        for (len, device, fence) in [
            (0, Err(Reason::EmptyDeviceId), Err(Reason::EmptyFenceId)),
            (1, Ok(()), Ok(())),
            (2, Ok(()), Ok(())),
            (255, Ok(()), Ok(())),
            (256, Ok(()), Ok(())),
            (257, Err(Reason::DeviceIdTooLong { len: 257 }), Err(Reason::FenceIdTooLong { len: 257 })),
            (70_000, Err(Reason::DeviceIdTooLong { len: 70_000 }), Err(Reason::FenceIdTooLong { len: 70_000 })),
        ] {
            let id = "x".repeat(len);
            assert_eq!(judge(&id, "f", &[]), device, "device_id of {len} bytes");
            assert_eq!(judge("d", &id, &[]), fence, "fence_id of {len} bytes");
        }
    }

    #[test]
    fn bytes_count_not_characters() {
        assert_eq!(judge(&"é".repeat(128), "f", &[]), Ok(()));
        assert_eq!(judge(&"é".repeat(129), "f", &[]), Err(Reason::DeviceIdTooLong { len: 258 }));
    }

    #[test]
    fn attributes_at_each_edge() {
        for (len, want) in
            [(0, Ok(())), (1_023, Ok(())), (1_024, Ok(())), (1_025, Err(Reason::AttributesTooLong { len: 1_025 }))]
        {
            assert_eq!(judge("d", "f", &vec![0xff; len]), want, "{len} bytes");
        }
    }

    #[test]
    fn event_time_not_positive_at_each_edge() {
        for got in [i64::MIN, -1, 0] {
            assert_eq!(judge_time(got, &OFF), Err(Reason::EventTimeNotPositive { got }));
        }
        assert_eq!(judge_time(1, &OFF), Ok(()));
        assert_eq!(judge_time(2, &OFF), Ok(()));
    }

    #[test]
    fn event_time_ahead_at_each_edge() {
        let limit = FUTURE_LIMIT_MS;
        for rules in [Rules::default(), OFF] {
            assert_eq!(judge_time(NOW.0 + limit - 1, &rules), Ok(()));
            assert_eq!(judge_time(NOW.0 + limit, &rules), Ok(()));
            let got = NOW.0 + limit + 1;
            let want = Reason::EventTimeInFuture { got, now: NOW.0, limit, looks_like: Unit::Milliseconds };
            assert_eq!(judge_time(got, &rules), Err(want));
        }
    }

    #[test]
    fn event_time_behind_at_each_edge() {
        let limit = PAST_LIMIT_MS;
        let got = NOW.0 - limit - 1;
        let want = Reason::EventTimeTooOld { got, now: NOW.0, limit, looks_like: Unit::Milliseconds };
        assert_eq!(judge_time(got, &Rules::default()), Err(want));
        assert_eq!(judge_time(NOW.0 - limit, &Rules::default()), Ok(()));
        assert_eq!(judge_time(NOW.0 - limit + 1, &Rules::default()), Ok(()));
        assert_eq!(judge_time(got, &OFF), Ok(()), "off takes old events");
    }

    #[test]
    fn a_time_in_the_wrong_unit_is_named() {
        let seconds = NOW.0 / 1_000;
        let limit = PAST_LIMIT_MS;
        let looks_like = Unit::Seconds;
        assert_eq!(
            judge_time(seconds, &Rules::default()),
            Err(Reason::EventTimeTooOld { got: seconds, now: NOW.0, limit, looks_like })
        );
        for (got, looks_like) in [
            (NOW.0 * 1_000, Unit::Microseconds),
            (NOW.0 * 1_000_000, Unit::Nanoseconds),
            (i64::MAX, Unit::Milliseconds),
            (NOW.0 + 11 * YEAR_MS, Unit::Milliseconds),
        ] {
            let want = Reason::EventTimeInFuture { got, now: NOW.0, limit: FUTURE_LIMIT_MS, looks_like };
            assert_eq!(judge_time(got, &Rules::default()), Err(want));
            assert_eq!(judge_time(got, &OFF), Err(want));
        }
    }

    #[test]
    fn seconds_are_caught_without_a_past_limit_too() {
        let earliest = GPS_EPOCH_MS / 1_000;
        let latest = (NOW.0 + PLAUSIBLE_AHEAD_MS) / 1_000;
        for got in [earliest, earliest + 1, NOW.0 / 1_000, 1_224_730_000, latest - 1, latest] {
            assert_eq!(judge_time(got, &OFF), Err(Reason::EventTimeInSeconds { got }));
            let sixty_years = Rules { past_limit_ms: Some(60 * YEAR_MS), ..OFF };
            assert_eq!(judge_time(got, &sixty_years), Err(Reason::EventTimeInSeconds { got }));
        }
        for got in [earliest - 1, latest + 1, YEAR_1990_MS - 1, YEAR_1990_MS, GPS_EPOCH_MS] {
            assert_eq!(judge_time(got, &OFF), Ok(()));
        }
    }

    #[test]
    fn a_clock_or_limit_at_the_end_of_its_range_is_no_panic() {
        let wide = Rules { future_limit_ms: i64::MAX, past_limit_ms: Some(i64::MAX) };
        for now in [i64::MIN, -1, 0, 1, i64::MAX] {
            for got in [i64::MIN, 0, 1, i64::MAX] {
                let trigger = Trigger::new("d", "f", State::Exit, got);
                for rules in [wide, Rules::default(), OFF] {
                    if let Err(reason) = check(&trigger, UnixMs(now), &rules) {
                        assert!(!reason.to_string().is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_rule_broken_is_the_answer() {
        let all_wrong = Trigger::new("", "", State::Enter, -1).with_attributes(&[0; 1_025]);
        assert_eq!(check(&all_wrong, NOW, &Rules::default()), Err(Reason::EmptyDeviceId));
    }

    #[test]
    fn messages_name_the_field_what_came_what_is_allowed_and_the_fix() {
        let future = |got, looks_like| Reason::EventTimeInFuture { got, now: NOW.0, limit: 300_000, looks_like };
        let old = |got, looks_like| Reason::EventTimeTooOld { got, now: NOW.0, limit: PAST_LIMIT_MS, looks_like };
        for (reason, want) in [
            (Reason::EmptyDeviceId, "device_id is empty, allowed 1..=256 bytes; send the id of the device"),
            (
                Reason::FenceIdTooLong { len: 257 },
                "fence_id has 257 bytes, allowed 1..=256; shorten the id or send a digest of it",
            ),
            (
                Reason::AttributesTooLong { len: 1_025 },
                "attributes have 1025 bytes, allowed 0..=1024; send a reference to the data instead",
            ),
            (
                Reason::EventTimeNotPositive { got: 0 },
                "event_time_ms = 0, allowed from 1 on; send the time of the event in Unix milliseconds",
            ),
            (
                future(1_772_000_360_000, Unit::Milliseconds),
                "event_time_ms = 1772000360000 is 6 min ahead of the router's clock (1772000000000), allowed 5 min \
                 (time.future_limit); set the clock that stamps the events, or raise the limit",
            ),
            (
                future(1_772_000_000_000_000, Unit::Microseconds),
                "event_time_ms = 1772000000000000 is 56133.5 y ahead of the router's clock (1772000000000), \
                 allowed 5 min (time.future_limit); it looks like microseconds: divide it by 1,000",
            ),
            (
                old(1_772_000_000, Unit::Seconds),
                "event_time_ms = 1772000000 is 56.1 y behind the router's clock (1772000000000), allowed 7 d \
                 (time.past_limit); it looks like seconds: multiply it by 1,000",
            ),
            (
                old(1_771_308_799_999, Unit::Milliseconds),
                "event_time_ms = 1771308799999 is 8.0 d behind the router's clock (1772000000000), allowed 7 d \
                 (time.past_limit); raise the limit or set it to \"off\" to send old events",
            ),
            (
                Reason::EventTimeInSeconds { got: 1_224_730_000 },
                "event_time_ms = 1224730000 is a day of January 1970, allowed are Unix milliseconds; it looks like \
                 seconds: multiply it by 1,000",
            ),
            (
                Reason::FrameTooLarge { size: 1_200, limit: 1_000 },
                "the encoded trigger has 1200 bytes, allowed 1000 (max.message.bytes of the topic); send fewer \
                 attributes or raise the topic's limit",
            ),
        ] {
            assert_eq!(reason.to_string(), want);
        }
    }

    #[test]
    fn spans_for_people() {
        for (ms, want) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_500, "1.5 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min"),
            (3_600_000, "1 h"),
            (DAY_MS, "1 d"),
            (YEAR_MS, "1 y"),
            (-5, "-5 ms"),
        ] {
            assert_eq!(Span(ms).to_string(), want);
        }
    }

    #[test]
    fn a_reason_is_small_enough_to_return_by_value() {
        assert!(size_of::<Reason>() <= 32, "{}", size_of::<Reason>());
    }

    #[test]
    fn codes_are_pinned() {
        let looks_like = Unit::Seconds;
        let codes = [
            Reason::DeviceIdNotUtf8 { valid_up_to: 0 },
            Reason::FenceIdNotUtf8 { valid_up_to: 0 },
            Reason::EmptyDeviceId,
            Reason::DeviceIdTooLong { len: 0 },
            Reason::EmptyFenceId,
            Reason::FenceIdTooLong { len: 0 },
            Reason::AttributesTooLong { len: 0 },
            Reason::EventTimeNotPositive { got: 0 },
            Reason::EventTimeInFuture { got: 0, now: 0, limit: 0, looks_like },
            Reason::EventTimeTooOld { got: 0, now: 0, limit: 0, looks_like },
            Reason::EventTimeInSeconds { got: 0 },
            Reason::FrameTooLarge { size: 0, limit: 0 },
        ]
        .map(Reason::code);
        assert_eq!(
            codes.join(" "),
            "device_id_not_utf8 fence_id_not_utf8 empty_device_id device_id_too_long empty_fence_id fence_id_too_long \
             attributes_too_long event_time_not_positive event_time_in_future event_time_too_old event_time_in_seconds \
             frame_too_large"
        );
    }
}
