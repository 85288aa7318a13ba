//! How data connections are secured: what was asked for, and what servers can.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use venturi_gridftp::{Dcau, Protection};

use super::manner::{Manner, Welcome, Wish};
use super::shared::Shared;
use crate::decision::Decision;
use crate::net::url::{Scheme, Url};
use crate::order::{DataChannel, Output};

/// Whether a session may have open data connections that nobody asked for: not where another one with the server has better ones.
pub(crate) fn may_be_open(manner: &Manner) -> bool {
    is_optional(manner.data, &manner.secured)
}

fn is_optional(wish: Wish, first: &OnceLock<bool>) -> bool {
    wish == Wish::Usual && first.get() != Some(&true)
}

/// Has all sessions with a server hold to what the first one has that was ready; open ones that nobody asked for are told.
///
/// # Errors
/// If its data connections are authenticated, and those of this session are not.
pub(crate) fn hold(
    shared: &Shared<'_>,
    manner: &Manner,
    data: Option<&(Dcau, Protection)>,
) -> Result<(), String> {
    if manner.server.scheme != Scheme::Gsiftp {
        return Ok(());
    }
    if manner.data == Wish::Usual {
        hold_to(&manner.secured, data.is_some())?;
    }
    if data.is_none() {
        warn(shared, &manner.server);
    }
    Ok(())
}

fn hold_to(first: &OnceLock<bool>, secured: bool) -> Result<(), String> {
    match (*first.get_or_init(|| secured), secured) {
        (true, false) => Err("data connections that are open, after authenticated ones".into()),
        _ => Ok(()),
    }
}

/// Tells people, once, that data connections are open without their having asked for it.
fn warn(shared: &Shared<'_>, server: &Url) {
    let order = shared.order;
    let asked = order.network.data_channel.is_some() || order.output == Output::Quiet;
    if !asked && !shared.warned.swap(true, Ordering::Relaxed) {
        shared.report.talk(&format!(
            "data connections with {} are open: whoever reaches their port first can read or write; --data-channel authenticated refuses that",
            server.authority()
        ));
    }
}

/// What two sessions between which bytes go have in common: if one server cannot authenticate, both leave it.
pub(crate) fn agree(manners: &mut (Manner, Manner), welcomes: (&Welcome, &Welcome)) {
    if welcomes.0.data != welcomes.1.data {
        manners.0.data = Wish::Only(DataChannel::Open);
        manners.1.data = manners.0.data;
    }
}

/// Tells how data connections are secured.
pub(crate) fn tell(shared: &Shared<'_>, manner: &Manner, welcome: &Welcome) {
    let open = Wish::Only(DataChannel::Open);
    let data = welcome.data.as_ref().filter(|_| manner.data != open);
    let reason = match (data, manner.data) {
        _ if manner.server.scheme != Scheme::Gsiftp => return,
        (Some((_, Protection::Clear)), _) => "both ends of data connections show a certificate",
        (Some(_), _) => "data connections are encrypted, and both ends show a certificate",
        (None, Wish::Only(_)) => "data connections are open",
        (None, Wish::Usual) => {
            "data connections are open: the server authenticates none (DCAU), or your proxy cannot be delegated"
        }
    };
    shared.report.decision(&Decision {
        what: "authenticated",
        value: u64::from(data.is_some()),
        reason: reason.into(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_session_falls_behind_the_first_one_whatever_its_server_says_then() {
        let first = OnceLock::new();
        assert!(is_optional(Wish::Usual, &first));
        assert_eq!(hold_to(&first, true), Ok(()));
        assert!(!is_optional(Wish::Usual, &first), "DCAU is needed now");
        let error = hold_to(&first, false).expect_err("one that was begun before");
        assert!(error.contains("open"), "{error}");
        assert_eq!(hold_to(&first, true), Ok(()));
        let first = OnceLock::from(false);
        assert!(is_optional(Wish::Usual, &first) && hold_to(&first, false).is_ok());
        assert!(!is_optional(Wish::Only(DataChannel::Authenticated), &first));
    }
}
