//! Checks of option combinations: no option is silently ignored.

use super::arguments::{BLOCK_BYTES, MEMORY_BYTES, STREAMS, ServeArgs};
use crate::error::CopyError;

/// Check that each option has an effect.
///
/// # Errors
/// The first option without effect.
pub(super) fn fit(inputs: &ServeArgs) -> Result<(), CopyError> {
    let (web, gsi) = (&inputs.web, &inputs.gsi);
    let ftp = !inputs.addresses().is_empty();
    let http = !(web.http.is_empty() && web.https.is_empty());
    let known = inputs.users.is_some()
        || gsi.cert.is_some()
        || web.tokens.is_some()
        || web.issuers.is_some();
    let secure = !web.https.is_empty();
    let at_ftp = "--listen as well, because the option applies to FTP";
    let at_http = "--http or --https as well, because tokens apply to HTTP";
    let users = "--users, --cert, --tokens or --issuers as well";
    let may_write = "--write as well, because the option applies to uploads";
    let none = "neither";
    let requested = [
        (
            "--tls-cert",
            web.tls_cert.is_some(),
            secure,
            "--https as well, because the option applies to HTTPS (for gsiftp, use --cert)",
            "no HTTPS address",
        ),
        ("--tokens", web.tokens.is_some(), http, at_http, none),
        ("--issuers", web.issuers.is_some(), http, at_http, none),
        (
            "--cert",
            gsi.cert.is_some(),
            ftp,
            "--listen as well, because the option applies to gsiftp (for HTTPS, use --tls-cert)",
            HTTP_ALONE,
        ),
        (
            "--data-ports",
            inputs.data_ports.is_some(),
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--public-address",
            inputs.public_address.is_some(),
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--streams",
            inputs.streams != STREAMS,
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--block",
            inputs.block != BLOCK_BYTES,
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--anonymous",
            inputs.anonymous,
            known,
            users,
            "neither option, so all clients can read already",
        ),
        (
            "--third-party",
            inputs.third_party,
            known,
            users,
            "neither option, and anonymous clients cannot use it",
        ),
        ("--sync", inputs.sync, inputs.write, may_write, READING),
        (
            "--memory",
            inputs.memory != MEMORY_BYTES,
            inputs.write,
            may_write,
            READING,
        ),
    ];
    let unfit = requested
        .into_iter()
        .find(|(_, requested, fits, ..)| *requested && !fits);
    unfit.map_or(Ok(()), |(option, _, _, expected, found)| {
        Err(CopyError::InvalidOption {
            option,
            expected,
            found: found.into(),
        })
    })
}

const HTTP_ALONE: &str = "only HTTP";
const READING: &str = "a read-only server";
