//! Connections that can reach another transfer than intended, in MODE S.
//!
//! A server that works ahead of its replies can reject a transfer, close its port, and open the
//! same port for a later transfer, especially with few ports. The client connects after the first
//! reply and reaches the second transfer. The server then stores bytes of the rejected file, or
//! none, and reports success. Therefore the result of a transfer with the address of a rejected one
//! does not count; it is repeated when no transfer is running. The first transfer after that has
//! its own connection, so every round completes at least one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::active::{AttemptState, TransferAttempt};
use super::transfers::{ConnectionOwner, QueuedTransfer, Transfers};

/// Addresses where unmatched connections can arrive.
#[derive(Debug, Default)]
pub(super) struct UnmatchedConnections {
    /// Address → key of the first transfer whose port opens too late for these connections;
    /// `u64::MAX` while it is unknown if they are open.
    addresses: BTreeMap<SocketAddr, u64>,
    /// `true` if a transfer got one of these addresses.
    met: bool,
}

impl UnmatchedConnections {
    fn expect(&mut self, address: SocketAddr, before: u64, oldest: u64) {
        self.addresses.retain(|_, before| *before > oldest);
        self.addresses.insert(address, before);
    }

    fn meet(&mut self, address: SocketAddr, key: u64) -> bool {
        let meets = self
            .addresses
            .get(&address)
            .is_some_and(|&before| key < before);
        self.met |= meets;
        meets
    }
}

impl TransferAttempt {
    fn is_rejected(&self) -> bool {
        self.final_reply
            .as_ref()
            .is_some_and(|reply| !reply.is_success())
    }

    /// Returns `true` if it was rejected because of its file, not its connection (RFC 959, 4.2.2).
    fn is_rejected_for_file(&self) -> bool {
        let code = self.final_reply.as_ref().map_or(0, |reply| reply.code);
        !self.started && (550..=553).contains(&code)
    }
}

impl Transfers {
    /// Records the address of a transfer's connection.
    pub(super) fn addressed(&mut self, key: u64, address: SocketAddr) {
        let mismatched = self.unmatched.meet(address, key);
        if let Some(active) = self.active.get_mut(&key) {
            active.address = Some(address);
            active.connecting = true;
            active.mismatched = mismatched;
        }
    }

    /// Records the result of opening a transfer's connection.
    pub(super) fn connected(&mut self, transfer: u64, connection: Result<u64, &str>) {
        let key = self.find_key(transfer);
        let Some((key, active)) = key.and_then(|key| Some((key, self.active.get_mut(&key)?)))
        else {
            return;
        };
        if !std::mem::take(&mut active.connecting) {
            return;
        }
        match connection {
            _ if active.mismatched || active.is_rejected() || active.final_failure.is_some() => {}
            Ok(connection) => drop(self.owners.insert(connection, ConnectionOwner::Of(key))),
            Err(reason) => active.fault = Some(reason.to_owned()),
        }
        self.finalize(key);
    }

    /// Returns `true` if the reply to a transfer of MODE S does not end it, because its connection
    /// is still pending or can belong to another transfer. Such an attempt does not count and is
    /// repeated.
    pub(super) fn is_mismatched(&mut self, key: u64) -> bool {
        let oldest = self.active.keys().next().copied().unwrap_or(key);
        let replied = |active: &&TransferAttempt| {
            active.state == AttemptState::Running && active.final_reply.is_some()
        };
        let Some(active) = self.active.get(&key).filter(replied) else {
            return false;
        };
        let connecting = active.connecting;
        let counts =
            !active.mismatched || active.is_rejected_for_file() || active.final_failure.is_some();
        if let Some(address) = active.address
            && (!active.started || active.mismatched)
        {
            let before = if connecting { u64::MAX } else { self.next_key };
            self.unmatched.expect(address, before, oldest);
        }
        if connecting || counts {
            return connecting;
        }
        if let Some(active) = self.active.remove(&key) {
            self.queue.push_front(QueuedTransfer {
                attempt: active.attempt - 1,
                job: active.job,
            });
        }
        true
    }

    /// Returns `true` if running transfers must end first.
    pub(super) fn waits_for_unmatched(&mut self) -> bool {
        if self.unmatched.met && self.running().next().is_none() {
            self.unmatched = UnmatchedConnections::default();
        }
        self.unmatched.met
    }
}
