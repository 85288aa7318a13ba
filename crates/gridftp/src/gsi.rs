//! The Grid Security Infrastructure (GSI): TLS with certificates and proxies (RFC 3820).
//!
//! On control connections, TLS is wrapped in tokens of RFC 2228. The commands DCAU and PROT of
//! GFD.20 select it for data connections.
//!
//! Deliberate omissions:
//!
//! - Files. A driver reads the files that [`user_credential_files`] and [`ca_directories`] name.
//! - Clocks. Times are arguments, in seconds since 1970.
//! - Proxies in the formats of Globus Toolkit 3.
//! - Integrity without encryption. Protected bytes are always encrypted.
//!
//! Random numbers come from the operating system, because TLS needs them.
//!
//! Read [`Gsi`] first. A driver then takes these steps:
//!
//! 1. Read the files with [`Credential::from_pem`] and, for the whole directory,
//!    [`TrustStore::from_files`]. Check the mode of the key file with [`check_mode`]. All sessions
//!    share both.
//! 2. A client passes [`Gsi::client`] to [`Client::new`](crate::client::Client::new). In
//!    [`ClientSettings`](crate::client::ClientSettings) it sets `login` to `Mapped` and `data` to
//!    the security of data connections. `None` requests DCAU N; `Dcau::User` needs a [`GsiPeer`]
//!    that delegates. A server passes [`Gsi::server`] to
//!    [`Server::new`](crate::server::Server::new), and handles a login with
//!    [`Server::peer`](crate::server::Server::peer) and a [`GridMap`].
//! 3. When the socket of a data connection is open, get its layer from the session:
//!    [`Client::data_layer`](crate::client::Client::data_layer) or
//!    [`Server::data_layer`](crate::server::Server::data_layer). Then call `data_opened`
//!    immediately, because servers start the handshake with the transfer. With a layer:
//!    - Send [`output`](crate::DataSecurity::output) when the layer is new and after each input.
//!      Pass received bytes to [`handle_input`](crate::DataSecurity::handle_input), and the plain
//!      bytes that it adds to `handle_data`.
//!    - Call `poll_data` only if the layer [`is_ready`](crate::DataSecurity::is_ready), and send
//!      the result through [`protect`](crate::DataSecurity::protect).
//!    - If a ready layer [`is_clear`](crate::DataSecurity::is_clear), drop it. The connection then
//!      works as without a layer, including zero copy.
//!    - Treat an error, or a close before the layer is ready, as a broken connection. Send the rest
//!      of `output`, close the connection, and call `data_closed` with `cleanly` false.
//!
//! Like Globus, neither side sends a TLS close alert. The size shows that a file in MODE S is
//! complete, and the blocks show it in MODE E.
//!
//! The layer of a listener is the TLS server and requests the peer's certificate, so it sends
//! nothing before the peer does. A handshake is bounded in bytes; the driver bounds its duration.

mod certificate;
mod chain;
mod control;
mod credential;
mod credential_files;
mod data;
mod exchange;
mod hello;
mod host;
mod mapfile;
mod name;
mod policy;
mod proxy;
mod tls;
mod trust_store;
mod verifier;

pub use control::{Gsi, GsiPeer};
pub use credential::{Credential, pem_reason};
pub use credential_files::{CredentialFiles, ca_directories, check_mode, user_credential_files};
pub use mapfile::GridMap;
pub use trust_store::TrustStore;
