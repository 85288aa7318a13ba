//! Failures that downloads, uploads and third-party copies share.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use crate::error::Failure;

/// Cannot create a directory.
pub(crate) fn no_directory(path: PathBuf, found: impl Into<String>) -> Failure {
    let advice = "fix the cause, then run the same command again";
    Failure::found(
        path,
        "a directory, or permission to create it",
        found,
        advice,
    )
}

/// Cannot list a directory.
pub(crate) fn unreadable(path: PathBuf, found: impl Into<String>) -> Failure {
    let advice = "grant access to the path or exclude it, then run the same command again";
    Failure::found(path, "a readable directory", found, advice)
}

/// Another copy uploads the same source.
pub(crate) fn concurrent_upload(path: PathBuf) -> Failure {
    let found = "another running copy of the same source";
    let expected = "a destination that no other copy on this host writes";
    Failure::found(
        path,
        expected,
        found,
        "wait until it ends, then run the same command again",
    )
}

/// A directory without `--recursive`.
pub(crate) fn not_recursive(path: PathBuf) -> Failure {
    let advice = "add --recursive to copy directories";
    Failure::found(path, "a file", "a directory", advice)
}

/// A symbolic link to a parent directory.
pub(crate) fn circle(path: PathBuf) -> Failure {
    let advice = "omit --follow, or delete the link";
    let found = "one of its parents, through a link";
    Failure::found(path, "a directory to be copied", found, advice)
}

/// Another file type at the destination.
pub(crate) fn obstacle(path: PathBuf, found: &'static str) -> Failure {
    let advice = "delete it, or choose another destination";
    Failure::found(path, "a file or a free name", found, advice)
}

/// A missing source.
pub(crate) fn nothing(path: PathBuf, found: impl Into<String>) -> Failure {
    Failure::found(path, "a file or directory", found, "check the path")
}

/// Returns the next step after a rejected file. For uploads, a server can reject the file name (RFC
/// 959, section 4.2: 550 and 553). Most servers do not report whether the directory is missing;
/// Globus servers reply 500 with the message of the kernel.
pub(crate) fn advice(may_lack_parents: bool, reason: &str) -> &'static str {
    let rejected = reason.starts_with("550") || reason.starts_with("553");
    if may_lack_parents && (rejected || reason.contains("No such file or directory")) {
        return "add --mkpath if its directory does not exist, or fix the cause at the server, then run the same command again";
    }
    "fix the cause at the server, then run the same command again"
}

/// A source that no server can store.
pub(crate) fn no_file(path: PathBuf, kind: FileType) -> Failure {
    let found = match kind {
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let advice = "write its data to a file first";
    Failure::found(path, "a file or directory", found, advice)
}

/// A name that FTP commands cannot contain.
pub(crate) fn no_path(path: PathBuf, found: impl Into<String>) -> Failure {
    Failure::found(path, "a path", found, "rename it first")
}

/// An invalid name in a listing.
pub(crate) fn no_name(path: PathBuf, found: impl Into<String>) -> Failure {
    let advice = "inform the operator of the server; the copy continues with other files";
    Failure::found(path, "valid names in the listing", found, advice)
}

/// A name that the server would truncate.
pub(crate) fn unsupported_name(path: PathBuf) -> Failure {
    let advice = "rename it in ASCII, or use gsiftp or HTTP";
    let expected = "a name that the server supports";
    let found =
        "bytes above 127, which Globus servers drop from names on unencrypted control connections";
    Failure::found(path, expected, found, advice)
}
