//! Server of tests: one test at a time, for clients that know the token.

use std::io::{self, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::message::{self, FirstLine, Reply, StreamMessage, TestRequest};
use super::{MAX_CONNECTIONS, PortRange, StreamDirection, StreamServeArgs, flow};
use crate::error::MeasureError;
use crate::random::random_key;

/// Time for the first line of a connection, and for the data connections of a test.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections at the same time: those of one test, and some that still have to show their token.
const MAX_OPEN: usize = MAX_CONNECTIONS + 64;

const POLL: Duration = Duration::from_millis(20);

/// Lines of the server's output.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Listening { port: u16 },
    Test { peer: String, outcome: &'a str },
}

/// State that the threads of all connections share.
#[derive(Debug)]
struct Server<'a> {
    token: &'a str,
    pending: Mutex<Option<Pending>>,
    open: AtomicUsize,
}

/// Test that waits for its data connections.
#[derive(Debug)]
struct Pending {
    key: String,
    streams: mpsc::Sender<TcpStream>,
}

/// Listens, prints the port, and serves tests until the limit.
pub(super) fn serve(arguments: &StreamServeArgs, token: &str) -> Result<(), MeasureError> {
    let listener = listen(arguments.address, arguments.ports)?;
    let port = listener
        .local_addr()
        .map_err(|error| MeasureError::io("read the port of", "the listener", error))?
        .port();
    crate::print(&Event::Listening { port })?;
    let deadline = Instant::now() + Duration::from_secs(arguments.limit_s);
    accept_until(&listener, token, deadline);
    // Threads of running tests end with the process: the limit is a limit of time.
    Ok(())
}

