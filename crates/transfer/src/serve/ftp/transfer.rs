//! Log data of a transfer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use venturi_gridftp::Path;

use super::data_connection::ServerDataConnection;
use super::file_writer::Filled;
use crate::serve::state::ServerState;
use crate::serve::{log, metrics};

/// Running transfer.
#[derive(Debug)]
pub(super) struct RunningTransfer {
    path: Vec<u8>,
    start: SystemTime,
    /// Moved bytes of the file.
    pub(super) bytes: u64,
    /// Data of connections that have closed.
    pub(super) pending: Vec<Filled>,
    /// Numbers of its data connections.
    connections: Vec<u64>,
    peers: Vec<IpAddr>,
    buffer_bytes: usize,
    listing: bool,
    active: Option<ActiveTransferGuard>,
}

/// Counts a running transfer until it is dropped.
#[derive(Debug)]
struct ActiveTransferGuard(Arc<ServerState>);

impl Drop for ActiveTransferGuard {
    fn drop(&mut self) {
        self.0
            .metrics
            .transfers_active
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl RunningTransfer {
    pub(super) fn new(path: &Path, listing: bool) -> Self {
        Self {
            path: path.as_bytes().to_vec(),
            start: SystemTime::now(),
            bytes: 0,
            pending: Vec::new(),
            connections: Vec::new(),
            peers: Vec::new(),
            buffer_bytes: 0,
            listing,
            active: None,
        }
    }

    /// Count bytes that moved over a connection.
    pub(super) fn moved(
        &mut self,
        host: &Arc<ServerState>,
        connection: &ServerDataConnection,
        bytes: u64,
    ) {
        self.bytes += bytes;
        if self.active.is_none() {
            metrics::add(&host.metrics.transfers_active, 1);
            self.active = Some(ActiveTransferGuard(Arc::clone(host)));
        }
        if !self.connections.contains(&connection.number) {
            self.connections.push(connection.number);
            self.buffer_bytes = connection.buffer_bytes();
            if !self.peers.contains(&connection.peer) {
                self.peers.push(connection.peer);
            }
        }
    }

    /// Log the end of the transfer.
    #[expect(clippy::too_many_arguments, reason = "the values of one session")]
    pub(super) fn report(
        &self,
        host: &ServerState,
        session: u64,
        peer: SocketAddr,
        user: &[u8],
        command: &str,
        code: u16,
        block_bytes: u64,
    ) {
        let done = code / 100 == 2;
        if !self.listing {
            let metrics = &host.metrics;
            let counter = if done {
                &metrics.transfers_done
            } else {
                &metrics.transfers_failed
            };
            metrics::add(counter, 1);
        }
        host.log.transfer(&log::LoggedTransfer {
            session,
            peer,
            user,
            command,
            path: &self.path,
            bytes: self.bytes,
            code,
            start: self.start,
            streams: self.connections.len().max(1),
            peers: &self.peers,
            block_bytes,
            buffer_bytes: self.buffer_bytes,
        });
    }
}
