//! Operations on files of other hosts: a request to the controller, and the wait for its response.
//!
//! Only slow threads wait. The event loop of the agent passes responses on.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use venturi_plan::{
    FileOperation, Name, OperationOutcome, OperationResult, Record, Request, Response,
};

use crate::output::Sender;

/// Sender of requests to the controller; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    open: Arc<Mutex<OpenRequests>>,
    sender: Sender,
}

#[derive(Debug, Default)]
struct OpenRequests {
    sent: u64,
    waiting: BTreeMap<u64, mpsc::Sender<OperationResult>>,
}

/// A request that the controller has not responded to.
#[derive(Debug)]
pub(crate) struct AwaitedResponse {
    number: u64,
    host: Name,
    response: Receiver<OperationResult>,
    open: Arc<Mutex<OpenRequests>>,
}

impl Requests {
    /// Create it without requests; records go to `sender`.
    pub(crate) fn new(sender: Sender) -> Self {
        Self {
            open: Arc::default(),
            sender,
        }
    }

    /// Request an operation on a host.
    pub(crate) fn send(&self, host: &Name, operation: FileOperation) -> AwaitedResponse {
        let (sender, response) = mpsc::channel();
        let number = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.sent += 1;
            let number = open.sent;
            open.waiting.insert(number, sender);
            number
        };
        self.sender.send(&Record::Request(Request {
            number,
            host: host.clone(),
            operation,
        }));
        AwaitedResponse {
            number,
            host: host.clone(),
            response,
            open: Arc::clone(&self.open),
        }
    }

    /// Pass a response to the thread that waits for it. A response that no thread waits for is dropped.
    pub(crate) fn respond(&self, response: Response) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = open.waiting.remove(&response.number) {
            let _ = waiting.send(response.result);
        }
    }
}

impl AwaitedResponse {
    /// Wait for the response, at most for `limit`; without a limit, the host limits the time of the operation.
    ///
    /// # Errors
    /// A message if the operation failed, or no response arrived.
    pub(crate) fn wait(self, limit: Option<Duration>) -> Result<OperationOutcome, String> {
        let received = match limit {
            Some(limit) => self.response.recv_timeout(limit),
            None => self.response.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(OperationResult::Outcome(outcome)) => Ok(outcome),
            Ok(OperationResult::Error(error)) => Err(format!("host `{}`: {error}", self.host)),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "host `{}`: expected the outcome of an operation within {:.0} s, found none; check the \
                 connection to the host and its file systems",
                self.host,
                limit.unwrap_or_default().as_secs_f64()
            )),
            Err(RecvTimeoutError::Disconnected) => Err(format!(
                "host `{}`: the agent ended before the response",
                self.host
            )),
        }
    }
}

impl Drop for AwaitedResponse {
    /// Remove the entry, so that a late response is dropped.
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.waiting.remove(&self.number);
    }
}

/// Return the error text for an outcome of another operation than the requested one.
pub(crate) fn wrong_outcome(host: &str, outcome: &OperationOutcome) -> String {
    format!(
        "host `{host}`: expected the outcome of the requested operation, found {outcome:?}; report this bug"
    )
}

#[cfg(test)]
mod tests;
