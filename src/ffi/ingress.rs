//! The functions on an ingress.

use super::boundary::{Why, guard};
use super::{FencepostAnswer, FencepostFailed, FencepostIngress, FencepostStatus, FencepostTrigger};
use crate::shard::shared::FailedReason;
use crate::trigger::{State, Trigger};
use std::ffi::c_char;

/// So many triggers of a batch are translated, on the stack, before they are handed over together.
const BATCH: usize = 64;

/// Offers a trigger. The answer is there at once, whatever the state of Kafka; nothing of the trigger is kept by
/// reference. `*out` is the answer, and the function returns its status. `why`, when it is not null, gets the text of a
/// refusal: it ends with NUL and is cut to fit into `why_len` bytes.
///
/// # Safety
/// `ingress` is null or not freed; `trigger` and what it points to may be read; `out` may be written; `why` is null or
/// has `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_submit(
    ingress: *mut FencepostIngress,
    trigger: *const FencepostTrigger,
    out: *mut FencepostAnswer,
    why: *mut c_char,
    why_len: usize,
) -> FencepostStatus {
    // SAFETY: null or not freed, by this function's contract. Shared: two threads at once are found by `hold`.
    let Some(handle) = (unsafe { ingress.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    // SAFETY: the caller's buffer, by this function's contract.
    let mut why = unsafe { Why::new(why, why_len) };
    guard("fencepost_submit", Some(&handle.fail_switch), &mut why, |why| {
        // SAFETY: null or readable, by this function's contract.
        let trigger = unsafe { trigger.as_ref() };
        let (Some(trigger), false) = (trigger, out.is_null()) else {
            return FencepostStatus::NullArgument;
        };
        let Some(mut ingress) = handle.hold() else {
            return FencepostStatus::InUse;
        };
        // SAFETY: its pointers are null or readable for their lengths, by this function's contract.
        let answer = match unsafe { trigger.translate() } {
            Ok(trigger) => {
                let answer = ingress.submit(&trigger);
                if let Err(refused) = &answer {
                    why.say(refused);
                }
                FencepostAnswer::from(answer)
            }
            Err(unfit) => {
                why.say(&unfit);
                unfit.answer(&mut ingress)
            }
        };
        // SAFETY: not null, and the caller's to be written.
        unsafe { out.write(answer) };
        answer.status
    })
}

/// Offers `count` triggers in order; `answers[i]` is the answer to `triggers[i]`. A refusal of one says nothing of the
/// next. Returns OK when all were queued, otherwise the status of the first that was not. After IN_USE and INTERNAL
/// every answer that is not known has that status. `count` 0 is OK.
///
/// # Safety
/// `ingress` is null or not freed; `triggers` has `count` elements, which may be read with what they point to; `answers`
/// has room for `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_submit_batch(
    ingress: *mut FencepostIngress,
    triggers: *const FencepostTrigger,
    count: usize,
    answers: *mut FencepostAnswer,
) -> FencepostStatus {
    // SAFETY: null or not freed, by this function's contract. Shared: two threads at once are found by `hold`.
    let Some(handle) = (unsafe { ingress.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    guard("fencepost_submit_batch", Some(&handle.fail_switch), &mut Why::nowhere(), |_| {
        if count == 0 {
            return FencepostStatus::Ok;
        }
        if triggers.is_null() || answers.is_null() {
            return FencepostStatus::NullArgument;
        }
        if count > isize::MAX as usize / size_of::<FencepostTrigger>() {
            return FencepostStatus::BadArgument;
        }
        let held = handle.hold();
        let unknown = if held.is_some() { FencepostStatus::Internal } else { FencepostStatus::InUse };
        for index in 0..count {
            // SAFETY: `answers` has room for `count`; it may be uninitialized, so it is written before it is borrowed.
            unsafe { answers.add(index).write(FencepostAnswer::refused(unknown)) };
        }
        let Some(mut ingress) = held else {
            return FencepostStatus::InUse;
        };
        // SAFETY: not null, `count` elements, whose size is at most `isize::MAX` (above); just written.
        let answers = unsafe { std::slice::from_raw_parts_mut(answers, count) };
        // SAFETY: not null, `count` elements that may be read, by this function's contract.
        let triggers = unsafe { std::slice::from_raw_parts(triggers, count) };
        for (triggers, answers) in triggers.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            let mut fit = [Trigger::new("", "", State::Enter, 0); BATCH];
            let mut places = [0; BATCH];
            let mut len = 0;
            for (index, trigger) in triggers.iter().enumerate() {
                // SAFETY: its pointers are null or readable for their lengths, by this function's contract.
                match unsafe { trigger.translate() } {
                    Ok(trigger) => {
                        (fit[len], places[len]) = (trigger, index);
                        len += 1;
                    }
                    Err(unfit) => answers[index] = unfit.answer(&mut ingress),
                }
            }
            ingress.submit_batch(&fit[..len], |index, answer| answers[places[index]] = answer.into());
        }
        let refused = answers.iter().find(|answer| answer.status != FencepostStatus::Ok);
        refused.map_or(FencepostStatus::Ok, |answer| answer.status)
    })
}

/// Up to which seq of this ingress everything is settled: acknowledged by the broker, a repeat of such a one, or handed
/// back by fencepost_take_failed. A source commits its own position up to here and no further.
///
/// # Safety
/// `ingress` is null or not freed; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_settled(ingress: *mut FencepostIngress, out: *mut u64) -> FencepostStatus {
    // SAFETY: null or not freed, by this function's contract. Shared: two threads at once are found by `hold`.
    let Some(handle) = (unsafe { ingress.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    guard("fencepost_settled", Some(&handle.fail_switch), &mut Why::nowhere(), |_| {
        if out.is_null() {
            return FencepostStatus::NullArgument;
        }
        let Some(mut ingress) = handle.hold() else {
            return FencepostStatus::InUse;
        };
        let settled = ingress.settled().0;
        // SAFETY: not null, and the caller's to be written.
        unsafe { out.write(settled) };
        FencepostStatus::Ok
    })
}

/// Takes the next trigger that nothing durable would take; NOTHING when there is none. The watermark passes it only
/// after this call. `why`, when it is not null, gets the reason as text, as in fencepost_submit.
///
/// # Safety
/// `ingress` is null or not freed; `out` may be written; `why` is null or has `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_take_failed(
    ingress: *mut FencepostIngress,
    out: *mut FencepostFailed,
    why: *mut c_char,
    why_len: usize,
) -> FencepostStatus {
    // SAFETY: null or not freed, by this function's contract. Shared: two threads at once are found by `hold`.
    let Some(handle) = (unsafe { ingress.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    // SAFETY: the caller's buffer, by this function's contract.
    let mut why = unsafe { Why::new(why, why_len) };
    guard("fencepost_take_failed", Some(&handle.fail_switch), &mut why, |why| {
        if out.is_null() {
            return FencepostStatus::NullArgument;
        }
        let Some(mut ingress) = handle.hold() else {
            return FencepostStatus::InUse;
        };
        let Some(failed) = ingress.take_failed() else {
            return FencepostStatus::Nothing;
        };
        why.say(failed.reason);
        let code = match failed.reason {
            FailedReason::Refused { code } => code,
            _ => 0,
        };
        // SAFETY: not null, and the caller's to be written.
        unsafe { out.write(FencepostFailed { seq: failed.seq.0, reason: failed.reason.into(), code }) };
        FencepostStatus::Ok
    })
}

/// Gives an ingress back; what it accepted stays accepted. IN_USE: another thread is inside a call, nothing was freed.
///
/// # Safety
/// `ingress` is null or not freed, and not used after OK or INTERNAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fencepost_ingress_free(ingress: *mut FencepostIngress) -> FencepostStatus {
    // SAFETY: null or not freed, by this function's contract. Shared: two threads at once are found by `hold`.
    let Some(handle) = (unsafe { ingress.as_ref() }) else {
        return FencepostStatus::NullArgument;
    };
    let fail_switch = handle.fail_switch.clone();
    let Some(held) = handle.hold() else {
        return FencepostStatus::InUse;
    };
    // The last user is gone for good: the flag stays up until the memory goes.
    std::mem::forget(held);
    // SAFETY: made by `fencepost_ingress`, given back only once by this function's contract; nobody is inside.
    let mut owned = Some(unsafe { Box::from_raw(ingress) });
    let mut free = || {
        guard("fencepost_ingress_free", Some(&fail_switch), &mut Why::nowhere(), |_| {
            drop(owned.take());
            FencepostStatus::Ok
        })
    };
    let status = free();
    if status == FencepostStatus::Internal {
        // The body panicked before it took the ingress; a second time nothing is there to do but to free it.
        free();
    }
    status
}
