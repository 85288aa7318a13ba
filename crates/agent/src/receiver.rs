//! The receiver's side of a transfer: what it holds afterwards, and its removal.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use venturi_plan::{Sizes, file_name};

use crate::places::Location;

/// How long a server may take to give a file its full size after its client has ended well. One that answers before it has
/// written is rare (GridFTP's 226 and XRootD's reply to a close come after it), and worth a finding.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// The first pause between two looks; each next one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// The destination of a transfer, where this agent sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) path: PathBuf,
    /// The files that come to be in it; none where it is the one file, or a directory with whatever the tool makes.
    pub(crate) shares: Option<Shares>,
    /// Whether the bytes it holds prove the transfer.
    pub(crate) proves: bool,
    /// Whether a server writes it, and not the tool.
    pub(crate) served: bool,
    /// What may become of it after the trial.
    pub(crate) removal: Removal,
}

/// Numbered files that a transfer divides its bytes among.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) first: u64,
    pub(crate) files: u64,
    /// Size of each; none where nobody can tell.
    pub(crate) sizes: Option<Sizes>,
}

/// What a receiver holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    /// In words, what of the bytes asked for is not there; none if nothing.
    pub(crate) lacking: Option<String>,
    /// Whether there is more than was asked for.
    pub(crate) more: bool,
}

/// What a receiver that lacked bytes at first holds in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) first_bytes: u64,
    pub(crate) waited: Duration,
}

impl Shares {
    /// The names of the files, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<> {
        self.numbers().map(file_name)
    }

    fn numbers(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.files)
    }
}

impl Destination {
    /// Looks at what is there.
    ///
    /// # Errors
    /// When a directory or file cannot be read.
    pub(crate) fn look(&self, asked_bytes: u64) -> io::Result<Held> {
        match &self.shares {
            None => {
                let bytes = held_bytes(&self.path)?;
                let lacking = (bytes < asked_bytes).then(|| {
                    format!("{asked_bytes} bytes were asked for, the receiver holds {bytes}")
                });
                Ok(Held {
                    bytes,
                    lacking,
                    more: bytes > asked_bytes,
                })
            }
            Some(shares) => look_at_many(&self.path, shares, asked_bytes),
        }
    }

    /// As [`Destination::look`], again and again as long as bytes are lacking, up to `end`. Also tells when they came late.
    ///
    /// # Errors
    /// As [`Destination::look`].
    pub(crate) fn look_until(
        &self,
        asked_bytes: u64,
        end: Instant,
    ) -> io::Result<(Held, Option<Late>)> {
        until_whole(|| self.look(asked_bytes), end)
    }

    /// Removes what the transfer has made.
    ///
    /// # Errors
    /// In words, when something of it stays.
    pub(crate) fn clear(&self) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        match (self.removal, &self.shares) {
            (Removal::Keep, _) => Ok(()),
            (Removal::Refused, _) => {
                Err("it is the source, or a directory that was there before".into())
            }
            (Removal::Files, Some(shares)) => shares
                .names()
                .try_for_each(|name| remove(&self.path.join(name)))
                .map_err(told),
            (Removal::Remove | Removal::Files, _) => remove(&self.path).map_err(told),
        }
    }
}

/// Looks again and again as long as bytes are lacking, up to `end`.
fn until_whole(
    mut look: impl FnMut() -> io::Result<Held>,
    end: Instant,
) -> io::Result<(Held, Option<Late>)> {
    let begun = Instant::now();
    let mut held = look()?;
    let first_bytes = held.bytes;
    if held.lacking.is_none() {
        return Ok((held, None));
    }
    let mut pause = FIRST_PAUSE;
    while held.lacking.is_some() && Instant::now() < end {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
        held = look()?;
    }
    let late = held.lacking.is_none().then_some(Late {
        first_bytes,
        waited: begun.elapsed(),
    });
    Ok((held, late))
}

