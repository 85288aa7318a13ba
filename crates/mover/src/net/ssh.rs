//! A control connection through ssh (`sshftp:`): the program `ssh` logs in, by the user's own configuration, and a server that it
//! starts there speaks on its standard input and output.

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

/// The variable that names the server at the other host, as for `globus-url-copy`.
const REMOTE_PROGRAM: &str = "GLOBUS_REMOTE_SSHFTP";
/// What starts a server there: the program of its user, else that of its host. What is said where neither is looks like a server's
/// greeting. A shell of its own reads it, for a user's may be another one.
const REMOTE: &str = "exec /bin/sh -c 'for p in \"$HOME\"/.globus/sshftp /etc/grid-security/sshftp; do test -x \"$p\" && exec \"$p\"; done; \
    printf \"500 neither ~/.globus/sshftp nor /etc/grid-security/sshftp is here\\r\\n\"'";
/// How long the other host may take to answer as one of ssh: as long as all others may, [`super::sockets::CONNECT_PATIENCE`].
const PATIENCE: &str = "-oConnectTimeout=20";
/// Of what `ssh` says, so much is looked at.
const MOST_WORDS: usize = 4096;

/// A control connection through ssh.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) stream: UnixStream,
    /// This host's address on the way to the server, and the server's: for data connections.
    pub(crate) own: IpAddr,
    pub(crate) peer: IpAddr,
    ssh: Child,
    /// What it says besides.
    said: File,
}

impl Tunnel {
    /// Starts `ssh`. It may ask its user something, if it `may_ask`.
    pub(crate) fn open(server: &Url, may_ask: bool) -> Result<Self, String> {
        let (own, peer) = addresses(server)?;
        let failed =
            |error: io::Error| format!("ssh cannot be started: {}", crate::error::said(&error));
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        let said = rustix::fs::memfd_create("ssh", MemfdFlags::CLOEXEC);
        let said = File::from(said.map_err(|errno| failed(errno.into()))?);
        let input = OwnedFd::from(theirs.try_clone().map_err(failed)?);
        let mut command = ssh(server, &["-T", "-x", "-a", PATIENCE]);
        if !may_ask {
            command.arg("-oBatchMode=yes");
        }
        let program = std::env::var(REMOTE_PROGRAM).unwrap_or_else(|_| REMOTE.into());
        let child = command
            .args(["--", &server.host, &program])
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(said.try_clone().map_err(failed)?))
            .spawn();
        let ssh = child.map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = UnixStream::from_std(ours).map_err(failed)?;
        Ok(Self {
            stream,
            own,
            peer,
            ssh,
            said,
        })
    }

    /// The last line that `ssh` said, if it said something.
    pub(crate) fn said(&self) -> Option<String> {
        let length = self.said.metadata().ok()?.len();
        let mut bytes = vec![0; MOST_WORDS];
        let begin = length.saturating_sub(MOST_WORDS as u64);
        let count = self.said.read_at(&mut bytes, begin).ok()?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.chars().filter(|letter| !letter.is_control()).collect())
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // It has ended, or the server at its other end is not wanted any more.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// The program with what the URL says; what it does not say is in the user's configuration.
fn ssh(server: &Url, words: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.args(words);
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

/// Where data connections go: a name that only `ssh` knows is looked up in its configuration.
fn addresses(server: &Url) -> Result<(IpAddr, IpAddr), String> {
    let told = ssh(server, &["-G"])
        .args(["--", &server.host])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let told =
        told.map_err(|error| format!("ssh cannot be started: {}", crate::error::said(&error)))?;
    let told = String::from_utf8_lossy(&told.stdout);
    let known = told.lines().find_map(|line| line.strip_prefix("hostname "));
    let host = known.unwrap_or(&server.host);
    let found = (host, server.port).to_socket_addrs();
    let found = found.map_err(|error| format!("no address of {host}: {error}"))?;
    let mut reason = format!("no address of {host}");
    for address in found {
        // Nothing is sent: the kernel tells which way it would go.
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
                reason = format!("no way to {}: {}", address.ip(), crate::error::said(&error))
            }
        }
    }
    Err(reason)
}
