//! How sessions are to be, and what is known when one is ready.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use venturi_gridftp::client::Direction;
use venturi_gridftp::{Dcau, Features, Mode, Protection};

use super::forecast::Expected;
use crate::error::Error;
use crate::net::grid::Grid;
use crate::net::sockets::Tcp;
use crate::net::url::{Scheme, Url};
use crate::order::{DataChannel, Order};
/// How sessions are to be.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) server: Url,
    pub(crate) mode: Mode,
    /// Which way its data connections are opened before anything is to go over them; none: not before.
    pub(crate) direction: Option<Direction>,
    /// Data connections of a session; none: as the path suggests.
    pub(crate) streams: Option<u16>,
    /// Whether all data nodes of a server move each file.
    pub(crate) striped: bool,
    /// Transfers that are asked for ahead; none: as the path suggests.
    pub(crate) pipelining: Option<usize>,
    /// How much is to be moved.
    pub(crate) expected: Expected,
    pub(crate) block_bytes: u64,
    pub(crate) tcp: Tcp,
    /// How data connections are secured, where there are certificates.
    pub(crate) data: Wish,
    /// Whether those of the first session that was ready are: what all others hold to.
    pub(crate) secured: Arc<OnceLock<bool>>,
    /// How long nothing may move.
    pub(crate) patience: Duration,
}

/// What is known of a server when its session is ready.
#[derive(Debug, Clone)]
pub(crate) struct Welcome {
    pub(crate) features: Features,
    pub(crate) mode: Mode,
    /// How data connections are secured; none: they are open.
    pub(crate) data: Option<(Dcau, Protection)>,
    /// What the control connection took to open.
    pub(crate) round_trip: Duration,
    pub(crate) streams: u16,
    pub(crate) pipelining: usize,
    /// The address of its control connection.
    pub(crate) address: IpAddr,
}

impl Welcome {
    /// Whether the server names its data nodes.
    pub(crate) fn is_striped(&self) -> bool {
        let knows = |name| self.features.has(name);
        self.mode == Mode::Extended && knows("SPAS") && knows("SPOR")
    }
}

/// What is wanted of the data connections of a session with certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Authenticated, as GridFTP has it; open where the server, or the user's proxy, is not made for it.
    Usual,
    /// This, or no session.
    Only(DataChannel),
}

impl Wish {
    /// What an order wants, with these servers.
    ///
    /// # Errors
    /// If it asks for what one of them cannot have, or cannot do without.
    pub(crate) fn of(order: &Order, servers: &[&Url]) -> Result<Self, Error> {
        let asked = order.network.data_channel;
        let bare = |server: &&&Url| server.scheme != Scheme::Gsiftp;
        let Some(plain) = servers.iter().find(bare) else {
            return Ok(asked.map_or(Self::Usual, Self::Only));
        };
        let needless = asked == Some(DataChannel::Open) && servers.iter().all(|one| bare(&one));
        if needless || !matches!(asked, None | Some(DataChannel::Open)) {
            return Err(Error::Order {
                option: "--data-channel",
                expected: "gsiftp at every server, since data connections are secured with certificates",
                found: plain.with_path(b"/".to_vec()).to_string(),
            });
        }
        Ok(Self::Only(DataChannel::Open))
    }

    /// What a client asks for with this credential; none: open data connections.
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
