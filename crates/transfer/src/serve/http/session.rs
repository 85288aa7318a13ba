//! HTTP connection: optional TLS, sequential requests, and timeouts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use venturi_gridftp::StallTimer;

use super::access::AuthCache;
use super::response;
use super::splice_stream::{PendingFiles, SharedSocket, SpliceStream};
use crate::net::tcp_info::Acknowledged;
use crate::serve::listen::{AcceptedClient, ServerPhase};
use crate::serve::state::ServerState;

/// Maximum bytes of a request head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 100;
/// Interval of checks of a connection.
const TICK: Duration = Duration::from_secs(1);

/// State that a connection and its requests share.
pub(crate) struct HttpConnectionState {
    pub(crate) host: Arc<ServerState>,
    pub(crate) number: u64,
    pub(crate) peer: std::net::SocketAddr,
    pub(crate) secure: bool,
    pub(crate) memory: RefCell<Option<AuthCache>>,
    pub(crate) activity: Rc<ConnectionActivity>,
    /// Files that the socket sends itself; none with TLS.
    pub(super) pending: Option<Rc<PendingFiles>>,
}

/// Time of the last progress.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    started_at: Instant,
    last: Cell<StallTimer>,
    /// Number of active requests.
    active: Cell<u32>,
}

impl ConnectionActivity {
    fn new() -> Self {
        Self {
            started_at: Instant::now(),
            last: Cell::new(StallTimer::new(Duration::ZERO)),
            active: Cell::new(0),
        }
    }

    /// Record progress.
    pub(crate) fn beat(&self) {
        self.change(StallTimer::touch);
    }

    /// Record moved bytes.
    pub(crate) fn moved(&self, bytes: u64) {
        self.change(|last, now| last.bytes(now, bytes));
    }

    fn change(&self, change: impl FnOnce(&mut StallTimer, Duration)) {
        let mut last = self.last.get();
        change(&mut last, self.started_at.elapsed());
        self.last.set(last);
    }

    /// Return the time without sufficient progress.
    fn still(&self) -> Duration {
        self.started_at
            .elapsed()
            .saturating_sub(self.last.get().at())
    }
}

/// Guard of an active request.
pub(crate) struct RequestGuard(Rc<ConnectionActivity>);

impl RequestGuard {
    pub(crate) fn new(activity: &Rc<ConnectionActivity>) -> Self {
        activity.active.set(activity.active.get() + 1);
        activity.beat();
        Self(Rc::clone(activity))
    }
}

impl RequestGuard {
    /// Record progress of the request.
    pub(crate) fn beat(&self) {
        self.0.beat();
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
        self.0.beat();
    }
}

/// Serve a connection until its end.
pub(crate) async fn session(
    host: Arc<ServerState>,
    arrival: AcceptedClient,
    secure: bool,
    watched: watch::Receiver<ServerPhase>,
) {
    let AcceptedClient {
        socket,
        peer,
        session,
        permit,
        ..
    } = arrival;
    let _permit = permit;
    let Ok(stream) = tokio::net::TcpStream::from_std(socket) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let stream = SharedSocket::new(stream);
    let login_timeout = host.settings.login_time;
    let activity = Rc::new(ConnectionActivity::new());
    let pending = (!secure).then(Rc::<PendingFiles>::default);
    let connection = Rc::new(HttpConnectionState {
        host: Arc::clone(&host),
        number: session,
        peer,
        secure,
        memory: RefCell::new(Some(AuthCache::default())),
        activity: Rc::clone(&activity),
        pending: pending.clone(),
    });
    if let Some(pending) = pending {
        let splice = SpliceStream::new(stream.clone(), pending, activity);
        return serve(connection, splice, &stream, watched).await;
    }
    let Some(tls) = &host.web.tls else { return };
    let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream.clone());
    if let Ok(Ok(secured)) = tokio::time::timeout(login_timeout, accepted).await {
        serve(connection, TokioIo::new(secured), &stream, watched).await;
    }
}

async fn serve<I>(
    connection: Rc<HttpConnectionState>,
    io: I,
    socket: &SharedSocket,
    mut watched: watch::Receiver<ServerPhase>,
) where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let settings = &connection.host.settings;
    let (stall, idle) = (settings.stall_time, settings.idle_time);
    let shared = Rc::clone(&connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let connection = Rc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(response::respond(&connection, request).await) }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        // Timeout of the remaining head after its first byte.
        .header_read_timeout(idle.min(settings.login_time))
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS)
        // Scripts search for headers in this form.
        .title_case_headers(true)
        .half_close(false);
    let mut acknowledged = Acknowledged::default();
    let mut served = std::pin::pin!(builder.serve_connection(io, service));
    loop {
        tokio::select! {
            // The client knows the error of its connection.
            _ = served.as_mut() => return,
            () = tokio::time::sleep(TICK) => {
                let is_active = connection.activity.active.get() > 0;
                if is_active {
                    connection.activity.moved(acknowledged.more(socket.socket()));
                }
                let limit = if is_active { stall } else { idle };
                if connection.activity.still() > limit {
                    return;
                }
            }
            changed = watched.changed() => {
                if changed.is_err() || *watched.borrow() == ServerPhase::Cut {
                    return;
                }
                served.as_mut().graceful_shutdown();
            }
        }
    }
}
