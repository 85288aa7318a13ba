//! Programs of other projects, with a limit for each wait. At the limit, the program is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::content::{BLOCK_BYTES, NewFileBlocks};
use super::error::{ErrorKind, FileError};
use super::location::FileLocation;

/// Maximum bytes of the error output that are kept.
const MAX_ERROR_BYTES: usize = 16 << 10;
/// Maximum bytes of the output in memory.
const MAX_OUTPUT_BYTES: usize = 256 << 20;

/// A call of a program.
pub(super) struct ExternalProgram<'a> {
    pub(super) name: &'static str,
    /// Debian package with the program, for messages.
    pub(super) package: &'static str,
    pub(super) arguments: Vec<&'a OsStr>,
    pub(super) environment: &'a [(&'static str, String)],
    /// Its standard input; none: a pipe.
    pub(super) input: Option<&'a File>,
}

/// End of a program.
pub(super) struct ProgramEnd {
    pub(super) status: ExitStatus,
    /// Its error output in one line.
    pub(super) message: String,
}

/// A program that is killed when it is dropped.
pub(super) struct RunningProgram {
    name: &'static str,
    child: Child,
    /// Its standard input and output.
    pub(super) stream: UnixStream,
    error_text: File,
    timeout: Duration,
}

impl ExternalProgram<'_> {
    /// Start the program. Reads and writes of its stream end after the timeout.
    ///
    /// # Errors
    /// The program is missing or cannot be started.
    pub(super) fn start(&self, timeout: Duration) -> Result<RunningProgram, FileError> {
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                let message = format!(
                    "`{}` is missing; install the package {}",
                    self.name, self.package
                );
                return FileError::unsupported(message);
            }
            FileError::system(&format!("cannot start {}", self.name), &error)
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_read_timeout(Some(timeout)).map_err(failed)?;
        ours.set_write_timeout(Some(timeout)).map_err(failed)?;
        let error_text = rustix::fs::memfd_create(self.name, MemfdFlags::CLOEXEC);
        let error_text = File::from(error_text.map_err(|errno| failed(errno.into()))?);
        let input = match self.input {
            Some(file) => OwnedFd::from(file.try_clone().map_err(failed)?),
            None => OwnedFd::from(theirs.try_clone().map_err(failed)?),
        };
        let child = Command::new(self.name)
            .args(&self.arguments)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(error_text.try_clone().map_err(failed)?))
            .spawn()
            .map_err(failed)?;
        Ok(RunningProgram {
            name: self.name,
            child,
            stream: ours,
            error_text,
            timeout,
        })
    }

    /// Run the program without input. Return its output.
    ///
    /// # Errors
    /// The program cannot be started, or makes no progress.
    pub(super) fn output(&self, timeout: Duration) -> Result<(Vec<u8>, ProgramEnd), FileError> {
        let mut output = Vec::new();
        let mut is_too_long = false;
        let ended = self.read(timeout, &mut |bytes| {
            is_too_long |= output.len() + bytes.len() > MAX_OUTPUT_BYTES;
            if !is_too_long {
                output.extend_from_slice(bytes);
            }
        })?;
        if is_too_long {
            let message = format!(
                "expected at most {MAX_OUTPUT_BYTES} bytes of {}, found more",
                self.name
            );
            return Err(FileError::new(ErrorKind::Other, message));
        }
        Ok((output, ended))
    }

    /// Run the program without input. Pass its output to `sink`.
    ///
    /// # Errors
    /// The program cannot be started, or makes no progress.
    pub(super) fn read(
        &self,
        timeout: Duration,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<ProgramEnd, FileError> {
        let mut program = self.start(timeout)?;
        program.end_input()?;
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            match program.stream.read(&mut block) {
                Ok(0) => return program.wait(),
                Ok(count) => sink(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The program has ended without reading all of its input.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return program.wait();
                }
                Err(error) => return Err(program.failure(&error)),
            }
        }
    }

    /// Run the program with a file as its input.
    ///
    /// # Errors
    /// The program cannot be started, or makes no progress.
    pub(super) fn write(
        &self,
        timeout: Duration,
        blocks: &mut NewFileBlocks,
    ) -> Result<ProgramEnd, FileError> {
        let mut program = self.start(timeout)?;
        while let Some(block) = blocks.next(BLOCK_BYTES) {
            match program.stream.write_all(&block) {
                Ok(()) => {}
                // It has ended, and its message has the reason.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return program.wait(),
                Err(error) => return Err(program.failure(&error)),
            }
        }
        program.end_input()?;
        program.wait()
    }
}

