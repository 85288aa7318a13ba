//! A session with a server over sockets: what drives [`Client`], which decides everything.
//!
//! All of a session is on one thread, in one task that sees to each socket in turn. Nothing here waits for a disk: files are opened and written
//! by other threads, and sent by one for each connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Interval, MissedTickBehavior};
use venturi_gridftp::client::{Client, Get, Job as Transfer, Output, Put, Source as What};
use venturi_gridftp::{ByteRanges, Command, DataOut, Path, Reply, Site};

use super::link::Link;
use super::opener::Opener;
use super::sender::{Out, Source};
use super::shared::Shared;
use super::upload::differs;
use super::verify;
use super::work::{Item, Job, Store};
use super::writer::{Piece, Writers};
use crate::error::Failure;
use crate::net::buffers::Buffers;
use crate::net::sockets::Tcp;

/// Read at once from a data connection; a block stays in a core's cache until it is written.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks between the network and the disk, for each session.
const BLOCKS: usize = 64;
/// Read at once from the control connection.
const REPLIES_BYTES: usize = 64 << 10;
/// Most bytes of a listing that comes over a data connection.
const MOST_LISTING_BYTES: usize = 256 << 20;
/// In the numbers of transfers that are listings.
const LISTING: u64 = 1 << 63;
/// How often it is seen whether to stop, and whether the server is too slow.
const TICK: Duration = Duration::from_millis(100);
/// Turns in a row before others, if there are any, have the thread.
const MOST_TURNS: u32 = 64;
/// How long an ending session waits for what it has tidied up at the server.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long a session stays.
#[derive(Debug)]
pub(crate) struct Post {
    /// Questions may come when all items are settled.
    pub(crate) asked: AtomicBool,
    /// It takes no more items.
    pub(crate) retired: AtomicBool,
}

/// What other threads tell a session.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command is to be sent.
    Ask(Ask),
    /// A file to be sent is open, or cannot be.
    Opened(Item, Result<Arc<Source>, Failure>),
    /// A connection has sent bytes of files.
    Sent { bytes: u64 },
    /// A connection cannot send.
    Broken { connection: u64 },
    /// A file is not what it was.
    Spoiled { number: u64, found: String },
    /// Nothing more will be asked.
    Leave,
}

/// What is asked of a server besides transfers, and where it is answered.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) question: Question,
    /// What the answers carry, so that whoever asks much can tell them apart.
    pub(crate) tag: u64,
    pub(crate) answer: Sender<(u64, Answer)>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    Command(Command),
    /// What is in a directory, over a data connection (MLSD).
    Listing(Path),
}

/// What a server answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A line of a listing; the reply follows.
    Line(Vec<u8>),
    /// The server is at it; the reply follows.
    Notice(Reply),
    Reply(Reply),
    /// The session is lost.
    Lost,
}

/// A listing that comes over a data connection.
#[derive(Debug)]
struct Listing {
    asker: Asker,
    bytes: Vec<u8>,
    /// It would need more memory than a listing may have.
    too_long: bool,
}

/// Whoever waits for an answer; if none comes the session is lost.
#[derive(Debug)]
struct Asker {
    tag: u64,
    answer: Sender<(u64, Answer)>,
    answered: bool,
}

impl Asker {
    /// Tells an answer. Who does not wait any more needs none.
    fn tell(&self, answer: Answer) {
        let _ = self.answer.send((self.tag, answer));
    }

    fn end(mut self, reply: Reply) {
        self.tell(Answer::Reply(reply));
        self.answered = true;
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.answered {
            self.tell(Answer::Lost);
        }
    }
}

/// How a session has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There is nothing left to do.
    Done,
    /// We are to stop.
    Stopped,
    /// The server, or the way to it, is gone.
    Lost(String),
}

type Connecting = Pin<Box<dyn Future<Output = (Option<u64>, io::Result<TcpStream>)>>>;

