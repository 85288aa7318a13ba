//! The Grid Security Infrastructure (GSI): TLS with certificates and proxies (RFC 3820) on control connections, wrapped in
//! tokens of RFC 2228, and on data connections (commands DCAU and PROT of GFD.20).
//!
//! Left out on purpose: files (a driver reads those that [`user_places`] and [`authority_places`] name), clocks (times come in as
//! seconds since 1970), proxies in the forms of Globus Toolkit 3, and integrity without encryption: what is protected is
//! encrypted. Random numbers are those of the system: the one thing that TLS has to have from outside.
//!
//! Read [`Gsi`] first. Then, for a driver:
//!
//! 1. Read the files: [`Credential::from_pem`] (check the mode of the file with the key: [`check_mode`]),
//!    [`Authorities::from_files`] of the whole directory. Both are shared by all sessions.
//! 2. A client gives [`Gsi::client`] to [`Client::new`](crate::client::Client::new), and sets
//!    [`Settings::login`](crate::client::Settings) to `Mapped` and its `data` to what data connections shall be: `None`
//!    asks for DCAU N; with `Dcau::User` the [`Target`] has to delegate. A server gives [`Gsi::server`] to
//!    [`Server::new`](crate::server::Server::new), and answers a login by
//!    [`Server::peer`](crate::server::Server::peer) and a [`GridMap`].
//! 3. When the socket of a data connection is open, ask the session for its layer:
//!    [`Client::data_layer`](crate::client::Client::data_layer) or
//!    [`Server::data_layer`](crate::server::Server::data_layer); then say `data_opened` at once, since servers begin the
//!    handshake with the transfer. Without a layer, go on as ever. With one:
//!    - pass [`output`](crate::DataSecurity::output) to the socket, when it is new and after each input, and what is read to
//!      [`handle_input`](crate::DataSecurity::handle_input); the plain bytes that it adds are for `handle_data`;
//!    - ask `poll_data` only when it [`is_ready`](crate::DataSecurity::is_ready), and send what comes through
//!      [`protect`](crate::DataSecurity::protect);
//!    - if it [`is_clear`](crate::DataSecurity::is_clear) then, drop it: the rest goes as without one, zero copy included;
//!    - an error, or an end before it is ready, is a broken connection: send what `output` has, close it, and say
//!      `data_closed`, not cleanly.
//!
//! Nobody says goodbye in TLS here, as Globus does not: that a connection in MODE S ended where the file does is told by its
//! size, in MODE E by its blocks.
//!
//! The layer of a listener asks for the peer's certificate, so it says nothing before the peer does. A handshake is bounded in
//! bytes; how long it may take is the driver's.

mod authorities;
mod certificate;
mod chain;
mod control;
mod credential;
mod data;
mod exchange;
mod hello;
mod host;
mod mapfile;
mod name;
mod place;
mod policy;
mod proxy;
mod tls;
mod verifier;

pub use authorities::Authorities;
pub use control::{Gsi, Target};
pub use credential::{Credential, pem_reason};
pub use mapfile::GridMap;
pub use place::{Place, authority_places, check_mode, user_places};
