//! Data connections of a session: opening, reading, and feeding their senders.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use venturi_gridftp::client::ConnectionPurpose;
use venturi_gridftp::mode_e::HEADER_BYTES;
use venturi_gridftp::{ConnectionRole, DataOut};

use super::FtpSession;
use crate::ftp::data_connection::DataConnection;
use crate::ftp::secure_channel::Read;
use crate::ftp::sender::Out;
use crate::ftp::writer::FilePart;
use crate::net::grid::now_s;
use crate::net::rate_limit;
use crate::net::splice::MIN_SPLICE_BYTES;

/// Maximum accepted connections that are not authenticated: twice the maximum connections of a file (`--streams`).
const MAX_ARRIVING: usize = 512;
/// Time limit for their handshake.
const ARRIVAL: Duration = Duration::from_secs(20);

/// Connection that is being opened, with its purpose.
pub(super) type Connecting =
    Pin<Box<dyn Future<Output = (ConnectionPurpose, io::Result<TcpStream>)>>>;

impl FtpSession<'_> {
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
                let reason = format!("cannot listen for data connections: {error}");
                self.client
                    .connect_failed(now, ConnectionPurpose::Stripe(0), &reason);
            }
        }
    }

    pub(super) fn connect(&mut self, to: SocketAddr, connections: u16, purpose: ConnectionPurpose) {
        for _ in 0..connections {
            let tcp = self.tcp.clone();
            self.connecting
                .push(Box::pin(async move { (purpose, tcp.connect(to).await) }));
        }
    }

    pub(super) fn poll_connecting(&mut self, cx: &mut Context<'_>) -> bool {
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
                Ok(socket) => match self.connection(socket, ConnectionRole::Connects) {
                    // Opened immediately: the server starts the handshake with the transfer.
                    Some(connection) => self.open(connection, purpose),
                    None => {
                        let reason = "cannot secure a data connection";
                        self.client.connect_failed(self.now(), purpose, reason);
                    }
                },
                Err(error) => {
                    let reason = format!(
                        "cannot open a data connection: {}",
                        crate::error::describe(&error)
                    );
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
            // The client detects a connection that closed before it was accepted, and reports it.
            if let Ok((socket, _)) = accepted
                && let Some(connection) = self.connection(socket, ConnectionRole::Accepts)
            {
                if connection.is_ready() {
                    self.open(connection, ConnectionPurpose::Stripe(0));
                } else if self.arriving.len() < MAX_ARRIVING {
                    self.arriving.push((Instant::now(), connection));
                }
            }
        }
        moved | self.poll_arriving(cx)
    }

    /// Handles accepted connections after authentication: any host can connect to the port.
    fn poll_arriving(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some((since, connection)) = self.arriving.get_mut(at) {
            let read = connection.poll_read(cx, &mut self.buffers, usize::MAX);
            if let Poll::Ready(Some(Read::Rejected(reason))) = &read {
                self.connection_error = Some(reason.clone());
            }
            let (ready, late) = (connection.is_ready(), since.elapsed() > ARRIVAL);
            if ready || late || matches!(read, Poll::Ready(Some(_))) {
                moved = true;
                let (_, connection) = self.arriving.remove(at);
                if ready {
                    self.open(connection, ConnectionPurpose::Stripe(0));
                }
            } else {
                at += 1;
            }
        }
        moved
    }

    /// Adds the security layer to a connection.
    fn connection(&mut self, socket: TcpStream, end: ConnectionRole) -> Option<DataConnection> {
        let layer = self.client.data_layer(end, now_s());
        let connection = layer.and_then(|layer| DataConnection::new(socket, layer));
        connection
            .map_err(|error| self.connection_error = Some(error.to_string()))
            .ok()
    }

    /// Records round-trip times and losses.
    pub(super) fn report_round_trips(&mut self) {
        let round_trips = &self.shared.round_trips;
        for (snapshot, loses) in self
            .connections
            .values_mut()
            .filter_map(DataConnection::poll_snapshot)
        {
            round_trips.record(&snapshot, loses);
        }
        if let Some(snapshot) = self.control.snapshot() {
            round_trips.record_min(&snapshot);
        }
    }

    fn open(&mut self, connection: DataConnection, purpose: ConnectionPurpose) {
        let (now, number) = (self.now(), self.next_connection);
        self.next_connection += 1;
        if self.client.data_opened(now, number, purpose) {
            self.connections.insert(number, connection);
        }
    }

    pub(super) fn read_connections(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        // Numbers first: a read can close connections.
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            moved |= self.read_connection(cx, number);
        }
        moved
    }

    /// Reads a block of a connection, and passes its data to the writer.
    fn read_connection(&mut self, cx: &mut Context<'_>, number: u64) -> bool {
        let coming = self.coming_bytes(number);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.expect(coming);
        }
        if let Some(moved) = self.read_straight(cx, number) {
            return moved;
        }
        let (now, most) = (self.now(), self.read_limit(number));
        let Some(connection) = self.connections.get_mut(&number) else {
            return false;
        };
        let read = connection.poll_read(cx, &mut self.buffers, most);
        let Some((block, at)) = connection.unread.take() else {
            let cleanly = match read {
                Poll::Ready(Some(Read::SessionEnd { cleanly })) => cleanly,
                Poll::Ready(Some(Read::Rejected(reason))) => {
                    self.connection_error = Some(reason);
                    false
                }
                _ => return read.is_ready(),
            };
            self.connections.remove(&number);
            self.client.data_closed(now, number, cleanly);
            return true;
        };
        let (mut position, mut file_parts) = (at, Vec::new());
        let mut blocked = false;
        while position < block.len() && !blocked {
            let delivered = self.client.handle_data(now, number, &block[position..]);
            position += delivered.consumed;
            blocked = delivered.consumed == 0;
            if let Some(payload) = delivered.payload {
                let start = position - payload.bytes;
                if let Some(listing) = self.listings.get_mut(&payload.transfer) {
                    listing.take(payload.offset, &block[start..position]);
                    continue;
                }
                file_parts.push(FilePart {
                    number: payload.transfer,
                    offset: payload.offset,
                    start,
                    bytes: payload.bytes,
                });
            }
        }
        let bytes: usize = file_parts.iter().map(|file_part| file_part.bytes).sum();
        let moved_bytes = &self.shared.totals.moved_bytes;
        moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        rate_limit::wait_after(bytes as u64);
        let large = file_parts
            .iter()
            .any(|file_part| file_part.bytes as u64 >= MIN_SPLICE_BYTES);
        for file_part in &file_parts {
            self.progress
                .received(file_part.number, file_part.bytes as u64);
        }
        self.writing.write(&block, file_parts);
        let coming = self.coming_bytes(number);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.intake.received(bytes);
            connection.intake.bulk = large || connection.intake.bulk && coming >= MIN_SPLICE_BYTES;
            if blocked {
                connection.wait_with(block, position);
            }
        }
        self.handle_outputs();
        position > at
    }

    /// Moves payload of a large block into its file by splice. None: no such payload, or not supported.
    fn read_straight(&mut self, cx: &mut Context<'_>, number: u64) -> Option<bool> {
        let connection = self.connections.get_mut(&number)?;
        let (transfer, bytes) = self.client.next_payload(number)?;
        let splices = connection.intake.bulk && connection.is_plain() && bytes >= MIN_SPLICE_BYTES;
        if !splices || !self.splice.is_open() || !self.pace.is_fast() {
            return None;
        }
        let file = self.writing.file(transfer)?;
        let Poll::Ready(received) = connection.poll_fill(cx, &mut self.splice, bytes) else {
            return Some(false);
        };
        let now = self.started.elapsed();
        let Some(count) = received.as_ref().ok().copied().filter(|&count| count > 0) else {
            if !self.splice.is_open() {
                return None;
            }
            self.connections.remove(&number);
            self.client.data_closed(now, number, received.is_ok());
            return Some(true);
        };
        // On a slow network, data is gathered first.
        connection.intake.received(count);
        connection.intake.bulk = count as u64 >= MIN_SPLICE_BYTES;
        let delivered = self.client.handle_payload(now, number, count);
        if let Some(payload) = delivered.payload {
            let written = self.pace.of(|| self.splice.drain(file, payload.offset));
            match written {
                Ok(()) => {
                    let moved_bytes = &self.shared.totals.moved_bytes;
                    moved_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    rate_limit::wait_after(count as u64);
                    self.progress.received(transfer, count as u64);
                    let written = payload.offset..payload.offset + count as u64;
                    self.writing.reached(transfer, written);
                }
                Err(errno) => self.writing.spoil(transfer, errno),
            }
        } else {
            self.splice.forget();
        }
        self.handle_outputs();
        Some(true)
    }

    /// Returns the read size of a connection: between large blocks, no payload of the next one.
    fn read_limit(&self, number: u64) -> usize {
        let bulk = self
            .connections
            .get(&number)
            .is_some_and(|connection| connection.intake.bulk);
        let coming = self.coming_bytes(number);
        if !bulk || coming >= MIN_SPLICE_BYTES || !self.splice.is_open() || !self.pace.is_fast() {
            return usize::MAX;
        }
        usize::try_from(coming).unwrap_or(usize::MAX) + HEADER_BYTES
    }

    fn coming_bytes(&self, number: u64) -> u64 {
        self.client
            .next_payload(number)
            .map_or(0, |(_, bytes)| bytes)
    }

    /// Passes data to the senders, up to their capacity.
    pub(super) fn feed_senders(&mut self) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        let now = self.now();
        let moved_bytes = &self.shared.totals.moved_bytes;
        let mut moved = false;
        for (&number, connection) in &mut self.connections {
            while connection.has_capacity()
                && let Some(out) = self.client.poll_data(now, number)
            {
                moved = true;
                let out = match out {
                    DataOut::Bytes(bytes) => Out::Bytes(bytes),
                    DataOut::Close => Out::ServerEnd,
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
                connection.send(number, out, &self.own_events, moved_bytes);
            }
        }
        moved
    }
}
