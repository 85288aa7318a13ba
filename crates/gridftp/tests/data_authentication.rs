//! A client against servers with and without authentication of data connections (DCAU): GFD.20
//! section 3.2, RFC 2228 section 3.

use std::time::Duration;

use venturi_gridftp::client::{Client, ClientOutput, ClientSettings, Login};
use venturi_gridftp::{Dcau, FtpError, Handshake, Mode, Protection, Security, base64};

/// A mechanism that accepts every peer and encrypts nothing.
struct Trusting;

impl Security for Trusting {
    fn mechanism(&self) -> &'static str {
        "GSSAPI"
    }

    fn step(&mut self, _token: Option<&[u8]>) -> Result<Handshake, FtpError> {
        Ok(Handshake {
            token: None,
            done: true,
        })
    }

    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, FtpError> {
        Ok(plain.to_vec())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, FtpError> {
        Ok(token.to_vec())
    }
}

/// Features of a server and its reply to DCAU A.
#[derive(Clone, Copy)]
struct ServerBehavior {
    greeting: &'static str,
    lists: bool,
    dcau: &'static str,
}

const AS_GLOBUS: ServerBehavior = ServerBehavior {
    greeting: "220 h GridFTP Server 13.24 (gcc64) [Globus Toolkit 6.0] ready.\r\n",
    lists: true,
    dcau: "200 DCAU A.",
};
const WITHOUT: ServerBehavior = ServerBehavior {
    greeting: "220 door ready\r\n",
    lists: false,
    dcau: "202 DCAU is superfluous at this server",
};

type Data = Option<(Dcau, Protection)>;
const AUTHENTICATED: Data = Some((Dcau::User, Protection::Clear));

/// Logs in. Returns the security of data connections, or the reason for a failed session, and the
/// sent commands.
fn log_in(
    behavior: ServerBehavior,
    data: Data,
    open_too: bool,
) -> (Result<Data, String>, Vec<String>) {
    let settings = ClientSettings {
        login: Login::Mapped,
        server: "192.0.2.2".parse().expect("an address"),
        mode: Mode::Extended,
        connections: 1,
        depth: 1,
        block_bytes: 1 << 20,
        buffer_bytes: None,
        data,
        upload: None,
        attempts: 1,
        striped: false,
        stall_timeout: Duration::from_secs(60),
    };
    let now = Duration::ZERO;
    let mut client = Client::new(settings, Some(Box::new(Trusting)), now).expect("a client");
    if open_too {
        client.allow_open_data();
    }
    let mut reply_text = Vec::new();
    let mut due = behavior.greeting.as_bytes().to_vec();
    let mut ready = false;
    while !due.is_empty() {
        if let Err(error) = client.handle_input(now, &std::mem::take(&mut due)) {
            return (Err(error.to_string()), reply_text);
        }
        while let Some(output) = client.poll_output() {
            match output {
                ClientOutput::Send(lines) => {
                    for line in String::from_utf8(lines).expect("text").lines() {
                        due.extend(respond(behavior, line, &mut reply_text));
                    }
                }
                ClientOutput::Ready => ready = true,
                _ => {}
            }
        }
    }
    assert!(ready, "neither ready nor rejected: {reply_text:?}");
    (Ok(client.data().cloned()), reply_text)
}

fn respond(behavior: ServerBehavior, line: &str, reply_text: &mut Vec<String>) -> Vec<u8> {
    let Some(token) = line.strip_prefix("ENC ") else {
        let reply = if line.starts_with("AUTH") {
            "334 go on\r\n"
        } else {
            "235 in\r\n"
        };
        return reply.into();
    };
    let plain = base64::decode(token.as_bytes()).expect("a token");
    let command = String::from_utf8(plain)
        .expect("text")
        .trim_end()
        .to_owned();
    let dcau = if behavior.lists { " DCAU\r\n" } else { "" };
    let reply = match command.split(' ').next().unwrap_or_default() {
        "USER" => "331 password".into(),
        "FEAT" => format!("211-Extensions\r\n PARALLEL\r\n{dcau}211 End"),
        "DCAU" if command == "DCAU A" => behavior.dcau.into(),
        _ => "200 fine".into(),
    };
    reply_text.push(command);
    // All lines of a reply except the last are inner lines.
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let last = lines.len() - 1;
    let protected = lines.iter().enumerate().map(|(at, line)| {
        let between = if at < last { '-' } else { ' ' };
        let token = base64::encode(format!("{line}\r\n").as_bytes());
        format!("632{between}{token}\r\n")
    });
    protected.collect::<String>().into_bytes()
}

#[test]
fn data_connections_are_authenticated_if_the_server_supports_it() {
    for (behavior, open_too) in [(AS_GLOBUS, true), (AS_GLOBUS, false)] {
        let (data, reply_text) = log_in(behavior, AUTHENTICATED, open_too);
        assert_eq!(data, Ok(AUTHENTICATED));
        assert!(reply_text.contains(&"DCAU A".into()), "{reply_text:?}");
        // The default protection is clear (RFC 2228), which saves one command.
        assert!(!reply_text.iter().any(|command| command.starts_with("PROT")));
    }
}

#[test]
fn a_server_without_authentication_gets_open_data_connections_only_if_allowed() {
    let rejects = ServerBehavior {
        dcau: "504 not here",
        ..AS_GLOBUS
    };
    let silent = ServerBehavior {
        lists: true,
        ..WITHOUT
    };
    for behavior in [WITHOUT, rejects, silent] {
        assert_eq!(
            log_in(behavior, AUTHENTICATED, true).0,
            Ok(None),
            "{}",
            behavior.dcau
        );
        let reason = log_in(behavior, AUTHENTICATED, false)
            .0
            .expect_err("refused");
        assert!(reason.contains("DCAU"), "{reason}");
    }
}

#[test]
fn a_failed_dcau_command_does_not_count_as_missing_support() {
    for dcau in ["431 no credential now", "550 not for you", "530 no"] {
        let behavior = ServerBehavior { dcau, ..AS_GLOBUS };
        let reason = log_in(behavior, AUTHENTICATED, true).0.expect_err(dcau);
        assert!(reason.contains("DCAU"), "{reason}");
    }
}

#[test]
fn open_data_connections_are_requested_after_dcau_is_rejected() {
    let rejects = ServerBehavior {
        dcau: "504 not here",
        ..AS_GLOBUS
    };
    let (data, reply_text) = log_in(rejects, AUTHENTICATED, true);
    let directories =
        ["DCAU A", "DCAU N"].map(|word| reply_text.iter().position(|command| command == word));
    assert!(
        data == Ok(None) && directories.is_sorted() && directories[0].is_some(),
        "{reply_text:?}"
    );
}

#[test]
fn protection_is_requested_after_authentication() {
    let data = Some((Dcau::User, Protection::Private));
    let (found, reply_text) = log_in(AS_GLOBUS, data.clone(), false);
    assert_eq!(found, Ok(data));
    let words = ["DCAU A", "PBSZ 1048576", "PROT P"];
    let directories = words.map(|word| reply_text.iter().position(|command| command == word));
    assert!(
        directories.is_sorted() && directories[0].is_some(),
        "{reply_text:?}"
    );
}

#[test]
fn open_data_connections_are_requested_explicitly() {
    let (data, reply_text) = log_in(AS_GLOBUS, None, false);
    assert_eq!(data, Ok(None));
    assert!(reply_text.contains(&"DCAU N".into()), "{reply_text:?}");
}
