//! The doors, the threads behind them, and the end: a signal, then time for what goes on.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use super::arguments::{Arguments, seconds};
use super::host::Host;
use super::limits::Ticket;
use super::metrics;
use super::{ftp, http};
use crate::error::{Error, said};

/// Most threads for sessions where nothing is said.
const THREADS: usize = 8;
/// Threads that wait for disks, for each thread of sessions.
const DISK_THREADS: usize = 16;
/// Connections that wait to be taken.
const BACKLOG: i32 = 4096;
/// Pause after a connection could not be taken: there are no more open files.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the end of the last session is looked for.
const TICK: Duration = Duration::from_millis(20);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All sessions had their time.
    Drained,
    /// Some were cut off.
    Cut,
}

/// What the server is about to do; all sessions watch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It goes down: sessions end when they are idle.
    Leaving,
    /// It goes now.
    Cut,
}

/// What is spoken at a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// FTP and GridFTP.
    Ftp,
    /// HTTP and WebDAV.
    Http,
    /// The same within TLS.
    Https,
}

/// A client at a door.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) door: Door,
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Its number, from 1 on.
    pub(crate) session: u64,
    pub(crate) ticket: Ticket,
}

/// Serves until a signal comes.
///
/// # Errors
/// What cannot be opened, read or listened on.
pub(crate) fn carry_out(arguments: Arguments) -> Result<Ending, Error> {
    let signals = blocked_signals()?;
    let (host, log) = Host::new(&arguments)?;
    let host = Arc::new(host);
    let doors = open_doors(&arguments)?;
    let counters = arguments.metrics.map(open_counters).transpose()?;
    let (phase, watched) = watch::channel(Phase::Serving);
    let threads = arguments.threads.map_or_else(cores, usize::from);
    let mut loops = Vec::new();
    let mut handles = Vec::new();
    for number in 0..threads {
        let (sender, receiver) = unbounded_channel();
        loops.push(sender);
        let (host, watched) = (Arc::clone(&host), watched.clone());
        handles.push(thread(format!("sessions-{number}"), move || {
            run_sessions(&host, receiver, &watched);
        })?);
    }
    announce(&arguments, &host, &doors);
    let front = Front {
        host: Arc::clone(&host),
        loops,
        watched,
    };
    handles.push(thread("doors".into(), move || front.run(doors, counters))?);
    let _ = signals.wait();
    let ending = go_down(&arguments, &host, &phase, signals)?;
    for handle in handles {
        // A thread that panicked has ended too.
        let _ = handle.join();
    }
    host.log.event(|| json!({"event": "end", "outcome": if ending == Ending::Drained { "drained" } else { "cut" }}));
    drop(host);
    let _ = log.join();
    Ok(ending)
}

/// Blocks the signals that end a server, for this thread and all that it starts.
fn blocked_signals() -> Result<SigSet, Error> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect();
    signals.thread_block().map_err(|errno| Error::System {
        what: "cannot wait for signals",
        reason: errno.desc().to_owned(),
    })?;
    Ok(signals)
}

fn open_doors(arguments: &Arguments) -> Result<Vec<(Door, TcpListener)>, Error> {
    let ftp = arguments.addresses();
    let ftp = ftp.iter().map(|any| Ok((Door::Ftp, open_door(any)?)));
    let web = |door, addresses: &[SocketAddr]| -> Result<Vec<_>, Error> {
        let open = |&address| Ok((door, open_door(&[address])?));
        addresses.iter().map(open).collect()
    };
    let mut doors = ftp.collect::<Result<Vec<_>, Error>>()?;
    doors.extend(web(Door::Http, &arguments.web.http)?);
    doors.extend(web(Door::Https, &arguments.web.https)?);
    Ok(doors)
}

fn open_door(any: &[SocketAddr]) -> Result<TcpListener, Error> {
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
        advice: "name another with --listen",
    })
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library asks for a queue of 128, which a burst of clients overruns.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn open_counters(address: SocketAddr) -> Result<TcpListener, Error> {
    metrics::listen(address).map_err(|error| Error::Place {
        place: address.to_string().into(),
        expected: "an address and port that are free and ours",
        found: said(&error),
        advice: "name another with --metrics",
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS))
}

fn thread(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let started = std::thread::Builder::new().name(name).spawn(work);
    started.map_err(|error| Error::System {
        what: "cannot start a thread",
        reason: said(&error),
    })
}

