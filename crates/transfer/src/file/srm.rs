//! SRM servers, through the programs of gfal2.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use venturi_gridftp::parse_timestamp;

use super::content::{BLOCK_BYTES, Checksums, NewFile};
use super::error::{ErrorKind, FileError};
use super::location::FileLocation;
use super::program::{
    ExternalProgram, ProgramEnd, connection_error, labeled_value, unexpected_output,
};
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind, from_hex};
use crate::checksum::Algorithm;

const PACKAGE: &str = "gfal2-util-scripts";
/// Slowest upload that is expected: the progress of `gfal-copy` is not visible.
const SLOWEST_BYTES_PER_S: u64 = 1_000_000;
/// Maximum runs of a crashing program; the programs of gfal2 crash occasionally ("free(): invalid
/// pointer").
const MAX_RUNS: u32 = 3;
/// Usual port of the service.
const PORT: u16 = 8443;
/// Python of the system, which has the modules of gfal2.
const PYTHON: &str = "/usr/bin/python3";
/// `gfal-rm` removes only files and trees.
const REMOVE_DIRECTORY: &str = "import sys, gfal2\ntry:\n    gfal2.creat_context().rmdir(sys.argv[1])\nexcept gfal2.GError as error:\n    print(error.message, file=sys.stderr)\n    sys.exit(error.code)\n";

/// Server whose sessions belong to the programs.
pub(super) struct SrmFiles {
    timeout: Duration,
    limit_s: String,
    environment: Vec<(&'static str, String)>,
}

impl SrmFiles {
    /// Return a server. Each program ends after the timeout.
    pub(super) fn new(timeout: Duration) -> Self {
        let python = std::env::var("GFAL_PYTHONBIN").unwrap_or_else(|_| PYTHON.into());
        Self {
            timeout,
            limit_s: timeout.as_secs().to_string(),
            environment: vec![("GFAL_PYTHONBIN", python)],
        }
    }

    fn program<'a>(&'a self, name: &'static str, words: &[&'a str]) -> ExternalProgram<'a> {
        let limit = ["-t", self.limit_s.as_str()];
        ExternalProgram {
            name,
            package: PACKAGE,
            arguments: limit.iter().chain(words).copied().map(OsStr::new).collect(),
            environment: &self.environment,
            input: None,
        }
    }

    fn query(
        &self,
        at: &FileLocation,
        name: &'static str,
        words: &[&str],
    ) -> Result<String, FileError> {
        for run in 1.. {
            let (output, ended) = self.program(name, words).output(self.timeout)?;
            if has_crashed(&ended) && run < MAX_RUNS {
                continue;
            }
            return match check(&ended) {
                // The first run had removed the file when it crashed.
                Err(error) if run > 1 && name == "gfal-rm" && error.kind == ErrorKind::NotFound => {
                    Ok(String::new())
                }
                Err(error) if error.message.contains("could not open connection") => {
                    Err(connection_error(at, PORT, self.timeout).unwrap_or(error))
                }
                Err(error) => Err(error),
                Ok(()) => Ok(String::from_utf8_lossy(&output).into_owned()),
            };
        }
        unreachable!("the last run returns")
    }
}

/// Return a file without a name, which disappears with this process.
fn temporary_file() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(std::env::temp_dir(), flags, mode);
    // Not every file system has such files.
    let file = file.or_else(|_| rustix::fs::memfd_create("content", MemfdFlags::CLOEXEC))?;
    Ok(file.into())
}

