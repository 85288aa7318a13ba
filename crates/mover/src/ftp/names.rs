//! Names at servers: of what is in a directory, and of what is not whole.

use std::path::PathBuf;

use venturi_gridftp::{Error, Path};

use super::places::Spot;
use crate::temporary::Token;

/// What is in a directory under this name.
///
/// # Errors
/// A name that no command can carry.
pub(crate) fn below(folder: &Path, name: &[u8]) -> Result<Path, Error> {
    let slash: &[u8] = if folder.as_bytes().ends_with(b"/") {
        b""
    } else {
        b"/"
    };
    Path::new([folder.as_bytes(), slash, name].concat())
}

/// The name of a copy while it is not whole.
///
/// # Errors
/// If that is too long.
pub(crate) fn part(to: &Path, token: Token) -> Result<Path, Error> {
    let (folder, name) = to.split();
    below(&folder, token.part(name).as_bytes())
}

/// The name of a copy of this version of a source while it is not whole.
///
/// # Errors
/// If that is too long.
pub(crate) fn part_of_version(to: &Path, token: Token, version: &str) -> Result<Path, Error> {
    let (folder, name) = to.split();
    let name = [name, b"\0", version.as_bytes()].concat();
    below(&folder, token.part(&name).as_bytes())
}

/// The names of a copy's temporary files follow from its two places.
pub(crate) fn token(from: &Spot, to: &Spot) -> Token {
    let absolute = |spot: &Spot| match spot.server {
        Some(_) => {
            let text = spot
                .shown()
                .to_string_lossy()
                .trim_end_matches('/')
                .to_owned();
            PathBuf::from(text)
        }
        None => {
            let path = spot.here();
            let path = std::path::absolute(&path).unwrap_or(path);
            path.components().collect()
        }
    };
    Token::new(&absolute(from), &absolute(to))
}

/// The directory at the server that tells that a tree is not done.
pub(crate) fn journal(from: &Spot, to: &Spot) -> Spot {
    to.join(token(from, to).journal().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_below_the_root_has_one_slash() {
        let path = |text: &str| Path::new(text).expect("a path");
        let check = |folder: &str, expected: &str| {
            let found = below(&path(folder), b"name").expect("a path");
            assert_eq!(found, path(expected));
        };
        check("/", "/name");
        check("/a", "/a/name");
        check("/a/", "/a/name");
        let token = Token::new("/x".as_ref(), "/y".as_ref());
        for (to, folder) in [("/name", "/"), ("/a/name", "/a")] {
            let part = part(&path(to), token).expect("a path");
            assert_eq!(part.split().0, path(folder));
            assert!(!part.as_bytes().starts_with(b"//"));
            let of = |version| part_of_version(&path(to), token, version).expect("a path");
            assert_eq!((of("1").split().0, of("1")), (path(folder), of("1")));
            assert!(of("1") != of("2") && of("1") != part);
        }
    }
}
