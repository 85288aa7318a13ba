//! Connections to servers: open, TLS, reuse.
//!
//! Few handshakes run at the same time at first, and each success allows four more. XRootD 5.5 ignores some of
//! hundreds of simultaneous connections for 30 s. A silent handshake is repeated with twice the timeout.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::outgoing::ProgressBody;
use super::proxy::{Proxy, ProxySelection};
use super::request_error::{RequestError, broken};
use super::target::HttpServer;
use super::wait::within;
use crate::net::rtt::is_long;
use crate::net::sockets::Tcp;
use crate::net::tcp_info;
use crate::stop::CancelToken;
use crate::threads;

/// Concurrent handshakes at the start.
const FIRST_HANDSHAKES: usize = 8;
/// Additional handshakes after each success.
const GROWTH: usize = 4;
/// Timeout of the first handshake attempt. A handshake needs two round trips and milliseconds of CPU time, and the
/// kernel retransmits after 1 s and after 3 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum handshakes for one connection; each has twice the timeout of the previous one.
const MAX_HANDSHAKES: u32 = 4;
/// Timeout of a name lookup; resolvers query several servers several times.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a free handshake slot, longer than all handshakes before it.
const TURN_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum bytes of one read, so that data is written before it leaves the second-level cache of a core.
const READ_BYTES: usize = 128 << 10;

/// Connection for requests.
#[derive(Debug)]
pub(super) struct HttpConnection {
    requests: SendRequest<ProgressBody>,
    /// Duplicate of its socket; none if no more files can be open.
    socket: Option<OwnedFd>,
    watch: tcp_info::Watch,
    /// Proxy that forwards each request.
    proxy: Option<Arc<Proxy>>,
}

impl HttpConnection {
    pub(super) fn send_request(
        &mut self,
        request: Request<ProgressBody>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.requests.send_request(request)
    }

    /// Wait until the connection accepts another request.
    pub(super) async fn ready(&mut self) -> hyper::Result<()> {
        self.requests.ready().await
    }

    fn is_ready(&self) -> bool {
        self.requests.is_ready()
    }

    /// Return the proxy that forwards each request.
    pub(super) fn proxy(&self) -> Option<Arc<Proxy>> {
        self.proxy.clone()
    }

    /// Return the TCP information of the connection, and whether packets were lost since the last call.
    pub(super) fn tcp_snapshot(&mut self) -> Option<(tcp_info::TcpSnapshot, bool)> {
        self.watch.read(self.socket.as_ref()?)
    }
}

/// Request profile of a server after its first response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerProfile {
    /// Requests with checksum.
    Full,
    /// Requests without checksum.
    Plain,
    /// As `Plain`, plus a listing for the modification time: XRootD 5.5, whose responses lack it.
    Listed,
}

/// Opens connections; shared by the threads of a copy.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    /// Set at the start, or when a redirection leads to a server with TLS.
    tls: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
    proxies: Arc<ProxySelection>,
    tcp: Tcp,
    pub(super) stop: CancelToken,
    /// Slots for handshakes.
    handshakes: Arc<Semaphore>,
    /// True if all requests go to one server.
    alone: bool,
    /// Observations about servers.
    cache: Arc<ServerCache>,
    /// Cached profiles of servers.
    profiles: Arc<Mutex<HashMap<HttpServer, ServerProfile>>>,
}

/// Observations about servers.
#[derive(Debug, Default)]
struct ServerCache {
    /// Number of opened connections.
    opened: AtomicUsize,
    /// Number of responses, of any status.
    responses: AtomicUsize,
    /// Number of requests whose responses were not read completely.
    in_flight: AtomicUsize,
    /// True if a server never responded to all attempts of a request.
    unreached: AtomicBool,
    /// Minimum and latest time to open a connection to each server.
    trips: Mutex<HashMap<HttpServer, (Duration, Duration)>>,
}

impl ServerCache {
    fn record_rtt(&self, server: &HttpServer, trip: Duration) {
        let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner);
        let (min_rtt, last) = trips.entry(server.clone()).or_insert((trip, trip));
        (*min_rtt, *last) = (trip.min(*min_rtt), trip);
    }
}

/// Counts a request in flight until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightGuard(Arc<ServerCache>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections of one thread.
#[derive(Debug)]
pub(super) struct Connections {
    dialer: Dialer,
    idle: RefCell<HashMap<HttpServer, Vec<HttpConnection>>>,
    addresses: RefCell<HashMap<HttpServer, Vec<SocketAddr>>>,
}

impl Dialer {
    pub(crate) fn new(tls: Option<Arc<ClientConfig>>, tcp: Tcp, stop: CancelToken) -> Self {
        Self {
            tls: Arc::new(tls.map_or_else(OnceLock::new, |tls| Ok(tls).into())),
            proxies: Arc::new(ProxySelection::all(None)),
            tcp,
            stop,
            handshakes: Arc::new(Semaphore::new(FIRST_HANDSHAKES)),
            alone: false,
            cache: Arc::default(),
            profiles: Arc::default(),
        }
    }