impl FileServer for SrmFiles {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        let output = self.query(at, "gfal-stat", &[&at.literal()])?;
        parse_stat(&output).ok_or_else(|| unexpected_output("gfal2", "metadata", &output))
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let url = at.literal();
        let words = [
            "-a",
            "-l",
            "--color",
            "never",
            "--time-style",
            "long-iso",
            &url,
        ];
        let output = self.query(at, "gfal-ls", &words)?;
        let lines = output.lines().filter(|line| !line.trim().is_empty());
        let entries: Result<Vec<RemoteEntry>, FileError> = lines
            .map(|line| {
                parse_entry(line).ok_or_else(|| unexpected_output("gfal2", "an entry", line))
            })
            .collect();
        Ok(entries?
            .into_iter()
            .filter(|entry| !matches!(entry.name.as_str(), "." | ".."))
            .collect())
    }

    /// `gfal-save` accepts only text, so `gfal-copy` reads the content from a temporary file.
    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError> {
        let failed = |error| FileError::system("cannot write a temporary file", &error);
        let mut staged = temporary_file().map_err(failed)?;
        let mut blocks = file.blocks();
        while let Some(block) = blocks.next(BLOCK_BYTES) {
            staged.write_all(&block).map_err(failed)?;
        }
        let limit = self.timeout + Duration::from_secs(file.size_bytes / SLOWEST_BYTES_PER_S);
        let (limit_s, url) = (limit.as_secs().to_string(), at.literal());
        let words = ["-t", &limit_s, "-T", &limit_s, "file:///dev/stdin", &url];
        for run in 1.. {
            let program = ExternalProgram {
                input: Some(&staged),
                ..self.program("gfal-copy", &words)
            };
            let (_, ended) = program.output(limit)?;
            if !has_crashed(&ended) || run == MAX_RUNS {
                check(&ended)?;
                break;
            }
            // The program can crash when all bytes are at the server. Otherwise the file is
            // incomplete.
            match self.stat(at) {
                Ok(found) if found.size_bytes == Some(file.size_bytes) => break,
                Ok(_) => self.remove_file(at)?,
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(blocks.checksums())
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        let url = at.literal();
        let ended = self
            .program("gfal-cat", &["--bytes", &url])
            .read(self.timeout, sink)?;
        check(&ended)
    }

    fn checksum(
        &mut self,
        at: &FileLocation,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        let algorithm = algorithm.unwrap_or(Algorithm::Adler32);
        let name = match algorithm {
            Algorithm::Adler32 => "ADLER32",
            Algorithm::Md5 => "MD5",
            Algorithm::Sha256 => return Ok(None),
        };
        let output = match self.query(at, "gfal-sum", &[&at.literal(), name]) {
            Ok(output) => output,
            Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::Other) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let value = output.split_whitespace().last();
        // Leading zeros can be missing.
        let width = if algorithm == Algorithm::Adler32 {
            8
        } else {
            32
        };
        let value = value.and_then(|text| from_hex(&format!("{text:0>width$}")));
        let value = value.ok_or_else(|| unexpected_output("gfal2", "a checksum", &output))?;
        Ok(Some((algorithm, value)))
    }

    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.query(at, "gfal-rm", &[&at.literal()]).map(drop)
    }

    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError> {
        let url = at.literal();
        let program = ExternalProgram {
            name: PYTHON,
            package: "python3-gfal2",
            arguments: ["-c", REMOVE_DIRECTORY, &url].map(OsStr::new).to_vec(),
            environment: &self.environment,
            input: None,
        };
        let (_, ended) = program.output(self.timeout)?;
        check(&ended)
    }

    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        self.query(at, "gfal-mkdir", &[&at.literal()]).map(|_| true)
    }
}

fn has_crashed(ended: &ProgramEnd) -> bool {
    let crashes = [Signal::ABORT, Signal::SEGV, Signal::BUS].map(Signal::as_raw);
    ended
        .status
        .signal()
        .is_some_and(|signal| crashes.contains(&signal))
}

