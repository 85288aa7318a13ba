//! Estimate of the work before the first reply of a server, and requests that can be prefetched.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use venturi_gridftp::FtpCommand;
use venturi_gridftp::client::TransferDirection;

use super::chunks::LARGE_BYTES;
use super::messages::SessionRequest;
use super::names::journal;
use super::resolve_paths::EndpointLocation;
use crate::glob;
use crate::inputs::CopyInputs;
use crate::net::url::Scheme;
use crate::options::{CopyOptions, Existing};

/// Maximum number of counted local files: more make no difference.
const MAX_COUNTED: usize = 4_000;
/// Minimum round-trip time of a long path: waiting costs more than an idle session, and a loss
/// slows one connection for so long that several are better.
pub(super) const FAR: Duration = Duration::from_millis(2);
/// Minimum and maximum of initial connections on such a path.
const BREADTHS: (u32, u32) = (4, 16);
/// Cost of a further connection in CPU time of the server: a process and a login.
const CONNECTION: Duration = Duration::from_millis(8);
/// The same with certificates or ssh: a key exchange, a signature, and a delegation.
const SECURED: Duration = Duration::from_millis(32);
/// Maximum of initial sessions on short paths: the cores of a small server.
const FIRST_SESSIONS: usize = 4;
/// Minimum files per session. A Globus server needs 0.2 ms per file, so this is 0.1 s of work.
const FILES_A_SESSION: usize = 500;
/// The same on long paths.
const FILES_A_FAR_SESSION: usize = 50;
/// Minimum bytes per session on long paths: at 1 Gb/s they need 0.1 s, and a new connection needs five or more round trips for them.
const BYTES_A_FAR_SESSION: u64 = 12_500_000;
/// Minimum mean size of files that use several connections of a session, on long paths. Smaller
/// files have one or two blocks, and end on all connections.
pub(crate) const WIDE_BYTES: u64 = 1_000_000;
/// Maximum connections of each of several sessions for such files.
const WIDE_STREAMS: u16 = 4;

/// Returns the connections per session for files that use several connections. In total, they do
/// not exceed the initial connections of a path. With the windows of the kernel, 32 connections
/// fill the queue of a path of 7 Gb/s and 60 ms; they lose so many packets that 16 connections are
/// twice as fast.
pub(crate) fn wide_streams(sessions: usize) -> u16 {
    let most = u16::try_from(BREADTHS.1).expect("a few");
    let each = most / u16::try_from(sessions.max(1)).unwrap_or(u16::MAX);
    each.clamp(1, WIDE_STREAMS)
}

/// Returns the initial connections for this round-trip time: 1 if it is short. A connection doubles its rate each round trip, so twice as many
/// save one round trip; but they cost time of the server.
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

/// Estimated work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Number of files, and their bytes for local files.
    Files(usize, Option<u64>),
    /// Contents of remote directories.
    Tree,
}

impl Expected {
    /// Estimates the work from the options and local trees.
    pub(crate) fn of(
        options: &CopyOptions,
        inputs: &CopyInputs,
        direction: TransferDirection,
    ) -> Self {
        let sources: Vec<&OsString> = match inputs {
            CopyInputs::Operands(sources, _) if direction == TransferDirection::Receive => {
                let wild = |text: &OsString| glob::wild(text.as_encoded_bytes());
                if options.recursive || sources.iter().any(wild) {
                    return Self::Tree;
                }
                return Self::Files(sources.len(), None);
            }
            CopyInputs::Names(names, ..) => return Self::Files(names.len(), None),
            CopyInputs::Pairs(pairs)
                if pairs.len() > 1 || direction == TransferDirection::Receive =>
            {
                return Self::Files(pairs.len(), None);
            }
            CopyInputs::Pairs(pairs) => pairs.iter().map(|(source, _)| source).collect(),
            CopyInputs::Operands(sources, _) => sources.iter().collect(),
        };
        let sources = sources
            .into_iter()
            .filter_map(|text| EndpointLocation::read(text).ok());
        let (files, bytes) = count(
            sources.map(|location| location.local_path()).collect(),
            options.recursive,
        );
        Self::Files(files, Some(bytes))
    }

    /// True for one file.
    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::Files(1, _))
    }

    /// True for one file that is transferred in one piece by one session.
    pub(crate) fn is_single_chunk(self) -> bool {
        matches!(self, Self::Files(1, Some(bytes)) if bytes < LARGE_BYTES)
    }

    /// True if files are so large that several connections share one; none: unknown.
    pub(crate) fn is_wide(self) -> Option<bool> {
        match self {
            Self::Files(files, Some(bytes)) => Some(bytes / (files.max(1) as u64) >= WIDE_BYTES),
            _ => None,
        }
    }

    /// Returns the initial sessions for this number of initial connections.
    pub(crate) fn sessions(self, breadth: u16) -> usize {
        let (far, most) = (breadth > 1, usize::from(breadth).max(FIRST_SESSIONS));
        match self {
            // During the wait for the listing, such a path could have transferred much.
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
                // A large file has many chunks.
                let chunks = match bytes {
                    Some(bytes) if bytes / (files.max(1) as u64) >= LARGE_BYTES => usize::MAX,
                    _ => files,
                };
                let by_bytes = by_bytes.unwrap_or(usize::MAX).min(chunks);
                let target = if far {
                    by_files.max(by_bytes)
                } else {
                    by_files
                };
                target.clamp(1, most)
            }
        }
    }
}

