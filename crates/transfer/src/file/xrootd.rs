//! XRootD servers, through `xrdfs` and `xrdcp`.

use std::ffi::OsStr;
use std::time::Duration;

use venturi_gridftp::parse_timestamp;

use super::content::{Checksums, NewFile};
use super::error::{ErrorKind, FileError};
use super::location::FileLocation;
use super::program::{
    ExternalProgram, ProgramEnd, connection_error, labeled_value, unexpected_output,
};
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind, from_hex};
use crate::checksum::Algorithm;

const PACKAGE: &str = "xrootd-client";
/// Default port of the protocol.
const PORT: u16 = 1094;

/// Server whose sessions belong to the programs.
pub(super) struct XrootdFiles {
    timeout: Duration,
    environment: Vec<(&'static str, String)>,
}

impl XrootdFiles {
    /// Return a server. Each program ends after the timeout.
    pub(super) fn new(timeout: Duration) -> Self {
        // By default, the client tries to connect for 10 minutes.
        let window_s = timeout.as_secs().div_ceil(2).to_string();
        Self {
            timeout,
            environment: vec![
                ("XRD_CONNECTIONWINDOW", window_s),
                ("XRD_CONNECTIONRETRY", "1".into()),
                ("XRD_STREAMERRORWINDOW", "0".into()),
            ],
        }
    }

    /// Run `xrdfs` and return its output.
    fn query(&self, at: &FileLocation, arguments: &[&str]) -> Result<String, FileError> {
        let endpoint = at.endpoint();
        let words = [&[endpoint.as_str()], arguments].concat();
        let (output, ended) = self.program("xrdfs", &words).output(self.timeout)?;
        // Some commands print their errors to standard output.
        let output = String::from_utf8_lossy(&output).into_owned();
        match check(ended, &output) {
            Err(error) if error.message.contains("Connection error") => {
                Err(connection_error(at, PORT, self.timeout).unwrap_or(error))
            }
            checked => checked.map(|()| output),
        }
    }

    fn program<'a>(&'a self, name: &'static str, words: &[&'a str]) -> ExternalProgram<'a> {
        ExternalProgram {
            name,
            package: PACKAGE,
            arguments: words.iter().copied().map(OsStr::new).collect(),
            environment: &self.environment,
            input: None,
        }
    }
}

impl FileServer for XrootdFiles {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        let output = self.query(at, &["stat", &path(at)])?;
        parse_stat(&output).ok_or_else(|| unexpected_output("xrdfs", "metadata", &output))
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let output = self.query(at, &["ls", "-l", &path(at)])?;
        let directory = path(at);
        let directory = directory
            .split('?')
            .next()
            .unwrap_or_default()
            .trim_end_matches('/');
        let entries = output.lines().filter(|line| !line.trim().is_empty());
        entries
            .map(|line| {
                parse_entry(line, directory)
                    .ok_or_else(|| unexpected_output("xrdfs", "an entry", line))
            })
            .collect()
    }

    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError> {
        let mut blocks = file.blocks();
        // Without `--force`, an existing file is an error.
        let words = ["--silent", "--nopbar", "-", &at.literal()];
        let ended = self
            .program("xrdcp", &words)
            .write(self.timeout, &mut blocks)?;
        check(ended, "")?;
        Ok(blocks.checksums())
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        let words = ["--silent", "--nopbar", &at.literal(), "-"];
        let ended = self.program("xrdcp", &words).read(self.timeout, sink)?;
        check(ended, "")
    }

    fn checksum(
        &mut self,
        at: &FileLocation,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        let path = path(at);
        let separator = if path.contains('?') { '&' } else { '?' };
        let requested = match algorithm {
            None => path,
            Some(Algorithm::Adler32) => format!("{path}{separator}cks.type=adler32"),
            Some(Algorithm::Md5) => format!("{path}{separator}cks.type=md5"),
            Some(Algorithm::Sha256) => format!("{path}{separator}cks.type=sha256"),
        };
        let output = match self.query(at, &["query", "checksum", &requested]) {
            Ok(output) => output,
            // `not supported`, and the error of a server without checksums.
            Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::Other) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut words = output.split_whitespace();
        let found = match words.next() {
            Some("adler32") => Algorithm::Adler32,
            Some("md5") => Algorithm::Md5,
            Some("sha256") => Algorithm::Sha256,
            _ => return Ok(None),
        };
        let value = words.next().and_then(from_hex);
        let value = value.ok_or_else(|| unexpected_output("xrdfs", "a checksum", &output))?;
        // A server without the requested algorithm can return another.
        let fits = algorithm.is_none_or(|algorithm| algorithm == found);
        Ok(fits.then_some((found, value)))
    }

    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.query(at, &["rm", &path(at)]).map(drop)
    }

    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.query(at, &["rmdir", &path(at)]).map(drop)
    }

    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        self.query(at, &["mkdir", &path(at)]).map(|_| true)
    }
}

