//! What a client is asked to transfer, and what it says of it.

use std::net::SocketAddr;

use crate::{ByteRanges, Command, Mode, Partial, Path, Progress, Reply, Restart};

/// A file, part of one, or a listing, to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    /// The driver's number for it; one that no other transfer of the session has.
    pub transfer: u64,
    /// What is read.
    pub source: Source,
    /// Of what.
    pub path: Path,
    /// How much it is, where it is known. In MODE S nothing else tells a whole file from one that was cut.
    pub size_bytes: Option<u64>,
    /// What the driver has already. Of a region, and of a file whose size is not known, nothing counts.
    pub present: ByteRanges,
    /// Whether the server is asked behind it what the file is by then ([`Output::Seen`]). Not of listings.
    pub see: bool,
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The file.
    File,
    /// `size_bytes` of the file from here on. Positions are those of the file.
    Region {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// The directory (MLSD): lines for [`Entry::parse`](crate::Entry::parse).
    Directory,
    /// The directory and all below (MLSR).
    Tree,
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The driver's number for it; one that no other transfer of the session has.
    pub transfer: u64,
    /// Where it goes.
    pub path: Path,
    /// Where it is written until all of it is there. A file without such a name is written in place, and alone: nothing
    /// is sent before the transfers before it are answered, and none after it until it is.
    pub temporary: Option<Path>,
    /// Its size.
    pub size_bytes: u64,
    /// Algorithm and value, for servers that check it themselves (SCKS).
    pub checksum: Option<(String, String)>,
    /// When it was modified, in seconds since 1970, where the copy shall keep it.
    pub modify_s: Option<i64>,
    /// What the server has already. Of a part nothing counts. Where it has all in `temporary` nothing is sent: it only gets its name, and one
    /// that has it already is done.
    pub present: ByteRanges,
    /// Of a part of a file: the position of its first byte. It is written into `path` as it is, what else is there stays, and nothing
    /// gets a name; if it fails its bytes there may be any. Positions are those of the file.
    pub part: Option<u64>,
    /// Whether the driver sees what the server has of it before each try. One that was cut off in MODE S fails then at once, to be given again
    /// with what is `present`, and what came stays at the server.
    pub goes_on: bool,
}

/// A transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// From the server.
    Get(Get),
    /// To the server.
    Put(Put),
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Receive,
    /// To the server.
    Send,
}

impl Job {
    /// The driver's number.
    #[must_use]
    pub fn transfer(&self) -> u64 {
        match self {
            Self::Get(get) => get.transfer,
            Self::Put(put) => put.transfer,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self {
            Self::Get(_) => Direction::Receive,
            Self::Put(_) => Direction::Send,
        }
    }

    /// Whether it is a file, or a part of one, and no listing.
    pub(super) fn is_file(&self) -> bool {
        let listing = |source| matches!(source, Source::Directory | Source::Tree);
        !matches!(self, Self::Get(get) if listing(get.source))
    }

    /// Whether all data nodes of a striped server may have a part in it. Those of the Globus toolkit say that all went well and leave bytes
    /// out where they are to send less than a whole file, and end the session over a listing.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Get(get) => get.source == Source::File && get.present.is_empty(),
            Self::Put(_) => true,
        }
    }

    /// Whether it may not share the pipeline.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self, Self::Put(put) if put.temporary.is_none() && put.part.is_none())
    }

    /// Whether all of it is at the server, and lacks its name.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Self::Put(put) if put.temporary.is_some() && !put.present.is_empty() && put.missing_end() == 0)
    }

    /// The command that begins it, where it only gets its name: does the server have all of it?
    pub(super) fn named(&self) -> Option<Command> {
        match self {
            Self::Put(put) if self.is_there() => put.temporary.clone().map(Command::Size),
            _ => None,
        }
    }

    /// The end of what is on the wire on its way to the server.
    pub(super) fn sent_bytes(&self) -> u64 {
        match self {
            Self::Get(_) => 0,
            Self::Put(put) => put.missing_end(),
        }
    }

    /// How far bytes of a transfer that the server refused could reach if it took them for this one's and no harm came of it: as far as
    /// this one's own, which go again. None: any, since it begins with an empty file.
    pub(super) fn bears_bytes(&self) -> Option<u64> {
        match self {
            Self::Put(put) if put.part.is_some() => Some(put.size_bytes),
            Self::Put(put) if !put.present.is_empty() => Some(0),
            Self::Put(_) | Self::Get(_) => None,
        }
    }

    /// Position in the file of what is 0 on the wire.
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

    /// The command that begins it.
    pub(super) fn command(&self) -> Command {
        match self {
            Self::Put(Put {
                path,
                part: Some(offset),
                ..
            }) => Command::Esto {
                offset: *offset,
                path: path.clone(),
            },
            Self::Put(put) => Command::Stor(put.temporary.as_ref().unwrap_or(&put.path).clone()),
            Self::Get(get) => {
                let path = get.path.clone();
                match get.source {
                    Source::File => Command::Retr(path),
                    Source::Directory => Command::Mlsd(Some(path)),
                    Source::Tree => Command::Mlsr(Some(path)),
                    Source::Region { offset, length } => {
                        let part = Partial::Region { offset, length };
                        Command::Eret { part, path }
                    }
                }
            }
        }
    }

    /// The command before it that names what is there already. A server whose habit is not known gets each range one
    /// byte shorter.
    pub(super) fn restart(&mut self, mode: Mode, exact: bool) -> Option<Command> {
        if let Self::Get(get) = self
            && (get.size_bytes.is_none() || matches!(get.source, Source::Region { .. }))
        {
            // Where a part goes on is another part; and where a file ends that is not known, what is there may lie behind.
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
                *present = ByteRanges::of(0..present.prefix_bytes());
                let offset = present.prefix_bytes();
                (offset > 0).then_some(Command::Rest(Restart::Offset(offset)))
            }
            Mode::Extended => {
                if !exact {
                    *present = present.shortened();
                }
                let ranges = present.clone();
                (!ranges.is_empty()).then_some(Command::Rest(Restart::Ranges(ranges)))
            }
        }
    }
}

