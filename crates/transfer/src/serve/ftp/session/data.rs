//! Data connections of a client: opening, and movement of bytes between them and a file.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use venturi_gridftp::ConnectionRole;
use venturi_gridftp::server::{DriverResponse, GlobusError};

use super::FtpServerSession;
use crate::net::sockets::Tcp;
use crate::serve::ftp::data_connection::{IoProgress, ServerDataConnection};
use crate::serve::ftp::file_writer::Filled;
use crate::serve::ftp::security_layer::SecurityLayer;
use crate::serve::metrics;

/// Connections accepted in one round.
const MAX_ACCEPTED: usize = 64;

impl FtpServerSession {
    /// Return the socket options of the client.
    fn tcp(&self) -> Tcp {
        let window_bytes = self.server.buffer_bytes();
        Tcp {
            window_bytes: window_bytes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            congestion: None,
            pacing_bytes_per_s: self.host.settings.pacing_bytes_per_s,
        }
    }

    pub(super) fn listen(&mut self) -> DriverResponse {
        let listener = self.host.ports.listen(self.own, &self.tcp());
        match listener.and_then(|listener| Ok((listener.local_addr()?.port(), listener))) {
            Ok((port, listener)) => {
                self.listener = Some(listener);
                let address = self.host.settings.public_address.unwrap_or(self.own);
                DriverResponse::Listening(SocketAddr::new(address, port))
            }
            Err(_) => DriverResponse::Failed(GlobusError::NoPort),
        }
    }

    pub(super) fn connect(&mut self, addresses: Vec<SocketAddr>, connections: u16) {
        for address in addresses {
            for _ in 0..connections {
                let tcp = self.tcp();
                let connecting = async move { tcp.connect(address).await };
                self.connecting.push(tokio::task::spawn_local(connecting));
            }
        }
    }

    /// Accept and open data connections.
    pub(super) fn open_connections(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        for _ in 0..MAX_ACCEPTED {
            let Some(listener) = &self.listener else {
                break;
            };
            let Poll::Ready(accepted) = listener.poll_accept(cx) else {
                break;
            };
            moved = true;
            match accepted {
                Ok((socket, from)) => {
                    self.open_connection(socket, from.ip(), ConnectionRole::Accepts)
                }
                Err(_) => {
                    // No open files are left: an immediate retry would busy-loop.
                    self.listener = None;
                    let now = self.now();
                    self.server.connect_failed(now);
                }
            }
        }
        let mut at = 0;
        while let Some(connecting) = self.connecting.get_mut(at) {
            let Poll::Ready(connected) = Pin::new(connecting).poll(cx) else {
                at += 1;
                continue;
            };
            drop(self.connecting.swap_remove(at));
            moved = true;
            match connected.unwrap_or_else(|_| Err(ErrorKind::Other.into())) {
                Ok(socket) => {
                    let from = socket
                        .peer_addr()
                        .map_or(self.peer.ip(), |address| address.ip());
                    self.open_connection(socket, from, ConnectionRole::Connects);
                }
                Err(_) => {
                    let now = self.now();
                    self.server.connect_failed(now);
                    // The failed connection took the others with it.
                    break;
                }
            }
        }
        moved
    }

    fn open_connection(&mut self, socket: TcpStream, from: IpAddr, finish: ConnectionRole) {
        let number = self.next_connection;
        self.next_connection += 1;
        let Some(counted) = self.host.limits.connect() else {
            let now = self.now();
            return self.server.connect_failed(now);
        };
        // Fails on a closed socket, which the next read reports.
        let _ = socket.set_nodelay(true);
        let now = self.now();
        let Ok(layer) = self.server.data_layer(now, finish) else {
            return self.server.connect_failed(now);
        };
        if self.server.data_opened(now, number, from) {
            let layer = layer.map(SecurityLayer::new);
            let from = from.to_canonical();
            self.connections.push(ServerDataConnection::new(
                number,
                (from, counted),
                socket,
                layer,
            ));
        }
    }

    pub(super) fn move_data(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.now();
        let mut any = false;
        let mut at = 0;
        while at < self.connections.len() {
            let (sent, received) = self.move_connection(cx, now, at);
            any |= sent != IoProgress::Nothing || received != IoProgress::Nothing;
            let cleanly = match (sent, received) {
                (IoProgress::Closed(cleanly), _) | (_, IoProgress::Closed(cleanly)) => cleanly,
                (IoProgress::FileFailed, _) => {
                    self.server.file_failed(now, self.disk.unread());
                    return true;
                }
                _ => {
                    at += 1;
                    continue;
                }
            };
            let mut connection = self.connections.remove(at);
            let pending = connection.take_filled(&self.host.buffers);
            if let Some(transfer) = &mut self.transfer {
                transfer.pending.extend(pending);
            }
            self.server.data_closed(now, connection.number, cleanly);
            drop(connection);
        }
        any
    }

    fn move_connection(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        at: usize,
    ) -> (IoProgress, IoProgress) {
        let connection = &mut self.connections[at];
        let (mut sent, mut received) = (0, 0);
        let going = connection.send(cx, &mut self.server, now, self.disk.reader(), &mut sent);
        let mut coming = IoProgress::Nothing;
        if !self.is_draining && going != IoProgress::FileFailed {
            let (server, buffers) = (&mut self.server, &self.host.buffers);
            coming =
                connection.receive(cx, server, now, self.disk.writer(), buffers, &mut received);
        }
        if going == IoProgress::Some {
            self.server.data_sent(now, connection.take_sent());
        }
        metrics::add(&self.host.metrics.sent_bytes, sent);
        metrics::add(&self.host.metrics.received_bytes, received);
        if let Some(transfer) = &mut self.transfer
            && sent + received > 0
        {
            transfer.moved(&self.host, connection, sent + received);
        }
        (going, coming)
    }

    /// Return received data that is not yet written.
    pub(super) fn pending(&mut self) -> Vec<Filled> {
        let buffers = &self.host.buffers;
        let connections = self.connections.iter_mut();
        let mut pending: Vec<_> = connections
            .filter_map(|connection| connection.take_filled(buffers))
            .collect();
        pending.extend(self.transfer.iter_mut().flat_map(|it| it.pending.drain(..)));
        pending
    }

    /// Return whether all received data is written.
    pub(super) fn is_drained(&mut self) -> bool {
        let forwarded = self
            .connections
            .iter()
            .all(|connection| !connection.has_unwritten());
        let written = self.disk.writer().is_none_or(|writer| writer.is_written());
        written && (forwarded || self.disk.writer().is_none())
    }

    /// Write received data. Return whether there was any.
    pub(super) fn drain_links(&mut self) -> bool {
        let Some(writer) = self.disk.writer() else {
            return false;
        };
        let pending = self
            .connections
            .iter_mut()
            .filter_map(|connection| connection.take_filled(&self.host.buffers));
        pending.map(|filled| writer.write(filled)).count() > 0
    }
}
