//! The control connection of a session, and what the client has done.

use std::io;
use std::sync::atomic::Ordering;
use std::task::Context;

use venturi_gridftp::client::Output;

use super::Session;
use crate::ftp::link::Link;
use crate::ftp::messages::Answer;

impl Session<'_> {
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
                    self.lost = Some(crate::error::said(&error));
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
            self.note_end(result);
            self.see_to_outputs();
            if ended {
                return true;
            }
        }
        if moved {
            self.links.values_mut().for_each(Link::try_again);
        }
        moved
    }

    pub(super) fn see_to_outputs(&mut self) {
        while let Some(output) = self.client.poll_output() {
            match output {
                Output::Send(bytes) => self.unsent.extend(bytes),
                Output::Ready => self.ready = true,
                Output::Listen => self.listen(),
                Output::Connect {
                    address,
                    connections,
                    purpose,
                } => self.connect(address, connections, purpose),
                Output::DataNodes(nodes) => self.shared.tell_nodes(nodes),
                Output::CloseData { connection } => drop(self.links.remove(&connection)),
                Output::DropData { faulty } => {
                    self.links.clear();
                    self.listener = None;
                    self.arriving.clear();
                    let troubles = &self.shared.troubles;
                    troubles.fetch_add(faulty.into(), Ordering::Relaxed);
                }
                Output::Begun { transfer } => self.begun(transfer),
                Output::Seen { transfer, reply } => {
                    self.seen.insert(transfer, reply);
                }
                Output::Done { transfer, .. } => self.done(transfer),
                Output::Failed { transfer, failure } => {
                    self.failed(transfer, &failure);
                }
                Output::Line { request, text } => {
                    if let Some(asker) = self.asked.get(&request) {
                        asker.tell(Answer::Line(text));
                    }
                }
                Output::Notice { request, reply } => {
                    if let Some(asker) = self.asked.get(&request) {
                        asker.tell(Answer::Notice(reply));
                    }
                }
                Output::Answer { request, reply } => {
                    if let Some(item) = self.verifying.remove(&request) {
                        self.verified(item, &reply);
                    }
                    if let Some((item, source)) = self.doubtful.remove(&request) {
                        self.answered_for(item, source, &reply);
                    }
                    if let Some(item) = self.looking.remove(&request) {
                        self.looked(item, &reply);
                    }
                    if let Some((path, _)) = self.modes.remove(&request) {
                        self.mode_set(&path, &reply);
                    }
                    if let Some(asker) = self.asked.remove(&request) {
                        asker.end(reply);
                    }
                }
                _ => {}
            }
        }
    }
}
