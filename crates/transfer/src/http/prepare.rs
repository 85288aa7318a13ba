//! Connections opened ahead of need: a handshake takes two or three round trips, while the client still looks for
//! files.
//!
//! They are tasks of idle threads, limited by the number of sessions. Tasks that have not started are dropped when
//! the work is known. Handshakes keep their limit of concurrency.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::target::HttpServer;
use super::work::{HttpContext, HttpTask, THREADS};

impl HttpContext<'_> {
    /// Open connections for a directory before it is listed, until the returned guard is dropped. Without TLS a
    /// connection takes one round trip and is opened when needed.
    pub(super) fn prepare_tree(&self, server: &HttpServer) -> Arc<()> {
        let sessions = if server.tls && !self.order.dry_run {
            self.threads.min(THREADS)
        } else {
            0
        };
        self.connect(server, sessions.saturating_sub(1 + self.ready()))
    }

    /// Open connections for this many files before their requests, until the returned guard is
    /// dropped.
    pub(crate) fn prepare(&self, server: &HttpServer, files: u64) -> Arc<()> {
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

    /// Open this many connections ahead, until the returned guard is dropped.
    pub(super) fn connect(&self, server: &HttpServer, count: usize) -> Arc<()> {
        let requested = Arc::new(());
        let more = (0..count).map(|_| Arc::downgrade(&requested));
        self.preparing.fetch_add(count, Ordering::Relaxed);
        self.pool
            .push(more.map(|requested| HttpTask::Prepare(server.clone(), requested)));
        requested
    }

    /// Return the number of open connections and of those opened ahead.
    fn ready(&self) -> usize {
        self.dialer.opened() + self.preparing.load(Ordering::Relaxed)
    }
}