/// Return the error of a program. Its exit code is the number of a system error.
fn check(ended: &ProgramEnd) -> Result<(), FileError> {
    if ended.status.success() {
        return Ok(());
    }
    let message = match ended.message.as_str() {
        "" => format!("the program ended with {}", ended.status),
        message => message.to_owned(),
    };
    let kind = match ended.status.code().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR) => ErrorKind::NotFound,
        Some(Errno::ACCESS | Errno::PERM) => ErrorKind::Permission,
        Some(Errno::EXIST | Errno::NOTEMPTY) => ErrorKind::Exists,
        Some(Errno::NOSPC | Errno::DQUOT) => ErrorKind::NoSpace,
        Some(Errno::TIMEDOUT) => ErrorKind::Timeout,
        Some(Errno::CONNREFUSED) => ErrorKind::NoListener,
        Some(Errno::HOSTUNREACH | Errno::NETUNREACH) => ErrorKind::Unreachable,
        Some(Errno::AGAIN | Errno::BUSY) => ErrorKind::Throttled,
        Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PROTONOSUPPORT) => ErrorKind::Unsupported,
        _ => return Err(FileError::text(message)),
    };
    // A failed connection has a vague code, and its text names the reason.
    let error = FileError::text(&message);
    let is_vague = matches!(kind, ErrorKind::Permission | ErrorKind::NotFound);
    let names_network = matches!(
        error.kind,
        ErrorKind::NoListener | ErrorKind::Unreachable | ErrorKind::Unresolved | ErrorKind::Timeout
    );
    if is_vague && names_network {
        return Err(error);
    }
    Err(FileError::new(kind, message))
}

/// Parse the output of `gfal-stat`.
fn parse_stat(output: &str) -> Option<Metadata> {
    let value = |name: &str| labeled_value(output, name);
    let (size, kind) = value("Size:")?.split_once(char::is_whitespace)?;
    let kind = match kind.trim() {
        "directory" => RemoteKind::Directory,
        "regular file" | "regular empty file" => RemoteKind::File,
        _ => RemoteKind::Other,
    };
    let size: u64 = size.parse().ok()?;
    Some(Metadata {
        kind,
        size_bytes: Some(size).filter(|_| kind != RemoteKind::Directory),
        modified_s: value("Modify:").and_then(seconds),
    })
}

/// Parse a line of `gfal-ls -l`: mode, links, owner, group, size, date, time and name.
fn parse_entry(line: &str) -> Option<RemoteEntry> {
    let mut rest = line.trim_end();
    let mut words = Vec::new();
    for _ in 0..7 {
        let (word, after) = rest.trim_start().split_once(char::is_whitespace)?;
        words.push(word);
        rest = after;
    }
    let kind = match words[0].as_bytes().first()? {
        b'd' => RemoteKind::Directory,
        b'-' => RemoteKind::File,
        _ => RemoteKind::Other,
    };
    let size: u64 = words[4].parse().ok()?;
    Some(RemoteEntry {
        name: rest.trim().to_owned(),
        metadata: Metadata {
            kind,
            size_bytes: Some(size).filter(|_| kind != RemoteKind::Directory),
            modified_s: seconds(&format!("{} {}:00", words[5], words[6])),
        },
    })
}

/// Parse `2026-11-29 19:15:57.000000`, in UTC.
fn seconds(text: &str) -> Option<i64> {
    let text = text.split('.').next()?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).collect();
    parse_timestamp(&digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_gfal_is_parsed() {
        let stat = "  File: 'srm://h/a'\n  Size: 3000000\tregular file\nAccess: (0600/-rw-------)\tUid: 0\tGid: 0\t\n\
            Access: 2023-11-14 22:13:20.000000\nModify: 2023-11-14 22:13:20.000000\n";
        let found = parse_stat(stat).expect("metadata");
        assert_eq!(
            (found.kind, found.size_bytes),
            (RemoteKind::File, Some(3_000_000))
        );
        assert_eq!(found.modified_s, Some(1_700_000_000));
        let line = "-rwxrwxrwx   0 0     0             3 2023-11-14 22:13 a b\t";
        let found = parse_entry(line).expect("an entry");
        assert_eq!(
            (found.name.as_str(), found.metadata.size_bytes),
            ("a b", Some(3))
        );
        assert_eq!(found.metadata.modified_s, Some(1_699_999_980));
    }
}
