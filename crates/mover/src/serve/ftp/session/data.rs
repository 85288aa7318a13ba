//! The data connections of a client: how they open, and how bytes pass between them and a file.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use venturi_gridftp::End;
use venturi_gridftp::server::{Answer, Refusal};

use super::Session;
use crate::net::sockets::Tcp;
use crate::serve::ftp::layer::Layer;
use crate::serve::ftp::link::{Link, Moved};
use crate::serve::ftp::writing::Filled;
use crate::serve::metrics;

/// Connections that are taken at a door in one round.
const MAX_ACCEPTED: usize = 64;

impl Session {
    /// Sockets as the client asked for them.
    fn tcp(&self) -> Tcp {
        let window_bytes = self.server.buffer_bytes();
        Tcp {
            window_bytes: window_bytes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            congestion: None,
            pacing_bytes_per_s: self.host.settings.pacing_bytes_per_s,
        }
    }

    pub(super) fn listen(&mut self) -> Answer {
        let listener = self.host.ports.listen(self.own, &self.tcp());
        match listener.and_then(|listener| Ok((listener.local_addr()?.port(), listener))) {
            Ok((port, listener)) => {
                self.listener = Some(listener);
                let address = self.host.settings.public_address.unwrap_or(self.own);
                Answer::Listening(SocketAddr::new(address, port))
            }
            Err(_) => Answer::Refused(Refusal::NoPort),
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

    /// Takes data connections that come, and those that we opened.
    pub(super) fn open_links(&mut self, cx: &mut Context<'_>) -> bool {
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
                Ok((socket, from)) => self.open_link(socket, from.ip(), End::Accepts),
                Err(_) => {
                    // No more open files: to try again at once would be to do nothing else.
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
                    self.open_link(socket, from, End::Connects);
                }
                Err(_) => {
                    let now = self.now();
                    self.server.connect_failed(now);
                    // What failed took the others with it.
                    break;
                }
            }
        }
        moved
    }

    fn open_link(&mut self, socket: TcpStream, from: IpAddr, end: End) {
        let number = self.next_link;
        self.next_link += 1;
        let Some(counted) = self.host.limits.connect() else {
            let now = self.now();
            return self.server.connect_failed(now);
        };
        // Fails on a socket that is gone, which the next read tells.
        let _ = socket.set_nodelay(true);
        let now = self.now();
        let Ok(layer) = self.server.data_layer(now, end) else {
            return self.server.connect_failed(now);
        };
        if self.server.data_opened(now, number, from) {
            let layer = layer.map(Layer::new);
            let from = from.to_canonical();
            self.links
                .push(Link::new(number, (from, counted), socket, layer));
        }
    }

    pub(super) fn move_data(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.now();
        let mut any = false;
        let mut at = 0;
        while at < self.links.len() {
            let (sent, received) = self.move_link(cx, now, at);
            any |= sent != Moved::Nothing || received != Moved::Nothing;
            let cleanly = match (sent, received) {
                (Moved::Closed(cleanly), _) | (_, Moved::Closed(cleanly)) => cleanly,
                (Moved::FileFailed, _) => {
                    self.server.file_failed(now, self.disk.unread());
                    return true;
                }
                _ => {
                    at += 1;
                    continue;
                }
            };
            let mut link = self.links.remove(at);
            let held = link.take_filled(&self.host.buffers);
            if let Some(transfer) = &mut self.transfer {
                transfer.held.extend(held);
            }
            self.server.data_closed(now, link.number, cleanly);
            drop(link);
        }
        any
    }

    fn move_link(&mut self, cx: &mut Context<'_>, now: Duration, at: usize) -> (Moved, Moved) {
        let link = &mut self.links[at];
        let (mut sent, mut received) = (0, 0);
        let going = link.send(cx, &mut self.server, now, self.disk.reading(), &mut sent);
        let mut coming = Moved::Nothing;
        if !self.settling && going != Moved::FileFailed {
            let (server, buffers) = (&mut self.server, &self.host.buffers);
            coming = link.receive(cx, server, now, self.disk.writing(), buffers, &mut received);
        }
        if going == Moved::Some {
            self.server.data_sent(now, link.take_gone());
        }
        metrics::add(&self.host.metrics.sent_bytes, sent);
        metrics::add(&self.host.metrics.received_bytes, received);
        if let Some(transfer) = &mut self.transfer
            && sent + received > 0
        {
            transfer.moved(&self.host, link, sent + received);
        }
        (going, coming)
    }

    /// What came of a file and is not passed on yet.
    pub(super) fn held(&mut self) -> Vec<Filled> {
        let buffers = &self.host.buffers;
        let links = self.links.iter_mut();
        let mut held: Vec<_> = links.filter_map(|link| link.take_filled(buffers)).collect();
        held.extend(self.transfer.iter_mut().flat_map(|it| it.held.drain(..)));
        held
    }

    /// Whether all that came is written.
    pub(super) fn is_settled(&mut self) -> bool {
        let passed_on = self.links.iter().all(|link| !link.holds_any());
        let written = self
            .disk
            .writing()
            .is_none_or(|writing| writing.is_written());
        written && (passed_on || self.disk.writing().is_none())
    }

    /// Passes on what came. True: there was any.
    pub(super) fn settle(&mut self) -> bool {
        let Some(writing) = self.disk.writing() else {
            return false;
        };
        let held = self
            .links
            .iter_mut()
            .filter_map(|link| link.take_filled(&self.host.buffers));
        held.map(|filled| writing.write(filled)).count() > 0
    }
}
