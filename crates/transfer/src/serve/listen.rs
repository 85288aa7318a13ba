//! Threads of a server, and its shutdown: a signal, then time for running transfers.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use super::acceptor::{Acceptor, Dispatcher, open_counters, open_listeners};
use super::arguments::{ServeArgs, seconds};
use super::limits::SessionPermit;
use super::state::ServerState;
use super::{ftp, http, option_conflicts};
use crate::error::{CopyError, describe};
use crate::{stderr, stop, threads};

/// Default maximum of session threads.
const THREADS: usize = 8;
/// Number of disk threads per session thread.
pub(super) const DISK_THREADS: usize = 16;
/// Time to wait for operations that do not notice the shutdown: a handshake or a disk access.
const GRACE: Duration = Duration::from_secs(1);
/// Interval of checks for the end of the last session.
const TICK: Duration = Duration::from_millis(20);

/// Outcome of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerExit {
    /// All sessions ended in time.
    Drained,
    /// Some sessions were aborted.
    Cut,
}

/// Phase of the server; all sessions watch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerPhase {
    /// Serving.
    Serving,
    /// Shutting down: sessions end when they are idle.
    Leaving,
    /// Sessions are aborted.
    Cut,
}

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerProtocol {
    /// FTP and GridFTP.
    Ftp,
    /// HTTP and WebDAV.
    Http,
    /// HTTP and WebDAV over TLS.
    Https,
}

/// Accepted client.
#[derive(Debug)]
pub(crate) struct AcceptedClient {
    pub(crate) listener: ServerProtocol,
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Number of the session, from 1.
    pub(crate) session: u64,
    pub(crate) permit: SessionPermit,
}

/// Serve until a signal arrives.
///
/// # Errors
/// A file or address that cannot be opened.
pub(crate) fn run(arguments: ServeArgs) -> Result<ServerExit, CopyError> {
    option_conflicts::fit(&arguments)?;
    let signalled = signals()?;
    let (host, log) = ServerState::new(&arguments)?;
    let host = Arc::new(host);
    let listeners = open_listeners(&arguments)?;
    let counters = arguments.metrics.map(open_counters).transpose()?;
    let (phase, watched) = watch::channel(ServerPhase::Serving);
    let threads = arguments.threads.map_or_else(cores, usize::from);
    let mut loops = Vec::new();
    let mut handles = Vec::new();
    for number in 0..threads {
        let (sender, receiver) = unbounded_channel();
        loops.push(sender);
        let (host, watched) = (Arc::clone(&host), watched.clone());
        let runtime = runtime()?;
        handles.push(thread(format!("sessions-{number}"), move || {
            run_sessions(runtime, &host, receiver, watched);
        })?);
    }
    let dispatcher = Dispatcher::new(Arc::clone(&host), loops, watched);
    let open = ListeningAddresses::of(&listeners, counters.as_ref());
    let acceptor = Acceptor::open(runtime()?, dispatcher, listeners, counters)?;
    // Clients are accepted only after the announcement, and the announcement follows when all is ready.
    let (report, start) = channel::<()>();
    handles.push(thread("doors".into(), move || {
        let _ = start.recv();
        acceptor.run();
    })?);
    announce(&arguments, &host, &open);
    drop(report);
    let _ = signalled.recv();
    let exit = shut_down(&arguments, &host, &phase);
    for handle in handles {
        // A thread that panicked has ended too.
        let _ = handle.join();
    }
    host.log.event(|| json!({"event": "end", "outcome": if exit == ServerExit::Drained { "drained" } else { "cut" }}));
    drop(host);
    // The thread ends with the last sender; a disk access may delay this.
    let start = Instant::now();
    while !log.is_finished() && start.elapsed() < GRACE {
        std::thread::sleep(TICK);
    }
    Ok(exit)
}

/// Return a receiver of the first shutdown signal that is not ignored; a second one aborts all transfers. The
/// signals are blocked for this thread and all its children.
fn signals() -> Result<Receiver<()>, CopyError> {
    let signals = stop::ending();
    signals.thread_block().map_err(|errno| CopyError::System {
        what: "cannot wait for signals",
        reason: errno.desc().to_owned(),
    })?;
    let (report, receiver) = channel();
    thread("signals".into(), move || {
        let _ = signals.wait();
        let _ = report.send(());
        let _ = signals.wait();
        std::process::exit(super::INTERRUPTED.into());
    })?;
    Ok(receiver)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS))
}

/// Return a runtime with threads for disk access. One of these exists from the start, so work waits for it if no
/// more are available.
fn runtime() -> Result<Runtime, CopyError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(DISK_THREADS)
        .thread_keep_alive(Duration::MAX)
        .build()
        .map_err(registration_error)?;
    let started = threads::first(&runtime);
    started.map_err(|error| threads::start_error(&error, threads::SERVE_OPTION))?;
    Ok(runtime)
}

