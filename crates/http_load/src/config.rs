//! Command line and validated configuration.

use clap::{Args, ValueEnum};

use crate::{LoadError, LoadTarget};

/// Upper limit of clients: above the descriptors of any process.
const MAX_CLIENTS: u32 = 1_000_000;
/// Longest accepted time.
const MAX_S: f64 = 1e7;

/// The command line of `venturi-engine http-load`.
#[derive(Debug, Clone, Args)]
pub struct LoadArguments {
    /// URL to fetch, such as http://origin:8000/set/000000
    pub url: String,
    /// Proxy URL, such as http://squid:3128
    #[arg(long)]
    pub proxy: Option<String>,
    /// Number of clients. Each starts its next fetch after the last byte
    #[arg(long, default_value_t = 1)]
    pub clients: u32,
    /// Start no fetch after this many seconds; running fetches finish
    #[arg(
        long,
        required_unless_present = "fetches_each",
        conflicts_with = "fetches_each"
    )]
    pub duration_s: Option<f64>,
    /// Fetches per client, including failed fetches
    #[arg(long)]
    pub fetches_each: Option<u64>,
    /// Seconds at the start that `steady` leaves out
    #[arg(long, default_value_t = 0.0)]
    pub ramp_s: f64,
    /// Seconds over which the clients start one after another
    #[arg(long, default_value_t = 0.0)]
    pub spread_s: f64,
    /// Seconds that each client waits between two fetches
    #[arg(long, default_value_t = 0.0)]
    pub think_s: f64,
    /// Timeout of one fetch in seconds
    #[arg(long, default_value_t = 60.0)]
    pub timeout_s: f64,
    /// Seconds between two lines of counts
    #[arg(long, default_value_t = 1.0)]
    pub interval_s: f64,
    /// Address or name of the local interface
    #[arg(long)]
    pub bind: Option<String>,
    /// HTTP version
    #[arg(long, value_enum, default_value_t = HttpVersion::Http11)]
    pub http: HttpVersion,
    /// Reuse connections for several fetches
    #[arg(long)]
    pub keep_alive: bool,
    /// Expected body length in bytes; another length is an error
    #[arg(long)]
    pub expect_bytes: Option<u64>,
}

/// Version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HttpVersion {
    /// 1.0
    #[value(name = "1.0")]
    Http10,
    /// 1.1
    #[value(name = "1.1")]
    Http11,
}

/// Stop condition of each client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopCondition {
    /// Starts no fetch after this many nanoseconds.
    Time(u64),
    /// Stops after this many fetches.
    Fetches(u64),
}

/// Validated configuration; times in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadConfig {
    /// URL to fetch.
    pub target: LoadTarget,
    /// Proxy.
    pub proxy: Option<LoadTarget>,
    /// Number of clients.
    pub clients: u32,
    /// Stop condition of each client.
    pub until: StopCondition,
    /// Time at the start that the steady state leaves out.
    pub ramp_ns: u64,
    /// Time over which the clients start.
    pub spread_ns: u64,
    /// Pause between two fetches.
    pub think_ns: u64,
    /// Timeout of one fetch.
    pub timeout_ns: u64,
    /// Time between two output lines.
    pub interval_ns: u64,
    /// Local interface: name or address.
    pub bind: Option<String>,
    /// Version of HTTP.
    pub http: HttpVersion,
    /// Reuse connections for several fetches.
    pub keep_alive: bool,
    /// Expected body length.
    pub expect_bytes: Option<u64>,
}

impl TryFrom<LoadArguments> for LoadConfig {
    type Error = LoadError;

