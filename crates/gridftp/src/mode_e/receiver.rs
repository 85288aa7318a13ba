//! Which file the bytes of a connection belong to, and when a file is whole.
//!
//! Nothing on a data connection names a file. Transfers that were begun are counted, and so are the ends of data on each
//! connection: what follows the n-th end on a connection belongs to the transfer that began as number n. Hence bytes
//! that come before the control connection has told of their transfer are not taken: they wait in the socket.

use std::collections::{BTreeMap, VecDeque};

use super::decoder::{Decoder, Item};
use super::header::MAX_CONNECTIONS;
use crate::{ByteRanges, Error};

/// Payload that was taken: the last `bytes` of what is consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Their number.
    pub bytes: usize,
    /// Number of the transfer, from 0, in the order in which they began.
    pub transfer: u64,
    /// Position of the first byte.
    pub offset: u64,
}

/// What became of the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that are used up. None: offer the rest again after the next input on the control connection, or with more.
    pub consumed: usize,
    /// Where the payload among them belongs.
    pub payload: Option<Payload>,
}

/// A file of which all connections said the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Number of the transfer.
    pub transfer: u64,
    /// What came of it.
    pub ranges: ByteRanges,
}

#[derive(Debug, Default)]
struct Connection {
    decoder: Decoder,
    /// The transfer that it is at: how many ends of data it has seen.
    transfer: u64,
    /// Whether it has carried bytes of that transfer.
    carried: bool,
}

#[derive(Debug, Default)]
struct Incoming {
    ranges: ByteRanges,
    ends: u64,
    /// Senders that told how many connections they use, and how many these are.
    senders: u64,
    expected_ends: u64,
}

/// All connections to one receiver, from one PORT or PASV to the next.
#[derive(Debug)]
pub struct Receiver {
    /// Whether transfers are pipelined. A connection that sits one out could then not be told from one that is late, and
    /// bytes of a file could be taken for those of the one before: all have to take part in every transfer.
    pipelined: bool,
    /// Senders of each file: the stripes of the server.
    stripes: u64,
    connections: BTreeMap<u64, Connection>,
    /// Connections of this pipeline, once an end of file has told.
    fixed: Option<u64>,
    /// Connections that were ever open. One that takes the place of another could be at any file.
    made: u64,
    incoming: BTreeMap<u64, Incoming>,
    begun: u64,
    received: VecDeque<Received>,
}

impl Receiver {
    /// A receiver without connections, of files that so many senders send together.
    #[must_use]
    pub fn new(pipelined: bool, stripes: u16) -> Self {
        Self {
            pipelined,
            stripes: stripes.max(1).into(),
            connections: BTreeMap::new(),
            fixed: None,
            made: 0,
            incoming: BTreeMap::new(),
            begun: 0,
            received: VecDeque::new(),
        }
    }

    /// The control connection says that a transfer has begun. Gives its number.
    pub fn begin(&mut self) -> u64 {
        self.incoming.insert(self.begun, Incoming::default());
        self.begun += 1;
        self.begun - 1
    }

