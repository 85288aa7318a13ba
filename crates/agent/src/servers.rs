//! Processes of the plan's servers on this host: processes that listen on the ports of a service,
//! and their descendants. The rule is the same for servers in a lab, servers started by a shell,
//! and existing servers.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use venturi_plan::{Name, Start};

use crate::clock::{NS_PER_S, monotonic_ns};
use crate::processes;
use crate::sockets::listening;

/// Time between two searches for new processes.
const SEARCH_INTERVAL_NS: u64 = NS_PER_S;

/// Servers of this host, shared by the threads that sample counters and sockets.
#[derive(Debug, Clone)]
pub(crate) struct PlanServers {
    ports: Arc<BTreeSet<u16>>,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug)]
struct Found {
    services: Vec<ServerProcesses>,
    /// Time of the next search.
    due_ns: u64,
}

/// Processes of one service.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerProcesses {
    /// Name of the service.
    pub(crate) service: Name,
    ports: Vec<u16>,
    /// Inodes of its listening sockets at the last search for their owners.
    listeners: BTreeSet<u32>,
    /// Processes that have these sockets open.
    owners: BTreeSet<u32>,
    /// Owners and their descendants.
    pub(crate) pids: BTreeSet<u32>,
    /// The reason why the service has no processes.
    pub(crate) missing: Option<String>,
}

impl PlanServers {
    /// Return the servers of the plan on the host of this agent.
    pub(crate) fn new(start: &Start) -> Self {
        let here = start
            .header
            .services
            .iter()
            .filter(|(_, service)| service.host.as_ref() == Some(&start.host));
        let services: Vec<_> = here
            .map(|(name, service)| {
                let started = start.services.get(name);
                ServerProcesses {
                    service: name.clone(),
                    ports: started
                        .map_or(&service.ports, |started| &started.ports)
                        .clone(),
                    ..ServerProcesses::default()
                }
            })
            .filter(|service| !service.ports.is_empty())
            .collect();
        let ports = services.iter().flat_map(|service| service.ports.clone());
        Self {
            ports: Arc::new(ports.collect()),
            found: Arc::new(Mutex::new(Found {
                services,
                due_ns: 0,
            })),
        }
    }

    /// Return whether no server of the plan is on this host.
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Return whether a server of this host listens on a port.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Return the processes of each service, at most [`SEARCH_INTERVAL_NS`] old.
    pub(crate) fn processes(&self) -> Vec<ServerProcesses> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = monotonic_ns();
        if !self.is_empty() && now_ns >= found.due_ns {
            found.due_ns = now_ns + SEARCH_INTERVAL_NS;
            search(&mut found.services, listening());
        }
        found.services.clone()
    }
}

/// Update the processes of services from the listening sockets of this network namespace: port and inode.
fn search(services: &mut [ServerProcesses], listening: io::Result<Vec<(u16, u32)>>) {
    let listening = match listening {
        Ok(listening) => listening,
        Err(error) => {
            for service in services {
                service.missing = Some(format!("cannot list listening sockets: {error}"));
            }
            return;
        }
    };
    let mut moved = false;
    for service in services.iter_mut() {
        let here = listening
            .iter()
            .filter(|(port, _)| service.ports.contains(port));
        let listeners: BTreeSet<u32> = here.map(|(_, inode)| *inode).collect();
        let alive = |pid: &u32| fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false);
        moved |= service.listeners != listeners || !service.owners.iter().all(alive);
        service.listeners = listeners;
    }
    if moved {
        find_owners(services);
    }
    for service in services {
        service.pids = processes::descendants(service.owners.iter().copied()).unwrap_or_default();
        service.pids.extend(&service.owners);
        service.missing = missing(service);
    }
}

/// Search the open files of all processes; this is slow, so it runs only for new sockets.
fn find_owners(services: &mut [ServerProcesses]) {
    for service in services.iter_mut() {
        service.owners.clear();
    }
    let own = std::process::id();
    for pid in processes::all().into_iter().filter(|pid| *pid != own) {
        let sockets = processes::sockets_of(pid);
        for service in services.iter_mut() {
            if sockets
                .iter()
                .any(|inode| service.listeners.contains(inode))
            {
                service.owners.insert(pid);
            }
        }
    }
}

fn missing(service: &ServerProcesses) -> Option<String> {
    if !service.owners.is_empty() {
        return None;
    }
    let ports: Vec<String> = service.ports.iter().map(u16::to_string).collect();
    let ports = ports.join(", ");
    Some(if service.listeners.is_empty() {
        format!("no process listens on port {ports} in the network namespace of the agent")
    } else {
        format!("this user cannot see the process that listens on port {ports}")
    })
}

#[cfg(test)]
mod tests;
