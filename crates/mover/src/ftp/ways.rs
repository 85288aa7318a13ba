//! Directories that lead to copies at a server.

use std::collections::HashMap;
use std::path::PathBuf;

use venturi_gridftp::{Command, Path};

use super::desk::{Desk, Gone};
use super::failures;
use super::shared::Shared;

/// Directories above copies that were made, or found, or cannot be.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    known: HashMap<Vec<u8>, bool>,
}

impl Ways {
    /// Makes the directories that lead to a copy. Whether they are there; of the first that cannot be made it is told why.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn make(
        &mut self,
        shared: &Shared<'_>,
        desk: &Desk,
        to: &Path,
        place: &dyn Fn(&Path) -> PathBuf,
    ) -> Result<bool, Gone> {
        let (parent, _) = to.split();
        if let Some(&there) = self.known.get(parent.as_bytes()) {
            return Ok(there);
        }
        // Not every server tells what its root is.
        let mut there = parent.as_bytes() == b"/" || desk.see(&parent)?.is_some();
        // Each turn down has a name less.
        if !there && parent != *to && self.make(shared, desk, &parent, place)? {
            let reply = desk.call(&Command::Mkd(parent.clone()))?;
            // Somebody else may have made it meanwhile.
            there = reply.is_success() || desk.see(&parent)?.is_some();
            if !there {
                shared.tell(&failures::no_folder(place(&parent), reply.to_string()));
            }
        }
        self.known.insert(parent.as_bytes().to_vec(), there);
        Ok(there)
    }
}
