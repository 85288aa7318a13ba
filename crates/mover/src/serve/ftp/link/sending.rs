//! What a data connection sends: what the session has for it, and bytes of a file.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::SendFlags;
use tokio::io::Interest;
use venturi_gridftp::DataOut;
use venturi_gridftp::server::Server;

use super::{Link, Moved, TURN_BYTES};
use crate::serve::ftp::layer::Layer;
use crate::serve::ftp::reading::Reading;

/// Largest part of a file that is copied behind its header, so that both go by one call; larger ones go by `sendfile`.
const SMALL_BYTES: u64 = 32 * 1024;
/// Bytes of a file that are protected at a time.
const PROTECTED_BYTES: u64 = 64 * 1024;
/// Bytes that are gathered before they are sent.
const GATHER_BYTES: usize = 64 * 1024;

impl Link {
    /// Sends what the session has for it. `sent` counts bytes of the file.
    pub(in crate::serve::ftp) fn send(
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
                    None => {
                        let gone = file.send(cx, &self.socket, offset, left);
                        if let Poll::Ready(Ok(count)) = gone {
                            self.gone += count;
                        }
                        gone
                    }
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
                    self.gone += count as u64;
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
