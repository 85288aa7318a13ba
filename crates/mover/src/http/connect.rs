//! Connections to servers: opened, secured, kept for the next request.
//!
//! Few handshakes are under way at once in the beginning, and each that succeeds makes room for four: of hundreds that come within a millisecond
//! a server may leave some without a word (XRootD 5.5 does, for 30 s). One that is silent is given up and made anew, with twice the patience.

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

use super::fault::{Fault, broken};
use super::outgoing::Told;
use super::proxy::{Proxies, Proxy};
use super::target::Server;
use super::wait::within;
use crate::net::sockets::Tcp;
use crate::net::tcp_info;
use crate::net::trips::is_long;
use crate::stop::Stop;
use crate::threads;

/// Handshakes that are under way at once in the beginning.
const FIRST_HANDSHAKES: usize = 8;
/// For how many one that succeeds makes room.
const GROWTH: usize = 4;
/// How long a server may be silent within a handshake, the first time: it needs two round trips and milliseconds of a processor, and the kernel
/// repeats what was lost after 1 s and after 3 s.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(4);
/// Handshakes for one connection; each is waited for twice as long as the one before.
const MOST_HANDSHAKES: u32 = 4;
/// How long a name may be looked up: resolvers ask several servers several times.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long others may be at their handshakes before ours begins: longer than all of theirs.
const TURN_PATIENCE: Duration = Duration::from_secs(300);
/// What a connection reads at a time at most: what is read is written before it leaves the second cache of a core.
const READ_BYTES: usize = 128 << 10;

/// A connection that requests go over.
#[derive(Debug)]
pub(super) struct Sender {
    requests: SendRequest<Told>,
    /// Its socket, which is its own as well: none where no more files can be open.
    socket: Option<OwnedFd>,
    watch: tcp_info::Watch,
    /// The proxy that is to see each request, and pass it on.
    proxy: Option<Arc<Proxy>>,
}

impl Sender {
    pub(super) fn send_request(
        &mut self,
        request: Request<Told>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.requests.send_request(request)
    }

    /// Waits until it takes another request.
    pub(super) async fn ready(&mut self) -> hyper::Result<()> {
        self.requests.ready().await
    }

    fn is_ready(&self) -> bool {
        self.requests.is_ready()
    }

    /// The proxy that is to see each request, and pass it on.
    pub(super) fn proxy(&self) -> Option<Arc<Proxy>> {
        self.proxy.clone()
    }

    /// What the kernel tells of it, and whether packets were lost since that was asked last.
    pub(super) fn seen(&mut self) -> Option<(tcp_info::Seen, bool)> {
        self.watch.see(self.socket.as_ref()?)
    }
}

/// How a server that has answered is best asked for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    /// With its checksum.
    Full,
    /// For nothing but bytes.
    Plain,
    /// The same, and a listing for its time: XRootD (5.5), whose answers have none.
    Listed,
}

/// How connections are opened; the threads of an order share it.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    /// Known from the beginning, or found where a redirection leads to a server with TLS.
    tls: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
    proxies: Arc<Proxies>,
    tcp: Tcp,
    pub(super) stop: Stop,
    /// Room for handshakes.
    room: Arc<Semaphore>,
    /// Whether all is asked of one server.
    alone: bool,
    /// What servers have let us see.
    seen: Arc<Seen>,
    /// Servers that have answered.
    known: Arc<Mutex<HashMap<Server, Manner>>>,
}

/// What servers have let us see.
#[derive(Debug, Default)]
struct Seen {
    /// Connections that were opened.
    opened: AtomicUsize,
    /// Answers, whatever they were.
    answers: AtomicUsize,
    /// Requests on open connections whose answers were not read to their ends.
    under_way: AtomicUsize,
    /// No answer, when that was given up.
    unreached: AtomicBool,
    /// What the kernels took to open a connection to each server, as ours tells it: the least, and the last one.
    trips: Mutex<HashMap<Server, (Duration, Duration)>>,
}

impl Seen {
    fn opened_in(&self, server: &Server, trip: Duration) {
        let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner);
        let (least, last) = trips.entry(server.clone()).or_insert((trip, trip));
        (*least, *last) = (trip.min(*least), trip);
    }
}

/// A request that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Seen>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections of one thread.
#[derive(Debug)]
pub(super) struct Connections {
    dialer: Dialer,
    idle: RefCell<HashMap<Server, Vec<Sender>>>,
    addresses: RefCell<HashMap<Server, Vec<SocketAddr>>>,
}

