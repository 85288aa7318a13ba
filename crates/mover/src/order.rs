//! What is to be copied, and how: everything that was asked for, checked.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::arguments::{Arguments, ExistingWord, MethodWord, PreserveWord};
use crate::error::Error;
use crate::given::Route;

/// The most workers that can be asked for.
const MOST_WORKERS: u32 = 1024;
/// The most data connections of a session, and the most transfers ahead, that can be asked for.
const MOST_STREAMS: u32 = 256;
const MOST_AHEAD: u32 = 4096;
/// The smallest and the largest block that can be asked for, bytes.
const BLOCKS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

/// What is to be copied, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What is copied, as it was written.
    pub what: What,
    /// Whether directories are copied.
    pub recursive: bool,
    /// Whether the destination is never a directory to put things into.
    pub no_target_directory: bool,
    /// Whether directories that lead to the destination are made.
    pub mkpath: bool,
    /// Whether symbolic links are replaced by what they point to.
    pub follow: bool,
    /// What is kept besides the bytes.
    pub preserve: Preserve,
    /// What becomes of a file that is there already.
    pub existing: Existing,
    /// Whether a file that is there already is told by its content.
    pub checksum: bool,
    /// Whether both ends are read again and compared.
    pub verify: bool,
    /// Whether a file is on stable storage before it gets its name.
    pub sync: bool,
    /// Whether the page cache is avoided.
    pub direct: bool,
    /// How bytes are moved.
    pub method: Method,
    /// Whether nothing is decided here.
    pub fixed: bool,
    /// Workers; none: as the machine and the set suggest.
    pub concurrency: Option<u32>,
    /// Bytes of one read and write; none: as the machine suggests.
    pub block_bytes: Option<u64>,
    /// What is asked of networks.
    pub network: Network,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// What is told.
    pub output: Output,
}

/// What is copied, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Sources to a destination.
    Places {
        /// One or more.
        sources: Vec<OsString>,
        /// Where to.
        destination: OsString,
    },
    /// The names in a file, below a source.
    Names {
        /// The file; `-` is stdin.
        list: PathBuf,
        /// Whether a zero byte ends each.
        null: bool,
        /// The directory that they are in.
        source: OsString,
        /// The directory that they come to.
        destination: OsString,
    },
    /// The pairs in a file.
    Pairs {
        /// The file.
        list: PathBuf,
        /// Whether a zero byte ends each.
        null: bool,
    },
}

/// What is asked of networks; none: as the path suggests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Data connections of a session.
    pub streams: Option<u16>,
    /// Transfers that a session asks for ahead of their end.
    pub pipelining: Option<u32>,
    /// Socket buffers of data connections, bytes.
    pub window_bytes: Option<u32>,
    /// Congestion control of data connections.
    pub congestion: Option<String>,
}

/// What is kept besides the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Times of access and change.
    pub times: bool,
    /// Owner and group.
    pub owner: bool,
    /// Hard links among the files of one source.
    pub links: bool,
    /// Extended attributes.
    pub xattr: bool,
    /// Pipes, sockets, devices.
    pub special: bool,
}

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Kept if it is whole, else replaced.
    Update,
    /// Replaced.
    Replace,
    /// Kept.
    Keep,
}

/// How bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Cloned, else copied by the kernel or through buffers, whichever is faster.
    Auto,
    /// The same, but never cloned.
    Copy,
    /// Copied by the kernel, else through buffers.
    Kernel,
    /// Through buffers.
    Buffers,
}

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Errors; on a terminal progress as well.
    Usual,
    /// Decisions and files as well.
    Verbose,
    /// Errors alone.
    Quiet,
    /// Events as JSON Lines.
    Json,
}

impl TryFrom<Arguments> for Order {
    type Error = Error;

    fn try_from(given: Arguments) -> Result<Self, Error> {
        let block_bytes = given.block.as_deref().map(block).transpose()?;
        let streams = given.streams.map(u32::from);
        counted(
            "--concurrency",
            given.concurrency,
            MOST_WORKERS,
            "1 to 1024",
        )?;
        counted("--streams", streams, MOST_STREAMS, "1 to 256")?;
        counted("--pipelining", given.pipelining, MOST_AHEAD, "1 to 4096")?;
        let network = Network {
            streams: given.streams,
            pipelining: given.pipelining,
            window_bytes: given.window.as_deref().map(window).transpose()?,
            congestion: given.congestion,
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
            block_bytes,
            network,
            dry_run: given.dry_run,
            output,
            what: what(given.places, given.list, given.files_from, given.null)?,
        })
    }
}

impl Order {
    /// Sees whether all that was asked for can be had on this way: nothing is passed over in silence.
    ///
    /// # Errors
    /// The first option that would do nothing.
    pub(crate) fn fits(&self, route: Route) -> Result<(), Error> {
        let (preserve, network) = (self.preserve, &self.network);
        let local = route == Route::Local;
        let beyond = preserve.owner || preserve.links || preserve.xattr || preserve.special;
        let server = "a place at a server as source or destination";
        let asked = [
            ("--direct", self.direct, !local, "places of this host alone"),
            (
                "--preserve",
                beyond,
                !local,
                "mode and times, which is what can be kept at servers",
            ),
            ("--streams", network.streams.is_some(), local, server),
            (
                "--pipelining",
                network.pipelining.is_some(),
                route != Route::Ftp,
                "a place at a server of FTP or GridFTP",
            ),
            ("--window", network.window_bytes.is_some(), local, server),
            ("--congestion", network.congestion.is_some(), local, server),
        ];
        let unfit = asked
            .into_iter()
            .find(|(_, asked, unfit, _)| *asked && *unfit);
        unfit.map_or(Ok(()), |(option, _, _, expected)| {
            let found = match route {
                Route::Local => "places of this host alone",
                Route::Ftp => "one of FTP",
                Route::Http => "one of HTTP",
            };
            Err(Error::Order {
                option,
                expected,
                found: found.into(),
            })
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
            found: format!("{count} places"),
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

fn counted(
    option: &'static str,
    found: Option<u32>,
    most: u32,
    expected: &'static str,
) -> Result<(), Error> {
    match found {
        Some(found) if !(1..=most).contains(&found) => Err(Error::Order {
            option,
            expected,
            found: found.to_string(),
        }),
        _ => Ok(()),
    }
}

/// The size of a socket's buffers.
fn window(text: &str) -> Result<u32, Error> {
    let size = bytes(text).filter(|size| BLOCKS.contains(size));
    let size = size.and_then(|size| u32::try_from(size).ok());
    size.ok_or_else(|| Error::Order {
        option: "--window",
        expected: "a size from 4KiB to 1GiB, such as 4MiB",
        found: text.to_owned(),
    })
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

/// The size of a block.
pub(crate) fn block(text: &str) -> Result<u64, Error> {
    bytes(text)
        .filter(|size| BLOCKS.contains(size))
        .ok_or_else(|| Error::Order {
            option: "--block",
            expected: "a size from 4KiB to 1GiB, such as 256KiB",
            found: text.to_owned(),
        })
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
        let check = |text, expected: Option<u64>| assert_eq!(block(text).ok(), expected, "{text}");
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
