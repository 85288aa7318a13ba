//! Starts one program in its own session. The program runs only after its PID is recorded.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use super::processes::MARKER;
use crate::program::{is_executable, own_engine};

const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Directories with servers that are not in the search path of ordinary users.
const ADMINISTRATOR_PATH: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Exit code of a child whose program was not started.
const NOT_STARTED: i32 = 127;

/// Program, arguments and environment of a new process.
#[derive(Debug)]
pub(crate) struct Image {
    path: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
}

/// Reason why an image cannot be run.
#[derive(Debug)]
pub(crate) enum ImageError {
    /// The program does not exist.
    Missing(String),
    /// A text with a NUL byte, or no argument.
    Invalid(String),
}

/// Standard streams of a new process.
#[derive(Debug)]
pub(crate) struct StandardStreams {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// A child that waits for [`Held::release`].
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) pid: Pid,
    gate: OwnedFd,
    failure: OwnedFd,
}

/// Step of a child that failed, with its error.
#[derive(Debug)]
pub(crate) enum ExecError {
    /// The working directory.
    Directory(io::Error),
    /// The program.
    Program(io::Error),
}

impl Image {
    /// Finds the program and builds its environment: the shell's, `LC_ALL=C`, the variables of the command, and `marker`.
    ///
    /// # Errors
    /// If the program does not exist, or a text cannot be passed to a program.
    pub(crate) fn new(
        argv: &[String],
        environment: &BTreeMap<String, String>,
        directory: &Path,
        marker: &str,
    ) -> Result<Self, ImageError> {
        let name = argv
            .first()
            .filter(|name| !name.is_empty())
            .ok_or_else(|| ImageError::Invalid("`argv`: expected a program, found none".into()))?;
        let argv_text: Vec<CString> = argv
            .iter()
            .map(|argument| text(argument.as_bytes().to_vec()))
            .collect::<Result<_, _>>()?;
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        variables.insert("LC_ALL".into(), "C".into());
        for (key, value) in environment {
            if key.is_empty() || key.contains('=') {
                let message = format!("`environment`: expected a name without `=`, found `{key}`");
                return Err(ImageError::Invalid(message));
            }
            variables.insert(key.into(), value.into());
        }
        let path = extended_path(variables.get(OsStr::new("PATH")).map(OsString::as_os_str));
        let program = find(name, &path, directory)?;
        variables.insert("PATH".into(), path);
        variables.insert(MARKER.into(), marker.into());
        let entries = variables.into_iter().map(|(mut entry, value)| {
            entry.push("=");
            entry.push(value);
            text(entry.into_vec())
        });
        Ok(Self {
            path: text(program.into_os_string().into_vec())?,
            argv: argv_text,
            environment: entries.collect::<Result<_, _>>()?,
            directory: text(directory.as_os_str().as_bytes().to_vec())?,
        })
    }

    /// Forks a child, which waits before it runs the program.
    ///
    /// # Errors
    /// An error of the system: no more processes or descriptors.
    pub(crate) fn fork(&self, streams: &StandardStreams, files: &libc::rlimit) -> io::Result<Held> {
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            let end = std::iter::once(std::ptr::null());
            texts.iter().map(|text| text.as_ptr()).chain(end).collect()
        };
        let (argv, environment) = (pointers(&self.argv), pointers(&self.environment));
        let (gate_read, gate) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure, failure_write) = pipe2(OFlag::O_CLOEXEC)?;
        let child = Child {
            path: self.path.as_ptr(),
            argv: argv.as_ptr(),
            environment: environment.as_ptr(),
            directory: self.directory.as_ptr(),
            streams: [
                streams.stdin.as_raw_fd(),
                streams.stdout.as_raw_fd(),
                streams.stderr.as_raw_fd(),
            ],
            gate: gate_read.as_raw_fd(),
            files,
        };
        // SAFETY: the child makes only async-signal-safe calls (see `prepare_and_exec`) and then ends.
        match unsafe { fork() }? {
            ForkResult::Parent { child: pid } => Ok(Held { pid, gate, failure }),
            ForkResult::Child => {
                // SAFETY: in a new child; all pointers are to memory of this function and of
                // `self`.
                let error = unsafe { prepare_and_exec(&child) };
                let word = [error.0, error.1].map(i32::to_ne_bytes);
                // SAFETY: eight readable bytes; leaves without the exit handlers of the shell.
                unsafe {
                    libc::write(failure_write.as_raw_fd(), word.as_ptr().cast(), 8);
                    libc::_exit(NOT_STARTED)
                }
            }
        }
    }
}

impl Held {
    /// Runs the program, and returns after it has started.
    ///
    /// # Errors
    /// If the child cannot run it; the child has then ended.
    pub(crate) fn release(self) -> Result<(), ExecError> {
        // A child that was killed while it waited does not read; its end is handled as usual.
        let _ = nix::unistd::write(&self.gate, b"g");
        let mut word = [0; 8];
        loop {
            match nix::unistd::read(&self.failure, &mut word) {
                Err(Errno::EINTR) => {}
                Ok(8) => break,
                // The descriptor was closed by `execve`.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
        let number =
            |at: usize| i32::from_ne_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]]);
        let error = io::Error::from_raw_os_error(number(4));
        Err(if number(0) == STEP_DIRECTORY {
            ExecError::Directory(error)
        } else {
            ExecError::Program(error)
        })
    }
}