impl Put {
    /// The end of the last range that is to be sent.
    fn missing_end(&self) -> u64 {
        if self.present.is_empty() {
            return self.size_bytes;
        }
        self.present.missing(self.size_bytes).end()
    }
}

impl Get {
    /// Position in the file of what is 0 on the wire.
    pub(super) fn base(&self) -> u64 {
        match self.source {
            Source::Region { offset, .. } => offset,
            _ => 0,
        }
    }

    /// Bytes that are to come, counted as on the wire.
    pub(super) fn expected_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Region { length, .. } => Some(length),
            _ => self.size_bytes,
        }
    }
}

/// What a data connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// This transfer, in MODE S.
    Transfer(u64),
    /// All of them, in MODE E, at this data node of the server, from 0. Of one that the server opens, 0.
    Stripe(u16),
}

/// What a driver is to do, or to know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// The session is ready for transfers and commands.
    Ready,
    /// Listen for data connections, on the host of the control connection, and say where: `listening`.
    Listen,
    /// Open data connections, and say of each when it is open: `data_opened`.
    Connect {
        /// Where to. It is what the server says, and may be another host: those of dCache are.
        address: SocketAddr,
        /// How many.
        connections: u16,
        /// What for.
        purpose: Purpose,
    },
    /// So many data nodes of the server are to move each file from now on.
    DataNodes(u16),
    /// Close this data connection, whose transfer has failed, and say nothing more of it.
    CloseData {
        /// Its number.
        connection: u64,
    },
    /// Close all data connections and the listener, and say nothing more of them. What was read and not taken, and what
    /// was to be sent, is void.
    DropData {
        /// Something went wrong with them; else others are wanted, of another kind, and nothing was under way.
        faulty: bool,
    },
    /// The server has begun a transfer; again at each try, and what came of a file whose size is not known is then void.
    Begun {
        /// Which.
        transfer: u64,
    },
    /// The server tells how far it is.
    Progress {
        /// With which transfer.
        transfer: u64,
        /// How far.
        progress: Progress,
    },
    /// What the server said of a file (MLST) when it had read all that it was asked for; what follows is that the transfer is complete.
    Seen {
        /// Which.
        transfer: u64,
        /// The reply.
        reply: Reply,
    },
    /// A transfer is complete: all bytes are there, under the name that they shall have.
    Done {
        /// Which.
        transfer: u64,
        /// Whether the server has the time of modification that was asked for.
        time_kept: bool,
    },
    /// A transfer has failed.
    Failed {
        /// Which.
        transfer: u64,
        /// How.
        failure: Failure,
    },
    /// A line of the answer to a request for a listing.
    Line {
        /// Number of the request.
        request: u64,
        /// Its text; for [`Entry::parse`](crate::Entry::parse), if it is one.
        text: Vec<u8>,
    },
    /// A preliminary reply to a request.
    Notice {
        /// Number of the request.
        request: u64,
        /// The reply.
        reply: Reply,
    },
    /// The reply to a request.
    Answer {
        /// Number of the request.
        request: u64,
        /// The reply.
        reply: Reply,
    },
}

/// Why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In words.
    pub reason: String,
    /// Whether another session may succeed.
    pub again: bool,
    /// Whether the file is not what it was said to be, or the server could not read all of it: what came of it before may not fit what
    /// comes next.
    pub changed: bool,
    /// What a download has got, present ranges included.
    pub received: ByteRanges,
}
