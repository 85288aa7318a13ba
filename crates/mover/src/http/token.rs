//! Where a bearer token is found (WLCG Bearer Token Discovery 1.0, section 2), and how long it lives.

use std::path::{Path, PathBuf};

use venturi_gridftp::Secret;

use crate::error::Error;

/// Bytes of a file of a token: one of 16 KiB would not fit into a server's head.
const LARGEST: u64 = 16 << 10;

/// What a process is given: its environment and who it is.
pub(crate) struct Surroundings<'s> {
    /// Reads a variable; one that is empty is none.
    pub(crate) variable: &'s dyn Fn(&str) -> Option<std::ffi::OsString>,
    /// The effective user.
    pub(crate) uid: u32,
    /// Where files of all users are: `/tmp`.
    pub(crate) shared: &'s Path,
}

/// The token of a process; none where there is none.
///
/// # Errors
/// If one is named that cannot be used: going on without would be another order than was given.
pub(crate) fn discovered(around: &Surroundings<'_>) -> Result<Option<Secret>, Error> {
    let variable = |name| (around.variable)(name).filter(|value| !value.is_empty());
    if let Some(token) = variable("BEARER_TOKEN") {
        let token = token.into_encoded_bytes();
        return sound(&token, Path::new("BEARER_TOKEN")).map(Some);
    }
    if let Some(file) = variable("BEARER_TOKEN_FILE") {
        let file = PathBuf::from(file);
        return read(&file, None)
            .and_then(|found| found.ok_or_else(|| refused(&file, "no such file")))
            .map(Some);
    }
    let name = format!("bt_u{}", around.uid);
    if let Some(folder) = variable("XDG_RUNTIME_DIR")
        && let Some(token) = read(&Path::new(&folder).join(&name), Some(around.uid))?
    {
        return Ok(Some(token));
    }
    read(&around.shared.join(name), Some(around.uid))
}

/// The token of this process.
///
/// # Errors
/// As [`discovered`].
pub(crate) fn ours() -> Result<Option<Secret>, Error> {
    discovered(&Surroundings {
        variable: &|name| std::env::var_os(name),
        uid: rustix::process::geteuid().as_raw(),
        shared: Path::new("/tmp"),
    })
}

/// Reads a token from a file. One that was found by its name in a folder of all users must belong to the user: another could have us use theirs.
fn read(path: &Path, owner: Option<u32>) -> Result<Option<Secret>, Error> {
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let mut options = std::fs::OpenOptions::new();
    // Not a pipe, which would have us wait.
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let file = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(path, crate::error::said(&error))),
        Ok(file) => file,
    };
    let facts = file
        .metadata()
        .map_err(|error| refused(path, crate::error::said(&error)))?;
    if !facts.is_file() {
        return Err(refused(path, "something else than a file"));
    }
    if owner.is_some_and(|owner| owner != facts.uid()) {
        return Err(refused(path, "a file of another user"));
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut text)
        .map_err(|error| refused(path, crate::error::said(&error)))?;
    sound(&text, path).map(Some)
}

/// A token is `token68` of RFC 7235: what else is there would end the header field, or begin another.
pub(crate) fn sound(text: &[u8], from: &Path) -> Result<Secret, Error> {
    let text = text.trim_ascii();
    let fits = !text.is_empty() && text.len() as u64 <= LARGEST;
    let letters = text
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte));
    if fits && letters {
        Ok(Secret(text.to_vec()))
    } else {
        Err(refused(from, "something else"))
    }
}

fn refused(place: &Path, found: impl Into<String>) -> Error {
    Error::Place {
        place: place.to_owned(),
        expected: "a bearer token of letters, digits and -._~+/=",
        found: found.into(),
        advice: "get one (`oidc-token`, `htgettoken`), or unset the variable, or remove the file",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use super::*;
    use proptest::prelude::*;

    fn found(variables: &[(&str, String)], shared: &Path) -> Result<Option<Secret>, Error> {
        let variables: HashMap<_, _> = variables
            .iter()
            .map(|(name, value)| (*name, OsString::from(value)))
            .collect();
        discovered(&Surroundings {
            variable: &|name| variables.get(name).cloned(),
            uid: rustix::process::geteuid().as_raw(),
            shared,
        })
    }

    #[test]
    fn the_places_are_searched_in_their_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let (runtime, shared) = (folder.path().join("run"), folder.path().join("tmp"));
        let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
        for (place, text) in [(&runtime, " run.ti-me\n"), (&shared, "shared")] {
            std::fs::create_dir(place).expect("made");
            std::fs::write(place.join(&name), text).expect("written");
        }
        let file = folder.path().join("file");
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
            found(&[], &folder.path().join("none"))
                .expect("sound")
                .is_none()
        );
        let lost = ("BEARER_TOKEN_FILE", "/no/such/file".to_owned());
        assert!(found(&[lost], &shared).is_err());
    }

    #[test]
    fn what_could_begin_another_header_field_is_no_token() {
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
