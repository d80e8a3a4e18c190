//! A topic of dead letters that somebody steers.

use crate::letter::{Letter, LetterSink, PostBusy, Posted};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the sink and whoever steers it see together.
#[derive(Default)]
pub struct State {
    /// Posted and not reported.
    held: VecDeque<(u64, Box<[u8]>, String)>,
    /// Landed: the value, and the reason.
    pub log: Vec<(Box<[u8]>, String)>,
    /// Answers nothing.
    pub is_away: bool,
    /// Refuses everything for good.
    pub refuses: bool,
}

/// The sink, and the hand on it.
#[derive(Clone, Default)]
pub struct SimLetters(Arc<Mutex<State>>);

impl SimLetters {
    /// To look and to steer.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The router is gone: the first `land(held)` of what was posted landed, and nobody is told.
    pub fn forget(&self, land: impl FnOnce(usize) -> usize) {
        let mut state = self.state();
        let landed = if state.refuses { 0 } else { land(state.held.len()) };
        let held = std::mem::take(&mut state.held);
        state.log.extend(held.into_iter().take(landed).map(|(_, value, reason)| (value, reason)));
    }
}

impl LetterSink for SimLetters {
    fn post(&mut self, token: u64, letter: &Letter<'_>) -> Result<(), PostBusy> {
        let mut state = self.state();
        if state.held.len() >= 1_000 {
            return Err(PostBusy::QueueFull);
        }
        let reason = letter.notes.reason.text().to_owned();
        state.held.push_back((token, letter.value.unwrap_or_default().into(), reason));
        Ok(())
    }

    fn collect(&mut self, each: &mut dyn FnMut(u64, Posted<'_>)) {
        let mut reports = Vec::new();
        {
            let mut state = self.state();
            if state.is_away {
                return;
            }
            while let Some((token, value, reason)) = state.held.pop_front() {
                let is_refused = state.refuses;
                if !is_refused {
                    state.log.push((value, reason));
                }
                reports.push((token, is_refused));
            }
        }
        for (token, is_refused) in reports {
            each(token, if is_refused { Posted::Refused { code: 10, text: "refused" } } else { Posted::Acked });
        }
    }
}
