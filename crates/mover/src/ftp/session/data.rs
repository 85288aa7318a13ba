//! Data connections of a session: how they come to be, what is read from them, and what is given to their senders.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use venturi_gridftp::client::Purpose;
use venturi_gridftp::mode_e::HEADER_BYTES;
use venturi_gridftp::{DataOut, End};

use super::Session;
use crate::ftp::guard::Read;
use crate::ftp::link::Link;
use crate::ftp::sender::Out;
use crate::ftp::writer::Piece;
use crate::net::grid::now_s;
use crate::net::straight::WORTH_BYTES;

/// Most connections that were accepted and have not shown whose they are: twice what one file may come over (`--streams`).
const MOST_ARRIVING: usize = 512;
/// How long they may take for it.
const ARRIVAL: Duration = Duration::from_secs(20);

/// A connection on its way, and what it is for.
pub(super) type Connecting = Pin<Box<dyn Future<Output = (Purpose, io::Result<TcpStream>)>>>;

impl Session<'_> {
    pub(super) fn listen(&mut self) {
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
                self.client.connect_failed(now, Purpose::Stripe(0), &reason);
            }
        }
    }

    pub(super) fn connect(&mut self, to: SocketAddr, connections: u16, purpose: Purpose) {
        for _ in 0..connections {
            let tcp = self.tcp.clone();
            self.connecting
                .push(Box::pin(async move { (purpose, tcp.connect(to).await) }));
        }
    }

    pub(super) fn see_to_connecting(&mut self, cx: &mut Context<'_>) -> bool {
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
        for (purpose, result) in opened {
            match result {
                Ok(socket) => match self.link(socket, End::Connects) {
                    // It is said at once: the server begins the handshake with the transfer.
                    Some(link) => self.open(link, purpose),
                    None => {
                        let reason = "no data connection can be secured";
                        self.client.connect_failed(self.now(), purpose, reason);
                    }
                },
                Err(error) => {
                    let reason = format!("no data connection: {}", crate::error::said(&error));
                    self.client.connect_failed(self.now(), purpose, &reason);
                }
            }
        }
        moved
    }

    pub(super) fn accept(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some(listener) = &self.listener
            && let Poll::Ready(accepted) = listener.poll_accept(cx)
        {
            moved = true;
            // One that is gone before it is accepted is missed by the client, which says so.
            if let Ok((socket, _)) = accepted
                && let Some(link) = self.link(socket, End::Accepts)
            {
                if link.is_ready() {
                    self.open(link, Purpose::Stripe(0));
                } else if self.arriving.len() < MOST_ARRIVING {
                    self.arriving.push((Instant::now(), link));
                }
            }
        }
        moved | self.see_to_arriving(cx)
    }

    /// Takes connections that were accepted, once they have shown that they come from the server: anybody may find the port.
    fn see_to_arriving(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some((since, link)) = self.arriving.get_mut(at) {
            let read = link.poll_read(cx, &mut self.buffers, usize::MAX);
            if let Poll::Ready(Some(Read::Refused(reason))) = &read {
                self.refusal = Some(reason.clone());
            }
            let (ready, late) = (link.is_ready(), since.elapsed() > ARRIVAL);
            if ready || late || matches!(read, Poll::Ready(Some(_))) {
                moved = true;
                let (_, link) = self.arriving.remove(at);
                if ready {
                    self.open(link, Purpose::Stripe(0));
                }
            } else {
                at += 1;
            }
        }
        moved
    }

    /// A connection with what secures it.
    fn link(&mut self, socket: TcpStream, end: End) -> Option<Link> {
        let layer = self.client.data_layer(end, now_s());
        let link = layer.and_then(|layer| Link::new(socket, layer));
        link.map_err(|error| self.refusal = Some(error.to_string()))
            .ok()
    }

    /// Tells how long round trips take, and what is lost.
    pub(super) fn tell_trips(&mut self) {
        let trips = &self.shared.trips;
        for (seen, loses) in self.links.values_mut().filter_map(Link::seen) {
            trips.tell(&seen, loses);
        }
        if let Some(seen) = self.control.seen() {
            trips.tell_least(&seen);
        }
    }

    fn open(&mut self, link: Link, purpose: Purpose) {
        let (now, number) = (self.now(), self.next_link);
        self.next_link += 1;
        if self.client.data_opened(now, number, purpose) {
            self.links.insert(number, link);
        }
    }

    pub(super) fn read_links(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        // Numbers first: what is read may have connections closed.
        let numbers: Vec<u64> = self.links.keys().copied().collect();
        for number in numbers {
            moved |= self.read_link(cx, number);
        }
        moved
    }

    /// Reads a block of a connection, and has the writer write what the client says that it is.
    fn read_link(&mut self, cx: &mut Context<'_>, number: u64) -> bool {
        let coming = self.coming_bytes(number);
        if let Some(link) = self.links.get_mut(&number) {
            link.expect(coming);
        }
        if let Some(moved) = self.read_straight(cx, number) {
            return moved;
        }
        let (now, most) = (self.now(), self.most_bytes(number));
        let Some(link) = self.links.get_mut(&number) else {
            return false;
        };
        let read = link.poll_read(cx, &mut self.buffers, most);
        let Some((block, at)) = link.unread.take() else {
            let cleanly = match read {
                Poll::Ready(Some(Read::Ended { cleanly })) => cleanly,
                Poll::Ready(Some(Read::Refused(reason))) => {
                    self.refusal = Some(reason);
                    false
                }
                _ => return read.is_ready(),
            };
            self.links.remove(&number);
            self.client.data_closed(now, number, cleanly);
            return true;
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
        let large = pieces.iter().any(|piece| piece.bytes as u64 >= WORTH_BYTES);
        for piece in &pieces {
            self.progress.came(piece.number, piece.bytes as u64);
        }
        self.writing.write(&block, pieces);
        let coming = self.coming_bytes(number);
        if let Some(link) = self.links.get_mut(&number) {
            link.intake.came(bytes);
            link.intake.bulk = large || link.intake.bulk && coming >= WORTH_BYTES;
            if blocked {
                link.wait_with(block, position);
            }
        }
        self.see_to_outputs();
        position > at
    }

    /// Moves payload of a large block straight into its file. Nothing: there is none, or no such way.
    fn read_straight(&mut self, cx: &mut Context<'_>, number: u64) -> Option<bool> {
        let link = self.links.get_mut(&number)?;
        let (transfer, bytes) = self.client.coming(number)?;
        let wanted = link.intake.bulk && link.is_bare() && bytes >= WORTH_BYTES;
        if !wanted || !self.straight.is_open() || !self.pace.is_fast() {
            return None;
        }
        let file = self.writing.file(transfer)?;
        let Poll::Ready(came) = link.poll_fill(cx, &mut self.straight, bytes) else {
            return Some(false);
        };
        let now = self.began.elapsed();
        let Some(count) = came.as_ref().ok().copied().filter(|&count| count > 0) else {
            if !self.straight.is_open() {
                return None;
            }
            self.links.remove(&number);
            self.client.data_closed(now, number, came.is_ok());
            return Some(true);
        };
        // On a slow network bytes are gathered first.
        link.intake.came(count);
        link.intake.bulk = count as u64 >= WORTH_BYTES;
        let delivered = self.client.handle_payload(now, number, count);
        if let Some(payload) = delivered.payload {
            let written = self.pace.of(|| self.straight.drain(file, payload.offset));
            match written {
                Ok(()) => {
                    let moved_bytes = &self.shared.totals.moved_bytes;
                    moved_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    self.progress.came(transfer, count as u64);
                    let written = payload.offset..payload.offset + count as u64;
                    self.writing.reached(transfer, written);
                }
                Err(errno) => self.writing.spoil(transfer, errno),
            }
        } else {
            self.straight.forget();
        }
        self.see_to_outputs();
        Some(true)
    }

    /// How much is to be read of a connection: where large blocks come one after the other, no payload of the next.
    fn most_bytes(&self, number: u64) -> usize {
        let bulk = self.links.get(&number).is_some_and(|link| link.intake.bulk);
        let coming = self.coming_bytes(number);
        if !bulk || coming >= WORTH_BYTES || !self.straight.is_open() || !self.pace.is_fast() {
            return usize::MAX;
        }
        usize::try_from(coming).unwrap_or(usize::MAX) + HEADER_BYTES
    }

    fn coming_bytes(&self, number: u64) -> u64 {
        self.client.coming(number).map_or(0, |(_, bytes)| bytes)
    }

    /// Gives connections what they are to send, as far as they have room.
    pub(super) fn feed_senders(&mut self) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        let now = self.now();
        let moved_bytes = &self.shared.totals.moved_bytes;
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
                link.send(number, out, &self.own_events, moved_bytes);
            }
        }
        moved
    }
}
