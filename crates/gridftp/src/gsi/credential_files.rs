//! Paths of credentials, in the search order of Globus programs (`globus_gsi_system_config.c`). A
//! driver reads the files.

use std::path::{Path, PathBuf};

use crate::FtpError;

/// Possible location of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Certificates; for a proxy, also the key.
    pub certificates: PathBuf,
    /// Key, if it has its own file.
    pub key: Option<PathBuf>,
    /// `true` if the user named the file, which must then exist.
    pub named: bool,
}

impl CredentialFiles {
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

    /// Returns the file with the private key. Check its mode.
    #[must_use]
    pub fn secret(&self) -> &Path {
        self.key.as_deref().unwrap_or(&self.certificates)
    }
}

/// Returns the possible locations of a user's credential; the first existing one counts. `variable`
/// returns environment variables.
#[must_use]
pub fn user_credential_files(
    variable: impl Fn(&str) -> Option<String>,
    uid: u32,
) -> Vec<CredentialFiles> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("X509_USER_PROXY") {
        return vec![CredentialFiles::proxy(path, true)];
    }
    let mut files = vec![CredentialFiles::proxy(format!("/tmp/x509up_u{uid}"), false)];
    if let (Some(certificate), Some(key)) = (set("X509_USER_CERT"), set("X509_USER_KEY")) {
        files.push(CredentialFiles::pair(certificate, key, true));
    } else if let Some(home) = set("HOME") {
        let credential_key = PathBuf::from(home).join(".globus");
        files.push(CredentialFiles::pair(
            credential_key.join("usercert.pem"),
            credential_key.join("userkey.pem"),
            false,
        ));
    }
    files
}

/// Returns the directories of trusted CAs; the first existing one counts.
#[must_use]
pub fn ca_directories(variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("X509_CERT_DIR") {
        return vec![path.into()];
    }
    let credential_key = set("HOME").map(|home| PathBuf::from(home).join(".globus/certificates"));
    credential_key
        .into_iter()
        .chain([PathBuf::from("/etc/grid-security/certificates")])
        .collect()
}

/// Checks that only the owner can access a key file, by its permission bits.
///
/// # Errors
/// If other users have access. The message contains the command that fixes it.
pub fn check_mode(path: &Path, mode: u32) -> Result<(), FtpError> {
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let (path, mode) = (path.display(), mode & 0o777);
    Err(FtpError::Security(format!(
        "{path}: expected a private key that only its owner can read, found mode {mode:03o}. Run `chmod 600 {path}`."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: Vec<CredentialFiles>) -> Vec<String> {
        let name = |context: CredentialFiles| {
            let key = context
                .key
                .map_or(String::new(), |key| format!("+{}", key.display()));
            format!("{}{key}", context.certificates.display())
        };
        files.into_iter().map(name).collect()
    }

    #[test]
    fn a_configured_proxy_is_used_alone_and_otherwise_the_default_proxy_is_first() {
        let set = |name: &str| match name {
            "X509_USER_PROXY" => Some("/p".to_owned()),
            _ => Some("/x".to_owned()),
        };
        assert_eq!(names(user_credential_files(set, 7)), ["/p"]);
        let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(
            names(user_credential_files(home, 7)),
            [
                "/tmp/x509up_u7",
                "/h/.globus/usercert.pem+/h/.globus/userkey.pem"
            ]
        );
        let pair = |name: &str| name.starts_with("X509_USER_").then(String::new);
        assert_eq!(names(user_credential_files(pair, 7)), ["/tmp/x509up_u7"]);
        assert_eq!(
            ca_directories(home),
            ["/h/.globus/certificates", "/etc/grid-security/certificates"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_key_that_others_can_read_is_rejected() {
        check_mode(Path::new("/k"), 0o100_600).unwrap();
        check_mode(Path::new("/k"), 0o100_400).unwrap();
        for mode in [0o640, 0o604, 0o666, 0o610] {
            let output = check_mode(Path::new("/k"), mode).unwrap_err().to_string();
            assert!(output.contains(&format!("{mode:03o}")), "{output}");
        }
    }
}
