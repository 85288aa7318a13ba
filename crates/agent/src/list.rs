//! Many files in one call: what the tool reads as `{list}`, and the directory that the files come to be in.
//!
//! All of it is done on a thread, before the transfer is armed: nothing of it is in the measured time, nor delays another's.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use venturi_plan::{Call, Transfer, file_name};

use crate::ends::End;
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
}

/// A list that was made.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    /// What may become of the directory; none where the agent does not see it.
    pub(crate) removal: Option<Removal>,
}

/// The files of a transfer of many: their numbers and their size.
pub(crate) fn shares(transfer: &Transfer) -> Shares {
    let bytes = transfer.bytes.get();
    Shares {
        // `zero:` has no numbers: its files are counted from 0.
        first: transfer.source.numbered().map_or(0, |(_, first)| first),
        files: transfer.files,
        each_bytes: bytes
            .is_multiple_of(transfer.files)
            .then(|| bytes / transfer.files),
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
    ) -> Self {
        Self {
            path: scratch.join(FOLDER).join(format!("{task}.txt")),
            call: call.clone(),
            source: source.folder(),
            destination: destination.clone(),
            shares: shares(transfer),
            keep: transfer.keep,
            begun,
        }
    }

    /// Sees whether the files are there, makes their new directory, writes the list.
    ///
    /// # Errors
    /// In words. Nothing of the list is left then.
    pub(crate) fn make(self) -> Result<Listed, String> {
        self.check_sources()?;
        let removal = self.make_way()?;
        self.write()
            .inspect_err(|_| drop(fs::remove_file(&self.path)))?;
        Ok(Listed {
            path: self.path,
            removal,
        })
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

/// Removes a list; it may be gone already.
pub(crate) fn remove(path: &Path) {
    // What stays is a few bytes in the scratch directory, and gone at the end of the run.
    let _ = fs::remove_file(path);
}

/// Removes all lists, those of a killed run too.
pub(crate) fn remove_all(scratch: &Path) {
    let _ = fs::remove_dir_all(scratch.join(FOLDER));
}
