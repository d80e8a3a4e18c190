//! Dedup: "have I seen this trigger within the window?"

mod arena;
mod limits;
mod table;
mod window;

#[cfg(test)]
mod tests;

pub use limits::WindowLimits;
pub use window::{Seen, Window};