/// Counts files and bytes below the sources, up to the maximum. Failures are reported later, during the copy.
fn count(sources: Vec<PathBuf>, recursive: bool) -> (usize, u64) {
    let (mut files, mut bytes, mut seen) = (0, 0, 0);
    let mut todo = sources;
    while let Some(path) = todo.pop()
        && seen < MAX_COUNTED
    {
        seen += 1;
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() && recursive => {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                todo.extend(entries.take(MAX_COUNTED).map(|entry| entry.path()));
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

/// Returns the first requests to the server in the order of their use. Requests that change something are included only if they are sent
/// independent of earlier replies.
pub(crate) fn requests(
    options: &CopyOptions,
    inputs: &CopyInputs,
    direction: TransferDirection,
) -> Vec<SessionRequest> {
    let CopyInputs::Operands(sources, destination) = inputs else {
        return Vec::new();
    };
    let [source] = &sources[..] else {
        return Vec::new();
    };
    let (Ok(from), Ok(to)) = (
        EndpointLocation::read(source),
        EndpointLocation::read(destination),
    ) else {
        return Vec::new();
    };
    let commands = match direction {
        TransferDirection::Receive => of_download(options, &from),
        TransferDirection::Send => of_upload(options, &from, &to),
    };
    commands
        .unwrap_or_default()
        .into_iter()
        .map(SessionRequest::Command)
        .collect()
}

fn of_download(options: &CopyOptions, from: &EndpointLocation) -> Option<Vec<FtpCommand>> {
    let path = from.remote_path().ok()?;
    if glob::wild(&from.bytes) {
        return None;
    }
    let mut commands = vec![FtpCommand::Mlst(Some(path.clone()))];
    if from.is_contents() {
        // The name of the copy depends on whether the path is a directory.
        commands.push(FtpCommand::Mlst(Some(path.clone())));
    }
    if options.recursive {
        commands.push(FtpCommand::Mlsc(Some(path)));
    }
    Some(commands)
}

fn of_upload(
    options: &CopyOptions,
    from: &EndpointLocation,
    to: &EndpointLocation,
) -> Option<Vec<FtpCommand>> {
    let mut commands = vec![FtpCommand::Mlst(Some(to.remote_path().ok()?))];
    // A link that is not followed is copied as a link.
    let followed = options.follow || from.is_contents() || !from.local_path().is_symlink();
    let is_tree =
        options.recursive && !glob::wild(&from.bytes) && followed && from.local_path().is_dir();
    let slash = to.bytes.ends_with(b"/");
    let (contents, into) = (from.is_contents(), slash && !options.no_target_directory);
    if !is_tree || options.dry_run || !(contents || into || options.no_target_directory) {
        return Some(commands);
    }
    let to = match from.name() {
        Some(name) if into && !contents => to.join(&name),
        _ => to.clone(),
    };
    let path = to.remote_path().ok()?;
    // A copy that can be rejected must not change anything in advance.
    if options.verify || !path.is_ascii() {
        return Some(commands);
    }
    // Without `--existing replace`, the copy is checked before its parent directories.
    if options.existing != Existing::Replace {
        commands.push(FtpCommand::Mlst(Some(path.clone())));
    }
    if options.mkpath || (slash && !contents) {
        commands.push(FtpCommand::Mlst(Some(path.split().0)));
    }
    commands.push(FtpCommand::Mkd(path.clone()));
    commands.push(FtpCommand::Mlst(Some(path.clone())));
    commands.push(FtpCommand::Mkd(journal(from, &to).remote_path().ok()?));
    if options.existing != Existing::Replace {
        commands.push(FtpCommand::Mlsc(Some(path)));
    }
    Some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_number_of_connections_grows_with_the_round_trip_time() {
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
    fn the_number_of_sessions_follows_from_files_or_bytes() {
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
    fn local_trees_are_counted_and_remote_trees_are_not() {
        let directory = tempfile::tempdir().expect("a folder");
        fs::create_dir(directory.path().join("in")).expect("a folder");
        for name in ["a", "in/b"] {
            fs::write(directory.path().join(name), [0; 100]).expect("a file");
        }
        let found = count(vec![directory.path().to_owned()], true);
        assert_eq!(found, (2, 200));
        assert_eq!(Expected::Files(2, Some(200)).is_wide(), Some(false));
        assert_eq!(Expected::Tree.is_wide(), None);
    }
}
