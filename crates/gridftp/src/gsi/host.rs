//! Checks that a certificate belongs to a host. Subject alternative names count; without them, the
//! common name does (the `HYBRID` rule of the Globus library).

use std::net::IpAddr;

use x509_cert::ext::pkix::name::GeneralName;

use super::certificate::Certificate;
use super::name::COMMON_NAME;
use crate::FtpError;

/// Checks that a certificate belongs to `host`, the name or address given by the user.
pub(super) fn check_host(certificate: &Certificate, host: &str) -> Result<(), FtpError> {
    let names = host_names(certificate)?;
    let requested: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let found = names.iter().any(|name| match (name, requested) {
        (Name::Address(address), Some(requested)) => *address == requested,
        (Name::Host(name), None) => is_host(name, host),
        _ => false,
    });
    if found {
        return Ok(());
    }
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    Err(FtpError::Security(format!(
        "host {host}: expected a certificate for this host, found {} for {}. Connect to a host name in the certificate.",
        certificate.title(),
        if names.is_empty() {
            "no host".to_owned()
        } else {
            names.join(", ")
        }
    )))
}

enum Name {
    Host(String),
    Address(IpAddr),
}

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(name) => formatter.write_str(name),
            Self::Address(address) => write!(formatter, "{address}"),
        }
    }
}

fn host_names(certificate: &Certificate) -> Result<Vec<Name>, FtpError> {
    let others = certificate.subject_names()?.map(|names| names.0);
    let names: Vec<Name> = others.iter().flatten().filter_map(to_host_name).collect();
    if !names.is_empty() {
        return Ok(names);
    }
    // `CN=host/a.example.org` is a Kerberos form that Globus adopted.
    let attributes = certificate
        .subject()
        .0
        .iter()
        .flat_map(|relative| relative.0.iter());
    Ok(attributes
        .filter(|attribute| attribute.oid == COMMON_NAME)
        .filter_map(|attribute| std::str::from_utf8(attribute.value.value()).ok())
        .next_back()
        .map(|name| Name::Host(name.rsplit('/').next().unwrap_or(name).to_owned()))
        .into_iter()
        .collect())
}

fn to_host_name(name: &GeneralName) -> Option<Name> {
    match name {
        GeneralName::DnsName(name) => Some(Name::Host(name.as_str().to_owned())),
        GeneralName::IpAddress(address) => {
            let bytes = address.as_bytes();
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            address.ok().map(Name::Address)
        }
        _ => None,
    }
}

/// Compares a name; a star matches the whole first label (RFC 2818 section 3.1, RFC 6125 section
/// 6.4.3).
fn is_host(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    match pattern.strip_prefix("*.") {
        Some(rest) => host
            .split_once('.')
            .is_some_and(|(label, domain)| !label.is_empty() && domain.eq_ignore_ascii_case(rest)),
        None => pattern.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_matches_one_label_and_case_is_ignored() {
        for (pattern, host, expected) in [
            ("a.example.org", "A.Example.Org", true),
            ("a.example.org", "a.example.org.", true),
            ("a.example.org", "b.a.example.org", false),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "a.b.example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "example.org", false),
            ("*", "example", false),
        ] {
            assert_eq!(is_host(pattern, host), expected, "{pattern} {host}");
        }
    }
}
