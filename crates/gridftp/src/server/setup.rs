//! Steps from a transfer command to its open file: permissions, data connections, and early
//! failures.

use std::net::SocketAddr;
use std::time::Duration;

use super::commands::{Notation, RequestPurpose};
use super::transfer::{ListFormat, ServerTransfer, TransferKind};
use super::{DriverRequest, DriverResponse, GlobusError, Server, ServerOutput, WriteMode};
use crate::{ByteRanges, FtpCommand, FtpReply, Mode, Partial, Restart};

impl Server {
    pub(super) fn listen(&mut self, notation: Notation) {
        self.drop_data();
        self.request_from_driver(RequestPurpose::Listening(notation), DriverRequest::Listen);
    }

    pub(super) fn connect_later(&mut self, addresses: Vec<SocketAddr>) {
        self.drop_data();
        let max_connections = self.policy.connections.max(1);
        if addresses.len() > usize::from(max_connections) {
            let text = format!("At most {max_connections} data connections.");
            self.reply(&FtpReply::new(504, text));
        } else if addresses
            .iter()
            .all(|&address| self.is_allowed_address(address))
        {
            self.data.addresses = addresses;
            self.reply(&FtpReply::new(200, "PORT Command successful."));
        } else {
            self.reply(&FtpReply::new(
                504,
                "Use the host of the control connection and a port from 1024.",
            ));
        }
    }

    pub(super) fn prepare_transfer(&mut self, now: Duration, command: FtpCommand) {
        self.command = command.name();
        let restart = self.settings.restart.take();
        let check = self.settings.check.take();
        let directory = self.settings.directory.clone();
        let recursive = matches!(command, FtpCommand::Mlsr(_));
        let mode = write_mode(&command, restart.as_ref());
        let (kind, path) = match command {
            FtpCommand::Retr(path) => (TransferKind::Send { region: None }, path),
            FtpCommand::Eret {
                part: Partial::Region { offset, length },
                path,
            } => (
                TransferKind::Send {
                    region: Some((offset, length)),
                },
                path,
            ),
            FtpCommand::Stor(path) | FtpCommand::Appe(path) => (
                TransferKind::Receive {
                    path: path.clone(),
                    base: 0,
                    check,
                },
                path,
            ),
            FtpCommand::Esto { offset, path } => (
                TransferKind::Receive {
                    path: path.clone(),
                    base: offset,
                    check,
                },
                path,
            ),
            FtpCommand::Mlsd(path) | FtpCommand::Mlsr(path) => (
                TransferKind::List(ListFormat::Facts),
                path.unwrap_or(directory),
            ),
            FtpCommand::List(path) => (
                TransferKind::List(ListFormat::Long),
                path.unwrap_or(directory),
            ),
            FtpCommand::Nlst(path) => (
                TransferKind::List(ListFormat::Names),
                path.unwrap_or(directory),
            ),
            _ => return self.reply(&FtpReply::new(502, "Command not implemented.")),
        };
        let receives = matches!(kind, TransferKind::Receive { .. });
        if let Err(reply) = self.check_data_connection(receives) {
            return self.reject_transfer(receives, &reply);
        }
        self.settings.restart = restart;
        self.touch(now);
        match path.normalised(&self.settings.directory) {
            Err(error) => self.reject_transfer(receives, &FtpReply::new(553, error.to_string())),
            Ok(path) => match kind {
                TransferKind::Send { .. } => {
                    self.request_from_driver(RequestPurpose::Open(kind), DriverRequest::Read(path))
                }
                TransferKind::List(_) => self.request_from_driver(
                    RequestPurpose::Open(kind),
                    DriverRequest::List { path, recursive },
                ),
                TransferKind::Receive { base, check, .. } => {
                    let checksum = check.as_ref().map(|(algorithm, _)| algorithm.clone());
                    let kind = TransferKind::Receive {
                        path: path.clone(),
                        base,
                        check,
                    };
                    let request = DriverRequest::Write {
                        path,
                        mode,
                        checksum,
                    };
                    self.request_from_driver(RequestPurpose::Open(kind), request);
                }
            },
        }
    }
    /// Checks that there is a data connection for the transfer, or an address to open one.
    fn check_data_connection(&self, receives: bool) -> Result<(), FtpReply> {
        let data = &self.data;
        if receives && !self.policy.writes {
            return Err(GlobusError::Denied.reply());
        }
        if self.lacks_data_credential() {
            return Err(FtpReply::new(
                425,
                "No credential for data connections. Delegate a credential, send DCSC P, or send DCAU N.",
            ));
        }
        if data.reply_error && data.early {
            return Err(FtpReply::new(
                425,
                "The data connections carry bytes of a rejected file. Send PASV again.",
            ));
        }
        match self.settings.mode {
            Mode::Extended
                if receives && data.listens || !receives && !data.addresses.is_empty() =>
            {
                Ok(())
            }
            Mode::Extended if data.listens || !data.addresses.is_empty() => Err(FtpReply::new(
                500,
                "In MODE E the sender of data connects. Send PASV to store, PORT to retrieve.",
            )),
            Mode::Stream if data.listens || !data.addresses.is_empty() => Ok(()),
            _ => Err(FtpReply::new(425, "Send PASV or PORT first.")),
        }
    }

    /// Rejects a transfer. The bytes of a rejected upload can already be in flight. If the client
    /// did not wait, the server would assign them to its next file. The server then drops the
    /// connections, so that the next uploads fail instead of storing wrong bytes.
    fn reject_transfer(&mut self, receives: bool, reply: &FtpReply) {
        self.reply(reply);
        if receives && self.settings.mode == Mode::Extended {
            self.data.reply_error = true;
            if self.data.early || self.lines.has_line() {
                self.drop_data();
            }
        }
    }

