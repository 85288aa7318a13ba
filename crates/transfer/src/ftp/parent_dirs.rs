//! Creation of remote parent directories.

use std::collections::HashMap;
use std::path::PathBuf;

use venturi_gridftp::{FtpCommand, Path};

use super::failures;
use super::session_handle::{SessionClosed, SessionHandle};
use super::shared::Shared;

/// Known state of remote parent directories.
#[derive(Debug, Default)]
pub(crate) struct ParentDirs {
    known: HashMap<Vec<u8>, bool>,
}

impl ParentDirs {
    /// Creates the parent directories of a copy. Returns false, after a report, if one of them cannot be created.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) fn make(
        &mut self,
        shared: &Shared<'_>,
        handle: &SessionHandle,
        to: &Path,
        display_url: &dyn Fn(&Path) -> PathBuf,
    ) -> Result<bool, SessionClosed> {
        let (parent, _) = to.split();
        if let Some(&exists) = self.known.get(parent.as_bytes()) {
            return Ok(exists);
        }
        // Some servers do not report metadata of their root directory.
        let mut exists = parent.as_bytes() == b"/" || handle.stat(&parent)?.is_some();
        // Each recursion removes one name.
        if !exists && parent != *to && self.make(shared, handle, &parent, display_url)? {
            let reply = handle.call(&FtpCommand::Mkd(parent.clone()))?;
            // Another client can have created it in the meantime.
            exists = reply.is_success() || handle.stat(&parent)?.is_some();
            if !exists {
                shared.report_failure(&failures::no_directory(
                    display_url(&parent),
                    reply.to_string(),
                ));
            }
        }
        self.known.insert(parent.as_bytes().to_vec(), exists);
        Ok(exists)
    }
}
