//! An order from the words of a command line: each value checked, and what stands for another is resolved.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{DataChannel, Existing, Method, Network, Order, Output, Preserve, What};
use crate::arguments::{Arguments, DataChannelWord, ExistingWord, MethodWord, PreserveWord};
use crate::error::Error;
use crate::http::proxy::Through;

/// The smallest and the largest block that can be asked for, bytes.
const BLOCKS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
/// The lowest and the highest rate of a connection that can be asked for, bytes a second: with less a segment takes seconds, which looks
/// like a silence to the other end.
const RATES: std::ops::RangeInclusive<f64> = 8e3..=1.25e11;

impl TryFrom<Arguments> for Order {
    type Error = Error;

    fn try_from(given: Arguments) -> Result<Self, Error> {
        let network = Network {
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
            (true, ..) => Output::Json,
            (_, true, _) => Output::Verbose,
            (_, _, true) => Output::Quiet,
            _ => Output::Usual,
        };
        let preserve = Preserve::from_words(&given.preserve);
        Ok(Self {
            recursive: given.recursive,
            no_target_directory: given.no_target_directory,
            mkpath: given.mkpath,
            follow: given.follow,
            preserve,
            existing: given.existing.into(),
            // Without its time a copy cannot be told by it.
            checksum: given.checksum || !preserve.times,
            verify: given.verify,
            sync: given.sync,
            direct: given.direct,
            method: given.method.into(),
            fixed: given.fixed,
            concurrency: given.concurrency,
            block_bytes: given.block,
            network,
            dry_run: given.dry_run,
            output,
            what: what(given.places, given.list, given.files_from, given.null)?,
        })
    }
}

fn what(
    mut places: Vec<OsString>,
    list: Option<PathBuf>,
    names: Option<PathBuf>,
    null: bool,
) -> Result<What, Error> {
    let count = places.len();
    let refused = |option, expected| {
        Err(Error::Order {
            option,
            expected,
            found: match count {
                1 => "one place".into(),
                _ => format!("{count} places"),
            },
        })
    };
    if let Some(list) = list {
        return if count == 0 {
            Ok(What::Pairs { list, null })
        } else {
            refused("--list", "no places besides those in the list")
        };
    }
    let (Some(destination), false) = (places.pop(), count < 2) else {
        return refused("SRC DST", "a source and a destination; see --help");
    };
    match names {
        None => Ok(What::Places {
            sources: places,
            destination,
        }),
        Some(_) if count > 2 => refused(
            "--files-from",
            "one source, which the names are below, and a destination",
        ),
        Some(list) => Ok(What::Names {
            list,
            null,
            source: places.remove(0),
            destination,
        }),
    }
}

/// A count of at least 1.
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

/// A size with its unit, powers of 1000 or (with an `i`) of 1024; a number alone counts bytes, as plans write it.
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

/// The rate of a connection, in bytes a second.
pub(crate) fn pacing(text: &str) -> Result<u64, String> {
    let rate = rate(text).filter(|rate| RATES.contains(rate));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is within its range"
    )]
    let whole = rate.map(|rate| rate.round() as u64);
    whole.ok_or_else(|| {
        "expected a rate from 64 kb/s to 1 Tb/s, such as 500 Mb/s or 62.5 MB/s".into()
    })
}

/// A rate with its unit, as scenarios write it, in bytes a second.
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

/// The size of a block, or of a socket's buffers.
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

    fn from_words(words: &[PreserveWord]) -> Self {
        let mut kept = Self::default();
        for word in words {
            match word {
                PreserveWord::Mode => kept.mode = true,
                PreserveWord::Times => kept.times = true,
                PreserveWord::Owner => kept.owner = true,
                PreserveWord::Links => kept.links = true,
                PreserveWord::Xattr => kept.xattr = true,
                PreserveWord::Special => kept.special = true,
                PreserveWord::All => kept = Self::ALL,
                PreserveWord::None => kept = Self::default(),
            }
        }
        kept
    }
}

impl From<ExistingWord> for Existing {
    fn from(word: ExistingWord) -> Self {
        match word {
            ExistingWord::Update => Self::Update,
            ExistingWord::Replace => Self::Replace,
            ExistingWord::Keep => Self::Keep,
        }
    }
}

impl From<DataChannelWord> for DataChannel {
    fn from(word: DataChannelWord) -> Self {
        match word {
            DataChannelWord::Open => Self::Open,
            DataChannelWord::Authenticated => Self::Authenticated,
            DataChannelWord::Safe => Self::Safe,
            DataChannelWord::Private => Self::Private,
        }
    }
}

impl From<MethodWord> for Method {
    fn from(word: MethodWord) -> Self {
        match word {
            MethodWord::Auto => Self::Auto,
            MethodWord::Copy => Self::Copy,
            MethodWord::Kernel => Self::Kernel,
            MethodWord::Buffers => Self::Buffers,
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
        for refused in [
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
            check(refused, None);
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
        for refused in [
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
            check(refused, None);
        }
    }

    #[test]
    fn later_words_of_preserve_add_to_earlier_ones_and_none_takes_all_back() {
        let words = |words: &[PreserveWord]| Preserve::from_words(words);
        assert_eq!(words(&[PreserveWord::All]), Preserve::ALL);
        assert_eq!(
            words(&[PreserveWord::All, PreserveWord::None]),
            Preserve::default()
        );
        assert!(words(&[PreserveWord::None, PreserveWord::Mode]).mode);
    }
}
