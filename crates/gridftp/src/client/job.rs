//! Transfers of a client and outputs for its driver.

use std::net::SocketAddr;

use crate::{ByteRanges, FtpCommand, FtpReply, Mode, Partial, Path, ProgressMarker, Restart};

/// Download of a file, a region, or a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    /// Number chosen by the driver; unique within the session.
    pub transfer: u64,
    /// Source: file, region or listing.
    pub source: GetSource,
    /// Path to read.
    pub path: Path,
    /// Size, if known. In MODE S only the size distinguishes a complete file from a truncated one.
    pub size_bytes: Option<u64>,
    /// Ranges that the driver already has. Ignored for regions and for files of unknown size.
    pub present: ByteRanges,
    /// `true` to send MLST after the file ([`ClientOutput::FileInfo`]). Not for listings.
    pub stat_after: bool,
}

/// Source of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetSource {
    /// The file.
    File,
    /// A region of the file, with positions relative to the file.
    Region {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// The directory (MLSD): lines for [`ListEntry::parse`](crate::ListEntry::parse).
    Directory,
    /// The directory tree (MLSR).
    Tree,
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Number chosen by the driver; unique within the session.
    pub transfer: u64,
    /// Destination.
    pub path: Path,
    /// Temporary name until the file is complete. A file without it is written in place and alone:
    /// it starts after the replies to all earlier transfers, and later transfers wait for its
    /// reply.
    pub temporary: Option<Path>,
    /// File size.
    pub size_bytes: u64,
    /// Algorithm and value, for servers that check it themselves (SCKS).
    pub checksum: Option<(String, String)>,
    /// Modification time to preserve, in seconds since 1970.
    pub modify_s: Option<i64>,
    /// Ranges that the server already has. Ignored for parts. If `temporary` is complete, the
    /// client only renames it; if it is already renamed, the transfer is done.
    pub present: ByteRanges,
    /// For a part of a file: position of its first byte. The part is written into `path` in place,
    /// without a rename; other bytes stay. After a failure its bytes are undefined. Positions are
    /// relative to the file.
    pub part: Option<u64>,
    /// `true` if the driver checks the stored bytes before each attempt. An interrupted upload in
    /// MODE S then fails immediately and its bytes stay at the server; the driver adds it again
    /// with `present`.
    pub resumable: bool,
}

/// A transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferJob {
    /// From the server.
    Get(Get),
    /// To the server.
    Put(Put),
}

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferDirection {
    /// From the server.
    Receive,
    /// To the server.
    Send,
}

impl TransferJob {
    /// Returns the number chosen by the driver.
    #[must_use]
    pub fn transfer(&self) -> u64 {
        match self {
            Self::Get(get) => get.transfer,
            Self::Put(put) => put.transfer,
        }
    }

    pub(super) fn direction(&self) -> TransferDirection {
        match self {
            Self::Get(_) => TransferDirection::Receive,
            Self::Put(_) => TransferDirection::Send,
        }
    }

    /// Returns `true` for a file or a part of a file, `false` for a listing.
    pub(super) fn is_file(&self) -> bool {
        let listing = |source| matches!(source, GetSource::Directory | GetSource::Tree);
        !matches!(self, Self::Get(get) if listing(get.source))
    }

    /// Returns `true` if all data nodes of a striped server can take part. Globus servers report
    /// success but omit bytes of partial files, and end the session for a listing.
    pub(super) fn is_stripeable(&self) -> bool {
        match self {
            Self::Get(get) => get.source == GetSource::File && get.present.is_empty(),
            Self::Put(_) => true,
        }
    }

