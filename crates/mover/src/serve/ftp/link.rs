//! A data connection: bytes of a file that go, or come.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use venturi_gridftp::DataOut;
use venturi_gridftp::server::Server;

use super::layer::{Layer, RAW_BYTES};
use super::reading::Reading;
use super::writing::{Filled, Segment, Writing};
use crate::serve::buffers::{Buffer, Buffers};

/// Bytes that one connection moves before the others have their turn.
const TURN_BYTES: u64 = 4 << 20;
/// Largest part of a file that is copied behind its header, so that both go by one call; larger ones go by `sendfile`.
const SMALL_BYTES: u64 = 32 * 1024;
/// Bytes of a file that are protected at a time.
const PROTECTED_BYTES: u64 = 64 * 1024;
/// Bytes that are gathered before they are sent.
const GATHER_BYTES: usize = 64 * 1024;

/// A data connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) peer: IpAddr,
    socket: TcpStream,
    unsent: Vec<u8>,
    sent: usize,
    /// Offset and number of bytes of the file that follow what is unsent.
    piece: Option<(u64, u64)>,
    closing: bool,
    input: Option<Buffer>,
    /// Up to where there are bytes, and up to where they are taken.
    filled: usize,
    taken: usize,
    /// Where, of those taken, bytes of the file are.
    segments: Vec<Segment>,
    /// How the other end closed it.
    ended: Option<bool>,
    /// What secures it, for as long as that has to see the bytes.
    layer: Option<Layer>,
}

/// What came of moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// None could be.
    Nothing,
    /// Some were.
    Some,
    /// The connection is over: cleanly or not.
    Closed(bool),
    /// The file cannot be read.
    FileFailed,
}

impl Link {
    pub(super) fn new(
        number: u64,
        peer: IpAddr,
        socket: TcpStream,
        mut layer: Option<Layer>,
    ) -> Self {
        let mut unsent = Vec::new();
        let begun = layer
            .as_mut()
            .map_or(Ok(()), |layer| layer.say(&mut unsent));
        Self {
            number,
            peer,
            socket,
            layer,
            unsent,
            sent: 0,
            piece: None,
            closing: false,
            input: None,
            filled: 0,
            taken: 0,
            segments: Vec::new(),
            // One that cannot begin has failed.
            ended: begun.err().map(|_| false),
        }
    }

    /// Bytes of the socket's buffer that sends.
    pub(super) fn buffer_bytes(&self) -> usize {
        rustix::net::sockopt::socket_send_buffer_size(&self.socket).unwrap_or(0)
    }

