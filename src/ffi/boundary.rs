//! The boundary itself: panics become a status, texts go into the caller's buffer, lengths are judged before a byte is
//! read.

use super::FencepostStatus;
use crate::engine::FailSwitch;
use std::any::Any;
use std::ffi::{CStr, c_char};
use std::fmt::{self, Display, Write};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function. A panic in it is answered with `INTERNAL`, told in `why` and in the log, and
/// fails the router for good.
pub(super) fn guard(
    function: &'static str,
    router: Option<&FailSwitch>,
    why: &mut Why,
    body: impl FnOnce(&mut Why) -> FencepostStatus,
) -> FencepostStatus {
    // What the body leaves half done is not used again: the router it belongs to refuses everything from here on.
    let answer = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(debug_assertions)]
        forced::strike(function);
        body(&mut *why)
    }));
    answer.unwrap_or_else(|panic| {
        if let Some(router) = router {
            router.fail();
        }
        why.say(format_args!("{function} panicked: {}", panic_text(&*panic)));
        // The logger is the host's and may panic too.
        let logged = catch_unwind(|| log::error!("{function} panicked; its router refuses triggers from now on"));
        if let Err(second) = logged {
            mem::forget(second);
        }
        // What was thrown may panic when it is dropped, which would leave this function as a panic after all.
        mem::forget(panic);
        FencepostStatus::Internal
    })
}

/// Runs the body of an exported function that answers with static text.
pub(super) fn named(function: &'static str, body: impl FnOnce() -> &'static CStr) -> *const c_char {
    let mut text = c"internal";
    guard(function, None, &mut Why::nowhere(), |_| {
        text = body();
        FencepostStatus::Ok
    });
    text.as_ptr()
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&'static str>().copied().or_else(owned).unwrap_or("without a text")
}

/// Where a caller wants to read why. What is written there always ends with NUL and is cut between characters.
pub(super) struct Why {
    place: *mut u8,
    /// Bytes for text, without its NUL.
    room: usize,
    len: usize,
    is_cut: bool,
}

impl Why {
    /// Empties the caller's buffer. Null or no room is a caller who does not want to know.
    ///
    /// # Safety
    /// `place` is null, or may be written for `size` bytes while this value lives.
    pub(super) unsafe fn new(place: *mut c_char, size: usize) -> Why {
        if place.is_null() || size == 0 {
            return Why::nowhere();
        }
        let why = Why { place: place.cast(), room: size - 1, len: 0, is_cut: false };
        why.end();
        why
    }

    /// Nobody reads.
    pub(super) const fn nowhere() -> Why {
        Why { place: std::ptr::null_mut(), room: 0, len: 0, is_cut: false }
    }

    /// Writes a text in place of what was there.
    pub(super) fn say(&mut self, text: impl Display) {
        if self.place.is_null() {
            return;
        }
        self.len = 0;
        self.is_cut = false;
        self.end();
        if write!(self, "{text}").is_err() {
            // A `Display` that gives up: what it wrote so far is there, and ended.
            self.is_cut = true;
        }
    }

    fn end(&self) {
        // SAFETY: `place` is not null here (new, say, write_str), and has `room + 1` bytes; `len` is at most `room`.
        unsafe { self.place.add(self.len).write(0) };
    }
}

impl fmt::Write for Why {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.place.is_null() || self.is_cut {
            return Ok(());
        }
        let mut fits = text.len().min(self.room - self.len);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.is_cut = fits < text.len();
        for byte in &text.as_bytes()[..fits] {
            // A NUL inside would end the text for its reader.
            let byte = if *byte == 0 { b' ' } else { *byte };
            // SAFETY: `len` is below `room` here, since at most `room - len` bytes are written.
            unsafe { self.place.add(self.len).write(byte) };
            self.len += 1;
        }
        self.end();
        Ok(())
    }
}

/// Bytes that a caller gives as pointer and length. `None` is a null pointer with a length; no bytes may be null.
///
/// # Safety
/// `start` is null, or may be read for `len` bytes as long as `'a`, and nobody writes them meanwhile. `len` is at most
/// `isize::MAX`: callers compare it with a far smaller bound before.
pub(super) unsafe fn bytes<'a>(start: *const u8, len: usize) -> Option<&'a [u8]> {
    debug_assert!(isize::try_from(len).is_ok(), "a length is judged before its bytes are touched");
    if len == 0 {
        return Some(&[]);
    }
    if start.is_null() {
        return None;
    }
    // SAFETY: not null, and by the contract above readable for `len` bytes.
    Some(unsafe { std::slice::from_raw_parts(start, len) })
}

