//! What is known of a copy before a server has said a word: how much it may be, and what will be asked first.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use venturi_gridftp::Command;
use venturi_gridftp::client::Direction;

use super::chunks::LARGE_BYTES;
use super::messages::Question;
use super::names::journal;
use super::places::Spot;
use crate::given::Given;
use crate::glob;
use crate::net::url::Scheme;
use crate::order::{Existing, Order};

/// Entries of trees of this host that are counted: more make no difference.
const MOST_COUNTED: usize = 4_000;
/// From this round trip on what is waited for costs more than a session that has nothing to do; and a loss halves what one connection brings for
/// so long that several are better.
pub(super) const FAR: Duration = Duration::from_millis(2);
/// The fewest and the most connections that a path of such a length begins with.
const BREADTHS: (u32, u32) = (4, 16);
/// What a connection more costs a server in the time of a core: a process, a login.
const CONNECTION: Duration = Duration::from_millis(8);
/// The same with certificates or ssh: a key exchange, a signature, a delegation.
const SECURED: Duration = Duration::from_millis(32);
/// Sessions to begin with near by, at most: as many as a small server has cores.
const FIRST_SESSIONS: usize = 4;
/// Files that are worth a session of their own. One of a server of the Globus toolkit takes 0.2 ms for a file, so that this is what it does in 0.1 s.
const FILES_A_SESSION: usize = 500;
/// The same from afar.
const FILES_A_FAR_SESSION: usize = 50;
/// Bytes that are worth one from afar: at 1 Gb/s they take 0.1 s, and a connection that begins takes five round trips or more for them.
const BYTES_A_FAR_SESSION: u64 = 12_500_000;
/// From this mean size on a file comes over several connections of a session, from afar. A smaller one has a block or two, and ends on all.
pub(crate) const WIDE_BYTES: u64 = 1_000_000;
/// Connections of each of several sessions for such files, at most.
const WIDE_STREAMS: u16 = 4;

/// Connections of each of so many sessions for files of which several connections share one. All together no more than a path begins with in any case: what
/// kernels give each as a window, 32 fill the queue of a path of 7 Gb/s and 60 ms with, and lose so much then that 16 are twice as fast.
pub(crate) fn wide_streams(sessions: usize) -> u16 {
    let most = u16::try_from(BREADTHS.1).expect("a few");
    let each = most / u16::try_from(sessions.max(1)).unwrap_or(u16::MAX);
    each.clamp(1, WIDE_STREAMS)
}

/// Connections to begin with over such a round trip: 1 if it is short. A connection doubles what it brings once a round trip, so that twice as many
/// spare one; and they cost the server time.
pub(crate) fn breadth(round_trip: Duration, scheme: Scheme) -> u16 {
    if round_trip < FAR {
        return 1;
    }
    let cost = match scheme {
        Scheme::Ftp => CONNECTION,
        _ => SECURED,
    };
    let worth = (round_trip.as_micros() / cost.as_micros()).min(BREADTHS.1.into());
    let worth = u32::try_from(worth).unwrap_or(BREADTHS.1);
    let breadth = worth.next_power_of_two().clamp(BREADTHS.0, BREADTHS.1);
    u16::try_from(breadth).expect("a few")
}

/// How much is to be copied, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// So many files, of so many bytes where they are here.
    Files(usize, Option<u64>),
    /// All that is in directories of a server.
    Tree,
}

impl Expected {
    /// What an order says by itself, and trees of this host.
    pub(crate) fn of(order: &Order, given: &Given, direction: Direction) -> Self {
        let sources: Vec<&OsString> = match given {
            Given::Places(sources, _) if direction == Direction::Receive => {
                let wild = |text: &OsString| glob::wild(text.as_encoded_bytes());
                if order.recursive || sources.iter().any(wild) {
                    return Self::Tree;
                }
                return Self::Files(sources.len(), None);
            }
            Given::Names(names, ..) => return Self::Files(names.len(), None),
            Given::Pairs(pairs) if pairs.len() > 1 || direction == Direction::Receive => {
                return Self::Files(pairs.len(), None);
            }
            Given::Pairs(pairs) => pairs.iter().map(|(source, _)| source).collect(),
            Given::Places(sources, _) => sources.iter().collect(),
        };
        let sources = sources.into_iter().filter_map(|text| Spot::read(text).ok());
        let (files, bytes) = count(sources.map(|spot| spot.here()).collect(), order.recursive);
        Self::Files(files, Some(bytes))
    }

    /// Whether it is one file.
    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::Files(1, _))
    }

    /// Whether it is one file that goes as a whole: what one session has.
    pub(crate) fn is_one_piece(self) -> bool {
        matches!(self, Self::Files(1, Some(bytes)) if bytes < LARGE_BYTES)
    }

    /// Whether files are so large that several connections share one; none: nothing is known.
    pub(crate) fn is_wide(self) -> Option<bool> {
        match self {
            Self::Files(files, Some(bytes)) => Some(bytes / (files.max(1) as u64) >= WIDE_BYTES),
            _ => None,
        }
    }

    /// Sessions to begin with, where a path begins with so many connections.
    pub(crate) fn sessions(self, breadth: u16) -> usize {
        let (far, most) = (breadth > 1, usize::from(breadth).max(FIRST_SESSIONS));
        match self {
            // Until the listing is there a path of that length could have brought much.
            Self::Tree => breadth.into(),
            Self::Files(files, bytes) => {
                let by_files = files
                    / if far {
                        FILES_A_FAR_SESSION
                    } else {
                        FILES_A_SESSION
                    };
                let by_bytes = match bytes {
                    Some(bytes) => usize::try_from(bytes / BYTES_A_FAR_SESSION),
                    None => Ok(files),
                };
                // A large one comes in many chunks.
                let pieces = match bytes {
                    Some(bytes) if bytes / (files.max(1) as u64) >= LARGE_BYTES => usize::MAX,
                    _ => files,
                };
                let by_bytes = by_bytes.unwrap_or(usize::MAX).min(pieces);
                let wanted = if far {
                    by_files.max(by_bytes)
                } else {
                    by_files
                };
                wanted.clamp(1, most)
            }
        }
    }
}

