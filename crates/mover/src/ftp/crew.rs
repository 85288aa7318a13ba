//! Sessions, each on a thread of its own: how they are opened, and opened again when they are lost.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use venturi_gridftp::Mode;
use venturi_gridftp::client::{Client, Direction, Login, Settings};

use super::ahead::{self, Ahead};
use super::desk::Desk;
use super::forecast::{breadth, wide_streams};
use super::manner::{Manner, Welcome};
use super::messages::{Event, Post};
use super::opener::Opener;
use super::protection;
use super::session::{Ended, Session, Workers};
use super::shared::Shared;
use super::wire::Wire;
use super::writer::Writing;
use crate::error::Failure;
use crate::net::url::{Scheme, Url};
use crate::threads;

/// How often a session that is lost is opened again before anything has been moved.
const MOST_TRIES: u32 = 5;
/// How long it rests before the first of these; twice as long before each that follows.
const FIRST_REST: Duration = Duration::from_millis(250);

/// What was decided when the control connection was open.
#[derive(Debug, Clone, Copy)]
struct Decided {
    round_trip: Duration,
    streams: u16,
    /// Connections of a download of large files; none: as many as of small ones.
    wide: Option<u16>,
    pipelining: usize,
    /// Bytes that all sessions have at a time.
    ahead_bytes: u64,
}

/// What one connection may bring at most, bytes a second: so much has to be asked for ahead.
const FASTEST: f64 = 1.25e9;

impl Decided {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a round trip is at most as long as a connection may take to open"
    )]
    fn new(manner: &Manner, asked: Option<u32>, round_trip: Duration) -> Self {
        let breadth = breadth(round_trip, manner.server.scheme);
        let upload = manner.direction == Some(Direction::Send);
        let streams = match manner.expected.is_wide() {
            // One session has all of it.
            Some(true) if upload && manner.expected.is_one_piece() => breadth,
            Some(true) => breadth.min(wide_streams(manner.expected.sessions(breadth))),
            // One that is small has them for nothing.
            None if manner.expected.is_one() => breadth.min(wide_streams(1)),
            _ => 1,
        };
        let sessions = match (manner.direction, asked) {
            (None, _) => 1,
            (_, Some(asked)) => asked as usize,
            _ => manner.expected.sessions(breadth),
        };
        Self {
            round_trip,
            streams: manner.streams.unwrap_or(streams),
            wide: (manner.streams.is_none() && !upload && breadth > 1).then_some(breadth),
            pipelining: manner
                .pipelining
                .unwrap_or_else(|| ahead::begin(round_trip, sessions)),
            ahead_bytes: 2 * (round_trip.as_secs_f64() * FASTEST) as u64,
        }
    }
}

/// Opens a session on a thread of its own, which stays for questions if it is to be `asked`. Says once whether it is ready.
pub(crate) fn open<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    manner: Manner,
    asked: bool,
) -> (Desk, Receiver<Result<Welcome, String>>) {
    let (events, inbox) = unbounded_channel();
    let (tell, told) = channel();
    let post = Arc::new(Post {
        asked: asked.into(),
        retired: false.into(),
    });
    let desk = Desk::new(events.clone(), Arc::clone(&post));
    shared.sessions.fetch_add(1, Ordering::SeqCst);
    let refused = tell.clone();
    let started = threads::start(scope, move || {
        keep(shared, &manner, (events, inbox), &post, tell);
    });
    if let Err(error) = started {
        shared.sessions.fetch_sub(1, Ordering::SeqCst);
        let _ = refused.send(Err(threads::none(&error)));
    }
    (desk, told)
}

/// Keeps a session going until all is done.
fn keep(
    shared: &Shared<'_>,
    manner: &Manner,
    (events, mut inbox): (UnboundedSender<Event>, UnboundedReceiver<Event>),
    post: &Arc<Post>,
    tell: Sender<Result<Welcome, String>>,
) {
    let mut tell = Some(tell);
    let mut tries = 0;
    for opening in 0.. {
        let (ended, moved) = once(
            shared,
            manner,
            (&events, &mut inbox),
            post,
            &mut tell,
            opening,
        );
        let Ended::Lost(reason) = ended else {
            shared.sessions.fetch_sub(1, Ordering::SeqCst);
            return;
        };
        shared.troubles.fetch_add(1, Ordering::Relaxed);
        tries = if moved > 0 { 1 } else { tries + 1 };
        if let Some(tell) = tell.take() {
            // It was never ready: whoever waits for it knows what to do.
            shared.sessions.fetch_sub(1, Ordering::SeqCst);
            let _ = tell.send(Err(reason));
            return;
        }
        if tries > MOST_TRIES {
            return give_up(shared, &manner.server, &reason);
        }
        rest(shared, FIRST_REST * 2_u32.pow(tries - 1));
    }
}

