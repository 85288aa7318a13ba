//! Lines from the controller, as they come through a descriptor that is watched by `poll`.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use venturi_plan::LINE_LIMIT_BYTES;

/// Cuts what comes in into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    held: Vec<u8>,
    /// Where the next line begins in `held`.
    start: usize,
    /// How far `held` was searched for an end of line already.
    searched: usize,
}

/// What one reading brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Some bytes, or none yet.
    More,
    /// The end: the controller is gone, or has said all.
    End,
    /// A line longer than any plan needs.
    TooLong,
}

impl Lines {
    /// Reads once; to be called when the descriptor is readable.
    pub(crate) fn read(&mut self, source: BorrowedFd<'_>) -> Reading {
        const READ_BYTES: usize = 256 * 1024;
        self.held.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let held = self.held.len();
        self.held.resize(held + READ_BYTES, 0);
        let count = nix::unistd::read(source, &mut self.held[held..]);
        self.held.truncate(held + count.unwrap_or(0));
        match count {
            Err(Errno::EINTR | Errno::EAGAIN) => Reading::More,
            Ok(0) | Err(_) => Reading::End,
            Ok(_) if self.held.len() as u64 > LINE_LIMIT_BYTES && !self.held.contains(&b'\n') => {
                Reading::TooLong
            }
            Ok(_) => Reading::More,
        }
    }

    /// The next whole line, without its end.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.held[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| self.searched + at);
        let Some(end) = end else {
            self.searched = self.held.len();
            return None;
        };
        let line = self.held[self.start..end].to_vec();
        self.start = end + 1;
        self.searched = self.start;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn lines_come_out_whole_however_they_were_cut_on_the_way() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for piece in ["one\ntw", "o", "\n\nfour\nrest"] {
            writer
                .write_all(piece.as_bytes())
                .expect("room in the pipe");
            assert_eq!(lines.read(reader.as_fd()), Reading::More);
            seen.extend(std::iter::from_fn(|| lines.next_line()));
        }
        assert_eq!(
            seen,
            ["one", "two", "", "four"].map(|line| line.as_bytes().to_vec())
        );
        drop(writer);
        assert_eq!(lines.read(reader.as_fd()), Reading::End);
        assert_eq!(lines.next_line(), None, "a line without an end was cut off");
    }
}
