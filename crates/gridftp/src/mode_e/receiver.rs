//! Assignment of received bytes to files, and completion of files.
//!
//! Data connections do not name files. The receiver therefore counts started transfers, and the
//! ends of data on each connection. After n ends of data, the bytes of a connection belong to
//! transfer n. Bytes stay in the socket until the control connection reports the start of their
//! transfer.

use std::collections::{BTreeMap, VecDeque};

use super::decoder::{DecodedItem, Decoder};
use super::header::MAX_CONNECTIONS;
use crate::{ByteRanges, FtpError};

/// Received payload: the last `bytes` of the consumed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Number of bytes.
    pub bytes: usize,
    /// Number of the transfer, from 0, in the order of their starts.
    pub transfer: u64,
    /// File offset of the first byte.
    pub offset: u64,
}

/// Result of offering input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveResult {
    /// Consumed bytes. If 0, offer the rest again after the next input on the control connection,
    /// or with more bytes.
    pub consumed: usize,
    /// Payload in the consumed bytes.
    pub payload: Option<Payload>,
}

/// A file with an end of data from all its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedFile {
    /// Number of the transfer.
    pub transfer: u64,
    /// Received ranges.
    pub ranges: ByteRanges,
}

#[derive(Debug, Default)]
struct Connection {
    decoder: Decoder,
    /// Current transfer, which equals the number of ends of data received.
    transfer: u64,
    /// `true` if the connection carried bytes of that transfer.
    has_bytes: bool,
}

#[derive(Debug, Default)]
struct Incoming {
    ranges: ByteRanges,
    ends: u64,
    /// Senders that announced their number of connections; `expected_ends` is the sum.
    senders: u64,
    expected_ends: u64,
}

/// All connections of one receiver, between two PORT or PASV commands.
#[derive(Debug)]
pub struct BlockReceiver {
    /// `true` if transfers are pipelined. Every connection must then take part in every transfer.
    /// Otherwise the receiver could not distinguish a connection that omits a file from a late one,
    /// and could assign bytes to the previous file.
    pipelined: bool,
    /// Senders of each file: the stripes of the server.
    stripes: u64,
    connections: BTreeMap<u64, Connection>,
    /// Number of connections of this pipeline, once an end of file has announced it.
    fixed: Option<u64>,
    /// Number of connections ever opened. A replacement could be at any file.
    opened: u64,
    incoming: BTreeMap<u64, Incoming>,
    started: u64,
    received: VecDeque<ReceivedFile>,
}

impl BlockReceiver {
    /// Creates a receiver without connections, for files that `stripes` senders send together.
    #[must_use]
    pub fn new(pipelined: bool, stripes: u16) -> Self {
        Self {
            pipelined,
            stripes: stripes.max(1).into(),
            connections: BTreeMap::new(),
            fixed: None,
            opened: 0,
            incoming: BTreeMap::new(),
            started: 0,
            received: VecDeque::new(),
        }
    }

    /// Starts a transfer that the control connection has reported. Returns its number.
    pub fn start_transfer(&mut self) -> u64 {
        self.incoming.insert(self.started, Incoming::default());
        self.started += 1;
        self.started - 1
    }

    /// Adds an open connection.
    ///
    /// # Errors
    /// If there are more than [`MAX_CONNECTIONS`], or in a pipeline, if a file has already
    /// announced their number.
    pub fn connect(&mut self, connection: u64) -> Result<(), FtpError> {
        if self.connections.len() as u64 >= MAX_CONNECTIONS {
            return Err(FtpError::Limit {
                context: "data connections",
                limit: MAX_CONNECTIONS,
            });
        }
        self.opened += 1;
        if let Some(fixed) = self.fixed.filter(|&fixed| self.opened > fixed) {
            return Err(FtpError::Order {
                expected: "as many data connections as the first file of the pipeline had",
                found: format!("one more than {fixed}"),
            });
        }
        let transfer = self.first_open();
        let state = Connection {
            transfer,
            ..Connection::default()
        };
        self.connections.insert(connection, state);
        Ok(())
    }

