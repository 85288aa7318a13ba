//! A client and the faulty server, connected in memory, with files in both directions.

use std::collections::BTreeMap;
use std::time::Duration;

use venturi_gridftp::client::{
    Client, ClientOutput, ClientSettings, ConnectionPurpose, Get, GetSource, Login, Put,
    TransferJob, UploadMode,
};
use venturi_gridftp::{ByteRanges, DataOut, Mode, Path};

use super::{FakeConnection, FaultyServer, ServerFault, checksum};
use crate::content::content;

const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 2;
/// Maximum turns and silences of a session.
const MAX_TURNS: usize = 3000;
const MAX_SILENCES: u32 = 4;
/// Maximum bytes in flight to the server.
const WIRE_BYTES: usize = 1000;

fn path(text: String) -> Path {
    Path::new(text).expect("a path")
}

#[derive(Debug, Clone, Copy)]
pub struct FaultCase {
    pub mode: Mode,
    pub connections: u16,
    pub depth: usize,
    pub upload: UploadMode,
    /// File sizes, for uploads and for downloads.
    pub sizes: [usize; 3],
    /// `true` if the server receives checksums of uploads.
    pub checked: bool,
    /// `true` if the sizes of downloads are known, as after a listing.
    pub known: bool,
}

pub struct ServerFaultRun {
    pub case: FaultCase,
    client: Client,
    pub server: FaultyServer,
    now: Duration,
    pub sinks: BTreeMap<u64, Vec<u8>>,
    pub received_replies: Vec<ClientOutput>,
    next_connection: u64,
}

impl ServerFaultRun {
    pub fn of(case: FaultCase, faults: Vec<(usize, ServerFault)>) -> Self {
        let settings = ClientSettings {
            login: Login::Anonymous,
            server: "192.0.2.2".parse().expect("an address"),
            mode: case.mode,
            connections: case.connections,
            depth: case.depth,
            block_bytes: 400,
            buffer_bytes: None,
            data: None,
            upload: Some(case.upload),
            attempts: ATTEMPTS,
            striped: false,
            stall_timeout: STALL_TIMEOUT,
        };
        let mut world = Self {
            case,
            client: Client::new(settings, None, Duration::ZERO).expect("settings"),
            server: FaultyServer::new(faults),
            now: Duration::ZERO,
            sinks: BTreeMap::new(),
            received_replies: Vec::new(),
            next_connection: 0,
        };
        for job in world.jobs(case) {
            world.client.transfer(world.now, job);
        }
        world
    }

    /// Returns uploads 0 to 2 and downloads 3 to 5.
    fn jobs(&mut self, case: FaultCase) -> Vec<TransferJob> {
        let FaultCase {
            sizes,
            checked,
            known,
            ..
        } = case;
        let puts = (0_u64..).zip(sizes).map(|(transfer, size)| {
            TransferJob::Put(Put {
                transfer,
                path: path(format!("/{transfer}")),
                temporary: Some(path(format!("/{transfer}.part"))),
                size_bytes: size as u64,
                checksum: checked.then(|| ("SUM".to_owned(), checksum(&content(transfer, size)))),
                modify_s: None,
                present: ByteRanges::default(),
                part: None,
                resumable: false,
            })
        });
        let gets = (3_u64..).zip(sizes).map(|(transfer, size)| {
            TransferJob::Get(Get {
                transfer,
                source: GetSource::File,
                path: path(format!("/{transfer}")),
                size_bytes: known.then_some(size as u64),
                present: ByteRanges::default(),
                stat_after: false,
            })
        });
        let jobs = puts.chain(gets).collect();
        for (transfer, size) in (3..).zip(sizes) {
            self.server
                .files
                .insert(format!("/{transfer}").into_bytes(), content(transfer, size));
        }
        jobs
    }

    /// Runs until no transfer is open. Returns `false` if that takes too long.
    pub fn run(&mut self) -> bool {
        let mut silences = 0;
        for _ in 0..MAX_TURNS {
            self.now += Duration::from_millis(1);
            let moved = [
                self.outputs(),
                self.server.turn(),
                self.connect(),
                self.data(),
                self.replies(),
            ];
            if moved.contains(&true) {
                continue;
            }
            let Some(due) = self.client.poll_timeout() else {
                return true;
            };
            silences += 1;
            if silences > MAX_SILENCES * ATTEMPTS {
                return false;
            }
            self.now = self.now.max(due);
            let _ = self.client.handle_timeout(self.now);
        }
        false
    }