    fn try_from(arguments: LoadArguments) -> Result<Self, LoadError> {
        let wrong = |option, expected, found: String| LoadError::Option {
            option,
            expected,
            found,
        };
        if !(1..=MAX_CLIENTS).contains(&arguments.clients) {
            let expected = "1 to 1000000";
            return Err(wrong("clients", expected, arguments.clients.to_string()));
        }
        let until = match (arguments.duration_s, arguments.fetches_each) {
            (Some(seconds), _) => StopCondition::Time(positive("duration-s", seconds)?),
            (None, Some(0) | None) => {
                return Err(wrong("fetches-each", "1 or more", "0".into()));
            }
            (None, Some(count)) => StopCondition::Fetches(count),
        };
        let ramp_ns = nanoseconds("ramp-s", arguments.ramp_s)?;
        if matches!(until, StopCondition::Time(end_ns) if ramp_ns >= end_ns) {
            let expected = "less than the duration";
            return Err(wrong("ramp-s", expected, arguments.ramp_s.to_string()));
        }
        Ok(Self {
            target: LoadTarget::parse("url", &arguments.url)?,
            proxy: arguments
                .proxy
                .map(|proxy| LoadTarget::parse("proxy", &proxy))
                .transpose()?,
            clients: arguments.clients,
            until,
            ramp_ns,
            spread_ns: nanoseconds("spread-s", arguments.spread_s)?,
            think_ns: nanoseconds("think-s", arguments.think_s)?,
            timeout_ns: positive("timeout-s", arguments.timeout_s)?,
            interval_ns: positive("interval-s", arguments.interval_s)?,
            bind: arguments.bind,
            http: arguments.http,
            keep_alive: arguments.keep_alive,
            expect_bytes: arguments.expect_bytes,
        })
    }
}

impl LoadConfig {
    /// Return the bytes of a request; all requests are equal.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let target = match self.proxy {
            Some(_) => format!("http://{}{}", self.target.authority(), self.target.path),
            None => self.target.path.clone(),
        };
        let version = match self.http {
            HttpVersion::Http10 => "1.0",
            HttpVersion::Http11 => "1.1",
        };
        let connection = if self.keep_alive {
            "keep-alive"
        } else {
            "close"
        };
        let host = self.target.authority();
        format!(
            "GET {target} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: venturi-http-load/{}\r\nAccept: */*\r\nConnection: {connection}\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        )
        .into_bytes()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range has been checked"
)]
fn nanoseconds(option: &'static str, seconds: f64) -> Result<u64, LoadError> {
    if (0.0..=MAX_S).contains(&seconds) {
        return Ok((seconds * 1e9) as u64);
    }
    Err(LoadError::Option {
        option,
        expected: "seconds, 0 to 1e7",
        found: seconds.to_string(),
    })
}

fn positive(option: &'static str, seconds: f64) -> Result<u64, LoadError> {
    match nanoseconds(option, seconds)? {
        0 => Err(LoadError::Option {
            option,
            expected: "seconds, above 0",
            found: seconds.to_string(),
        }),
        time_ns => Ok(time_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct TestArguments {
        #[command(flatten)]
        arguments: LoadArguments,
    }

    fn config(line: &str) -> Result<LoadConfig, String> {
        let line = TestArguments::try_parse_from(format!("load {line}").split(' '))
            .map_err(|error| error.to_string())?;
        LoadConfig::try_from(line.arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_through_a_proxy_contains_the_full_url() {
        let request = |line| String::from_utf8(config(line).expect(line).request()).expect("ASCII");
        let direct = request("http://o:8000/x --fetches-each 1 --http 1.0");
        assert!(
            direct.starts_with("GET /x HTTP/1.0\r\nHost: o:8000\r\n"),
            "{direct}"
        );
        assert!(
            direct.contains("\r\nConnection: close\r\n") && direct.ends_with("\r\n\r\n"),
            "{direct}"
        );
        let proxied = request("http://o/x --proxy http://p:3128 --duration-s 1 --keep-alive");
        assert!(
            proxied.starts_with("GET http://o/x HTTP/1.1\r\n"),
            "{proxied}"
        );
        assert!(
            proxied.contains("\r\nConnection: keep-alive\r\n"),
            "{proxied}"
        );
    }

    #[test]
    fn invalid_values_are_rejected_with_the_expected_value() {
        for (line, output_error) in [
            (
                "http://o/ --duration-s 0",
                "--duration-s: expected seconds, above 0, found 0",
            ),
            (
                "http://o/ --duration-s 5 --ramp-s 5",
                "--ramp-s: expected less than the duration, found 5",
            ),
            (
                "http://o/ --fetches-each 0",
                "--fetches-each: expected 1 or more, found 0",
            ),
            (
                "http://o/ --fetches-each 1 --clients 0",
                "--clients: expected 1 to 1000000, found 0",
            ),
            (
                "http://o/ --fetches-each 1 --timeout-s NaN",
                "--timeout-s: expected seconds, 0 to 1e7, found NaN",
            ),
        ] {
            assert_eq!(config(line).expect_err(line), output_error);
        }
        for line in ["http://o/", "http://o/ --duration-s 1 --fetches-each 1"] {
            assert!(config(line).is_err(), "{line}");
        }
    }
}
