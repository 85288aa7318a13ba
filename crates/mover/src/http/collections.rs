//! Collections that several sources go to: made once and listed once, where each source would ask for itself.
//!
//! A question costs a round trip, and of a server that closes a connection with each refusal, such as XRootD (5.5), another handshake.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use tokio::sync::OnceCell;

use super::begin::Begin;
use super::exchange::Exchange;
use super::fault::Fault;
use super::list::{self, Facts, Names};
use super::target::Target;
use crate::order::Order;

/// Names of a listing for each file that is to come: where there are more, it is less to ask for the files.
const NAMES_A_FILE: usize = 16;

/// Those that several sources go to.
#[derive(Debug, Default)]
pub(super) struct Collections(HashMap<Target, Collection>);

#[derive(Debug, Default)]
struct Collection {
    sources: usize,
    made: OnceCell<()>,
    /// Whether somebody lists it, or has.
    asked: AtomicBool,
    /// None where each file has to be asked for.
    names: OnceCell<Option<Names>>,
}

impl Collections {
    /// Where sources go, as far as that can be seen before anybody is asked.
    pub(super) fn of(order: &Order, begins: &[Begin]) -> Self {
        let mut found = HashMap::<Target, Collection>::new();
        for place in begins.iter().filter_map(|begin| begin.collection(order)) {
            found.entry(place).or_default().sources += 1;
        }
        found.retain(|_, collection| collection.sources > 1);
        Self(found)
    }

    /// Makes a collection, if it is not there.
    ///
    /// # Errors
    /// If the server does not.
    pub(super) async fn make(
        &self,
        exchange: &Rc<Exchange>,
        place: &Target,
        with_parents: bool,
    ) -> Result<(), Fault> {
        let make = || list::make(exchange, place, with_parents);
        match self.0.get(&place.collection()) {
            Some(collection) => collection.made.get_or_try_init(make).await.copied(),
            None => make().await,
        }
    }

    /// What is at the place of a copy, if anything; none if the server has to be asked.
    pub(super) async fn there(
        &self,
        order: &Order,
        exchange: &Rc<Exchange>,
        copy: &Target,
    ) -> Option<Option<Facts>> {
        if !list::is_believed(order) {
            return None;
        }
        let place = copy.parent()?;
        let collection = self.0.get(&place)?;
        let names = collection.names.get_or_init(|| {
            let most = NAMES_A_FILE * collection.sources;
            async move {
                match list::names(exchange, &place, most).await {
                    Ok(names) => Some(names),
                    Err(Fault::Status {
                        status: StatusCode::NOT_FOUND,
                        ..
                    }) => Some(Names::new()),
                    Err(_) => None,
                }
            }
        });
        // Who waits for the listing of another has a connection when it comes.
        let waits = collection.asked.swap(true, Ordering::Relaxed)
            && !collection.names.initialized()
            && !order.dry_run;
        let names = match waits {
            true => tokio::join!(names, exchange.prepare(&copy.server)).0,
            false => names.await,
        };
        Some(names.as_ref()?.get(&copy.name()).cloned())
    }
}
