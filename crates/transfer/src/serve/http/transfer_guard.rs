//! Guard that counts a running transfer and logs its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use http::StatusCode;

use super::response::ParsedRequest;
use crate::serve::log::LoggedTransfer;
use crate::serve::metrics;
use crate::serve::state::ServerState;

/// Status for a client that disconnected, as in nginx.
const CLIENT_CLOSED: u16 = 499;

/// Guard of a transfer; its drop ends the transfer.
pub(super) struct TransferGuard {
    pub(super) host: Arc<ServerState>,
    session: u64,
    peer: SocketAddr,
    user: String,
    command: &'static str,
    path: Vec<u8>,
    start: SystemTime,
    bytes: u64,
    code: u16,
}

impl TransferGuard {
    pub(super) fn new(request: &ParsedRequest, command: &'static str) -> Self {
        let host = Arc::clone(&request.connection.host);
        metrics::add(&host.metrics.transfers_active, 1);
        Self {
            host,
            session: request.connection.number,
            peer: request.connection.peer,
            user: request.user.clone(),
            command,
            path: request.path.clone(),
            start: request.start,
            bytes: 0,
            code: CLIENT_CLOSED,
        }
    }

    /// Count moved bytes.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Set the final status. A drop without it means that the client disconnected.
    pub(super) fn ended(&mut self, status: StatusCode) {
        self.code = status.as_u16();
    }
}

impl Drop for TransferGuard {
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
        self.host.log.transfer(&LoggedTransfer {
            session: self.session,
            peer: self.peer,
            user: self.user.as_bytes(),
            command: self.command,
            path: &self.path,
            bytes: self.bytes,
            code: self.code,
            start: self.start,
            streams: 1,
            // In a copy between servers, the client is at neither end.
            peers: match self.command {
                "PULL" | "PUSH" => &[],
                _ => &peers,
            },
            block_bytes: 0,
            buffer_bytes: 0,
        });
    }
}