fn announce(arguments: &Arguments, host: &Host, doors: &[(Door, TcpListener)]) {
    let of = |kind| -> Vec<String> {
        let doors = doors.iter().filter(|(door, _)| *door == kind);
        let addresses = doors.filter_map(|(_, door)| door.local_addr().ok());
        addresses.map(|address| address.to_string()).collect()
    };
    let (addresses, http, https) = (of(Door::Ftp), of(Door::Http), of(Door::Https));
    let directory: &Path = &arguments.directory;
    host.log.event(|| {
        json!({
            "event": "start", "format": "venturi-serve", "version": 1, "listen": addresses, "http": http, "https": https,
            "directory": directory.to_string_lossy(), "write": arguments.write,
        })
    });
    if !arguments.quiet && !arguments.json {
        let how = if arguments.write {
            "reading and writing"
        } else {
            "reading"
        };
        let kinds = [
            (addresses, "FTP, GridFTP"),
            (http, "HTTP, WebDAV"),
            (https, "the same within TLS"),
        ];
        let at = kinds.iter().filter(|(addresses, _)| !addresses.is_empty());
        let at: Vec<_> = at
            .map(|(addresses, name)| format!("{} ({name})", addresses.join(", ")))
            .collect();
        eprintln!(
            "venturi serve: {} for {how} at {}",
            directory.display(),
            at.join(", ")
        );
    }
}

/// Has sessions end in their time, or, after that or a second signal, at once.
fn go_down(
    arguments: &Arguments,
    host: &Host,
    phase: &watch::Sender<Phase>,
    signals: SigSet,
) -> Result<Ending, Error> {
    phase.send_replace(Phase::Leaving);
    let deadline = Instant::now() + seconds(arguments.drain_time);
    thread("second signal".into(), move || {
        let _ = signals.wait();
        std::process::exit(super::CUT.into());
    })?;
    while host.limits.count() > 0 && Instant::now() < deadline {
        std::thread::sleep(TICK);
    }
    let ending = if host.limits.count() == 0 {
        Ending::Drained
    } else {
        Ending::Cut
    };
    phase.send_replace(Phase::Cut);
    Ok(ending)
}

/// Takes clients and deals them out.
struct Front {
    host: Arc<Host>,
    loops: Vec<UnboundedSender<Arrival>>,
    watched: watch::Receiver<Phase>,
}

impl Front {
    /// Until the server goes down.
    fn run(self, doors: Vec<(Door, TcpListener)>, counters: Option<TcpListener>) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        else {
            return;
        };
        let mut watched = self.watched.clone();
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let front = Arc::new(self);
            if let Some(counters) =
                counters.and_then(|it| tokio::net::TcpListener::from_std(it).ok())
            {
                tasks.spawn(metrics::tell(counters, Arc::clone(&front.host)));
            }
            for (kind, door) in doors
                .into_iter()
                .filter_map(|(kind, it)| Some((kind, tokio::net::TcpListener::from_std(it).ok()?)))
            {
                tasks.spawn(Arc::clone(&front).take(kind, door));
            }
            // An error: the sender has gone, and the server with it.
            let _ = watched.wait_for(|phase| *phase != Phase::Serving).await;
        });
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
                    let session = self
                        .host
                        .metrics
                        .sessions
                        .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
                        + 1;
                    if let Ok(socket) = socket.into_std() {
                        // A loop that has gone drops it.
                        let _ = self.loops[turn].send(Arrival {
                            door: kind,
                            socket,
                            peer,
                            session,
                            ticket,
                        });
                    }
                }
                Err(full) => {
                    metrics::add(&self.host.metrics.refused, 1);
                    self.host.log.event(|| json!({"event": "refused", "peer": peer.to_string(), "reason": full.text()}));
                    // One packet, which a new socket has room for.
                    let _ = match kind {
                        Door::Ftp => socket.try_write(format!("421 {}, try again later.\r\n", full.text()).as_bytes()),
                        Door::Http => socket.try_write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"),
                        Door::Https => Ok(0),
                    };
                }
            }
        }
    }
}

/// A thread's sessions, until there are no more and none can come.
fn run_sessions(
    host: &Arc<Host>,
    mut arrivals: UnboundedReceiver<Arrival>,
    watched: &watch::Receiver<Phase>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(DISK_THREADS)
        .build();
    let Ok(runtime) = runtime else { return };
    LocalSet::new().block_on(&runtime, async {
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    Some(arrival) => {
                        let (host, watched) = (Arc::clone(host), watched.clone());
                        match arrival.door {
                            Door::Ftp => sessions.spawn_local(ftp::session(host, arrival, watched)),
                            Door::Http => sessions.spawn_local(http::session::session(host, arrival, false, watched)),
                            Door::Https => sessions.spawn_local(http::session::session(host, arrival, true, watched)),
                        };
                    }
                    None => break,
                },
                Some(_) = sessions.join_next() => {}
            }
        }
        while sessions.join_next().await.is_some() {}
    });
}
