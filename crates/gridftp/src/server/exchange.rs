//! What a server may do, asks its driver, and is told.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{Entry, Path, Reply, Secret};

/// What a session may do, and how long it may take.
#[derive(Debug, Clone)]
pub struct Policy {
    /// First words.
    pub greeting: String,
    /// Time since 1970 when the counting of `now` began; markers carry it.
    pub epoch: Duration,
    /// Who is at the other end of the control connection.
    pub peer: IpAddr,
    /// Whether files may be written, named and deleted.
    pub writes: bool,
    /// Whether data may go to, and come from, other hosts than the peer. Without it nobody can make the server connect to
    /// a third one (CERT advisory CA-1997-27).
    pub third_party: bool,
    /// Checksums that the driver takes, the cheapest first.
    pub checksums: Vec<String>,
    /// Most data connections.
    pub connections: u16,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Most bytes of commands that wait for one that is carried out; more stay in the socket.
    pub queued_bytes: usize,
    /// How often a login may fail.
    pub logins: u32,
    /// How long a login may take.
    pub login_patience: Duration,
    /// How long a session may be idle.
    pub idle_patience: Duration,
    /// How long a transfer may stand still, or move less than counts ([`LastMoved`](crate::LastMoved)).
    pub data_patience: Duration,
    /// Time between markers.
    pub marker_interval: Duration,
}

/// What the driver shall do; it answers each with [`Server::answer`](super::Server::answer). Paths are absolute and
/// normalised; that no symbolic link leads out of the directory that is served is the driver's part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Whether this user may come in.
    Login {
        /// The name.
        user: Vec<u8>,
        /// The password.
        password: Secret,
    },
    /// Describe a file: [`Answer::Entry`].
    Stat(Path),
    /// List a directory, or all below it: [`Answer::Entries`].
    List {
        /// Which.
        path: Path,
        /// Whether what is below it is listed too, with names relative to it.
        recursive: bool,
    },
    /// Go on with the list.
    More,
    /// Make a directory.
    MakeDirectory(Path),
    /// Remove an empty directory.
    RemoveDirectory(Path),
    /// Delete a file.
    Delete(Path),
    /// Rename, over what is there.
    Rename {
        /// From.
        from: Path,
        /// To.
        to: Path,
    },
    /// Set the time of modification.
    SetModified {
        /// Of what.
        path: Path,
        /// Seconds since 1970.
        time_s: i64,
    },
    /// Set permission bits.
    SetMode {
        /// Of what.
        path: Path,
        /// The bits.
        mode: u32,
    },
    /// Cut or extend a file.
    Truncate {
        /// Which.
        path: Path,
        /// To what.
        length: u64,
    },
    /// Take a checksum: [`Answer::Checksum`].
    Checksum {
        /// One of [`Policy::checksums`].
        algorithm: String,
        /// First byte.
        offset: u64,
        /// How many; to the end without.
        length: Option<u64>,
        /// Of what.
        path: Path,
    },
    /// Listen for data connections: [`Answer::Listening`].
    Listen,
    /// Open a file to be read: [`Answer::Size`].
    Read(Path),
    /// Open a file to be written; [`Answer::Size`] where bytes are appended.
    Write {
        /// Which.
        path: Path,
        /// What becomes of what is there.
        begin: Begin,
        /// The checksum that [`Request::Verify`] will ask for.
        checksum: Option<String>,
    },
    /// Take this checksum of all that was written, before it is finished: [`Answer::Checksum`].
    Verify {
        /// As [`Request::Write`] said.
        algorithm: String,
    },
    /// All of the written file has come: close it, and say whether it is on the disk.
    Finish,
    /// All that was asked for of the read file was sent: say whether it is what it was when it was opened, or [`Refusal::Changed`].
    Sent,
}

/// What becomes of what is there when a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// It is replaced (STOR).
    New,
    /// It goes on: the client holds that all bytes before this one are there (REST, STOR), as SIZE may have told it.
    Restart {
        /// Its position; more than 0.
        bytes: u64,
    },
    /// It goes on: the client holds that some bytes before this one are there, as markers have told it (REST with ranges, STOR).
    Marked {
        /// Its position; more than 0.
        bytes: u64,
    },
    /// It stays, and part of it is written (ESTO).
    Region,
    /// It stays, and more follows (APPE).
    Append,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// Of [`Request::Login`], for one who may do less than [`Policy`] allows.
    Admitted {
        /// Whether he may write.
        writes: bool,
        /// Whether data may go to, and come from, other hosts than his.
        third_party: bool,
    },
    /// Of [`Request::Stat`].
    Entry(Entry),
    /// Of [`Request::List`]. Some at a time: they are held until they are sent.
    Entries {
        /// Some of them.
        entries: Vec<Entry>,
        /// Whether more follow.
        more: bool,
    },
    /// Of [`Request::Read`], and of [`Request::Write`] where bytes are appended, in bytes.
    Size(u64),
    /// Of [`Request::Checksum`] and [`Request::Verify`], in lower-case hexadecimal digits.
    Checksum(String),
    /// Of [`Request::Listen`].
    Listening(SocketAddr),
    /// It cannot be done.
    Refused(Refusal),
}

/// Why something cannot be done, as Globus servers call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub enum Refusal {
    NotFound,
    Denied,
    Exists,
    IsDirectory,
    NotDirectory,
    NoSpace,
    Busy,
    Changed,
    OtherFileSystem,
    NoPort,
    LoginDenied,
    Internal,
}

impl Refusal {
    /// What the client is told.
    #[must_use]
    pub fn reply(self) -> Reply {
        let (code, name, text) = match self {
            Self::NotFound => (550, "PATH_NOT_FOUND", "No such file or directory"),
            Self::Denied => (550, "PERMISSION_DENIED", "Permission denied"),
            Self::Exists => (553, "PATH_EXISTS", "File exists"),
            Self::IsDirectory => (550, "IS_A_DIRECTORY", "Is a directory"),
            Self::NotDirectory => (550, "NOT_A_DIRECTORY", "Not a directory"),
            Self::NoSpace => (451, "NO_SPACE_LEFT", "No space left on device"),
            Self::Busy => (450, "FILE_BUSY", "File is being written"),
            Self::Changed => (451, "FILE_CHANGED", "File was changed while it was sent"),
            Self::OtherFileSystem => (
                553,
                "OTHER_FILE_SYSTEM",
                "The new name is in another file system",
            ),
            Self::NoPort => (425, "NO_DATA_PORT", "No port for data connections is free"),
            Self::LoginDenied => (530, "LOGIN_DENIED", "Login incorrect"),
            Self::Internal => (451, "INTERNAL_ERROR", "Input/output error"),
        };
        let error = format!("GlobusError: v=1 c={name}");
        let text = format!("GridFTP-Error-String: {text}");
        Reply::block(code, vec![error.into(), text.into()])
    }
}

/// What a driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// Do this, and answer. No other request comes before the answer.
    Ask(Request),
    /// Open data connections; say `data_opened` of each, or `connect_failed` once.
    Connect {
        /// Where to: so many connections to each.
        addresses: Vec<SocketAddr>,
        /// How many.
        connections: u16,
    },
    /// Close all data connections and the listener.
    DropData,
    /// Close the file that is open; where it was written, it is not whole.
    CloseFile,
    /// A transfer that had begun is over, for logs.
    Ended {
        /// The command that asked for it.
        command: &'static str,
        /// What the client is told.
        code: u16,
    },
    /// Close the control connection, and all else, once all bytes are written.
    Close,
}
