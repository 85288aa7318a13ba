//! The straight way from a socket to a file: the kernel moves pages through a pipe (splice(2)), so that bytes are copied once, into the
//! page cache, and pass no memory of ours.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe takes at once: the most that any user may have by default (pipe(7), `/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// What comes in smaller pieces costs less when it is gathered in a buffer.
pub(crate) const WORTH_BYTES: u64 = 32 << 10;
/// Copied at a time where a file system takes nothing from pipes.
const COPY_BYTES: usize = 64 << 10;

/// A pipe, which is made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Straight {
    pipe: Option<(OwnedFd, OwnedFd)>,
    held: usize,
    /// There is no such way here.
    refused: bool,
}

impl Straight {
    /// Whether there is such a way, as far as that is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.refused
    }

    /// Takes at most so many bytes from a socket; none at its end. They are to be passed on before more are taken.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        let most = usize::try_from(most).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        let entrance = match &self.pipe {
            Some((_, entrance)) => entrance,
            None => match pipe() {
                Ok(pipe) => &self.pipe.insert(pipe).1,
                Err(errno) => {
                    self.refused = true;
                    return Poll::Ready(Err(errno.into()));
                }
            },
        };
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let came = socket.try_io(Interest::READABLE, || {
                Ok(rustix::pipe::splice(
                    socket, None, entrance, None, most, flags,
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

    /// Writes what was taken into a file, from this position on.
    ///
    /// # Errors
    /// As the kernel says. Nothing is held then.
    pub(crate) fn drain(&mut self, file: impl AsFd, offset: u64) -> Result<(), Errno> {
        let result = self.write(file.as_fd(), offset);
        if result.is_err() {
            self.forget();
        }
        result
    }

    /// Has what was taken go.
    pub(crate) fn forget(&mut self) {
        self.pipe = None;
        self.held = 0;
    }

    fn write(&mut self, file: impl AsFd, mut offset: u64) -> Result<(), Errno> {
        let Some((exit, _)) = &self.pipe else {
            return Ok(());
        };
        // Each turn moves bytes, or fails.
        while self.held > 0 {
            let (at, flags) = (Some(&mut offset), SpliceFlags::MOVE);
            match rustix::pipe::splice(exit, None, &file, at, self.held, flags) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => self.held -= count,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) => {
                    self.refused = true;
                    copy(exit, &file, offset, self.held)?;
                    self.held = 0;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Exit and entrance of a pipe that is worth it.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (exit, entrance) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // A user who has many is refused a large one.
    rustix::pipe::fcntl_setpipe_size(&entrance, PIPE_BYTES)?;
    Ok((exit, entrance))
}

/// The same with a copy, for file systems that take nothing from pipes.
fn copy(exit: &OwnedFd, file: impl AsFd, mut offset: u64, bytes: usize) -> Result<(), Errno> {
    let mut left = bytes;
    let mut block = vec![0; COPY_BYTES];
    while left > 0 {
        let most = left.min(COPY_BYTES);
        let count = rustix::io::read(exit, &mut block[..most])?;
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

    /// A connection over which so many bytes come, then its end.
    fn sent(bytes: &[u8]) -> (TcpStream, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let content = bytes.to_vec();
        let sender = std::thread::spawn(move || {
            let mut socket = Blocking::connect(address).expect("a listener");
            // Who reads may have had enough.
            let _ = socket.write_all(&content);
        });
        let (socket, _) = listener.accept().expect("a connection");
        socket.set_nonblocking(true).expect("a socket");
        (TcpStream::from_std(socket).expect("a runtime"), sender)
    }

    async fn fill(straight: &mut Straight, socket: &TcpStream, most: u64) -> usize {
        let filled = std::future::poll_fn(|cx| straight.poll_fill(cx, socket, most)).await;
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

    /// Moves all that comes to a file, from byte 100 on.
    fn moved_to(file: &fs::File, straight: &mut Straight) -> Result<(), Errno> {
        run(async {
            let (socket, sender) = sent(&content());
            let mut offset = 100;
            loop {
                let count = fill(straight, &socket, u64::MAX).await;
                if count == 0 {
                    break;
                }
                straight.drain(file, offset)?;
                offset += count as u64;
            }
            sender.join().expect("no panic");
            Ok(())
        })
    }

    #[test]
    fn bytes_come_to_their_place_and_the_end_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = fs::File::create(&path).expect("a file");
        let mut straight = Straight::default();
        moved_to(&file, &mut straight).expect("room");
        assert!(straight.is_open());
        let found = fs::read(&path).expect("readable");
        assert_eq!(&found[..100], [0; 100]);
        assert!(found[100..] == content());
    }

    #[test]
    fn a_file_that_takes_nothing_from_pipes_gets_all_bytes_nevertheless() {
        // One that is appended to is such a file (splice(2)).
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut straight = Straight::default();
        moved_to(&file.expect("a file"), &mut straight).expect("room");
        assert!(!straight.is_open());
        assert!(fs::read(&path).expect("readable") == content());
    }

    #[test]
    fn what_could_not_be_written_is_told_and_does_not_come_into_the_next_file() {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let mut straight = Straight::default();
        let told = moved_to(&full.expect("Linux has it"), &mut straight);
        assert_eq!(told, Err(Errno::NOSPC));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = fs::File::create(&path).expect("a file");
        moved_to(&file, &mut straight).expect("room");
        assert!(fs::read(&path).expect("readable")[100..] == content());
    }

    #[test]
    fn no_more_is_taken_than_was_asked_for() {
        run(async {
            let (socket, sender) = sent(b"header and more");
            let mut straight = Straight::default();
            assert_eq!(fill(&mut straight, &socket, 6).await, 6);
            socket.readable().await.expect("a connection");
            let mut rest = [0; 100];
            let count = socket.try_read(&mut rest).expect("there is more");
            assert!(b" and more".starts_with(&rest[..count]));
            sender.join().expect("no panic");
        });
    }
}
