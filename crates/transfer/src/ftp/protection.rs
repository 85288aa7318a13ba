//! Security of data connections: as requested, and as servers support it.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use venturi_gridftp::{Dcau, Protection};

use super::session_config::{DataProtectionRequest, ServerCapabilities, SessionConfig};
use super::shared::Shared;
use crate::decision::Decision;
use crate::net::url::{Scheme, Url};
use crate::options::{DataChannel, OutputMode};

/// True if a session can use unauthenticated data connections by default: not if another session with this server is authenticated.
pub(crate) fn may_be_open(config: &SessionConfig) -> bool {
    is_optional(config.data, &config.secured)
}

fn is_optional(protection_request: DataProtectionRequest, first: &OnceLock<bool>) -> bool {
    protection_request == DataProtectionRequest::Usual && first.get() != Some(&true)
}

/// Requires the security of the first ready session for all sessions with a server; warns about unauthenticated connections that were not requested.
///
/// # Errors
/// The first session has authenticated data connections, and this one does not.
pub(crate) fn check_secured(
    shared: &Shared<'_>,
    config: &SessionConfig,
    data: Option<&(Dcau, Protection)>,
) -> Result<(), String> {
    if config.server.scheme != Scheme::Gsiftp {
        return Ok(());
    }
    if config.data == DataProtectionRequest::Usual {
        check_same_security(&config.secured, data.is_some())?;
    }
    if data.is_none() {
        warn(shared, &config.server);
    }
    Ok(())
}

fn check_same_security(first: &OnceLock<bool>, secured: bool) -> Result<(), String> {
    match (*first.get_or_init(|| secured), secured) {
        (true, false) => Err("unauthenticated data connections, after authenticated ones".into()),
        _ => Ok(()),
    }
}

/// Warns once that data connections are not authenticated.
fn warn(shared: &Shared<'_>, server: &Url) {
    let options = shared.options;
    let requested = options.network.data_channel.is_some() || options.output == OutputMode::Quiet;
    if !requested && !shared.warned.swap(true, Ordering::Relaxed) {
        shared.report.print(&format!(
            "data connections with {} are not authenticated: any host that connects first can read or write; add --data-channel authenticated to prevent this",
            server.authority()
        ));
    }
}

/// Selects the common security of two sessions of a third-party copy: if one server cannot authenticate, both do not.
pub(crate) fn agree(
    configs: &mut (SessionConfig, SessionConfig),
    welcomes: (&ServerCapabilities, &ServerCapabilities),
) {
    if welcomes.0.data != welcomes.1.data {
        configs.0.data = DataProtectionRequest::Only(DataChannel::Open);
        configs.1.data = configs.0.data;
    }
}

/// Reports the security of data connections.
pub(crate) fn report(
    shared: &Shared<'_>,
    config: &SessionConfig,
    capabilities: &ServerCapabilities,
) {
    let open = DataProtectionRequest::Only(DataChannel::Open);
    let data = capabilities.data.as_ref().filter(|_| config.data != open);
    let reason = match (data, config.data) {
        _ if config.server.scheme != Scheme::Gsiftp => return,
        (Some((_, Protection::Clear)), _) => {
            "data connections are authenticated by certificates of both hosts"
        }
        (Some(_), _) => {
            "data connections are encrypted, and authenticated by certificates of both hosts"
        }
        (None, DataProtectionRequest::Only(_)) => "data connections are not authenticated",
        (None, DataProtectionRequest::Usual) => {
            "data connections are not authenticated: the server does not support DCAU, or your proxy cannot be delegated"
        }
    };
    shared.report.decision(&Decision {
        setting: "authenticated",
        value: u64::from(data.is_some()),
        reason: reason.into(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_later_session_is_less_secure_than_the_first_one() {
        let first = OnceLock::new();
        assert!(is_optional(DataProtectionRequest::Usual, &first));
        assert_eq!(check_same_security(&first, true), Ok(()));
        assert!(
            !is_optional(DataProtectionRequest::Usual, &first),
            "DCAU is needed now"
        );
        let error = check_same_security(&first, false).expect_err("a session that started earlier");
        assert!(error.contains("unauthenticated"), "{error}");
        assert_eq!(check_same_security(&first, true), Ok(()));
        let first = OnceLock::from(false);
        assert!(
            is_optional(DataProtectionRequest::Usual, &first)
                && check_same_security(&first, false).is_ok()
        );
        assert!(!is_optional(
            DataProtectionRequest::Only(DataChannel::Authenticated),
            &first
        ));
    }
}