impl Dialer {
    pub(crate) fn new(tls: Option<Arc<ClientConfig>>, tcp: Tcp, stop: Stop) -> Self {
        Self {
            tls: Arc::new(tls.map_or_else(OnceLock::new, |tls| Ok(tls).into())),
            proxies: Arc::new(Proxies::all(None)),
            tcp,
            stop,
            room: Arc::new(Semaphore::new(FIRST_HANDSHAKES)),
            alone: false,
            seen: Arc::default(),
            known: Arc::default(),
        }
    }

    /// For what is asked of one server: where that does not answer, nothing else fares better.
    pub(super) fn alone(self, alone: bool) -> Self {
        Self { alone, ..self }
    }

    /// Through these proxies.
    pub(super) fn through(self, proxies: Proxies) -> Self {
        Self {
            proxies: Arc::new(proxies),
            ..self
        }
    }

    /// Whether servers were asked and none has ever answered.
    pub(super) fn is_unreached(&self) -> bool {
        self.seen.unreached.load(Ordering::Relaxed)
            && self.seen.answers.load(Ordering::Relaxed) == 0
    }

    /// Connections that were opened.
    pub(super) fn opened(&self) -> usize {
        self.seen.opened.load(Ordering::Relaxed)
    }

    fn proxy(&self, server: &Server) -> Result<Option<&Arc<Proxy>>, Fault> {
        let named = self.proxies.to(server);
        named.map_err(|error| Fault::Answer {
            expected: "a way there",
            found: error.to_string(),
        })
    }

