//! What comes on a data connection: into a buffer, to the session, which says what of it is the file's, and on to be written.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use venturi_gridftp::mode_e::HEADER_BYTES;
use venturi_gridftp::server::Server;

use super::{Link, Moved, TURN_BYTES};
use crate::net::straight::WORTH_BYTES;
use crate::serve::buffers::Buffers;
use crate::serve::ftp::layer::{Layer, RAW_BYTES};
use crate::serve::ftp::writing::{Filled, Segment, Writing};

impl Link {
    /// Takes what comes. `writing` is the file, if one is being received; `received` counts its bytes.
    pub(in crate::serve::ftp) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        server: &mut Server,
        now: Duration,
        mut writing: Option<&mut Writing>,
        buffers: &Buffers,
        received: &mut u64,
    ) -> Moved {
        let mut moved = Moved::Nothing;
        let mut left = TURN_BYTES;
        let before = self.stage();
        loop {
            let straight = writing.as_deref().is_some_and(Writing::is_straight);
            if self.offer(server, now, received) {
                moved = Moved::Some;
            }
            self.make_room(writing.as_deref_mut(), buffers);
            let held_back = writing.as_ref().is_some_and(|writing| !writing.has_room());
            if self.ended.is_some() || held_back || left == 0 {
                break;
            }
            self.expect(server);
            let most = self.most_bytes(server, straight);
            let file = writing.as_deref_mut().filter(|_| straight);
            let moving = file.and_then(|file| self.move_straight(cx, server, now, file, received));
            match moving.unwrap_or_else(|| self.read(cx, writing.is_some(), buffers, most)) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => self.ended = Some(true),
                Poll::Ready(Ok(count)) => left = left.saturating_sub(count as u64),
                Poll::Ready(Err(_)) => {
                    // The other end is told, if it listens.
                    let _ = self.socket.try_write(&self.unsent[self.sent..]);
                    self.ended = Some(false);
                }
            }
            moved = Moved::Some;
        }
        if self.stage() != before {
            moved = Moved::Some;
        }
        if self.filled == self.taken && self.segments.is_empty() {
            self.forget();
        }
        match self.ended {
            Some(cleanly) if self.filled == self.taken => {
                // Who went before he said who he is was nobody.
                let known = self.layer.as_ref().is_none_or(Layer::is_ready);
                Moved::Closed(cleanly && known)
            }
            _ => moved,
        }
    }

    /// How far what secures it is: it may have something to say, or let others speak.
    fn stage(&self) -> (usize, Option<bool>) {
        (self.unsent.len(), self.layer.as_ref().map(Layer::is_ready))
    }

    /// Moves payload of a large block into the file. Nothing: there is none, or no such way.
    fn move_straight(
        &mut self,
        cx: &mut Context<'_>,
        server: &mut Server,
        now: Duration,
        writing: &mut Writing,
        received: &mut u64,
    ) -> Option<Poll<io::Result<usize>>> {
        let coming = server.payload_bytes(self.number);
        let waits = self.layer.is_some() || self.taken < self.filled;
        if !self.intake.bulk || waits || coming < WORTH_BYTES {
            return None;
        }
        let came = writing.poll_fill(cx, &self.socket, coming);
        match &came {
            Poll::Ready(Ok(count)) if *count > 0 => {
                // On a slow network bytes are gathered first.
                self.intake.came(*count);
                self.intake.bulk = *count as u64 >= WORTH_BYTES;
                let delivered = server.handle_payload(now, self.number, *count);
                writing.drain(delivered.payload.map(|payload| payload.offset));
                *received += delivered.payload.map_or(0, |payload| payload.bytes as u64);
            }
            Poll::Ready(Err(_)) if !writing.is_straight() => return None,
            _ => {}
        }
        Some(came)
    }

    /// Has us woken when it is worth it.
    fn expect(&mut self, server: &Server) {
        let plain = self.layer.is_none();
        let coming = if plain {
            server.payload_bytes(self.number)
        } else {
            0
        };
        self.intake.expect(&self.socket, coming);
    }

    /// How much is to be read: where large blocks come one after the other, no payload of the next.
    fn most_bytes(&self, server: &Server, straight: bool) -> usize {
        let coming = server.payload_bytes(self.number);
        if !self.intake.bulk || !straight || coming >= WORTH_BYTES {
            return usize::MAX;
        }
        usize::try_from(coming).unwrap_or(usize::MAX) + HEADER_BYTES
    }

    /// Reads at most so much into what is free of the buffer. What nobody asked for yet gets little room.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        wanted: bool,
        buffers: &Buffers,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        while self.layer.as_ref().is_some_and(Layer::has_plain)
            || self.socket.poll_read_ready(cx)?.is_ready()
        {
            let input = self.input.get_or_insert_with(|| {
                if wanted {
                    buffers.take()
                } else {
                    buffers.small()
                }
            });
            if self.filled == input.len() {
                return Poll::Pending;
            }
            let end = self.filled.saturating_add(most).min(input.len());
            let room = &mut input[self.filled..end];
            let read = match &mut self.layer {
                None => self.socket.try_read(room),
                Some(layer) => open(layer, &self.socket, room, &mut self.unsent),
            };
            if self.layer.as_ref().is_some_and(Layer::is_done) {
                self.layer = None;
            }
            match read {
                Ok(count) => {
                    self.filled += count;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    /// Offers the session what is not taken yet. True: it took something.
    fn offer(&mut self, server: &mut Server, now: Duration, received: &mut u64) -> bool {
        let Some(input) = &self.input else {
            return false;
        };
        let before = self.taken;
        let mut large = false;
        while self.taken < self.filled {
            let delivered = server.handle_data(now, self.number, &input[self.taken..self.filled]);
            if delivered.consumed == 0 {
                break;
            }
            self.taken += delivered.consumed;
            let Some(payload) = delivered.payload.filter(|payload| payload.bytes > 0) else {
                continue;
            };
            *received += payload.bytes as u64;
            large |= payload.bytes as u64 >= WORTH_BYTES;
            self.segments.push(Segment {
                start: self.taken - payload.bytes,
                bytes: payload.bytes,
                offset: payload.offset,
            });
        }
        if self.taken > before {
            let coming = server.payload_bytes(self.number);
            self.intake.came(self.taken - before);
            self.intake.bulk = large || self.intake.bulk && coming >= WORTH_BYTES;
        }
        self.taken > before
    }

    /// Passes a full buffer on to be written, or moves what is left in it to its front.
    fn make_room(&mut self, writing: Option<&mut Writing>, buffers: &Buffers) {
        let Some(input) = &mut self.input else { return };
        if self.filled < input.len() {
            return;
        }
        match writing {
            Some(writing) if !self.segments.is_empty() => {
                if let Some(filled) = self.take_filled(buffers) {
                    writing.write(filled);
                }
            }
            _ if self.segments.is_empty() && self.taken > 0 => {
                input.copy_within(self.taken..self.filled, 0);
                self.filled -= self.taken;
                self.taken = 0;
            }
            _ => {}
        }
    }

    /// What has come of the file and is not passed on yet.
    pub(in crate::serve::ftp) fn take_filled(&mut self, buffers: &Buffers) -> Option<Filled> {
        if self.segments.is_empty() {
            return None;
        }
        let buffer = self.input.take()?;
        let tail = &buffer[self.taken..self.filled];
        if !tail.is_empty() {
            self.input = Some(buffers.holding(tail));
        }
        self.filled -= self.taken;
        self.taken = 0;
        let segments = std::mem::take(&mut self.segments);
        Some(Filled { buffer, segments })
    }

    /// Has what was taken go: of a file that is given up, or all that there was.
    pub(in crate::serve::ftp) fn forget(&mut self) {
        self.segments.clear();
        if self.filled == self.taken {
            self.input = None;
            (self.filled, self.taken) = (0, 0);
        }
    }

    /// Whether some of the file has come that is not passed on yet.
    pub(in crate::serve::ftp) fn holds_any(&self) -> bool {
        !self.segments.is_empty()
    }
}

/// Reads through what secures a connection; `WouldBlock` also where what came was only for that.
fn open(
    layer: &mut Layer,
    socket: &TcpStream,
    into: &mut [u8],
    unsent: &mut Vec<u8>,
) -> io::Result<usize> {
    let mut raw = [0; RAW_BYTES];
    loop {
        let given = layer.give(into);
        if given > 0 {
            return Ok(given);
        }
        let count = socket.try_read(&mut raw)?;
        if count == 0 {
            return Ok(0);
        }
        layer
            .take(&raw[..count], unsent)
            .map_err(|_| io::Error::from(ErrorKind::ConnectionAborted))?;
    }
}
