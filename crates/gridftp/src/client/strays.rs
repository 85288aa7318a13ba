//! Connections that may reach another transfer than the one that they were opened for, in MODE S.
//!
//! A server that works ahead of its replies refuses a transfer, closes its port, and may open the same port for one
//! behind it: soon, if an administrator gave it few ports. The client connects when it reads of the first, and is
//! taken for the second. What the server then stores are bytes of the refused file, or none, and it says that all is
//! well. So what becomes of a transfer that is given the address of a refused one does not count; it is done again when
//! nothing is under way any more. The first transfer after that has its own connection: every turn settles one at least.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::active::{Active, State};
use super::transfers::{Link, Transfers, Waiting};

/// Where stray connections may arrive.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// Address → key of the first transfer whose port is opened too late for them; `u64::MAX` while it is not known
    /// whether they are open.
    addresses: BTreeMap<SocketAddr, u64>,
    /// Whether a transfer was given one of these addresses.
    met: bool,
}

impl Strays {
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

impl Active {
    fn is_refused(&self) -> bool {
        self.answer
            .as_ref()
            .is_some_and(|reply| !reply.is_success())
    }

    /// Whether it was refused for the sake of its file, not of its connection (RFC 959, 4.2.2).
    fn is_refused_for_its_file(&self) -> bool {
        let code = self.answer.as_ref().map_or(0, |reply| reply.code);
        !self.begun && (550..=553).contains(&code)
    }
}

impl Transfers {
    /// The server says where a transfer's connection goes.
    pub(super) fn addressed(&mut self, key: u64, address: SocketAddr) {
        let strayed = self.strays.meet(address, key);
        if let Some(active) = self.active.get_mut(&key) {
            active.address = Some(address);
            active.connecting = true;
            active.strayed = strayed;
        }
    }

    /// The driver has opened the connection of a transfer, or has not.
    pub(super) fn connected(&mut self, transfer: u64, connection: Result<u64, &str>) {
        let key = self.key_of(transfer);
        let Some((key, active)) = key.and_then(|key| Some((key, self.active.get_mut(&key)?)))
        else {
            return;
        };
        if !std::mem::take(&mut active.connecting) {
            return;
        }
        match connection {
            _ if active.strayed || active.is_refused() || active.over.is_some() => {}
            Ok(connection) => drop(self.links.insert(connection, Link::Of(key))),
            Err(reason) => active.spoiled = Some(reason.to_owned()),
        }
        self.settle(key);
    }

    /// Whether an answered transfer of MODE S does not end by its answer: its connection is not known yet, and would be
    /// given to its next try; or it may have had another's. That was no try, and is made again.
    pub(super) fn is_astray(&mut self, key: u64) -> bool {
        let oldest = self.active.keys().next().copied().unwrap_or(key);
        let answered = |active: &&Active| active.state == State::Running && active.answer.is_some();
        let Some(active) = self.active.get(&key).filter(answered) else {
            return false;
        };
        let connecting = active.connecting;
        let counts = !active.strayed || active.is_refused_for_its_file() || active.over.is_some();
        if let Some(address) = active.address
            && (!active.begun || active.strayed)
        {
            let before = if connecting { u64::MAX } else { self.next_key };
            self.strays.expect(address, before, oldest);
        }
        if connecting || counts {
            return connecting;
        }
        if let Some(active) = self.active.remove(&key) {
            self.queue.push_front(Waiting {
                tries: active.tries - 1,
                job: active.job,
            });
        }
        true
    }

    /// Whether what is under way has to end first.
    pub(super) fn waits_for_strays(&mut self) -> bool {
        if self.strays.met && self.running().next().is_none() {
            self.strays = Strays::default();
        }
        self.strays.met
    }
}
