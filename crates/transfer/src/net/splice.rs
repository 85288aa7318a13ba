//! Transfer from a socket to a file by `splice(2)`: the kernel moves pages through a pipe, so data is copied once, into the
//! page cache, and not through the process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Pipe capacity: the default maximum for users (pipe(7), `/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// Below this size, a buffer is cheaper.
pub(crate) const MIN_SPLICE_BYTES: u64 = 32 << 10;
/// Bytes per copy if the file system does not support splice.
const COPY_BYTES: usize = 64 << 10;

/// A pipe that is created on first use.
#[derive(Debug, Default)]
pub(crate) struct SplicePipe {
    pipe: Option<(OwnedFd, OwnedFd)>,
    held: usize,
    /// Splice is not supported.
    rejected: bool,
}

impl SplicePipe {
    /// True if splice is supported, as far as known.
    pub(crate) fn is_open(&self) -> bool {
        !self.rejected
    }

    /// Takes at most `max_bytes` from a socket; 0 at its end. Write them before the next call.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        max_bytes: u64,
    ) -> Poll<io::Result<usize>> {
        let max_bytes = usize::try_from(max_bytes)
            .unwrap_or(PIPE_BYTES)
            .min(PIPE_BYTES);
        let entrance = match &self.pipe {
            Some((_, entrance)) => entrance,
            None => match pipe() {
                Ok(pipe) => &self.pipe.insert(pipe).1,
                Err(errno) => {
                    self.rejected = true;
                    return Poll::Ready(Err(errno.into()));
                }
            },
        };
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let came = socket.try_io(Interest::READABLE, || {
                Ok(rustix::pipe::splice(
                    socket, None, entrance, None, max_bytes, flags,
                )?)
            });
            match came {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                came => {
                    self.held += came.as_ref().unwrap_or(&0);
                    return Poll::Ready(came);
                }
            }
        }
    }

    /// Writes the taken bytes to a file at an offset.
    ///
    /// # Errors
    /// The error of the kernel; the pipe is empty then.
    pub(crate) fn drain(&mut self, file: impl AsFd, offset: u64) -> Result<(), Errno> {
        let result = self.write(file.as_fd(), offset);
        if result.is_err() {
            self.forget();
        }
        result
    }

    /// Discards the taken bytes.
    pub(crate) fn forget(&mut self) {
        self.pipe = None;
        self.held = 0;
    }

    fn write(&mut self, file: impl AsFd, mut offset: u64) -> Result<(), Errno> {
        let Some((exit, _)) = &self.pipe else {
            return Ok(());
        };
        // Each iteration moves bytes, or fails.
        while self.held > 0 {
            let (at, flags) = (Some(&mut offset), SpliceFlags::MOVE);
            match rustix::pipe::splice(exit, None, &file, at, self.held, flags) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => self.held -= count,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) => {
                    self.rejected = true;
                    copy(exit, &file, offset, self.held)?;
                    self.held = 0;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Returns both ends of a pipe with sufficient capacity.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (exit, entrance) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // The kernel rejects large pipes for users with many pipes.
    rustix::pipe::fcntl_setpipe_size(&entrance, PIPE_BYTES)?;
    Ok((exit, entrance))
}

/// Copies through a buffer, for file systems without splice.
fn copy(exit: &OwnedFd, file: impl AsFd, mut offset: u64, bytes: usize) -> Result<(), Errno> {
    let mut left = bytes;
    let mut block = vec![0; COPY_BYTES];
    while left > 0 {
        let max_bytes = left.min(COPY_BYTES);
        let count = rustix::io::read(exit, &mut block[..max_bytes])?;
        if count == 0 {
            return Err(Errno::IO);
        }
        crate::bytes::put(&file, &block[..count], offset)?;
        offset += count as u64;
        left -= count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream as Blocking};

    use super::*;

    const BYTES: usize = 3 << 20;

    /// Connection that sends these bytes and then closes.
    fn sent(bytes: &[u8]) -> (TcpStream, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let content = bytes.to_vec();
        let sender = std::thread::spawn(move || {
            let mut socket = Blocking::connect(address).expect("a listener");
            // The reader can close early.
            let _ = socket.write_all(&content);
        });
        let (socket, _) = listener.accept().expect("a connection");
        socket.set_nonblocking(true).expect("a socket");
        (TcpStream::from_std(socket).expect("a runtime"), sender)
    }

    async fn fill(splice: &mut SplicePipe, socket: &TcpStream, max_bytes: u64) -> usize {
        let filled = std::future::poll_fn(|cx| splice.poll_fill(cx, socket, max_bytes)).await;
        filled.expect("a connection")
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        runtime.block_on(future)
    }

    fn content() -> Vec<u8> {
        (0..BYTES).map(|at| (at * 7 + at / 4096) as u8).collect()
    }

    /// Moves all data to a file, from byte 100 on.
    fn moved_to(file: &fs::File, splice: &mut SplicePipe) -> Result<(), Errno> {
        run(async {
            let (socket, sender) = sent(&content());
            let mut offset = 100;
            loop {
                let count = fill(splice, &socket, u64::MAX).await;
                if count == 0 {
                    break;
                }
                splice.drain(file, offset)?;
                offset += count as u64;
            }
            sender.join().expect("no panic");
            Ok(())
        })
    }

    #[test]
    fn bytes_reach_their_destination_and_the_end_is_reported() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("file");
        let file = fs::File::create(&path).expect("a file");
        let mut splice = SplicePipe::default();
        moved_to(&file, &mut splice).expect("room");
        assert!(splice.is_open());
        let found = fs::read(&path).expect("readable");
        assert_eq!(&found[..100], [0; 100]);
        assert!(found[100..] == content());
    }

    #[test]
    fn a_file_without_splice_support_still_receives_all_bytes() {
        // `splice(2)` does not support files in append mode.
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("file");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut splice = SplicePipe::default();
        moved_to(&file.expect("a file"), &mut splice).expect("room");
        assert!(!splice.is_open());
        assert!(fs::read(&path).expect("readable") == content());
    }

    #[test]
    fn a_write_error_is_reported_and_its_bytes_do_not_reach_the_next_file() {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let mut splice = SplicePipe::default();
        let result = moved_to(&full.expect("Linux has it"), &mut splice);
        assert_eq!(result, Err(Errno::NOSPC));
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("file");
        let file = fs::File::create(&path).expect("a file");
        moved_to(&file, &mut splice).expect("room");
        assert!(fs::read(&path).expect("readable")[100..] == content());
    }

    #[test]
    fn no_more_bytes_are_taken_than_requested() {
        run(async {
            let (socket, sender) = sent(b"header and more");
            let mut splice = SplicePipe::default();
            assert_eq!(fill(&mut splice, &socket, 6).await, 6);
            socket.readable().await.expect("a connection");
            let mut rest = [0; 100];
            let count = socket.try_read(&mut rest).expect("there is more");
            assert!(b" and more".starts_with(&rest[..count]));
            sender.join().expect("no panic");
        });
    }
}
