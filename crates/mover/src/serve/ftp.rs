//! FTP and GridFTP: sockets and files around `venturi_gridftp::server::Server`, which decides.
//!
//! A session is one task of its thread. It does all that it can without waiting, then sleeps until one of its sockets is ready, a
//! thread for disks is done or a time has come. See [`session::Session::poll`].

mod control;
mod disk;
mod entry;
mod layer;
mod link;
pub(crate) mod ports;
pub(in crate::serve) mod reading;
mod session;
mod transfer;
mod writing;

use std::future::poll_fn;
use std::sync::Arc;

use tokio::sync::watch;

use super::host::Host;
use super::listen::{Arrival, Phase};

/// Serves one client until it leaves, or the server goes down.
pub(super) async fn session(host: Arc<Host>, arrival: Arrival, mut phase: watch::Receiver<Phase>) {
    // Counted for as long as the session is there.
    let _ticket = arrival.ticket;
    let opened = session::Session::open(host, arrival.socket, arrival.peer, arrival.session);
    // The client has gone already.
    let Ok(mut session) = opened else { return };
    loop {
        let now = *phase.borrow_and_update();
        match now {
            Phase::Serving => {}
            Phase::Leaving => session.leave(),
            Phase::Cut => return session.cut(),
        }
        tokio::select! {
            biased;
            () = poll_fn(|cx| session.poll(cx)) => return,
            changed = phase.changed() => if changed.is_err() { return },
        }
    }
}