    /// Removes a connection that has ended.
    ///
    /// # Errors
    /// If it ended within a block, or without the end of data of a file that it carried.
    pub fn disconnect(&mut self, connection: u64) -> Result<(), FtpError> {
        match self.connections.remove(&connection) {
            Some(gone) if gone.has_bytes || !gone.decoder.is_between_blocks() => {
                Err(FtpError::Order {
                    expected: "an end of data before a data connection closes",
                    found: "a closed connection".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the transfer of a connection, and its payload bytes up to the next header. A driver
    /// can move these bytes directly to the file and report them with
    /// [`handle_payload`](Self::handle_payload).
    #[must_use]
    pub fn next_payload(&self, connection: u64) -> Option<(u64, u64)> {
        let state = self.connections.get(&connection)?;
        Some((state.transfer, state.decoder.remaining_bytes()))
    }

    /// Handles one item from the start of `input`. Call it again with the rest until it consumes
    /// nothing.
    ///
    /// # Errors
    /// If the bytes cannot belong to one file. All files that
    /// [`poll_received`](Self::poll_received) has not returned are then void.
    pub fn handle_input(
        &mut self,
        connection: u64,
        input: &[u8],
    ) -> Result<ReceiveResult, FtpError> {
        let mut rest = input;
        let mut payload = None;
        // Each iteration consumes bytes, or handles one of at most three items of a header.
        while let Some(state) = self.connections.get_mut(&connection) {
            let transfer = state.transfer;
            if transfer >= self.started {
                break;
            }
            // After payload, handle only the items of its own header, because no more bytes may
            // follow.
            let offered = if payload.is_some() { &[] } else { rest };
            let step = state.decoder.step(offered)?;
            rest = &rest[step.consumed..];
            match step.item {
                None if step.consumed == 0 => break,
                None => {}
                Some(DecodedItem::Payload { offset }) => {
                    let bytes = step.consumed;
                    state.has_bytes = true;
                    self.record_range(transfer, offset, bytes as u64)?;
                    payload = Some(Payload {
                        bytes,
                        transfer,
                        offset,
                    });
                }
                Some(DecodedItem::EndOfFile { connections }) => {
                    self.expect_ends_of_data(transfer, connections)?
                }
                Some(DecodedItem::EndOfData) => {
                    state.transfer += 1;
                    state.has_bytes = false;
                    self.count_end_of_data(transfer)?;
                }
                Some(DecodedItem::Close) => drop(self.connections.remove(&connection)),
            }
        }
        Ok(ReceiveResult {
            consumed: input.len() - rest.len(),
            payload,
        })
    }

    /// Handles payload that the driver has moved directly, at most
    /// [`next_payload`](Self::next_payload).
    ///
    /// # Errors
    /// If there are more bytes, and like [`handle_input`](Self::handle_input).
    pub fn handle_payload(
        &mut self,
        connection: u64,
        bytes: usize,
    ) -> Result<ReceiveResult, FtpError> {
        let passed = self.connections.get_mut(&connection).and_then(|state| {
            let offset = state.decoder.pass(bytes as u64)?;
            state.has_bytes = true;
            Some((state.transfer, offset))
        });
        let Some((transfer, offset)) = passed else {
            return Err(FtpError::Order {
                expected: "no more payload than the block header declares",
                found: format!("{bytes} bytes"),
            });
        };
        self.record_range(transfer, offset, bytes as u64)?;
        self.handle_input(connection, &[])?;
        Ok(ReceiveResult {
            consumed: bytes,
            payload: Some(Payload {
                bytes,
                transfer,
                offset,
            }),
        })
    }

    /// Returns the next complete file.
    pub fn poll_received(&mut self) -> Option<ReceivedFile> {
        self.received.pop_front()
    }

    /// Returns the received ranges of an incomplete transfer.
    #[must_use]
    pub fn partial(&self, transfer: u64) -> Option<&ByteRanges> {
        self.incoming
            .get(&transfer)
            .map(|incoming| &incoming.ranges)
    }

    /// Returns the oldest incomplete transfer, or the next one to start.
    fn first_open(&self) -> u64 {
        self.incoming
            .first_key_value()
            .map_or(self.started, |(&transfer, _)| transfer)
    }

    fn open(&mut self, transfer: u64) -> Result<&mut Incoming, FtpError> {
        self.incoming
            .get_mut(&transfer)
            .ok_or_else(|| FtpError::Order {
                expected: "the bytes of a file before its last end of data",
                found: format!("bytes of transfer {transfer} after it"),
            })
    }

    fn record_range(&mut self, transfer: u64, offset: u64, bytes: u64) -> Result<(), FtpError> {
        // The header was checked, so the sum cannot overflow.
        let range = offset..offset + bytes;
        let pipelined = self.pipelined;
        let ranges = &mut self.open(transfer)?.ranges;
        if pipelined && ranges.overlaps(&range) {
            // The bytes can belong to the next file. If both files have the same size, only this
            // check detects a missing end.
            return Err(FtpError::Order {
                expected: "each byte of a file once in a pipeline",
                found: format!("the byte at {offset} twice"),
            });
        }
        ranges.insert(range)
    }

    fn expect_ends_of_data(&mut self, transfer: u64, connections: u64) -> Result<(), FtpError> {
        let stripes = self.stripes;
        let incoming = self.open(transfer)?;
        if incoming.senders == stripes {
            return Err(FtpError::Order {
                expected: "one end of file of each sender",
                found: format!("{} in transfer {transfer}", stripes + 1),
            });
        }
        incoming.senders += 1;
        incoming.expected_ends += connections;
        let expected = incoming.expected_ends;
        if incoming.senders < stripes {
            return Ok(());
        }
        if self.pipelined {
            let fixed = *self.fixed.get_or_insert(expected);
            if expected != fixed || self.opened > fixed {
                return Err(FtpError::Order {
                    expected: "every data connection to carry every file of a pipeline",
                    found: format!("{expected} of {} for a file", self.opened),
                });
            }
        }
        self.complete(transfer)
    }

    fn count_end_of_data(&mut self, transfer: u64) -> Result<(), FtpError> {
        self.open(transfer)?.ends += 1;
        self.complete(transfer)
    }

    /// Completes a transfer if all its ends of data have arrived.
    fn complete(&mut self, transfer: u64) -> Result<(), FtpError> {
        let stripes = self.stripes;
        let incoming = self.open(transfer)?;
        let expected = incoming.expected_ends;
        if incoming.senders < stripes || incoming.ends < expected {
            return Ok(());
        }
        if incoming.ends > expected {
            return Err(FtpError::Order {
                expected: "as many ends of data as the end of file declares",
                found: format!("{} instead of {expected}", incoming.ends),
            });
        }
        let ranges = std::mem::take(&mut incoming.ranges);
        self.incoming.remove(&transfer);
        for state in self
            .connections
            .values_mut()
            .filter(|state| state.transfer == transfer)
        {
            if state.has_bytes || self.pipelined {
                return Err(FtpError::Order {
                    expected: "an end of data on every connection of a file",
                    found: format!(
                        "transfer {transfer} complete without an end of data on one connection"
                    ),
                });
            }
            state.transfer += 1;
        }
        self.received.push_back(ReceivedFile { transfer, ranges });
        Ok(())
    }
}
