//! Receive side of a data connection: read into a buffer, let the session parse it, and write the file data.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use venturi_gridftp::mode_e::HEADER_BYTES;
use venturi_gridftp::server::Server;

use super::{IoProgress, ServerDataConnection, TURN_BYTES};
use crate::net::splice::MIN_SPLICE_BYTES;
use crate::serve::buffers::BufferPool;
use crate::serve::ftp::file_writer::{FileWriter, Filled, Segment};
use crate::serve::ftp::security_layer::{RAW_BYTES, SecurityLayer};

impl ServerDataConnection {
    /// Receive data. `writer` is the file of an upload; `received` counts its bytes.
    pub(in crate::serve::ftp) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        server: &mut Server,
        now: Duration,
        mut writer: Option<&mut FileWriter>,
        buffers: &BufferPool,
        received: &mut u64,
    ) -> IoProgress {
        let mut moved = IoProgress::Nothing;
        let mut remaining = TURN_BYTES;
        let before = self.stage();
        loop {
            let splice = writer.as_deref().is_some_and(FileWriter::can_splice);
            if self.offer(server, now, received) {
                moved = IoProgress::Some;
            }
            self.make_space(writer.as_deref_mut(), buffers);
            let blocked = writer.as_ref().is_some_and(|writer| !writer.has_capacity());
            if self.ended.is_some() || blocked || remaining == 0 {
                break;
            }
            self.expect(server);
            let max = self.max_bytes(server, splice);
            let file = writer.as_deref_mut().filter(|_| splice);
            let moving = file.and_then(|file| self.move_spliced(cx, server, now, file, received));
            match moving.unwrap_or_else(|| self.read(cx, writer.is_some(), buffers, max)) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => self.ended = Some(true),
                Poll::Ready(Ok(count)) => remaining = remaining.saturating_sub(count as u64),
                Poll::Ready(Err(_)) => {
                    // The peer receives the error if it still listens.
                    let _ = self.socket.try_write(&self.unsent[self.sent..]);
                    self.ended = Some(false);
                }
            }
            moved = IoProgress::Some;
        }
        if self.stage() != before {
            moved = IoProgress::Some;
        }
        if self.filled == self.consumed && self.segments.is_empty() {
            self.forget();
        }
        match self.ended {
            Some(cleanly) if self.filled == self.consumed => {
                // A client that left before authentication is ignored.
                let known = self.layer.as_ref().is_none_or(SecurityLayer::is_ready);
                IoProgress::Closed(cleanly && known)
            }
            _ => moved,
        }
    }

    /// Return the progress of the security layer: it may have output or allow other connections to continue.
    fn stage(&self) -> (usize, Option<bool>) {
        (
            self.unsent.len(),
            self.layer.as_ref().map(SecurityLayer::is_ready),
        )
    }

    /// Splice the payload of a large block into the file. None without payload or without splice.
    fn move_spliced(
        &mut self,
        cx: &mut Context<'_>,
        server: &mut Server,
        now: Duration,
        writer: &mut FileWriter,
        received: &mut u64,
    ) -> Option<Poll<io::Result<usize>>> {
        let coming = server.payload_bytes(self.number);
        let waits = self.layer.is_some() || self.consumed < self.filled;
        if !self.intake.bulk || waits || coming < MIN_SPLICE_BYTES {
            return None;
        }
        let filled_bytes = writer.poll_fill(cx, &self.socket, coming);
        match &filled_bytes {
            Poll::Ready(Ok(count)) if *count > 0 => {
                // On a slow network bytes are gathered first.
                self.intake.received(*count);
                self.intake.bulk = *count as u64 >= MIN_SPLICE_BYTES;
                let delivered = server.handle_payload(now, self.number, *count);
                writer.drain(delivered.payload.map(|payload| payload.offset));
                *received += delivered.payload.map_or(0, |payload| payload.bytes as u64);
            }
            Poll::Ready(Err(_)) if !writer.can_splice() => return None,
            _ => {}
        }
        Some(filled_bytes)
    }

    /// Tune the wake-ups of the socket for the expected data.
    fn expect(&mut self, server: &Server) {
        let plaintext = self.layer.is_none();
        let coming = if plaintext {
            server.payload_bytes(self.number)
        } else {
            0
        };
        self.intake.expect(&self.socket, coming);
    }

    /// Return the maximum bytes of a read: between large blocks, no payload of the next block.
    fn max_bytes(&self, server: &Server, splice: bool) -> usize {
        let coming = server.payload_bytes(self.number);
        if !self.intake.bulk || !splice || coming >= MIN_SPLICE_BYTES {
            return usize::MAX;
        }
        usize::try_from(coming).unwrap_or(usize::MAX) + HEADER_BYTES
    }

    /// Read into the free part of the buffer. Data of unknown use gets little space.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        requested: bool,
        buffers: &BufferPool,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        while self
            .layer
            .as_ref()
            .is_some_and(SecurityLayer::has_plaintext)
            || self.socket.poll_read_ready(cx)?.is_ready()
        {
            let input = self.input.get_or_insert_with(|| {
                if requested {
                    buffers.take()
                } else {
                    buffers.small()
                }
            });
            if self.filled == input.len() {
                return Poll::Pending;
            }
            let finish = self.filled.saturating_add(max).min(input.len());
            let space = &mut input[self.filled..finish];
            let read = match &mut self.layer {
                None => self.socket.try_read(space),
                Some(layer) => open(layer, &self.socket, space, &mut self.unsent),
            };
            if self.layer.as_ref().is_some_and(SecurityLayer::is_done) {
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

    /// Offer unprocessed bytes to the session. Return whether it consumed any.
    fn offer(&mut self, server: &mut Server, now: Duration, received: &mut u64) -> bool {
        let Some(input) = &self.input else {
            return false;
        };
        let before = self.consumed;
        let mut large = false;
        while self.consumed < self.filled {
            let delivered =
                server.handle_data(now, self.number, &input[self.consumed..self.filled]);
            if delivered.consumed == 0 {
                break;
            }
            self.consumed += delivered.consumed;
            let Some(payload) = delivered.payload.filter(|payload| payload.bytes > 0) else {
                continue;
            };
            *received += payload.bytes as u64;
            large |= payload.bytes as u64 >= MIN_SPLICE_BYTES;
            self.segments.push(Segment {
                start: self.consumed - payload.bytes,
                bytes: payload.bytes,
                offset: payload.offset,
            });
        }
        if self.consumed > before {
            let coming = server.payload_bytes(self.number);
            self.intake.received(self.consumed - before);
            self.intake.bulk = large || self.intake.bulk && coming >= MIN_SPLICE_BYTES;
        }
        self.consumed > before
    }

    /// Hand a full buffer to the writer, or move its remaining bytes to the front.
    fn make_space(&mut self, writer: Option<&mut FileWriter>, buffers: &BufferPool) {
        let Some(input) = &mut self.input else { return };
        if self.filled < input.len() {
            return;
        }
        match writer {
            Some(writer) if !self.segments.is_empty() => {
                if let Some(filled) = self.take_filled(buffers) {
                    writer.write(filled);
                }
            }
            _ if self.segments.is_empty() && self.consumed > 0 => {
                input.copy_within(self.consumed..self.filled, 0);
                self.filled -= self.consumed;
                self.consumed = 0;
            }
            _ => {}
        }
    }

    /// Return received file data that is not yet written.
    pub(in crate::serve::ftp) fn take_filled(&mut self, buffers: &BufferPool) -> Option<Filled> {
        if self.segments.is_empty() {
            return None;
        }
        let buffer = self.input.take()?;
        let tail = &buffer[self.consumed..self.filled];
        if !tail.is_empty() {
            self.input = Some(buffers.holding(tail));
        }
        self.filled -= self.consumed;
        self.consumed = 0;
        let segments = std::mem::take(&mut self.segments);
        Some(Filled { buffer, segments })
    }

    /// Drop the consumed data of an aborted or complete file.
    pub(in crate::serve::ftp) fn forget(&mut self) {
        self.segments.clear();
        if self.filled == self.consumed {
            self.input = None;
            (self.filled, self.consumed) = (0, 0);
        }
    }

    /// Return whether received file data was not passed to the writer yet.
    pub(in crate::serve::ftp) fn has_unwritten(&self) -> bool {
        !self.segments.is_empty()
    }
}

/// Read through the security layer; `WouldBlock` also after bytes for the layer only.
fn open(
    layer: &mut SecurityLayer,
    socket: &TcpStream,
    into: &mut [u8],
    unsent: &mut Vec<u8>,
) -> io::Result<usize> {
    let mut raw = [0; RAW_BYTES];
    loop {
        let read_bytes = layer.read_plaintext(into);
        if read_bytes > 0 {
            return Ok(read_bytes);
        }
        let count = socket.try_read(&mut raw)?;
        if count == 0 {
            return Ok(0);
        }
        layer
            .feed(&raw[..count], unsent)
            .map_err(|_| io::Error::from(ErrorKind::ConnectionAborted))?;
    }
}
