//! Many files in one call: the list for the tool (`{list}`), the directories with only these files, and the
//! destination directory.
//!
//! A thread does all this work before the transfer is armed, so that the measured time excludes it
//! and no other transfer is delayed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use venturi_plan::{Call, FileSet, Header, Removal, Sizes, Transfer, file_name};

use crate::directories::{self, Directories};
use crate::ends::ResolvedEndpoint;
use crate::launch::ClearJob;
use crate::requests::Requests;
use crate::storages::Location;

/// Directory of the lists, below the scratch directory of the agent.
const DIRECTORY: &str = ".venturi-lists";

/// A list to create.
#[derive(Debug)]
pub(crate) struct List {
    path: PathBuf,
    call: Call,
    /// Source and destination directories of the files.
    source: ResolvedEndpoint,
    destination: ResolvedEndpoint,
    files: FileSet,
    /// Preparation of the destination; none if no operations on it are possible.
    clear: Option<ClearJob>,
    directories: Option<Directories>,
    requests: Requests,
}

/// A created list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    /// The source and destination directories, in the form that the tool receives.
    pub(crate) source: ResolvedEndpoint,
    pub(crate) destination: ResolvedEndpoint,
    /// Rule for the removal of the directory; none if no operations on it are possible.
    pub(crate) removal: Option<Removal>,
    /// The list and the directories of links, to remove after the trial.
    pub(crate) made: Vec<Location>,
}

/// Returns the files of a transfer of several files: their numbers and sizes.
pub(crate) fn file_set(header: &Header, transfer: &Transfer) -> FileSet {
    let bytes = transfer.bytes.get();
    let mixed = header
        .dataset_of(&transfer.source)
        .filter(|dataset| !dataset.mix.is_empty());
    let equal = || {
        bytes
            .is_multiple_of(transfer.files)
            .then(|| Sizes::equal(bytes / transfer.files))
    };
    FileSet {
        // `zero:` has no numbers, so its files are counted from 0.
        first: transfer.source.numbered().map_or(0, |(_, first)| first),
        files: transfer.files,
        sizes: mixed.map_or_else(equal, |dataset| Some(dataset.sizes())),
    }
}

impl List {
    /// Returns the list of a transfer of several files between these endpoints; `task` is the
    /// number of the transfer in the run.
    pub(crate) fn new(
        scratch: &Path,
        task: u64,
        call: &Call,
        (source, destination): (ResolvedEndpoint, &ResolvedEndpoint),
        clear: Option<ClearJob>,
        (files, directories): (FileSet, Option<Directories>),
        requests: &Requests,
    ) -> Self {
        Self {
            path: scratch.join(DIRECTORY).join(format!("{task}.txt")),
            call: call.clone(),
            source,
            destination: destination.clone(),
            files,
            clear,
            directories,
            requests: requests.clone(),
        }
    }

    /// Checks that the files exist, creates their new directory and their directories of links, and
    /// writes the list.
    ///
    /// # Errors
    /// A message; the list is then removed.
    pub(crate) fn make(mut self) -> Result<Listed, String> {
        self.check_sources()?;
        let cleared = self.clear.take().map(ClearJob::run).transpose()?;
        let mut made = vec![Location {
            host: None,
            path: self.path.clone(),
            in_scratch: true,
        }];
        let whole = self.gather(&mut made).and_then(|()| self.write());
        if let Err(error) = whole {
            directories::remove_made(&made, &self.requests);
            return Err(error);
        }
        Ok(Listed {
            path: self.path,
            source: self.source,
            destination: self.destination,
            removal: cleared.map(|outcome| outcome.removal),
            made,
        })
    }

    /// Creates directories with only the files of this transfer, if the tool needs them.
    fn gather(&mut self, made: &mut Vec<Location>) -> Result<(), String> {
        let Some(directories) = &self.directories else {
            return Ok(());
        };
        self.source = directories.of_sources(&self.source, &self.files, made)?;
        if let Some(destination) = directories.of_sinks(&self.files, made)? {
            self.destination = destination;
        }
        Ok(())
    }

    fn check_sources(&self) -> Result<(), String> {
        let Some(directory) = self.source.seen() else {
            return Ok(());
        };
        let missing = |name: &String| !directory.path.join(name).is_file();
        let names = self.files.names();
        let mut absent = names.filter(missing);
        let Some(first) = absent.next() else {
            return Ok(());
        };
        Err(format!(
            "source: expected {} files from `{}`, found {} of them missing, the first at `{}`; create \
             them with a `prepare` step",
            self.files.files,
            directory.path.join(file_name(self.files.first)).display(),
            absent.count() + 1,
            directory.path.join(first).display()
        ))
    }

    fn write(&self) -> Result<(), String> {
        let describe =
            |error: io::Error| format!("cannot write the list `{}`: {error}", self.path.display());
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(describe)?;
        }
        let mut out = BufWriter::new(File::create(&self.path).map_err(describe)?);
        for name in self.files.names() {
            let source = unspaced(self.source.file_text(&self.call, &name)?)?;
            let destination = unspaced(self.destination.file_text(&self.call, &name)?)?;
            writeln!(out, "{source} {destination}").map_err(describe)?;
        }
        out.flush().map_err(describe)
    }
}

/// Checks that a text has no white space, because lines of a list are split at white space, and
/// tools do not support quotes.
fn unspaced(text: String) -> Result<String, String> {
    if text.chars().any(char::is_whitespace) {
        return Err(format!(
            "expected a path without whitespace in a list of files, found `{text}`; choose another path \
             for the storage or for --scratch"
        ));
    }
    Ok(text)
}

/// Remove all lists, including lists of a killed run.
pub(crate) fn remove_all(scratch: &Path) {
    let _ = fs::remove_dir_all(scratch.join(DIRECTORY));
}

/// Directory below a scratch directory for lists and links to `/dev/null`.
pub(crate) fn directory(scratch: &Path) -> PathBuf {
    scratch.join(DIRECTORY)
}
