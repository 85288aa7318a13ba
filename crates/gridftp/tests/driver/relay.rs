//! Two sessions of one client that copies between their servers.

use std::time::Duration;

use venturi_gridftp::client::{Output, Side, ThirdParty, ThirdPartyOutput};

use super::Driver;

/// Passes on what the copy asks and what servers (source, destination) answer; what else it says is for the test.
pub fn relay(copies: &mut ThirdParty, sessions: &mut [Driver; 2]) -> Option<ThirdPartyOutput> {
    match copies.poll_output() {
        Some(ThirdPartyOutput::Request {
            side,
            request,
            command,
        }) => {
            let session = &mut sessions[usize::from(side == Side::Destination)];
            session.client.request(Duration::ZERO, request, command);
            None
        }
        None => {
            for session in sessions {
                session.turn();
                for output in std::mem::take(&mut session.heard) {
                    if let Output::Answer { request, reply } | Output::Notice { request, reply } =
                        output
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
