//! State of one client and its reaction to events on its connection.

use crate::connection::{LoadConnection, ReadOutcome};
use crate::{FetchFailure, LoadConfig, ResponseReader};

/// Maximum consecutive reads of one client.
const READS_A_TURN: usize = 4;

/// Client of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadClient {
    pub state: ClientState,
    /// Start of the current fetch.
    pub fetch_start_ns: u64,
    /// Started fetches, including failed fetches.
    pub started: u64,
    /// An open, idle connection.
    pub spare: Option<LoadConnection>,
    /// True if the current fetch reuses a connection.
    pub reused: bool,
}

/// State of a client.
#[derive(Debug, Default)]
pub(crate) enum ClientState {
    /// Waits for a timer: before its first fetch, between two fetches, or after a failure.
    #[default]
    Asleep,
    /// Connects, or sends the request.
    Requesting {
        connection: LoadConnection,
        written: usize,
        made: bool,
    },
    /// Receives the response.
    Receiving {
        connection: LoadConnection,
        response: ResponseReader,
    },
    /// Has started its last fetch.
    Done,
}

/// Result of an event on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// The request is sent; the client now waits for readable data.
    RequestSent,
    /// The fetch continues.
    Same,
    /// The fetch is complete: bytes of its body.
    Fetched(u64),
    /// The fetch has failed.
    Failed(FetchFailure),
    /// The server closed a reused connection before the response. Send the request again on a new connection.
    Stale,
}

impl LoadClient {
    /// Handles a writable connection: checks the result of `connect`, then sends the rest of the request.
    pub fn writable(&mut self, request: &[u8], opened: &mut u64) -> ClientEvent {
        let ClientState::Requesting {
            connection,
            written,
            made,
        } = &mut self.state
        else {
            return ClientEvent::Same;
        };
        if !*made {
            if let Err(failure) = connection.made() {
                return self.fails(failure);
            }
            *made = true;
            *opened += 1;
        }
        match connection.write(&request[*written..]) {
            Ok(count) => *written += count,
            Err(failure) => return self.fails(failure),
        }
        if *written < request.len() {
            return ClientEvent::Same;
        }
        if let ClientState::Requesting { connection, .. } = std::mem::take(&mut self.state) {
            let response = ResponseReader::default();
            self.state = ClientState::Receiving {
                connection,
                response,
            };
        }
        ClientEvent::RequestSent
    }

    /// Handles a readable connection.
    pub fn readable(
        &mut self,
        config: &LoadConfig,
        buffer: &mut [u8],
        mut arrived: impl FnMut(u64, u64),
    ) -> ClientEvent {
        let ClientState::Receiving {
            connection,
            response,
        } = &mut self.state
        else {
            return ClientEvent::Same;
        };
        for _ in 0..READS_A_TURN {
            let complete = match connection.read(buffer) {
                Ok(ReadOutcome::Nothing) => return ClientEvent::Same,
                Ok(ReadOutcome::Bytes(count)) => match response.feed(&buffer[..count]) {
                    Ok(progress) => {
                        arrived(progress.head_bytes, progress.body_bytes);
                        progress.complete
                    }
                    Err(failure) => return self.fails(failure),
                },
                Ok(ReadOutcome::End) if response.end() => true,
                Ok(ReadOutcome::End) => return self.fails(FetchFailure::Closed),
                Err(failure) => return self.fails(failure),
            };
            if complete {
                return self.complete(config);
            }
        }
        ClientEvent::Same
    }

    /// Ends the current fetch and closes its connection.
    pub fn fails(&mut self, failure: FetchFailure) -> ClientEvent {
        let before = std::mem::take(&mut self.state);
        let untouched = match &before {
            ClientState::Requesting { .. } => true,
            ClientState::Receiving { response, .. } => response.is_fresh(),
            _ => false,
        };
        // A server can close an idle connection at any time. If a request crosses with the close, this is not a
        // failure.
        if self.reused && untouched && matches!(failure, FetchFailure::Closed | FetchFailure::Reset)
        {
            return ClientEvent::Stale;
        }
        ClientEvent::Failed(failure)
    }

    fn complete(&mut self, config: &LoadConfig) -> ClientEvent {
        let ClientState::Receiving {
            connection,
            response,
        } = std::mem::take(&mut self.state)
        else {
            return ClientEvent::Same;
        };
        let bytes = response.body_bytes();
        if config.keep_alive && response.keeps_alive() {
            self.spare = Some(connection);
        }
        if !(200..300).contains(&response.status()) {
            return ClientEvent::Failed(FetchFailure::Status(response.status()));
        }
        if config
            .expect_bytes
            .is_some_and(|expected| expected != bytes)
        {
            return ClientEvent::Failed(FetchFailure::Length);
        }
        ClientEvent::Fetched(bytes)
    }

    /// Return whether a fetch is in progress.
    pub fn is_busy(&self) -> bool {
        matches!(
            self.state,
            ClientState::Requesting { .. } | ClientState::Receiving { .. }
        )
    }
}