    /// Sends what the session has for it. `sent` counts bytes of the file.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        server: &mut Server,
        now: Duration,
        mut file: Option<&mut Reading>,
        sent: &mut u64,
    ) -> Moved {
        let mut moved = Moved::Nothing;
        let turn = *sent + TURN_BYTES;
        while *sent < turn {
            if self.sent < self.unsent.len() {
                match self.send_unsent(cx) {
                    Poll::Pending => return moved,
                    Poll::Ready(Err(_)) => return Moved::Closed(false),
                    Poll::Ready(Ok(())) => {}
                }
            } else if let Some((offset, left)) = self.piece {
                let Some(file) = file.as_deref_mut() else {
                    return Moved::Closed(false);
                };
                let gone = match &mut self.layer {
                    None => file.send(cx, &self.socket, offset, left),
                    Some(layer) => protect(cx, layer, file, &mut self.unsent, offset, left),
                };
                match gone {
                    Poll::Pending => return moved,
                    Poll::Ready(Ok(count)) => {
                        *sent += count;
                        self.piece = (left > count).then(|| (offset + count, left - count));
                    }
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::Other => {
                        return Moved::FileFailed;
                    }
                    Poll::Ready(Err(_)) => return Moved::Closed(false),
                }
            } else if self.closing {
                return Moved::Closed(true);
            } else if !self.gather(server, now, file.as_deref_mut(), sent) {
                return moved;
            }
            moved = Moved::Some;
        }
        moved
    }

    fn send_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The file's bytes follow in the same packet.
        let more = if self.piece.is_some() {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        let flags = more | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while self.socket.poll_write_ready(cx)?.is_ready() {
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                Ok(rustix::net::send(
                    &self.socket,
                    &self.unsent[self.sent..],
                    flags,
                )?)
            });
            match sent {
                Ok(count) => {
                    self.sent += count;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    /// Asks the session for what is next. False: nothing is.
    fn gather(
        &mut self,
        server: &mut Server,
        now: Duration,
        mut file: Option<&mut Reading>,
        sent: &mut u64,
    ) -> bool {
        self.unsent.clear();
        self.sent = 0;
        match &mut self.layer {
            Some(layer) if layer.is_done() => self.layer = None,
            Some(layer) if !layer.is_ready() => return false,
            Some(_) => return self.gather_protected(server, now),
            None => {}
        }
        let mut any = false;
        while self.unsent.len() < GATHER_BYTES && self.piece.is_none() && !self.closing {
            match server.poll_data(now, self.number) {
                None => break,
                Some(DataOut::Close) => self.closing = true,
                Some(DataOut::Bytes(bytes)) => {
                    self.unsent.extend(bytes);
                    // The session may take the next question for the news that these are sent.
                    return true;
                }
                Some(DataOut::Payload {
                    header,
                    offset,
                    bytes,
                    ..
                }) => {
                    self.unsent.extend(header.iter().flatten());
                    let small = file.as_deref_mut().filter(|_| bytes <= SMALL_BYTES);
                    if small
                        .is_some_and(|file| file.append(&mut self.unsent, offset, bytes as usize))
                    {
                        *sent += bytes;
                    } else {
                        self.piece = Some((offset, bytes)).filter(|_| bytes > 0);
                    }
                }
            }
            any = true;
        }
        any
    }

    /// The same through what secures the connection.
    fn gather_protected(&mut self, server: &mut Server, now: Duration) -> bool {
        let Some(layer) = &mut self.layer else {
            return false;
        };
        let protected = match server.poll_data(now, self.number) {
            None => return false,
            Some(DataOut::Close) => {
                self.closing = true;
                Ok(())
            }
            Some(DataOut::Bytes(bytes)) => layer.protect(&bytes, &mut self.unsent),
            Some(DataOut::Payload {
                header,
                offset,
                bytes,
                ..
            }) => {
                self.piece = Some((offset, bytes)).filter(|_| bytes > 0);
                header.map_or(Ok(()), |header| layer.protect(&header, &mut self.unsent))
            }
        };
        if protected.is_err() {
            self.ended = Some(false);
        }
        true
    }

    /// Takes what comes. `writing` is the file, if one is being received; `received` counts its bytes.
    pub(super) fn receive(
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
            if self.offer(server, now, received) {
                moved = Moved::Some;
            }
            self.make_room(writing.as_deref_mut(), buffers);
            let held_back = writing.as_ref().is_some_and(|writing| !writing.has_room());
            if self.ended.is_some() || held_back || left == 0 {
                break;
            }
            match self.read(cx, writing.is_some(), buffers) {
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

    /// Reads into what is free of the buffer. What nobody asked for yet gets little room.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        wanted: bool,
        buffers: &Buffers,
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
            let read = match &mut self.layer {
                None => self.socket.try_read(&mut input[self.filled..]),
                Some(layer) => open(
                    layer,
                    &self.socket,
                    &mut input[self.filled..],
                    &mut self.unsent,
                ),
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
            self.segments.push(Segment {
                start: self.taken - payload.bytes,
                bytes: payload.bytes,
                offset: payload.offset,
            });
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

    /// Whether some of the file has come that is not passed on yet.
    pub(super) fn holds_any(&self) -> bool {
        !self.segments.is_empty()
    }

    /// What has come of the file and is not passed on yet.
    pub(super) fn take_filled(&mut self, buffers: &Buffers) -> Option<Filled> {
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
    pub(super) fn forget(&mut self) {
        self.segments.clear();
        if self.filled == self.taken {
            self.input = None;
            (self.filled, self.taken) = (0, 0);
        }
    }
}

/// Adds protected bytes of the file to what is unsent, and says how many of the file they are.
fn protect(
    cx: &mut Context<'_>,
    layer: &mut Layer,
    file: &mut Reading,
    unsent: &mut Vec<u8>,
    offset: u64,
    left: u64,
) -> Poll<io::Result<u64>> {
    let bytes = left.min(PROTECTED_BYTES);
    let Poll::Ready(found) = file.read(cx, offset, bytes as usize) else {
        return Poll::Pending;
    };
    let refused = |_| io::Error::from(ErrorKind::ConnectionAborted);
    Poll::Ready(found.and_then(|found| {
        layer.protect(&found, unsent).map_err(refused)?;
        Ok(bytes)
    }))
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
