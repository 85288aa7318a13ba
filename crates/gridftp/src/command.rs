//! Commands of a control connection.

mod options;
mod parse;
mod site;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, SocketAddrV4};

pub use options::{Layout, Options, RetrieveOptions};
pub use site::{BufferName, SiteCommand};

use crate::address::{write_either, write_extended, write_host_port};
use crate::{ByteRanges, Path, Secret, base64, write_timestamp};

/// Transfer mode: the format of bytes on data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Plain bytes, one file per connection (MODE S).
    Stream,
    /// Blocks with offsets, several connections per file and several files per connection (MODE E).
    Extended,
}

/// Protection level of data connections (RFC 2228 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// No protection.
    Clear,
    /// Integrity.
    Safe,
    /// Encryption without integrity protection. No server supports it.
    Confidential,
    /// Integrity and encryption.
    Private,
}

impl Protection {
    const ALL: [(Self, u8); 4] = [
        (Self::Clear, b'C'),
        (Self::Safe, b'S'),
        (Self::Confidential, b'E'),
        (Self::Private, b'P'),
    ];

    /// Returns the letter of the level.
    #[must_use]
    pub fn letter(self) -> char {
        let found = Self::ALL.iter().find(|(level, _)| *level == self);
        found.map_or('C', |&(_, letter)| letter.into())
    }
}

/// Required peer of a data connection (DCAU).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dcau {
    /// Any peer, without authentication.
    None,
    /// The identity authenticated on the control connection.
    User,
    /// The identity with this subject.
    Subject(Vec<u8>),
}

/// Restart position of a transfer (REST).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// First byte to transfer (MODE S).
    Offset(u64),
    /// Ranges that the receiver already has (MODE E).
    Ranges(ByteRanges),
}

/// Part of a file to read (ERET).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partial {
    /// `P`: a byte range. Block offsets of MODE E count from the start of the part.
    Region {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// A module of the server with its parameters.
    Module(Vec<u8>),
}

/// Argument of EPSV and SPAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// `EPSV ALL`: the client will send only EPSV from now on.
    All,
}

/// Kind of marker whose interval TREV sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// Performance marker (112).
    Performance,
    /// Restart marker (111).
    Restart,
}

/// A command. Text arguments are stored as bytes and contain no line end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "protocol names")]
pub enum FtpCommand {
    User(Vec<u8>),
    Pass(Secret),
    Auth(Vec<u8>),
    Adat(Vec<u8>),
    Mic(Vec<u8>),
    Enc(Vec<u8>),
    Quit,
    Noop,
    Syst,
    Feat,
    Help(Option<Vec<u8>>),
    Lang(Vec<u8>),
    Abor,
    Pwd,
    Cdup,
    Cwd(Path),
    Mkd(Path),
    Rmd(Path),
    Dele(Path),
    Rnfr(Path),
    Rnto(Path),
    Size(Path),
    Mdtm(Path),
    Mfmt {
        time_s: i64,
        path: Path,
    },
    Type(u8),
    Stru(u8),
    Mode(Mode),
    Pbsz(u64),
    Prot(Protection),
    Dcau(Dcau),
    /// Credential of data connections, as received; `None` restores the initial credential.
    Dcsc(Option<Secret>),
    Sbuf(u64),
    Allo(u64),
    Trev {
        marker: Marker,
        interval_s: u64,
    },
    Opts(Options),
    Site(SiteCommand),
    Pasv,
    Epsv(Option<Family>),
    Port(SocketAddrV4),
    Eprt(SocketAddr),
    Spas(Option<Family>),
    Spor(Vec<SocketAddr>),
    Rest(Restart),
    Retr(Path),
    Stor(Path),
    Appe(Path),
    Eret {
        part: Partial,
        path: Path,
    },
    Esto {
        offset: u64,
        path: Path,
    },
    Mlst(Option<Path>),
    Mlsc(Option<Path>),
    Mlsd(Option<Path>),
    Mlsr(Option<Path>),
    List(Option<Path>),
    Nlst(Option<Path>),
    Stat(Option<Path>),
    Cksm {
        algorithm: String,
        offset: u64,
        length: Option<u64>,
        path: Path,
    },
    Scks {
        algorithm: String,
        value: String,
    },
}