/// Files below these, and their bytes, as far as they are counted. What cannot be seen is told by who copies it.
fn count(sources: Vec<PathBuf>, recursive: bool) -> (usize, u64) {
    let (mut files, mut bytes, mut seen) = (0, 0, 0);
    let mut todo = sources;
    while let Some(path) = todo.pop()
        && seen < MOST_COUNTED
    {
        seen += 1;
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() && recursive => {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                todo.extend(entries.take(MOST_COUNTED).map(|entry| entry.path()));
            }
            Ok(found) => {
                files += 1;
                bytes += found.len();
            }
            Err(_) => {}
        }
    }
    (files, bytes)
}

/// The first questions to the server, in the order in which they will be asked; those that change something only where that will be done whatever
/// is answered.
pub(crate) fn questions(order: &Order, given: &Given, direction: Direction) -> Vec<Question> {
    let Given::Places(sources, destination) = given else {
        return Vec::new();
    };
    let [source] = &sources[..] else {
        return Vec::new();
    };
    let (Ok(from), Ok(to)) = (Spot::read(source), Spot::read(destination)) else {
        return Vec::new();
    };
    let commands = match direction {
        Direction::Receive => of_download(order, &from),
        Direction::Send => of_upload(order, &from, &to),
    };
    commands
        .unwrap_or_default()
        .into_iter()
        .map(Question::Command)
        .collect()
}

fn of_download(order: &Order, from: &Spot) -> Option<Vec<Command>> {
    let path = from.there().ok()?;
    if glob::wild(&from.bytes) {
        return None;
    }
    let mut commands = vec![Command::Mlst(Some(path.clone()))];
    if from.is_contents() {
        // Whether it is a directory decides about names, and what it is about all else.
        commands.push(Command::Mlst(Some(path.clone())));
    }
    if order.recursive {
        commands.push(Command::Mlsc(Some(path)));
    }
    Some(commands)
}

fn of_upload(order: &Order, from: &Spot, to: &Spot) -> Option<Vec<Command>> {
    let mut commands = vec![Command::Mlst(Some(to.there().ok()?))];
    // A link that is not followed is copied as one.
    let followed = order.follow || from.is_contents() || !from.here().is_symlink();
    let is_tree = order.recursive && !glob::wild(&from.bytes) && followed && from.here().is_dir();
    let slash = to.bytes.ends_with(b"/");
    let (contents, into) = (from.is_contents(), slash && !order.no_target_directory);
    if !is_tree || order.dry_run || !(contents || into || order.no_target_directory) {
        return Some(commands);
    }
    let to = match from.name() {
        Some(name) if into && !contents => to.join(&name),
        _ => to.clone(),
    };
    let path = to.there().ok()?;
    // What may be refused before anything is done is not done ahead.
    if order.verify || !path.is_ascii() {
        return Some(commands);
    }
    // Who does not replace looks at the copy first, then at the way to it.
    if order.existing != Existing::Replace {
        commands.push(Command::Mlst(Some(path.clone())));
    }
    if order.mkpath || (slash && !contents) {
        commands.push(Command::Mlst(Some(path.split().0)));
    }
    commands.push(Command::Mkd(path.clone()));
    commands.push(Command::Mlst(Some(path.clone())));
    commands.push(Command::Mkd(journal(from, &to).there().ok()?));
    if order.existing != Existing::Replace {
        commands.push(Command::Mlsc(Some(path)));
    }
    Some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_twice_as_many_connections_where_a_round_trip_pays_for_them() {
        let check = |ms, scheme, expected| {
            let found = breadth(Duration::from_millis(ms), scheme);
            assert_eq!(found, expected, "{ms} ms");
        };
        check(1, Scheme::Ftp, 1);
        check(2, Scheme::Ftp, 4);
        check(20, Scheme::Ftp, 4);
        check(53, Scheme::Ftp, 8);
        check(200, Scheme::Ftp, 16);
        check(200, Scheme::Gsiftp, 8);
    }

    #[test]
    fn sessions_are_worth_files_or_bytes_and_never_more_than_the_path_begins_with() {
        let files = |files, bytes| Expected::Files(files, bytes);
        assert_eq!(files(1, Some(1 << 20)).sessions(8), 1);
        assert_eq!(files(1, Some(LARGE_BYTES)).sessions(8), 8, "in chunks");
        assert_eq!(files(10, Some(100_000_000)).sessions(8), 8);
        assert_eq!(files(10, Some(100_000)).sessions(8), 1);
        assert_eq!(files(200, Some(2_000_000)).sessions(8), 4);
        assert_eq!(files(200, Some(2_000_000)).sessions(1), 1, "near by");
        assert_eq!(files(10_000, None).sessions(1), FIRST_SESSIONS);
        assert_eq!(
            (Expected::Tree.sessions(8), Expected::Tree.sessions(1)),
            (8, 1)
        );
    }

    #[test]
    fn trees_of_this_host_are_counted_and_those_of_a_server_cannot_be() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("in")).expect("a folder");
        for name in ["a", "in/b"] {
            fs::write(folder.path().join(name), [0; 100]).expect("a file");
        }
        let found = count(vec![folder.path().to_owned()], true);
        assert_eq!(found, (2, 200));
        assert_eq!(Expected::Files(2, Some(200)).is_wide(), Some(false));
        assert_eq!(Expected::Tree.is_wide(), None);
    }
}
