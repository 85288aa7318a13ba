//! SITE commands of Globus servers.

use super::parse::{split_word, timed};
use crate::{FtpError, Path, number, write_timestamp};

/// A SITE command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "protocol names")]
pub enum SiteCommand {
    Help,
    WhoAmI,
    Version,
    ClientInfo(Vec<u8>),
    Chmod {
        mode: u32,
        path: Path,
    },
    Utime {
        time_s: i64,
        path: Path,
    },
    SymlinkFrom(Path),
    SymlinkTo(Path),
    /// Deletes a directory recursively.
    DeleteTree(Path),
    Truncate {
        length: u64,
        path: Path,
    },
    /// Socket buffer size of data connections; servers use several names.
    Buffer {
        name: BufferName,
        bytes: u64,
    },
    /// Another command, verbatim.
    Other(Vec<u8>),
}

/// Names of the socket buffer size. Each server supports some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "protocol names")]
pub enum BufferName {
    BufSize,
    RetrBufSize,
    StorBufSize,
    RBufSz,
    SBufSz,
}

const BUFFERS: &[(&[u8], BufferName)] = &[
    (b"BUFSIZE", BufferName::BufSize),
    (b"RETRBUFSIZE", BufferName::RetrBufSize),
    (b"STORBUFSIZE", BufferName::StorBufSize),
    (b"RBUFSZ", BufferName::RBufSz),
    (b"SBUFSZ", BufferName::SBufSz),
    (b"SBUF", BufferName::BufSize),
    (b"RBUFSIZ", BufferName::RBufSz),
    (b"RBUFSIZE", BufferName::RBufSz),
    (b"SBUFSIZ", BufferName::SBufSz),
    (b"SBUFSIZE", BufferName::SBufSz),
];

/// A name and its command.
type PathCommand = (&'static [u8], fn(Path) -> SiteCommand);

const WITH_PATH: &[PathCommand] = &[
    (b"SYMLINKFROM", SiteCommand::SymlinkFrom),
    (b"SYMLINKTO", SiteCommand::SymlinkTo),
    (b"RDEL", SiteCommand::DeleteTree),
];

impl SiteCommand {
    pub(super) fn text(&self) -> Vec<u8> {
        let with =
            |before: String, path: &Path| [before.as_bytes(), b" ", path.as_bytes()].concat();
        match self {
            Self::Help => b"HELP".to_vec(),
            Self::WhoAmI => b"WHOAMI".to_vec(),
            Self::Version => b"VERSION".to_vec(),
            Self::ClientInfo(text) => [b"CLIENTINFO ", &text[..]].concat(),
            Self::Chmod { mode, path } => with(format!("CHMOD {mode:o}"), path),
            Self::Utime { time_s, path } => {
                with(format!("UTIME {}", write_timestamp(*time_s)), path)
            }
            Self::SymlinkFrom(path) => with("SYMLINKFROM".to_owned(), path),
            Self::SymlinkTo(path) => with("SYMLINKTO".to_owned(), path),
            Self::DeleteTree(path) => with("RDEL".to_owned(), path),
            Self::Truncate { length, path } => with(format!("TRNC {length}"), path),
            Self::Buffer { name, bytes } => {
                let found = BUFFERS.iter().find(|(_, known)| known == name);
                let name = found.map_or(&b"BUFSIZE"[..], |(text, _)| text);
                [name, format!(" {bytes}").as_bytes()].concat()
            }
            Self::Other(text) => text.clone(),
        }
    }

    pub(super) fn parse(argument: &[u8]) -> Result<Self, FtpError> {
        let wrong = |expected| FtpError::malformed("SITE", expected, argument);
        let (name, rest) = split_word(argument);
        let name = name.to_ascii_uppercase();
        if let Some((_, site)) = WITH_PATH.iter().find(|(known, _)| *known == name) {
            return Path::new(rest).map(site);
        }
        if let Some((_, buffer)) = BUFFERS.iter().find(|(known, _)| *known == name) {
            let bytes = number(rest).ok_or_else(|| wrong("a number of bytes"))?;
            return Ok(Self::Buffer {
                name: *buffer,
                bytes,
            });
        }
        match name.as_slice() {
            b"HELP" => Ok(Self::Help),
            b"WHOAMI" => Ok(Self::WhoAmI),
            b"VERSION" => Ok(Self::Version),
            b"CLIENTINFO" => Ok(Self::ClientInfo(rest.to_vec())),
            b"CHMOD" => {
                let (mode, path) = split_word(rest);
                let mode = octal(mode).ok_or_else(|| wrong("`CHMOD octal path`"))?;
                Ok(Self::Chmod {
                    mode,
                    path: Path::new(path)?,
                })
            }
            b"UTIME" => timed(rest).map(|(time_s, path)| Self::Utime { time_s, path }),
            b"TRNC" => {
                let (length, path) = split_word(rest);
                let length = number(length).ok_or_else(|| wrong("`TRNC length path`"))?;
                Ok(Self::Truncate {
                    length,
                    path: Path::new(path)?,
                })
            }
            b"" => Err(wrong("a command")),
            _ => Ok(Self::Other(argument.to_vec())),
        }
    }
}

/// Parses permission bits, up to 7777.
fn octal(text: &[u8]) -> Option<u32> {
    let known =
        (1..=5).contains(&text.len()) && text.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let value = text
        .iter()
        .fold(0, |value, byte| value << 3 | u32::from(byte & 7));
    (known && value <= 0o7777).then_some(value)
}
