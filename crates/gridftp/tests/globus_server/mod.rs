//! A globus-gridftp-server of Debian on a free port of loopback, for anonymous users or with GSI.

#![allow(dead_code, reason = "each test takes what it needs")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a real server, and the files that it has"
)]

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use venturi_gridftp::Path;

const ATTEMPTS: u32 = 20;
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A server with its own directory. Dropping the value ends it.
pub struct GlobusServer {
    process: Child,
    /// Data nodes of a striped server.
    nodes: Vec<Child>,
    pub address: SocketAddr,
    pub directory: tempfile::TempDir,
}

impl GlobusServer {
    /// Starts a server of the Globus toolkit, or returns the reason why it is unavailable.
    pub fn start() -> Result<Self, String> {
        Self::start_with(None)
    }

    /// Starts a server without anonymous users; `prepare` extends its command.
    pub fn start_secured(prepare: impl Fn(&mut Command)) -> Result<Self, String> {
        Self::start_by(|port| {
            let mut command = base(port);
            prepare(&mut command);
            command
        })
    }

    /// Starts a server with a limited number of data ports, as behind a firewall.
    pub fn start_with(data_ports: Option<u16>) -> Result<Self, String> {
        Self::start_by(|port| {
            let mut command = command(port);
            if let Some(count) = data_ports {
                // Avoid the ports of servers of other tests.
                let first = port - 10_000;
                let range = format!("{first},{}", first + count - 1);
                command.env("GLOBUS_TCP_PORT_RANGE", range);
            }
            command
        })
    }

    /// Starts a striped server with this many data nodes. Its front end logs transfers in the file
    /// `log`.
    pub fn start_striped(nodes: usize) -> Result<Self, String> {
        let mut own = Vec::new();
        let mut directories = Vec::new();
        for _ in 0..nodes {
            let (node, port) = data_node()?;
            own.push(node);
            directories.push(format!("127.0.0.1:{port}"));
        }
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        open_to_all(directory.path());
        let log = directory.path().join("log");
        let mut server = Self::start_by(|port| {
            let mut command = command(port);
            command.args(["-r", &directories.join(","), "-Z"]).arg(&log);
            command
        })?;
        server.nodes = own;
        server.directory = directory;
        Ok(server)
    }

    fn start_by(command: impl Fn(u16) -> Command) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        open_to_all(directory.path());
        for port in ports() {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            if TcpListener::bind(address).is_err() {
                continue;
            }
            let mut process = command(port).spawn().map_err(|error| {
                format!("globus-gridftp-server cannot be started ({error}); install globus-gridftp-server-progs")
            })?;
            if greets(&mut process, address) {
                return Ok(Self {
                    process,
                    nodes: Vec::new(),
                    address,
                    directory,
                });
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        Err("globus-gridftp-server does not greet on any of the ports tried".to_owned())
    }

    pub fn path(&self, name: &str) -> Path {
        let path = self.directory.path().join(name);
        Path::new(path.to_str().expect("a path of a test")).expect("a path")
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).expect("a file");
        open_to_all(&path);
    }

    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.directory.path().join(name)).ok()
    }

    pub fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).expect("the directory");
        let mut names: Vec<_> = names
            .map(|name| {
                name.expect("a name")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }
}

/// Starts a data node. Returns it with its port.
fn data_node() -> Result<(Child, u16), String> {
    for port in ports() {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_err() {
            continue;
        }
        let mut node = command(port)
            .args(["-dn", "-auth-level", "0"])
            .spawn()
            .map_err(|error| format!("no data node: {error}"))?;
        let start = Instant::now();
        while start.elapsed() < STALL_TIMEOUT && matches!(node.try_wait(), Ok(None)) {
            if TcpStream::connect(address).is_ok() {
                return Ok((node, port));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = node.kill();
        let _ = node.wait();
    }
    Err("no data node listens on any of the ports tried".to_owned())
}

/// Returns ports below the ephemeral range of the kernel, so that a client cannot connect to itself
/// while the server is down.
fn ports() -> impl Iterator<Item = u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    (0..ATTEMPTS).map(|_| {
        let number = std::process::id() * 31 + TAKEN.fetch_add(1, Ordering::Relaxed);
        u16::try_from(20_000 + number % 12_000).expect("below 32,768")
    })
}

fn command(port: u16) -> Command {
    let mut command = base(port);
    command.arg("-aa");
    if is_root() {
        command.args(["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]);
    }
    command
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn base(port: u16) -> Command {
    let mut command = Command::new("globus-gridftp-server");
    command.args(["-c", "none", "-p", &port.to_string()]);
    command.args(["-control-interface", "127.0.0.1"]);
    command.args(["-data-interface", "127.0.0.1"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns `true` if the server greets before it exits or the timeout expires.
fn greets(process: &mut Child, address: SocketAddr) -> bool {
    let start = Instant::now();
    while start.elapsed() < STALL_TIMEOUT && matches!(process.try_wait(), Ok(None)) {
        let mut first = [0; 3];
        let greeted = TcpStream::connect(address).and_then(|mut stream| {
            stream.set_read_timeout(Some(STALL_TIMEOUT))?;
            stream.read_exact(&mut first)
        });
        if greeted.is_ok() && first == *b"220" {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

impl Drop for GlobusServer {
    fn drop(&mut self) {
        for process in std::iter::once(&mut self.process).chain(&mut self.nodes) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Opens a path to all users. The anonymous user of a server that root started is `nobody`.
pub fn open_to_all(path: &std::path::Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("permissions");
}
