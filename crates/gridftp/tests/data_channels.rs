//! What a client makes of servers that do, and do not, authenticate data connections (DCAU): GFD.20 section 3.2, RFC 2228 section 3.

use std::time::Duration;

use venturi_gridftp::client::{Client, Login, Output, Settings};
use venturi_gridftp::{Dcau, Error, Handshake, Mode, Protection, Security, base64};

/// A mechanism that believes everything and hides nothing.
struct Trusting;

impl Security for Trusting {
    fn mechanism(&self) -> &'static str {
        "GSSAPI"
    }

    fn step(&mut self, _token: Option<&[u8]>) -> Result<Handshake, Error> {
        Ok(Handshake {
            token: None,
            done: true,
        })
    }

    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(plain.to_vec())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(token.to_vec())
    }
}

/// What a server lists, and what it says to DCAU A.
#[derive(Clone, Copy)]
struct Ways {
    greeting: &'static str,
    lists: bool,
    dcau: &'static str,
}

const AS_GLOBUS: Ways = Ways {
    greeting: "220 h GridFTP Server 13.24 (gcc64) [Globus Toolkit 6.0] ready.\r\n",
    lists: true,
    dcau: "200 DCAU A.",
};
const WITHOUT: Ways = Ways {
    greeting: "220 door ready\r\n",
    lists: false,
    dcau: "202 DCAU is not carried out here",
};

type Data = Option<(Dcau, Protection)>;
const AUTHENTICATED: Data = Some((Dcau::User, Protection::Clear));

/// Logs in; returns what data connections are then, or why there is no session, and the commands that were sent.
fn log_in(ways: Ways, data: Data, open_too: bool) -> (Result<Data, String>, Vec<String>) {
    let settings = Settings {
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
        patience: Duration::from_secs(60),
    };
    let now = Duration::ZERO;
    let mut client = Client::new(settings, Some(Box::new(Trusting)), now).expect("a client");
    if open_too {
        client.allow_open_data();
    }
    let mut said = Vec::new();
    let mut due = ways.greeting.as_bytes().to_vec();
    let mut ready = false;
    while !due.is_empty() {
        if let Err(error) = client.handle_input(now, &std::mem::take(&mut due)) {
            return (Err(error.to_string()), said);
        }
        while let Some(output) = client.poll_output() {
            match output {
                Output::Send(lines) => {
                    for line in String::from_utf8(lines).expect("text").lines() {
                        due.extend(answer(ways, line, &mut said));
                    }
                }
                Output::Ready => ready = true,
                _ => {}
            }
        }
    }
    assert!(ready, "neither ready nor refused: {said:?}");
    (Ok(client.data().cloned()), said)
}

fn answer(ways: Ways, line: &str, said: &mut Vec<String>) -> Vec<u8> {
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
    let dcau = if ways.lists { " DCAU\r\n" } else { "" };
    let reply = match command.split(' ').next().unwrap_or_default() {
        "USER" => "331 password".into(),
        "FEAT" => format!("211-Extensions\r\n PARALLEL\r\n{dcau}211 End"),
        "DCAU" if command == "DCAU A" => ways.dcau.into(),
        _ => "200 fine".into(),
    };
    said.push(command);
    // All but the last line of a reply are inside of one.
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
fn data_connections_are_authenticated_where_the_server_does_it() {
    for (ways, open_too) in [(AS_GLOBUS, true), (AS_GLOBUS, false)] {
        let (data, said) = log_in(ways, AUTHENTICATED, open_too);
        assert_eq!(data, Ok(AUTHENTICATED));
        assert!(said.contains(&"DCAU A".into()), "{said:?}");
        // Without PROT they are in the clear (RFC 2228): one command less.
        assert!(!said.iter().any(|command| command.starts_with("PROT")));
    }
}

#[test]
fn a_server_without_authentication_gets_open_data_connections_only_where_that_is_allowed() {
    let refuses = Ways {
        dcau: "504 not here",
        ..AS_GLOBUS
    };
    let silent = Ways {
        lists: true,
        ..WITHOUT
    };
    for ways in [WITHOUT, refuses, silent] {
        assert_eq!(
            log_in(ways, AUTHENTICATED, true).0,
            Ok(None),
            "{}",
            ways.dcau
        );
        let reason = log_in(ways, AUTHENTICATED, false).0.expect_err("refused");
        assert!(reason.contains("DCAU"), "{reason}");
    }
}

#[test]
fn a_server_that_cannot_just_now_is_no_server_that_never_can() {
    for dcau in ["431 no credential now", "550 not for you", "530 no"] {
        let ways = Ways { dcau, ..AS_GLOBUS };
        let reason = log_in(ways, AUTHENTICATED, true).0.expect_err(dcau);
        assert!(reason.contains("DCAU"), "{reason}");
    }
}

#[test]
fn open_data_connections_are_said_where_authenticated_ones_are_refused() {
    let refuses = Ways {
        dcau: "504 not here",
        ..AS_GLOBUS
    };
    let (data, said) = log_in(refuses, AUTHENTICATED, true);
    let places = ["DCAU A", "DCAU N"].map(|word| said.iter().position(|command| command == word));
    assert!(
        data == Ok(None) && places.is_sorted() && places[0].is_some(),
        "{said:?}"
    );
}

#[test]
fn protection_is_asked_for_behind_authentication() {
    let data = Some((Dcau::User, Protection::Private));
    let (found, said) = log_in(AS_GLOBUS, data.clone(), false);
    assert_eq!(found, Ok(data));
    let words = ["DCAU A", "PBSZ 1048576", "PROT P"];
    let places = words.map(|word| said.iter().position(|command| command == word));
    assert!(places.is_sorted() && places[0].is_some(), "{said:?}");
}

#[test]
fn open_data_connections_are_asked_for_by_name() {
    let (data, said) = log_in(AS_GLOBUS, None, false);
    assert_eq!(data, Ok(None));
    assert!(said.contains(&"DCAU N".into()), "{said:?}");
}
