//! Session pool: opens sessions, each on its own thread, and reopens lost ones.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use venturi_gridftp::Mode;
use venturi_gridftp::client::{Client, ClientSettings, Login, TransferDirection};

use super::control_connection::ControlConnection;
use super::messages::{SessionEvent, SessionFlags};
use super::opener::Opener;
use super::pipeline_depth::{self, PipelineDepth};
use super::protection;
use super::session::{FtpSession, SessionEnd, SessionThreads};
use super::session_config::{ServerCapabilities, SessionConfig};
use super::session_handle::SessionHandle;
use super::shared::Shared;
use super::size_estimate::{breadth, wide_streams};
use super::writer::Writing;
use crate::error::Failure;
use crate::net::url::{Scheme, Url};
use crate::threads;

/// Attempts to reopen a lost session without progress.
const MAX_ATTEMPTS: u32 = 5;
/// Wait before the first attempt; it doubles for each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);

/// Settings that are chosen when the control connection is open.
#[derive(Debug, Clone, Copy)]
struct NegotiatedSettings {
    round_trip: Duration,
    streams: u16,
    /// Connections of a download of large files; none: the same number as for small files.
    wide: Option<u16>,
    pipelining: usize,
    /// Bytes in progress over all sessions.
    ahead_bytes: u64,
}

/// Maximum rate of one connection, bytes per second; the pipeline is sized for it.
const FASTEST: f64 = 1.25e9;

impl NegotiatedSettings {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a round trip is at most as long as a connection may take to open"
    )]
    fn new(config: &SessionConfig, requested: Option<u32>, round_trip: Duration) -> Self {
        let breadth = breadth(round_trip, config.server.scheme);
        let upload = config.direction == Some(TransferDirection::Send);
        let streams = match config.expected.is_wide() {
            // One session does all of the work.
            Some(true) if upload && config.expected.is_single_chunk() => breadth,
            Some(true) => breadth.min(wide_streams(config.expected.sessions(breadth))),
            // For a small copy, further connections cost nothing.
            None if config.expected.is_one() => breadth.min(wide_streams(1)),
            _ => 1,
        };
        let sessions = match (config.direction, requested) {
            (None, _) => 1,
            (_, Some(requested)) => requested as usize,
            _ => config.expected.sessions(breadth),
        };
        Self {
            round_trip,
            streams: config.streams.unwrap_or(streams),
            wide: (config.streams.is_none() && !upload && breadth > 1).then_some(breadth),
            pipelining: config
                .pipelining
                .unwrap_or_else(|| pipeline_depth::initial(round_trip, sessions)),
            ahead_bytes: 2 * (round_trip.as_secs_f64() * FASTEST) as u64,
        }
    }
}

/// Opens a session on its own thread. With `accepts_requests`, it stays open for requests. The receiver reports once whether it is ready.
pub(crate) fn open<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    config: SessionConfig,
    accepts_requests: bool,
) -> (SessionHandle, Receiver<Result<ServerCapabilities, String>>) {
    let (events, inbox) = unbounded_channel();
    let (ready_sender, ready) = channel();
    let flags = Arc::new(SessionFlags {
        accepts_requests: accepts_requests.into(),
        retired: false.into(),
    });
    let handle = SessionHandle::new(events.clone(), Arc::clone(&flags));
    shared.sessions.fetch_add(1, Ordering::SeqCst);
    let error_sender = ready_sender.clone();
    let started = threads::start(scope, move || {
        keep(shared, &config, (events, inbox), &flags, ready_sender);
    });
    if let Err(error) = started {
        shared.sessions.fetch_sub(1, Ordering::SeqCst);
        let _ = error_sender.send(Err(threads::none(&error)));
    }
    (handle, ready)
}

