//! Interface between a server session and its driver.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{FtpReply, ListEntry, Path, Secret};

/// Permissions, limits and timeouts of a session.
#[derive(Debug, Clone)]
pub struct ServerPolicy {
    /// Text of the greeting.
    pub greeting: String,
    /// Time since 1970 at `now` = 0, for markers.
    pub epoch: Duration,
    /// Address of the client.
    pub peer: IpAddr,
    /// `true` if clients can write, rename and delete files.
    pub writes: bool,
    /// `true` if data connections to and from hosts other than the peer are allowed. Otherwise the
    /// server connects to no third host (CERT advisory CA-1997-27).
    pub third_party: bool,
    /// Checksum algorithms of the driver, cheapest first.
    pub checksums: Vec<String>,
    /// Maximum data connections.
    pub connections: u16,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Maximum bytes of commands that wait for the current one; more bytes stay in the socket.
    pub queued_bytes: usize,
    /// Maximum failed logins.
    pub logins: u32,
    /// Maximum duration of a login.
    pub login_timeout: Duration,
    /// Maximum idle time of a session.
    pub idle_timeout: Duration,
    /// Maximum time of a transfer without progress, as counted by
    /// [`StallTimer`](crate::StallTimer).
    pub stall_timeout: Duration,
    /// Interval of markers.
    pub marker_interval: Duration,
}

/// Request to the driver, which responds with [`Server::respond`](super::Server::respond). Paths
/// are absolute and normalised. The driver must ensure that no symbolic link leaves the served
/// directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverRequest {
    /// Authenticate a user.
    Login {
        /// User name.
        user: Vec<u8>,
        /// Password.
        password: Secret,
    },
    /// Return the metadata of a file: [`DriverResponse::Entry`].
    Stat(Path),
    /// List a directory or its tree: [`DriverResponse::Entries`].
    List {
        /// The directory.
        path: Path,
        /// `true` to list the tree, with names relative to the directory.
        recursive: bool,
    },
    /// Continue the list.
    More,
    /// Create a directory.
    MakeDirectory(Path),
    /// Remove an empty directory.
    RemoveDirectory(Path),
    /// Delete a file.
    Delete(Path),
    /// Rename a file, replacing an existing one.
    Rename {
        /// Old path.
        from: Path,
        /// New path.
        to: Path,
    },
    /// Set the modification time.
    SetModified {
        /// The file.
        path: Path,
        /// Seconds since 1970.
        time_s: i64,
    },
    /// Set permission bits.
    SetMode {
        /// The file.
        path: Path,
        /// Permission bits.
        mode: u32,
    },
    /// Truncate or extend a file.
    Truncate {
        /// The file.
        path: Path,
        /// New size, in bytes.
        length: u64,
    },
    /// Compute a checksum: [`DriverResponse::Checksum`].
    Checksum {
        /// One of [`ServerPolicy::checksums`].
        algorithm: String,
        /// First byte.
        offset: u64,
        /// Number of bytes; `None`: up to the end.
        length: Option<u64>,
        /// The file.
        path: Path,
    },
    /// Listen for data connections: [`DriverResponse::Listening`].
    Listen,
    /// Open a file for reading: [`DriverResponse::Size`].
    Read(Path),
    /// Open a file for writing; when appending, respond with [`DriverResponse::Size`].
    Write {
        /// The file.
        path: Path,
        /// Treatment of existing bytes.
        mode: WriteMode,
        /// Checksum algorithm of a later [`DriverRequest::Verify`].
        checksum: Option<String>,
    },
    /// Compute this checksum of all written bytes, before the file is finished:
    /// [`DriverResponse::Checksum`].
    Verify {
        /// The algorithm given in [`DriverRequest::Write`].
        algorithm: String,
    },
    /// All bytes of the written file have arrived: close it, and report if it is stored on disk.
    Finish,
    /// All requested bytes of the read file were sent: report [`GlobusError::Changed`] if the file
    /// has changed since it was opened.
    Sent,
}

/// Treatment of existing bytes when a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Replace the file (STOR).
    New,
    /// Resume: the client expects all bytes before this one to exist, as reported by SIZE (REST,
    /// STOR).
    Restart {
        /// Position of the first byte; more than 0.
        bytes: u64,
    },
    /// Resume: the client expects some bytes before this one to exist, as reported by markers (REST
    /// with ranges, STOR).
    Marked {
        /// Position of the first byte; more than 0.
        bytes: u64,
    },
    /// Keep the file and write a part of it (ESTO).
    Region,
    /// Keep the file and append to it (APPE).
    Append,
}

/// Response of the driver to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverResponse {
    /// The request succeeded.
    Done,
    /// Response to [`DriverRequest::Login`] for a user with fewer permissions than in
    /// [`ServerPolicy`].
    Admitted {
        /// `true` if the user can write.
        writes: bool,
        /// `true` if data connections to and from hosts other than the user's are allowed.
        third_party: bool,
    },
    /// Response to [`DriverRequest::Stat`].
    Entry(ListEntry),
    /// Response to [`DriverRequest::List`], in parts, because the session stores them until they
    /// are sent.
    Entries {
        /// Entries of this part.
        entries: Vec<ListEntry>,
        /// `true` if more entries follow.
        more: bool,
    },
    /// Response to [`DriverRequest::Read`], and to [`DriverRequest::Write`] when appending, in
    /// bytes.
    Size(u64),
    /// Response to [`DriverRequest::Checksum`] and [`DriverRequest::Verify`], in lower-case
    /// hexadecimal digits.
    Checksum(String),
    /// Response to [`DriverRequest::Listen`].
    Listening(SocketAddr),
    /// The request failed.
    Failed(GlobusError),
}

/// Failure of a request, named as in Globus servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "protocol names")]
pub enum GlobusError {
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

impl GlobusError {
    /// Returns the reply for the client.
    #[must_use]
    pub fn reply(self) -> FtpReply {
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
        FtpReply::block(code, vec![error.into(), text.into()])
    }
}

/// Action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerOutput {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// Execute this request and respond. The next request follows after the response.
    Request(DriverRequest),
    /// Open data connections. Call `data_opened` for each, or `connect_failed` once.
    Connect {
        /// Addresses to connect to.
        addresses: Vec<SocketAddr>,
        /// Number of connections to each address.
        connections: u16,
    },
    /// Close all data connections and the listener.
    DropData,
    /// Close the open file. A written file is incomplete.
    CloseFile,
    /// A started transfer has ended, for logs.
    Ended {
        /// The command that requested it.
        command: &'static str,
        /// Reply for the client.
        code: u16,
    },
    /// Write all bytes, then close the control connection and all other resources.
    Close,
}
