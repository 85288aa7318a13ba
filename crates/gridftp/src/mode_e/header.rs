//! The 17-byte header of a block.

use crate::FtpError;

/// Length of a header.
pub const HEADER_BYTES: usize = 17;

/// Maximum connections of one receiver.
pub const MAX_CONNECTIONS: u64 = 4096;

const END_OF_FILE: u8 = 0x40;
const SUSPECTED_ERRORS: u8 = 0x20;
const RESTART_MARKER: u8 = 0x10;
const END_OF_DATA: u8 = 0x08;
const CLOSE: u8 = 0x04;

/// Fields of a block header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockHeader {
    /// Number of payload bytes after the header.
    pub count: u64,
    /// File offset of the payload.
    pub offset: u64,
    /// `true` for the last block of this file on this connection.
    pub end_of_data: bool,
    /// Number of connections that carry this file to its receiver; each sends an end of data.
    pub end_of_file: Option<u64>,
    /// `true` if the sender closes the connection after this block.
    pub close: bool,
}

impl BlockHeader {
    /// Returns the bytes of the header.
    #[must_use]
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let mut descriptor = 0;
        for (bit, set) in [
            (END_OF_DATA, self.end_of_data),
            (END_OF_FILE, self.end_of_file.is_some()),
            (CLOSE, self.close),
        ] {
            if set {
                descriptor |= bit;
            }
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = descriptor;
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.end_of_file.unwrap_or(self.offset).to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If a block ends beyond the largest offset, or an end of file has payload, no connections or
    /// too many. Restart markers and blocks with suspected errors are also errors; no server sends
    /// them.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FtpError> {
        let wrong = |expected| FtpError::malformed("block header", expected, bytes);
        let [descriptor, numbers @ ..] = bytes;
        let (count, offset) = numbers.split_at(8);
        let read_u64 = |half: &[u8]| {
            half.iter()
                .fold(0, |read_u64, &byte| read_u64 << 8 | u64::from(byte))
        };
        let (count, offset) = (read_u64(count), read_u64(offset));
        let has = |bit: u8| descriptor & bit != 0;
        if has(SUSPECTED_ERRORS) || has(RESTART_MARKER) {
            return Err(wrong("no marker and no suspected errors"));
        }
        if has(END_OF_FILE) && (count != 0 || !(1..=MAX_CONNECTIONS).contains(&offset)) {
            return Err(wrong(
                "1 to 4096 connections and no bytes at an end of file",
            ));
        }
        if offset.checked_add(count).is_none() {
            return Err(wrong("an end below 2^64"));
        }
        Ok(Self {
            count,
            offset: if has(END_OF_FILE) { 0 } else { offset },
            end_of_data: has(END_OF_DATA),
            end_of_file: has(END_OF_FILE).then_some(offset),
            close: has(CLOSE),
        })
    }
}