    /// Mark all requests as directed to one server: if it fails, no other request can succeed.
    pub(super) fn alone(self, alone: bool) -> Self {
        Self { alone, ..self }
    }

    /// Use these proxies.
    pub(crate) fn through(self, proxies: ProxySelection) -> Self {
        Self {
            proxies: Arc::new(proxies),
            ..self
        }
    }

    /// Return whether requests were sent but no server ever responded.
    pub(super) fn is_unreached(&self) -> bool {
        self.cache.unreached.load(Ordering::Relaxed)
            && self.cache.responses.load(Ordering::Relaxed) == 0
    }

    /// Return the number of opened connections.
    pub(super) fn opened(&self) -> usize {
        self.cache.opened.load(Ordering::Relaxed)
    }

    fn proxy(&self, server: &HttpServer) -> Result<Option<&Arc<Proxy>>, RequestError> {
        let named = self.proxies.to(server);
        named.map_err(|error| RequestError::UnexpectedResponse {
            expected: "a usable proxy setting",
            found: error.to_string(),
        })
    }

    /// Open a connection to one of these addresses.
    async fn dial(
        &self,
        server: &HttpServer,
        addresses: &[SocketAddr],
    ) -> Result<HttpConnection, RequestError> {
        let mut last = RequestError::Connection("a host name without an address".into());
        for attempt in 0..MAX_HANDSHAKES {
            let timeout = HANDSHAKE_TIMEOUT * 2_u32.pow(attempt);
            let mut silent = false;
            for address in addresses {
                match self.meet(server, *address, timeout).await {
                    Err(fault @ (RequestError::Connection(_) | RequestError::Silence(_))) => {
                        silent |= matches!(fault, RequestError::Silence(_));
                        last = fault;
                    }
                    other => return other,
                }
            }
            if !silent {
                break;
            }
        }
        Err(last)
    }

    async fn meet(
        &self,
        server: &HttpServer,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<HttpConnection, RequestError> {
        let handshakes = within(&self.stop, TURN_TIMEOUT, self.handshakes.acquire()).await?;
        let handshakes = handshakes.expect("it is never closed");
        // `connect` has its own timeout.
        let connected = within(&self.stop, Duration::MAX, self.tcp.connect(address)).await?;
        let proxy = self.proxy(server)?;
        let stream = connected.map_err(|error| {
            let at = proxy.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
            RequestError::Connection(crate::error::describe(&error) + &at)
        })?;
        if let Some(trip) = tcp_info::read(&stream).and_then(|cache| cache.min_round_trip) {
            self.cache.record_rtt(server, trip);
        }
        let socket = stream.as_fd().try_clone_to_owned().ok();
        let requests = if server.tls {
            let stream = match proxy {
                Some(proxy) => within(&self.stop, timeout, proxy.tunnel(stream, server)).await??,
                None => stream,
            };
            self.secure(server, stream, timeout).await?
        } else {
            drive(TokioIo::new(stream)).await?
        };
        handshakes.forget();
        self.handshakes.add_permits(GROWTH);
        self.cache.opened.fetch_add(1, Ordering::Relaxed);
        Ok(HttpConnection {
            requests,
            socket,
            watch: tcp_info::Watch::default(),
            proxy: proxy.filter(|_| !server.tls).cloned(),
        })
    }

    async fn secure(
        &self,
        server: &HttpServer,
        stream: TcpStream,
        timeout: Duration,
    ) -> Result<SendRequest<ProgressBody>, RequestError> {
        let name = ServerName::try_from(server.host.clone());
        let name = name
            .map_err(|_| RequestError::Tls(format!("the invalid host name `{}`", server.host)))?;
        let tls = self
            .tls
            .get_or_init(|| super::tls::client().map_err(|error| error.to_string()));
        let tls = tls
            .as_ref()
            .map_err(|error| RequestError::Tls(error.clone()))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let secured = within(&self.stop, timeout, connector.connect(name, stream)).await?;
        let stream = secured.map_err(|error| match error.get_ref() {
            Some(inner) if inner.is::<rustls::Error>() => RequestError::Tls(inner.to_string()),
            _ => RequestError::Connection(crate::error::describe(&error)),
        })?;
        drive(TokioIo::new(stream)).await
    }
}

impl Connections {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self {
            dialer,
            idle: RefCell::default(),
            addresses: RefCell::default(),
        }
    }

    /// Return the cancellation token.
    pub(super) fn stop(&self) -> &CancelToken {
        &self.dialer.stop
    }

    /// Count a response.
    pub(super) fn count_response(&self) {
        self.dialer.cache.responses.fetch_add(1, Ordering::Relaxed);
    }

