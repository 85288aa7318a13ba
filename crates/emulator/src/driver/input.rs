//! Commands from the controller, read and parsed by a separate thread, so that a long line does not
//! delay packets.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::machine;
use crate::EmulatorError;
use crate::protocol::EmulatorCommand;

/// Maximum length of a line, far more than a network of thousands of links needs.
const LINE_LIMIT_BYTES: u64 = 64 << 20;
/// Maximum number of queued commands; with more, the controller must wait.
const WAITING_COMMANDS: usize = 1024;

/// Input from the controller.
#[derive(Debug)]
pub(crate) enum ControllerInput {
    Command(EmulatorCommand),
    /// A line that is not a command.
    Bad(EmulatorError),
    /// The controller has disconnected.
    End,
}

/// Receiver of inputs, with a descriptor that is readable when an input is available.
#[derive(Debug)]
pub(crate) struct Inbox {
    inputs: Receiver<ControllerInput>,
    pub(crate) bell: Arc<EventFd>,
}

impl Inbox {
    /// Start the thread, which ends at the end of standard input or with the process.
    pub(crate) fn start() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let (sender, inputs) = sync_channel(WAITING_COMMANDS);
        let theirs = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || {
                machine::ordinary();
                read_all(io::stdin().lock(), &sender, &theirs);
            })?;
        Ok(Self { inputs, bell })
    }

    /// Return the next input, if available.
    pub(crate) fn next(&self) -> Option<ControllerInput> {
        self.inputs.try_recv().ok()
    }

    /// Reset the bell. Call this after it has rung, before reading the inputs.
    pub(crate) fn silence(&self) {
        let _ = self.bell.read(); // it fails only if the bell was silent already
    }
}

fn read_all(mut source: impl BufRead, sender: &SyncSender<ControllerInput>, bell: &EventFd) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = source
            .by_ref()
            .take(LINE_LIMIT_BYTES)
            .read_until(b'\n', &mut line);
        let input = match read {
            Ok(0) | Err(_) => ControllerInput::End,
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(command) => ControllerInput::Command(command),
                Err(error) => ControllerInput::Bad(error.into()),
            },
        };
        let last = matches!(input, ControllerInput::End);
        if sender.send(input).is_err() {
            return;
        }
        let _ = bell.write(1); // can fail only if the counter is full, and then the bell rings already
        if last {
            return;
        }
    }
}
