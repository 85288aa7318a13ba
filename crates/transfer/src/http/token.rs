//! Discovery of the bearer token (WLCG Bearer Token Discovery 1.0, section 2).

use std::path::{Path, PathBuf};

use venturi_gridftp::Secret;

use crate::error::CopyError;

/// Maximum bytes of a token file: a token of 16 KiB would exceed the request head of servers.
const LARGEST: u64 = 16 << 10;

/// Environment and user of the process.
pub(crate) struct ProcessEnv<'s> {
    /// Return a variable; none if it is empty.
    pub(crate) variable: &'s dyn Fn(&str) -> Option<std::ffi::OsString>,
    /// Effective user ID.
    pub(crate) uid: u32,
    /// Directory for files of all users: `/tmp`.
    pub(crate) shared: &'s Path,
}

/// Return the token of the process, if it has one.
///
/// # Errors
/// An unusable token, because a copy without it would not match the command.
pub(crate) fn discovered(around: &ProcessEnv<'_>) -> Result<Option<Secret>, CopyError> {
    let variable = |name| (around.variable)(name).filter(|value| !value.is_empty());
    if let Some(token) = variable("BEARER_TOKEN") {
        let token = token.into_encoded_bytes();
        return sound(&token, Path::new("BEARER_TOKEN")).map(Some);
    }
    if let Some(file) = variable("BEARER_TOKEN_FILE") {
        let file = PathBuf::from(file);
        return read(&file, None)
            .and_then(|found| found.ok_or_else(|| rejected(&file, "no such file")))
            .map(Some);
    }
    let name = format!("bt_u{}", around.uid);
    if let Some(directory) = variable("XDG_RUNTIME_DIR")
        && let Some(token) = read(&Path::new(&directory).join(&name), Some(around.uid))?
    {
        return Ok(Some(token));
    }
    read(&around.shared.join(name), Some(around.uid))
}

/// Return the token of this process.
///
/// # Errors
/// As [`discovered`].
pub(crate) fn ours() -> Result<Option<Secret>, CopyError> {
    discovered(&ProcessEnv {
        variable: &|name| std::env::var_os(name),
        uid: rustix::process::geteuid().as_raw(),
        shared: Path::new("/tmp"),
    })
}

/// Read a token from a file. A file in a shared directory must belong to the user, because another user could plant
/// a token.
fn read(path: &Path, owner: Option<u32>) -> Result<Option<Secret>, CopyError> {
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let mut options = std::fs::OpenOptions::new();
    // Do not block on a pipe.
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let file = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(rejected(path, crate::error::describe(&error))),
        Ok(file) => file,
    };
    let metadata = file
        .metadata()
        .map_err(|error| rejected(path, crate::error::describe(&error)))?;
    if !metadata.is_file() {
        return Err(rejected(path, "a special file or directory"));
    }
    if owner.is_some_and(|owner| owner != metadata.uid()) {
        return Err(rejected(path, "a file of another user"));
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut text)
        .map_err(|error| rejected(path, crate::error::describe(&error)))?;
    sound(&text, path).map(Some)
}

/// Check a `token68` of RFC 7235: other characters could end the header field or start another.
pub(crate) fn sound(text: &[u8], from: &Path) -> Result<Secret, CopyError> {
    let text = text.trim_ascii();
    let fits = !text.is_empty() && text.len() as u64 <= LARGEST;
    let letters = text
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte));
    if fits && letters {
        Ok(Secret(text.to_vec()))
    } else {
        Err(rejected(from, "another type of file"))
    }
}

fn rejected(path: &Path, found: impl Into<String>) -> CopyError {
    CopyError::Location {
        location: path.to_owned(),
        expected: "a bearer token of letters, digits and -._~+/=",
        found: found.into(),
        advice: "get a token (`oidc-token`, `htgettoken`), unset the variable, or delete the file",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use super::*;
    use proptest::prelude::*;

    fn found(variables: &[(&str, String)], shared: &Path) -> Result<Option<Secret>, CopyError> {
        let variables: HashMap<_, _> = variables
            .iter()
            .map(|(name, value)| (*name, OsString::from(value)))
            .collect();
        discovered(&ProcessEnv {
            variable: &|name| variables.get(name).cloned(),
            uid: rustix::process::geteuid().as_raw(),
            shared,
        })
    }

    #[test]
    fn the_locations_are_searched_in_their_order() {
        let directory = tempfile::tempdir().expect("a folder");
        let (runtime, shared) = (directory.path().join("run"), directory.path().join("tmp"));
        let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
        for (path, text) in [(&runtime, " run.ti-me\n"), (&shared, "shared")] {
            std::fs::create_dir(path).expect("made");
            std::fs::write(path.join(&name), text).expect("written");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "in+file==\n").expect("written");
        let named = ("BEARER_TOKEN_FILE", file.display().to_string());
        let runtime = ("XDG_RUNTIME_DIR", runtime.display().to_string());
        let direct = ("BEARER_TOKEN", "direct".to_owned());
        let check = |variables: &[(&str, String)], expected: &str| {
            let token = found(variables, &shared).expect("sound").expect("one");
            assert_eq!(String::from_utf8_lossy(&token.0), expected);
        };
        check(&[direct, named.clone(), runtime.clone()], "direct");
        check(&[named.clone(), runtime.clone()], "in+file==");
        check(&[("BEARER_TOKEN", String::new()), runtime], "run.ti-me");
        check(&[], "shared");
        assert!(
            found(&[], &directory.path().join("none"))
                .expect("sound")
                .is_none()
        );
        let lost = ("BEARER_TOKEN_FILE", "/no/such/file".to_owned());
        assert!(found(&[lost], &shared).is_err());
    }

    #[test]
    fn tokens_that_could_start_another_header_field_are_rejected() {
        for text in [
            "sesame b",
            "sesame\r\nX: y",
            "sesame\0",
            "sesameä",
            "\"sesame\"",
        ] {
            let error = found(&[("BEARER_TOKEN", text.to_owned())], Path::new("/none"))
                .expect_err(text)
                .to_string();
            assert!(
                error.contains("BEARER_TOKEN") && !error.contains("sesame"),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = sound(&bytes, Path::new("x"));
        }
    }
}