    /// Opens a connection to one of these addresses.
    async fn dial(&self, server: &Server, addresses: &[SocketAddr]) -> Result<Sender, Fault> {
        let mut last = Fault::Connection("a name without an address".into());
        for attempt in 0..MOST_HANDSHAKES {
            let patience = HANDSHAKE_PATIENCE * 2_u32.pow(attempt);
            let mut silent = false;
            for address in addresses {
                match self.meet(server, *address, patience).await {
                    Err(fault @ (Fault::Connection(_) | Fault::Silence(_))) => {
                        silent |= matches!(fault, Fault::Silence(_));
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
        server: &Server,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<Sender, Fault> {
        let room = within(&self.stop, TURN_PATIENCE, self.room.acquire()).await?;
        let room = room.expect("it is never closed");
        // It has a limit of its own.
        let connected = within(&self.stop, Duration::MAX, self.tcp.connect(address)).await?;
        let proxy = self.proxy(server)?;
        let stream = connected.map_err(|error| {
            let at = proxy.map_or_else(String::new, |proxy| format!(" by the proxy {proxy}"));
            Fault::Connection(crate::error::said(&error) + &at)
        })?;
        if let Some(trip) = tcp_info::see(&stream).and_then(|seen| seen.least_round_trip) {
            self.seen.opened_in(server, trip);
        }
        let socket = stream.as_fd().try_clone_to_owned().ok();
        let requests = if server.tls {
            let stream = match proxy {
                Some(proxy) => within(&self.stop, patience, proxy.tunnel(stream, server)).await??,
                None => stream,
            };
            self.secure(server, stream, patience).await?
        } else {
            drive(TokioIo::new(stream)).await?
        };
        room.forget();
        self.room.add_permits(GROWTH);
        self.seen.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Sender {
            requests,
            socket,
            watch: tcp_info::Watch::default(),
            proxy: proxy.filter(|_| !server.tls).cloned(),
        })
    }

    async fn secure(
        &self,
        server: &Server,
        stream: TcpStream,
        patience: Duration,
    ) -> Result<SendRequest<Told>, Fault> {
        let name = ServerName::try_from(server.host.clone());
        let name =
            name.map_err(|_| Fault::Tls(format!("`{}`, which is no name of a host", server.host)))?;
        let tls = self
            .tls
            .get_or_init(|| super::tls::client().map_err(|error| error.to_string()));
        let tls = tls.as_ref().map_err(|error| Fault::Tls(error.clone()))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let secured = within(&self.stop, patience, connector.connect(name, stream)).await?;
        let stream = secured.map_err(|error| match error.get_ref() {
            Some(inner) if inner.is::<rustls::Error>() => Fault::Tls(inner.to_string()),
            _ => Fault::Connection(crate::error::said(&error)),
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

    /// Whether we are to stop.
    pub(super) fn stop(&self) -> &Stop {
        &self.dialer.stop
    }

    /// Notes that somebody has answered.
    pub(super) fn answered(&self) {
        self.dialer.seen.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a request is under way, until what this returns is dropped.
    pub(super) fn under_way(&self) -> UnderWay {
        self.dialer.seen.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.dialer.seen))
    }

    /// Signs of life so far, of any server: connections that were opened, and answers.
    pub(super) fn signs(&self) -> usize {
        let seen = &self.dialer.seen;
        seen.opened.load(Ordering::Relaxed) + seen.answers.load(Ordering::Relaxed)
    }

    /// Whether the last connection to a server was opened through a queue that fills: by kernels, however busy the server is.
    pub(super) fn is_full(&self, server: &Server) -> bool {
        let trips = &self.dialer.seen.trips;
        let trips = trips.lock().unwrap_or_else(PoisonError::into_inner);
        let trip = trips.get(server);
        trip.is_some_and(|(least, last)| is_long(*last, *least))
    }

    /// What a fault is after the last try; `signs` were there a good while ago.
    pub(super) fn judged(&self, fault: Fault, signs: Option<usize>) -> Fault {
        let seen = &self.dialer.seen;
        let never = seen.answers.load(Ordering::Relaxed) == 0;
        let gone = signs == Some(self.signs()) && seen.under_way.load(Ordering::Relaxed) == 0;
        if !fault.is_of_connection() || !(never || gone) {
            return fault;
        }
        seen.unreached.store(true, Ordering::Relaxed);
        if self.dialer.alone {
            Fault::Unreached(Box::new(fault))
        } else {
            fault
        }
    }

    /// How a server is best asked; none of one that has not answered yet.
    pub(super) fn manner(&self, server: &Server) -> Option<Manner> {
        let known = self.dialer.known.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.get(server).copied()
    }

    /// Has all threads remember that; who is known to like less stays so.
    pub(super) fn remember(&self, server: &Server, manner: Manner) {
        let known = self.dialer.known.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let before = known.entry(server.clone()).or_insert(manner);
        *before = manner.max(*before);
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn keep(&self, server: &Server, sender: Sender) {
        let mut idle = self.idle.borrow_mut();
        idle.entry(server.clone()).or_default().push(sender);
    }

    /// One that was kept, and is still open as far as we know.
    pub(super) fn kept(&self, server: &Server) -> Option<Sender> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(server)?;
        while let Some(sender) = kept.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    /// Whether one is.
    pub(super) fn has_kept(&self, server: &Server) -> bool {
        let idle = self.idle.borrow();
        let mut kept = idle.get(server).into_iter().flatten();
        kept.any(Sender::is_ready)
    }

    /// Closes those that are kept.
    pub(super) fn close_kept(&self, server: &Server) {
        self.idle.borrow_mut().remove(server);
    }

    /// A new one.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn open(&self, server: &Server) -> Result<Sender, Fault> {
        let addresses = self.addresses(server).await?;
        self.dialer.dial(server, &addresses).await
    }

    async fn addresses(&self, server: &Server) -> Result<Vec<SocketAddr>, Fault> {
        if let Some(known) = self.addresses.borrow().get(server) {
            return Ok(known.clone());
        }
        threads::spare().map_err(|error| Fault::Connection(threads::none(&error)))?;
        // A proxy looks for the server itself.
        let proxy = self.dialer.proxy(server)?;
        let first = proxy.map_or(server, |proxy| &proxy.server);
        let asked = tokio::net::lookup_host((first.host.as_str(), first.port));
        let found = within(self.stop(), LOOKUP_PATIENCE, asked).await?;
        let found: Vec<_> = found
            .map_err(|error| Fault::Connection(format!("no address of {}: {error}", first.host)))?
            .collect();
        self.addresses
            .borrow_mut()
            .insert(server.clone(), found.clone());
        Ok(found)
    }
}

async fn drive<I>(io: I) -> Result<SendRequest<Told>, Fault>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    // XRootD knows `Content-Length` and `Depth`, and not `content-length` and `depth`.
    let begun = Builder::new()
        .max_buf_size(READ_BYTES)
        .title_case_headers(true)
        .handshake(io)
        .await;
    let (sender, connection) = begun.map_err(|error| broken(&error))?;
    // It ends with its sender; what went wrong with it, its request is told.
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
