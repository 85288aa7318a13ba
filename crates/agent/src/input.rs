//! Lines from the controller, read from a descriptor that `poll` watches.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use venturi_plan::LINE_LIMIT_BYTES;

/// Splits the input into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffered: Vec<u8>,
    /// Start of the next line in `buffered`.
    start: usize,
    /// End of the part of `buffered` that has no newline.
    searched: usize,
}

/// Result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputReading {
    /// Some bytes, or none yet.
    More,
    /// The end: the controller has disconnected, or has sent everything.
    End,
    /// A line longer than the limit.
    TooLong,
}

impl Lines {
    /// Reads once; call this if the descriptor is readable.
    pub(crate) fn read(&mut self, source: BorrowedFd<'_>) -> InputReading {
        const READ_BYTES: usize = 256 * 1024;
        self.buffered.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let buffered = self.buffered.len();
        self.buffered.resize(buffered + READ_BYTES, 0);
        let count = nix::unistd::read(source, &mut self.buffered[buffered..]);
        self.buffered.truncate(buffered + count.unwrap_or(0));
        match count {
            Err(Errno::EINTR | Errno::EAGAIN) => InputReading::More,
            Ok(0) | Err(_) => InputReading::End,
            Ok(_)
                if self.buffered.len() as u64 > LINE_LIMIT_BYTES
                    && !self.buffered.contains(&b'\n') =>
            {
                InputReading::TooLong
            }
            Ok(_) => InputReading::More,
        }
    }

    /// Returns the next complete line, without its newline.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffered[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| self.searched + at);
        let Some(end) = end else {
            self.searched = self.buffered.len();
            return None;
        };
        let line = self.buffered[self.start..end].to_vec();
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
    fn lines_are_reassembled_from_any_fragments() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for part in ["one\ntw", "o", "\n\nfour\nrest"] {
            writer.write_all(part.as_bytes()).expect("room in the pipe");
            assert_eq!(lines.read(reader.as_fd()), InputReading::More);
            seen.extend(std::iter::from_fn(|| lines.next_line()));
        }
        assert_eq!(
            seen,
            ["one", "two", "", "four"].map(|line| line.as_bytes().to_vec())
        );
        drop(writer);
        assert_eq!(lines.read(reader.as_fd()), InputReading::End);
        assert_eq!(lines.next_line(), None, "a line without an end was cut off");
    }
}
