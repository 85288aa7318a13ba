//! Accepts clients, counts them, and assigns them to threads.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::arguments::ServeArgs;
use super::limits::{Full, SessionPermit};
use super::listen::{AcceptedClient, ServerPhase, ServerProtocol, registration_error};
use super::metrics;
use super::state::ServerState;
use crate::error::{CopyError, describe};
use crate::net::pacing;

/// Maximum number of connections that wait for acceptance.
const BACKLOG: i32 = 4096;
/// Pause after a connection could not be accepted because no more files can be open.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts clients and passes them to the dispatcher.
pub(super) struct Acceptor {
    runtime: Runtime,
    listeners: Vec<(ServerProtocol, tokio::net::TcpListener)>,
    counters: Option<tokio::net::TcpListener>,
    dispatcher: Dispatcher,
}

/// Assignment of clients to threads.
pub(super) struct Dispatcher {
    host: Arc<ServerState>,
    loops: Vec<UnboundedSender<AcceptedClient>>,
    watched: watch::Receiver<ServerPhase>,
}

impl Acceptor {
    /// Register the listeners before clients are announced.
    ///
    /// # Errors
    /// Kernel errors.
    pub(super) fn open(
        runtime: Runtime,
        dispatcher: Dispatcher,
        listeners: Vec<(ServerProtocol, TcpListener)>,
        counters: Option<TcpListener>,
    ) -> Result<Self, CopyError> {
        let inside = runtime.enter();
        let opened =
            |listener| tokio::net::TcpListener::from_std(listener).map_err(registration_error);
        let listeners = listeners
            .into_iter()
            .map(|(kind, listener)| Ok((kind, opened(listener)?)))
            .collect::<Result<_, CopyError>>()?;
        let counters = counters.map(opened).transpose()?;
        drop(inside);
        Ok(Self {
            runtime,
            listeners,
            counters,
            dispatcher,
        })
    }

    /// Accept clients until the server shuts down.
    pub(super) fn run(self) {
        let mut watched = self.dispatcher.watched.clone();
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let dispatcher = Arc::new(self.dispatcher);
            if let Some(counters) = self.counters {
                tasks.spawn(metrics::report(counters, Arc::clone(&dispatcher.host)));
            }
            for (kind, listener) in self.listeners {
                tasks.spawn(Arc::clone(&dispatcher).take(kind, listener));
            }
            // An error means that the sender and the server have ended.
            let _ = watched
                .wait_for(|phase| *phase != ServerPhase::Serving)
                .await;
        });
    }
}

impl Dispatcher {
    pub(super) fn new(
        host: Arc<ServerState>,
        loops: Vec<UnboundedSender<AcceptedClient>>,
        watched: watch::Receiver<ServerPhase>,
    ) -> Self {
        Self {
            host,
            loops,
            watched,
        }
    }

    async fn take(self: Arc<Self>, kind: ServerProtocol, listener: tokio::net::TcpListener) {
        let mut turn = 0;
        loop {
            let (socket, peer) = match listener.accept().await {
                Ok(taken) => taken,
                // The client disconnected, or no open files are left.
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if !self.host.admitted.contains(peer.ip()) {
                self.reject(kind, &socket, peer, &FOREIGN);
                continue;
            }
            match self.host.limits.admit(peer.ip()) {
                Ok(permit) => {
                    turn = (turn + 1) % self.loops.len();
                    self.dispatch_to(turn, kind, socket, peer, permit);
                }
                Err(full) => self.reject(kind, &socket, peer, &busy(full)),
            }
        }
    }

    fn dispatch_to(
        &self,
        turn: usize,
        listener: ServerProtocol,
        socket: tokio::net::TcpStream,
        peer: SocketAddr,
        permit: SessionPermit,
    ) {
        let session = self.host.metrics.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(socket) = socket.into_std() {
            // If the thread has ended, the client is dropped.
            let _ = self.loops[turn].send(AcceptedClient {
                listener,
                socket,
                peer,
                session,
                permit,
            });
        }
    }

    fn reject(
        &self,
        kind: ServerProtocol,
        socket: &tokio::net::TcpStream,
        peer: SocketAddr,
        rejection: &Rejection,
    ) {
        metrics::add(&self.host.metrics.rejected, 1);
        self.host.log.event(
            || json!({"event": "refused", "peer": peer.to_string(), "reason": rejection.reason}),
        );
        // The reply is one packet, which fits into a new socket.
        let _ = match kind {
            ServerProtocol::Ftp => socket
                .try_write(format!("421 {}{}.\r\n", rejection.reason, rejection.advice).as_bytes()),
            ServerProtocol::Http => socket.try_write(
                format!(
                    "HTTP/1.1 {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                    rejection.http
                )
                .as_bytes(),
            ),
            ServerProtocol::Https => Ok(0),
        };
    }
}

/// Reply to a client that is not admitted.
struct Rejection {
    reason: &'static str,
    /// Advice after the reason, for FTP.
    advice: &'static str,
    /// HTTP status, with additional headers.
    http: &'static str,
}

const FOREIGN: Rejection = Rejection {
    reason: "this server does not accept your address",
    advice: "",
    http: "403 Forbidden",
};

fn busy(full: Full) -> Rejection {
    Rejection {
        reason: full.text(),
        advice: ", try again later",
        http: "503 Service Unavailable\r\nRetry-After: 5",
    }
}

/// Open all listeners of the command line.
///
/// # Errors
/// A listener cannot be opened.
pub(super) fn open_listeners(
    arguments: &ServeArgs,
) -> Result<Vec<(ServerProtocol, TcpListener)>, CopyError> {
    let ftp = arguments.addresses();
    let ftp = ftp.iter().map(|any| {
        Ok((
            ServerProtocol::Ftp,
            open_listener(any, "choose another with --listen")?,
        ))
    });
    let web = |protocol, addresses: &[SocketAddr], advice| -> Result<Vec<_>, CopyError> {
        let open = |&address| {
            let listener = open_listener(&[address], advice)?;
            // Accepted sockets inherit this option.
            if let Some(bytes_per_s) = arguments.pacing {
                pacing::pace(&listener, bytes_per_s).map_err(registration_error)?;
            }
            Ok((protocol, listener))
        };
        addresses.iter().map(open).collect()
    };
    let mut listeners = ftp.collect::<Result<Vec<_>, CopyError>>()?;
    listeners.extend(web(
        ServerProtocol::Http,
        &arguments.web.http,
        "choose another with --http",
    )?);
    listeners.extend(web(
        ServerProtocol::Https,
        &arguments.web.https,
        "choose another with --https",
    )?);
    Ok(listeners)
}

fn open_listener(any: &[SocketAddr], advice: &'static str) -> Result<TcpListener, CopyError> {
    let mut found = String::new();
    for address in any {
        match listen(*address) {
            Ok(listener) => return Ok(listener),
            Err(error) => found = describe(&error),
        }
    }
    let address = any.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
    Err(CopyError::Location {
        location: address.join(" or ").into(),
        expected: "a free address and port of this host",
        found,
        advice,
    })
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library uses a backlog of 128, which is too short for a burst of clients.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub(super) fn open_counters(address: SocketAddr) -> Result<TcpListener, CopyError> {
    metrics::listen(address).map_err(|error| CopyError::Location {
        location: address.to_string().into(),
        expected: "a free address and port of this host",
        found: describe(&error),
        advice: "choose another with --metrics",
    })
}
