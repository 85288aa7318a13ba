//! What all sessions share.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::arguments::{Arguments, seconds};
use super::buffers::Buffers;
use super::ftp::ports::Ports;
use super::gsi::Grid;
use super::http::Web;
use super::limits::{self, Limits};
use super::listen::DISK_THREADS;
use super::log::Log;
use super::metrics::Metrics;
use super::root::Root;
use super::users::Users;
use crate::error::Error;
use crate::net::pace::Pace;

/// A server, as its sessions see it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) root: Root,
    pub(crate) buffers: Buffers,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) pace: Pace,
    /// Room for what keeps a thread that waits for disks as long as a file is: checksums and copies.
    pub(crate) slow: Semaphore,
    pub(crate) log: Log,
    pub(crate) ports: Ports,
    pub(crate) settings: Settings,
    /// What only HTTP needs.
    pub(crate) web: Web,
    /// Certificates, where gsiftp is served.
    pub(crate) grid: Option<Arc<Grid>>,
    users: Option<Users>,
    /// Whether nobody is known by name or token, and everybody is the same.
    open: bool,
    anonymous: bool,
}

/// What was said on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
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

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) write: bool,
    pub(crate) third_party: bool,
}

impl Host {
    /// Opens all that the command line names. The thread writes the logs, and ends after the host is dropped.
    ///
    /// # Errors
    /// What cannot be opened or read.
    pub(crate) fn new(arguments: &Arguments) -> Result<(Self, JoinHandle<()>), Error> {
        let name = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
            .unwrap_or_else(|| "localhost".into());
        let users = arguments.users.as_deref().map(Users::read).transpose()?;
        let grid = Grid::new(&arguments.gsi)?;
        let open = users.is_none()
            && grid.is_none()
            && arguments.web.tokens.is_none()
            && arguments.web.issuers.is_none();
        let (log, thread) = Log::open(arguments, &name)?;
        let host = Self {
            web: Web::new(&arguments.web, arguments.anonymous, arguments.third_party)?,
            root: Root::open(&arguments.directory, arguments.write)?,
            buffers: Buffers::new(arguments.memory),
            limits: Limits::new(
                limits::fitting(arguments.sessions),
                arguments.sessions_per_address,
            ),
            metrics: Metrics::default(),
            pace: Pace::new(),
            slow: Semaphore::new(DISK_THREADS / 2),
            ports: Ports::new(arguments.data_ports),
            open,
            anonymous: open || arguments.anonymous,
            settings: Settings {
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

    /// What a user of this name may do without a password; nothing if there is no such.
    pub(crate) fn anonymous(&self, user: &[u8]) -> Option<Rights> {
        let named = user.eq_ignore_ascii_case(b"anonymous") || user.eq_ignore_ascii_case(b"ftp");
        (named && self.anonymous).then_some(Rights {
            // Where there are users or tokens, it is they who may.
            write: self.settings.write && self.open,
            third_party: false,
        })
    }

    /// What all users may do who are known.
    pub(crate) fn known(&self) -> Rights {
        Rights {
            write: self.settings.write,
            third_party: self.settings.third_party,
        }
    }

    /// What a user may do with a password. Takes milliseconds of a processor.
    pub(crate) fn user(&self, user: &[u8], password: &[u8]) -> Option<Rights> {
        let users = self.users.as_ref()?;
        users.admits(user, password).then(|| self.known())
    }
}