    fn outputs(&mut self) -> bool {
        let Some(output) = self.client.poll_output() else {
            return false;
        };
        match output {
            ClientOutput::Send(bytes) => self.server.receive(&bytes),
            ClientOutput::Listen => {
                self.client
                    .listening(self.now, "192.0.2.1:5000".parse().expect("an address"));
            }
            ClientOutput::Connect {
                address,
                connections,
                purpose,
            } => {
                for _ in 0..connections {
                    if address.ip() != "192.0.2.2".parse::<std::net::IpAddr>().expect("an address")
                    {
                        self.client.connect_failed(self.now, purpose, "no route");
                        continue;
                    }
                    let port = address.port();
                    self.open(
                        purpose,
                        FakeConnection {
                            port,
                            ..FakeConnection::default()
                        },
                    );
                }
            }
            ClientOutput::CloseData { connection } => self.end_of(connection),
            ClientOutput::DropData { .. } => {
                let all: Vec<u64> = self.server.data_connections.keys().copied().collect();
                all.into_iter().for_each(|number| self.end_of(number));
            }
            other => self.received_replies.push(other),
        }
        true
    }

    fn open(&mut self, purpose: ConnectionPurpose, connection: FakeConnection) {
        let number = self.next_connection;
        self.next_connection += 1;
        self.server.data_connections.insert(number, connection);
        if !self.client.data_opened(self.now, number, purpose) {
            self.end_of(number);
        }
    }

    /// Handles a connection that the client has closed.
    fn end_of(&mut self, number: u64) {
        if let Some(connection) = self.server.data_connections.get_mut(&number) {
            connection.client_ended = true;
            connection.to_client.clear();
        }
    }

    fn connect(&mut self) -> bool {
        let count = std::mem::take(&mut self.server.connects);
        (0..count).for_each(|_| self.open(ConnectionPurpose::Stripe(0), FakeConnection::default()));
        count > 0
    }

    fn replies(&mut self) -> bool {
        let count = self.server.replies.len().min(4096);
        if count == 0 {
            return std::mem::take(&mut self.server.hung_up)
                && self.client.handle_closed().is_err();
        }
        let bytes: Vec<u8> = self.server.replies.drain(..count).collect();
        let _ = self.client.handle_input(self.now, &bytes);
        true
    }

    fn data(&mut self) -> bool {
        let mut moved = false;
        for number in self
            .server
            .data_connections
            .keys()
            .copied()
            .collect::<Vec<_>>()
        {
            moved |= self.give(number) | self.take(number);
        }
        moved
    }

    fn give(&mut self, number: u64) -> bool {
        let mut moved = false;
        while let Some(connection) = self.server.data_connections.get_mut(&number)
            && !connection.client_ended
            && !connection.server_ended
            && connection.to_server.len() < WIRE_BYTES
            && let Some(out) = self.client.poll_data(self.now, number)
        {
            moved = true;
            match out {
                DataOut::Bytes(bytes) => connection.to_server.extend(bytes),
                DataOut::Close => connection.client_ended = true,
                DataOut::Payload {
                    header,
                    transfer,
                    offset,
                    bytes,
                } => {
                    let source = content(transfer, self.case.sizes[transfer as usize]);
                    let start = offset as usize;
                    connection.to_server.extend(header.iter().flatten());
                    connection
                        .to_server
                        .extend(&source[start..start + bytes as usize]);
                }
            }
        }
        moved
    }

    fn take(&mut self, number: u64) -> bool {
        let Some(connection) = self
            .server
            .data_connections
            .get_mut(&number)
            .filter(|connection| !connection.stalled && !connection.client_ended)
        else {
            return false;
        };
        if connection.to_client.is_empty() {
            if connection.server_ended {
                connection.client_ended = true;
                self.client.data_closed(self.now, number, true);
                return true;
            }
            return false;
        }
        let bytes = connection.to_client.make_contiguous().to_vec();
        let delivered = self.client.handle_data(self.now, number, &bytes);
        if let Some(payload) = delivered.payload {
            let sink = self.sinks.entry(payload.transfer).or_default();
            let (start, end) = (
                payload.offset as usize,
                payload.offset as usize + payload.bytes,
            );
            assert!(end < 1_000_000, "beyond what the file can have");
            sink.resize(sink.len().max(end), 0);
            sink[start..end]
                .copy_from_slice(&bytes[delivered.consumed - payload.bytes..delivered.consumed]);
        }
        if let Some(connection) = self.server.data_connections.get_mut(&number) {
            let used = delivered.consumed.min(connection.to_client.len());
            connection.to_client.drain(..used);
        }
        delivered.consumed > 0
    }

    pub fn is_done(&self, transfer: u64) -> bool {
        self.received_replies.iter().any(
            |output| matches!(output, ClientOutput::Done { transfer: done, .. } if *done == transfer),
        )
    }
}
