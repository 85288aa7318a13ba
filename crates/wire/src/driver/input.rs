//! Commands from the controller, read and parsed by a thread of their own: a long line must not delay a packet.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::machine;
use crate::Error;
use crate::protocol::Command;

/// Longest line that is read: a network of thousands of links fits many times.
const LINE_LIMIT_BYTES: u64 = 64 << 20;
/// Commands that may wait; the controller waits then.
const WAITING_COMMANDS: usize = 1024;

/// What came from the controller.
#[derive(Debug)]
pub(crate) enum Input {
    Command(Command),
    /// A line that is no command.
    Bad(Error),
    /// The controller is gone.
    End,
}

/// The receiving end, and a descriptor that is readable when something is there.
#[derive(Debug)]
pub(crate) struct Inbox {
    inputs: Receiver<Input>,
    pub(crate) bell: Arc<EventFd>,
}

impl Inbox {
    /// Starts the thread, which ends with standard input, or with the process.
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

    /// The next input, if there is one.
    pub(crate) fn next(&self) -> Option<Input> {
        self.inputs.try_recv().ok()
    }

    /// To be called when the bell has rung, before the inputs are taken.
    pub(crate) fn silence(&self) {
        let _ = self.bell.read(); // nothing to read means that it was silent already
    }
}

fn read_all(mut source: impl BufRead, sender: &SyncSender<Input>, bell: &EventFd) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = source
            .by_ref()
            .take(LINE_LIMIT_BYTES)
            .read_until(b'\n', &mut line);
        let input = match read {
            Ok(0) | Err(_) => Input::End,
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(command) => Input::Command(command),
                Err(error) => Input::Bad(error.into()),
            },
        };
        let last = matches!(input, Input::End);
        if sender.send(input).is_err() {
            return;
        }
        let _ = bell.write(1); // can fail only when it is ringing 2^64 times already
        if last {
            return;
        }
    }
}