/// Waits, unless we are to stop.
fn rest(shared: &Shared<'_>, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time && !shared.stop.asked() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A session ends for good. The last one takes the copy with it.
fn give_up(shared: &Shared<'_>, server: &Url, reason: &str) {
    if shared.sessions.fetch_sub(1, Ordering::SeqCst) == 1 {
        let path = server.with_path(b"/".to_vec()).to_string().into();
        let advice = "see whether the server is well, then run the same command again";
        let failure = Failure {
            ends_all: true,
            ..Failure::found(path, "a session", reason, advice)
        };
        shared.tell(&failure);
    }
}

/// Opens a session and has it work until it ends. Gives also how many files it has moved.
fn once(
    shared: &Shared<'_>,
    manner: &Manner,
    (events, inbox): (&UnboundedSender<Event>, &mut UnboundedReceiver<Event>),
    post: &Arc<Post>,
    tell: &mut Option<Sender<Result<Welcome, String>>>,
    opening: u64,
) -> (Ended, u64) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return (Ended::Lost(error.to_string()), 0),
    };
    let order = shared.order;
    let result = std::thread::scope(|scope| {
        let started = Writing::start(scope, shared).and_then(|writing| {
            let follow = order.follow || !order.recursive;
            let opener = Opener::start(scope, (follow, order.verify), events.clone())?;
            Ok((writing, opener))
        });
        let (writing, opener) = match started {
            Ok(started) => started,
            Err(error) => return (Ended::Lost(threads::none(&error)), 0),
        };
        let workers = Workers {
            writing,
            opener,
            post: Arc::clone(post),
            first_link: opening << 32,
        };
        runtime.block_on(async {
            let begun = begin(shared, manner, events, &mut *inbox, workers).await;
            let (mut session, decided) = match begun {
                Ok(begun) => begun,
                Err(ended) => return (ended, 0),
            };
            if let Err(ended) = session.ready().await {
                return (ended, 0);
            }
            if let Err(reason) = protection::hold(shared, manner, session.client().data()) {
                return (Ended::Lost(reason), 0);
            }
            if let Some(tell) = tell.take() {
                let mode = session.client().mode();
                let welcome = Welcome {
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
                let _ = tell.send(Ok(welcome));
            }
            (session.run().await, session.moved)
        })
    });
    // What was opened for a session that is gone is another one's now; what it was asked is asked again by whoever waits, and that is
    // for the next session: only what is there now is taken.
    for _ in 0..inbox.len() {
        if let Ok(Event::Opened(item, _)) = inbox.try_recv() {
            shared.queue.give_back(item);
        }
    }
    result
}

async fn begin<'c>(
    shared: &'c Shared<'c>,
    manner: &Manner,
    events: &UnboundedSender<Event>,
    inbox: &'c mut UnboundedReceiver<Event>,
    workers: Workers,
) -> Result<(Session<'c>, Decided), Ended> {
    let server = &manner.server;
    // One that was to help is not wanted any more when all is done.
    let asked = workers.post.asked.load(Ordering::Relaxed);
    let over = std::future::poll_fn(|cx| match asked {
        true => Poll::Pending,
        false => shared.queue.poll_over(cx),
    });
    let (control, round_trip) = tokio::select! {
        connected = Wire::open(server, asked) => connected.map_err(Ended::Lost)?,
        () = over => return Err(Ended::Done),
    };
    let _ = shared.round_trip.set(round_trip);
    let decided = Decided::new(manner, shared.order.concurrency, round_trip);
    let lost = |error: &dyn std::fmt::Display| Ended::Lost(error.to_string());
    let grid = shared.grid.as_ref();
    let grid = grid.filter(|_| server.scheme == Scheme::Gsiftp);
    let settings = Settings {
        data: grid.and_then(|grid| manner.data.data(grid)),
        ..settings(server, manner, decided, control.peer())
    };
    // Without a use for it no proxy is given away, and the server need not make a key for it.
    let delegates = settings.data.is_some();
    let security = grid.map(|grid| grid.client(&server.host, delegates));
    let security = security.transpose().map_err(|error| lost(&error))?;
    let mut client =
        Client::new(settings, security, Duration::ZERO).map_err(|error| lost(&error))?;
    if protection::may_be_open(manner) {
        client.allow_open_data();
    }
    if let Some(direction) = manner.direction {
        client.prepare(direction);
    }
    // What was sent gets its name a flight later, and others are sent meanwhile.
    let flights = match manner.direction {
        Some(Direction::Send) => 2,
        _ => 1,
    };
    let grows = manner.pipelining.is_none().then_some(round_trip);
    let ahead = Ahead::new(decided.pipelining, flights, grows);
    let mut session = Session::new(
        shared,
        client,
        manner.tcp.clone(),
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

/// Whether the number of sessions is decided here.
fn is_decided_here(shared: &Shared<'_>) -> bool {
    !shared.order.fixed && shared.order.concurrency.is_none()
}

fn settings(server: &Url, manner: &Manner, decided: Decided, peer: IpAddr) -> Settings {
    let login = match (&server.user, &server.password) {
        // Who the user is, ssh has said; to the server everybody is anonymous then.
        _ if server.scheme == Scheme::Sshftp => Login::Anonymous,
        (Some(user), password) => Login::Password {
            user: user.clone(),
            password: password
                .clone()
                .unwrap_or(venturi_gridftp::Secret(Vec::new())),
        },
        (None, _) if server.scheme == Scheme::Gsiftp => Login::Mapped,
        (None, _) => Login::Anonymous,
    };
    Settings {
        login,
        server: peer,
        mode: manner.mode,
        connections: decided.streams,
        depth: decided.pipelining,
        block_bytes: manner.block_bytes,
        buffer_bytes: manner.tcp.window_bytes.map(u64::from),
        data: None,
        upload: None,
        attempts: 3,
        striped: manner.striped,
        patience: manner.patience,
    }
}