    /// Count a request in flight until the guard is dropped.
    pub(super) fn in_flight(&self) -> InFlightGuard {
        self.dialer.cache.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(Arc::clone(&self.dialer.cache))
    }

    /// Return the number of opened connections and responses, as signs of life.
    pub(super) fn signs(&self) -> usize {
        let cache = &self.dialer.cache;
        cache.opened.load(Ordering::Relaxed) + cache.responses.load(Ordering::Relaxed)
    }

    /// Return whether the last connection to a server was opened through a queue that fills.
    /// Kernels open connections, so a busy server has no effect.
    pub(super) fn is_full(&self, server: &HttpServer) -> bool {
        let trips = &self.dialer.cache.trips;
        let trips = trips.lock().unwrap_or_else(PoisonError::into_inner);
        let trip = trips.get(server);
        trip.is_some_and(|(min_rtt, last)| is_long(*last, *min_rtt))
    }

    /// Classify the last error of a request. `signs` is the number of signs of life at an earlier attempt.
    pub(super) fn classify(&self, fault: RequestError, signs: Option<usize>) -> RequestError {
        let cache = &self.dialer.cache;
        let none_yet = cache.responses.load(Ordering::Relaxed) == 0;
        let all_silent =
            signs == Some(self.signs()) && cache.in_flight.load(Ordering::Relaxed) == 0;
        if !fault.is_of_connection() || !(none_yet || all_silent) {
            return fault;
        }
        cache.unreached.store(true, Ordering::Relaxed);
        if self.dialer.alone {
            RequestError::Unreached(Box::new(fault))
        } else {
            fault
        }
    }

    /// Return the profile of a server; none before its first response.
    pub(super) fn manner(&self, server: &HttpServer) -> Option<ServerProfile> {
        let profiles = self.dialer.profiles.lock();
        let profiles = profiles.unwrap_or_else(PoisonError::into_inner);
        profiles.get(server).copied()
    }

    /// Store a profile for all threads. A restricted profile is never upgraded.
    pub(super) fn remember(&self, server: &HttpServer, manner: ServerProfile) {
        let profiles = self.dialer.profiles.lock();
        let mut profiles = profiles.unwrap_or_else(PoisonError::into_inner);
        let before = profiles.entry(server.clone()).or_insert(manner);
        *before = manner.max(*before);
    }

    /// Keep a connection whose response was read completely.
    pub(super) fn keep(&self, server: &HttpServer, sender: HttpConnection) {
        let mut idle = self.idle.borrow_mut();
        idle.entry(server.clone()).or_default().push(sender);
    }

    /// Return a kept connection that is still open as far as known.
    pub(super) fn kept(&self, server: &HttpServer) -> Option<HttpConnection> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(server)?;
        while let Some(sender) = kept.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    /// Return whether a connection is kept.
    pub(super) fn has_kept(&self, server: &HttpServer) -> bool {
        let idle = self.idle.borrow();
        let mut kept = idle.get(server).into_iter().flatten();
        kept.any(HttpConnection::is_ready)
    }

    /// Close the kept connections.
    pub(super) fn close_kept(&self, server: &HttpServer) {
        self.idle.borrow_mut().remove(server);
    }

    /// Open a new connection.
    ///
    /// # Errors
    /// The error of the connection.
    pub(super) async fn open(&self, server: &HttpServer) -> Result<HttpConnection, RequestError> {
        let addresses = self.addresses(server).await?;
        self.dialer.dial(server, &addresses).await
    }

    async fn addresses(&self, server: &HttpServer) -> Result<Vec<SocketAddr>, RequestError> {
        if let Some(profiles) = self.addresses.borrow().get(server) {
            return Ok(profiles.clone());
        }
        threads::spare().map_err(|error| RequestError::Connection(threads::none(&error)))?;
        // A proxy looks up the server itself.
        let proxy = self.dialer.proxy(server)?;
        let first = proxy.map_or(server, |proxy| &proxy.server);
        let pending = tokio::net::lookup_host((first.host.as_str(), first.port));
        let found = within(self.stop(), LOOKUP_TIMEOUT, pending).await?;
        let found: Vec<_> = found
            .map_err(|error| {
                RequestError::Connection(format!("no address for {}: {error}", first.host))
            })?
            .collect();
        self.addresses
            .borrow_mut()
            .insert(server.clone(), found.clone());
        Ok(found)
    }
}

async fn drive<I>(io: I) -> Result<SendRequest<ProgressBody>, RequestError>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    // XRootD recognises `Content-Length` and `Depth`, but not `content-length` and `depth`.
    let started = Builder::new()
        .max_buf_size(READ_BYTES)
        .title_case_headers(true)
        .handshake(io)
        .await;
    let (sender, connection) = started.map_err(|error| broken(&error))?;
    // The task ends with its sender, and the request reports its errors.
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
