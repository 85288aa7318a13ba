//! Limits of sessions, in total and per address, and of data connections in total.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Default maximum of sessions.
const SESSIONS: usize = 10_000;
/// Open files in addition to sessions: listeners, logs, runtime.
const RESERVE: u64 = 256;

/// Reason to reject a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The server has too many sessions.
    Server,
    /// The address has too many sessions.
    Address,
}

impl Full {
    /// Return the reason as text.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Server => "too many sessions",
            Self::Address => "too many sessions from your address",
        }
    }
}

/// Counts sessions; clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct SessionLimits {
    sessions: usize,
    per_address: usize,
    connections: usize,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    all: usize,
    /// Sessions of each address with at least one.
    of: HashMap<IpAddr, usize>,
    connections: usize,
}

/// Permit of a session.
#[derive(Debug)]
pub(crate) struct SessionPermit {
    address: IpAddr,
    counted: Arc<Mutex<Counted>>,
}

/// Permit of a data connection.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Mutex<Counted>>);

impl SessionLimits {
    pub(crate) fn new((sessions, connections): (usize, usize), per_address: usize) -> Self {
        Self {
            sessions,
            per_address,
            connections,
            counted: Arc::default(),
        }
    }

    /// Count a data connection; none if too few open files would remain for sessions.
    pub(crate) fn connect(&self) -> Option<Connected> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.connections >= self.connections {
            return None;
        }
        counted.connections += 1;
        Some(Connected(Arc::clone(&self.counted)))
    }

    /// Count a session.
    ///
    /// # Errors
    /// Too many sessions.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<SessionPermit, Full> {
        let address = network(address);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let per_address = counted.of.get(&address).copied().unwrap_or(0);
        if counted.all >= self.sessions {
            return Err(Full::Server);
        }
        if per_address >= self.per_address {
            return Err(Full::Address);
        }
        counted.all += 1;
        counted.of.insert(address, per_address + 1);
        Ok(SessionPermit {
            address,
            counted: Arc::clone(&self.counted),
        })
    }

    /// Return the number of sessions.
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

impl Drop for SessionPermit {
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

/// Return the address for limits; an IPv6 host has all addresses of a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Raise the limit of open files to the hard limit. Return how many of the `requested` or default sessions fit, and
/// how many data connections.
pub(crate) fn fitting(requested: Option<usize>) -> (usize, usize) {
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
    let sessions = requested.unwrap_or(SESSIONS).min(fit);
    // Each session needs its socket and a file. If few descriptors remain, data connections get
    // half of all.
    (sessions, fit.saturating_sub(2 * sessions).max(fit / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_limited_in_total_and_by_address_and_end_with_their_permits() {
        let limits = SessionLimits::new((3, 1), 2);
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "::ffff:192.0.2.2"].map(|ip| ip.parse().unwrap());
        let first = limits.admit(a).unwrap();
        let second = limits.admit(a).unwrap();
        assert_eq!(limits.admit(a).err(), Some(Full::Address));
        let third = limits.admit(b).unwrap();
        assert_eq!(limits.admit(b).err(), Some(Full::Server));
        drop((first, third));
        assert_eq!(limits.count(), 1);
        let _permit = limits.admit("192.0.2.2".parse().unwrap()).unwrap();
        drop(second);
        assert_eq!(limits.counted.lock().unwrap().of.len(), 1);
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let limits = SessionLimits::new((9, 1), 1);
        let _permit = limits.admit("2001:db8::1".parse().unwrap()).unwrap();
        let same = limits.admit("2001:db8::ffff".parse().unwrap());
        assert_eq!(same.err(), Some(Full::Address));
        limits.admit("2001:db8:0:1::1".parse().unwrap()).unwrap();
    }
}