/// Returns the search path with the directories of servers at its end.
fn extended_path(path: Option<&OsStr>) -> OsString {
    let path = path.unwrap_or(OsStr::new(USUAL_PATH));
    let mut directories: Vec<PathBuf> = std::env::split_paths(path).collect();
    for directory in ADMINISTRATOR_PATH.map(PathBuf::from) {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    let words: Vec<&OsStr> = directories.iter().map(|path| path.as_os_str()).collect();
    words.join(OsStr::new(":"))
}

/// Finds a program by the rules of `execvp`: a name with a slash is a path, and other names are
/// searched in the search path.
fn find(name: &str, path: &OsStr, directory: &Path) -> Result<PathBuf, ImageError> {
    if let Some(own) = own_engine(name) {
        return Ok(own);
    }
    if name.contains('/') {
        // `execve` reports errors of such a path.
        return Ok(name.into());
    }
    std::env::split_paths(path)
        .map(|entry| directory.join(entry).join(name))
        .find(|file| is_executable(file))
        .ok_or_else(|| {
            ImageError::Missing(format!(
                "cannot find the program `{name}` in PATH={}. Install it on this host.",
                path.display()
            ))
        })
}

fn text(bytes: Vec<u8>) -> Result<CString, ImageError> {
    CString::new(bytes).map_err(|error| {
        let shown = String::from_utf8_lossy(&error.into_vec()).into_owned();
        ImageError::Invalid(format!("expected text without NUL bytes, found {shown:?}"))
    })
}

/// All data that the child reads between `fork` and `execve`.
struct Child {
    path: *const c_char,
    argv: *const *const c_char,
    environment: *const *const c_char,
    directory: *const c_char,
    streams: [RawFd; 3],
    gate: RawFd,
    files: *const libc::rlimit,
}

const STEP_PREPARE: i32 = 0;
const STEP_DIRECTORY: i32 = 1;
const STEP_PROGRAM: i32 = 2;

/// Waits for the gate and becomes the program. Returns the step that failed, and the error number.
///
/// # Safety
/// For a new child only, with valid pointers. Makes only async-signal-safe calls and never
/// allocates, because another thread of the shell can hold the lock of the allocator, forever in
/// this copy.
unsafe fn prepare_and_exec(child: &Child) -> (i32, i32) {
    let failed = |step| (step, Errno::last_raw());
    // SAFETY: system calls on the child's own state with valid arguments, see above.
    unsafe {
        // Its own process group, and no terminal.
        if libc::setsid() < 0 {
            return failed(STEP_PREPARE);
        }
        let mut byte = 0_u8;
        loop {
            match libc::read(child.gate, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if Errno::last_raw() == libc::EINTR => {}
                // The shell ended before it recorded this process.
                _ => libc::_exit(NOT_STARTED),
            }
        }
        // Fds 0, 1 and 2 lose their close-on-exec flag here; the others keep it.
        for (from, to) in (0..).zip(child.streams).map(|(to, from)| (from, to)) {
            if libc::dup2(from, to) < 0 {
                return failed(STEP_PREPARE);
            }
        }
        if libc::chdir(child.directory) != 0 {
            return failed(STEP_DIRECTORY);
        }
        libc::setrlimit(libc::RLIMIT_NOFILE, child.files);
        crate::barrier::restore_signals();
        libc::execve(child.path, child.argv, child.environment);
        failed(STEP_PROGRAM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_path_is_extended_once() {
        let extended = extended_path(Some(OsStr::new("/opt/bin:/usr/sbin")));
        assert_eq!(extended, "/opt/bin:/usr/sbin:/usr/local/sbin:/sbin");
        assert_eq!(extended_path(Some(&extended)), extended);
        assert!(
            extended_path(None)
                .as_bytes()
                .starts_with(b"/usr/local/bin:")
        );
    }

    #[test]
    fn texts_that_no_program_can_get_are_invalid() {
        let image = |argv: &[&str], variable: &str| {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            let environment = BTreeMap::from([(variable.to_owned(), "x".to_owned())]);
            Image::new(&argv, &environment, Path::new("/"), "marker")
        };
        assert!(image(&["sh"], "GOOD").is_ok());
        assert!(matches!(
            image(&["sh"], "BAD=NAME"),
            Err(ImageError::Invalid(_))
        ));
        assert!(matches!(image(&[], "GOOD"), Err(ImageError::Invalid(_))));
        assert!(matches!(
            image(&["sh", "a\0b"], "GOOD"),
            Err(ImageError::Invalid(_))
        ));
        assert!(matches!(
            image(&["no-such\0"], "GOOD"),
            Err(ImageError::Invalid(_))
        ));
        assert!(matches!(
            image(&["no-such-program"], "GOOD"),
            Err(ImageError::Missing(_))
        ));
    }
}
