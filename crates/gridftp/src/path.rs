//! File names: all bytes except CR, LF and NUL, which a control connection cannot carry.

use crate::{FtpError, error::excerpt};

/// Maximum bytes of a path, as in Linux.
pub const MAX_PATH_BYTES: usize = 4096;

/// A path in the notation of the peer. Never empty, and without CR, LF and NUL, which could turn
/// one command into two.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<u8>);

impl Path {
    /// Creates a path from bytes.
    ///
    /// # Errors
    /// If the path is empty, longer than [`MAX_PATH_BYTES`], or contains CR, LF or NUL.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, FtpError> {
        let bytes = bytes.into();
        let wrong = bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if bytes.is_empty() || wrong {
            return Err(FtpError::malformed(
                "path",
                "one without line end and NUL",
                &bytes,
            ));
        }
        if bytes.len() > MAX_PATH_BYTES {
            return Err(FtpError::Limit {
                context: "bytes of a path",
                limit: MAX_PATH_BYTES as u64,
            });
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes of the path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns `true` if an unprotected control connection preserves the path. Globus servers
    /// silently drop bytes from 0x80 there, so `zéz` becomes `zz`.
    #[must_use]
    pub fn is_ascii(&self) -> bool {
        self.0.is_ascii()
    }

    /// Resolves the path in the directory `current`. The result is absolute, without `.`, `..` and
    /// doubled slashes. The parent of the root is the root. Symbolic links are unknown here; the
    /// driver must confine them.
    ///
    /// # Errors
    /// If the result is longer than [`MAX_PATH_BYTES`].
    pub fn normalised(&self, current: &Self) -> Result<Self, FtpError> {
        let relative = !self.0.starts_with(b"/");
        let before = if relative { &current.0[..] } else { b"" };
        let mut names: Vec<&[u8]> = Vec::new();
        for name in [before, &self.0]
            .iter()
            .flat_map(|part| part.split(|&byte| byte == b'/'))
        {
            match name {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                _ => names.push(name),
            }
        }
        let mut bytes = vec![b'/'];
        bytes.extend(names.join(&b'/'));
        Self::new(bytes)
    }

    /// Returns the root.
    #[must_use]
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Returns the directory and the last name of a normalised path. The root is its own directory
    /// and has an empty name.
    #[must_use]
    pub fn split(&self) -> (Self, &[u8]) {
        let cut = self.0.iter().rposition(|&byte| byte == b'/');
        let (directory, name) = match cut {
            Some(cut) => (&self.0[..cut.max(1)], &self.0[cut + 1..]),
            None => (&b"."[..], &self.0[..]),
        };
        (Self(directory.to_vec()), name)
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self}")
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&excerpt(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).unwrap()
    }

    #[test]
    fn paths_end_below_the_root() {
        for (from, given, expected) in [
            ("/", "a", "/a"),
            ("/a/b", "../c", "/a/c"),
            ("/a", "../../../etc/passwd", "/etc/passwd"),
            ("/a", "/b//./c/", "/b/c"),
            ("/a", "..", "/"),
            ("/a", "/..", "/"),
            ("/", "...", "/..."),
        ] {
            let found = path(given).normalised(&path(from)).unwrap();
            assert_eq!(found, path(expected), "{given} from {from}");
        }
    }

    #[test]
    fn a_line_end_in_a_path_is_rejected_because_it_would_start_a_second_command() {
        for wrong in ["a\r\nDELE b", "a\nb", "a\0", ""] {
            Path::new(wrong).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_root(
            from in "/[a./]{0,12}", given in "[a-b./]{1,20}",
        ) {
            let found = path(&given).normalised(&path(&from).normalised(&Path::root()).unwrap());
            let found = found.unwrap();
            let text = String::from_utf8(found.as_bytes().to_vec()).unwrap();
            prop_assert!(text.starts_with('/'));
            prop_assert!(text.split('/').all(|name| name != ".." && name != "."));
            prop_assert!(!text.contains("//"));
        }
    }
}
