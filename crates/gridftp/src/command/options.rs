//! OPTS: settings of other commands.

use super::parse::split_word;
use crate::{FtpError, number};

/// Distribution of blocks over stripes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Round robin with this block size.
    Blocked {
        /// Block size, if given.
        block_bytes: Option<u64>,
    },
    /// One contiguous part per stripe.
    Partitioned,
}

/// Options of `OPTS RETR`; missing options keep their value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetrieveOptions {
    /// Connections per stripe: the initial number. Servers ignore the other two numbers.
    pub parallelism: Option<u16>,
    /// Distribution of blocks.
    pub layout: Option<Layout>,
    /// Interval of performance markers.
    pub markers_s: Option<u64>,
}

/// An OPTS command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Options {
    /// Options of RETR.
    Retrieve(RetrieveOptions),
    /// `true` if the PASV address may follow the transfer command.
    DelayedPassive(bool),
    /// Facts of MLST and similar commands.
    Facts(Vec<String>),
    /// Interval of markers during a checksum.
    ChecksumMarkers {
        /// Seconds.
        interval_s: u64,
    },
    /// Names are UTF-8.
    Utf8,
    /// Options of another command, verbatim.
    Other(Vec<u8>),
}

impl Options {
    pub(super) fn text(&self) -> Vec<u8> {
        match self {
            Self::Retrieve(options) => format!("RETR {}", options.text()).into(),
            Self::DelayedPassive(allowed) => {
                format!("PASV AllowDelayed={};", u8::from(*allowed)).into()
            }
            Self::Facts(facts) => {
                let facts: String = facts.iter().map(|fact| format!("{fact};")).collect();
                format!("MLST {facts}").into()
            }
            Self::ChecksumMarkers { interval_s } => format!("CKSM markers={interval_s};").into(),
            Self::Utf8 => b"UTF8 ON".to_vec(),
            Self::Other(text) => text.clone(),
        }
    }

    pub(super) fn parse(argument: &[u8]) -> Result<Self, FtpError> {
        let wrong = || FtpError::malformed("OPTS", "`COMMAND Name=value;`", argument);
        let (name, settings) = split_word(argument);
        let settings = std::str::from_utf8(settings).map_err(|_| wrong())?;
        match name.to_ascii_uppercase().as_slice() {
            b"RETR" => RetrieveOptions::parse(settings)
                .map(Self::Retrieve)
                .ok_or_else(wrong),
            b"PASV" | b"SPAS" | b"EPSV" => match pairs(settings)[..] {
                [(name, "0")] if name.eq_ignore_ascii_case("AllowDelayed") => {
                    Ok(Self::DelayedPassive(false))
                }
                [(name, "1")] if name.eq_ignore_ascii_case("AllowDelayed") => {
                    Ok(Self::DelayedPassive(true))
                }
                _ => Err(wrong()),
            },
            b"MLST" => {
                let facts = settings.split(';').filter(|fact| !fact.is_empty());
                Ok(Self::Facts(facts.map(str::to_owned).collect()))
            }
            b"CKSM" => match pairs(settings)[..] {
                [(name, value)] if name.eq_ignore_ascii_case("markers") => {
                    let interval_s = number(value.as_bytes()).ok_or_else(wrong)?;
                    Ok(Self::ChecksumMarkers { interval_s })
                }
                _ => Err(wrong()),
            },
            b"UTF8" if settings.is_empty() || settings.eq_ignore_ascii_case("ON") => Ok(Self::Utf8),
            b"" => Err(wrong()),
            _ => Ok(Self::Other(argument.to_vec())),
        }
    }
}

impl RetrieveOptions {
    fn text(&self) -> String {
        let mut text = String::new();
        match self.layout {
            Some(Layout::Blocked { block_bytes }) => {
                text.push_str("StripeLayout=Blocked;");
                if let Some(bytes) = block_bytes {
                    text.push_str(&format!("BlockSize={bytes};"));
                }
            }
            Some(Layout::Partitioned) => text.push_str("StripeLayout=Partitioned;"),
            None => {}
        }
        if let Some(count) = self.parallelism {
            text.push_str(&format!("Parallelism={count},{count},{count};"));
        }
        if let Some(interval) = self.markers_s {
            text.push_str(&format!("markers={interval};"));
        }
        text
    }

    fn parse(settings: &str) -> Option<Self> {
        let mut options = Self::default();
        for (name, value) in pairs(settings) {
            match name.to_ascii_lowercase().as_str() {
                "parallelism" => {
                    let first = value.split(',').next()?;
                    options.parallelism =
                        Some(number(first.as_bytes()).filter(|&count| count > 0)?);
                }
                "stripelayout" if value.eq_ignore_ascii_case("Blocked") => {
                    options.layout = Some(Layout::Blocked { block_bytes: None });
                }
                "stripelayout" if value.eq_ignore_ascii_case("Partitioned") => {
                    options.layout = Some(Layout::Partitioned);
                }
                "blocksize" => {
                    let block_bytes = Some(number(value.as_bytes())?);
                    options.layout = Some(Layout::Blocked { block_bytes });
                }
                "markers" => options.markers_s = Some(number(value.as_bytes())?),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Splits `name=value;name=value;`. Without `=` the value is empty.
fn pairs(settings: &str) -> Vec<(&str, &str)> {
    settings
        .split(';')
        .map(str::trim)
        .filter(|setting| !setting.is_empty())
        .map(|setting| setting.split_once('=').unwrap_or((setting, "")))
        .collect()
}