fn look_at_many(folder: &Path, shares: &Shares, asked_bytes: u64) -> io::Result<Held> {
    let (mut bytes, mut there, mut more, mut wrong) = (0, 0, false, None);
    for number in shares.numbers() {
        let name = file_name(number);
        let each = shares.sizes.as_ref().map(|sizes| sizes.of(number));
        let found = match folder.join(&name).metadata() {
            Ok(found) => Some(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        bytes += found.unwrap_or(0);
        let whole = found.is_some() && each.is_none_or(|each| found >= Some(each));
        there += u64::from(whole);
        more |= each.is_some_and(|each| found > Some(each));
        if !whole {
            wrong = wrong.or(Some((name, found)));
        }
    }
    let lacking = match wrong {
        None if bytes >= asked_bytes => None,
        None => Some(format!(
            "{asked_bytes} bytes were asked for, the receiver holds {bytes}"
        )),
        Some((name, found)) => {
            let found = found.map_or("is not there".into(), |bytes| format!("has {bytes} bytes"));
            Some(format!(
                "{} files and {asked_bytes} bytes were asked for, the receiver holds {there} whole files and {bytes} bytes; the \
                 first that is not whole, `{name}`, {found}",
                shares.files
            ))
        }
    };
    Ok(Held {
        bytes,
        lacking,
        more: more || bytes > asked_bytes,
    })
}

/// What may become of a destination after its trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The plan keeps it.
    Keep,
    /// It goes.
    Remove,
    /// Its files go: the directory was there before.
    Files,
    /// The plan would have it removed, but it is a directory that was there before and is not ours.
    Refused,
}

/// Makes the way free for a destination, before the transfer is timed: its parent directories are made, a file that a
/// killed run has left is removed, which the tool would otherwise truncate in the measured time.
///
/// # Errors
/// When a directory cannot be made or the old file not be removed.
pub(crate) fn make_way(
    location: &Location,
    source: Option<&Path>,
    keep: bool,
    begun: bool,
) -> io::Result<Removal> {
    let is_source = Some(location.path.as_path()) == source;
    if let Some(parent) = location.path.parent() {
        fs::create_dir_all(parent)?;
    }
    if keep {
        return Ok(Removal::Keep);
    }
    match location.path.symlink_metadata() {
        Ok(found) if found.is_dir() && !begun && !location.in_scratch => {
            return Ok(Removal::Refused);
        }
        Ok(found) if !found.is_dir() && !begun && !is_source => fs::remove_file(&location.path)?,
        _ => {}
    }
    Ok(if is_source {
        Removal::Refused
    } else {
        Removal::Remove
    })
}

/// As [`make_way`], for a directory that many files come to: it is made, and what a killed run has left of them removed.
///
/// # Errors
/// When the directory cannot be made or an old file not be removed.
pub(crate) fn make_way_for_many(
    location: &Location,
    shares: &Shares,
    keep: bool,
    begun: bool,
) -> io::Result<Removal> {
    let was_there = location.path.symlink_metadata().is_ok();
    fs::create_dir_all(&location.path)?;
    if keep {
        return Ok(Removal::Keep);
    }
    if was_there && !begun {
        for name in shares.names() {
            remove(&location.path.join(name))?;
        }
        if !location.in_scratch {
            return Ok(Removal::Files);
        }
    }
    Ok(Removal::Remove)
}

/// Bytes below a path: the size of a file, or the sum over the files of a directory; 0 when there is nothing.
///
/// # Errors
/// When a directory cannot be read.
pub(crate) fn held_bytes(path: &Path) -> io::Result<u64> {
    let found = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        return Ok(found.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A link inside is not followed: what it points to was not transferred.
        bytes += match entry.metadata()? {
            found if found.is_dir() => held_bytes(&entry.path())?,
            found if found.is_file() => found.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

/// Removes a file or a directory with all that is in it; it may be gone already.
///
/// # Errors
/// When something of it stays.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}

#[cfg(test)]
mod tests;