/// Return the reason why no connection is possible, for programs that do not report it. None if one is possible.
pub(super) fn connection_error(
    at: &FileLocation,
    default_port: u16,
    timeout: Duration,
) -> Option<FileError> {
    let port = if at.url.port == 0 {
        default_port
    } else {
        at.url.port
    };
    let addresses = match (at.url.host.as_str(), port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => {
            let message = format!("no address for {}: {error}", at.url.host);
            return Some(FileError::new(ErrorKind::Unresolved, message));
        }
    };
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(_) => return None,
            Err(error) => {
                last = Some(FileError::system(
                    &format!("cannot connect to {address}"),
                    &error,
                ));
            }
        }
    }
    last
}

impl RunningProgram {
    /// Close the standard input.
    fn end_input(&self) -> Result<(), FileError> {
        let ended = self.stream.shutdown(std::net::Shutdown::Write);
        ended.or_else(|error| match error.kind() {
            io::ErrorKind::NotConnected => Ok(()),
            _ => Err(FileError::system("cannot close a pipe", &error)),
        })
    }

    /// Wait for the end.
    fn wait(mut self) -> Result<ProgramEnd, FileError> {
        let failed = |error: io::Error| FileError::system("cannot wait for a program", &error);
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.expect("a process has a positive number");
        let process = pidfd_open(id, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let limit = Timespec::try_from(self.timeout).expect("a timeout of at most a day");
        let mut events = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        let ready = loop {
            match poll(&mut events, Some(&limit)) {
                Err(rustix::io::Errno::INTR) => {}
                ready => break ready.map_err(|errno| failed(errno.into()))?,
            }
        };
        if ready == 0 {
            return Err(self.timed_out());
        }
        let status = self.child.wait().map_err(failed)?;
        Ok(ProgramEnd {
            status,
            message: self.message(),
        })
    }

    /// Return the error of a read or write.
    pub(super) fn failure(&self, error: &io::Error) -> FileError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.timed_out(),
            _ => {
                let message = self.message();
                if message.is_empty() {
                    return FileError::system(&format!("{} ended early", self.name), error);
                }
                FileError::text(format!("{}: {message}", self.name))
            }
        }
    }

    fn timed_out(&self) -> FileError {
        let seconds = self.timeout.as_secs();
        let message = self.message();
        let detail = if message.is_empty() {
            String::new()
        } else {
            format!(": {message}")
        };
        FileError::new(
            ErrorKind::Timeout,
            format!(
                "timed out: {} made no progress for {seconds} s and was killed{detail}",
                self.name
            ),
        )
    }

    /// Return the error output in one line.
    pub(super) fn message(&self) -> String {
        let length = self
            .error_text
            .metadata()
            .map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; MAX_ERROR_BYTES];
        let offset = length.saturating_sub(MAX_ERROR_BYTES as u64);
        let count = self.error_text.read_at(&mut bytes, offset).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..count]);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join("; ");
        text.chars().filter(|letter| !letter.is_control()).collect()
    }
}

/// Error of a program that printed something other than expected.
pub(super) fn unexpected_output(program: &str, expected: &str, found: &str) -> FileError {
    let line = found.lines().next().unwrap_or_default();
    FileError::new(
        ErrorKind::Other,
        format!("expected {expected} of {program}, found `{line}`"),
    )
}

/// The text after a label, in the first line that starts with it.
pub(super) fn labeled_value<'a>(output: &'a str, label: &str) -> Option<&'a str> {
    let mut values = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix(label));
    values.next().map(str::trim)
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It has ended already, except after an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