/// Reopens a session until all items are complete.
fn keep(
    shared: &Shared<'_>,
    config: &SessionConfig,
    (events, mut inbox): (
        UnboundedSender<SessionEvent>,
        UnboundedReceiver<SessionEvent>,
    ),
    flags: &Arc<SessionFlags>,
    ready_sender: Sender<Result<ServerCapabilities, String>>,
) {
    let mut ready_sender = Some(ready_sender);
    let mut attempts = 0;
    for opening in 0.. {
        let (ended, moved) = once(
            shared,
            config,
            (&events, &mut inbox),
            flags,
            &mut ready_sender,
            opening,
        );
        let SessionEnd::Lost(reason) = ended else {
            shared.sessions.fetch_sub(1, Ordering::SeqCst);
            return;
        };
        shared.troubles.fetch_add(1, Ordering::Relaxed);
        attempts = if moved > 0 { 1 } else { attempts + 1 };
        if let Some(ready_sender) = ready_sender.take() {
            // It was never ready: the waiting thread handles this.
            shared.sessions.fetch_sub(1, Ordering::SeqCst);
            let _ = ready_sender.send(Err(reason));
            return;
        }
        if attempts > MAX_ATTEMPTS {
            return end_session(shared, &config.server, &reason);
        }
        back_off(shared, FIRST_BACKOFF * 2_u32.pow(attempts - 1));
    }
}

/// Waits, until cancelled.
fn back_off(shared: &Shared<'_>, time: Duration) {
    let connect = Instant::now();
    while connect.elapsed() < time && !shared.stop.is_cancelled() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends a session for good. The end of the last one ends the copy.
fn end_session(shared: &Shared<'_>, server: &Url, reason: &str) {
    if shared.sessions.fetch_sub(1, Ordering::SeqCst) == 1 {
        let path = server.with_path(b"/".to_vec()).to_string().into();
        let advice = "check the server, then run the same command again";
        let failure = Failure {
            ends_all: true,
            ..Failure::found(path, "a session", reason, advice)
        };
        shared.report_failure(&failure);
    }
}

/// Opens a session and runs it. Also returns the number of transferred files.
fn once(
    shared: &Shared<'_>,
    config: &SessionConfig,
    (events, inbox): (
        &UnboundedSender<SessionEvent>,
        &mut UnboundedReceiver<SessionEvent>,
    ),
    flags: &Arc<SessionFlags>,
    ready_sender: &mut Option<Sender<Result<ServerCapabilities, String>>>,
    opening: u64,
) -> (SessionEnd, u64) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return (SessionEnd::Lost(error.to_string()), 0),
    };
    let options = shared.options;
    let result = std::thread::scope(|scope| {
        let started = Writing::start(scope, shared).and_then(|writing| {
            let follow = options.follow || !options.recursive;
            let opener = Opener::start(scope, (follow, options.verify), events.clone())?;
            Ok((writing, opener))
        });
        let (writing, opener) = match started {
            Ok(started) => started,
            Err(error) => return (SessionEnd::Lost(threads::none(&error)), 0),
        };
        let workers = SessionThreads {
            writing,
            opener,
            flags: Arc::clone(flags),
            first_connection: opening << 32,
        };
        runtime.block_on(async {
            let started_session = connect(shared, config, events, &mut *inbox, workers).await;
            let (mut session, decided) = match started_session {
                Ok(started_session) => started_session,
                Err(ended) => return (ended, 0),
            };
            if let Err(ended) = session.ready().await {
                return (ended, 0);
            }
            if let Err(reason) = protection::check_secured(shared, config, session.client().data())
            {
                return (SessionEnd::Lost(reason), 0);
            }
            if let Some(ready_sender) = ready_sender.take() {
                let mode = session.client().mode();
                let capabilities = ServerCapabilities {
                    features: session.client().features().clone(),
                    mode,
                    data: session.client().data().cloned(),
                    round_trip: decided.round_trip,
                    streams: match mode {
                        Mode::Extended => decided.streams,
                        Mode::Stream => 1,
                    },
                    pipelining: decided.pipelining,
                    address: session.peer,
                };
                let _ = ready_sender.send(Ok(capabilities));
            }
            (session.run().await, session.moved)
        })
    });
    // Opened files of a lost session are requeued. Requests of a lost session are repeated by the waiting threads, for
    // the next session: so only the events that are present now are removed.
    for _ in 0..inbox.len() {
        if let Ok(SessionEvent::Opened(item, _)) = inbox.try_recv() {
            shared.queue.requeue(item);
        }
    }
    result
}

