//! Two sessions of one client that copies between their servers.

use std::time::Duration;

use venturi_gridftp::client::{ClientOutput, SessionSide, ThirdParty, ThirdPartyOutput};

use super::Driver;

/// Passes requests of the copy to the servers (source, destination) and returns their replies to
/// it. Returns other outputs to the test.
pub fn relay(copies: &mut ThirdParty, sessions: &mut [Driver; 2]) -> Option<ThirdPartyOutput> {
    match copies.poll_output() {
        Some(ThirdPartyOutput::Request {
            side,
            request,
            command,
        }) => {
            let session = &mut sessions[usize::from(side == SessionSide::Destination)];
            session.client.request(Duration::ZERO, request, command);
            None
        }
        None => {
            for session in sessions {
                session.turn();
                for output in std::mem::take(&mut session.received_replies) {
                    if let ClientOutput::Reply { request, reply }
                    | ClientOutput::Preliminary { request, reply } = output
                    {
                        copies.handle_reply(request, &reply);
                    }
                }
            }
            None
        }
        other => other,
    }
}
