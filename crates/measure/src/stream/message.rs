//! Messages of the control connection, one JSON object per line, and the first line of data connections.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::StreamDirection;
use super::tcp_info::Connection;
use crate::error::MeasureError;

/// Longest line of a client without permission.
pub(super) const FIRST_LINE_BYTES: u64 = 1024;

/// Longest later line: a report of many connections.
const LINE_BYTES: u64 = 1 << 20;

/// First line of any connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FirstLine {
    /// Control connection of a new test.
    Test(TestRequest),
    /// Data connection of a test.
    Data {
        /// Key that the server gave to the test.
        key: String,
    },
}

/// Request of a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TestRequest {
    /// Token of the session.
    pub(super) token: String,
    /// Direction as the client sees it.
    pub(super) direction: StreamDirection,
    /// Number of data connections.
    pub(super) connections: usize,
    /// Length of the test after the first byte.
    pub(super) time_s: f64,
    /// Start of the test that does not count.
    pub(super) omit_s: f64,
    /// Largest number of bytes to send.
    pub(super) bytes: u64,
    /// Largest rate of all connections together, bytes per second.
    #[serde(default)]
    pub(super) max_rate: Option<u64>,
}

/// Reply to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// Key for the data connections.
    Key(String),
    /// Reason of the rejection.
    Error(String),
}

/// Later messages, in both directions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StreamMessage {
    /// All data connections exist: the sender starts.
    Start,
    /// Report of the receiver: the sender stops.
    Received(Received),
    /// Report of the sender.
    Sent(EndpointReport),
    /// This side failed.
    Failed(String),
}

/// Counts of the receiver between two moments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Received {
    /// Bytes between the moments.
    pub(super) bytes: u64,
    /// Seconds between the moments.
    pub(super) duration_s: f64,
    /// Seconds from the first byte to the first moment.
    pub(super) omitted_s: f64,
    /// All bytes.
    pub(super) total_bytes: u64,
    /// Report of this endpoint.
    pub(super) endpoint: EndpointReport,
}

/// Counts of one endpoint of a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EndpointReport {
    /// Bytes that it wrote to, or read from, its sockets.
    pub(super) bytes: u64,
    /// CPU time of its process during the test.
    pub(super) cpu_s: f64,
    /// Time that its threads waited for a CPU, one thread per connection.
    pub(super) cpu_wait_s: f64,
    /// State of its sockets at the end.
    pub(super) connections: Vec<Connection>,
}

/// Writes one message.
pub(super) fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).expect("messages have string keys");
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one message of at most `limit` bytes.
pub(super) fn receive<T: DeserializeOwned>(reader: &mut impl BufRead, limit: u64) -> io::Result<T> {
    let mut line = Vec::new();
    reader.take(limit).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads one message of the peer, or its failure.
pub(super) fn receive_message(
    reader: &mut impl BufRead,
    peer: &str,
) -> Result<StreamMessage, MeasureError> {
    match receive(reader, LINE_BYTES) {
        Ok(StreamMessage::Failed(message)) => Err(MeasureError::Peer {
            peer: peer.to_owned(),
            message,
        }),
        Ok(message) => Ok(message),
        Err(error) => Err(MeasureError::io("read the reply", peer, error)),
    }
}

/// Reads the first line of a connection without a byte of the data after it.
pub(super) fn receive_first(mut stream: &TcpStream) -> io::Result<FirstLine> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < FIRST_LINE_BYTES as usize {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return serde_json::from_slice(&line)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        }
        line.push(byte[0]);
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Compares two secrets in a time that does not depend on their content.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let difference = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |bits, (one, other)| bits | (one ^ other));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}
