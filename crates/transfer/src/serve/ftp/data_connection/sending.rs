//! Send side of a data connection: bytes of the session and of files.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::SendFlags;
use tokio::io::Interest;
use venturi_gridftp::DataOut;
use venturi_gridftp::server::Server;

use super::{IoProgress, ServerDataConnection, TURN_BYTES};
use crate::serve::ftp::file_reader::FileReader;
use crate::serve::ftp::security_layer::SecurityLayer;

/// Maximum bytes that are copied behind their header to save a call; larger parts use `sendfile`.
const SMALL_BYTES: u64 = 32 * 1024;
/// Bytes of a file that are encrypted at a time.
const PROTECTED_BYTES: u64 = 64 * 1024;
/// Bytes that are gathered before they are sent.
const GATHER_BYTES: usize = 64 * 1024;

impl ServerDataConnection {
    /// Send data of the session. `sent` counts bytes of the file.
    pub(in crate::serve::ftp) fn send(
        &mut self,
        cx: &mut Context<'_>,
        server: &mut Server,
        now: Duration,
        mut file: Option<&mut FileReader>,
        sent: &mut u64,
    ) -> IoProgress {
        let mut moved = IoProgress::Nothing;
        let turn = *sent + TURN_BYTES;
        while *sent < turn {
            if self.sent < self.unsent.len() {
                match self.send_unsent(cx) {
                    Poll::Pending => return moved,
                    Poll::Ready(Err(_)) => return IoProgress::Closed(false),
                    Poll::Ready(Ok(())) => {}
                }
            } else if let Some((offset, remaining)) = self.chunk {
                let Some(file) = file.as_deref_mut() else {
                    return IoProgress::Closed(false);
                };
                let sent_bytes = match &mut self.layer {
                    None => {
                        let sent_bytes = file.send(cx, &self.socket, offset, remaining);
                        if let Poll::Ready(Ok(count)) = sent_bytes {
                            self.sent_bytes += count;
                        }
                        sent_bytes
                    }
                    Some(layer) => protect(cx, layer, file, &mut self.unsent, offset, remaining),
                };
                match sent_bytes {
                    Poll::Pending => return moved,
                    Poll::Ready(Ok(count)) => {
                        *sent += count;
                        self.chunk =
                            (remaining > count).then(|| (offset + count, remaining - count));
                    }
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::Other => {
                        return IoProgress::FileFailed;
                    }
                    Poll::Ready(Err(_)) => return IoProgress::Closed(false),
                }
            } else if self.closing {
                return IoProgress::Closed(true);
            } else if !self.gather(server, now, file.as_deref_mut(), sent) {
                return moved;
            }
            moved = IoProgress::Some;
        }
        moved
    }

    fn send_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The file's bytes follow in the same packet.
        let more = if self.chunk.is_some() {
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
                    self.sent_bytes += count as u64;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    /// Get the next data of the session. False if it has none.
    fn gather(
        &mut self,
        server: &mut Server,
        now: Duration,
        mut file: Option<&mut FileReader>,
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
        while self.unsent.len() < GATHER_BYTES && self.chunk.is_none() && !self.closing {
            match server.poll_data(now, self.number) {
                None => break,
                Some(DataOut::Close) => self.closing = true,
                Some(DataOut::Bytes(bytes)) => {
                    self.unsent.extend(bytes);
                    // The session may take the next call as confirmation that these bytes were sent.
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
                        self.chunk = Some((offset, bytes)).filter(|_| bytes > 0);
                    }
                }
            }
            any = true;
        }
        any
    }

    /// Get the next data of the session and encrypt it.
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
                self.chunk = Some((offset, bytes)).filter(|_| bytes > 0);
                header.map_or(Ok(()), |header| layer.protect(&header, &mut self.unsent))
            }
        };
        if protected.is_err() {
            self.ended = Some(false);
        }
        true
    }
}

/// Append encrypted bytes of the file and return their unencrypted number.
fn protect(
    cx: &mut Context<'_>,
    layer: &mut SecurityLayer,
    file: &mut FileReader,
    unsent: &mut Vec<u8>,
    offset: u64,
    remaining: u64,
) -> Poll<io::Result<u64>> {
    let bytes = remaining.min(PROTECTED_BYTES);
    let Poll::Ready(found) = file.read(cx, offset, bytes as usize) else {
        return Poll::Pending;
    };
    let rejected = |_| io::Error::from(ErrorKind::ConnectionAborted);
    Poll::Ready(found.and_then(|found| {
        layer.protect(&found, unsent).map_err(rejected)?;
        Ok(bytes)
    }))
}
