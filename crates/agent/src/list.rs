//! Many files in one call: what the tool reads as `{list}`, the folders that hold these files alone, and the directory that they
//! come to be in.
//!
//! All of it is done on a thread, before the transfer is armed: nothing of it is in the measured time, nor delays another's.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use venturi_plan::{Call, Header, Sizes, Transfer, file_name};

use crate::ends::End;
use crate::folders::{self, Folders};
use crate::receiver::{self, Removal, Shares};

/// Below the scratch directory of the agent.
const FOLDER: &str = ".venturi-lists";

/// A list that is to be made.
#[derive(Debug)]
pub(crate) struct List {
    path: PathBuf,
    call: Call,
    /// The directories that the files are in and come to.
    source: End,
    destination: End,
    shares: Shares,
    keep: bool,
    begun: bool,
    folders: Option<Folders>,
}

/// A list that was made.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    /// The directories at the two ends, as the tool gets told of them.
    pub(crate) source: End,
    pub(crate) destination: End,
    /// What may become of the directory; none where the agent does not see it.
    pub(crate) removal: Option<Removal>,
    /// Folders of links, which go after the trial.
    pub(crate) folders: Vec<PathBuf>,
}

/// The files of a transfer of many: their numbers and their sizes.
pub(crate) fn shares(header: &Header, transfer: &Transfer) -> Shares {
    let bytes = transfer.bytes.get();
    let mixed = header
        .dataset_of(&transfer.source)
        .filter(|dataset| !dataset.mix.is_empty());
    let equal = || {
        bytes
            .is_multiple_of(transfer.files)
            .then(|| Sizes::equal(bytes / transfer.files))
    };
    Shares {
        // `zero:` has no numbers: its files are counted from 0.
        first: transfer.source.numbered().map_or(0, |(_, first)| first),
        files: transfer.files,
        sizes: mixed.map_or_else(equal, |dataset| Some(dataset.sizes())),
    }
}

impl List {
    /// A list for a transfer of many files between these ends; `task` is the number of the transfer in the run.
    pub(crate) fn new(
        scratch: &Path,
        task: u64,
        call: &Call,
        transfer: &Transfer,
        begun: bool,
        (source, destination): (&End, &End),
        (shares, folders): (Shares, Option<Folders>),
    ) -> Self {
        Self {
            path: scratch.join(FOLDER).join(format!("{task}.txt")),
            call: call.clone(),
            source: source.folder(),
            destination: destination.clone(),
            shares,
            keep: transfer.keep,
            begun,
            folders,
        }
    }

    /// Sees whether the files are there, makes their new directory and their folders of links, writes the list.
    ///
    /// # Errors
    /// In words. Nothing of the list is left then.
    pub(crate) fn make(mut self) -> Result<Listed, String> {
        self.check_sources()?;
        let removal = self.make_way()?;
        let mut made = Vec::new();
        let whole = self.gather(&mut made).and_then(|()| self.write());
        if let Err(error) = whole {
            remove(&self.path);
            made.iter().for_each(|folder| remove(folder));
            return Err(error);
        }
        Ok(Listed {
            path: self.path,
            source: self.source,
            destination: self.destination,
            removal,
            folders: made,
        })
    }

    /// Has the tool see folders that hold the files of this transfer alone, if it wants that.
    fn gather(&mut self, made: &mut Vec<PathBuf>) -> Result<(), String> {
        let Some(folders) = &self.folders else {
            return Ok(());
        };
        self.source = folders.of_sources(&self.source, &self.shares, made)?;
        if let Some(destination) = folders.of_sinks(&self.shares, made)? {
            self.destination = destination;
        }
        Ok(())
    }

    fn check_sources(&self) -> Result<(), String> {
        let Some(folder) = &self.source.location else {
            return Ok(());
        };
        let missing = |name: &String| !folder.path.join(name).is_file();
        let names = self.shares.names();
        let mut absent = names.filter(missing);
        let Some(first) = absent.next() else {
            return Ok(());
        };
        Err(format!(
            "source: expected {} files from `{}` on, found {} of them missing, the first at `{}`; let a `prepare` step make \
             them",
            self.shares.files,
            folder.path.join(file_name(self.shares.first)).display(),
            absent.count() + 1,
            folder.path.join(first).display()
        ))
    }

    fn make_way(&self) -> Result<Option<Removal>, String> {
        let Some(destination) = &self.destination.location else {
            return Ok(None);
        };
        let source = self.source.location.as_ref().map(|it| it.path.as_path());
        let wrong =
            |error: String| format!("destination `{}`: {error}", destination.path.display());
        if source == Some(&destination.path) {
            return Err(wrong(
                "expected another directory than that of the source".into(),
            ));
        }
        let made = receiver::make_way_for_many(destination, &self.shares, self.keep, self.begun);
        made.map(Some).map_err(|error| wrong(error.to_string()))
    }

    fn write(&self) -> Result<(), String> {
        let told =
            |error: io::Error| format!("cannot write the list `{}`: {error}", self.path.display());
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(told)?;
        }
        let mut out = BufWriter::new(File::create(&self.path).map_err(told)?);
        for name in self.shares.names() {
            let source = unspaced(self.source.file_text(&self.call, &name)?)?;
            let destination = unspaced(self.destination.file_text(&self.call, &name)?)?;
            writeln!(out, "{source} {destination}").map_err(told)?;
        }
        out.flush().map_err(told)
    }
}

/// Lines of a list are split at white space, and tools know no quotes in it.
fn unspaced(text: String) -> Result<String, String> {
    if text.chars().any(char::is_whitespace) {
        return Err(format!(
            "expected a path without white space in a list of files, found `{text}`; give the place or --scratch another path"
        ));
    }
    Ok(text)
}

/// Removes a list or a folder of links; it may be gone already.
pub(crate) fn remove(path: &Path) {
    // What stays is a few bytes, and gone with the next run at the latest.
    let _ = receiver::remove(path);
    if let Some(above) = path
        .parent()
        .filter(|above| above.ends_with(folders::FOLDER))
    {
        // Only an empty one goes.
        let _ = fs::remove_dir(above);
    }
}

/// Removes all lists, those of a killed run too.
pub(crate) fn remove_all(scratch: &Path) {
    let _ = fs::remove_dir_all(scratch.join(FOLDER));
}

/// The folder below a scratch directory in which lists are, and links to `/dev/null`.
pub(crate) fn folder(scratch: &Path) -> PathBuf {
    scratch.join(FOLDER)
}
