//! Converts command-line arguments to copy options: checks each value and resolves implied options.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{
    CopyOptions, CopySources, DataChannel, Existing, Method, NetworkOptions, OutputMode, Preserve,
};
use crate::arguments::{CopyArgs, DataChannelValue, ExistingValue, MethodValue, PreserveValue};
use crate::error::CopyError;
use crate::http::proxy::Through;

/// Minimum and maximum block size, bytes.
const BLOCKS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
/// Minimum and maximum rate of a connection, bytes per second. At a lower rate a segment takes
/// seconds, which looks like a stalled connection to the other host.
const RATES: std::ops::RangeInclusive<f64> = 8e3..=1.25e11;

/// Minimum and maximum rate of a copy, bytes per second. At a lower rate a block of 1 MiB takes
/// seconds, which looks like a stall.
const MAX_RATES: std::ops::RangeInclusive<f64> = 1e6..=1.25e11;

impl TryFrom<CopyArgs> for CopyOptions {
    type Error = CopyError;

    fn try_from(given: CopyArgs) -> Result<Self, CopyError> {
        let network = NetworkOptions {
            streams: given.streams,
            stripe: given.stripe,
            pipelining: given.pipelining,
            window_bytes: given.window,
            congestion: given.congestion,
            pacing_bytes_per_s: given.pacing,
            data_channel: given.data_channel.map(DataChannel::from),
            proxy: Through::parse(given.proxy.as_deref())?,
        };
        let output = match (given.json, given.verbose, given.quiet) {
            (true, ..) => OutputMode::Json,
            (_, true, _) => OutputMode::Verbose,
            (_, _, true) => OutputMode::Quiet,
            _ => OutputMode::Usual,
        };
        let preserve = Preserve::from_words(&given.preserve);
        Ok(Self {
            recursive: given.recursive,
            no_target_directory: given.no_target_directory,
            mkpath: given.mkpath,
            follow: given.follow,
            preserve,
            existing: given.existing.into(),
            // Without preserved times, size and time do not identify a copy.
            checksum: given.checksum || !preserve.times,
            verify: given.verify,
            sync: given.sync,
            direct: given.direct,
            method: given.method.into(),
            fixed: given.fixed,
            concurrency: given.concurrency,
            block_bytes: given.block,
            network,
            max_rate_bytes_per_s: given.max_rate,
            dry_run: given.dry_run,
            output,
            sources: what(given.operands, given.list, given.files_from, given.null)?,
        })
    }
}

fn what(
    mut paths: Vec<OsString>,
    list: Option<PathBuf>,
    names: Option<PathBuf>,
    null: bool,
) -> Result<CopySources, CopyError> {
    let count = paths.len();
    let rejected = |option, expected| {
        Err(CopyError::InvalidOption {
            option,
            expected,
            found: match count {
                1 => "one path".into(),
                _ => format!("{count} paths"),
            },
        })
    };
    if let Some(list) = list {
        return if count == 0 {
            Ok(CopySources::Pairs { list, null })
        } else {
            rejected("--list", "no paths in addition to the list")
        };
    }
    let (Some(destination), false) = (paths.pop(), count < 2) else {
        return rejected("SRC DST", "a source and a destination; see --help");
    };
    match names {
        None => Ok(CopySources::Operands {
            sources: paths,
            destination,
        }),
        Some(_) if count > 2 => rejected(
            "--files-from",
            "one source, which the names are below, and a destination",
        ),
        Some(list) => Ok(CopySources::Names {
            list,
            null,
            source: paths.remove(0),
            destination,
        }),
    }
}

/// Return a parser of a count of at least 1.
pub(crate) fn count<T>(most: u16) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: From<u16>,
{
    move |text| {
        let found = text.parse().ok().filter(|found| (1..=most).contains(found));
        found
            .map(T::from)
            .ok_or_else(|| format!("expected 1 to {most}"))
    }
}

/// Parse a size with its unit: powers of 1000, or of 1024 with an `i`. A number alone counts bytes,
/// as in plans.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let unit = match text[digits..].trim_start() {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// Parse the rate of a connection, in bytes per second.
pub(crate) fn pacing(text: &str) -> Result<u64, String> {
    rate_within(text, RATES, "64 kb/s")
}

/// Parse the rate of a copy, in bytes per second.
pub(crate) fn max_rate(text: &str) -> Result<u64, String> {
    rate_within(text, MAX_RATES, "8 Mb/s")
}

fn rate_within(
    text: &str,
    range: std::ops::RangeInclusive<f64>,
    lowest: &str,
) -> Result<u64, String> {
    let rate = rate(text).filter(|rate| range.contains(rate));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is within its range"
    )]
    let whole = rate.map(|rate| rate.round() as u64);
    whole.ok_or_else(|| {
        format!("expected a rate from {lowest} to 1 Tb/s, such as 500 Mb/s or 62.5 MB/s")
    })
}

