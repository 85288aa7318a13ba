//! One client: what it is at, and what to do when its connection has something to say.

use crate::connection::{Arrival, Connection};
use crate::{Failure, Order, Response};

/// Reads of one client before the others have their turn.
const READS_A_TURN: usize = 4;

/// A client.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub state: State,
    /// When the fetch that runs began.
    pub began_ns: u64,
    /// Fetches that it has begun, those that failed among them.
    pub begun: u64,
    /// A connection that is open and idle.
    pub spare: Option<Connection>,
    /// Whether the fetch that runs had a connection that was used before.
    pub reused: bool,
}

/// What a client is at.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// Before its first fetch, between two, or after a failure: a timer wakes it.
    #[default]
    Asleep,
    /// The connection is being made, or the request is on its way.
    Asking {
        connection: Connection,
        written: usize,
        made: bool,
    },
    /// The response is on its way.
    Receiving {
        connection: Connection,
        response: Response,
    },
    /// It begins no fetch any more.
    Done,
}

/// What came of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The fetch goes on; the client waits to read from now on, not to write.
    Asked,
    /// The fetch goes on as before.
    Same,
    /// The fetch is whole: bytes of its body.
    Fetched(u64),
    /// The fetch has failed.
    Failed(Failure),
    /// A connection that was used before was closed under the request: to be asked again on a new one.
    Stale,
}

impl Client {
    /// The connection can be written to: connecting has come to something, or the rest of the request goes.
    pub fn writable(&mut self, request: &[u8], made_one: &mut u64) -> Turn {
        let State::Asking {
            connection,
            written,
            made,
        } = &mut self.state
        else {
            return Turn::Same;
        };
        if !*made {
            if let Err(failure) = connection.made() {
                return self.fails(failure);
            }
            *made = true;
            *made_one += 1;
        }
        match connection.write(&request[*written..]) {
            Ok(count) => *written += count,
            Err(failure) => return self.fails(failure),
        }
        if *written < request.len() {
            return Turn::Same;
        }
        if let State::Asking { connection, .. } = std::mem::take(&mut self.state) {
            let response = Response::default();
            self.state = State::Receiving {
                connection,
                response,
            };
        }
        Turn::Asked
    }

    /// The connection can be read from.
    pub fn readable(
        &mut self,
        order: &Order,
        buffer: &mut [u8],
        mut arrived: impl FnMut(u64, u64),
    ) -> Turn {
        let State::Receiving {
            connection,
            response,
        } = &mut self.state
        else {
            return Turn::Same;
        };
        for _ in 0..READS_A_TURN {
            let whole = match connection.read(buffer) {
                Ok(Arrival::Nothing) => return Turn::Same,
                Ok(Arrival::Bytes(count)) => match response.feed(&buffer[..count]) {
                    Ok(progress) => {
                        arrived(progress.head_bytes, progress.body_bytes);
                        progress.whole
                    }
                    Err(failure) => return self.fails(failure),
                },
                Ok(Arrival::End) if response.end() => true,
                Ok(Arrival::End) => return self.fails(Failure::Closed),
                Err(failure) => return self.fails(failure),
            };
            if whole {
                return self.whole(order);
            }
        }
        Turn::Same
    }

    /// Ends what runs; the connection is closed with it.
    pub fn fails(&mut self, failure: Failure) -> Turn {
        let before = std::mem::take(&mut self.state);
        let untouched = match &before {
            State::Asking { .. } => true,
            State::Receiving { response, .. } => response.is_fresh(),
            _ => false,
        };
        // A server may close an idle connection at any time; that a request crosses with it is no failure of either.
        if self.reused && untouched && matches!(failure, Failure::Closed | Failure::Reset) {
            return Turn::Stale;
        }
        Turn::Failed(failure)
    }

    fn whole(&mut self, order: &Order) -> Turn {
        let State::Receiving {
            connection,
            response,
        } = std::mem::take(&mut self.state)
        else {
            return Turn::Same;
        };
        let bytes = response.body_bytes();
        if order.keep_alive && response.keeps_alive() {
            self.spare = Some(connection);
        }
        if !(200..300).contains(&response.status()) {
            return Turn::Failed(Failure::Status(response.status()));
        }
        if order.expect_bytes.is_some_and(|expected| expected != bytes) {
            return Turn::Failed(Failure::Length);
        }
        Turn::Fetched(bytes)
    }

    /// Whether it is at a fetch.
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::Asking { .. } | State::Receiving { .. })
    }
}
