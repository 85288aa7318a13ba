//! What a driver moves on data connections, told by both sides' sessions.

use crate::mode_e::HEADER_BYTES;

/// What a data connection is to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataOut {
    /// These bytes, of no file.
    Bytes(Vec<u8>),
    /// These bytes, then those of the file.
    Payload {
        /// Header of the block; none in MODE S.
        header: Option<[u8; HEADER_BYTES]>,
        /// Whose.
        transfer: u64,
        /// Position of the first.
        offset: u64,
        /// Their number.
        bytes: u64,
    },
    /// Nothing more: close it.
    Close,
}

/// What became of bytes of a data connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Bytes that are used up. None: offer them again after the next input on the control connection, or with more.
    pub consumed: usize,
    /// What the last of them are.
    pub payload: Option<Delivery>,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Whose.
    pub transfer: u64,
    /// Position of the first.
    pub offset: u64,
    /// Their number.
    pub bytes: usize,
}
