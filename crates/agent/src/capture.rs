//! Output of a child: the kernel keeps it in memory during the run, and the agent reads part of it afterwards.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

/// Kept bytes of each stream, by the agent protocol: half from its head, half from its tail.
pub(crate) const KEPT_BYTES: u64 = 64 * 1024;

/// More output on one stream causes a finding, because it is kept in memory while the child runs,
/// and printing takes time.
pub(crate) const LARGE_BYTES: u64 = 16 << 20;

/// Both output streams of one child.
///
/// A file in memory needs no reader. So no reader competes with the children for a core, and no
/// child waits for the agent.
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

    /// Descriptor for the output of the child.
    pub(crate) fn streams(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.stdout.as_fd(), self.stderr.as_fd())
    }

    /// Bytes printed to the longer stream.
    pub(crate) fn max_bytes(&self) -> u64 {
        let length = |file: &File| file.metadata().map_or(0, |found| found.len());
        length(&self.stdout).max(length(&self.stderr))
    }

    /// Returns standard output, at most [`KEPT_BYTES`] of it.
    pub(crate) fn stdout(&self) -> String {
        head_and_tail(&self.stdout)
    }

    /// Returns standard error, at most [`KEPT_BYTES`] of it.
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
        "{}\n[… {left_out} bytes omitted …]\n{}",
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

pub(crate) fn memory_file() -> Result<OwnedFd, Errno> {
    // SAFETY: the name is NUL-terminated; the result is checked before it is owned.
    let fd = Errno::result(unsafe {
        libc::memfd_create(c"venturi-output".as_ptr(), libc::MFD_CLOEXEC)
    })?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn short_output_is_kept_completely_and_long_output_keeps_both_ends() {
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
            kept.contains("[… 983049 bytes omitted …]"),
            "1048576 + 9 − 65536"
        );
        assert_eq!(capture.max_bytes(), (1 << 20) + 9);
    }
}
