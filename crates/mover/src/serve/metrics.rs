//! What the server counts, and how it is told: the text format of Prometheus (exposition format 0.0.4), over HTTP.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::host::Host;

/// How long somebody may take to ask and to listen.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who is heard at once; beyond, the first of them has to be done.
const MAX_ASKING: usize = 64;
/// Most bytes of a question.
const MAX_QUESTION_BYTES: usize = 8192;
/// Pause after a connection could not be taken: there are no more open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Counters, from the start of the server on.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) sessions: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) logins_refused: AtomicU64,
    pub(crate) transfers_done: AtomicU64,
    pub(crate) transfers_failed: AtomicU64,
    pub(crate) transfers_active: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Metrics {
    /// All of them as Prometheus reads them.
    pub(crate) fn text(&self, sessions_now: usize, lines_lost: u64) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = [
            ("sessions", "gauge", "Sessions now.", sessions_now as u64),
            (
                "sessions_total",
                "counter",
                "Sessions admitted.",
                read(&self.sessions),
            ),
            (
                "sessions_refused_total",
                "counter",
                "Sessions refused, since there were too many.",
                read(&self.refused),
            ),
            (
                "logins_refused_total",
                "counter",
                "Logins refused.",
                read(&self.logins_refused),
            ),
            (
                "transfers",
                "gauge",
                "Transfers now.",
                read(&self.transfers_active),
            ),
            (
                "transfers_done_total",
                "counter",
                "Transfers that ended well.",
                read(&self.transfers_done),
            ),
            (
                "transfers_failed_total",
                "counter",
                "Transfers that failed after they had begun.",
                read(&self.transfers_failed),
            ),
            (
                "sent_bytes_total",
                "counter",
                "Bytes of files that were sent.",
                read(&self.sent_bytes),
            ),
            (
                "received_bytes_total",
                "counter",
                "Bytes of files that were received.",
                read(&self.received_bytes),
            ),
            (
                "log_lines_lost_total",
                "counter",
                "Lines of logs that were lost: nobody took them in time, or they could not be written.",
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

/// Tells the counters to whoever asks.
pub(crate) async fn tell(listener: TcpListener, host: Arc<Host>) {
    let mut asking = JoinSet::new();
    loop {
        if asking.len() >= MAX_ASKING {
            asking.join_next().await;
        }
        while asking.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((socket, _)) => {
                let host = Arc::clone(&host);
                // Whoever is too slow, or hangs up, has had his turn.
                asking.spawn(async move {
                    let _ = tokio::time::timeout(PATIENCE, answer(socket, &host)).await;
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(mut socket: TcpStream, host: &Host) -> std::io::Result<()> {
    let mut question = Vec::new();
    let mut piece = [0; 1024];
    while !question.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = socket.read(&mut piece).await?;
        question.extend_from_slice(&piece[..count]);
        if count == 0 || question.len() > MAX_QUESTION_BYTES {
            return Ok(());
        }
    }
    let known = question.starts_with(b"GET /metrics ") || question.starts_with(b"GET / ");
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

/// Opens the place to ask at.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
