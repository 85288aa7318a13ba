//! Markers and end of a transfer.

use std::time::Duration;

use super::commands::RequestPurpose;
use super::transfer::{DataConnections, ServerTransfer, TransferKind};
use super::{DriverRequest, Server, ServerOutput, SessionState};
use crate::{FtpReply, Mode, PerformanceMarker, ProgressMarker};

impl Server {
    /// Completes a transfer after all bytes have moved.
    pub(super) fn complete(&mut self) {
        self.markers_at_end();
        let SessionState::Transferring(transfer) =
            std::mem::replace(&mut self.state, SessionState::Idle)
        else {
            return;
        };
        if self.settings.mode == Mode::Stream {
            self.drop_data();
        }
        match transfer.kind {
            TransferKind::Receive {
                check: Some((algorithm, value)),
                ..
            } => self.request_from_driver(
                RequestPurpose::Verify(value),
                DriverRequest::Verify { algorithm },
            ),
            TransferKind::Receive { check: None, .. } => {
                self.request_from_driver(RequestPurpose::Finish, DriverRequest::Finish)
            }
            TransferKind::Send { .. } => {
                self.request_from_driver(RequestPurpose::Sent, DriverRequest::Sent)
            }
            TransferKind::List(_) => {
                self.outputs.push_back(ServerOutput::CloseFile);
                self.ended(226);
                self.reply(&FtpReply::new(226, "Transfer Complete."));
            }
        }
    }

    /// Fails a transfer. Its data connections hold bytes of unknown files and are dropped.
    pub(super) fn fail(&mut self, reply: &FtpReply) {
        let is_pending =
            matches!(&self.state, SessionState::Transferring(transfer) if transfer.requested);
        // The pending response must not be matched to the next request.
        self.state = if is_pending {
            SessionState::AwaitingDriver(RequestPurpose::Nothing)
        } else {
            SessionState::Idle
        };
        self.outputs.push_back(ServerOutput::CloseFile);
        self.ended(reply.code);
        self.drop_data();
        self.reply(reply);
    }

    pub(super) fn ended(&mut self, code: u16) {
        let command = self.command;
        self.outputs
            .push_back(ServerOutput::Ended { command, code });
    }

    pub(super) fn drop_data(&mut self) {
        self.data = DataConnections::default();
        self.outputs.push_back(ServerOutput::DropData);
    }

    pub(super) fn touch(&mut self, now: Duration) {
        self.moved = self.moved.max(now);
        // After the start only bytes count as progress.
        if let SessionState::Transferring(transfer) = &mut self.state
            && !transfer.started
        {
            transfer.last.touch(now);
        }
    }

    /// Sends the markers that are due.
    pub(super) fn mark(&mut self, now: Duration) {
        let interval = self.settings.marker_interval;
        if let SessionState::Transferring(transfer) = &mut self.state
            && transfer.marked.is_some_and(|last| last + interval <= now)
        {
            transfer.marked = Some(now);
            self.performance(now);
            self.restart_marker();
        }
    }

    fn markers_at_end(&mut self) {
        if let SessionState::Transferring(ServerTransfer {
            marked: Some(_), ..
        }) = &self.state
        {
            self.performance(self.moved);
            self.restart_marker();
        }
    }

    pub(super) fn performance(&mut self, now: Duration) {
        if let SessionState::Transferring(transfer) = &self.state {
            let marker = PerformanceMarker {
                timestamp_s: (self.policy.epoch + now).as_secs_f64(),
                stripe: 0,
                bytes: transfer.bytes,
                stripes: 1,
            };
            self.reply(&ProgressMarker::Performance(marker).reply());
        }
    }

    fn restart_marker(&mut self) {
        if let SessionState::Transferring(transfer) = &mut self.state {
            let fresh = std::mem::take(&mut transfer.fresh);
            if !fresh.is_empty() {
                self.reply(&ProgressMarker::Ranges(fresh).reply());
            }
        }
    }
}
