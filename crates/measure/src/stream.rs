//! TCP from memory to memory between two hosts.
//!
//! One control connection and some data connections go to one port of the server. The client names the direction; the
//! receiver counts the bytes between two moments of its own clock. Both ends report their sockets.

mod client;
mod flow;
mod message;
mod server;
mod tcp_info;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

/// Environment variable with the token of both ends. Not an option: other users can read the command line.
pub const TOKEN_VARIABLE: &str = "VENTURI_STREAM_TOKEN";

/// Shortest token: 128 bits in hexadecimal.
const TOKEN_LENGTH: usize = 32;

/// Largest number of data connections of a test.
const MAX_CONNECTIONS: usize = 128;

/// Test of the network: TCP from memory to memory
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// Accept tests of clients that know the token, one after another. The first output line has the port
    #[command(after_long_help = SERVE_HELP)]
    Serve(StreamServeArgs),
    /// Run one test with a server and print its result
    #[command(after_long_help = RUN_HELP)]
    Run(StreamRunArgs),
}

/// Options of `stream serve`.
#[derive(Debug, Args)]
pub struct StreamServeArgs {
    /// Address to listen on. Default: all addresses
    #[arg(long)]
    address: Option<IpAddr>,
    /// Ports to choose a free one from, such as 50000-50100. Default: any free port
    #[arg(long, value_parser = parse_ports)]
    ports: Option<PortRange>,
    /// Seconds after which the server exits, 1 to 86400. Default: 600
    #[arg(long, default_value_t = 600, hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..=86400))]
    limit_s: u64,
}

/// Options of `stream run`.
#[derive(Debug, Args)]
pub struct StreamRunArgs {
    /// Host name or address of the server
    host: String,
    /// Port of the server
    port: u16,
    /// Direction of the data. Default: send
    #[arg(long, value_enum, default_value_t = StreamDirection::Send, hide_default_value = true)]
    direction: StreamDirection,
    /// Number of data connections, 1 to 128. Default: 1
    #[arg(long, default_value_t = 1, hide_default_value = true, value_parser = parse_connections)]
    connections: usize,
    /// Seconds of the test, 0.1 to 3600. Default: 5
    #[arg(long, default_value_t = 5.0, hide_default_value = true, value_parser = parse_time)]
    time_s: f64,
    /// Seconds at the start that do not count, because TCP opens its window. Default: a quarter of the time
    #[arg(long)]
    omit_s: Option<f64>,
    /// Largest number of bytes to send. Default: unlimited
    #[arg(long)]
    bytes: Option<u64>,
    /// Largest rate of all connections together, in bytes per second. Default: unlimited
    #[arg(long, value_parser = clap::value_parser!(u64).range(100_000..))]
    max_rate: Option<u64>,
}

/// Direction of the data, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamDirection {
    /// The client sends to the server
    Send,
    /// The server sends to the client
    Receive,
}

/// First and last port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortRange {
    first: u16,
    last: u16,
}

const SERVE_HELP: &str = r#"The server reads the token from VENTURI_STREAM_TOKEN: at least 32 characters, random. It closes connections
without the token. The first line of the output has the port, and each test adds a line:

  VENTURI_STREAM_TOKEN=$(openssl rand -hex 16) venturi-engine stream serve --ports 50000-50100
  {"event":"listening","port":50000}

The server exits after --limit-s seconds, or when a signal ends it.

Exit codes: 0 the time is over; 1 the server cannot start; 2 wrong usage; 128 + n ended by signal n."#;

const RUN_HELP: &str = r#"The output is one JSON object. `bytes` and `duration_s` are those of the receiver between --omit-s and --time-s after its first
byte; `rate_bytes_per_s` is their ratio. `sender` and `receiver` describe both ends: CPU time, and one entry per connection with the
kernel's TCP_INFO. Times such as `receive_window_limited_s` are absent on older kernels.

  VENTURI_STREAM_TOKEN=… venturi-engine stream run b.example.org 50000 --connections 4 --time-s 5

The test ends after --time-s, or 10 s later if the network is silent.

Exit codes: 0 done; 1 no result (standard error has the reason); 2 wrong usage; 128 + n ended by signal n."#;

/// Executes a `stream` command.
pub(crate) fn execute(command: &StreamCommand) -> Result<(), MeasureError> {
    let token = read_token()?;
    match command {
        StreamCommand::Serve(arguments) => server::serve(arguments, &token),
        StreamCommand::Run(arguments) => crate::print(&client::run(arguments, &token)?),
    }
}

fn read_token() -> Result<String, MeasureError> {
    let token = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
    if token.len() < TOKEN_LENGTH {
        return Err(MeasureError::Token {
            variable: TOKEN_VARIABLE,
            minimum: TOKEN_LENGTH,
            found: token.len(),
        });
    }
    Ok(token)
}

fn parse_ports(text: &str) -> Result<PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok().zip(last.parse().ok());
    match range {
        Some((first, last)) if 0 < first && first <= last => Ok(PortRange { first, last }),
        _ => Err("expected ports such as 50000-50100".to_owned()),
    }
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let count = text.parse().unwrap_or(0);
    if (1..=MAX_CONNECTIONS).contains(&count) {
        Ok(count)
    } else {
        Err(format!("expected a number from 1 to {MAX_CONNECTIONS}"))
    }
}

fn parse_time(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(time_s) if (0.1..=3600.0).contains(&time_s) => Ok(time_s),
        _ => Err("expected seconds from 0.1 to 3600".to_owned()),
    }
}