/// Parse a rate with its unit, as in scenarios, in bytes per second.
fn rate(text: &str) -> Option<f64> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let unit = text[digits..].trim_start().strip_suffix("/s")?;
    let bits = || unit.strip_suffix("bit").or(unit.strip_suffix('b'));
    let (prefix, bytes) = match unit.strip_suffix('B') {
        Some(prefix) => (prefix, 1.0),
        None => (bits()?, 1.0 / 8.0),
    };
    let factor = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        _ => return None,
    };
    Some(text[..digits].parse::<f64>().ok()? * factor * bytes)
}

/// Parse the size of a block or of socket buffers.
pub(crate) fn block<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let size = bytes(text).filter(|size| BLOCKS.contains(size));
    size.and_then(|size| size.try_into().ok())
        .ok_or_else(|| "expected a size from 4KiB to 1GiB, such as 256KiB".into())
}

impl Preserve {
    const ALL: Self = Self {
        mode: true,
        times: true,
        owner: true,
        links: true,
        xattr: true,
        special: true,
    };

    fn from_words(words: &[PreserveValue]) -> Self {
        let mut kept = Self::default();
        for word in words {
            match word {
                PreserveValue::Mode => kept.mode = true,
                PreserveValue::Times => kept.times = true,
                PreserveValue::Owner => kept.owner = true,
                PreserveValue::Links => kept.links = true,
                PreserveValue::Xattr => kept.xattr = true,
                PreserveValue::Special => kept.special = true,
                PreserveValue::All => kept = Self::ALL,
                PreserveValue::None => kept = Self::default(),
            }
        }
        kept
    }
}

impl From<ExistingValue> for Existing {
    fn from(word: ExistingValue) -> Self {
        match word {
            ExistingValue::Update => Self::Update,
            ExistingValue::Replace => Self::Replace,
            ExistingValue::Keep => Self::Keep,
        }
    }
}

impl From<DataChannelValue> for DataChannel {
    fn from(word: DataChannelValue) -> Self {
        match word {
            DataChannelValue::Open => Self::Open,
            DataChannelValue::Authenticated => Self::Authenticated,
            DataChannelValue::Safe => Self::Safe,
            DataChannelValue::Private => Self::Private,
        }
    }
}

impl From<MethodValue> for Method {
    fn from(word: MethodValue) -> Self {
        match word {
            MethodValue::Auto => Self::Auto,
            MethodValue::Copy => Self::Copy,
            MethodValue::Kernel => Self::Kernel,
            MethodValue::Buffers => Self::Buffers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_size_with_its_unit_or_bytes() {
        let check =
            |text, expected: Option<u64>| assert_eq!(block::<u64>(text).ok(), expected, "{text}");
        check("256KiB", Some(1 << 18));
        check("1 MiB", Some(1 << 20));
        check("1MB", Some(1_000_000));
        check("65536", Some(65536));
        for rejected in [
            "1",
            "2GiB",
            "KiB",
            "",
            "1 MiB!",
            "-1",
            "99999999999999999999GiB",
            "4K",
            "ä",
        ] {
            check(rejected, None);
        }
    }

    #[test]
    fn a_pace_is_a_rate_with_its_unit() {
        let check = |text, expected: Option<u64>| assert_eq!(pacing(text).ok(), expected, "{text}");
        check("500 Mb/s", Some(62_500_000));
        check("500Mbit/s", Some(62_500_000));
        check("62.5 MB/s", Some(62_500_000));
        check("8000B/s", Some(8000));
        check("100 Gb/s", Some(12_500_000_000));
        check("1MiB/s", Some(1 << 20));
        for rejected in [
            "",
            "1",
            "0b/s",
            "500",
            "500 Mb",
            "63 kb/s",
            "2 Tb/s",
            "1 Eb/s",
            "-1 Mb/s",
            "1.2.3 Mb/s",
            "Mb/s",
            ". Mb/s",
            "inf Mb/s",
            "1 ä/s",
        ] {
            check(rejected, None);
        }
    }

    #[test]
    fn later_words_of_preserve_add_to_earlier_ones_and_none_resets_them() {
        let words = |words: &[PreserveValue]| Preserve::from_words(words);
        assert_eq!(words(&[PreserveValue::All]), Preserve::ALL);
        assert_eq!(
            words(&[PreserveValue::All, PreserveValue::None]),
            Preserve::default()
        );
        assert!(words(&[PreserveValue::None, PreserveValue::Mode]).mode);
    }
}
