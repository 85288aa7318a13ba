//! What is known of a transfer, for the logs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use venturi_gridftp::Path;

use super::link::Link;
use super::writing::Filled;
use crate::serve::host::Host;
use crate::serve::{log, metrics};

/// A transfer that goes on.
#[derive(Debug)]
pub(super) struct Transfer {
    path: Vec<u8>,
    start: SystemTime,
    /// Of the file, that moved.
    pub(super) bytes: u64,
    /// What came over connections that have ended since.
    pub(super) held: Vec<Filled>,
    /// Numbers of the connections that it moved over.
    links: Vec<u64>,
    peers: Vec<IpAddr>,
    buffer_bytes: usize,
    listing: bool,
    active: Option<Active>,
}

/// Counts a transfer as going on for as long as it is there.
#[derive(Debug)]
struct Active(Arc<Host>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0
            .metrics
            .transfers_active
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl Transfer {
    pub(super) fn new(path: &Path, listing: bool) -> Self {
        Self {
            path: path.as_bytes().to_vec(),
            start: SystemTime::now(),
            bytes: 0,
            held: Vec::new(),
            links: Vec::new(),
            peers: Vec::new(),
            buffer_bytes: 0,
            listing,
            active: None,
        }
    }

    /// Bytes moved over a connection.
    pub(super) fn moved(&mut self, host: &Arc<Host>, link: &Link, bytes: u64) {
        self.bytes += bytes;
        if self.active.is_none() {
            metrics::add(&host.metrics.transfers_active, 1);
            self.active = Some(Active(Arc::clone(host)));
        }
        if !self.links.contains(&link.number) {
            self.links.push(link.number);
            self.buffer_bytes = link.buffer_bytes();
            if !self.peers.contains(&link.peer) {
                self.peers.push(link.peer);
            }
        }
    }

    /// Tells that it is over.
    #[expect(clippy::too_many_arguments, reason = "what the session knows, once")]
    pub(super) fn tell(
        &self,
        host: &Host,
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
        host.log.transfer(&log::Transfer {
            session,
            peer,
            user,
            command,
            path: &self.path,
            bytes: self.bytes,
            code,
            start: self.start,
            streams: self.links.len().max(1),
            peers: &self.peers,
            block_bytes,
            buffer_bytes: self.buffer_bytes,
        });
    }
}
