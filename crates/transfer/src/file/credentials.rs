//! Passwords and keys in their standard places: `.netrc`, and the environment and files of AWS.

use std::ffi::OsString;
use std::path::PathBuf;

use venturi_gridftp::Secret;

use super::error::{ErrorKind, FileError};

/// Maximum bytes of a file of credentials.
const MAX_BYTES: u64 = 1 << 20;
const DEFAULT_REGION: &str = "us-east-1";

/// User and password.
pub(super) type PasswordLogin = (Vec<u8>, Secret);

/// Keys of S3.
pub(super) struct S3Keys {
    pub(super) id: String,
    pub(super) secret: Secret,
    /// Token of temporary keys.
    pub(super) session: Option<Secret>,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn text_variable(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Return a path below the home directory, or the path in a variable.
fn path(name: &str, default: &str) -> Option<PathBuf> {
    let named = variable(name).map(PathBuf::from);
    named.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(default)))
}

/// Read a file; none if it does not exist.
fn read(path: &std::path::Path) -> Result<Option<String>, FileError> {
    let unusable = |reason: String| {
        let message = format!(
            "{}: expected a readable file with credentials, found {reason}; correct or remove it",
            path.display()
        );
        FileError::new(ErrorKind::Permission, message)
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(crate::error::describe(&error))),
        Ok(found) if !found.is_file() => return Err(unusable("another type of file".into())),
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(unusable(format!("{} bytes", found.len())));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path);
    text.map(Some)
        .map_err(|error| unusable(crate::error::describe(&error)))
}

/// Return the login for a host in the file `NETRC`, or in `~/.netrc`.
///
/// # Errors
/// An unreadable file.
pub(super) fn netrc(host: &str, user: Option<&[u8]>) -> Result<Option<PasswordLogin>, FileError> {
    let Some(path) = path("NETRC", ".netrc") else {
        return Ok(None);
    };
    Ok(read(&path)?.and_then(|text| netrc_login(&text, host, user)))
}

/// Return the first login of a machine, or the default, for this user if given.
fn netrc_login(text: &str, host: &str, user: Option<&[u8]>) -> Option<PasswordLogin> {
    let mut words = netrc_words(text);
    // State of the current entry: host match, user and password.
    let mut entry: (bool, Option<&str>, Option<&str>) = (false, None, None);
    let login = |entry: &(bool, Option<&str>, Option<&str>)| {
        let (true, Some(login), Some(password)) = *entry else {
            return None;
        };
        let fits = user.is_none_or(|user| user == login.as_bytes());
        fits.then(|| {
            (
                login.as_bytes().to_vec(),
                Secret(password.as_bytes().to_vec()),
            )
        })
    };
    loop {
        let word = words.next();
        if matches!(word, None | Some("machine" | "default"))
            && let Some(found) = login(&entry)
        {
            return Some(found);
        }
        match word? {
            "machine" => entry = (words.next()?.eq_ignore_ascii_case(host), None, None),
            "default" => entry = (true, None, None),
            "login" => entry.1 = Some(words.next()?),
            "password" => entry.2 = Some(words.next()?),
            "account" => drop(words.next()),
            _ => {}
        }
    }
}

/// Return the words of a `.netrc` without comments and macros.
fn netrc_words(text: &str) -> impl Iterator<Item = &str> {
    let mut in_macro = false;
    let lines = text.lines().filter(move |line| {
        // An empty line ends a macro.
        in_macro = (in_macro || line.trim_start().starts_with("macdef")) && !line.trim().is_empty();
        !in_macro && !line.trim_start().starts_with('#')
    });
    lines.flat_map(str::split_ascii_whitespace)
}

/// Return the keys of S3 from the environment, or from the profile.
///
/// # Errors
/// No keys, or an unreadable file.
pub(super) fn s3_keys() -> Result<S3Keys, FileError> {
    if let (Some(id), Some(secret)) = (
        text_variable("AWS_ACCESS_KEY_ID"),
        text_variable("AWS_SECRET_ACCESS_KEY"),
    ) {
        let session = text_variable("AWS_SESSION_TOKEN").map(|token| Secret(token.into_bytes()));
        let secret = Secret(secret.into_bytes());
        return Ok(S3Keys {
            id,
            secret,
            session,
        });
    }
    let profile = profile();
    let path = path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    let text = path.as_deref().map(read).transpose()?.flatten();
    let value = |name| ini_value(text.as_deref()?, &profile, name).map(str::to_owned);
    match (value("aws_access_key_id"), value("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Ok(S3Keys {
            id,
            secret: Secret(secret.into_bytes()),
            session: value("aws_session_token").map(|token| Secret(token.into_bytes())),
        }),
        _ => Err(FileError::new(
            ErrorKind::Permission,
            format!(
                "expected keys of S3, found none; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write the section `{profile}` of ~/.aws/credentials"
            ),
        )),
    }
}

fn profile() -> String {
    text_variable("AWS_PROFILE").unwrap_or_else(|| "default".into())
}

/// Return the region for the signature.
///
/// # Errors
/// An unreadable file.
pub(super) fn s3_region() -> Result<String, FileError> {
    if let Some(region) =
        text_variable("AWS_REGION").or_else(|| text_variable("AWS_DEFAULT_REGION"))
    {
        return Ok(region);
    }
    let path = path("AWS_CONFIG_FILE", ".aws/config");
    let text = path.as_deref().map(read).transpose()?.flatten();
    let section = match profile() {
        profile if profile == "default" => profile,
        profile => format!("profile {profile}"),
    };
    let region = text
        .as_deref()
        .and_then(|text| ini_value(text, &section, "region"));
    Ok(region.unwrap_or(DEFAULT_REGION).to_owned())
}

/// Return a value of a section.
fn ini_value<'t>(text: &'t str, section: &str, name: &str) -> Option<&'t str> {
    let mut within = false;
    for line in text.lines().map(str::trim) {
        if let Some(title) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            within = title.trim() == section;
        } else if within
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == name
        {
            return Some(value.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netrc_provides_the_login_of_a_host() {
        let text = "# machine h login no password no\nmachine h login u\n password p\nmacdef init\nmachine x login y password z\n\n\
            machine h login v password q account a machine g password only\ndefault login anonymous password me@x";
        let found = |host, user: Option<&str>| {
            let login = netrc_login(text, host, user.map(str::as_bytes));
            login.map(|(user, password)| {
                let text = |bytes| String::from_utf8(bytes).expect("text");
                format!("{}:{}", text(user), text(password.0))
            })
        };
        assert_eq!(found("H", None).as_deref(), Some("u:p"));
        assert_eq!(found("h", Some("v")).as_deref(), Some("v:q"));
        assert_eq!(found("g", None).as_deref(), Some("anonymous:me@x"));
        assert_eq!(found("x", None).as_deref(), Some("anonymous:me@x"));
        assert_eq!(found("h", Some("w")), None);
    }

    #[test]
    fn a_value_belongs_to_its_section() {
        let text = "[default]\nregion = a\n[profile x]\n region=b\n# region = c\n";
        assert_eq!(ini_value(text, "default", "region"), Some("a"));
        assert_eq!(ini_value(text, "profile x", "region"), Some("b"));
        assert_eq!(ini_value(text, "x", "region"), None);
    }
}
