//! Listens on an address and starts a program for each client, with the connection as its standard
//! input and output, like inetd. The socket always listens, so that the server rejects no client
//! between two others.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// Pause after a connection that could not be accepted for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Time of a program to end after its client has disconnected.
const GRACE: Duration = Duration::from_secs(2);

/// Interval between checks whether a program has ended after its client has disconnected.
const CHECK: Duration = Duration::from_millis(5);

/// Programs with `--end-with-client` that have not been reaped.
#[derive(Debug, Clone, Default)]
struct Sessions(Arc<Mutex<Vec<Session>>>);

#[derive(Debug)]
struct Session {
    pid: Pid,
    /// Duplicate of the connection, to detect when the client disconnects. It is closed when the
    /// program ends.
    connection: TcpStream,
}

impl Session {
    fn is_abandoned(&self) -> bool {
        let closed = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);
        let mut watched = [PollFd::new(self.connection.as_fd(), closed)];
        // Only POLLRDHUP, POLLHUP and POLLERR are possible. `revents` does not support the first.
        nix::poll::poll(&mut watched, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of programs without a client, and kills them after [`GRACE`].
    fn end_abandoned(&self) {
        let start = Instant::now();
        loop {
            let sessions = self.lock();
            let mut abandoned = sessions.iter().filter(|session| session.is_abandoned());
            let Some(first) = abandoned.next() else {
                return;
            };
            if start.elapsed() >= 2 * GRACE {
                return; // even SIGKILL does not end a process that waits for a device
            }
            if start.elapsed() >= GRACE {
                // A listed process is not reaped yet, so no other process has its PID.
                for session in std::iter::once(first).chain(abandoned) {
                    let _ = nix::sys::signal::kill(session.pid, Signal::SIGKILL);
                }
            }
            drop(sessions);
            std::thread::sleep(CHECK);
        }
    }

    /// Adds a program, and removes it when it ends.
    fn add(&self, mut child: Child, connection: TcpStream) {
        let pid = Pid::from_raw(child.id().cast_signed());
        self.lock().push(Session { pid, connection });
        let sessions = self.clone();
        let wait = move || {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
            sessions.lock().retain(|session| session.pid != pid);
            let _ = child.wait();
        };
        if std::thread::Builder::new().spawn(wait).is_err() {
            self.lock().retain(|session| session.pid != pid);
        }
    }
}

/// Options of `inetd`.
#[derive(Debug, Args)]
pub(crate) struct InetdArgs {
    /// Numeric address and port to listen on, such as 127.0.0.1:5000 or [::]:5000
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Kill a program 2 s after its client has disconnected, and before the next client is served
    #[arg(long)]
    end_with_client: bool,
    /// Program and its arguments
    #[arg(
        required = true,
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    argv: Vec<String>,
}

pub(crate) const HELP: &str = r#"Standard error of the program is that of this command. This example serves the date until you press Ctrl-C:

  venturi-engine inetd --listen 127.0.0.1:7013 date

The end of this command does not end the programs: send the signal to its process group.

With --end-with-client, a program that waits forever after its client was killed does not keep its ports from the next one.

Exit codes: 2 the address is in use or the program does not exist; 128 + n ended by signal n."#;

/// Serves clients until a signal ends the process.
pub(crate) fn serve(arguments: &InetdArgs) -> ExitCode {
    let Err(message) = accept_clients(arguments);
    eprintln!("venturi-engine inetd: {message}");
    ExitCode::from(2)
}

fn accept_clients(arguments: &InetdArgs) -> Result<Infallible, String> {
    let address = arguments.listen;
    let listener = TcpListener::bind(address).map_err(|error| {
        format!("{address}: cannot listen: {error}. Set another address with --listen.")
    })?;
    let sessions = Sessions::default();
    loop {
        match listener.accept() {
            Ok((connection, _)) if arguments.end_with_client => {
                sessions.end_abandoned();
                let watched = connection.try_clone();
                let child = start(&arguments.argv, connection)?;
                if let (Some(child), Ok(watched)) = (child, watched) {
                    sessions.add(child, watched);
                }
            }
            Ok((connection, _)) => {
                if let Some(mut child) = start(&arguments.argv, connection)? {
                    // The thread only reaps the program. If no thread can start, the ended program
                    // stays a zombie.
                    let _ = std::thread::Builder::new().spawn(move || child.wait());
                }
            }
            // The client has disconnected, or no descriptors are left.
            Err(error) => {
                eprintln!("venturi-engine inetd: {address}: cannot accept a client: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Starts the program for one client. The connection is closed in this process and stays open in
/// the program.
///
/// # Errors
/// If the program does not exist. Without memory or processes, only this client has no server.
fn start(argv: &[String], connection: TcpStream) -> Result<Option<Child>, String> {
    let program = &argv[0];
    let stdin = OwnedFd::from(connection);
    let started = stdin.try_clone().and_then(|stdout| {
        Command::new(program)
            .args(&argv[1..])
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            .spawn()
    });
    match started {
        Ok(child) => Ok(Some(child)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied
            ) =>
        {
            Err(format!(
                "{program}: cannot run the program: {error}. Install it on this host, or name its path."
            ))
        }
        Err(error) => {
            eprintln!("venturi-engine inetd: {program}: cannot run the program: {error}");
            Ok(None)
        }
    }
}
