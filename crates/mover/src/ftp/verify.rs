//! Whether two files at both ends have the same bytes, by what the server computes (CKSM, SCKS) and what we do.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use venturi_gridftp::{Command, Features, Path, Reply};

use super::chunks;
use super::desk::{Desk, Gone, reply_of};
use super::files::Store;
use super::messages::Question;
use crate::checksum::Adler32;
use crate::error::Error;
use crate::stop::Stop;

/// Checksums that the server is asked for ahead of those that are computed here.
const ASKED_AHEAD: usize = 4;
/// What storage of grids keeps of its files, and the cheapest that servers offer.
pub(crate) const ALGORITHM: &str = "ADLER32";
/// Read at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Sees that a server can do what `--verify` asks for.
///
/// # Errors
/// If it cannot.
pub(crate) fn see(features: &Features, upload: bool) -> Result<(), Error> {
    let computes = features.checksums().iter().any(|name| name == ALGORITHM);
    if computes && (!upload || features.has("SCKS")) {
        return Ok(());
    }
    Err(Error::Order {
        option: "--verify",
        expected: "a server that computes checksums (ADLER32 by CKSM, and SCKS for what is sent); leave it out, or compare the copies yourself",
        found: "one that does not".into(),
    })
}

/// The command that asks for the checksum of some bytes of a file.
pub(crate) fn question(path: Path, range: Option<Range<u64>>) -> Command {
    Command::Cksm {
        algorithm: ALGORITHM.into(),
        offset: range.as_ref().map_or(0, |range| range.start),
        length: range.map(|range| range.end - range.start),
        path,
    }
}

/// What the server says.
pub(crate) fn told(reply: &Reply) -> Option<u32> {
    let text = reply.lines.last().filter(|_| reply.is_success())?;
    u32::from_str_radix(std::str::from_utf8(text).ok()?.trim(), 16).ok()
}

/// The checksum as commands have it.
pub(crate) fn text(value: u32) -> String {
    format!("{value:08x}")
}

/// The checksum of some bytes of a file here.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn of_file(file: &File, range: Range<u64>) -> io::Result<u32> {
    let mut sum = Adler32::default();
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = range.start;
    while at < range.end {
        let most =
            usize::try_from(range.end - at).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
        file.read_exact_at(&mut block[..most], at)?;
        sum.update(&block[..most]);
        at += most as u64;
    }
    Ok(sum.value())
}

/// Whether a file at a server has the bytes of one here, which is of the same size. Not, if either cannot be told.
///
/// # Errors
/// If the session is lost.
pub(crate) fn is_same(desk: &Desk, there: &Path, here: &std::path::Path) -> Result<bool, Gone> {
    let reply = desk.call(&question(there.clone(), None))?;
    let here = File::open(here).and_then(|file| {
        let size = file.metadata()?.len();
        of_file(&file, 0..size)
    });
    Ok(told(&reply)
        .zip(here.ok())
        .is_some_and(|(told, found)| told == found))
}

/// Whether two servers have the same bytes; none if either does not say.
///
/// # Errors
/// If a session is lost.
pub(crate) fn is_same_at(
    (source, from): (&Desk, &Path),
    (destination, to): (&Desk, &Path),
) -> Result<Option<bool>, Gone> {
    let first = told(&source.call(&question(from.clone(), None))?);
    let second = told(&destination.call(&question(to.clone(), None))?);
    Ok(first.zip(second).map(|(first, second)| first == second))
}

/// Chunks of a source that a temporary file of so many bytes at the server has, each compared.
pub(crate) fn present(
    desk: &Desk,
    stop: &Stop,
    store: &Store,
    (source, size): (&File, u64),
    there: u64,
) -> BTreeSet<u64> {
    let ranges = (0..chunks::count(size)).map(|index| (index, chunks::range(index, size)));
    // Of one that reaches beyond its end the server would tell the checksum of what there is.
    let mut ranges = ranges.take_while(|(_, range)| range.end <= there);
    let (mut asked, mut present) = (VecDeque::new(), BTreeSet::new());
    // Each turn asks for a chunk's checksum or compares one.
    while !stop.asked() {
        while asked.len() < ASKED_AHEAD
            && let Some((index, range)) = ranges.next()
        {
            let command = question(store.part.clone(), Some(range.clone()));
            asked.push_back((index, range, desk.ask(Question::Command(command))));
        }
        let Some((index, range, answers)) = asked.pop_front() else {
            break;
        };
        let told = reply_of(&answers).as_ref().and_then(told);
        let own = || of_file(source, range).ok();
        if told.is_some() && told == own() {
            present.insert(index);
        }
    }
    present
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_part_is_that_of_its_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"..Wikipedia..").expect("a file");
        let file = File::open(&path).expect("it");
        // The example that everybody has.
        assert_eq!(of_file(&file, 2..11).expect("readable"), 0x11E6_0398);
        assert_eq!(of_file(&file, 0..0).expect("readable"), 1);
        of_file(&file, 0..14).expect_err("it has no more");
        assert_eq!(told(&Reply::new(213, "11e60398")), Some(0x11E6_0398));
        assert_eq!(text(0x1234), "00001234");
        assert_eq!(told(&Reply::new(500, "11e60398")), None);
    }
}
