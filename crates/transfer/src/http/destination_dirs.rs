//! Directories that several sources share as destination: created and listed once, not once per source.
//!
//! A request costs a round trip. Servers that close a connection with each error, such as XRootD 5.5, need another
//! handshake.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use tokio::sync::OnceCell;

use super::copy_spec::CopySpec;
use super::exchange::HttpClient;
use super::list::{self, MetadataByName, RemoteMetadata};
use super::request_error::RequestError;
use super::target::HttpTarget;
use crate::options::CopyOptions;

/// Names in a listing per file of the copy. For larger listings, one request per file is cheaper.
const NAMES_A_FILE: usize = 16;

/// Directories that are the destination of several sources.
#[derive(Debug, Default)]
pub(super) struct DestinationDirs(HashMap<HttpTarget, DestinationDir>);

#[derive(Debug, Default)]
struct DestinationDir {
    sources: usize,
    made: OnceCell<()>,
    /// True if a task lists it or has listed it.
    requested: AtomicBool,
    /// None if each file needs its own request.
    names: OnceCell<Option<MetadataByName>>,
}

impl DestinationDirs {
    /// Collect the destination directories that are known before the first request.
    pub(super) fn of(order: &CopyOptions, specs: &[CopySpec]) -> Self {
        let mut found = HashMap::<HttpTarget, DestinationDir>::new();
        for target in specs.iter().filter_map(|start| start.directory_url(order)) {
            found.entry(target).or_default().sources += 1;
        }
        found.retain(|_, directory_url| directory_url.sources > 1);
        Self(found)
    }

    /// Create a directory if it does not exist.
    ///
    /// # Errors
    /// Error of the server.
    pub(super) async fn make(
        &self,
        exchange: &Rc<HttpClient>,
        target: &HttpTarget,
        with_parents: bool,
    ) -> Result<(), RequestError> {
        let make = || list::make(exchange, target, with_parents);
        match self.0.get(&target.directory_url()) {
            Some(directory_url) => directory_url.made.get_or_try_init(make).await.copied(),
            None => make().await,
        }
    }

    /// Return the metadata of an existing copy; none if a request is necessary.
    pub(super) async fn existing(
        &self,
        order: &CopyOptions,
        exchange: &Rc<HttpClient>,
        copy: &HttpTarget,
    ) -> Option<Option<RemoteMetadata>> {
        if !list::is_listing_trusted(order) {
            return None;
        }
        let target = copy.parent()?;
        let directory_url = self.0.get(&target)?;
        let names = directory_url.names.get_or_init(|| {
            let max = NAMES_A_FILE * directory_url.sources;
            async move {
                match list::names(exchange, &target, max).await {
                    Ok(names) => Some(names),
                    Err(RequestError::Status {
                        status: StatusCode::NOT_FOUND,
                        ..
                    }) => Some(MetadataByName::new()),
                    Err(_) => None,
                }
            }
        });
        // The task that waits for a listing already has a connection when the listing arrives.
        let waits = directory_url.requested.swap(true, Ordering::Relaxed)
            && !directory_url.names.initialized()
            && !order.dry_run;
        let names = match waits {
            true => tokio::join!(names, exchange.prepare(&copy.server)).0,
            false => names.await,
        };
        Some(names.as_ref()?.get(&copy.name()).cloned())
    }
}
