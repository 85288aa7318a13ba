//! Lock for uploads: on this host, only one upload of a source to a destination runs at a time, because both would use the same temporary
//! names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::ftp::names;
use crate::ftp::resolve_paths::FtpRoot;
use crate::temporary::Token;

/// Maximum number of separate locks, each a socket; for more sources, only the same list is detected.
const MAX_CLAIMS: usize = 128;

/// Locks of this process. The kernel releases them when the process ends.
#[derive(Debug, Default)]
pub(super) struct UploadLock {
    claims: Vec<UnixListener>,
}

impl UploadLock {
    /// Locks all roots. Returns the first root that another copy has locked.
    pub(super) fn claim<'r>(&mut self, roots: &'r [FtpRoot]) -> Result<(), &'r FtpRoot> {
        let token = |root: &FtpRoot| names::token(&root.from, &root.to);
        if roots.len() <= MAX_CLAIMS {
            let mut claimed = HashSet::new();
            let mut is_taken = |root: &&FtpRoot| {
                let token = token(root);
                // The same pair twice in one copy is no conflict.
                claimed.insert(token.journal()) && !self.has(token)
            };
            return match roots.iter().find(|root| is_taken(root)) {
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

    /// True if no other process has the lock. Without abstract sockets, always true.
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
    fn a_token_is_held_by_one_lock_at_a_time() {
        let token = |text: &str| Token::new(Path::new(text), Path::new("alone"));
        let (mut one, mut other) = (UploadLock::default(), UploadLock::default());
        assert!(one.has(token("a")) && !other.has(token("a")) && other.has(token("b")));
        drop(one);
        assert!(other.has(token("a")));
    }
}
