//! What is told in the same words whichever way a copy goes.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use crate::error::Failure;

/// A directory cannot be made.
pub(crate) fn no_folder(place: PathBuf, found: impl Into<String>) -> Failure {
    let advice = "mend that, then run the same command again";
    Failure::found(place, "a directory, or a place for one", found, advice)
}

/// A directory cannot be listed.
pub(crate) fn unreadable(place: PathBuf, found: impl Into<String>) -> Failure {
    let advice = "get the right to it, or leave it out, and run the same command again";
    Failure::found(place, "a directory that can be read", found, advice)
}

/// The same is being uploaded.
pub(crate) fn not_alone(place: PathBuf) -> Failure {
    let found = "another copy of the same that is writing it";
    let expected = "a place that no other copy of this host writes to";
    Failure::found(
        place,
        expected,
        found,
        "wait for it to end, then run the same command again",
    )
}

/// A directory was named where only files are copied.
pub(crate) fn not_recursive(place: PathBuf) -> Failure {
    let advice = "say --recursive to copy directories";
    Failure::found(place, "a file", "a directory", advice)
}

/// A link leads back.
pub(crate) fn circle(place: PathBuf) -> Failure {
    let advice = "leave --follow out, or remove the link";
    let found = "one that it is in, through a link";
    Failure::found(place, "a directory to be copied", found, advice)
}

/// Where a file is to be there is something else, such as a directory.
pub(crate) fn in_the_way(place: PathBuf, found: &'static str) -> Failure {
    let advice = "remove it, or name another destination";
    Failure::found(place, "a file or nothing", found, advice)
}

/// A source is not there.
pub(crate) fn nothing(place: PathBuf, found: impl Into<String>) -> Failure {
    Failure::found(
        place,
        "a file or directory",
        found,
        "name one that is there",
    )
}

/// What is to be done about a server that refuses a file. Of an upload it may refuse its name (RFC 959, section 4.2: 550 and 553), and most
/// do not say whether it is for its directory; those of the Globus toolkit say 500, and what their kernel said.
pub(crate) fn advice(may_lack_way: bool, reason: &str) -> &'static str {
    let refused = reason.starts_with("550") || reason.starts_with("553");
    if may_lack_way && (refused || reason.contains("No such file or directory")) {
        return "say --mkpath if its directory is not there, or mend that at the server, then run the same command again";
    }
    "mend that at the server, then run the same command again"
}

/// A source is something that no server can have.
pub(crate) fn no_file(place: PathBuf, kind: FileType) -> Failure {
    let found = match kind {
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let advice = "copy what comes out of it into a file first";
    Failure::found(place, "a file or directory", found, advice)
}

/// A name that no command can carry.
pub(crate) fn no_path(place: PathBuf, found: impl Into<String>) -> Failure {
    Failure::found(place, "a path", found, "give it another name first")
}

/// A server told a name that cannot be one.
pub(crate) fn no_name(place: PathBuf, found: impl Into<String>) -> Failure {
    let advice = "tell who runs the server; the rest goes on";
    Failure::found(place, "names of what is in it", found, advice)
}

/// A name that a server would cut.
pub(crate) fn not_carried(place: PathBuf) -> Failure {
    let advice = "give it a name of ASCII letters, or use a server with certificates (gsiftp) or one of HTTP";
    let expected = "a name that the server understands";
    let found = "one with bytes above 127, which a Globus server drops from names on an open control connection";
    Failure::found(place, expected, found, advice)
}