/// Writes a structure that grows with the releases into a caller's memory of `size` bytes: the fields that both know;
/// those that only the caller knows become 0.
///
/// # Safety
/// `place` may be written for `size` bytes. `T` has no padding.
pub(super) unsafe fn write_grown<T: bytemuck::NoUninit>(value: &T, place: *mut T, size: usize) {
    let known = bytemuck::bytes_of(value);
    let both = known.len().min(size);
    // SAFETY: `both` bytes may be read from `known` and written to `place`, which is the caller's and not ours; what
    // follows up to `size` is the caller's too.
    unsafe {
        std::ptr::copy_nonoverlapping(known.as_ptr(), place.cast::<u8>(), both);
        place.cast::<u8>().add(both).write_bytes(0, size - both);
    }
}

/// Panics on demand, so that tests can show what each exported function does with one. Only in builds with debug
/// assertions.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod forced {
    use std::cell::Cell;

    thread_local! {
        static NEXT: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// This thread's next call of the exported function panics.
    pub fn panic_in_next(function: &'static str) {
        NEXT.set(Some(function));
    }

    pub(super) fn strike(function: &'static str) {
        if NEXT.get() == Some(function) {
            NEXT.set(None);
            panic!("forced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, size: usize) -> Vec<u8> {
        let mut place = vec![b'#'; size + 1];
        // SAFETY: `place` has more than `size` bytes and outlives `why`.
        let mut why = unsafe { Why::new(place.as_mut_ptr().cast(), size) };
        why.say("something longer that was there before");
        why.say(text);
        assert_eq!(place.pop(), Some(b'#'), "the byte behind the buffer is not ours");
        let end = place.iter().position(|byte| *byte == 0).expect("the text ends");
        place.truncate(end);
        place
    }

    #[test]
    fn a_text_is_cut_between_characters_and_always_ends() {
        assert_eq!(said("abc", 1), b"");
        assert_eq!(said("abc", 3), b"ab");
        assert_eq!(said("abc", 4), b"abc");
        assert_eq!(said("abc", 64), b"abc");
        let truck = "a\u{1f69a}b";
        for (size, text) in [(2, "a"), (3, "a"), (5, "a"), (6, "a\u{1f69a}"), (7, "a\u{1f69a}b")] {
            assert_eq!(said(truck, size), text.as_bytes(), "{size} bytes");
        }
        assert_eq!(said("a\0b", 64), b"a b");
    }

    /// A text that was cut is not continued with a later, shorter piece.
    #[test]
    fn nothing_follows_the_cut() {
        let mut place = [b'#'; 8];
        // SAFETY: the array outlives `why`.
        let mut why = unsafe { Why::new(place.as_mut_ptr().cast(), 6) };
        why.say(format_args!("{}{}", "abcd\u{1f69a}", "e"));
        assert_eq!(&place, b"abcd\0t##".map(|byte| if byte == b't' { place[5] } else { byte }).as_slice());
    }

    #[test]
    fn a_caller_who_does_not_want_to_know_is_not_told() {
        let mut byte = b'#';
        // SAFETY: a buffer of no bytes is not touched, and null is allowed.
        let (mut empty, mut null) =
            unsafe { (Why::new((&raw mut byte).cast(), 0), Why::new(std::ptr::null_mut(), 100)) };
        empty.say("text");
        null.say("text");
        assert_eq!(byte, b'#');
    }

    #[test]
    fn a_structure_is_written_as_far_as_both_know_it() {
        let value = [1_u64, 2, 3];
        for size in [0_usize, 8, 20, 24, 32] {
            let mut place = [u64::MAX; 5];
            // SAFETY: `place` has 40 bytes.
            unsafe { write_grown(&value, place.as_mut_ptr().cast(), size) };
            let mut expected = [u64::MAX; 5].map(u64::to_ne_bytes).concat();
            let known = [1_u64, 2, 3, 0].map(u64::to_ne_bytes).concat();
            expected[..size].copy_from_slice(&known[..size]);
            assert_eq!(place.map(u64::to_ne_bytes).concat(), expected, "{size} bytes");
        }
    }

    /// What is thrown may itself panic when it is dropped.
    #[test]
    fn a_panic_of_any_kind_stays_inside() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let mut text = [0_u8; 64];
        // SAFETY: the array outlives `why`.
        let mut why = unsafe { Why::new(text.as_mut_ptr().cast(), text.len()) };
        assert_eq!(guard("f", None, &mut why, |_| std::panic::panic_any(Bomb)), FencepostStatus::Internal);
        assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"f panicked: without a text");
        // SAFETY: as above; the first one is not used any more.
        let mut why = unsafe { Why::new(text.as_mut_ptr().cast(), text.len()) };
        assert_eq!(guard("f", None, &mut why, |_| panic!("at {}", 7)), FencepostStatus::Internal);
        assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"f panicked: at 7");
    }
}