pub(super) fn registration_error(error: std::io::Error) -> CopyError {
    CopyError::System {
        what: "cannot wait for clients",
        reason: describe(&error),
    }
}

fn thread(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, CopyError> {
    let started = std::thread::Builder::new().name(name).spawn(work);
    started.map_err(|error| threads::start_error(&error, threads::SERVE_OPTION))
}

/// Addresses of the listeners.
struct ListeningAddresses {
    ftp: Vec<String>,
    http: Vec<String>,
    https: Vec<String>,
    /// Address of the metrics.
    counters: Option<SocketAddr>,
}

impl ListeningAddresses {
    fn of(listeners: &[(ServerProtocol, TcpListener)], counters: Option<&TcpListener>) -> Self {
        let of = |kind| {
            let listeners = listeners.iter().filter(|(protocol, _)| *protocol == kind);
            let addresses = listeners.filter_map(|(_, protocol)| protocol.local_addr().ok());
            addresses.map(|address| address.to_string()).collect()
        };
        Self {
            ftp: of(ServerProtocol::Ftp),
            http: of(ServerProtocol::Http),
            https: of(ServerProtocol::Https),
            counters: counters.and_then(|listener| listener.local_addr().ok()),
        }
    }
}

fn announce(arguments: &ServeArgs, host: &ServerState, open: &ListeningAddresses) {
    let ListeningAddresses {
        ftp,
        http,
        https,
        counters,
    } = open;
    let counters = counters.as_ref();
    let directory: &Path = &arguments.directory;
    host.log.event(|| {
        let mut start = json!({
            "event": "start", "format": "venturi-serve", "version": 1, "listen": ftp, "http": http, "https": https,
            "directory": directory.to_string_lossy(), "write": arguments.write,
        });
        if let Some(address) = counters {
            start["metrics"] = address.to_string().into();
        }
        start
    });
    if !arguments.quiet && !arguments.json {
        let how = if arguments.write {
            "reading and writing"
        } else {
            "reading"
        };
        let kinds = [
            (ftp, "FTP, GridFTP"),
            (http, "HTTP, WebDAV"),
            (https, "HTTPS"),
        ];
        let at = kinds.iter().filter(|(addresses, _)| !addresses.is_empty());
        let at: Vec<_> = at
            .map(|(addresses, name)| format!("{} ({name})", addresses.join(", ")))
            .collect();
        let counters = counters.map(|address| format!("; counters at http://{address}/metrics"));
        stderr::print(
            "serve",
            format_args!(
                "{} for {how} at {}{}",
                directory.display(),
                at.join(", "),
                counters.unwrap_or_default()
            ),
        );
    }
}

/// Let sessions finish until the timeout, then abort them.
fn shut_down(
    arguments: &ServeArgs,
    host: &ServerState,
    phase: &watch::Sender<ServerPhase>,
) -> ServerExit {
    phase.send_replace(ServerPhase::Leaving);
    let deadline = Instant::now() + seconds(arguments.drain_time);
    while host.limits.count() > 0 && Instant::now() < deadline {
        std::thread::sleep(TICK);
    }
    let exit = if host.limits.count() == 0 {
        ServerExit::Drained
    } else {
        ServerExit::Cut
    };
    phase.send_replace(ServerPhase::Cut);
    exit
}

/// Run the sessions of a thread, until none is left and no more can arrive.
fn run_sessions(
    runtime: Runtime,
    host: &Arc<ServerState>,
    mut arrivals: UnboundedReceiver<AcceptedClient>,
    mut watched: watch::Receiver<ServerPhase>,
) {
    LocalSet::new().block_on(&runtime, async {
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    Some(arrival) => {
                        let (host, watched) = (Arc::clone(host), watched.clone());
                        match arrival.listener {
                            ServerProtocol::Ftp => sessions.spawn_local(ftp::session(host, arrival, watched)),
                            ServerProtocol::Http => sessions.spawn_local(http::session::session(host, arrival, false, watched)),
                            ServerProtocol::Https => sessions.spawn_local(http::session::session(host, arrival, true, watched)),
                        };
                    }
                    None => break,
                },
                Some(_) = sessions.join_next() => {}
            }
        }
        let ended = async { while sessions.join_next().await.is_some() {} };
        let cut = async {
            let _ = watched.wait_for(|phase| *phase == ServerPhase::Cut).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = ended => {}
            () = cut => {}
        }
    });
    runtime.shutdown_timeout(GRACE);
}
