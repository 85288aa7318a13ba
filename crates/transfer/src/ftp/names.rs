//! Remote names: children of directories, and temporary names.

use std::path::PathBuf;

use venturi_gridftp::{FtpError, Path};

use super::resolve_paths::EndpointLocation;
use crate::temporary::Token;

/// Returns the path of a child.
///
/// # Errors
/// A name that FTP commands cannot contain.
pub(crate) fn below(directory: &Path, name: &[u8]) -> Result<Path, FtpError> {
    let slash: &[u8] = if directory.as_bytes().ends_with(b"/") {
        b""
    } else {
        b"/"
    };
    Path::new([directory.as_bytes(), slash, name].concat())
}

/// Returns the temporary name of a copy.
///
/// # Errors
/// The name is too long.
pub(crate) fn part(to: &Path, token: Token) -> Result<Path, FtpError> {
    let (directory, name) = to.split();
    below(&directory, token.part(name).as_bytes())
}

/// Returns the temporary name of a copy for this version of the source.
///
/// # Errors
/// The name is too long.
pub(crate) fn part_of_version(to: &Path, token: Token, version: &str) -> Result<Path, FtpError> {
    let (directory, name) = to.split();
    let name = [name, b"\0", version.as_bytes()].concat();
    below(&directory, token.part(&name).as_bytes())
}

/// Returns the token for temporary names, from source and destination.
pub(crate) fn token(from: &EndpointLocation, to: &EndpointLocation) -> Token {
    let absolute = |location: &EndpointLocation| match location.server {
        Some(_) => {
            let text = location
                .shown()
                .to_string_lossy()
                .trim_end_matches('/')
                .to_owned();
            PathBuf::from(text)
        }
        None => {
            let path = location.local_path();
            let path = std::path::absolute(&path).unwrap_or(path);
            path.components().collect()
        }
    };
    Token::new(&absolute(from), &absolute(to))
}

/// Returns the path of the remote journal directory of an unfinished copy.
pub(crate) fn journal(from: &EndpointLocation, to: &EndpointLocation) -> EndpointLocation {
    to.join(token(from, to).journal().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_below_the_root_has_one_slash() {
        let path = |text: &str| Path::new(text).expect("a path");
        let check = |directory: &str, expected: &str| {
            let found = below(&path(directory), b"name").expect("a path");
            assert_eq!(found, path(expected));
        };
        check("/", "/name");
        check("/a", "/a/name");
        check("/a/", "/a/name");
        let token = Token::new("/x".as_ref(), "/y".as_ref());
        for (to, directory) in [("/name", "/"), ("/a/name", "/a")] {
            let part = part(&path(to), token).expect("a path");
            assert_eq!(part.split().0, path(directory));
            assert!(!part.as_bytes().starts_with(b"//"));
            let of = |version| part_of_version(&path(to), token, version).expect("a path");
            assert_eq!((of("1").split().0, of("1")), (path(directory), of("1")));
            assert!(of("1") != of("2") && of("1") != part);
        }
    }
}
