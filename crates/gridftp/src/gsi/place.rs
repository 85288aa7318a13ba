//! Where credentials are looked for, as Globus programs do (`globus_gsi_system_config.c`): names of files, for a driver to
//! read.

use std::path::{Path, PathBuf};

use crate::Error;

/// One place where a credential may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Certificates; of a proxy its key too.
    pub certificates: PathBuf,
    /// The key, where it has its own file.
    pub key: Option<PathBuf>,
    /// Whether the user named it: then it has to be there.
    pub named: bool,
}

impl Place {
    fn proxy(path: impl Into<PathBuf>, named: bool) -> Self {
        Self {
            certificates: path.into(),
            key: None,
            named,
        }
    }

    fn pair(certificates: impl Into<PathBuf>, key: impl Into<PathBuf>, named: bool) -> Self {
        Self {
            certificates: certificates.into(),
            key: Some(key.into()),
            named,
        }
    }

    /// The file with the secret; its mode is to be checked.
    #[must_use]
    pub fn secret(&self) -> &Path {
        self.key.as_deref().unwrap_or(&self.certificates)
    }
}

/// Places of a user's credential, the first one that is there counts. `variable` gives variables of the environment.
#[must_use]
pub fn user_places(variable: impl Fn(&str) -> Option<String>, uid: u32) -> Vec<Place> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("X509_USER_PROXY") {
        return vec![Place::proxy(path, true)];
    }
    let mut places = vec![Place::proxy(format!("/tmp/x509up_u{uid}"), false)];
    if let (Some(certificate), Some(key)) = (set("X509_USER_CERT"), set("X509_USER_KEY")) {
        places.push(Place::pair(certificate, key, true));
    } else if let Some(home) = set("HOME") {
        let own = PathBuf::from(home).join(".globus");
        places.push(Place::pair(
            own.join("usercert.pem"),
            own.join("userkey.pem"),
            false,
        ));
    }
    places
}

/// Directories of certificate authorities; the first one that is there counts.
#[must_use]
pub fn authority_places(variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("X509_CERT_DIR") {
        return vec![path.into()];
    }
    let own = set("HOME").map(|home| PathBuf::from(home).join(".globus/certificates"));
    own.into_iter()
        .chain([PathBuf::from("/etc/grid-security/certificates")])
        .collect()
}

/// Whether nobody but its owner can read or write a file with a key, by its permission bits.
///
/// # Errors
/// Bits for others, and what to do.
pub fn check_mode(path: &Path, mode: u32) -> Result<(), Error> {
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let (path, mode) = (path.display(), mode & 0o777);
    Err(Error::Security(format!(
        "expected a private key that only its owner can read, found {path} with mode {mode:03o}; chmod 600 it"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(places: Vec<Place>) -> Vec<String> {
        let name = |place: Place| {
            let key = place
                .key
                .map_or(String::new(), |key| format!("+{}", key.display()));
            format!("{}{key}", place.certificates.display())
        };
        places.into_iter().map(name).collect()
    }

    #[test]
    fn a_proxy_that_is_named_is_the_only_place_and_otherwise_the_usual_one_is_first() {
        let set = |name: &str| match name {
            "X509_USER_PROXY" => Some("/p".to_owned()),
            _ => Some("/x".to_owned()),
        };
        assert_eq!(names(user_places(set, 7)), ["/p"]);
        let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(
            names(user_places(home, 7)),
            [
                "/tmp/x509up_u7",
                "/h/.globus/usercert.pem+/h/.globus/userkey.pem"
            ]
        );
        let pair = |name: &str| name.starts_with("X509_USER_").then(String::new);
        assert_eq!(names(user_places(pair, 7)), ["/tmp/x509up_u7"]);
        assert_eq!(
            authority_places(home),
            ["/h/.globus/certificates", "/etc/grid-security/certificates"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        check_mode(Path::new("/k"), 0o100_600).unwrap();
        check_mode(Path::new("/k"), 0o100_400).unwrap();
        for mode in [0o640, 0o604, 0o666, 0o610] {
            let said = check_mode(Path::new("/k"), mode).unwrap_err().to_string();
            assert!(said.contains(&format!("{mode:03o}")), "{said}");
        }
    }
}
