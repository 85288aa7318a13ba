//! Verification by checksums of the server (CKSM, SCKS) and of local files.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use venturi_gridftp::{Features, FtpCommand, FtpReply, Path};

use super::chunks;
use super::files::UploadTask;
use super::messages::SessionRequest;
use super::session_handle::{SessionClosed, SessionHandle, receive_reply};
use crate::checksum::Adler32;
use crate::error::CopyError;
use crate::stop::CancelToken;

/// Checksum requests in flight while local checksums are computed.
const MAX_IN_FLIGHT: usize = 4;
/// Algorithm that grid storage uses, and the fastest that servers support.
pub(crate) const ALGORITHM: &str = "ADLER32";
/// Read size.
const BLOCK_BYTES: usize = 256 << 10;

/// Checks that the server supports `--verify`.
///
/// # Errors
/// An unsupported server.
pub(crate) fn check_support(features: &Features, upload: bool) -> Result<(), CopyError> {
    let computes = features.checksums().iter().any(|name| name == ALGORITHM);
    if computes && (!upload || features.has("SCKS")) {
        return Ok(());
    }
    Err(CopyError::InvalidOption {
        option: "--verify",
        expected: "a server with ADLER32 checksums (CKSM, and SCKS for uploads); omit --verify, or compare the copies yourself",
        found: "a server without them".into(),
    })
}

/// Returns the command for the checksum of a byte range.
pub(crate) fn request(path: Path, range: Option<Range<u64>>) -> FtpCommand {
    FtpCommand::Cksm {
        algorithm: ALGORITHM.into(),
        offset: range.as_ref().map_or(0, |range| range.start),
        length: range.map(|range| range.end - range.start),
        path,
    }
}

/// Parses the checksum in a reply.
pub(crate) fn parse_checksum(reply: &FtpReply) -> Option<u32> {
    let text = reply.lines.last().filter(|_| reply.is_success())?;
    u32::from_str_radix(std::str::from_utf8(text).ok()?.trim(), 16).ok()
}

/// Formats the checksum for commands.
pub(crate) fn text(value: u32) -> String {
    format!("{value:08x}")
}

/// Returns the checksum of a byte range of a local file.
///
/// # Errors
/// An unreadable file.
pub(crate) fn of_file(file: &File, range: Range<u64>) -> io::Result<u32> {
    let mut sum = Adler32::default();
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = range.start;
    while at < range.end {
        let most = usize::try_from(range.end - at)
            .map_or(BLOCK_BYTES, |remaining| remaining.min(BLOCK_BYTES));
        file.read_exact_at(&mut block[..most], at)?;
        sum.update(&block[..most]);
        at += most as u64;
    }
    Ok(sum.value())
}

/// True if a remote file has the same data as a local file of the same size; false if unknown.
///
/// # Errors
/// The session is lost.
pub(crate) fn is_same(
    handle: &SessionHandle,
    remote: &Path,
    local: &std::path::Path,
) -> Result<bool, SessionClosed> {
    let reply = handle.call(&request(remote.clone(), None))?;
    let local = File::open(local).and_then(|file| {
        let size = file.metadata()?.len();
        of_file(&file, 0..size)
    });
    Ok(parse_checksum(&reply)
        .zip(local.ok())
        .is_some_and(|(parse_checksum, found)| parse_checksum == found))
}

/// True if two servers report the same checksum; none if unknown.
///
/// # Errors
/// A session is lost.
pub(crate) fn is_same_at(
    (source, from): (&SessionHandle, &Path),
    (destination, to): (&SessionHandle, &Path),
) -> Result<Option<bool>, SessionClosed> {
    let first = parse_checksum(&source.call(&request(from.clone(), None))?);
    let second = parse_checksum(&destination.call(&request(to.clone(), None))?);
    Ok(first.zip(second).map(|(first, second)| first == second))
}

/// Returns the chunks that the temporary file at the server already contains, each compared by its checksum.
pub(crate) fn present(
    handle: &SessionHandle,
    stop: &CancelToken,
    store: &UploadTask,
    (source, size): (&File, u64),
    remote: u64,
) -> BTreeSet<u64> {
    let ranges = (0..chunks::count(size)).map(|index| (index, chunks::range(index, size)));
    // For a range beyond the end of the file, the server would report the checksum of a shorter range.
    let mut ranges = ranges.take_while(|(_, range)| range.end <= remote);
    let (mut pending, mut present) = (VecDeque::new(), BTreeSet::new());
    // Each iteration requests or compares a checksum.
    while !stop.is_cancelled() {
        while pending.len() < MAX_IN_FLIGHT
            && let Some((index, range)) = ranges.next()
        {
            let command = request(store.part.clone(), Some(range.clone()));
            pending.push_back((
                index,
                range,
                handle.request(SessionRequest::Command(command)),
            ));
        }
        let Some((index, range, results)) = pending.pop_front() else {
            break;
        };
        let parse_checksum = receive_reply(&results).as_ref().and_then(parse_checksum);
        let own = || of_file(source, range).ok();
        if parse_checksum.is_some() && parse_checksum == own() {
            present.insert(index);
        }
    }
    present
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_range_covers_only_its_bytes() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("file");
        std::fs::write(&path, b"..Wikipedia..").expect("a file");
        let file = File::open(&path).expect("it");
        // Well-known test vector.
        assert_eq!(of_file(&file, 2..11).expect("readable"), 0x11E6_0398);
        assert_eq!(of_file(&file, 0..0).expect("readable"), 1);
        of_file(&file, 0..14).expect_err("it has no more");
        assert_eq!(
            parse_checksum(&FtpReply::new(213, "11e60398")),
            Some(0x11E6_0398)
        );
        assert_eq!(text(0x1234), "00001234");
        assert_eq!(parse_checksum(&FtpReply::new(500, "11e60398")), None);
    }
}
