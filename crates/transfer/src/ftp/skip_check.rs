//! Skip check: decides whether a file is copied, from the metadata of the destination.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::FileType;
use venturi_gridftp::{EntryKind, ListEntry};

use super::failures;
use super::files::FtpMetadata;
use super::shared::Shared;
use crate::options::Existing;
use crate::roots;

/// State of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DestinationState {
    kind: Kind,
    known: FtpMetadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    /// Name of a file type that no file replaces.
    Special(&'static str),
    Other,
}

impl From<&ListEntry> for DestinationState {
    fn from(entry: &ListEntry) -> Self {
        let kind = match &entry.kind {
            Some(EntryKind::File) | None => Kind::File,
            Some(EntryKind::Directory | EntryKind::Current) => Kind::Directory,
            Some(_) => Kind::Other,
        };
        Self {
            kind,
            known: FtpMetadata::from(entry),
        }
    }
}

impl From<&Metadata> for DestinationState {
    fn from(metadata: &Metadata) -> Self {
        let kind = match FileType::from_raw_mode(metadata.mode()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            kind => roots::obstacle(kind).map_or(Kind::Other, Kind::Special),
        };
        Self {
            kind,
            known: FtpMetadata::from(metadata),
        }
    }
}

impl From<&ListEntry> for FtpMetadata {
    fn from(entry: &ListEntry) -> Self {
        Self {
            size: entry.size_bytes,
            modify_s: entry.modify_s,
            mode: entry.mode,
        }
    }
}

impl From<&Metadata> for FtpMetadata {
    fn from(metadata: &Metadata) -> Self {
        Self {
            size: Some(metadata.len()),
            modify_s: Some(metadata.mtime()),
            mode: Some(metadata.mode() & 0o7777),
        }
    }
}

/// Action for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyAction {
    /// Copy the file.
    Copy,
    /// The copy is up to date; reported.
    Kept,
    /// Failed or dry run; reported.
    Reported,
}

/// Decides the action for a file. `same` compares contents; it is used with `--checksum`, or if size and time
/// are not reliable.
pub(crate) fn check(
    shared: &Shared<'_>,
    copy: impl Fn() -> PathBuf,
    known: FtpMetadata,
    present: Option<DestinationState>,
    reliable: bool,
    same: impl FnOnce() -> bool,
) -> CopyAction {
    let options = shared.options;
    let by_content = options.checksum || !reliable;
    let size = known.size.unwrap_or(0);
    let obstacle = match present.map(|present| present.kind) {
        Some(Kind::Directory) => Some("a directory"),
        Some(Kind::Special(what)) if options.existing != Existing::Keep => Some(what),
        _ => None,
    };
    if let Some(what) = obstacle {
        shared.report_failure(&failures::obstacle(copy(), what));
        return CopyAction::Reported;
    }
    if present.is_some_and(|present| keeps(options.existing, by_content, known, present, same)) {
        shared.kept(copy, size);
        return CopyAction::Kept;
    }
    if options.dry_run {
        shared.would_copy(copy, size);
        return CopyAction::Reported;
    }
    CopyAction::Copy
}

fn keeps(
    existing: Existing,
    by_content: bool,
    known: FtpMetadata,
    present: DestinationState,
    same: impl FnOnce() -> bool,
) -> bool {
    let is = |own: Option<_>, other| own.is_some() && own == other;
    let as_long =
        present.kind == Kind::File && known.size.is_some() && known.size == present.known.size;
    match existing {
        Existing::Keep => true,
        Existing::Replace => false,
        Existing::Update if !as_long => false,
        Existing::Update if by_content => same(),
        // Servers report times in whole seconds.
        Existing::Update => is(known.modify_s, present.known.modify_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_kept_if_it_is_the_same_and_unknown_metadata_is_a_difference() {
        let known = |size, modify_s| FtpMetadata {
            size,
            modify_s,
            mode: None,
        };
        let source = known(Some(3), Some(7));
        let check = |existing, checksum, source, present, expected: bool| {
            for kind in [Kind::File, Kind::Other] {
                let present = DestinationState {
                    kind,
                    known: present,
                };
                let found = keeps(existing, checksum, source, present, || true);
                let expected = expected && (kind == Kind::File || existing == Existing::Keep);
                assert_eq!(found, expected, "{existing:?} {source:?} {present:?}");
            }
        };
        let (keep, update) = (Existing::Keep, Existing::Update);
        check(update, false, source, source, true);
        check(update, false, source, known(Some(3), Some(8)), false);
        check(update, false, source, known(Some(4), Some(7)), false);
        for lacking in [known(None, Some(7)), known(Some(3), None)] {
            check(update, false, lacking, lacking, false);
        }
        check(update, true, source, known(Some(3), Some(8)), true);
        check(update, true, source, known(Some(4), Some(7)), false);
        check(keep, true, source, known(None, None), true);
        check(Existing::Replace, true, source, source, false);
    }
}
