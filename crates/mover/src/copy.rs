//! A copy from beginning to end: by the way that its places ask for.

use crate::error::Error;
use crate::ftp;
use crate::given::{Given, Route};
use crate::http;
use crate::local;
use crate::order::Order;
use crate::outcome::Outcome;
use crate::stop::Stop;

/// Carries out an order.
///
/// # Errors
/// If its places do not fit together: nothing was done then. What goes wrong with single files is told, and in the outcome.
pub fn carry_out(order: &Order, stop: &Stop) -> Result<Outcome, Error> {
    let given = Given::read(order)?;
    stop.begin();
    let route = given.route()?;
    order.fits(&given, route)?;
    match route {
        Route::Local => local::carry_out(order, stop, &given),
        Route::Ftp => ftp::carry_out(order, stop, &given),
        Route::Http => http::carry_out(order, stop, &given),
    }
}
