//! The 17 bytes in front of every block.

use crate::Error;

/// Length of a header.
pub const HEADER_BYTES: usize = 17;

/// Most connections of one receiver.
pub const MAX_CONNECTIONS: u64 = 4096;

const END_OF_FILE: u8 = 0x40;
const SUSPECTED_ERRORS: u8 = 0x20;
const RESTART_MARKER: u8 = 0x10;
const END_OF_DATA: u8 = 0x08;
const CLOSE: u8 = 0x04;

/// What a header says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow.
    pub count: u64,
    /// Where in the file they belong.
    pub offset: u64,
    /// Whether they are the last of this file on this connection.
    pub end_of_data: bool,
    /// How many connections carry this file to its receiver; each says so with an end of data.
    pub end_of_file: Option<u64>,
    /// Whether the sender closes the connection after this block.
    pub close: bool,
}

impl Header {
    /// Bytes to send.
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
    /// A block that ends beyond what can be counted, an end of file with bytes or with no, or too many, connections, and
    /// the two kinds of block that no server sends: restart markers, and bytes that the sender itself suspects.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Error> {
        let wrong = |expected| Error::malformed("block header", expected, bytes);
        let [descriptor, numbers @ ..] = bytes;
        let (count, offset) = numbers.split_at(8);
        let word = |half: &[u8]| {
            half.iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte))
        };
        let (count, offset) = (word(count), word(offset));
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
