//! Connections that are opened ahead of need: a handshake takes two or three round trips, in which what the connection is for is found out.
//!
//! They are tasks like others, of threads that have nothing to do yet, and no more than the sessions that there are to be. What has not begun when
//! it is known what there is to do is not begun any more; handshakes are as many at once as always.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::target::Server;
use super::work::{Context, THREADS, Task};

impl Context<'_> {
    /// Has connections opened for the files of a directory that is yet to be listed, as long as what this returns is there: of what is copied as a
    /// tree there are some. Without TLS a connection takes a round trip, and is opened when it is needed.
    pub(super) fn prepare_tree(&self, server: &Server) -> Arc<()> {
        let sessions = if server.tls && !self.order.dry_run {
            self.threads.min(THREADS)
        } else {
            0
        };
        self.connect(server, sessions.saturating_sub(1 + self.ready()))
    }

    /// The same for so many files while it is found out what they are.
    pub(crate) fn prepare(&self, server: &Server, files: u64) -> Arc<()> {
        let missing = match self.order.dry_run {
            true => 0,
            false => {
                let few = usize::try_from(files).unwrap_or(usize::MAX);
                let sessions = self.expect(files).max(few.min(self.threads));
                sessions.saturating_sub(self.ready())
            }
        };
        self.connect(server, missing)
    }

    /// Has so many connections opened, as long as what this returns is there.
    pub(super) fn connect(&self, server: &Server, count: usize) -> Arc<()> {
        let wanted = Arc::new(());
        let more = (0..count).map(|_| Arc::downgrade(&wanted));
        self.preparing.fetch_add(count, Ordering::Relaxed);
        self.pool
            .push(more.map(|wanted| Task::Prepare(server.clone(), wanted)));
        wanted
    }

    /// Connections that are there, or are being opened ahead.
    fn ready(&self) -> usize {
        self.dialer.opened() + self.preparing.load(Ordering::Relaxed)
    }
}
