//! Directories of other hosts that are known from the responses to `clear`: a new file there needs no request before its
//! transfer.
//!
//! Requests take round trips to the controller and to the host. Between the transfers of a loop,
//! they would be part of the time of the trial.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use venturi_plan::{Name, Removal};

use crate::partial_files;
use crate::storages::Location;

/// Directories with the names of their entries.
#[derive(Debug, Default)]
pub(crate) struct ClearedDirectories {
    /// Entries that may exist, by host and path. All other names are free.
    entries: BTreeMap<(Name, PathBuf), BTreeSet<String>>,
}

impl ClearedDirectories {
    /// Return the rule for a single-file destination that does not exist, in a directory that does.
    pub(crate) fn rule(&self, location: &Location, keep: bool) -> Option<Removal> {
        let (key, name) = split(location)?;
        let entries = self.entries.get(&key)?;
        if entries.contains(name) || partial_files::any(entries, name) {
            return None;
        }
        Some(if keep { Removal::Keep } else { Removal::Remove })
    }

    /// Learn the entries of the directory of a destination, from the response to `clear`.
    pub(crate) fn learn(&mut self, location: &Location, siblings: Option<Vec<String>>) {
        let Some((key, _)) = split(location) else {
            return;
        };
        let Some(siblings) = siblings else {
            self.entries.remove(&key);
            return;
        };
        // Transfers that have started since then are not in the list.
        self.entries.entry(key).or_default().extend(siblings);
    }

    /// Note that a transfer may write to this destination.
    pub(crate) fn occupy(&mut self, location: &Location) {
        if let Some((key, name)) = split(location)
            && let Some(entries) = self.entries.get_mut(&key)
        {
            entries.insert(name.to_owned());
        }
    }

    /// Note that this destination has been removed.
    pub(crate) fn vacate(&mut self, location: &Location) {
        if let Some((key, name)) = split(location)
            && let Some(entries) = self.entries.get_mut(&key)
        {
            entries.remove(name);
        }
    }
}

fn split(location: &Location) -> Option<((Name, PathBuf), &str)> {
    let host = location.host.clone()?;
    let directory = location.path.parent().map(Path::to_owned)?;
    Some(((host, directory), location.path.file_name()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_that_cannot_exist_needs_no_clear_request() {
        let at = |host: &str, path: &str| Location {
            host: Some(host.into()),
            path: path.into(),
            in_scratch: true,
        };
        let mut cleared = ClearedDirectories::default();
        let rule = |cleared: &ClearedDirectories, path| cleared.rule(&at("b", path), false);
        assert_eq!(rule(&cleared, "/out/1"), None, "an unknown directory");
        cleared.learn(&at("b", "/out/1"), Some(vec!["left".into()]));
        cleared.occupy(&at("b", "/out/1"));
        assert_eq!(rule(&cleared, "/out/1"), None, "a transfer writes to it");
        assert_eq!(rule(&cleared, "/out/left"), None, "of a killed run");
        assert_eq!(rule(&cleared, "/out/2"), Some(Removal::Remove));
        assert_eq!(cleared.rule(&at("b", "/out/2"), true), Some(Removal::Keep));
        assert_eq!(cleared.rule(&at("c", "/out/2"), false), None);
        assert_eq!(rule(&cleared, "/other/2"), None);
        let partial = vec![".venturi-served-2d711642b726b044.part".into()];
        cleared.learn(&at("b", "/out/1"), Some(partial));
        assert_eq!(rule(&cleared, "/out/x"), None, "an upload that was cut off");
        cleared.vacate(&at("b", "/out/1"));
        assert_eq!(rule(&cleared, "/out/1"), Some(Removal::Remove));
        cleared.learn(&at("b", "/out/2"), None);
        assert_eq!(rule(&cleared, "/out/3"), None, "too many entries to know");
    }
}
