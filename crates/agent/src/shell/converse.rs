//! `converse`: lines of text to a server, and the first line or the last line of each reply.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::connect::{connect_any, left, resolve};
use super::failure::{FailureKind, ShellFailure};
use super::protocol::{ConverseCommand, ShellResult};

/// Longest line of a reply; the rest counts as the next line.
const LINE_BYTES: u64 = 4096;

/// Maximum lines of a reply.
const MAX_REPLY_LINES: usize = 1000;

/// Connects, sends each line, and reads a reply after each. Without lines, it only connects.
///
/// A reply with several lines has the form `220-text` in all of them but the last (RFC 959, section 4.2); the result has
/// its last line. If the server closes the connection, the result has an empty reply at its end.
///
/// # Errors
/// `unresolved`, `refused`, `unreachable`, or `timeout` if not all replies arrive in time.
pub(crate) fn converse(
    command: &ConverseCommand,
    timeout: Duration,
) -> Result<ShellResult, ShellFailure> {
    let deadline = Instant::now() + timeout;
    let shown = format!("{}:{}", command.address, command.port);
    let addresses = resolve(&command.address, command.port)?;
    let (stream, _) = connect_any(&addresses, deadline)?;
    let mut reader = BufReader::new(stream);
    let mut replies = Vec::new();
    for line in &command.lines {
        let exchanged = exchange(&mut reader, line.send.as_deref(), deadline);
        match exchanged {
            Ok(reply) => replies.push(reply),
            Err(error) if is_timeout(&error) => {
                return Err(ShellFailure {
                    kind: FailureKind::Timeout,
                    message: format!(
                        "{shown}: no reply within {} s, after {} replies",
                        timeout.as_secs_f64(),
                        replies.len()
                    ),
                });
            }
            // A server that closes the connection early can also reset it.
            Err(error) if is_end(&error) => {
                replies.push(String::new());
                break;
            }
            Err(error) => {
                return Err(ShellFailure::system(
                    &format!("{shown}: cannot converse"),
                    &error,
                ));
            }
        }
    }
    Ok(ShellResult::Converse { replies })
}

fn exchange(
    reader: &mut BufReader<TcpStream>,
    send: Option<&str>,
    deadline: Instant,
) -> io::Result<String> {
    if let Some(line) = send {
        let stream = reader.get_mut();
        stream.set_write_timeout(Some(left(deadline)?))?;
        stream.write_all(format!("{line}\r\n").as_bytes())?;
    }
    let first = read_line(reader, deadline)?;
    let Some(code) = continued_code(&first) else {
        return Ok(text(&first));
    };
    for _ in 0..MAX_REPLY_LINES {
        let line = read_line(reader, deadline)?;
        let is_last = line.starts_with(code) && line.get(3) != Some(&b'-');
        if is_last {
            return Ok(text(&line));
        }
    }
    Err(io::Error::other(format!(
        "a reply has more than {MAX_REPLY_LINES} lines"
    )))
}

/// Returns the code of a reply with more lines: `220-text`.
fn continued_code(line: &[u8]) -> Option<&[u8]> {
    let code = line.get(..3)?;
    (code.iter().all(u8::is_ascii_digit) && line.get(3) == Some(&b'-')).then_some(code)
}

fn read_line(reader: &mut BufReader<TcpStream>, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && (line.len() as u64) < LINE_BYTES {
        reader.get_ref().set_read_timeout(Some(left(deadline)?))?;
        let missing = LINE_BYTES - line.len() as u64;
        // One read of the socket per round, each with the remaining time.
        let (found, count) = {
            let available = reader.fill_buf()?;
            let mut part = Vec::new();
            available.take(missing).read_until(b'\n', &mut part)?;
            (part.len(), part)
        };
        if found == 0 {
            break;
        }
        line.extend_from_slice(&count);
        reader.consume(found);
    }
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().to_owned()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::protocol::ConverseLine;
    use std::net::TcpListener;

    /// A server that sends the first text, then one text after each line.
    fn serve(texts: &'static [&'static str]) -> u16 {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = server.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            let (stream, _) = server.accept().expect("a client");
            let mut reader = BufReader::new(stream);
            for (index, text) in texts.iter().enumerate() {
                if index > 0 {
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("text");
                    assert!(line.ends_with("\r\n"), "{line:?}");
                }
                reader
                    .get_mut()
                    .write_all(text.as_bytes())
                    .expect("a client");
            }
        });
        port
    }

    fn converse_with(
        port: u16,
        lines: &[Option<&str>],
        timeout: Duration,
    ) -> Result<Vec<String>, ShellFailure> {
        let lines = lines.iter().map(|send| ConverseLine {
            send: send.map(str::to_owned),
        });
        let command = ConverseCommand {
            address: "127.0.0.1".into(),
            port,
            lines: lines.collect(),
        };
        match converse(&command, timeout)? {
            ShellResult::Converse { replies } => Ok(replies),
            other => panic!("expected replies, found {other:?}"),
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn the_last_line_of_each_reply_is_returned() {
        let port = serve(&[
            "220-hello\r\n220-text\r\nfree text\r\n220 ready\r\n",
            "331 password\r\n",
        ]);
        assert_eq!(
            converse_with(port, &[None, Some("USER a")], LONG),
            Ok(vec!["220 ready".into(), "331 password".into()])
        );
    }

    #[test]
    fn a_banner_without_a_code_is_one_line() {
        let port = serve(&["SSH-2.0-x\r\nmore\r\n"]);
        assert_eq!(
            converse_with(port, &[None], LONG),
            Ok(vec!["SSH-2.0-x".into()])
        );
    }

    #[test]
    fn the_end_of_the_connection_is_an_empty_reply() {
        let port = serve(&["220 ready\r\n", ""]);
        assert_eq!(
            converse_with(port, &[None, Some("QUIT")], LONG),
            Ok(vec!["220 ready".into(), String::new()])
        );
    }

    #[test]
    fn a_silent_server_is_a_timeout() {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = server.local_addr().expect("bound").port();
        let error = converse_with(port, &[None], Duration::from_millis(50)).expect_err("silence");
        assert_eq!(error.kind, FailureKind::Timeout);
    }

    #[test]
    fn without_lines_only_the_connection_is_made() {
        let port = serve(&[]);
        assert_eq!(converse_with(port, &[], LONG), Ok(vec![]));
    }
}
