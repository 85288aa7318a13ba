//! Session with a server over sockets; the protocol logic is in [`Client`].
//!
//! A session is one task on one thread that handles each socket in turn, and never waits for a disk. Other threads open and write files,
//! and one thread per connection sends.

mod control;
mod data;
mod items;
mod requests;
mod straggler;
mod temp_file_check;
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
use venturi_gridftp::{FtpReply, Path as RemotePath};

use super::control_connection::ControlConnection;
use super::data_connection::DataConnection;
use super::files::Source;
use super::messages::{SessionEvent, SessionFlags};
use super::opener::Opener;
use super::pipeline_depth::PipelineDepth;
use super::session_stats::ProgressTracker;
use super::shared::Shared;
use super::work::Item;
use super::writer::Writing;
use crate::decision::Decision;
use crate::net::buffers::Buffers;
use crate::net::disk_speed::DiskSpeed;
use crate::net::sockets::Tcp;
use crate::net::splice::SplicePipe;
use data::Connecting;
use requests::{Listing, ResultSender};

/// Read size of a data connection; a block stays in the cache of a core until it is written.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks of a session between network and disk.
const BLOCKS: usize = 64;
/// Read size of the control connection.
const REPLIES_BYTES: usize = 64 << 10;
/// Interval of checks for cancellation and timeouts.
const TICK: Duration = Duration::from_millis(100);
/// Maximum iterations before other tasks run.
const MAX_TURNS: u32 = 64;
/// Time limit at the end of a session for its last commands.
const FAREWELL: Duration = Duration::from_secs(5);

/// Reason for the end of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// All items are complete.
    Done,
    /// Straggler: other sessions transfer its items.
    Behind,
    /// The copy was cancelled.
    Stopped,
    /// The connection to the server is lost.
    Lost(String),
}

/// Session with its sockets.
pub(crate) struct FtpSession<'c> {
    shared: &'c Shared<'c>,
    client: Client,
    /// Number of files that this session has transferred.
    pub(crate) moved: u64,
    progress: ProgressTracker,
    tcp: Tcp,
    control: ControlConnection,
    /// Local and remote address.
    own: IpAddr,
    pub(crate) peer: IpAddr,
    unsent: Vec<u8>,
    replies: Vec<u8>,
    listener: Option<TcpListener>,
    /// Accepted connections that are not authenticated yet, with the time of acceptance.
    arriving: Vec<(Instant, DataConnection)>,
    /// Reason of the last failed data connection; reported with the next failed transfer.
    connection_error: Option<String>,
    connecting: Vec<Connecting>,
    connections: BTreeMap<u64, DataConnection>,
    next_connection: u64,
    buffers: Buffers,
    /// Pipe for the payload of large blocks, while the disk is fast.
    splice: SplicePipe,
    pace: DiskSpeed,
    events: &'c mut UnboundedReceiver<SessionEvent>,
    own_events: UnboundedSender<SessionEvent>,
    writing: Writing,
    opener: Opener,
    /// Items in progress, by transfer number.
    items: BTreeMap<u64, Item>,
    sources: BTreeMap<u64, Arc<Source>>,
    /// Number of items that are being opened.
    opening: usize,
    /// Bytes of both.
    bytes: u64,
    pending_requests: BTreeMap<u64, ResultSender>,
    listings: BTreeMap<u64, Listing>,
    /// Complete downloads that wait for the checksum of the server.
    verifying: BTreeMap<u64, Item>,
    /// Uploaded parts that may be complete, and wait for the checksum of the server.
    unconfirmed: BTreeMap<u64, (Item, Arc<Source>)>,
    /// Parts and renames that wait for a check of the temporary file, and downloads that wait for metadata.
    checking: BTreeMap<u64, Item>,
    /// Final metadata of downloads, by transfer.
    final_replies: BTreeMap<u64, FtpReply>,
    /// Complete uploads whose mode is being set.
    modes: BTreeMap<u64, (RemotePath, u32)>,
    next_request: u64,
    /// Maximum items and bytes in progress.
    ahead: PipelineDepth,
    ahead_bytes: u64,
    ready: bool,
    /// True while the server still has commands without a waiting thread.
    untidy: bool,
    flags: Arc<SessionFlags>,
    started: Instant,
    tick: Interval,
    farewell: Option<Instant>,
    lost: Option<String>,
    /// Number of connections for large files, until the first ones arrive.
    pub(crate) wide: Option<u16>,
    /// Initial number of sessions if there is enough work.
    pub(crate) soon: usize,
}

/// Threads and flags of a session.
pub(crate) struct SessionThreads {
    pub(crate) writing: Writing,
    pub(crate) opener: Opener,
    pub(crate) flags: Arc<SessionFlags>,
    /// Number of its first data connection, different from the numbers of earlier sessions.
    pub(crate) first_connection: u64,
}

