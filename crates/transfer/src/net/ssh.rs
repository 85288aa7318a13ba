//! Control connection through ssh (`sshftp:`): `ssh` logs in with the configuration of the user, and starts a server that
//! uses its standard input and output.

use std::fs::File;
use std::io;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::MemfdFlags;
use tokio::net::UnixStream;

use crate::net::url::{Scheme, Url};

/// Variable with the path of the server on the other host, as for `globus-url-copy`.
const REMOTE_PROGRAM: &str = "GLOBUS_REMOTE_SSHFTP";
/// Command that starts the server: the program of the user, otherwise the program of the host.
/// Without both, it prints an error reply like a server. It uses `/bin/sh`, because the login shell
/// can differ.
const REMOTE: &str = "exec /bin/sh -c 'for p in \"$HOME\"/.globus/sshftp /etc/grid-security/sshftp; do test -x \"$p\" && exec \"$p\"; done; \
    printf \"500 neither ~/.globus/sshftp nor /etc/grid-security/sshftp is here\\r\\n\"'";
/// Connection timeout of ssh, equal to [`super::sockets::CONNECT_TIMEOUT`].
const CONNECT_TIMEOUT_OPTION: &str = "-oConnectTimeout=20";
/// Maximum size of the error output that is kept.
const MAX_ERROR_BYTES: usize = 4096;

/// A control connection through ssh.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) stream: UnixStream,
    /// Local address on the route to the server, and the address of the server, for data connections.
    pub(crate) own: IpAddr,
    pub(crate) peer: IpAddr,
    ssh: Child,
    /// Error output of ssh.
    error_text: File,
}

impl Tunnel {
    /// Starts `ssh`. If `interactive`, it can prompt the user.
    pub(crate) fn open(server: &Url, interactive: bool) -> Result<Self, String> {
        let (own, peer) = addresses(server)?;
        let failed =
            |error: io::Error| format!("cannot start ssh: {}", crate::error::describe(&error));
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        let error_text = rustix::fs::memfd_create("ssh", MemfdFlags::CLOEXEC);
        let error_text = File::from(error_text.map_err(|errno| failed(errno.into()))?);
        let input = OwnedFd::from(theirs.try_clone().map_err(failed)?);
        let mut command = ssh(server, &["-T", "-x", "-a", CONNECT_TIMEOUT_OPTION]);
        if !interactive {
            command.arg("-oBatchMode=yes");
        }
        let program = std::env::var(REMOTE_PROGRAM).unwrap_or_else(|_| REMOTE.into());
        let child = command
            .args(["--", &server.host, &program])
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(error_text.try_clone().map_err(failed)?))
            .spawn();
        let ssh = child.map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = UnixStream::from_std(ours).map_err(failed)?;
        Ok(Self {
            stream,
            own,
            peer,
            ssh,
            error_text,
        })
    }

    /// Returns the last line of the error output, if there is one.
    pub(crate) fn error_text(&self) -> Option<String> {
        let length = self.error_text.metadata().ok()?.len();
        let mut bytes = vec![0; MAX_ERROR_BYTES];
        let offset = length.saturating_sub(MAX_ERROR_BYTES as u64);
        let count = self.error_text.read_at(&mut bytes, offset).ok()?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.chars().filter(|letter| !letter.is_control()).collect())
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // ssh has ended, or the server is not needed any more.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Returns the command with the parts of the URL; the configuration of the user has the rest.
fn ssh(server: &Url, options: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.args(options);
    if server.port != Scheme::Sshftp.port() {
        command.arg(format!("-p{}", server.port));
    }
    if let Some(user) = &server.user {
        command
            .arg("-l")
            .arg(std::ffi::OsString::from_vec(user.clone()));
    }
    command
}

/// Returns local and remote address for data connections. The configuration of ssh resolves names that only ssh knows.
fn addresses(server: &Url) -> Result<(IpAddr, IpAddr), String> {
    let output = ssh(server, &["-G"])
        .args(["--", &server.host])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let output =
        output.map_err(|error| format!("cannot start ssh: {}", crate::error::describe(&error)))?;
    let output = String::from_utf8_lossy(&output.stdout);
    let known = output
        .lines()
        .find_map(|line| line.strip_prefix("hostname "));
    let host = known.unwrap_or(&server.host);
    let found = (host, server.port).to_socket_addrs();
    let found = found.map_err(|error| format!("cannot resolve {host}: {error}"))?;
    let mut reason = format!("cannot resolve {host}");
    for address in found {
        // No packet is sent: the kernel selects the route.
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let own = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        match own {
            Ok(own) => return Ok((own.ip(), address.ip())),
            Err(error) => {
                reason = format!(
                    "cannot reach {}: {}",
                    address.ip(),
                    crate::error::describe(&error)
                )
            }
        }
    }
    Err(reason)
}
