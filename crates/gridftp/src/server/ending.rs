//! How a transfer is told of while it goes on, and how it ends.

use std::time::Duration;

use super::commands::Purpose;
use super::transfer::{Data, Kind, Transfer};
use super::{Output, Request, Server, State};
use crate::{Mode, Performance, Progress, Reply};

impl Server {
    /// All bytes have moved.
    pub(super) fn complete(&mut self) {
        self.markers_at_end();
        let State::Transferring(transfer) = std::mem::replace(&mut self.state, State::Idle) else {
            return;
        };
        if self.chosen.mode == Mode::Stream {
            self.drop_data();
        }
        match transfer.kind {
            Kind::Receive {
                check: Some((algorithm, value)),
                ..
            } => self.ask(Purpose::Verify(value), Request::Verify { algorithm }),
            Kind::Receive { check: None, .. } => self.ask(Purpose::Finish, Request::Finish),
            Kind::Send { .. } => self.ask(Purpose::Sent, Request::Sent),
            Kind::List(_) => {
                self.outputs.push_back(Output::CloseFile);
                self.ended(226);
                self.reply(&Reply::new(226, "Transfer Complete."));
            }
        }
    }

    /// A transfer has failed. Its data connections hold bytes of nobody knows which file: they go.
    pub(super) fn fail(&mut self, reply: &Reply) {
        let asks = matches!(&self.state, State::Transferring(transfer) if transfer.asked);
        // The answer that is still to come may not be taken for that of the next question.
        self.state = if asks {
            State::Asking(Purpose::Nothing)
        } else {
            State::Idle
        };
        self.outputs.push_back(Output::CloseFile);
        self.ended(reply.code);
        self.drop_data();
        self.reply(reply);
    }

    pub(super) fn ended(&mut self, code: u16) {
        let command = self.command;
        self.outputs.push_back(Output::Ended { command, code });
    }

    pub(super) fn drop_data(&mut self) {
        self.data = Data::default();
        self.outputs.push_back(Output::DropData);
    }

    pub(super) fn touch(&mut self, now: Duration) {
        self.moved = self.moved.max(now);
        // From its begin on only bytes count, whoever comes and goes.
        if let State::Transferring(transfer) = &mut self.state
            && !transfer.begun
        {
            transfer.last.touch(now);
        }
    }

    /// Sends the markers that are due.
    pub(super) fn mark(&mut self, now: Duration) {
        let interval = self.chosen.marker_interval;
        if let State::Transferring(transfer) = &mut self.state
            && transfer.marked.is_some_and(|last| last + interval <= now)
        {
            transfer.marked = Some(now);
            self.performance(now);
            self.restart_marker();
        }
    }

    fn markers_at_end(&mut self) {
        if let State::Transferring(Transfer {
            marked: Some(_), ..
        }) = &self.state
        {
            self.performance(self.moved);
            self.restart_marker();
        }
    }

    pub(super) fn performance(&mut self, now: Duration) {
        if let State::Transferring(transfer) = &self.state {
            let marker = Performance {
                timestamp_s: (self.policy.epoch + now).as_secs_f64(),
                stripe: 0,
                bytes: transfer.bytes,
                stripes: 1,
            };
            self.reply(&Progress::Performance(marker).reply());
        }
    }

    fn restart_marker(&mut self) {
        if let State::Transferring(transfer) = &mut self.state {
            let fresh = std::mem::take(&mut transfer.fresh);
            if !fresh.is_empty() {
                self.reply(&Progress::Ranges(fresh).reply());
            }
        }
    }
}