/// A session with its sockets.
pub(crate) struct Session<'c> {
    shared: &'c Shared<'c>,
    client: Client,
    /// Files that this session has moved.
    pub(crate) moved: u64,
    tcp: Tcp,
    control: TcpStream,
    /// Where the server reaches us, and we it.
    own: IpAddr,
    pub(crate) peer: IpAddr,
    unsent: Vec<u8>,
    replies: Vec<u8>,
    listener: Option<TcpListener>,
    connecting: Vec<Connecting>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    buffers: Buffers,
    events: &'c mut UnboundedReceiver<Event>,
    own_events: UnboundedSender<Event>,
    writers: Writers,
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
    next_request: u64,
    /// Items to have at a time, and their bytes.
    depth: usize,
    ahead_bytes: u64,
    ready: bool,
    /// Whether the server still has something to do that nobody waits for.
    untidy: bool,
    post: Arc<Post>,
    began: Instant,
    tick: Interval,
    farewell: Option<Instant>,
    lost: Option<String>,
    /// When bytes last went to the server that it has to answer, until it has.
    spoken: Option<Instant>,
    /// The shortest time in which the server answered.
    pub(crate) answer_time: Option<Duration>,
}

/// What a session has to do with on this side.
pub(crate) struct Workers {
    pub(crate) writers: Writers,
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
        control: TcpStream,
        (depth, ahead_bytes): (usize, u64),
        (events, own_events): (&'c mut UnboundedReceiver<Event>, UnboundedSender<Event>),
        workers: Workers,
    ) -> io::Result<Self> {
        let (own, peer) = (control.local_addr()?.ip(), control.peer_addr()?.ip());
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            shared,
            client,
            moved: 0,
            tcp,
            control,
            own,
            peer,
            unsent: Vec::new(),
            replies: vec![0; REPLIES_BYTES],
            listener: None,
            connecting: Vec::new(),
            links: BTreeMap::new(),
            next_link: workers.first_link,
            buffers: Buffers::new(BLOCK_BYTES, BLOCKS),
            events,
            own_events,
            writers: workers.writers,
            opener: workers.opener,
            items: BTreeMap::new(),
            sources: BTreeMap::new(),
            opening: 0,
            bytes: 0,
            asked: BTreeMap::new(),
            listings: BTreeMap::new(),
            verifying: BTreeMap::new(),
            next_request: 0,
            depth,
            ahead_bytes,
            ready: false,
            untidy: false,
            post: workers.post,
            began: Instant::now(),
            tick,
            farewell: None,
            lost: None,
            spoken: None,
            answer_time: None,
        })
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
        let verified = std::mem::take(&mut self.verifying).into_values();
        for item in std::mem::take(&mut self.items)
            .into_values()
            .chain(verified)
        {
            self.writers.discard(item.number);
            self.shared.queue.give_back(item);
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
                return Poll::Ready(Ended::Lost(reason));
            }
            if self.shared.stop.asked() {
                return Poll::Ready(Ended::Stopped);
            }
            if self.has_said_goodbye() {
                return Poll::Ready(Ended::Done);
            }
            let ticked = self.tick.poll_tick(cx).is_ready();
            if ticked {
                let now = self.now();
                let result = self.client.handle_timeout(now);
                self.note_end(result);
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
                    self.send_file(item, source);
                }
                Event::Opened(item, Err(failure)) => {
                    self.opening -= 1;
                    self.bytes -= item.bytes();
                    self.shared.tell(&failure);
                    self.shared.queue.settle();
                }
                Event::Sent { bytes } => {
                    let moved = &self.shared.totals.moved_bytes;
                    moved.fetch_add(bytes, Ordering::Relaxed);
                }
                Event::Broken { connection } => {
                    self.links.remove(&connection);
                    self.client.data_closed(now, connection, false);
                }
                Event::Spoiled { number, found } => self.client.abandon(now, number, &found),
                Event::Leave => {}
            }
        }
        moved
    }

    fn ask(&mut self, now: Duration, ask: Ask) {
        let number = self.next_request;
        self.next_request += 1;
        let asker = Asker {
            tag: ask.tag,
            answer: ask.answer,
            answered: false,
        };
        match ask.question {
            Question::Command(command) => {
                self.asked.insert(number, asker);
                self.client.request(now, number, command);
            }
            Question::Listing(path) => {
                let transfer = number | LISTING;
                let bytes = Vec::new();
                let listing = Listing {
                    asker,
                    bytes,
                    too_long: false,
                };
                self.listings.insert(transfer, listing);
                let get = Get {
                    transfer,
                    source: What::Directory,
                    path,
                    size_bytes: None,
                    present: ByteRanges::default(),
                };
                self.client.transfer(now, Transfer::Get(get));
            }
        }
    }

    fn write_control(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.unsent.is_empty() && self.control.poll_write_ready(cx).is_ready() {
            match self.control.try_write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    self.spoken.get_or_insert_with(Instant::now);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.lost = Some(crate::error::said(&error));
                    break;
                }
            }
        }
        moved
    }

    fn read_control(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.control.poll_read_ready(cx).is_ready() {
            let now = self.now();
            let result = match self.control.try_read(&mut self.replies) {
                Ok(0) if self.farewell.is_some() => {
                    self.untidy = false;
                    return false;
                }
                Ok(0) => self.client.handle_closed(),
                Ok(count) => {
                    moved = true;
                    self.time_answer();
                    self.client.handle_input(now, &self.replies[..count])
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.client.handle_closed(),
            };
            let ended = result.is_err();
            self.note_end(result);
            self.see_to_outputs();
            if ended {
                return true;
            }
        }
        if moved {
            self.links.values_mut().for_each(Link::try_again);
        }
        moved
    }

    fn time_answer(&mut self) {
        if let Some(spoken) = self.spoken.take() {
            let time = spoken.elapsed();
            self.answer_time = Some(self.answer_time.map_or(time, |best| best.min(time)));
        }
    }

    fn see_to_outputs(&mut self) {
        while let Some(output) = self.client.poll_output() {
            match output {
                Output::Send(bytes) => self.unsent.extend(bytes),
                Output::Ready => self.ready = true,
                Output::Listen => self.listen(),
                Output::Connect {
                    address,
                    connections,
                    transfer,
                } => self.connect(address, connections, transfer),
                Output::CloseData { connection } => drop(self.links.remove(&connection)),
                Output::DropData => {
                    self.links.clear();
                    self.listener = None;
                    self.shared.troubles.fetch_add(1, Ordering::Relaxed);
                }
                Output::Begun { transfer } => self.begun(transfer),
                Output::Done { transfer, .. } => self.done(transfer),
                Output::Failed { transfer, failure } => {
                    self.failed(transfer, &failure.reason, failure.again);
                }
                Output::Line { request, text } => {
                    if let Some(asker) = self.asked.get(&request) {
                        asker.tell(Answer::Line(text));
                    }
                }
                Output::Notice { request, reply } => {
                    if let Some(asker) = self.asked.get(&request) {
                        asker.tell(Answer::Notice(reply));
                    }
                }
                Output::Answer { request, reply } => {
                    if let Some(item) = self.verifying.remove(&request) {
                        self.verified(item, &reply);
                    }
                    if let Some(asker) = self.asked.remove(&request) {
                        asker.end(reply);
                    }
                }
                _ => {}
            }
        }
    }

    fn listen(&mut self) {
        let now = self.now();
        let listener = self.tcp.listen(self.own);
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        match bound {
            Ok((address, listener)) => {
                self.listener = Some(listener);
                self.client.listening(now, address);
            }
            Err(error) => {
                let reason = format!("no port for data connections: {error}");
                self.client.connect_failed(now, None, &reason);
            }
        }
    }

    fn connect(&mut self, to: SocketAddr, connections: u16, transfer: Option<u64>) {
        for _ in 0..connections {
            let tcp = self.tcp.clone();
            self.connecting
                .push(Box::pin(async move { (transfer, tcp.connect(to).await) }));
        }
    }

    fn see_to_connecting(&mut self, cx: &mut Context<'_>) -> bool {
        let mut opened = Vec::new();
        self.connecting
            .retain_mut(|connecting| match connecting.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    opened.push(result);
                    false
                }
                Poll::Pending => true,
            });
        let moved = !opened.is_empty();
        for (transfer, result) in opened {
            match result {
                Ok(socket) => self.open(socket, transfer),
                Err(error) => {
                    let reason = format!("no data connection: {}", crate::error::said(&error));
                    self.client.connect_failed(self.now(), transfer, &reason);
                }
            }
        }
        moved
    }

    fn accept(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some(listener) = &self.listener
            && let Poll::Ready(accepted) = listener.poll_accept(cx)
        {
            moved = true;
            // One that is gone before it is accepted is missed by the client, which says so.
            if let Ok((socket, _)) = accepted {
                self.open(socket, None);
            }
        }
        moved
    }

    fn open(&mut self, socket: TcpStream, transfer: Option<u64>) {
        let (now, number) = (self.now(), self.next_link);
        self.next_link += 1;
        if self.client.data_opened(now, number, transfer) {
            self.links.insert(number, Link::new(socket));
        }
    }

    fn read_links(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        // Numbers first: what is read may have connections closed.
        let numbers: Vec<u64> = self.links.keys().copied().collect();
        for number in numbers {
            moved |= self.read_link(cx, number);
        }
        moved
    }

    /// Reads a block of a connection, and has the writers write what the client says that it is.
    fn read_link(&mut self, cx: &mut Context<'_>, number: u64) -> bool {
        let now = self.now();
        let Some(link) = self.links.get_mut(&number) else {
            return false;
        };
        let read = link.poll_read(cx, &mut self.buffers);
        let Some((block, at)) = link.unread.take() else {
            if let Poll::Ready(Some(cleanly)) = read {
                self.links.remove(&number);
                self.client.data_closed(now, number, cleanly);
                return true;
            }
            return matches!(read, Poll::Ready(None));
        };
        let (mut position, mut pieces) = (at, Vec::new());
        let mut blocked = false;
        while position < block.len() && !blocked {
            let delivered = self.client.handle_data(now, number, &block[position..]);
            position += delivered.consumed;
            blocked = delivered.consumed == 0;
            if let Some(payload) = delivered.payload {
                let begin = position - payload.bytes;
                if let Some(listing) = self.listings.get_mut(&payload.transfer) {
                    listing.take(payload.offset, &block[begin..position]);
                    continue;
                }
                pieces.push(Piece {
                    number: payload.transfer,
                    offset: payload.offset,
                    begin,
                    bytes: payload.bytes,
                });
            }
        }
        let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
        let moved_bytes = &self.shared.totals.moved_bytes;
        moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.writers.write(&block, pieces);
        if blocked && let Some(link) = self.links.get_mut(&number) {
            link.wait_with(block, position);
        }
        self.see_to_outputs();
        position > at
    }

    /// Gives connections what they are to send, as far as they have room.
    fn feed_senders(&mut self) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        let now = self.now();
        let mut moved = false;
        for (&number, link) in &mut self.links {
            while link.has_room()
                && let Some(out) = self.client.poll_data(now, number)
            {
                moved = true;
                let out = match out {
                    DataOut::Bytes(bytes) => Out::Bytes(bytes),
                    DataOut::Close => Out::End,
                    DataOut::Payload {
                        header,
                        transfer,
                        offset,
                        bytes,
                    } => Out::Part {
                        header,
                        source: match self.sources.get(&transfer) {
                            Some(source) => Arc::clone(source),
                            None => break,
                        },
                        offset,
                        bytes,
                    },
                };
                link.send(number, out, &self.own_events);
            }
        }
        moved
    }

    /// Takes items as long as there are fewer than are to be under way.
    fn take_items(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.ready || self.farewell.is_some() {
            return false;
        }
        let retired = self.post.retired.load(Ordering::Relaxed);
        let most = self
            .depth
            .saturating_sub(self.items.len() + self.opening + self.verifying.len());
        let idle = self.items.is_empty() && self.opening == 0 && self.verifying.is_empty();
        if retired && idle {
            return self.say_goodbye();
        }
        if retired || most < self.depth.div_ceil(4) || self.bytes >= self.ahead_bytes {
            return false;
        }
        let bytes = self.ahead_bytes - self.bytes;
        match self.shared.queue.poll_take(cx, most, bytes) {
            Poll::Ready(Some(items)) => {
                self.bytes += items.iter().map(Item::bytes).sum::<u64>();
                items.into_iter().for_each(|item| self.begin(item));
                true
            }
            Poll::Ready(None)
                if !self.post.asked.load(Ordering::Relaxed)
                    && self.asked.is_empty()
                    && self.client.open_transfers() == 0 =>
            {
                self.say_goodbye()
            }
            _ => false,
        }
    }

    fn say_goodbye(&mut self) -> bool {
        self.client.quit();
        self.farewell = Some(Instant::now());
        true
    }

    fn begin(&mut self, item: Item) {
        let (now, transfer) = (self.now(), item.number);
        let get = match &item.job {
            Job::Fetch(fetch) => Get {
                transfer,
                source: What::File,
                path: fetch.from.clone(),
                size_bytes: fetch.known.size,
                present: ByteRanges::default(),
            },
            Job::Chunk(large, _) if large.has_failed() => {
                self.bytes -= item.bytes();
                return self.shared.queue.settle();
            }
            Job::Chunk(large, index) => {
                let range = large.range(*index);
                let (offset, length) = (range.start, range.end - range.start);
                Get {
                    transfer,
                    source: What::Region { offset, length },
                    path: large.fetch.from.clone(),
                    size_bytes: Some(large.size),
                    present: ByteRanges::default(),
                }
            }
            Job::Store(_) => {
                self.opening += 1;
                return self.opener.open(item);
            }
        };
        self.items.insert(transfer, item);
        self.client.transfer(now, Transfer::Get(get));
    }

    fn send_file(&mut self, item: Item, source: Arc<Source>) {
        let Job::Store(store) = &item.job else {
            unreachable!("what is opened is sent");
        };
        let now = self.now();
        let put = Put {
            transfer: item.number,
            path: store.to.clone(),
            temporary: Some(store.part.clone()),
            size_bytes: source.size,
            checksum: source
                .checksum
                .map(|value| (verify::ALGORITHM.into(), verify::text(value))),
            modify_s: store
                .known
                .modify_s
                .filter(|_| self.shared.order.preserve.times),
            present: ByteRanges::default(),
        };
        self.sources.insert(item.number, source);
        self.items.insert(item.number, item);
        self.client.transfer(now, Transfer::Put(put));
    }

    fn begun(&mut self, transfer: u64) {
        if let Some(item) = self.items.get(&transfer)
            && !matches!(item.job, Job::Store(_))
        {
            self.writers.begin(item);
        }
    }

    fn done(&mut self, transfer: u64) {
        if let Some(listing) = self.listings.remove(&transfer) {
            return listing.end();
        }
        let Some(item) = self.items.remove(&transfer) else {
            return;
        };
        self.bytes -= item.bytes();
        self.moved += 1;
        let Job::Store(store) = &item.job else {
            return self.arrived(item);
        };
        let size = self
            .sources
            .remove(&transfer)
            .map_or(0, |source| source.size);
        self.keep_mode(store);
        self.shared
            .copied(|| self.shared.place(&store.to), size, "ftp");
        self.shared.queue.settle();
    }

    /// All bytes of a download are here.
    fn arrived(&mut self, item: Item) {
        if !self.shared.order.verify {
            return self.writers.commit(item, None);
        }
        let range = match &item.job {
            Job::Chunk(large, index) => Some(large.range(*index)),
            _ => None,
        };
        let command = verify::question(item.job.fetch().from.clone(), range);
        let number = self.next_request;
        self.next_request += 1;
        self.verifying.insert(number, item);
        self.client.request(self.now(), number, command);
    }

    fn verified(&mut self, item: Item, reply: &Reply) {
        match verify::told(reply) {
            Some(checksum) => self.writers.commit(item, Some(checksum)),
            None => {
                self.writers.discard(item.number);
                let advice = "leave --verify out, or run the same command again";
                self.shared
                    .failed(&item, &format!("no checksum: {reply}"), advice);
            }
        }
    }

    /// Has a file get its mode, where servers do not give it by themselves.
    fn keep_mode(&mut self, store: &Store) {
        let wanted = store.known.mode.filter(|_| self.shared.order.preserve.mode);
        if let Some(mode) = wanted.filter(|mode| differs(*mode, 0o644)) {
            let path = store.to.clone();
            let number = self.next_request;
            self.next_request += 1;
            self.untidy = true;
            let command = Command::Site(Site::Chmod { mode, path });
            self.client.request(self.now(), number, command);
        }
    }

    fn failed(&mut self, transfer: u64, reason: &str, again: bool) {
        self.untidy = true;
        if let Some(listing) = self.listings.remove(&transfer) {
            return listing.asker.end(Reply::new(550, reason));
        }
        self.sources.remove(&transfer);
        let Some(item) = self.items.remove(&transfer) else {
            return;
        };
        self.bytes -= item.bytes();
        if !matches!(item.job, Job::Store(_)) {
            self.writers.discard(transfer);
        }
        if again && item.tries < super::MOST_SESSIONS_AN_ITEM {
            return self.shared.queue.give_back(item);
        }
        let advice = "mend that at the server, then run the same command again";
        self.shared.failed(&item, reason, advice);
    }
}

impl Listing {
    fn take(&mut self, offset: u64, bytes: &[u8]) {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(bytes.len());
        self.too_long |= end > MOST_LISTING_BYTES;
        if !self.too_long {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[begin..end].copy_from_slice(bytes);
        }
    }

    fn end(self) {
        if self.too_long {
            let found = "the listing of the directory is too long; copy what is in it in parts";
            return self.asker.end(Reply::new(552, found));
        }
        for line in self.bytes.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                self.asker.tell(Answer::Line(line.to_vec()));
            }
        }
        self.asker.end(Reply::new(226, "listed"));
    }
}