impl<'c> FtpSession<'c> {
    /// Returns a session on an open control connection.
    pub(crate) fn new(
        shared: &'c Shared<'c>,
        client: Client,
        tcp: Tcp,
        control: ControlConnection,
        (ahead, ahead_bytes): (PipelineDepth, u64),
        (events, own_events): (
            &'c mut UnboundedReceiver<SessionEvent>,
            UnboundedSender<SessionEvent>,
        ),
        workers: SessionThreads,
    ) -> Self {
        let (own, peer) = (control.own(), control.peer());
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            shared,
            client,
            moved: 0,
            progress: ProgressTracker::new(&shared.stats),
            tcp,
            control,
            own,
            peer,
            unsent: Vec::new(),
            replies: vec![0; REPLIES_BYTES],
            listener: None,
            arriving: Vec::new(),
            connection_error: None,
            connecting: Vec::new(),
            connections: BTreeMap::new(),
            next_connection: workers.first_connection,
            buffers: Buffers::new(BLOCK_BYTES, BLOCKS),
            splice: SplicePipe::default(),
            pace: DiskSpeed::new(),
            events,
            own_events,
            writing: workers.writing,
            opener: workers.opener,
            items: BTreeMap::new(),
            sources: BTreeMap::new(),
            opening: 0,
            bytes: 0,
            pending_requests: BTreeMap::new(),
            listings: BTreeMap::new(),
            verifying: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            checking: BTreeMap::new(),
            final_replies: BTreeMap::new(),
            modes: BTreeMap::new(),
            next_request: 0,
            ahead,
            ahead_bytes,
            ready: false,
            untidy: false,
            flags: workers.flags,
            started: Instant::now(),
            tick,
            farewell: None,
            lost: None,
            wide: None,
            soon: 1,
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the client; its features are complete when the session is ready.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until transfers can start.
    pub(crate) async fn ready(&mut self) -> Result<(), SessionEnd> {
        std::future::poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Err(ended)),
            Poll::Pending if self.ready => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Executes items until the end, then requeues incomplete ones.
    pub(crate) async fn run(&mut self) -> SessionEnd {
        let ended = std::future::poll_fn(|cx| self.poll(cx)).await;
        if ended == SessionEnd::Behind {
            self.reassign();
        }
        let verified = std::mem::take(&mut self.verifying).into_values();
        let unconfirmed = std::mem::take(&mut self.unconfirmed).into_values();
        for item in std::mem::take(&mut self.items)
            .into_values()
            .chain(verified)
            .chain(unconfirmed.map(|(item, _)| item))
            .chain(std::mem::take(&mut self.checking).into_values())
        {
            self.writing.discard(item.number);
            self.shared.queue.requeue(item);
        }
        self.shared.stats.remove(self.progress.key);
        for (path, mode) in std::mem::take(&mut self.modes).into_values() {
            self.shared.set_later(path, mode);
            self.shared.queue.complete();
        }
        ended
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        for _ in 0..MAX_TURNS {
            self.handle_outputs();
            let moved = [
                self.handle_events(cx),
                self.write_control(cx),
                self.read_control(cx),
                self.poll_connecting(cx),
                self.accept(cx),
                self.read_connections(cx),
                self.feed_senders(),
                self.take_items(cx),
            ];
            self.handle_outputs();
            if let Some(reason) = self.lost.take() {
                return Poll::Ready(SessionEnd::Lost(self.control.explain(reason)));
            }
            if self.shared.stop.is_cancelled() {
                return Poll::Ready(SessionEnd::Stopped);
            }
            if self.has_sent_quit() {
                return Poll::Ready(SessionEnd::Done);
            }
            let ticked = self.tick.poll_tick(cx).is_ready();
            if ticked {
                self.report_round_trips();
                let now = self.now();
                self.set_depth(now);
                let result = self.client.handle_timeout(now);
                self.record_end(result);
                if self.is_straggler() {
                    return Poll::Ready(SessionEnd::Behind);
                }
            }
            if !moved.contains(&true) && !ticked {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn record_end(&mut self, result: Result<(), venturi_gridftp::FtpError>) {
        if let Err(error) = result {
            self.lost.get_or_insert_with(|| error.to_string());
        }
    }

    /// Deepens the pipeline if more than half of it completes within a round trip.
    fn set_depth(&mut self, now: Duration) {
        if !self.client.features().pipelines() {
            return;
        }
        let Some(depth) = self.ahead.update(now, self.moved) else {
            return;
        };
        self.client.set_depth(depth);
        if self.shared.pipelining.fetch_max(depth, Ordering::Relaxed) < depth {
            self.shared.report.decision(&Decision {
                setting: "pipelining",
                value: depth as u64,
                reason: "more than half of the pipeline completes in a round trip: deeper pipeline"
                    .into(),
            });
        }
    }

    fn has_sent_quit(&self) -> bool {
        let Some(since) = self.farewell.filter(|_| self.unsent.is_empty()) else {
            return false;
        };
        // The server must read the last commands before the connection closes.
        !self.untidy || since.elapsed() > FAREWELL
    }

    fn handle_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
            moved = true;
            let now = self.now();
            match event {
                SessionEvent::Request(request) => self.request(now, request),
                SessionEvent::Opened(item, Ok(source)) => {
                    self.opening -= 1;
                    self.opened(item, source);
                }
                SessionEvent::Opened(item, Err(failure)) => {
                    self.opening -= 1;
                    self.bytes -= item.bytes();
                    if item.job.fail() {
                        self.shared.report_failure(&failure);
                    }
                    self.shared.queue.complete();
                }
                SessionEvent::Broken { connection, why } => {
                    self.connection_error = why.or_else(|| self.connection_error.take());
                    self.connections.remove(&connection);
                    self.client.data_closed(now, connection, false);
                }
                SessionEvent::Spoiled { number, found } => self.client.abandon(now, number, &found),
                SessionEvent::Capacity | SessionEvent::FlagsChanged => {}
            }
        }
        moved
    }
}
