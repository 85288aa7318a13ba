//! The threads of a server, and its end: a signal, then time for what goes on.

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

use super::arguments::{Arguments, seconds};
use super::doors::{Dealer, Front, open_counters, open_doors};
use super::host::Host;
use super::limits::Ticket;
use super::{fits, ftp, http};
use crate::error::{Error, said};
use crate::{stop, talk, threads};

/// Most threads for sessions where nothing is said.
const THREADS: usize = 8;
/// Threads that wait for disks, for each thread of sessions.
pub(super) const DISK_THREADS: usize = 16;
/// How long what does not see that the server goes is waited for: a handshake, or what a disk is at.
const GRACE: Duration = Duration::from_secs(1);
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
    fits::fit(&arguments)?;
    let signalled = signals()?;
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
        let runtime = runtime()?;
        handles.push(thread(format!("sessions-{number}"), move || {
            run_sessions(runtime, &host, receiver, watched);
        })?);
    }
    let dealer = Dealer::new(Arc::clone(&host), loops, watched);
    let open = Open::of(&doors, counters.as_ref());
    let front = Front::open(runtime()?, dealer, doors, counters)?;
    // Nobody is taken before it is said that clients may come, and that is said when all is there.
    let (tell, begin) = channel::<()>();
    handles.push(thread("doors".into(), move || {
        let _ = begin.recv();
        front.run();
    })?);
    announce(&arguments, &host, &open);
    drop(tell);
    let _ = signalled.recv();
    let ending = go_down(&arguments, &host, &phase);
    for handle in handles {
        // A thread that panicked has ended too.
        let _ = handle.join();
    }
    host.log.event(|| json!({"event": "end", "outcome": if ending == Ending::Drained { "drained" } else { "cut" }}));
    drop(host);
    // It ends with the last who may tell it something; a disk may hold that one up.
    let begin = Instant::now();
    while !log.is_finished() && begin.elapsed() < GRACE {
        std::thread::sleep(TICK);
    }
    Ok(ending)
}

/// Tells of the first signal that ends a server, of those that are not ignored; the second ends all at once. They are blocked for this thread and all that it starts.
fn signals() -> Result<Receiver<()>, Error> {
    let signals = stop::ending();
    signals.thread_block().map_err(|errno| Error::System {
        what: "cannot wait for signals",
        reason: errno.desc().to_owned(),
    })?;
    let (tell, told) = channel();
    thread("signals".into(), move || {
        let _ = signals.wait();
        let _ = tell.send(());
        let _ = signals.wait();
        std::process::exit(super::CUT.into());
    })?;
    Ok(told)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS))
}

/// What a thread waits by, with threads for disks. One of these is there from the beginning, and stays: where no more are to be had, work waits
/// for it.
fn runtime() -> Result<Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(DISK_THREADS)
        .thread_keep_alive(Duration::MAX)
        .build()
        .map_err(unready)?;
    let started = threads::first(&runtime);
    started.map_err(|error| threads::refusal(&error, threads::OF_SERVE))?;
    Ok(runtime)
}

pub(super) fn unready(error: std::io::Error) -> Error {
    Error::System {
        what: "cannot wait for clients",
        reason: said(&error),
    }
}

fn thread(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let started = std::thread::Builder::new().name(name).spawn(work);
    started.map_err(|error| threads::refusal(&error, threads::OF_SERVE))
}

/// Where clients may come in.
struct Open {
    ftp: Vec<String>,
    http: Vec<String>,
    https: Vec<String>,
    /// Where counters are told.
    counters: Option<SocketAddr>,
}

impl Open {
    fn of(doors: &[(Door, TcpListener)], counters: Option<&TcpListener>) -> Self {
        let of = |kind| {
            let doors = doors.iter().filter(|(door, _)| *door == kind);
            let addresses = doors.filter_map(|(_, door)| door.local_addr().ok());
            addresses.map(|address| address.to_string()).collect()
        };
        Self {
            ftp: of(Door::Ftp),
            http: of(Door::Http),
            https: of(Door::Https),
            counters: counters.and_then(|listener| listener.local_addr().ok()),
        }
    }
}

fn announce(arguments: &Arguments, host: &Host, open: &Open) {
    let Open {
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
            (https, "the same within TLS"),
        ];
        let at = kinds.iter().filter(|(addresses, _)| !addresses.is_empty());
        let at: Vec<_> = at
            .map(|(addresses, name)| format!("{} ({name})", addresses.join(", ")))
            .collect();
        let counters = counters.map(|address| format!("; counters at http://{address}/metrics"));
        talk::say(
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

/// Has sessions end in their time, or, after that, at once.
fn go_down(arguments: &Arguments, host: &Host, phase: &watch::Sender<Phase>) -> Ending {
    phase.send_replace(Phase::Leaving);
    let deadline = Instant::now() + seconds(arguments.drain_time);
    while host.limits.count() > 0 && Instant::now() < deadline {
        std::thread::sleep(TICK);
    }
    let ending = if host.limits.count() == 0 {
        Ending::Drained
    } else {
        Ending::Cut
    };
    phase.send_replace(Phase::Cut);
    ending
}

/// A thread's sessions, until there are no more and none can come.
fn run_sessions(
    runtime: Runtime,
    host: &Arc<Host>,
    mut arrivals: UnboundedReceiver<Arrival>,
    mut watched: watch::Receiver<Phase>,
) {
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
        let ended = async { while sessions.join_next().await.is_some() {} };
        let cut = async {
            let _ = watched.wait_for(|phase| *phase == Phase::Cut).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = ended => {}
            () = cut => {}
        }
    });
    runtime.shutdown_timeout(GRACE);
}
