//! What is asked for: the command line, and the same as checked values.

use clap::{Args, ValueEnum};

use crate::{Error, Target};

/// More clients than a process has descriptors for, however it is asked.
const MAX_CLIENTS: u32 = 1_000_000;
/// The longest time that can be asked for.
const MAX_S: f64 = 1e7;

/// The command line of `venturi-engine load`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// What is fetched, such as http://origin:8000/set/000000
    pub url: String,
    /// Through this proxy, such as http://squid:3128
    #[arg(long)]
    pub proxy: Option<String>,
    /// Clients, each of which fetches again as soon as it has the last byte
    #[arg(long, default_value_t = 1)]
    pub clients: u32,
    /// No fetch begins after so many seconds; those that have begun are finished
    #[arg(
        long,
        required_unless_present = "fetches_each",
        conflicts_with = "fetches_each"
    )]
    pub duration_s: Option<f64>,
    /// So many fetches by each client, failed ones among them
    #[arg(long)]
    pub fetches_each: Option<u64>,
    /// `steady` leaves out so many seconds at the beginning
    #[arg(long, default_value_t = 0.0)]
    pub ramp_s: f64,
    /// Clients begin one after the other over so many seconds
    #[arg(long, default_value_t = 0.0)]
    pub spread_s: f64,
    /// Each client waits so long between two fetches
    #[arg(long, default_value_t = 0.0)]
    pub think_s: f64,
    /// Of one fetch
    #[arg(long, default_value_t = 60.0)]
    pub timeout_s: f64,
    /// A line of counts so often
    #[arg(long, default_value_t = 1.0)]
    pub interval_s: f64,
    /// The address, or its name, of the interface that is used
    #[arg(long)]
    pub bind: Option<String>,
    /// Version of HTTP
    #[arg(long, value_enum, default_value_t = Version::Http11)]
    pub http: Version,
    /// Use a connection for more than one fetch
    #[arg(long)]
    pub keep_alive: bool,
    /// A body of another length is a failure
    #[arg(long)]
    pub expect_bytes: Option<u64>,
}

/// Version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// 1.0
    #[value(name = "1.0")]
    Http10,
    /// 1.1
    #[value(name = "1.1")]
    Http11,
}

/// When a client is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Until {
    /// No fetch begins after so many nanoseconds.
    Time(u64),
    /// After so many fetches of its own.
    Fetches(u64),
}

/// What is asked for, checked; times in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// What is fetched.
    pub target: Target,
    /// Through what.
    pub proxy: Option<Target>,
    /// Number of clients.
    pub clients: u32,
    /// When a client is done.
    pub until: Until,
    /// Left out of what is steady.
    pub ramp_ns: u64,
    /// Over which clients begin.
    pub spread_ns: u64,
    /// Between two fetches.
    pub think_ns: u64,
    /// Of one fetch.
    pub timeout_ns: u64,
    /// From line to line.
    pub interval_ns: u64,
    /// The local interface.
    pub bind: Option<String>,
    /// Version of HTTP.
    pub http: Version,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// Length of the body.
    pub expect_bytes: Option<u64>,
}

impl TryFrom<Arguments> for Order {
    type Error = Error;

    fn try_from(given: Arguments) -> Result<Self, Error> {
        let wrong = |option, expected, found: String| Error::Order {
            option,
            expected,
            found,
        };
        if !(1..=MAX_CLIENTS).contains(&given.clients) {
            let expected = "1 to 1000000";
            return Err(wrong("clients", expected, given.clients.to_string()));
        }
        let until = match (given.duration_s, given.fetches_each) {
            (Some(seconds), _) => Until::Time(positive("duration-s", seconds)?),
            (None, Some(0) | None) => {
                return Err(wrong("fetches-each", "1 or more", "0".into()));
            }
            (None, Some(count)) => Until::Fetches(count),
        };
        let ramp_ns = nanoseconds("ramp-s", given.ramp_s)?;
        if matches!(until, Until::Time(end_ns) if ramp_ns >= end_ns) {
            let expected = "less than the duration";
            return Err(wrong("ramp-s", expected, given.ramp_s.to_string()));
        }
        Ok(Self {
            target: Target::parse("url", &given.url)?,
            proxy: given
                .proxy
                .map(|proxy| Target::parse("proxy", &proxy))
                .transpose()?,
            clients: given.clients,
            until,
            ramp_ns,
            spread_ns: nanoseconds("spread-s", given.spread_s)?,
            think_ns: nanoseconds("think-s", given.think_s)?,
            timeout_ns: positive("timeout-s", given.timeout_s)?,
            interval_ns: positive("interval-s", given.interval_s)?,
            bind: given.bind,
            http: given.http,
            keep_alive: given.keep_alive,
            expect_bytes: given.expect_bytes,
        })
    }
}

impl Order {
    /// The bytes of each request, all the same.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let target = match self.proxy {
            Some(_) => format!("http://{}{}", self.target.authority(), self.target.path),
            None => self.target.path.clone(),
        };
        let version = match self.http {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
        };
        let connection = if self.keep_alive {
            "keep-alive"
        } else {
            "close"
        };
        let host = self.target.authority();
        format!(
            "GET {target} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: venturi-load/{}\r\nAccept: */*\r\nConnection: {connection}\r\n\r\n",
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
fn nanoseconds(option: &'static str, seconds: f64) -> Result<u64, Error> {
    if (0.0..=MAX_S).contains(&seconds) {
        return Ok((seconds * 1e9) as u64);
    }
    Err(Error::Order {
        option,
        expected: "seconds, 0 to 1e7",
        found: seconds.to_string(),
    })
}

fn positive(option: &'static str, seconds: f64) -> Result<u64, Error> {
    match nanoseconds(option, seconds)? {
        0 => Err(Error::Order {
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
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn order(line: &str) -> Result<Order, String> {
        let line = Line::try_parse_from(format!("load {line}").split(' '))
            .map_err(|error| error.to_string())?;
        Order::try_from(line.arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_through_a_proxy_names_the_origin_whole() {
        let request = |line| String::from_utf8(order(line).expect(line).request()).expect("ASCII");
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
    fn values_that_make_no_sense_are_refused_with_what_was_expected() {
        for (line, told) in [
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
            assert_eq!(order(line).expect_err(line), told);
        }
        for line in ["http://o/", "http://o/ --duration-s 1 --fetches-each 1"] {
            assert!(order(line).is_err(), "{line}");
        }
    }
}
