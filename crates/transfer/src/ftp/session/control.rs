//! Control connection of a session, and outputs of its client.

use std::io;
use std::sync::atomic::Ordering;
use std::task::Context;

use venturi_gridftp::client::ClientOutput;

use super::FtpSession;
use crate::ftp::data_connection::DataConnection;
use crate::ftp::messages::RequestResult;

impl FtpSession<'_> {
    pub(super) fn write_control(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.unsent.is_empty() && self.control.poll_write_ready(cx).is_ready() {
            match self.control.try_write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.lost = Some(crate::error::describe(&error));
                    break;
                }
            }
        }
        moved
    }

    pub(super) fn read_control(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.control.poll_read_ready(cx).is_ready() {
            let now = self.now();
            let result = match self.control.try_read(&mut self.replies) {
                Ok(0) if self.farewell.is_some() => {
                    self.untidy = false;
                    return false;
                }
                Ok(0) => self.client.handle_closed(),
                Ok(count) => {
                    moved = true;
                    self.client.handle_input(now, &self.replies[..count])
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.client.handle_closed(),
            };
            let ended = result.is_err();
            self.record_end(result);
            self.handle_outputs();
            if ended {
                return true;
            }
        }
        if moved {
            self.connections
                .values_mut()
                .for_each(DataConnection::unblock);
        }
        moved
    }

    pub(super) fn handle_outputs(&mut self) {
        while let Some(output) = self.client.poll_output() {
            match output {
                ClientOutput::Send(bytes) => self.unsent.extend(bytes),
                ClientOutput::Ready => self.ready = true,
                ClientOutput::Listen => self.listen(),
                ClientOutput::Connect {
                    address,
                    connections,
                    purpose,
                } => self.connect(address, connections, purpose),
                ClientOutput::DataNodes(nodes) => self.shared.report_nodes(nodes),
                ClientOutput::CloseData { connection } => {
                    drop(self.connections.remove(&connection))
                }
                ClientOutput::DropData { faulty } => {
                    self.connections.clear();
                    self.listener = None;
                    self.arriving.clear();
                    let troubles = &self.shared.troubles;
                    troubles.fetch_add(faulty.into(), Ordering::Relaxed);
                }
                ClientOutput::Started { transfer } => self.started(transfer),
                ClientOutput::FileInfo { transfer, reply } => {
                    self.final_replies.insert(transfer, reply);
                }
                ClientOutput::Done { transfer, .. } => self.done(transfer),
                ClientOutput::Failed { transfer, failure } => {
                    self.failed(transfer, &failure);
                }
                ClientOutput::Line { request, text } => {
                    if let Some(result_sender) = self.pending_requests.get(&request) {
                        result_sender.send(RequestResult::ListingLine(text));
                    }
                }
                ClientOutput::Preliminary { request, reply } => {
                    if let Some(result_sender) = self.pending_requests.get(&request) {
                        result_sender.send(RequestResult::Preliminary(reply));
                    }
                }
                ClientOutput::Reply { request, reply } => {
                    if let Some(item) = self.verifying.remove(&request) {
                        self.verified(item, &reply);
                    }
                    if let Some((item, source)) = self.unconfirmed.remove(&request) {
                        self.size_received(item, source, &reply);
                    }
                    if let Some(item) = self.checking.remove(&request) {
                        self.temp_file_checked(item, &reply);
                    }
                    if let Some((path, _)) = self.modes.remove(&request) {
                        self.mode_set(&path, &reply);
                    }
                    if let Some(result_sender) = self.pending_requests.remove(&request) {
                        result_sender.end(reply);
                    }
                }
                _ => {}
            }
        }
    }
}
