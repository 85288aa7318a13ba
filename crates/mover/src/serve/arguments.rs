//! What can be said on the command line of `venturi serve`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::gsi::GsiArguments;
use super::http::HttpArguments;
use crate::order;

/// Port of GridFTP.
const PORT: u16 = 2811;
/// Data connections of a session, where nothing is said.
pub(super) const STREAMS: u16 = 64;
/// Of a block of MODE E, where nothing is said.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
/// Of large buffers, where nothing is said.
pub(super) const MEMORY_BYTES: u64 = 256 << 20;

/// Serve a directory.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = HELP)]
pub struct Arguments {
    /// The directory; nothing outside of it can be reached
    pub(crate) directory: PathBuf,
    /// Address and port to listen on, such as 127.0.0.1:2811 or [::]:2811; may be repeated; port 0 takes a free one [default: port 2811 of all, if there is no --http or --https]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Let clients write, rename and delete: those of --users, --cert and tokens, and without any of these everybody
    #[arg(long)]
    pub(crate) write: bool,
    /// A file with a line `NAME:HASH` for each user, HASH as `openssl passwd -6` prints it
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// Besides --users, --cert and tokens, let anonymous clients in, who may read
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Let users send data to, and take it from, other hosts than theirs (a copy between two servers), by --users or --tokens; anonymous ones never may
    #[arg(long)]
    pub(crate) third_party: bool,
    #[command(flatten)]
    pub(crate) gsi: GsiArguments,
    /// Ports for data connections, such as 50000-50100, for firewalls [default: any]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    pub(crate) data_ports: Option<(u16, u16)>,
    /// The address that clients reach data ports at, where it is not that of the control connection (NAT)
    #[arg(long, value_name = "ADDRESS", value_parser = host)]
    pub(crate) public_address: Option<IpAddr>,
    /// Most sessions at once [default: 10000, or what open files allow]
    #[arg(long, value_name = "COUNT", value_parser = sessions)]
    pub(crate) sessions: Option<usize>,
    /// Most sessions of one address at once
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = sessions)]
    pub(crate) sessions_per_address: usize,
    /// Most data connections of a session
    #[arg(long, value_name = "COUNT", default_value_t = STREAMS, value_parser = order::count::<u16>(1024))]
    pub(crate) streams: u16,
    /// What each connection sends of files at most, such as '500 Mb/s' [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = order::pacing)]
    pub(crate) pacing: Option<u64>,
    /// Bytes of a block of MODE E, such as 1MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = order::block::<u64>)]
    pub(crate) block: u64,
    /// Most bytes of large buffers for files that come, such as 256MiB; beyond, a connection has 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = memory)]
    pub(crate) memory: u64,
    /// Threads that have the sessions [default: one a core, at most 8]
    #[arg(long, value_name = "COUNT", value_parser = order::count::<u16>(64))]
    pub(crate) threads: Option<u16>,
    /// Seconds that a login may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = patience())]
    pub(crate) login_time: u32,
    /// Seconds without a command after which a session ends
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = patience())]
    pub(crate) idle_time: u32,
    /// Seconds without a byte, or with less than 16 KiB, after which a transfer is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = patience())]
    pub(crate) stall_time: u32,
    /// Seconds that transfers have to end after SIGTERM or Ctrl-C; the second signal ends all at once
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) drain_time: u32,
    /// Have what was written on stable storage before it is answered (fsync)
    #[arg(long)]
    pub(crate) sync: bool,
    /// A file to which a line is appended for each transfer, as servers of the Globus toolkit do (-Z)
    #[arg(long, value_name = "FILE")]
    pub(crate) transfer_log: Option<PathBuf>,
    /// Events on standard output, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Port, or ADDRESS:PORT, for the counters (Prometheus, over HTTP); on 127.0.0.1 where no address is given; port 0 takes a free one, and tells it
    #[arg(long, value_name = "PORT", value_parser = metrics)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Tell nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// HTTP and WebDAV.
    #[command(flatten)]
    pub(crate) web: HttpArguments,
}

impl Arguments {
    /// Addresses to listen on; of each entry any one will do.
    pub(crate) fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        let web_alone = !(self.web.http.is_empty() && self.web.https.is_empty());
        if self.listen.is_empty() && !web_alone {
            // A host without IPv6 refuses the first, which is for both.
            let all = [
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ];
            return vec![all.map(|address| SocketAddr::new(address, PORT)).to_vec()];
        }
        self.listen.iter().map(|&address| vec![address]).collect()
    }
}

/// Seconds as the command line has them.
pub(crate) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

/// Without a second nobody could do anything.
fn patience() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn sessions(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| "expected a count from 1 on, such as 1000".into())
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let both = text.split_once('-').unwrap_or((text, text));
    match (both.0.parse(), both.1.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err("expected two ports from 1 to 65535 with a dash, such as 50000-50100".into()),
    }
}

/// Reads an address and a port to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an address and a port, such as 127.0.0.1:2811, or [::]:2811 for all addresses"
            .into()
    })
}

fn host(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "expected the number of an address, such as 192.0.2.7 or 2001:db8::7".into())
}

fn metrics(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    port.or_else(|_| text.parse())
        .map_err(|_| "expected a port, or an address and a port, such as 9811".into())
}

fn memory(text: &str) -> Result<u64, String> {
    order::bytes(text)
        .filter(|bytes| *bytes >= 16 << 20)
        .ok_or_else(|| "expected a size from 16MiB on, such as 256MiB".into())
}

const USAGE: &str = "venturi serve [OPTIONS] DIRECTORY";

const EXAMPLES: &str =
    "  venturi serve /data                                  everybody may read, at ftp://HOST:2811/
  venturi serve /data --write --listen 127.0.0.1:2811  everybody on this host may read and write

More: venturi serve --help";

const HELP: &str = r#"Without options everybody may read and nobody write, at ftp://HOST:2811/.

  venturi serve /data                                          everybody may read
  venturi serve /data --write --listen 127.0.0.1:2811          everybody on this host may read and write
  echo "ann:$(openssl passwd -6)" > users                      a user; it asks for the password
  venturi serve /data --users users --write --anonymous        users may write, all others read
  venturi serve /data --cert hostcert.pem --key hostkey.pem --grid-mapfile grid-mapfile --write
                                                               users with certificates (gsiftp) may write
  venturi serve /data --data-ports 50000-50100 --metrics 9811  behind a firewall, with counters
  venturi serve /data --http 127.0.0.1:8080                    over HTTP and WebDAV, and nothing else
  venturi serve /data --https [::]:8443 --tls-cert cert.pem --tls-key key.pem --tokens tokens --write
                                                               with bearer tokens

Passwords and data of ftp:// go over the network as they are.

Exit codes: 0 ended by a signal, every transfer had its time, 1 it cannot be done as it was asked for, 2 wrong usage, 130 transfers were cut off."#;
