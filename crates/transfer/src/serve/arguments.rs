//! Command-line options of `venturi serve`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::address_range::AddressRange;
use super::gsi::GsiArguments;
use super::http::HttpArguments;
use crate::options;

/// Port of GridFTP.
const PORT: u16 = 2811;
/// Default of `--streams`: data connections of a session.
pub(super) const STREAMS: u16 = 64;
/// Default of `--block`: bytes of a MODE E block.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
/// Default of `--memory`: bytes of large buffers.
pub(super) const MEMORY_BYTES: u64 = 256 << 20;

/// Serve a directory.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = HELP)]
pub struct ServeArgs {
    /// Directory to serve; no path or link leads out of it
    pub(crate) directory: PathBuf,
    /// Address and port for FTP, such as 127.0.0.1:2811 or [::]:2811. Repeatable. Port 0 selects a free port [default: port 2811 of all addresses, without --http or --https]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "[::] is an address, and the text is that of --help"
    )]
    pub(crate) listen: Vec<SocketAddr>,
    /// Serve only PATH of DIRECTORY, a path as in URLs. Repeatable. URLs stay the same; all other paths are rejected
    #[arg(long, value_name = "PATH")]
    pub(crate) only: Vec<PathBuf>,
    /// Accept clients only from ADDRESS, or from a network such as 192.0.2.0/24. Repeatable [default: all addresses]
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub(crate) allow: Vec<AddressRange>,
    /// Allow clients to write, rename and delete. With --users, --cert or tokens only these users can write, otherwise all clients
    #[arg(long)]
    pub(crate) write: bool,
    /// File with one line `NAME:HASH` for each user. `openssl passwd -6` prints HASH
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// Allow anonymous clients to read, in addition to --users, --cert and tokens
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Allow users of --users or --tokens to copy between this and other servers. Anonymous clients cannot
    #[arg(long)]
    pub(crate) third_party: bool,
    #[command(flatten)]
    pub(crate) gsi: GsiArguments,
    /// Ports for data connections behind a firewall, such as 50000-50100 [default: any]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    pub(crate) data_ports: Option<(u16, u16)>,
    /// Address of the data ports for clients, if a NAT changes it [default: address of the control connection]
    #[arg(long, value_name = "ADDRESS", value_parser = host)]
    pub(crate) public_address: Option<IpAddr>,
    /// Maximum number of sessions [default: 10000, or the limit of open files]
    #[arg(long, value_name = "COUNT", value_parser = sessions)]
    pub(crate) sessions: Option<usize>,
    /// Maximum number of sessions from one address
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = sessions)]
    pub(crate) sessions_per_address: usize,
    /// Maximum number of data connections of a session
    #[arg(long, value_name = "COUNT", default_value_t = STREAMS, value_parser = options::count::<u16>(1024))]
    pub(crate) streams: u16,
    /// Maximum send rate of each connection, such as '500 Mb/s' [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = options::pacing)]
    pub(crate) pacing: Option<u64>,
    /// Size of a MODE E block, such as 1MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = options::block::<u64>)]
    pub(crate) block: u64,
    /// Memory for large receive buffers, such as 256MiB. Without a free buffer a connection uses 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = memory)]
    pub(crate) memory: u64,
    /// Threads for sessions [default: one per core, at most 8]
    #[arg(long, value_name = "COUNT", value_parser = options::count::<u16>(64))]
    pub(crate) threads: Option<u16>,
    /// Maximum seconds of a login
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = timeout())]
    pub(crate) login_time: u32,
    /// Seconds without a command before the server ends a session
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = timeout())]
    pub(crate) idle_time: u32,
    /// Seconds without a byte, or with less than 16 KiB, before the server aborts a transfer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = timeout())]
    pub(crate) stall_time: u32,
    /// Seconds for running transfers to finish after SIGTERM or Ctrl-C. A second signal aborts them
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) drain_time: u32,
    /// Write uploads to stable storage before the reply (fsync)
    #[arg(long)]
    pub(crate) sync: bool,
    /// Append one line per transfer to FILE, in the format of Globus servers (-Z)
    #[arg(long, value_name = "FILE")]
    pub(crate) transfer_log: Option<PathBuf>,
    /// Print events to standard output, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Port or ADDRESS:PORT for Prometheus metrics over HTTP. The default address is 127.0.0.1. Port 0 selects and prints a free port
    #[arg(long, value_name = "PORT", value_parser = metrics)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print only errors
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// HTTP and WebDAV.
    #[command(flatten)]
    pub(crate) web: HttpArguments,
}

impl ServeArgs {
    /// Return the addresses to listen on; for each entry, one of its addresses is sufficient.
    pub(crate) fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        let web_alone = !(self.web.http.is_empty() && self.web.https.is_empty());
        if self.listen.is_empty() && !web_alone {
            // A host without IPv6 rejects the first address, which serves both.
            let all = [
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ];
            return vec![all.map(|address| SocketAddr::new(address, PORT)).to_vec()];
        }
        self.listen.iter().map(|&address| vec![address]).collect()
    }
}

/// Convert seconds of the command line.
pub(crate) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

/// Return a parser of timeouts of at least one second.
fn timeout() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn sessions(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| "expected a count of at least 1, such as 1000".into())
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let both = text.split_once('-').unwrap_or((text, text));
    match (both.0.parse(), both.1.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err("expected two ports from 1 to 65535 with a dash, such as 50000-50100".into()),
    }
}

/// Parse an address and a port to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an address and a port, such as 127.0.0.1:2811, or [::]:2811 for all addresses"
            .into()
    })
}

fn host(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "expected a numeric address, such as 192.0.2.7 or 2001:db8::7".into())
}

fn metrics(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    port.or_else(|_| text.parse())
        .map_err(|_| "expected a port, or an address and a port, such as 9811".into())
}

fn memory(text: &str) -> Result<u64, String> {
    options::bytes(text)
        .filter(|bytes| *bytes >= 16 << 20)
        .ok_or_else(|| "expected a size of at least 16MiB, such as 256MiB".into())
}

const USAGE: &str = "venturi serve [OPTIONS] DIRECTORY";

const EXAMPLES: &str =
    "  venturi serve /data                                  all clients can read ftp://HOST:2811/
  venturi serve /data --write --listen 127.0.0.1:2811  clients on this host can read and write

More: venturi serve --help";

const HELP: &str = r#"Without options, all clients can read ftp://HOST:2811/ and none can write.

  venturi serve /data                                          all clients can read
  venturi serve /data --write --listen 127.0.0.1:2811          clients on this host can read and write
  echo "ann:$(openssl passwd -6)" > users                      add a user; openssl reads the password
  venturi serve /data --users users --write --anonymous        users can write, other clients can read
  venturi serve /data --cert hostcert.pem --key hostkey.pem --grid-mapfile grid-mapfile --write
                                                               users with certificates (gsiftp) can write
  venturi serve /data --data-ports 50000-50100 --metrics 9811  behind a firewall, with metrics
  venturi serve / --only /data/a --only /data/b --allow 192.0.2.0/24
                                                               two directories, for clients of one network
  venturi serve /data --http 127.0.0.1:8080                    only HTTP and WebDAV
  venturi serve /data --https [::]:8443 --tls-cert cert.pem --tls-key key.pem --tokens tokens --write
                                                               with bearer tokens

ftp:// does not encrypt passwords and data.

Exit codes: 0 stopped by a signal after all transfers finished, 1 cannot start with these options, 2 wrong usage, 130 running transfers were aborted."#;