async fn connect<'c>(
    shared: &'c Shared<'c>,
    config: &SessionConfig,
    events: &UnboundedSender<SessionEvent>,
    inbox: &'c mut UnboundedReceiver<SessionEvent>,
    workers: SessionThreads,
) -> Result<(FtpSession<'c>, NegotiatedSettings), SessionEnd> {
    let server = &config.server;
    // A further session is not needed any more when all items are complete.
    let accepts_requests = workers.flags.accepts_requests.load(Ordering::Relaxed);
    let over = std::future::poll_fn(|cx| match accepts_requests {
        true => Poll::Pending,
        false => shared.queue.poll_over(cx),
    });
    let (control, round_trip) = tokio::select! {
        connected = ControlConnection::open(server, accepts_requests) => connected.map_err(SessionEnd::Lost)?,
        () = over => return Err(SessionEnd::Done),
    };
    let _ = shared.round_trip.set(round_trip);
    let decided = NegotiatedSettings::new(config, shared.options.concurrency, round_trip);
    let lost = |error: &dyn std::fmt::Display| SessionEnd::Lost(error.to_string());
    let grid = shared.grid.as_ref();
    let grid = grid.filter(|_| server.scheme == Scheme::Gsiftp);
    let settings = ClientSettings {
        data: grid.and_then(|grid| config.data.data(grid)),
        ..settings(server, config, decided, control.peer())
    };
    // Without need, no proxy is delegated, and the server creates no key for it.
    let delegates = settings.data.is_some();
    let security = grid.map(|grid| grid.client(&server.host, delegates));
    let security = security.transpose().map_err(|error| lost(&error))?;
    let mut client =
        Client::new(settings, security, Duration::ZERO).map_err(|error| lost(&error))?;
    if protection::may_be_open(config) {
        client.allow_open_data();
    }
    if let Some(direction) = config.direction {
        client.prepare(direction);
    }
    // Uploaded files are renamed one round trip later, and others are sent in the meantime.
    let flights = match config.direction {
        Some(TransferDirection::Send) => 2,
        _ => 1,
    };
    let grows = config.pipelining.is_none().then_some(round_trip);
    let ahead = PipelineDepth::new(decided.pipelining, flights, grows);
    let mut session = FtpSession::new(
        shared,
        client,
        config.tcp.clone(),
        control,
        (ahead, decided.ahead_bytes),
        (inbox, events.clone()),
        workers,
    );
    session.wide = decided.wide;
    if is_decided_here(shared) {
        session.soon = breadth(round_trip, server.scheme).into();
    }
    Ok((session, decided))
}

/// True if the number of sessions is chosen automatically.
fn is_decided_here(shared: &Shared<'_>) -> bool {
    !shared.options.fixed && shared.options.concurrency.is_none()
}

/// Returns the login of a URL.
pub(crate) fn login(server: &Url) -> Login {
    match (&server.user, &server.password) {
        // ssh has authenticated the user; for the server, all users are anonymous.
        _ if server.scheme == Scheme::Sshftp => Login::Anonymous,
        (Some(user), password) => Login::Password {
            user: user.clone(),
            password: password
                .clone()
                .unwrap_or(venturi_gridftp::Secret(Vec::new())),
        },
        (None, _) if server.scheme == Scheme::Gsiftp => Login::Mapped,
        (None, _) => Login::Anonymous,
    }
}

fn settings(
    server: &Url,
    config: &SessionConfig,
    decided: NegotiatedSettings,
    peer: IpAddr,
) -> ClientSettings {
    ClientSettings {
        login: login(server),
        server: peer,
        mode: config.mode,
        connections: decided.streams,
        depth: decided.pipelining,
        block_bytes: config.block_bytes,
        buffer_bytes: config.tcp.window_bytes.map(u64::from),
        data: None,
        upload: None,
        attempts: 3,
        striped: config.striped,
        stall_timeout: config.timeout,
    }
}
