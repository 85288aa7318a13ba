//! Folders that hold the files of one transfer and no others, for tools that take whole folders: hard links to the files, and where
//! all is to end in `/dev/null`, symbolic links to that.
//!
//! A hard link is the file itself: same blocks, same page cache. A data set's own folder will not do, as it may hold more files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use venturi_plan::Start;

use crate::ends::End;
use crate::receiver::Shares;

/// Below the place of the files: a hard link cannot leave their file system, and the server serves what is in the place.
pub(crate) const FOLDER: &str = ".venturi-folders";

/// Names that are tried for a folder.
const MOST_NAMES: u32 = 10_000;

/// Where the folders of one transfer come to be.
#[derive(Debug)]
pub(crate) struct Folders {
    /// [`FOLDER`] in the place of the sources.
    pub(crate) beside_sources: End,
    /// Where links to `/dev/null` go, as the receiver sees it; none where the files come to a place.
    pub(crate) sinks: Option<End>,
    /// The number of the transfer in the run.
    pub(crate) task: u64,
}

impl Folders {
    /// Makes the folder that the tool reads, and adds it to `made`.
    ///
    /// # Errors
    /// In words, when the agent does not see the files, or cannot link them.
    pub(crate) fn of_sources(
        &self,
        source: &End,
        shares: &Shares,
        made: &mut Vec<PathBuf>,
    ) -> Result<End, String> {
        let (Some(files), Some(_)) = (&source.location, &self.beside_sources.location) else {
            return Err(
                "source: expected files that this agent sees, for a folder of links to them, found them on another machine; \
                 run the mover there, or have it take a list"
                    .into(),
            );
        };
        let folder = self.make(&self.beside_sources, made)?;
        let path = &folder.location.as_ref().ok_or("no folder")?.path;
        for name in shares.names() {
            fs::hard_link(files.path.join(&name), path.join(&name)).map_err(|error| {
                format!(
                    "cannot link `{}` into `{}`: {error}; a tool that takes whole folders needs a file system with hard links, \
                     have it take a list",
                    files.path.join(&name).display(),
                    path.display()
                )
            })?;
        }
        Ok(folder)
    }

    /// Makes the folder that the tool writes to where all is to end in `/dev/null`, and adds it to `made`.
    ///
    /// # Errors
    /// In words, when it cannot be made.
    pub(crate) fn of_sinks(
        &self,
        shares: &Shares,
        made: &mut Vec<PathBuf>,
    ) -> Result<Option<End>, String> {
        let Some(above) = &self.sinks else {
            return Ok(None);
        };
        let folder = self.make(above, made)?;
        let path = &folder.location.as_ref().ok_or("no folder")?.path;
        for name in shares.names() {
            symlink("/dev/null", path.join(name))
                .map_err(|error| format!("cannot make links in `{}`: {error}", path.display()))?;
        }
        Ok(Some(folder))
    }

    /// Makes a folder that nobody has made before; another agent, or a run that was killed, may have used the number.
    fn make(&self, above: &End, made: &mut Vec<PathBuf>) -> Result<End, String> {
        let location = above.location.as_ref().ok_or("no folder")?;
        let told =
            |path: &Path, error: io::Error| format!("cannot make `{}`: {error}", path.display());
        for again in 0..MOST_NAMES {
            // Made anew each time: whoever removes the last folder in it removes it as well.
            fs::create_dir_all(&location.path).map_err(|error| told(&location.path, error))?;
            let name = format!("{}-{again}", self.task);
            let (folder, path) = (above.entry(&name), location.path.join(&name));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(told(&path, error)),
                Ok(()) => {
                    made.push(path);
                    return Ok(folder);
                }
            }
        }
        Err(format!(
            "cannot make a new folder in `{}`",
            location.path.display()
        ))
    }
}

/// Removes what a killed run has left in the places of this host that lie in its scratch directory, where nobody else runs.
pub(crate) fn remove_left_behind(start: &Start) {
    for place in start.header.places.values() {
        if place.host == start.host && Path::new(&place.path).is_relative() {
            let folder = Path::new(&start.scratch).join(&place.path).join(FOLDER);
            // Links to files that stay: what cannot be removed costs nothing but its name.
            let _ = fs::remove_dir_all(folder);
        }
    }
}
