//! `run`: one program, its input and output, and its end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;

use super::children::{Child, ChildExit, Children, StartError};
use super::failure::ShellFailure;
use super::files::absolute;
use super::protocol::{RunCommand, RunResult, ShellResult};
use super::spawn::StandardStreams;

/// Kept bytes of each output stream: half from its head, half from its tail.
const KEPT_BYTES: usize = 8 << 20;

/// Largest capacity of a pipe by pipe(7). More bytes after the end of the program come from its descendants.
const PIPE_BYTES: usize = 1 << 20;

/// Runs a program to its end or for at most `timeout`; then its process group is killed.
///
/// # Errors
/// If it cannot be started. A missing program is a result: exit code 127, as in `sh`.
pub(crate) fn run(
    children: &Children,
    session: &Path,
    command: &RunCommand,
    timeout: Duration,
) -> Result<ShellResult, ShellFailure> {
    let deadline = Instant::now() + timeout;
    let directory = working_directory(command.directory.as_deref(), session)?;
    let failed = |error: io::Error| ShellFailure::system("cannot create a pipe", &error);
    let (stdout, stdout_write) = io::pipe().map_err(failed)?;
    let (stderr, stderr_write) = io::pipe().map_err(failed)?;
    let streams = StandardStreams {
        stdin: input(command.stdin.as_deref())
            .map_err(|error| ShellFailure::system("cannot create the standard input", &error))?,
        stdout: stdout_write.into(),
        stderr: stderr_write.into(),
    };
    let started = children.start(
        &command.argv,
        &command.environment,
        &directory,
        streams,
        None,
    );
    let child = match started {
        Ok(child) => child,
        Err(StartError::Failed(failure)) => return Err(failure),
        Err(StartError::Program { exit_code, failure }) => {
            return Ok(ShellResult::Run(RunResult {
                exit_code: Some(exit_code),
                signal: None,
                stdout: String::new(),
                stderr: format!("{}\n", failure.message),
                timed_out: false,
            }));
        }
    };
    let mut outputs = [
        Output::new(stdout.into()).map_err(failed)?,
        Output::new(stderr.into()).map_err(failed)?,
    ];
    let in_time = read_until_end(&child, &mut outputs, deadline)
        .map_err(|error| ShellFailure::system("cannot read the output", &error))?;
    let exit = match (in_time, child.exit()) {
        (true, Some(exit)) => exit,
        _ => killed(children, &child)?,
    };
    for output in &mut outputs {
        output.drain();
    }
    let [stdout, stderr] = outputs.map(Output::text);
    Ok(ShellResult::Run(RunResult {
        exit_code: exit.code,
        signal: exit.signal,
        stdout,
        stderr,
        timed_out: !in_time,
    }))
}

fn killed(children: &Children, child: &Child) -> Result<ChildExit, ShellFailure> {
    children.stop(child, Signal::SIGKILL, Duration::ZERO)
}

/// Returns the directory of a command. Default: the session directory.
///
/// # Errors
/// If the directory is relative.
pub(crate) fn working_directory(
    directory: Option<&str>,
    session: &Path,
) -> Result<PathBuf, ShellFailure> {
    directory.map_or_else(|| Ok(session.to_owned()), absolute)
}

/// Returns text as a file in memory, so that no thread must write it while the program reads.
fn input(text: Option<&str>) -> io::Result<OwnedFd> {
    let Some(text) = text else {
        return File::open("/dev/null").map(OwnedFd::from);
    };
    let mut file = File::from(crate::capture::memory_file()?);
    file.write_all(text.as_bytes())?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// Reads both streams until the program ends. Returns whether it ended in time.
fn read_until_end(child: &Child, outputs: &mut [Output; 2], deadline: Instant) -> io::Result<bool> {
    loop {
        if child.exit().is_some() {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // Rounded up: a poll of 0 ms would spin.
        let milliseconds = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        let mut watched = vec![PollFd::new(child.ended(), PollFlags::POLLIN)];
        let open: Vec<usize> = (0..2).filter(|index| !outputs[*index].ended).collect();
        for index in &open {
            watched.push(PollFd::new(outputs[*index].pipe.as_fd(), PollFlags::POLLIN));
        }
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(&mut watched, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let readable: Vec<bool> = watched[1..]
            .iter()
            .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
            .collect();
        for (index, _) in open.iter().zip(readable).filter(|(_, readable)| *readable) {
            outputs[*index].read();
        }
    }
}

/// One output stream.
#[derive(Debug)]
struct Output {
    pipe: File,
    ended: bool,
    head: Vec<u8>,
    tail: Vec<u8>,
    omitted: u64,
}

impl Output {
    fn new(pipe: OwnedFd) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            pipe: pipe.into(),
            ended: false,
            head: Vec::new(),
            tail: Vec::new(),
            omitted: 0,
        })
    }

    /// Reads once. Returns the number of bytes.
    fn read(&mut self) -> usize {
        let mut block = [0; 64 * 1024];
        match self.pipe.read(&mut block) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.keep(&block[..count]);
                return count;
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.ended = true,
        }
        0
    }

    /// Reads the bytes that the program left in the pipe. Its descendants can keep the pipe open.
    fn drain(&mut self) {
        let mut drained = 0;
        while !self.ended && drained < PIPE_BYTES {
            match self.read() {
                0 => return,
                count => drained += count,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        const HALF: usize = KEPT_BYTES / 2;
        let fits = bytes.len().min(HALF - self.head.len());
        self.head.extend_from_slice(&bytes[..fits]);
        self.tail.extend_from_slice(&bytes[fits..]);
        // Truncate only rarely, because each truncation moves the rest.
        if self.tail.len() >= 2 * HALF {
            let surplus = self.tail.len() - HALF;
            self.tail.drain(..surplus);
            self.omitted += surplus as u64;
        }
    }

    fn text(mut self) -> String {
        let surplus = self.tail.len().saturating_sub(KEPT_BYTES / 2);
        let omitted = self.omitted + surplus as u64;
        let tail = self.tail.split_off(surplus);
        if omitted == 0 {
            self.head.extend_from_slice(&tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let (head, tail) = (
            String::from_utf8_lossy(&self.head),
            String::from_utf8_lossy(&tail),
        );
        format!("{head}\n[… {omitted} bytes omitted …]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> Output {
        let (reader, _) = io::pipe().expect("a pipe");
        Output::new(reader.into()).expect("a pipe")
    }

    #[test]
    fn output_up_to_the_limit_is_kept_completely() {
        let mut kept = output();
        let bytes: Vec<u8> = (0..KEPT_BYTES)
            .map(|index| b'a' + (index % 26) as u8)
            .collect();
        for block in bytes.chunks(70_001) {
            kept.keep(block);
        }
        assert_eq!(kept.text().as_bytes(), bytes);
    }

    #[test]
    fn long_output_keeps_head_and_tail() {
        let mut kept = output();
        kept.keep(b"first");
        for _ in 0..200 {
            kept.keep(&[b'x'; 100_000]);
        }
        kept.keep(b"last");
        let text = kept.text();
        assert!(text.starts_with("firstx") && text.ends_with("xlast"));
        let omitted = 20_000_009 - KEPT_BYTES;
        assert!(text.contains(&format!("\n[… {omitted} bytes omitted …]\n")));
    }
}