    /// A connection is open.
    ///
    /// # Errors
    /// More than [`MAX_CONNECTIONS`]; in a pipeline, one that comes after a file told their number.
    pub fn connect(&mut self, connection: u64) -> Result<(), Error> {
        if self.connections.len() as u64 >= MAX_CONNECTIONS {
            return Err(Error::Limit {
                place: "data connections",
                limit: MAX_CONNECTIONS,
            });
        }
        self.made += 1;
        if let Some(fixed) = self.fixed.filter(|&fixed| self.made > fixed) {
            return Err(Error::Order {
                expected: "as many data connections as the first file of the pipeline had",
                found: format!("another one after {fixed}"),
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

    /// A connection has ended.
    ///
    /// # Errors
    /// If it ended within a block, or without the end of data of a file that it carried.
    pub fn disconnect(&mut self, connection: u64) -> Result<(), Error> {
        match self.connections.remove(&connection) {
            Some(gone) if gone.carried || !gone.decoder.is_between_blocks() => Err(Error::Order {
                expected: "the end of data on a data connection before it closes",
                found: "a close".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The transfer that this connection is at, and the bytes of it up to the next header, which a driver may move straight to where
    /// they belong and tell by [`handle_payload`](Self::handle_payload).
    #[must_use]
    pub fn coming(&self, connection: u64) -> Option<(u64, u64)> {
        let state = self.connections.get(&connection)?;
        Some((state.transfer, state.decoder.remaining_bytes()))
    }

    /// Takes what belongs together from the front of `input`. To be called again with the rest until it consumes nothing.
    ///
    /// # Errors
    /// What cannot be of one file; everything that is not yet [`received`](Self::poll_received) is then void.
    pub fn handle_input(&mut self, connection: u64, input: &[u8]) -> Result<Taken, Error> {
        let mut rest = input;
        let mut payload = None;
        // Each turn consumes bytes, or takes one of the at most three items that a header holds.
        while let Some(state) = self.connections.get_mut(&connection) {
            let transfer = state.transfer;
            if transfer >= self.begun {
                break;
            }
            // Behind payload only what its own header says: there may be no more bytes to come.
            let offered = if payload.is_some() { &[] } else { rest };
            let step = state.decoder.step(offered)?;
            rest = &rest[step.consumed..];
            match step.item {
                None if step.consumed == 0 => break,
                None => {}
                Some(Item::Payload { offset }) => {
                    let bytes = step.consumed;
                    state.carried = true;
                    self.note(transfer, offset, bytes as u64)?;
                    payload = Some(Payload {
                        bytes,
                        transfer,
                        offset,
                    });
                }
                Some(Item::EndOfFile { connections }) => self.expect_ends(transfer, connections)?,
                Some(Item::EndOfData) => {
                    state.transfer += 1;
                    state.carried = false;
                    self.count_end(transfer)?;
                }
                Some(Item::Close) => drop(self.connections.remove(&connection)),
            }
        }
        Ok(Taken {
            consumed: input.len() - rest.len(),
            payload,
        })
    }

    /// Takes payload that the driver has moved without showing it: at most what is [`coming`](Self::coming).
    ///
    /// # Errors
    /// More than that, and as [`handle_input`](Self::handle_input).
    pub fn handle_payload(&mut self, connection: u64, bytes: usize) -> Result<Taken, Error> {
        let passed = self.connections.get_mut(&connection).and_then(|state| {
            let offset = state.decoder.pass(bytes as u64)?;
            state.carried = true;
            Some((state.transfer, offset))
        });
        let Some((transfer, offset)) = passed else {
            return Err(Error::Order {
                expected: "no more payload than its header told of",
                found: format!("{bytes} bytes"),
            });
        };
        self.note(transfer, offset, bytes as u64)?;
        self.handle_input(connection, &[])?;
        Ok(Taken {
            consumed: bytes,
            payload: Some(Payload {
                bytes,
                transfer,
                offset,
            }),
        })
    }

    /// The next file that is whole.
    pub fn poll_received(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// What has come of a transfer that is not whole.
    #[must_use]
    pub fn partial(&self, transfer: u64) -> Option<&ByteRanges> {
        self.incoming
            .get(&transfer)
            .map(|incoming| &incoming.ranges)
    }

    /// The oldest transfer that is not whole, or the next to begin.
    fn first_open(&self) -> u64 {
        self.incoming
            .first_key_value()
            .map_or(self.begun, |(&transfer, _)| transfer)
    }

    fn open(&mut self, transfer: u64) -> Result<&mut Incoming, Error> {
        self.incoming
            .get_mut(&transfer)
            .ok_or_else(|| Error::Order {
                expected: "bytes of a file before its last end of data",
                found: format!("some of transfer {transfer} behind it"),
            })
    }

    fn note(&mut self, transfer: u64, offset: u64, bytes: u64) -> Result<(), Error> {
        // The header has been checked: the sum is in range.
        let range = offset..offset + bytes;
        let pipelined = self.pipelined;
        let ranges = &mut self.open(transfer)?.ranges;
        if pipelined && ranges.overlaps(&range) {
            // They may be the next file's: an end that was left out is not seen otherwise, where both are of one size.
            return Err(Error::Order {
                expected: "each byte of a file once in a pipeline",
                found: format!("the one at {offset} again"),
            });
        }
        ranges.insert(range)
    }

    fn expect_ends(&mut self, transfer: u64, connections: u64) -> Result<(), Error> {
        let stripes = self.stripes;
        let incoming = self.open(transfer)?;
        if incoming.senders == stripes {
            return Err(Error::Order {
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
            if expected != fixed || self.made > fixed {
                return Err(Error::Order {
                    expected: "every data connection to carry every file of a pipeline",
                    found: format!("{expected} of {} for a file", self.made),
                });
            }
        }
        self.complete(transfer)
    }

    fn count_end(&mut self, transfer: u64) -> Result<(), Error> {
        self.open(transfer)?.ends += 1;
        self.complete(transfer)
    }

    /// Moves a transfer to those that are whole, if it is.
    fn complete(&mut self, transfer: u64) -> Result<(), Error> {
        let stripes = self.stripes;
        let incoming = self.open(transfer)?;
        let expected = incoming.expected_ends;
        if incoming.senders < stripes || incoming.ends < expected {
            return Ok(());
        }
        if incoming.ends > expected {
            return Err(Error::Order {
                expected: "as many ends of data as the end of file says",
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
            if state.carried || self.pipelined {
                return Err(Error::Order {
                    expected: "an end of data on every connection of a file",
                    found: format!("transfer {transfer} at its end without that of one"),
                });
            }
            state.transfer += 1;
        }
        self.received.push_back(Received { transfer, ranges });
        Ok(())
    }
}