    /// Returns `true` if the transfer must not share the pipeline.
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Put(put) if put.temporary.is_none() && put.part.is_none())
    }

    /// Returns `true` if all bytes are at the server and only the rename is missing.
    pub(super) fn is_complete_at_server(&self) -> bool {
        matches!(self, Self::Put(put) if put.temporary.is_some() && !put.present.is_empty() && put.last_missing_end() == 0)
    }

    /// Returns the SIZE command that starts a rename-only transfer.
    pub(super) fn named(&self) -> Option<FtpCommand> {
        match self {
            Self::Put(put) if self.is_complete_at_server() => {
                put.temporary.clone().map(FtpCommand::Size)
            }
            _ => None,
        }
    }

    /// Returns the end of the bytes to send, as an offset on the wire.
    pub(super) fn sent_bytes(&self) -> u64 {
        match self {
            Self::Get(_) => 0,
            Self::Put(put) => put.last_missing_end(),
        }
    }

    /// Returns the highest harmless position of foreign bytes, in case the server assigns bytes of
    /// a rejected transfer to this one. The client sends its own bytes again. `None`: no limit,
    /// because the transfer starts with an empty file.
    pub(super) fn max_foreign_bytes(&self) -> Option<u64> {
        match self {
            Self::Put(put) if put.part.is_some() => Some(put.size_bytes),
            Self::Put(put) if !put.present.is_empty() => Some(0),
            Self::Put(_) | Self::Get(_) => None,
        }
    }

    /// Returns the file position of offset 0 on the wire.
    pub(super) fn base(&self) -> u64 {
        match self {
            Self::Get(get) => get.base(),
            Self::Put(put) => put.part.unwrap_or(0),
        }
    }

    pub(super) fn present(&mut self) -> &mut ByteRanges {
        match self {
            Self::Get(get) => &mut get.present,
            Self::Put(put) => &mut put.present,
        }
    }

    /// Returns the transfer command.
    pub(super) fn command(&self) -> FtpCommand {
        match self {
            Self::Put(Put {
                path,
                part: Some(offset),
                ..
            }) => FtpCommand::Esto {
                offset: *offset,
                path: path.clone(),
            },
            Self::Put(put) => FtpCommand::Stor(put.temporary.as_ref().unwrap_or(&put.path).clone()),
            Self::Get(get) => {
                let path = get.path.clone();
                match get.source {
                    GetSource::File => FtpCommand::Retr(path),
                    GetSource::Directory => FtpCommand::Mlsd(Some(path)),
                    GetSource::Tree => FtpCommand::Mlsr(Some(path)),
                    GetSource::Region { offset, length } => {
                        let part = Partial::Region { offset, length };
                        FtpCommand::Eret { part, path }
                    }
                }
            }
        }
    }

    /// Returns the REST command for present bytes. If the server's range convention is unknown,
    /// each range is one byte shorter.
    pub(super) fn restart(&mut self, mode: Mode, exact: bool) -> Option<FtpCommand> {
        if let Self::Get(get) = self
            && (get.size_bytes.is_none() || matches!(get.source, GetSource::Region { .. }))
        {
            // A region cannot resume, and without a size, present bytes can lie beyond the end.
            get.present = ByteRanges::default();
        }
        if let Self::Put(put) = self
            && put.part.is_some()
        {
            put.present = ByteRanges::default();
        }
        let present = self.present();
        match mode {
            Mode::Stream => {
                *present = ByteRanges::from_range(0..present.prefix_bytes());
                let offset = present.prefix_bytes();
                (offset > 0).then_some(FtpCommand::Rest(Restart::Offset(offset)))
            }
            Mode::Extended => {
                if !exact {
                    *present = present.shortened();
                }
                let ranges = present.clone();
                (!ranges.is_empty()).then_some(FtpCommand::Rest(Restart::Ranges(ranges)))
            }
        }
    }
}

impl Put {
    /// Returns the end of the last missing range.
    fn last_missing_end(&self) -> u64 {
        if self.present.is_empty() {
            return self.size_bytes;
        }
        self.present.missing(self.size_bytes).end()
    }
}

impl Get {
    /// Returns the file position of offset 0 on the wire.
    pub(super) fn base(&self) -> u64 {
        match self.source {
            GetSource::Region { offset, .. } => offset,
            _ => 0,
        }
    }

    /// Returns the expected bytes on the wire.
    pub(super) fn expected_bytes(&self) -> Option<u64> {
        match self.source {
            GetSource::Region { length, .. } => Some(length),
            _ => self.size_bytes,
        }
    }
}

/// Purpose of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPurpose {
    /// This transfer, in MODE S.
    Transfer(u64),
    /// All transfers at this data node, counted from 0, in MODE E. 0 for connections that the
    /// server opens.
    Stripe(u16),
}

/// Action or information for the driver.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientOutput {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// The session is ready for transfers and commands.
    Ready,
    /// Listen for data connections on the host of the control connection, then call `listening`.
    Listen,
    /// Open data connections; call `data_opened` for each.
    Connect {
        /// Address from the server; can be another host, as with dCache.
        address: SocketAddr,
        /// Number of connections.
        connections: u16,
        /// Purpose of the connections.
        purpose: ConnectionPurpose,
    },
    /// Number of data nodes that move each later file.
    DataNodes(u16),
    /// Close this data connection of a failed transfer; report nothing more about it.
    CloseData {
        /// Number of the connection.
        connection: u64,
    },
    /// Close all data connections and the listener; report nothing more about them. Discard
    /// unconsumed and unsent bytes.
    DropData {
        /// `true` after an error; `false` if only the kind of connections changes.
        faulty: bool,
    },
    /// The server started a transfer; repeated for each attempt. Earlier bytes of a file of unknown
    /// size are then void.
    Started {
        /// Number of the transfer.
        transfer: u64,
    },
    /// Progress marker of the server.
    Progress {
        /// Number of the transfer.
        transfer: u64,
        /// The marker.
        progress: ProgressMarker,
    },
    /// MLST reply after the server has read the file; `Done` follows.
    FileInfo {
        /// Number of the transfer.
        transfer: u64,
        /// The reply.
        reply: FtpReply,
    },
    /// A transfer is complete, under its final name.
    Done {
        /// Number of the transfer.
        transfer: u64,
        /// `true` if the server set the requested modification time.
        time_kept: bool,
    },
    /// A transfer has failed.
    Failed {
        /// Number of the transfer.
        transfer: u64,
        /// Description of the failure.
        failure: TransferFailure,
    },
    /// A line of a listing reply.
    Line {
        /// Number of the request.
        request: u64,
        /// Text, for [`ListEntry::parse`](crate::ListEntry::parse).
        text: Vec<u8>,
    },
    /// A preliminary reply to a request.
    Preliminary {
        /// Number of the request.
        request: u64,
        /// The reply.
        reply: FtpReply,
    },
    /// The reply to a request.
    Reply {
        /// Number of the request.
        request: u64,
        /// The reply.
        reply: FtpReply,
    },
}

/// Failure of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferFailure {
    /// Description.
    pub reason: String,
    /// `true` if another session can succeed.
    pub again: bool,
    /// `true` if the file changed, or the server could not read all of it. Received bytes may not
    /// match later ones.
    pub changed: bool,
    /// Received ranges of a download, including present ranges.
    pub received: ByteRanges,
}