impl FtpCommand {
    /// Returns `true` if the command moves bytes over data connections before its final reply.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        use FtpCommand as C;
        matches!(
            self,
            C::Retr(_)
                | C::Stor(_)
                | C::Appe(_)
                | C::Eret { .. }
                | C::Esto { .. }
                | C::Mlsd(_)
                | C::Mlsr(_)
                | C::List(_)
                | C::Nlst(_)
        )
    }

    /// Returns the name of the command.
    #[must_use]
    pub fn name(&self) -> &'static str {
        use FtpCommand as C;
        match self {
            C::User(_) => "USER",
            C::Pass(_) => "PASS",
            C::Auth(_) => "AUTH",
            C::Adat(_) => "ADAT",
            C::Mic(_) => "MIC",
            C::Enc(_) => "ENC",
            C::Quit => "QUIT",
            C::Noop => "NOOP",
            C::Syst => "SYST",
            C::Feat => "FEAT",
            C::Help(_) => "HELP",
            C::Lang(_) => "LANG",
            C::Abor => "ABOR",
            C::Pwd => "PWD",
            C::Cdup => "CDUP",
            C::Cwd(_) => "CWD",
            C::Mkd(_) => "MKD",
            C::Rmd(_) => "RMD",
            C::Dele(_) => "DELE",
            C::Rnfr(_) => "RNFR",
            C::Rnto(_) => "RNTO",
            C::Size(_) => "SIZE",
            C::Mdtm(_) => "MDTM",
            C::Mfmt { .. } => "MFMT",
            C::Type(_) => "TYPE",
            C::Stru(_) => "STRU",
            C::Mode(_) => "MODE",
            C::Pbsz(_) => "PBSZ",
            C::Prot(_) => "PROT",
            C::Dcau(_) => "DCAU",
            C::Dcsc(_) => "DCSC",
            C::Sbuf(_) => "SBUF",
            C::Allo(_) => "ALLO",
            C::Trev { .. } => "TREV",
            C::Opts(_) => "OPTS",
            C::Site(_) => "SITE",
            C::Pasv => "PASV",
            C::Epsv(_) => "EPSV",
            C::Port(_) => "PORT",
            C::Eprt(_) => "EPRT",
            C::Spas(_) => "SPAS",
            C::Spor(_) => "SPOR",
            C::Rest(_) => "REST",
            C::Retr(_) => "RETR",
            C::Stor(_) => "STOR",
            C::Appe(_) => "APPE",
            C::Eret { .. } => "ERET",
            C::Esto { .. } => "ESTO",
            C::Mlst(_) => "MLST",
            C::Mlsc(_) => "MLSC",
            C::Mlsd(_) => "MLSD",
            C::Mlsr(_) => "MLSR",
            C::List(_) => "LIST",
            C::Nlst(_) => "NLST",
            C::Stat(_) => "STAT",
            C::Cksm { .. } => "CKSM",
            C::Scks { .. } => "SCKS",
        }
    }

    /// Returns the command without a line end.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut bytes = self.name().as_bytes().to_vec();
        if let Some(argument) = self.argument() {
            bytes.push(b' ');
            bytes.extend(argument);
        }
        bytes
    }

    fn argument(&self) -> Option<Vec<u8>> {
        use FtpCommand as C;
        Some(match self {
            C::Quit | C::Noop | C::Syst | C::Feat | C::Abor | C::Pwd | C::Cdup | C::Pasv => {
                return None;
            }
            C::Pass(text) => text.0.clone(),
            C::User(text) | C::Auth(text) | C::Lang(text) => text.clone(),
            C::Adat(token) | C::Mic(token) | C::Enc(token) => base64::encode(token).into(),
            C::Help(text) => return text.clone(),
            C::Cwd(path)
            | C::Mkd(path)
            | C::Rmd(path)
            | C::Dele(path)
            | C::Rnfr(path)
            | C::Rnto(path)
            | C::Size(path)
            | C::Mdtm(path)
            | C::Retr(path)
            | C::Stor(path)
            | C::Appe(path) => path.as_bytes().to_vec(),
            C::Mlst(path)
            | C::Mlsc(path)
            | C::Mlsd(path)
            | C::Mlsr(path)
            | C::List(path)
            | C::Nlst(path)
            | C::Stat(path) => return path.as_ref().map(|path| path.as_bytes().to_vec()),
            C::Mfmt { time_s, path } => with_path(&write_timestamp(*time_s), path),
            C::Type(letter) | C::Stru(letter) => vec![*letter],
            C::Mode(Mode::Stream) => b"S".to_vec(),
            C::Mode(Mode::Extended) => b"E".to_vec(),
            C::Pbsz(bytes) | C::Sbuf(bytes) | C::Allo(bytes) => bytes.to_string().into(),
            C::Prot(level) => level.letter().to_string().into(),
            C::Dcau(Dcau::None) => b"N".to_vec(),
            C::Dcau(Dcau::User) => b"A".to_vec(),
            C::Dcau(Dcau::Subject(subject)) => [b"S ", &subject[..]].concat(),
            C::Dcsc(None) => b"D".to_vec(),
            C::Dcsc(Some(credential)) => [b"P ", &credential.0[..]].concat(),
            C::Trev { marker, interval_s } => format!("{} {interval_s}", marker.name()).into(),
            C::Opts(options) => options.text(),
            C::Site(site) => site.text(),
            C::Epsv(family) | C::Spas(family) => return family.map(|family| family.text().into()),
            C::Port(address) => write_host_port(*address).into(),
            C::Eprt(address) => write_extended(*address).into(),
            C::Spor(addresses) => {
                let texts: Vec<_> = addresses
                    .iter()
                    .map(|address| write_either(*address))
                    .collect();
                texts.join(" ").into()
            }
            C::Rest(Restart::Offset(offset)) => offset.to_string().into(),
            C::Rest(Restart::Ranges(ranges)) => ranges.to_string().into(),
            C::Eret {
                part: Partial::Region { offset, length },
                path,
            } => with_path(&format!("P {offset} {length}"), path),
            C::Eret {
                part: Partial::Module(module),
                path,
            } => [module, &b" "[..], path.as_bytes()].concat(),
            C::Esto { offset, path } => with_path(&format!("A {offset}"), path),
            C::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => {
                let length = length.map_or_else(|| "-1".to_owned(), |length| length.to_string());
                with_path(&format!("{algorithm} {offset} {length}"), path)
            }
            C::Scks { algorithm, value } => format!("{algorithm} {value}").into(),
        })
    }
}

impl Family {
    fn text(self) -> &'static str {
        match self {
            Self::V4 => "1",
            Self::V6 => "2",
            Self::All => "ALL",
        }
    }
}

impl Marker {
    fn name(self) -> &'static str {
        match self {
            Self::Performance => "PERF",
            Self::Restart => "RESTART",
        }
    }
}

fn with_path(before: &str, path: &Path) -> Vec<u8> {
    [before.as_bytes(), b" ", path.as_bytes()].concat()
}
