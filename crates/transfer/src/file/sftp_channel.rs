//! The SSH File Transfer Protocol, version 3 (draft-ietf-secsh-filexfer-02), over the subsystem `sftp` of `ssh`.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::error::{ErrorKind, FileError};
use super::program::{ExternalProgram, RunningProgram};
use crate::net::url::{Scheme, Url};

/// Maximum bytes of a packet, with data of a file or names of a directory.
const MAX_PACKET_BYTES: u32 = 1 << 20;
const VERSION: u32 = 3;

const INIT: u8 = 1;
const SERVER_VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;

const STATUS_OK: u32 = 0;
const STATUS_EOF: u32 = 1;
const STATUS_NO_SUCH_FILE: u32 = 2;
const STATUS_PERMISSION_DENIED: u32 = 3;
const STATUS_UNSUPPORTED: u32 = 8;

/// Attributes of a path, as far as the server reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size_bytes: Option<u64>,
    pub(super) mode: Option<u32>,
    pub(super) modified_s: Option<u32>,
}

/// Reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SftpReply {
    Ok,
    End,
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<(Vec<u8>, Attributes)>),
    Attributes(Attributes),
}

/// Connection to the subsystem.
pub(super) struct SftpChannel {
    ssh: RunningProgram,
    next: u32,
}

/// Request that is being written.
pub(super) struct Packet(Vec<u8>);

impl Packet {
    pub(super) fn new(kind: u8) -> Self {
        Self(vec![kind, 0, 0, 0, 0])
    }

    pub(super) fn number(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bytes(mut self, value: &[u8]) -> Self {
        let length = u32::try_from(value.len()).expect("a block is shorter than 4 GiB");
        self.0.extend(length.to_be_bytes());
        self.0.extend(value);
        self
    }
}

/// Packet that is being read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Some(u32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().expect("eight bytes");
        Some(u64::from_be_bytes(bytes))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    fn attributes(&mut self) -> Option<Attributes> {
        let flags = self.number()?;
        let mut found = Attributes::default();
        if flags & 0x1 != 0 {
            found.size_bytes = Some(self.long()?);
        }
        if flags & 0x2 != 0 {
            self.take(8)?;
        }
        if flags & 0x4 != 0 {
            found.mode = Some(self.number()?);
        }
        if flags & 0x8 != 0 {
            self.take(4)?;
            found.modified_s = Some(self.number()?);
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.number()? {
                self.bytes()?;
                self.bytes()?;
            }
        }
        Some(found)
    }
}

impl SftpChannel {
    /// Start `ssh` with the configuration of the user, without prompts.
    ///
    /// # Errors
    /// No `ssh`, or a failed login.
    pub(super) fn open(server: &Url, timeout: Duration) -> Result<Self, FileError> {
        let connect_timeout = format!("-oConnectTimeout={}", timeout.as_secs());
        let port = format!("-p{}", server.port);
        let user = server
            .user
            .as_deref()
            .map(|user| OsString::from(OsStr::from_bytes(user)));
        let mut arguments: Vec<&OsStr> = ["-T", "-x", "-a", "-oBatchMode=yes", &connect_timeout]
            .map(OsStr::new)
            .to_vec();
        if server.port != Scheme::Sshftp.port() {
            arguments.push(OsStr::new(&port));
        }
        if let Some(user) = &user {
            arguments.extend([OsStr::new("-l"), user]);
        }
        arguments.extend(["-s", "--", &server.host, "sftp"].map(OsStr::new));
        let program = ExternalProgram {
            name: "ssh",
            package: "openssh-client",
            arguments,
            environment: &[],
            input: None,
        };
        let mut channel = Self {
            ssh: program.start(timeout)?,
            next: 0,
        };
        channel.write(&[&[INIT][..], &VERSION.to_be_bytes()].concat())?;
        let reply = channel.packet()?;
        match reply.first() {
            Some(&SERVER_VERSION) => Ok(channel),
            _ => Err(malformed()),
        }
    }

