//! A transfer that goes on: counted while it does, and in the log when it ends, however it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use http::StatusCode;

use super::answer::Asked;
use crate::serve::host::Host;
use crate::serve::log::Transfer;
use crate::serve::metrics;

/// The client went away, as nginx writes it.
const GONE: u16 = 499;

/// A transfer, for as long as this value is there.
pub(super) struct Going {
    pub(super) host: Arc<Host>,
    session: u64,
    peer: SocketAddr,
    user: String,
    command: &'static str,
    path: Vec<u8>,
    start: SystemTime,
    bytes: u64,
    code: u16,
}

impl Going {
    pub(super) fn new(asked: &Asked, command: &'static str) -> Self {
        let host = Arc::clone(&asked.connection.host);
        metrics::add(&host.metrics.transfers_active, 1);
        Self {
            host,
            session: asked.connection.number,
            peer: asked.connection.peer,
            user: asked.user.clone(),
            command,
            path: asked.path.clone(),
            start: asked.start,
            bytes: 0,
            code: GONE,
        }
    }

    /// So many bytes have gone.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// It has ended; before that, whoever lets it go has seen its client go.
    pub(super) fn ended(&mut self, status: StatusCode) {
        self.code = status.as_u16();
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let metrics = &self.host.metrics;
        metrics.transfers_active.fetch_sub(1, Ordering::Relaxed);
        let (well, peers) = (self.code < 400, [self.peer.ip()]);
        metrics::add(
            if well {
                &metrics.transfers_done
            } else {
                &metrics.transfers_failed
            },
            1,
        );
        self.host.log.transfer(&Transfer {
            session: self.session,
            peer: self.peer,
            user: self.user.as_bytes(),
            command: self.command,
            path: &self.path,
            bytes: self.bytes,
            code: self.code,
            start: self.start,
            streams: 1,
            // Of a copy between servers the client is at neither end.
            peers: match self.command {
                "PULL" | "PUSH" => &[],
                _ => &peers,
            },
            block_bytes: 0,
            buffer_bytes: 0,
        });
    }
}
