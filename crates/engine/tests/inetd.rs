//! Tests of `inetd` from outside: real clients, and a real program for each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ENGINE: &str = env!("CARGO_BIN_EXE_venturi-engine");

/// Maximum wait, far more than needed on a busy host.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server that ends with the test.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(argv: &[&str]) -> Self {
        let address = free_address();
        let child = inetd(address, argv).spawn().expect("the engine is built");
        Self { child, address }
    }

    /// Connects as soon as the server listens.
    fn connect(&self) -> TcpStream {
        let start = Instant::now();
        let stream = loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < TIMEOUT, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn inetd(address: SocketAddr, argv: &[&str]) -> Command {
    let mut command = Command::new(ENGINE);
    command
        .args(["inetd", "--listen", &address.to_string()])
        .args(argv)
        .stdin(Stdio::null());
    command
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

/// Sends a line and returns the reply.
fn exchange(stream: &TcpStream, line: &str) -> String {
    let mut writer = stream;
    writeln!(writer, "{line}").expect("a client");
    let mut reply = String::new();
    BufReader::new(stream)
        .read_line(&mut reply)
        .expect("a reply");
    reply
}

#[test]
fn clients_are_served_at_the_same_time_and_one_after_the_other() {
    let server = Server::start(&["sh", "-c", "read line && echo \"got $line\""]);
    // Both are connected before one of them sends.
    let (one, other) = (server.connect(), server.connect());
    assert_eq!(exchange(&other, "b"), "got b\n");
    assert_eq!(exchange(&one, "a"), "got a\n");
    for number in 0..50 {
        let stream = TcpStream::connect(server.address).expect("the server listens all the time");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        assert_eq!(
            exchange(&stream, &number.to_string()),
            format!("got {number}\n")
        );
    }
}

#[test]
fn the_exit_of_a_program_closes_its_connection_and_leaves_no_zombie() {
    let server = Server::start(&["sh", "-c", "echo $$"]);
    let mut pids = String::new();
    for _ in 0..3 {
        server.connect().read_to_string(&mut pids).expect("a reply");
    }
    assert_eq!(pids.lines().count(), 3);
    let start = Instant::now();
    for pid in pids.lines() {
        while std::path::Path::new("/proc").join(pid).exists() {
            assert!(start.elapsed() < TIMEOUT, "process {pid} is not reaped");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn arguments_with_hyphens_are_passed_to_the_program() {
    let server = Server::start(&["printf", "%s", "--listen"]);
    let mut text = String::new();
    server.connect().read_to_string(&mut text).expect("a reply");
    assert_eq!(text, "--listen");
}

#[test]
fn a_missing_program_ends_the_server_with_a_message() {
    let mut server = Server::start(&[]);
    assert_eq!(server.child.wait().expect("our child").code(), Some(2));

    let address = free_address();
    let mut command = inetd(address, &["no-such-program-here"]);
    let child = command.stderr(Stdio::piped()).spawn().expect("the engine");
    let server = Server { child, address };
    let _ = server.connect().read(&mut [0]); // the server closes or resets the connection
    check_failure(server, "no-such-program-here");
}

#[test]
fn an_address_in_use_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut command = inetd(address, &["cat"]);
    let child = command.stderr(Stdio::piped()).spawn().expect("the engine");
    check_failure(Server { child, address }, &address.to_string());
}

/// Waits for the end of a server whose message names `subject`.
fn check_failure(mut server: Server, subject: &str) {
    let mut message = String::new();
    let mut stderr = server.child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut message).expect("text");
    assert!(message.contains(subject), "{message}");
    assert_eq!(server.child.wait().expect("our child").code(), Some(2));
}

#[test]
fn a_program_of_a_disconnected_client_ends_before_the_next_one_starts() {
    // The program ignores the end of its client.
    let server = Server::start(&[
        "--end-with-client",
        "sh",
        "-c",
        "echo ready; exec sleep 600",
    ]);
    let mut line = String::new();
    let first = server.connect();
    BufReader::new(&first).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    // Closing it is not enough: a process that another test is starting can still hold a copy.
    first.shutdown(Shutdown::Both).expect("an open connection");
    let second = server.connect();
    line.clear();
    BufReader::new(&second)
        .read_line(&mut line)
        .expect("a line");
    assert_eq!(line, "ready\n");
    let sleeping = Command::new("pgrep")
        .args(["-P", &server.child.id().to_string()])
        .output()
        .expect("pgrep");
    let count = String::from_utf8_lossy(&sleeping.stdout).lines().count();
    assert_eq!(count, 1, "only the program of the second client is left");
}
