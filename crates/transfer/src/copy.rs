//! Entry point of a copy: selects the client for its locations.

use crate::error::CopyError;
use crate::ftp;
use crate::http;
use crate::inputs::{CopyInputs, Route};
use crate::local;
use crate::net::rate_limit;
use crate::options::CopyOptions;
use crate::outcome::CopyExit;
use crate::stop::CancelToken;

/// Executes a copy.
///
/// # Errors
/// Options or locations that do not fit together; nothing was copied. Failures of single files are reported, and are part of the outcome.
pub fn execute(options: &CopyOptions, stop: &CancelToken) -> Result<CopyExit, CopyError> {
    let inputs = CopyInputs::read(options)?;
    stop.start();
    let route = inputs.route()?;
    options.check_route(&inputs, route)?;
    if let Some(bytes_per_s) = options.max_rate_bytes_per_s {
        rate_limit::set(bytes_per_s, stop);
    }
    match route {
        Route::Local => local::execute(options, stop, &inputs),
        Route::Ftp => ftp::execute(options, stop, &inputs),
        Route::Http => http::execute(options, stop, &inputs),
    }
}
