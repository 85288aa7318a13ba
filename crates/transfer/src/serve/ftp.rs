//! FTP and GridFTP: sockets and files around the protocol logic of
//! `venturi_gridftp::server::Server`.
//!
//! A session is one task of its thread. It makes all progress that is possible without waiting,
//! then sleeps until a socket is ready, a disk operation is complete, or a timer expires. See
//! [`session::FtpServerSession::poll`].

mod control;
mod data_connection;
mod disk;
mod entry;
pub(in crate::serve) mod file_reader;
mod file_writer;
pub(crate) mod ports;
mod security_layer;
mod session;
mod transfer;

use std::future::poll_fn;
use std::sync::Arc;

use tokio::sync::watch;

use super::listen::{AcceptedClient, ServerPhase};
use super::state::ServerState;

/// Serve one client until it disconnects, or the server shuts down.
pub(super) async fn session(
    host: Arc<ServerState>,
    arrival: AcceptedClient,
    mut phase: watch::Receiver<ServerPhase>,
) {
    // Counted until the session ends.
    let _permit = arrival.permit;
    let opened =
        session::FtpServerSession::open(host, arrival.socket, arrival.peer, arrival.session);
    // The client has disconnected already.
    let Ok(mut session) = opened else { return };
    loop {
        let now = *phase.borrow_and_update();
        match now {
            ServerPhase::Serving => {}
            ServerPhase::Leaving => session.drain(),
            ServerPhase::Cut => return session.cut(),
        }
        tokio::select! {
            biased;
            () = poll_fn(|cx| session.poll(cx)) => return,
            changed = phase.changed() => if changed.is_err() { return },
        }
    }
}