/// Accepts connections until the deadline.
pub(super) fn accept_until(listener: &TcpListener, token: &str, deadline: Instant) {
    let server: &'static Server = Box::leak(Box::new(Server {
        token: Box::leak(token.to_owned().into_boxed_str()),
        pending: Mutex::new(None),
        open: AtomicUsize::new(0),
    }));
    let _ = listener.set_nonblocking(true);
    while Instant::now() < deadline {
        match listener.accept() {
            Ok((stream, peer)) if server.open.fetch_add(1, Ordering::Relaxed) < MAX_OPEN => {
                std::thread::spawn(move || {
                    server.handle(stream, peer);
                    server.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok(_) => {
                server.open.fetch_sub(1, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL),
            // The client is gone, or no descriptor is free: the next one can succeed.
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

/// Listens on the first free port of a range; on IPv4 if the host has no IPv6.
fn listen(address: Option<IpAddr>, ports: Option<PortRange>) -> Result<TcpListener, MeasureError> {
    let any = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let addresses = address.map_or(any.to_vec(), |address| vec![address]);
    let PortRange { first, last } = ports.unwrap_or(PortRange { first: 0, last: 0 });
    let mut failure = (String::new(), io::Error::from(ErrorKind::AddrInUse));
    for address in addresses {
        for port in first..=last {
            let address = SocketAddr::new(address, port);
            match TcpListener::bind(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => failure = (address.to_string(), error),
            }
        }
    }
    let (subject, error) = failure;
    let subject = if first == last {
        subject
    } else {
        format!("ports {first}-{last}")
    };
    Err(MeasureError::io("listen", subject, error))
}

impl Server<'_> {
    /// Handles one connection: a request of a test, or data of the current test.
    fn handle(&self, stream: TcpStream, peer: SocketAddr) {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_read_timeout(Some(FIRST_LINE_TIMEOUT));
        // Replies to wrong first lines would help only scanners.
        match message::receive_first(&stream) {
            Ok(FirstLine::Data { key }) => {
                let pending = self.pending.lock().expect("no thread panics with the lock");
                if let Some(pending) = pending
                    .as_ref()
                    .filter(|test| message::is_same(&test.key, &key))
                {
                    let _ = pending.streams.send(stream);
                }
            }
            Ok(FirstLine::Test(request)) if message::is_same(&request.token, self.token) => {
                let outcome = self.test(&stream, &request, peer);
                let outcome = outcome.map_or_else(
                    |error| {
                        let text = error.to_string();
                        let _ = message::send(&stream, &StreamMessage::Failed(text.clone()));
                        text
                    },
                    |()| "done".to_owned(),
                );
                let _ = crate::print(&Event::Test {
                    peer: peer.to_string(),
                    outcome: &outcome,
                });
            }
            _ => {}
        }
    }

    fn test(
        &self,
        control: &TcpStream,
        request: &TestRequest,
        peer: SocketAddr,
    ) -> Result<(), MeasureError> {
        let peer = peer.to_string();
        let Some((key, arrivals)) = self.reserve(&peer)? else {
            let busy = Reply::Error("another test is running. Wait for its end".to_owned());
            return message::send(control, &busy)
                .map_err(|error| MeasureError::io("reply to", &peer, error));
        };
        let result = self.run(control, request, &peer, key, &arrivals);
        *self.pending.lock().expect("no thread panics with the lock") = None;
        result
    }

    /// Makes this the current test, or returns `None` if there is one.
    fn reserve(
        &self,
        peer: &str,
    ) -> Result<Option<(String, mpsc::Receiver<TcpStream>)>, MeasureError> {
        let key = random_key().map_err(|error| MeasureError::io("make a key for", peer, error))?;
        let mut pending = self.pending.lock().expect("no thread panics with the lock");
        if pending.is_some() {
            return Ok(None);
        }
        let (streams, arrivals) = mpsc::channel();
        *pending = Some(Pending {
            key: key.clone(),
            streams,
        });
        Ok(Some((key, arrivals)))
    }

    fn run(
        &self,
        control: &TcpStream,
        request: &TestRequest,
        peer: &str,
        key: String,
        arrivals: &mpsc::Receiver<TcpStream>,
    ) -> Result<(), MeasureError> {
        let failed = |operation| move |error| MeasureError::io(operation, peer, error);
        check(request, peer)?;
        message::send(control, &Reply::Key(key)).map_err(failed("reply to"))?;
        let deadline = Instant::now() + FIRST_LINE_TIMEOUT;
        let mut streams = Vec::new();
        while streams.len() < request.connections {
            let left = deadline.saturating_duration_since(Instant::now());
            streams.push(
                arrivals
                    .recv_timeout(left)
                    .map_err(|_| MeasureError::Peer {
                        peer: peer.to_owned(),
                        message: format!(
                            "expected {} data connections, found {}",
                            request.connections,
                            streams.len()
                        ),
                    })?,
            );
        }
        flow::limit_rate(&streams, request, peer)?;
        let limit = Duration::from_secs_f64(request.time_s) + 2 * flow::GRACE;
        control
            .set_read_timeout(Some(limit))
            .and_then(|()| message::send(control, &StreamMessage::Start))
            .map_err(failed("start the test with"))?;
        let report = match request.direction {
            StreamDirection::Send => {
                StreamMessage::Received(flow::receive_all(&streams, request, peer)?)
            }
            StreamDirection::Receive => {
                let mut reader = BufReader::new(control);
                let mut received = Ok(StreamMessage::Start);
                let sent = flow::send_all(&streams, request, || {
                    received = message::receive_message(&mut reader, peer);
                });
                received?;
                StreamMessage::Sent(sent)
            }
        };
        flow::discard(streams);
        message::send(control, &report).map_err(failed("send the result to"))
    }
}

/// Checks the numbers of a request: its sender can be another version.
fn check(request: &TestRequest, peer: &str) -> Result<(), MeasureError> {
    let valid = (1..=MAX_CONNECTIONS).contains(&request.connections)
        && (0.1..=3600.0).contains(&request.time_s)
        && (0.0..request.time_s).contains(&request.omit_s);
    if valid {
        return Ok(());
    }
    Err(MeasureError::Peer {
        peer: peer.to_owned(),
        message: "the numbers of the test are out of range".to_owned(),
    })
}
