//! Whether all that was asked for can be had together: nothing is passed over in silence.

use super::arguments::{Arguments, BLOCK_BYTES, MEMORY_BYTES, STREAMS};
use crate::error::Error;

/// Sees that each option has something to do.
///
/// # Errors
/// The first that has not.
pub(super) fn fit(given: &Arguments) -> Result<(), Error> {
    let (web, gsi) = (&given.web, &given.gsi);
    let ftp = !given.addresses().is_empty();
    let http = !(web.http.is_empty() && web.https.is_empty());
    let known = given.users.is_some()
        || gsi.cert.is_some()
        || web.tokens.is_some()
        || web.issuers.is_some();
    let secure = !web.https.is_empty();
    let at_ftp = "--listen besides, since it is for FTP";
    let at_http = "--http or --https besides, since tokens are for HTTP";
    let users = "--users, --cert, --tokens or --issuers besides";
    let may_write = "--write besides, since it is for files that come";
    let none = "neither";
    let asked = [
        (
            "--tls-cert",
            web.tls_cert.is_some(),
            secure,
            "--https besides, since it is for HTTPS (that of gsiftp is --cert)",
            "no such address",
        ),
        ("--tokens", web.tokens.is_some(), http, at_http, none),
        ("--issuers", web.issuers.is_some(), http, at_http, none),
        (
            "--cert",
            gsi.cert.is_some(),
            ftp,
            "--listen besides, since it is for gsiftp (that of HTTPS is --tls-cert)",
            HTTP_ALONE,
        ),
        (
            "--data-ports",
            given.data_ports.is_some(),
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--public-address",
            given.public_address.is_some(),
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--streams",
            given.streams != STREAMS,
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--block",
            given.block != BLOCK_BYTES,
            ftp,
            at_ftp,
            HTTP_ALONE,
        ),
        (
            "--anonymous",
            given.anonymous,
            known,
            users,
            "none of them, so that everybody may read already",
        ),
        (
            "--third-party",
            given.third_party,
            known,
            users,
            "none of them, and anonymous clients never may",
        ),
        ("--sync", given.sync, given.write, may_write, READING),
        (
            "--memory",
            given.memory != MEMORY_BYTES,
            given.write,
            may_write,
            READING,
        ),
    ];
    let unfit = asked
        .into_iter()
        .find(|(_, asked, fits, ..)| *asked && !fits);
    unfit.map_or(Ok(()), |(option, _, _, expected, found)| {
        Err(Error::Order {
            option,
            expected,
            found: found.into(),
        })
    })
}

const HTTP_ALONE: &str = "HTTP alone";
const READING: &str = "a server to read from";