    /// Send a request. Return its number.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn send(&mut self, mut packet: Packet) -> Result<u32, FileError> {
        self.next = self.next.wrapping_add(1);
        packet.0[1..5].copy_from_slice(&self.next.to_be_bytes());
        self.write(&packet.0)?;
        Ok(self.next)
    }

    /// Send a request and return its reply, which can be a rejection.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn call(
        &mut self,
        packet: Packet,
    ) -> Result<Result<SftpReply, FileError>, FileError> {
        let number = self.send(packet)?;
        let (replied, reply) = self.receive()?;
        if replied != number {
            return Err(malformed());
        }
        Ok(reply)
    }

    /// Return the next reply with the number of its request.
    ///
    /// # Errors
    /// The connection is lost. A rejection is part of the reply.
    pub(super) fn receive(&mut self) -> Result<(u32, Result<SftpReply, FileError>), FileError> {
        let packet = self.packet()?;
        parse(&packet).ok_or_else(malformed)
    }

    fn write(&mut self, content: &[u8]) -> Result<(), FileError> {
        let length = u32::try_from(content.len()).expect("a packet is shorter than 4 GiB");
        let packet = [&length.to_be_bytes()[..], content].concat();
        let written = self.ssh.stream.write_all(&packet);
        written.map_err(|error| self.ssh.failure(&error))
    }

    fn packet(&mut self) -> Result<Vec<u8>, FileError> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > MAX_PACKET_BYTES {
            return Err(malformed());
        }
        let mut packet = vec![0; usize::try_from(length).expect("at most a megabyte")];
        self.fill(&mut packet)?;
        Ok(packet)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), FileError> {
        let read = self.ssh.stream.read_exact(bytes);
        read.map_err(|error| self.ssh.failure(&error))
    }
}

fn malformed() -> FileError {
    FileError::new(
        ErrorKind::Other,
        "expected a reply of SFTP version 3, found other bytes; check that the login prints nothing (`ssh HOST true`)",
    )
}

/// Parse a reply; none if it is malformed.
fn parse(packet: &[u8]) -> Option<(u32, Result<SftpReply, FileError>)> {
    let (&kind, rest) = packet.split_first()?;
    let mut fields = Fields(rest);
    let number = fields.number()?;
    let reply = match kind {
        STATUS => {
            let code = fields.number()?;
            let message = fields.bytes().unwrap_or_default();
            status(code, &String::from_utf8_lossy(message))
        }
        HANDLE => Ok(SftpReply::Handle(fields.bytes()?.to_vec())),
        DATA => Ok(SftpReply::Data(fields.bytes()?.to_vec())),
        NAME => {
            let mut names = Vec::new();
            for _ in 0..fields.number()? {
                let name = fields.bytes()?.to_vec();
                // The name with metadata for people.
                fields.bytes()?;
                names.push((name, fields.attributes()?));
            }
            Ok(SftpReply::Names(names))
        }
        ATTRS => Ok(SftpReply::Attributes(fields.attributes()?)),
        _ => return None,
    };
    Some((number, reply))
}

fn status(code: u32, message: &str) -> Result<SftpReply, FileError> {
    let kind = match code {
        STATUS_OK => return Ok(SftpReply::Ok),
        STATUS_EOF => return Ok(SftpReply::End),
        STATUS_NO_SUCH_FILE => ErrorKind::NotFound,
        STATUS_PERMISSION_DENIED => ErrorKind::Permission,
        STATUS_UNSUPPORTED => ErrorKind::Unsupported,
        _ => return Err(FileError::text(format!("the server reports: {message}"))),
    };
    Err(FileError::new(kind, message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replies_are_parsed() {
        let attributes = [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0x81, 0xa4];
        let packet = [&[ATTRS, 0, 0, 0, 7][..], &attributes].concat();
        let (number, reply) = parse(&packet).expect("a reply");
        let expected = Attributes {
            size_bytes: Some(9),
            mode: Some(0o100_644),
            modified_s: None,
        };
        assert_eq!((number, reply), (7, Ok(SftpReply::Attributes(expected))));
        let missing = [
            &[STATUS, 0, 0, 0, 1, 0, 0, 0, 2][..],
            &[0, 0, 0, 1, b'x'],
            &[0; 4],
        ]
        .concat();
        let (_, reply) = parse(&missing).expect("a reply");
        assert_eq!(reply.expect_err("an error").kind, ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), kind in 100_u8..107) {
            let _ = parse(&bytes);
            let _ = parse(&[&[kind][..], &bytes].concat());
        }
    }
}
