//! How many sessions there are, in all and of one address, and how many data connections in all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sessions at once where nothing is said.
const SESSIONS: usize = 10_000;
/// Open files that are not of sessions: listeners, logs, what the runtime has.
const RESERVE: u64 = 256;

/// Why a session is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// There are too many.
    Server,
    /// There are too many of this address.
    Address,
}

impl Full {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Server => "too many sessions",
            Self::Address => "too many sessions of your address",
        }
    }
}

/// Counts sessions. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    sessions: usize,
    per_address: usize,
    connections: usize,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    all: usize,
    /// Only of addresses that have any.
    of: HashMap<IpAddr, usize>,
    connections: usize,
}

/// A session that is counted, for as long as this value is there.
#[derive(Debug)]
pub(crate) struct Ticket {
    address: IpAddr,
    counted: Arc<Mutex<Counted>>,
}

/// A data connection that is counted, for as long as this value is there.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Mutex<Counted>>);

impl Limits {
    pub(crate) fn new((sessions, connections): (usize, usize), per_address: usize) -> Self {
        Self {
            sessions,
            per_address,
            connections,
            counted: Arc::default(),
        }
    }

    /// Counts a data connection; none if there are so many that no files would be left to open for sessions.
    pub(crate) fn connect(&self) -> Option<Connected> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.connections >= self.connections {
            return None;
        }
        counted.connections += 1;
        Some(Connected(Arc::clone(&self.counted)))
    }

    /// Counts a session.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Ticket, Full> {
        let address = network(address);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = counted.of.get(&address).copied().unwrap_or(0);
        if counted.all >= self.sessions {
            return Err(Full::Server);
        }
        if of_address >= self.per_address {
            return Err(Full::Address);
        }
        counted.all += 1;
        counted.of.insert(address, of_address + 1);
        Ok(Ticket {
            address,
            counted: Arc::clone(&self.counted),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .all
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.connections -= 1;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.all -= 1;
        if let Some(count) = counted.of.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counted.of.remove(&self.address);
            }
        }
    }
}

/// Who counts as one: a host of IPv6 has all addresses of a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Raises the number of open files to what this process may have, and tells how many sessions fit, of `wanted` or of the usual number, and how many
/// data connections besides.
pub(crate) fn fitting(wanted: Option<usize>) -> (usize, usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
    let files = if raised.is_ok() { maximum } else { current };
    let fit = files.map_or(usize::MAX, |files| {
        usize::try_from(files.saturating_sub(RESERVE).max(1)).unwrap_or(usize::MAX)
    });
    let sessions = wanted.unwrap_or(SESSIONS).min(fit);
    // Each session has itself and a file; where that leaves little, connections have half of all.
    (sessions, fit.saturating_sub(2 * sessions).max(fit / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_counted_in_all_and_for_an_address_and_end_with_their_tickets() {
        let limits = Limits::new((3, 1), 2);
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "::ffff:192.0.2.2"].map(|ip| ip.parse().unwrap());
        let first = limits.admit(a).unwrap();
        let second = limits.admit(a).unwrap();
        assert_eq!(limits.admit(a).err(), Some(Full::Address));
        let third = limits.admit(b).unwrap();
        assert_eq!(limits.admit(b).err(), Some(Full::Server));
        drop((first, third));
        assert_eq!(limits.count(), 1);
        let _ticket = limits.admit("192.0.2.2".parse().unwrap()).unwrap();
        drop(second);
        assert_eq!(limits.counted.lock().unwrap().of.len(), 1);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_as_one() {
        let limits = Limits::new((9, 1), 1);
        let _ticket = limits.admit("2001:db8::1".parse().unwrap()).unwrap();
        let same = limits.admit("2001:db8::ffff".parse().unwrap());
        assert_eq!(same.err(), Some(Full::Address));
        limits.admit("2001:db8:0:1::1".parse().unwrap()).unwrap();
    }
}