fn path(at: &FileLocation) -> String {
    String::from_utf8_lossy(&at.url.path).into_owned()
}

/// Return the error of a program.
fn check(ended: ProgramEnd, output: &str) -> Result<(), FileError> {
    if ended.status.success() {
        return Ok(());
    }
    let mut message = ended.message;
    if message.is_empty() {
        message = output.trim().replace('\n', "; ");
    }
    if message.is_empty() {
        message = format!("the program ended with {}", ended.status);
    }
    let mut error = FileError::text(message);
    let known = [
        // Codes of the protocol (XProtocol.hh): kXR_NotAuthorized, kXR_NotFound, kXR_ItExists, kXR_NoSpace, kXR_overQuota, kXR_Overloaded.
        ("[3010]", ErrorKind::Permission),
        ("[3011]", ErrorKind::NotFound),
        ("[3018]", ErrorKind::Exists),
        ("[3009]", ErrorKind::NoSpace),
        ("[3021]", ErrorKind::NoSpace),
        ("[3024]", ErrorKind::Throttled),
    ];
    let known = known.iter().find(|(text, _)| error.message.contains(text));
    if let Some((_, kind)) = known {
        error.kind = *kind;
    }
    Err(error)
}

/// Parse the output of `xrdfs stat`.
fn parse_stat(output: &str) -> Option<Metadata> {
    let value = |name: &str| labeled_value(output, name);
    let flags = value("Flags:")?;
    let kind = if flags.contains("IsDir") {
        RemoteKind::Directory
    } else if flags.contains("Other") {
        RemoteKind::Other
    } else {
        RemoteKind::File
    };
    let size: u64 = value("Size:")?.parse().ok()?;
    Some(Metadata {
        kind,
        size_bytes: Some(size).filter(|_| kind != RemoteKind::Directory),
        modified_s: value("MTime:").and_then(seconds),
    })
}

/// Parse a line of `xrdfs ls -l`: mode, owner and group (not with older servers), size, date, time and path.
fn parse_entry(line: &str, directory: &str) -> Option<RemoteEntry> {
    let start = line.find(&format!(" {directory}/"))?;
    let (before, path) = (&line[..start], &line[start + 1..]);
    let name = path.strip_prefix(directory)?.trim_start_matches('/');
    let mut words = before.split_whitespace().rev();
    let (time, date, size) = (words.next()?, words.next()?, words.next()?);
    let kind = match before.as_bytes().first()? {
        b'd' => RemoteKind::Directory,
        _ => RemoteKind::File,
    };
    let size: u64 = size.parse().ok()?;
    Some(RemoteEntry {
        name: name.to_owned(),
        metadata: Metadata {
            kind,
            size_bytes: Some(size).filter(|_| kind != RemoteKind::Directory),
            modified_s: seconds(&format!("{date} {time}")),
        },
    })
}

/// Parse `2026-11-29 19:15:56`, in UTC.
fn seconds(text: &str) -> Option<i64> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).collect();
    parse_timestamp(&digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_xrdfs_is_parsed() {
        let stat = "\nPath:   /a\nId:     1\nSize:   4096\nMTime:  2023-11-14 22:13:20\nFlags:  51 (XBitSet|IsDir|IsReadable)\n";
        let found = parse_stat(stat).expect("metadata");
        assert_eq!(
            (found.kind, found.size_bytes),
            (RemoteKind::Directory, None)
        );
        assert_eq!(found.modified_s, Some(1_700_000_000));
        let line = "-rw-r--r-- alice staff 6 2023-11-14 22:13:20 /a/b c/f g";
        let found = parse_entry(line, "/a/b c").expect("an entry");
        assert_eq!(
            (found.name.as_str(), found.metadata.size_bytes),
            ("f g", Some(6))
        );
        assert_eq!(found.metadata.kind, RemoteKind::File);
        let root = "drwxr-xr-x alice staff 4096 2023-11-14 22:13:20 /a";
        assert_eq!(parse_entry(root, "").expect("an entry").name, "a");
        assert_eq!(parse_entry("Permission denied", "/a"), None);
    }
}
