//! Data that a driver moves on data connections.

use crate::mode_e::HEADER_BYTES;

/// Data to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataOut {
    /// Protocol bytes that belong to no file.
    Bytes(Vec<u8>),
    /// A header, then bytes of a file.
    Payload {
        /// Header of the block; none in MODE S.
        header: Option<[u8; HEADER_BYTES]>,
        /// Number of the transfer.
        transfer: u64,
        /// File offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Close the connection.
    Close,
}

/// Result of offering bytes of a data connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryResult {
    /// Consumed bytes. If 0, offer them again after the next input on the control connection, or
    /// with more bytes.
    pub consumed: usize,
    /// Payload at the end of the consumed bytes.
    pub payload: Option<Delivery>,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the transfer.
    pub transfer: u64,
    /// File offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: usize,
}
