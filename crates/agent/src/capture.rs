//! What a child prints: kept in memory by the kernel while it runs, read in part when it has ended.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

/// What is kept of each stream, by the agent protocol: half from its head, half from its tail.
pub(crate) const KEPT_BYTES: u64 = 64 * 1024;

/// More than this on one stream is worth a finding: it is held in memory while the child runs, and printing takes time.
pub(crate) const LARGE_BYTES: u64 = 16 << 20;

/// Both output streams of one child.
///
/// A file in memory takes all that is printed without anybody having to drain it, so that no reader competes with the
/// children for a core, and no child waits for the agent.
#[derive(Debug)]
pub(crate) struct Capture {
    stdout: File,
    stderr: File,
}

impl Capture {
    /// Two empty streams.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            stdout: memory_file()?.into(),
            stderr: memory_file()?.into(),
        })
    }

    /// Where the child shall print.
    pub(crate) fn streams(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.stdout.as_fd(), self.stderr.as_fd())
    }

    /// Bytes printed to the longer stream.
    pub(crate) fn longest_bytes(&self) -> u64 {
        let length = |file: &File| file.metadata().map_or(0, |found| found.len());
        length(&self.stdout).max(length(&self.stderr))
    }

    /// Standard output, at most [`KEPT_BYTES`] of it.
    pub(crate) fn stdout(&self) -> String {
        head_and_tail(&self.stdout)
    }

    /// Standard error, at most [`KEPT_BYTES`] of it.
    pub(crate) fn stderr(&self) -> String {
        head_and_tail(&self.stderr)
    }
}

fn head_and_tail(file: &File) -> String {
    let length = file.metadata().map_or(0, |found| found.len());
    if length <= KEPT_BYTES {
        return text_at(file, 0, length);
    }
    let half = KEPT_BYTES / 2;
    let left_out = length - KEPT_BYTES;
    format!(
        "{}\n[… {left_out} bytes left out …]\n{}",
        text_at(file, 0, half),
        text_at(file, length - half, half)
    )
}

fn text_at(file: &File, offset: u64, length: u64) -> String {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("[the agent cannot read this output: {error}]"),
    }
}

fn memory_file() -> Result<OwnedFd, Errno> {
    // SAFETY: the name is NUL-terminated; the result is checked before it is owned.
    let fd = Errno::result(unsafe {
        libc::memfd_create(c"venturi-output".as_ptr(), libc::MFD_CLOEXEC)
    })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_short_output_is_kept_whole_and_of_a_long_one_both_ends() {
        let capture = Capture::new().expect("memory files");
        (&capture.stdout).write_all(b"hello\n").expect("memory");
        assert_eq!(
            (capture.stdout().as_str(), capture.stderr().as_str()),
            ("hello\n", "")
        );
        let long = format!("first{}last", "x".repeat(1 << 20));
        (&capture.stderr)
            .write_all(long.as_bytes())
            .expect("memory");
        let kept = capture.stderr();
        assert!(kept.starts_with("firstx") && kept.ends_with("xlast"));
        assert!(
            kept.contains("[… 983049 bytes left out …]"),
            "1048576 + 9 − 65536"
        );
        assert_eq!(capture.longest_bytes(), (1 << 20) + 9);
    }
}
