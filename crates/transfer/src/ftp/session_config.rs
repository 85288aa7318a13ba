//! Settings of sessions, and properties of a server.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use venturi_gridftp::client::TransferDirection;
use venturi_gridftp::{Dcau, Features, Mode, Protection};

use super::size_estimate::Expected;
use crate::error::CopyError;
use crate::net::grid::Grid;
use crate::net::sockets::Tcp;
use crate::net::url::{Scheme, Url};
use crate::options::{CopyOptions, DataChannel};
/// Settings of sessions.
#[derive(Debug, Clone)]
pub(crate) struct SessionConfig {
    pub(crate) server: Url,
    pub(crate) mode: Mode,
    /// Direction of data connections that are opened in advance; none: on demand.
    pub(crate) direction: Option<TransferDirection>,
    /// Data connections per session; none: chosen for the path.
    pub(crate) streams: Option<u16>,
    /// Transfer each file through all data nodes.
    pub(crate) striped: bool,
    /// Pipeline depth; none: chosen for the path.
    pub(crate) pipelining: Option<usize>,
    /// Estimated work.
    pub(crate) expected: Expected,
    pub(crate) block_bytes: u64,
    pub(crate) tcp: Tcp,
    /// Requested security of data connections with certificates.
    pub(crate) data: DataProtectionRequest,
    /// Security of the first ready session, which all others must have.
    pub(crate) secured: Arc<OnceLock<bool>>,
    /// Timeout without progress.
    pub(crate) timeout: Duration,
}

/// Properties of a server, known when its session is ready.
#[derive(Debug, Clone)]
pub(crate) struct ServerCapabilities {
    pub(crate) features: Features,
    pub(crate) mode: Mode,
    /// Security of data connections; none: unauthenticated.
    pub(crate) data: Option<(Dcau, Protection)>,
    /// Connection time of the control connection.
    pub(crate) round_trip: Duration,
    pub(crate) streams: u16,
    pub(crate) pipelining: usize,
    /// Address of the control connection.
    pub(crate) address: IpAddr,
}

impl ServerCapabilities {
    /// True if the server reports its data nodes.
    pub(crate) fn is_striped(&self) -> bool {
        let knows = |name| self.features.has(name);
        self.mode == Mode::Extended && knows("SPAS") && knows("SPOR")
    }
}

/// Requested security of data connections with certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataProtectionRequest {
    /// Authenticated (default of GridFTP); unauthenticated if the server or the proxy of the user does not support it.
    Usual,
    /// Required level; otherwise the session fails.
    Only(DataChannel),
}

impl DataProtectionRequest {
    /// Returns the request for these servers.
    ///
    /// # Errors
    /// A level that one of the servers does not support.
    pub(crate) fn of(options: &CopyOptions, servers: &[&Url]) -> Result<Self, CopyError> {
        let requested = options.network.data_channel;
        let bare = |server: &&&Url| server.scheme != Scheme::Gsiftp;
        let Some(plain) = servers.iter().find(bare) else {
            return Ok(requested.map_or(Self::Usual, Self::Only));
        };
        let needless = requested == Some(DataChannel::Open) && servers.iter().all(|one| bare(&one));
        if needless || !matches!(requested, None | Some(DataChannel::Open)) {
            return Err(CopyError::InvalidOption {
                option: "--data-channel",
                expected: "gsiftp for every server, because certificates secure the data connections",
                found: plain.with_path(b"/".to_vec()).to_string(),
            });
        }
        Ok(Self::Only(DataChannel::Open))
    }

    /// Returns the level for this credential; none: unauthenticated.
    pub(crate) fn data(self, grid: &Grid) -> Option<(Dcau, Protection)> {
        let protection = match self {
            Self::Only(DataChannel::Open) => return None,
            Self::Usual if !grid.delegates() => return None,
            Self::Usual | Self::Only(DataChannel::Authenticated) => Protection::Clear,
            Self::Only(DataChannel::Safe) => Protection::Safe,
            Self::Only(DataChannel::Private) => Protection::Private,
        };
        Some((Dcau::User, protection))
    }
}
