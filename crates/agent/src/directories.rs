//! Directories with only the files of one transfer, for tools that copy whole directories. They
//! contain hard links to the files or, for a transfer to `null:`, symbolic links to `/dev/null`.
//! The files can be on another host.
//!
//! A hard link is the file itself, with the same blocks and page cache. The directory of a dataset
//! can contain more files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use venturi_plan::{
    FileOperation, FileSet, LinkOperation, LinkOutcome, OperationOutcome, Removal, RemoveOperation,
    RemovedDestination, Start,
};

use crate::ends::ResolvedEndpoint;
use crate::operations;
use crate::requests::{Requests, wrong_outcome};
use crate::storages::{Location, utf8};

/// Directory below the storage of the files, because a hard link cannot leave their file system,
/// and the server serves the contents of the storage.
pub(crate) const DIRECTORY: &str = ".venturi-folders";

/// Maximum number of attempts to find a free name for a directory.
const MAX_NAMES: u32 = 10_000;

/// Locations for the directories of one transfer.
#[derive(Debug)]
pub(crate) struct Directories {
    /// [`DIRECTORY`] in the storage of the sources.
    pub(crate) next_to_sources: ResolvedEndpoint,
    /// Location for links to `/dev/null`, as the receiver sees it; none if the files go to a storage.
    pub(crate) sinks: Option<ResolvedEndpoint>,
    /// The number of the transfer in the run.
    pub(crate) task: u64,
    /// Requests for files of other hosts.
    pub(crate) requests: Requests,
    /// Time for an operation on another host.
    pub(crate) timeout: Duration,
}

impl Directories {
    /// Create the directory that the tool reads, and add it to `made`.
    ///
    /// # Errors
    /// A message if operations on the files are impossible, or they cannot be linked.
    pub(crate) fn of_sources(
        &self,
        source: &ResolvedEndpoint,
        files: &FileSet,
        made: &mut Vec<Location>,
    ) -> Result<ResolvedEndpoint, String> {
        let Some(location) = &source.location else {
            return Err(
                "source: expected files of a host of the plan, to create a directory of links to them, found \
                 other files; use a mover that reads a list of files"
                    .into(),
            );
        };
        self.make(&self.next_to_sources, files, Some(&location.path), made)
    }

    /// Create the directory that the tool writes to in a transfer to `null:`, and add it to `made`.
    ///
    /// # Errors
    /// A message if it cannot be created.
    pub(crate) fn of_sinks(
        &self,
        files: &FileSet,
        made: &mut Vec<Location>,
    ) -> Result<Option<ResolvedEndpoint>, String> {
        let make = |above| self.make(above, files, None, made);
        self.sinks.as_ref().map(make).transpose()
    }

    fn make(
        &self,
        above: &ResolvedEndpoint,
        files: &FileSet,
        source: Option<&Path>,
        made: &mut Vec<Location>,
    ) -> Result<ResolvedEndpoint, String> {
        let location = above.location.as_ref();
        let location = location.ok_or("expected a storage of a host of the plan, found none")?;
        let operation = LinkOperation {
            directory: utf8(&location.path)?.to_owned(),
            name: self.task.to_string(),
            files: files.clone(),
            source: source.map(utf8).transpose()?.map(str::to_owned),
        };
        let outcome = match &location.host {
            None => link(&operation)?,
            Some(host) => {
                let response = self.requests.send(host, FileOperation::Link(operation));
                match response.wait(Some(self.timeout))? {
                    OperationOutcome::Linked(outcome) => outcome,
                    other => return Err(wrong_outcome(host, &other)),
                }
            }
        };
        let directory = above.entry(&outcome.name);
        made.extend(directory.location.clone());
        Ok(directory)
    }
}

/// Create a new directory of links on this host.
///
/// # Errors
/// A message if it cannot be created; then the directory does not exist.
pub(crate) fn link(operation: &LinkOperation) -> Result<LinkOutcome, String> {
    let above = Path::new(&operation.directory);
    let name = create(above, &operation.name)?;
    let directory = above.join(&name);
    let linked = operation.files.names().try_for_each(|file| {
        let link = directory.join(&file);
        match &operation.source {
            None => symlink("/dev/null", &link)
                .map_err(|error| format!("cannot create links in `{}`: {error}", directory.display())),
            Some(source) => fs::hard_link(Path::new(source).join(&file), link).map_err(|error| {
                format!(
                    "cannot link `{source}/{file}` into `{}`: {error}; use a file system with hard links, or a \
                     mover that reads a list of files",
                    directory.display()
                )
            }),
        }
    });
    if linked.is_err() {
        let _ = fs::remove_dir_all(&directory);
        remove_empty(&directory);
    }
    linked.map(|()| LinkOutcome { name })
}

/// Create a new directory and return its name; another agent or a killed run may have used the number.
fn create(above: &Path, start: &str) -> Result<String, String> {
    let describe =
        |path: &Path, error: io::Error| format!("cannot create `{}`: {error}", path.display());
    for again in 0..MAX_NAMES {
        // Create it each time, because an agent that removes the last directory in it removes it as
        // well.
        fs::create_dir_all(above).map_err(|error| describe(above, error))?;
        let name = format!("{start}-{again}");
        let path = above.join(&name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(describe(&path, error)),
            Ok(()) => return Ok(name),
        }
    }
    Err(format!(
        "cannot create a new directory in `{}`",
        above.display()
    ))
}

/// Remove lists and directories of links, on this host and on others.
pub(crate) fn remove_made(made: &[Location], requests: &Requests) {
    for location in made {
        let Some(path) = location.path.to_str() else {
            continue;
        };
        let operation = RemoveOperation {
            destinations: vec![RemovedDestination {
                path: path.to_owned(),
                files: None,
                removal: Removal::Remove,
                failed: false,
            }],
        };
        match &location.host {
            // A remaining list or link has a few bytes; the next run removes it at the latest.
            None => drop(operations::remove(&operation)),
            Some(host) => drop(
                requests
                    .send(host, FileOperation::Remove(operation))
                    .wait(None),
            ),
        }
    }
}

/// After the removal of a directory of links: remove [`DIRECTORY`] if it is empty.
pub(crate) fn remove_empty(path: &Path) {
    if let Some(above) = path.parent().filter(|above| above.ends_with(DIRECTORY)) {
        let _ = fs::remove_dir(above);
    }
}

/// Remove remains of a killed run from the storages of this host in its scratch directory, which no other run uses.
pub(crate) fn remove_stale(start: &Start) {
    for storage in start.header.storages.values() {
        if storage.host.as_ref() == Some(&start.host)
            && storage.url.is_none()
            && Path::new(&storage.path).is_relative()
        {
            let directory = Path::new(&start.scratch)
                .join(&storage.path)
                .join(DIRECTORY);
            // The linked files stay, so a link that cannot be removed leaves only its name.
            let _ = fs::remove_dir_all(directory);
        }
    }
}
