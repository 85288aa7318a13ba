//! A connection: TLS if that is asked for, requests one after the other, and an end for who is slow.

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
use venturi_gridftp::LastMoved;

use super::access::Memory;
use super::answer;
use super::wire::{Passing, Shared, Wire};
use crate::net::tcp_info::Acknowledged;
use crate::serve::host::Host;
use crate::serve::listen::{Arrival, Phase};

/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Fields of it.
const MAX_FIELDS: usize = 100;
/// How often a connection is looked at.
const TICK: Duration = Duration::from_secs(1);

/// What a connection and its requests share.
pub(crate) struct Connection {
    pub(crate) host: Arc<Host>,
    pub(crate) number: u64,
    pub(crate) peer: std::net::SocketAddr,
    pub(crate) secure: bool,
    pub(crate) memory: RefCell<Option<Memory>>,
    pub(crate) pulse: Rc<Pulse>,
    /// Files that its socket sends itself; not within TLS.
    pub(super) passing: Option<Rc<Passing>>,
}

/// When something last moved.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    last: Cell<LastMoved>,
    /// Requests that are being answered.
    active: Cell<u32>,
}

impl Pulse {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            last: Cell::new(LastMoved::new(Duration::ZERO)),
            active: Cell::new(0),
        }
    }

    /// Something moved.
    pub(crate) fn beat(&self) {
        self.change(LastMoved::touch);
    }

    /// So many bytes moved.
    pub(crate) fn moved(&self, bytes: u64) {
        self.change(|last, now| last.bytes(now, bytes));
    }

    fn change(&self, change: impl FnOnce(&mut LastMoved, Duration)) {
        let mut last = self.last.get();
        change(&mut last, self.began.elapsed());
        self.last.set(last);
    }

    /// How long nothing has moved, or not enough.
    fn still(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.last.get().at())
    }
}

/// A request that is being answered, for as long as this value is there.
pub(crate) struct Active(Rc<Pulse>);

impl Active {
    pub(crate) fn new(pulse: &Rc<Pulse>) -> Self {
        pulse.active.set(pulse.active.get() + 1);
        pulse.beat();
        Self(Rc::clone(pulse))
    }
}

impl Active {
    /// Something of it moved.
    pub(crate) fn beat(&self) {
        self.0.beat();
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
        self.0.beat();
    }
}

/// Serves a connection to its end.
pub(crate) async fn session(
    host: Arc<Host>,
    arrival: Arrival,
    secure: bool,
    watched: watch::Receiver<Phase>,
) {
    let Arrival {
        socket,
        peer,
        session,
        ticket,
        ..
    } = arrival;
    let _ticket = ticket;
    let Ok(stream) = tokio::net::TcpStream::from_std(socket) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let stream = Shared::new(stream);
    let patience = host.settings.login_time;
    let pulse = Rc::new(Pulse::new());
    let passing = (!secure).then(Rc::<Passing>::default);
    let connection = Rc::new(Connection {
        host: Arc::clone(&host),
        number: session,
        peer,
        secure,
        memory: RefCell::new(Some(Memory::default())),
        pulse: Rc::clone(&pulse),
        passing: passing.clone(),
    });
    if let Some(passing) = passing {
        let wire = Wire::new(stream.clone(), passing, pulse);
        return serve(connection, wire, &stream, watched).await;
    }
    let Some(tls) = &host.web.tls else { return };
    let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream.clone());
    if let Ok(Ok(secured)) = tokio::time::timeout(patience, accepted).await {
        serve(connection, TokioIo::new(secured), &stream, watched).await;
    }
}

async fn serve<I>(
    connection: Rc<Connection>,
    io: I,
    socket: &Shared,
    mut watched: watch::Receiver<Phase>,
) where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let settings = &connection.host.settings;
    let (stall, idle) = (settings.stall_time, settings.idle_time);
    let shared = Rc::clone(&connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let connection = Rc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(answer::answer(&connection, request).await) }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        // Who has sent the first byte of a head has so long for the rest.
        .header_read_timeout(idle.min(settings.login_time))
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS)
        // As scripts look for them.
        .title_case_headers(true)
        .half_close(false);
    let mut acknowledged = Acknowledged::default();
    let mut served = std::pin::pin!(builder.serve_connection(io, service));
    loop {
        tokio::select! {
            // What was wrong with a connection, its client knows best.
            _ = served.as_mut() => return,
            () = tokio::time::sleep(TICK) => {
                let is_active = connection.pulse.active.get() > 0;
                if is_active {
                    connection.pulse.moved(acknowledged.more(socket.socket()));
                }
                let limit = if is_active { stall } else { idle };
                if connection.pulse.still() > limit {
                    return;
                }
            }
            changed = watched.changed() => {
                if changed.is_err() || *watched.borrow() == Phase::Cut {
                    return;
                }
                served.as_mut().graceful_shutdown();
            }
        }
    }
}
