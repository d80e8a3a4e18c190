//! Every rule of a trigger, in one list. A breach is refused at submit with its own reason and is never sent.

use thiserror::Error;

/// Why a trigger cannot be taken. A retry cannot help; the message says what to mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
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
}

/// The limits that a configuration sets.
#[derive(Clone, Copy, Debug)]
pub struct Rules {}
