//! The doors: where clients come in, are counted, and are dealt out to threads.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::arguments::Arguments;
use super::host::Host;
use super::limits::{Full, Ticket};
use super::listen::{Arrival, Door, Phase, unready};
use super::metrics;
use crate::error::{Error, said};
use crate::net::pacing;

/// Connections that wait to be taken.
const BACKLOG: i32 = 4096;
/// Pause after a connection could not be taken: there are no more open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes clients and deals them out.
pub(super) struct Front {
    runtime: Runtime,
    doors: Vec<(Door, tokio::net::TcpListener)>,
    counters: Option<tokio::net::TcpListener>,
    dealer: Dealer,
}

/// Who deals clients out to threads.
pub(super) struct Dealer {
    host: Arc<Host>,
    loops: Vec<UnboundedSender<Arrival>>,
    watched: watch::Receiver<Phase>,
}

impl Front {
    /// Opens what may fail before it is said that clients may come.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn open(
        runtime: Runtime,
        dealer: Dealer,
        doors: Vec<(Door, TcpListener)>,
        counters: Option<TcpListener>,
    ) -> Result<Self, Error> {
        let inside = runtime.enter();
        let opened = |door| tokio::net::TcpListener::from_std(door).map_err(unready);
        let doors = doors
            .into_iter()
            .map(|(kind, door)| Ok((kind, opened(door)?)))
            .collect::<Result<_, Error>>()?;
        let counters = counters.map(opened).transpose()?;
        drop(inside);
        Ok(Self {
            runtime,
            doors,
            counters,
            dealer,
        })
    }

    /// Until the server goes down.
    pub(super) fn run(self) {
        let mut watched = self.dealer.watched.clone();
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let dealer = Arc::new(self.dealer);
            if let Some(counters) = self.counters {
                tasks.spawn(metrics::tell(counters, Arc::clone(&dealer.host)));
            }
            for (kind, door) in self.doors {
                tasks.spawn(Arc::clone(&dealer).take(kind, door));
            }
            // An error: the sender has gone, and the server with it.
            let _ = watched.wait_for(|phase| *phase != Phase::Serving).await;
        });
    }
}

impl Dealer {
    pub(super) fn new(
        host: Arc<Host>,
        loops: Vec<UnboundedSender<Arrival>>,
        watched: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            host,
            loops,
            watched,
        }
    }

    async fn take(self: Arc<Self>, kind: Door, door: tokio::net::TcpListener) {
        let mut turn = 0;
        loop {
            let (socket, peer) = match door.accept().await {
                Ok(taken) => taken,
                // Who hung up meanwhile, or no more open files.
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            match self.host.limits.admit(peer.ip()) {
                Ok(ticket) => {
                    turn = (turn + 1) % self.loops.len();
                    self.deal(turn, kind, socket, peer, ticket);
                }
                Err(full) => self.refuse(kind, &socket, peer, full),
            }
        }
    }

    fn deal(
        &self,
        turn: usize,
        door: Door,
        socket: tokio::net::TcpStream,
        peer: SocketAddr,
        ticket: Ticket,
    ) {
        let session = self.host.metrics.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(socket) = socket.into_std() {
            // A loop that has gone drops it.
            let _ = self.loops[turn].send(Arrival {
                door,
                socket,
                peer,
                session,
                ticket,
            });
        }
    }

    fn refuse(&self, kind: Door, socket: &tokio::net::TcpStream, peer: SocketAddr, full: Full) {
        metrics::add(&self.host.metrics.refused, 1);
        self.host
            .log
            .event(|| json!({"event": "refused", "peer": peer.to_string(), "reason": full.text()}));
        // One packet, which a new socket has room for.
        let _ = match kind {
            Door::Ftp => socket
                .try_write(format!("421 {}, try again later.\r\n", full.text()).as_bytes()),
            Door::Http => socket.try_write(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n",
            ),
            Door::Https => Ok(0),
        };
    }
}

/// Opens all doors that the command line names.
///
/// # Errors
/// The first that cannot be opened.
pub(super) fn open_doors(arguments: &Arguments) -> Result<Vec<(Door, TcpListener)>, Error> {
    let ftp = arguments.addresses();
    let ftp = ftp
        .iter()
        .map(|any| Ok((Door::Ftp, open_door(any, "name another with --listen")?)));
    let web = |door, addresses: &[SocketAddr], advice| -> Result<Vec<_>, Error> {
        let open = |&address| {
            let listener = open_door(&[address], advice)?;
            // What it accepts has it from there.
            if let Some(bytes_per_s) = arguments.pacing {
                pacing::pace(&listener, bytes_per_s).map_err(unready)?;
            }
            Ok((door, listener))
        };
        addresses.iter().map(open).collect()
    };
    let mut doors = ftp.collect::<Result<Vec<_>, Error>>()?;
    doors.extend(web(
        Door::Http,
        &arguments.web.http,
        "name another with --http",
    )?);
    doors.extend(web(
        Door::Https,
        &arguments.web.https,
        "name another with --https",
    )?);
    Ok(doors)
}

fn open_door(any: &[SocketAddr], advice: &'static str) -> Result<TcpListener, Error> {
    let mut found = String::new();
    for address in any {
        match listen(*address) {
            Ok(listener) => return Ok(listener),
            Err(error) => found = said(&error),
        }
    }
    let address = any.iter().map(SocketAddr::to_string).collect::<Vec<_>>();
    Err(Error::Place {
        place: address.join(" or ").into(),
        expected: "an address and port that are free and ours",
        found,
        advice,
    })
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library asks for a queue of 128, which a burst of clients overruns.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub(super) fn open_counters(address: SocketAddr) -> Result<TcpListener, Error> {
    metrics::listen(address).map_err(|error| Error::Place {
        place: address.to_string().into(),
        expected: "an address and port that are free and ours",
        found: said(&error),
        advice: "name another with --metrics",
    })
}
