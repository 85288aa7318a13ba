//! Client of a test.

use std::io::BufReader;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::Serialize;

use super::message::{
    self, EndpointReport, FirstLine, Received, Reply, StreamMessage, TestRequest,
};
use super::{StreamDirection, StreamRunArgs, flow};
use crate::error::MeasureError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a test.
#[derive(Debug, Serialize)]
pub(super) struct StreamResult {
    direction: StreamDirection,
    connections: usize,
    bytes: u64,
    duration_s: f64,
    rate_bytes_per_s: f64,
    omitted_s: f64,
    total_bytes: u64,
    sender: EndpointReport,
    receiver: EndpointReport,
}

/// Runs one test.
pub(super) fn run(arguments: &StreamRunArgs, token: &str) -> Result<StreamResult, MeasureError> {
    let omit_s = arguments.omit_s.unwrap_or(arguments.time_s / 4.0);
    if !(0.0..arguments.time_s).contains(&omit_s) {
        return Err(MeasureError::Option {
            option: "--omit-s",
            problem: format!(
                "expected seconds from 0 to less than {}, found {omit_s}",
                arguments.time_s
            ),
        });
    }
    let request = TestRequest {
        token: token.to_owned(),
        direction: arguments.direction,
        connections: arguments.connections,
        time_s: arguments.time_s,
        omit_s,
        bytes: arguments.bytes.unwrap_or(u64::MAX),
        max_rate: arguments.max_rate,
    };
    let peer = format!("{}, port {}", arguments.host, arguments.port);
    let (control, address) = connect(&arguments.host, arguments.port, &peer)?;
    test(&control, address, &request, &peer)
}

/// Connects to the first address of a host that accepts.
fn connect(host: &str, port: u16, peer: &str) -> Result<(TcpStream, SocketAddr), MeasureError> {
    let addresses = (host.trim_matches(['[', ']']), port)
        .to_socket_addrs()
        .map_err(|error| MeasureError::Peer {
            peer: host.to_owned(),
            message: format!("cannot resolve the host name: {error}. Check its spelling"),
        })?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
    Err(MeasureError::io("connect", peer, error))
}

fn test(
    control: &TcpStream,
    address: SocketAddr,
    request: &TestRequest,
    peer: &str,
) -> Result<StreamResult, MeasureError> {
    let failed = |operation| move |error| MeasureError::io(operation, peer, error);
    let limit = Duration::from_secs_f64(request.time_s) + 2 * flow::GRACE;
    control
        .set_read_timeout(Some(limit))
        .and_then(|()| message::send(control, &FirstLine::Test(request.clone())))
        .map_err(failed("request the test"))?;
    let mut reader = BufReader::new(control);
    let reply = message::receive(&mut reader, message::FIRST_LINE_BYTES);
    let key = match reply.map_err(failed("read the reply (is the token right?)"))? {
        Reply::Key(key) => key,
        Reply::Error(message) => {
            return Err(MeasureError::Peer {
                peer: peer.to_owned(),
                message,
            });
        }
    };
    let mut streams = Vec::new();
    for _ in 0..request.connections {
        let first = FirstLine::Data { key: key.clone() };
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
            .and_then(|stream| message::send(&stream, &first).map(|()| stream))
            .map_err(failed("open a data connection"))?;
        streams.push(stream);
    }
    flow::limit_rate(&streams, request, peer)?;
    expect_start(message::receive_message(&mut reader, peer)?, peer)?;
    let (received, sender) = match request.direction {
        StreamDirection::Send => {
            let mut report = None;
            let sender = flow::send_all(&streams, request, || {
                report = Some(message::receive_message(&mut reader, peer));
            });
            flow::discard(streams);
            (expect_received(report, peer)?, sender)
        }
        StreamDirection::Receive => {
            let received = flow::receive_all(&streams, request, peer)?;
            message::send(control, &StreamMessage::Received(received.clone()))
                .map_err(failed("send the result"))?;
            let sent = message::receive_message(&mut reader, peer)?;
            (received, expect_sent(sent, peer)?)
        }
    };
    Ok(result(request, received, sender))
}

fn result(request: &TestRequest, received: Received, sender: EndpointReport) -> StreamResult {
    StreamResult {
        direction: request.direction,
        connections: request.connections,
        bytes: received.bytes,
        duration_s: received.duration_s,
        rate_bytes_per_s: received.bytes as f64 / received.duration_s,
        omitted_s: received.omitted_s,
        total_bytes: received.total_bytes,
        sender,
        receiver: received.endpoint,
    }
}

fn expect_start(message: StreamMessage, peer: &str) -> Result<(), MeasureError> {
    match message {
        StreamMessage::Start => Ok(()),
        other => Err(unexpected(&other, peer)),
    }
}

fn expect_received(
    message: Option<Result<StreamMessage, MeasureError>>,
    peer: &str,
) -> Result<Received, MeasureError> {
    match message.expect("the sender waits for the report")? {
        StreamMessage::Received(received) => Ok(received),
        other => Err(unexpected(&other, peer)),
    }
}

fn expect_sent(message: StreamMessage, peer: &str) -> Result<EndpointReport, MeasureError> {
    match message {
        StreamMessage::Sent(end) => Ok(end),
        other => Err(unexpected(&other, peer)),
    }
}

fn unexpected(message: &StreamMessage, peer: &str) -> MeasureError {
    MeasureError::Peer {
        peer: peer.to_owned(),
        message: format!(
            "unexpected message {message:?}. Use the same version of venturi-engine on both hosts"
        ),
    }
}
