//! A session with a server over sockets: what drives [`Client`], which decides everything.
//!
//! All of a session is on one thread, in one task that sees to each socket in turn. Nothing here waits for a disk: files are opened and written
//! by other threads, and sent by one for each connection.

mod behind;
mod control;
mod data;
mod items;
mod looks;
mod questions;
mod versions;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Interval, MissedTickBehavior};
use venturi_gridftp::client::Client;
use venturi_gridftp::{Path as There, Reply};

use super::ahead::Ahead;
use super::field::Progress;
use super::files::Source;
use super::link::Link;
use super::messages::{Event, Post};
use super::opener::Opener;
use super::shared::Shared;
use super::wire::Wire;
use super::work::Item;
use super::writer::Writing;
use crate::decision::Decision;
use crate::net::buffers::Buffers;
use crate::net::pace::Pace;
use crate::net::sockets::Tcp;
use crate::net::straight::Straight;
use data::Connecting;
use questions::{Asker, Listing};

/// Read at once from a data connection; a block stays in a core's cache until it is written.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks between the network and the disk, for each session.
const BLOCKS: usize = 64;
/// Read at once from the control connection.
const REPLIES_BYTES: usize = 64 << 10;
/// How often it is seen whether to stop, and whether the server is too slow.
const TICK: Duration = Duration::from_millis(100);
/// Turns in a row before others, if there are any, have the thread.
const MOST_TURNS: u32 = 64;
/// How long an ending session waits for what it has tidied up at the server.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a session has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There is nothing left to do.
    Done,
    /// Others move what it had.
    Behind,
    /// We are to stop.
    Stopped,
    /// The server, or the way to it, is gone.
    Lost(String),
}

/// A session with its sockets.
pub(crate) struct Session<'c> {
    shared: &'c Shared<'c>,
    client: Client,
    /// Files that this session has moved.
    pub(crate) moved: u64,
    progress: Progress,
    tcp: Tcp,
    control: Wire,
    /// Where the server reaches us, and we it.
    own: IpAddr,
    pub(crate) peer: IpAddr,
    unsent: Vec<u8>,
    replies: Vec<u8>,
    listener: Option<TcpListener>,
    /// Connections that were accepted, since when, and are not known to be the server's.
    arriving: Vec<(Instant, Link)>,
    /// Why a data connection is of no use: who is at its other end, or what lacks here; told with the next transfer that fails.
    refusal: Option<String>,
    connecting: Vec<Connecting>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    buffers: Buffers,
    /// How payload of large blocks goes into files, as long as the disk is fast.
    straight: Straight,
    pace: Pace,
    events: &'c mut UnboundedReceiver<Event>,
    own_events: UnboundedSender<Event>,
    writing: Writing,
    opener: Opener,
    /// What this session has: by the number of the transfer.
    items: BTreeMap<u64, Item>,
    sources: BTreeMap<u64, Arc<Source>>,
    /// Items that are being opened.
    opening: usize,
    /// Bytes of both.
    bytes: u64,
    asked: BTreeMap<u64, Asker>,
    listings: BTreeMap<u64, Listing>,
    /// Downloads that are whole, whose checksum the server is asked for.
    verifying: BTreeMap<u64, Item>,
    /// Parts of uploads that may be there, whose checksum the server is asked for.
    doubtful: BTreeMap<u64, (Item, Arc<Source>)>,
    /// Parts of uploads, and names, whose temporary file the server is asked for; and downloads, of which it is asked what they are.
    looking: BTreeMap<u64, Item>,
    /// What the server said of downloads that end with the next word of the client.
    seen: BTreeMap<u64, Reply>,
    /// Uploads that are whole, and get their modes.
    modes: BTreeMap<u64, (There, u32)>,
    next_request: u64,
    /// What it has at a time, and its bytes.
    ahead: Ahead,
    ahead_bytes: u64,
    ready: bool,
    /// Whether the server still has something to do that nobody waits for.
    untidy: bool,
    post: Arc<Post>,
    began: Instant,
    tick: Interval,
    farewell: Option<Instant>,
    lost: Option<String>,
    /// Connections that large files have, until some are there.
    pub(crate) wide: Option<u16>,
    /// Sessions that the path begins with, if there is enough for them to do.
    pub(crate) soon: usize,
}

/// What a session has to do with on this side.
pub(crate) struct Workers {
    pub(crate) writing: Writing,
    pub(crate) opener: Opener,
    pub(crate) post: Arc<Post>,
    /// Number of its first data connection: none has that of one of the session before.
    pub(crate) first_link: u64,
}

