//! Metrics of the server in the Prometheus text format (exposition format 0.0.4), over HTTP.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::state::ServerState;

/// Timeout of a metrics request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum concurrent requests; beyond it, one must finish first.
const MAX_CLIENTS: usize = 64;
/// Maximum bytes of a request.
const MAX_REQUEST_BYTES: usize = 8192;
/// Pause after a connection could not be taken: there are no more open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) sessions: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) logins_rejected: AtomicU64,
    pub(crate) transfers_done: AtomicU64,
    pub(crate) transfers_failed: AtomicU64,
    pub(crate) transfers_active: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
}

/// Add to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Metrics {
    /// Return all counters in the format of Prometheus.
    pub(crate) fn text(&self, sessions_now: usize, lines_lost: u64) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = [
            (
                "sessions",
                "gauge",
                "Current sessions.",
                sessions_now as u64,
            ),
            (
                "sessions_total",
                "counter",
                "Sessions admitted.",
                read(&self.sessions),
            ),
            (
                "sessions_refused_total",
                "counter",
                "Sessions rejected because of a session limit.",
                read(&self.rejected),
            ),
            (
                "logins_refused_total",
                "counter",
                "Logins rejected.",
                read(&self.logins_rejected),
            ),
            (
                "transfers",
                "gauge",
                "Current transfers.",
                read(&self.transfers_active),
            ),
            (
                "transfers_done_total",
                "counter",
                "Successful transfers.",
                read(&self.transfers_done),
            ),
            (
                "transfers_failed_total",
                "counter",
                "Transfers that failed after their start.",
                read(&self.transfers_failed),
            ),
            (
                "sent_bytes_total",
                "counter",
                "Bytes of files sent.",
                read(&self.sent_bytes),
            ),
            (
                "received_bytes_total",
                "counter",
                "Bytes of files received.",
                read(&self.received_bytes),
            ),
            (
                "log_lines_lost_total",
                "counter",
                "Log lines dropped because the log was too slow or not writable.",
                lines_lost,
            ),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in all {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "# HELP venturi_serve_{name} {help}\n# TYPE venturi_serve_{name} {kind}\nventuri_serve_{name} {value}"
            );
        }
        text
    }
}

/// Serve the metrics.
pub(crate) async fn report(listener: TcpListener, host: Arc<ServerState>) {
    let mut clients = JoinSet::new();
    loop {
        if clients.len() >= MAX_CLIENTS {
            clients.join_next().await;
        }
        while clients.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((socket, _)) => {
                let host = Arc::clone(&host);
                // A slow or disconnected client is dropped.
                clients.spawn(async move {
                    let _ = tokio::time::timeout(TIMEOUT, response(socket, &host)).await;
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn response(mut socket: TcpStream, host: &ServerState) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = socket.read(&mut chunk).await?;
        request.extend_from_slice(&chunk[..count]);
        if count == 0 || request.len() > MAX_REQUEST_BYTES {
            return Ok(());
        }
    }
    let known = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, body) = if known {
        let text = host.metrics.text(host.limits.count(), host.log.lost());
        ("200 OK", text)
    } else {
        ("404 Not Found", "expected GET /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).await?;
    socket.shutdown().await
}

/// Open the listener of the metrics.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
