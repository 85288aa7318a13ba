//! That of uploads of the same to the same place one runs at a time on this host: they have the same temporary names, and each would write
//! into what the other names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::ftp::names;
use crate::ftp::places::Root;
use crate::temporary::Token;

/// Places that are claimed one by one, each by a socket; of more only the same list is seen to be the same.
const MOST_CLAIMS: usize = 128;

/// What this process alone uploads. The kernel gives it up with the process, however that ends.
#[derive(Debug, Default)]
pub(super) struct Alone {
    claims: Vec<UnixListener>,
}

impl Alone {
    /// Claims all roots. Gives the first that another copy has.
    pub(super) fn claim<'r>(&mut self, roots: &'r [Root]) -> Result<(), &'r Root> {
        let token = |root: &Root| names::token(&root.from, &root.to);
        if roots.len() <= MOST_CLAIMS {
            let mut claimed = HashSet::new();
            let mut taken = |root: &&Root| {
                let token = token(root);
                // The same twice in one order is ours both times.
                claimed.insert(token.journal()) && !self.has(token)
            };
            return match roots.iter().find(|root| taken(root)) {
                Some(root) => Err(root),
                None => Ok(()),
            };
        }
        let both = |all: Token, next: Token| {
            let [all, next] = [all, next].map(Token::journal);
            let path = |name| Path::new(OsStr::from_bytes(name));
            Token::new(path(all.as_bytes()), path(next.as_bytes()))
        };
        match roots.iter().map(token).reduce(both) {
            Some(all) if !self.has(all) => roots.first().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    /// Whether nobody else has it. A host that has no such names lets everybody.
    fn has(&mut self, token: Token) -> bool {
        let name = SocketAddr::from_abstract_name(token.journal().as_bytes());
        match name.and_then(|name| UnixListener::bind_addr(&name)) {
            Ok(claim) => self.claims.push(claim),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return false,
            Err(_) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_had_by_one_at_a_time() {
        let token = |text: &str| Token::new(Path::new(text), Path::new("alone"));
        let (mut one, mut other) = (Alone::default(), Alone::default());
        assert!(one.has(token("a")) && !other.has(token("a")) && other.has(token("b")));
        drop(one);
        assert!(other.has(token("a")));
    }
}
