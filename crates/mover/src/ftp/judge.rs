//! Whether a file needs to be copied, seen what is under the name of its copy.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::FileType;
use venturi_gridftp::{Entry, Kind as EntryKind};

use super::failures;
use super::files::Known;
use super::shared::Shared;
use crate::order::Existing;
use crate::roots;

/// What is under the name of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Present {
    kind: Kind,
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    /// What no file takes the place of: its name.
    Special(&'static str),
    Other,
}

impl From<&Entry> for Present {
    fn from(entry: &Entry) -> Self {
        let kind = match &entry.kind {
            Some(EntryKind::File) | None => Kind::File,
            Some(EntryKind::Directory | EntryKind::Current) => Kind::Directory,
            Some(_) => Kind::Other,
        };
        Self {
            kind,
            known: Known::from(entry),
        }
    }
}

impl From<&Metadata> for Present {
    fn from(seen: &Metadata) -> Self {
        let kind = match FileType::from_raw_mode(seen.mode()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            kind => roots::in_the_way(kind).map_or(Kind::Other, Kind::Special),
        };
        Self {
            kind,
            known: Known::from(seen),
        }
    }
}

impl From<&Entry> for Known {
    fn from(entry: &Entry) -> Self {
        Self {
            size: entry.size_bytes,
            modify_s: entry.modify_s,
            mode: entry.mode,
        }
    }
}

impl From<&Metadata> for Known {
    fn from(seen: &Metadata) -> Self {
        Self {
            size: Some(seen.len()),
            modify_s: Some(seen.mtime()),
            mode: Some(seen.mode() & 0o7777),
        }
    }
}

/// What is to be done for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be copied.
    Copy,
    /// Its copy is there, which was told.
    Kept,
    /// Nothing: it cannot be copied, or was only to be told, which was done.
    Told,
}

/// Judges a file by what is under the name of its copy. `same` compares contents, which tell it where it is so asked, or where size and time
/// are not to be relied on.
pub(crate) fn judge(
    shared: &Shared<'_>,
    copy: impl Fn() -> PathBuf,
    known: Known,
    there: Option<Present>,
    reliable: bool,
    same: impl FnOnce() -> bool,
) -> Verdict {
    let order = shared.order;
    let by_content = order.checksum || !reliable;
    let size = known.size.unwrap_or(0);
    let in_the_way = match there.map(|there| there.kind) {
        Some(Kind::Directory) => Some("a directory"),
        Some(Kind::Special(what)) if order.existing != Existing::Keep => Some(what),
        _ => None,
    };
    if let Some(what) = in_the_way {
        shared.tell(&failures::in_the_way(copy(), what));
        return Verdict::Told;
    }
    if there.is_some_and(|there| is_kept(order.existing, by_content, known, there, same)) {
        shared.kept(copy, size);
        return Verdict::Kept;
    }
    if order.dry_run {
        shared.would_copy(copy, size);
        return Verdict::Told;
    }
    Verdict::Copy
}

fn is_kept(
    existing: Existing,
    by_content: bool,
    known: Known,
    there: Present,
    same: impl FnOnce() -> bool,
) -> bool {
    let is = |mine: Option<_>, other| mine.is_some() && mine == other;
    let as_long =
        there.kind == Kind::File && known.size.is_some() && known.size == there.known.size;
    match existing {
        Existing::Keep => true,
        Existing::Replace => false,
        Existing::Update if !as_long => false,
        Existing::Update if by_content => same(),
        // Servers tell times in whole seconds.
        Existing::Update => is(known.modify_s, there.known.modify_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_kept_if_it_is_the_same_and_what_is_not_known_is_not_the_same() {
        let known = |size, modify_s| Known {
            size,
            modify_s,
            mode: None,
        };
        let source = known(Some(3), Some(7));
        let check = |existing, checksum, source, there, expected: bool| {
            for kind in [Kind::File, Kind::Other] {
                let there = Present { kind, known: there };
                let found = is_kept(existing, checksum, source, there, || true);
                let expected = expected && (kind == Kind::File || existing == Existing::Keep);
                assert_eq!(found, expected, "{existing:?} {source:?} {there:?}");
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