    /// Handles the driver's response: the file of a transfer is open or finished.
    pub(super) fn transfer_responded(
        &mut self,
        now: Duration,
        purpose: RequestPurpose,
        response: DriverResponse,
    ) {
        // REST applies only to this transfer, even if it fails (RFC 959, section 4.1.3).
        let restart = match purpose {
            RequestPurpose::Open(_) => self.settings.restart.take(),
            _ => None,
        };
        match (purpose, response) {
            (RequestPurpose::Open(TransferKind::Send { region }), DriverResponse::Size(size)) => {
                let mut transfer = ServerTransfer::new(TransferKind::Send { region }, now);
                match ranges_to_send(region, size, restart, &mut transfer) {
                    Some(ranges) => {
                        transfer.ranges = ranges.iter().collect();
                        self.start(now, transfer);
                    }
                    None => {
                        self.outputs.push_back(ServerOutput::CloseFile);
                        self.reply(&FtpReply::new(554, "REST is beyond the end of the file."));
                    }
                }
            }
            (
                RequestPurpose::Open(TransferKind::Receive { path, check, .. }),
                DriverResponse::Size(base),
            ) => {
                self.start(
                    now,
                    ServerTransfer::new(TransferKind::Receive { path, base, check }, now),
                );
            }
            (RequestPurpose::Open(kind @ TransferKind::Receive { .. }), DriverResponse::Done) => {
                let mut transfer = ServerTransfer::new(kind, now);
                if let Some(Restart::Offset(offset)) = restart {
                    transfer.position = offset;
                }
                self.start(now, transfer);
            }
            (
                RequestPurpose::Open(kind @ TransferKind::List(_)),
                DriverResponse::Entries { entries, more },
            ) => {
                let mut transfer = ServerTransfer::new(kind, now);
                self.take_entries(now, &mut transfer, &entries, more);
                self.start(now, transfer);
            }
            (RequestPurpose::Open(kind), response) => {
                let error = match response {
                    DriverResponse::Failed(error) => error,
                    _ => GlobusError::Internal,
                };
                self.reject_transfer(matches!(kind, TransferKind::Receive { .. }), &error.reply());
            }
            (RequestPurpose::Finish, DriverResponse::Done) => {
                self.ended(226);
                self.reply(&FtpReply::new(226, "Transfer Complete."));
            }
            (RequestPurpose::Sent, response) => {
                // The sent bytes are complete on their connections, even if the file has changed.
                let reply = match response {
                    DriverResponse::Done => FtpReply::new(226, "Transfer Complete."),
                    DriverResponse::Failed(error) => error.reply(),
                    _ => GlobusError::Internal.reply(),
                };
                self.outputs.push_back(ServerOutput::CloseFile);
                self.ended(reply.code);
                self.reply(&reply);
            }
            (RequestPurpose::Verify(expected), DriverResponse::Checksum(found)) => {
                self.verified(&expected, &found)
            }
            (RequestPurpose::Finish | RequestPurpose::Verify(_), response) => {
                let error = match response {
                    DriverResponse::Failed(error) => error,
                    _ => GlobusError::Internal,
                };
                self.fail(&error.reply());
            }
            (_, response) => self.reply_error(&response),
        }
    }

    fn verified(&mut self, expected: &str, found: &str) {
        if expected.eq_ignore_ascii_case(found) {
            return self.request_from_driver(RequestPurpose::Finish, DriverRequest::Finish);
        }
        let lines = [
            "GlobusError: v=1 c=INCORRECT_CHECKSUM".to_owned(),
            format!("GridFTP-Computed-Checksum: {found}"),
            format!("GridFTP-Expected-Checksum: {expected}"),
        ];
        // Later bytes on the data connections may not belong to the next file.
        self.fail(&FtpReply::block(
            550,
            lines.map(String::into_bytes).to_vec(),
        ));
    }
}

/// Returns the ranges of a file to send; `None` if the file ends before them. Block offsets of a
/// region count from its start.
fn ranges_to_send(
    region: Option<(u64, u64)>,
    size: u64,
    restart: Option<Restart>,
    transfer: &mut ServerTransfer,
) -> Option<ByteRanges> {
    let (start, length) = region.unwrap_or((0, size));
    let end = start.saturating_add(length).min(size);
    transfer.position = start;
    match restart {
        Some(Restart::Offset(offset)) if offset > 0 => {
            let start = start.saturating_add(offset);
            (start <= end).then(|| ByteRanges::from_range(start..end))
        }
        Some(Restart::Ranges(present)) if region.is_none() => Some(present.missing(size)),
        _ => Some(ByteRanges::from_range(start..end)),
    }
}

/// Treatment of existing bytes.
fn write_mode(command: &FtpCommand, restart: Option<&Restart>) -> WriteMode {
    match (command, restart) {
        (FtpCommand::Esto { .. }, _) => WriteMode::Region,
        (FtpCommand::Appe(_), _) => WriteMode::Append,
        (_, Some(&Restart::Offset(bytes))) if bytes > 0 => WriteMode::Restart { bytes },
        (_, Some(Restart::Ranges(present))) if !present.is_empty() => WriteMode::Marked {
            bytes: present.iter().map(|range| range.end).max().unwrap_or(0),
        },
        _ => WriteMode::New,
    }
}