impl<'c> Session<'c> {
    /// A session on a control connection that is open.
    pub(crate) fn new(
        shared: &'c Shared<'c>,
        client: Client,
        tcp: Tcp,
        control: Wire,
        (ahead, ahead_bytes): (Ahead, u64),
        (events, own_events): (&'c mut UnboundedReceiver<Event>, UnboundedSender<Event>),
        workers: Workers,
    ) -> Self {
        let (own, peer) = (control.own(), control.peer());
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            shared,
            client,
            moved: 0,
            progress: Progress::new(&shared.field),
            tcp,
            control,
            own,
            peer,
            unsent: Vec::new(),
            replies: vec![0; REPLIES_BYTES],
            listener: None,
            arriving: Vec::new(),
            refusal: None,
            connecting: Vec::new(),
            links: BTreeMap::new(),
            next_link: workers.first_link,
            buffers: Buffers::new(BLOCK_BYTES, BLOCKS),
            straight: Straight::default(),
            pace: Pace::new(),
            events,
            own_events,
            writing: workers.writing,
            opener: workers.opener,
            items: BTreeMap::new(),
            sources: BTreeMap::new(),
            opening: 0,
            bytes: 0,
            asked: BTreeMap::new(),
            listings: BTreeMap::new(),
            verifying: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            looking: BTreeMap::new(),
            seen: BTreeMap::new(),
            modes: BTreeMap::new(),
            next_request: 0,
            ahead,
            ahead_bytes,
            ready: false,
            untidy: false,
            post: workers.post,
            began: Instant::now(),
            tick,
            farewell: None,
            lost: None,
            wide: None,
            soon: 1,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// What the server can do; all of it is known when the session is ready.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until transfers can begin.
    pub(crate) async fn ready(&mut self) -> Result<(), Ended> {
        std::future::poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Err(ended)),
            Poll::Pending if self.ready => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Carries out what comes until there is nothing more. What was not finished goes back.
    pub(crate) async fn run(&mut self) -> Ended {
        let ended = std::future::poll_fn(|cx| self.poll(cx)).await;
        if ended == Ended::Behind {
            self.pass_on();
        }
        let verified = std::mem::take(&mut self.verifying).into_values();
        let doubtful = std::mem::take(&mut self.doubtful).into_values();
        for item in std::mem::take(&mut self.items)
            .into_values()
            .chain(verified)
            .chain(doubtful.map(|(item, _)| item))
            .chain(std::mem::take(&mut self.looking).into_values())
        {
            self.writing.discard(item.number);
            self.shared.queue.give_back(item);
        }
        self.shared.field.leave(self.progress.key);
        for (path, mode) in std::mem::take(&mut self.modes).into_values() {
            self.shared.set_later(path, mode);
            self.shared.queue.settle();
        }
        ended
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        for _ in 0..MOST_TURNS {
            self.see_to_outputs();
            let moved = [
                self.hear_events(cx),
                self.write_control(cx),
                self.read_control(cx),
                self.see_to_connecting(cx),
                self.accept(cx),
                self.read_links(cx),
                self.feed_senders(),
                self.take_items(cx),
            ];
            self.see_to_outputs();
            if let Some(reason) = self.lost.take() {
                return Poll::Ready(Ended::Lost(self.control.explain(reason)));
            }
            if self.shared.stop.asked() {
                return Poll::Ready(Ended::Stopped);
            }
            if self.has_said_goodbye() {
                return Poll::Ready(Ended::Done);
            }
            let ticked = self.tick.poll_tick(cx).is_ready();
            if ticked {
                self.tell_trips();
                let now = self.now();
                self.deepen(now);
                let result = self.client.handle_timeout(now);
                self.note_end(result);
                if self.is_left_behind() {
                    return Poll::Ready(Ended::Behind);
                }
            }
            if !moved.contains(&true) && !ticked {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn note_end(&mut self, result: Result<(), venturi_gridftp::Error>) {
        if let Err(error) = result {
            self.lost.get_or_insert_with(|| error.to_string());
        }
    }

    /// Asks for more ahead, where what is asked for ends within a round trip.
    fn deepen(&mut self, now: Duration) {
        if !self.client.features().pipelines() {
            return;
        }
        let Some(depth) = self.ahead.look(now, self.moved) else {
            return;
        };
        self.client.deepen(depth);
        if self.shared.pipelining.fetch_max(depth, Ordering::Relaxed) < depth {
            self.shared.report.decision(&Decision {
                what: "pipelining",
                value: depth as u64,
                reason:
                    "more than half of what is asked for ahead ends in a round trip: asks for more"
                        .into(),
            });
        }
    }

    fn has_said_goodbye(&self) -> bool {
        let Some(since) = self.farewell.filter(|_| self.unsent.is_empty()) else {
            return false;
        };
        // What is tidied up at the server is to be read by it before the connection is gone.
        !self.untidy || since.elapsed() > FAREWELL
    }

    fn hear_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
            moved = true;
            let now = self.now();
            match event {
                Event::Ask(ask) => self.ask(now, ask),
                Event::Opened(item, Ok(source)) => {
                    self.opening -= 1;
                    self.opened(item, source);
                }
                Event::Opened(item, Err(failure)) => {
                    self.opening -= 1;
                    self.bytes -= item.bytes();
                    if item.job.fail() {
                        self.shared.tell(&failure);
                    }
                    self.shared.queue.settle();
                }
                Event::Broken { connection, why } => {
                    self.refusal = why.or_else(|| self.refusal.take());
                    self.links.remove(&connection);
                    self.client.data_closed(now, connection, false);
                }
                Event::Spoiled { number, found } => self.client.abandon(now, number, &found),
                Event::Room | Event::Leave => {}
            }
        }
        moved
    }
}
