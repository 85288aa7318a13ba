//! Server state that all sessions share.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::address_range::AdmittedAddresses;
use super::arguments::{ServeArgs, seconds};
use super::buffers::BufferPool;
use super::confined_root::ConfinedRoot;
use super::ftp::ports::Ports;
use super::gsi::GsiServer;
use super::http::Web;
use super::limits::{self, SessionLimits};
use super::listen::DISK_THREADS;
use super::log::Log;
use super::metrics::Metrics;
use super::users::Users;
use crate::error::CopyError;
use crate::net::disk_speed::DiskSpeed;

/// State of a server, shared by its sessions.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) name: String,
    pub(crate) root: ConfinedRoot,
    pub(crate) buffers: BufferPool,
    /// Addresses of permitted clients.
    pub(crate) admitted: AdmittedAddresses,
    pub(crate) limits: SessionLimits,
    pub(crate) metrics: Metrics,
    pub(crate) pace: DiskSpeed,
    /// Slots for operations whose time depends on the file size: checksums and copies.
    pub(crate) slow: Semaphore,
    pub(crate) log: Log,
    pub(crate) ports: Ports,
    pub(crate) settings: ServeSettings,
    /// State of HTTP only.
    pub(crate) web: Web,
    /// Certificates, if gsiftp is served.
    pub(crate) grid: Option<Arc<GsiServer>>,
    users: Option<Users>,
    /// True if no users or tokens exist, so all clients have the same permissions.
    open: bool,
    anonymous: bool,
}

/// Settings of the command line.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    pub(crate) write: bool,
    pub(crate) third_party: bool,
    pub(crate) public_address: Option<IpAddr>,
    pub(crate) streams: u16,
    pub(crate) block_bytes: u64,
    pub(crate) pacing_bytes_per_s: Option<u64>,
    pub(crate) login_time: Duration,
    pub(crate) idle_time: Duration,
    pub(crate) stall_time: Duration,
    pub(crate) sync: bool,
}

/// Permissions of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permissions {
    pub(crate) write: bool,
    pub(crate) third_party: bool,
}

impl ServerState {
    /// Open all files of the command line. The returned thread writes the logs and ends after the state is dropped.
    ///
    /// # Errors
    /// An unreadable or unusable file.
    pub(crate) fn new(arguments: &ServeArgs) -> Result<(Self, JoinHandle<()>), CopyError> {
        let name = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
            .unwrap_or_else(|| "localhost".into());
        let users = arguments.users.as_deref().map(Users::read).transpose()?;
        let grid = GsiServer::new(&arguments.gsi)?;
        let open = users.is_none()
            && grid.is_none()
            && arguments.web.tokens.is_none()
            && arguments.web.issuers.is_none();
        let (log, thread) = Log::open(arguments, &name)?;
        let host = Self {
            web: Web::new(&arguments.web, arguments.anonymous, arguments.third_party)?,
            root: ConfinedRoot::open_only(&arguments.directory, &arguments.only, arguments.write)?,
            admitted: AdmittedAddresses::new(&arguments.allow),
            buffers: BufferPool::new(arguments.memory),
            limits: SessionLimits::new(
                limits::fitting(arguments.sessions),
                arguments.sessions_per_address,
            ),
            metrics: Metrics::default(),
            pace: DiskSpeed::new(),
            slow: Semaphore::new(DISK_THREADS / 2),
            ports: Ports::new(arguments.data_ports),
            open,
            anonymous: open || arguments.anonymous,
            settings: ServeSettings {
                write: arguments.write,
                third_party: arguments.third_party,
                public_address: arguments.public_address,
                streams: arguments.streams,
                block_bytes: arguments.block,
                pacing_bytes_per_s: arguments.pacing,
                login_time: seconds(arguments.login_time),
                idle_time: seconds(arguments.idle_time),
                stall_time: seconds(arguments.stall_time),
                sync: arguments.sync,
            },
            name,
            grid,
            users,
            log,
        };
        Ok((host, thread))
    }

    /// Return the permissions of a user without password; none if not anonymous.
    pub(crate) fn anonymous(&self, user: &[u8]) -> Option<Permissions> {
        let named = user.eq_ignore_ascii_case(b"anonymous") || user.eq_ignore_ascii_case(b"ftp");
        (named && self.anonymous).then_some(Permissions {
            // With users or tokens, only these may write.
            write: self.settings.write && self.open,
            third_party: false,
        })
    }

    /// Return the permissions of authenticated users.
    pub(crate) fn known(&self) -> Permissions {
        Permissions {
            write: self.settings.write,
            third_party: self.settings.third_party,
        }
    }

    /// Return the permissions of a user with this password. Takes milliseconds of CPU time.
    pub(crate) fn user(&self, user: &[u8], password: &[u8]) -> Option<Permissions> {
        let users = self.users.as_ref()?;
        users.admits(user, password).then(|| self.known())
    }
}
