//! Facts of a file in listings (RFC 3659 section 7), such as
//! `Type=file;Size=3;Modify=20231114221320; name`.

use crate::{FtpError, Path, excerpt, number, parse_timestamp, write_timestamp};

/// Type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// The listed directory itself.
    Current,
    /// The parent of the listed directory.
    Parent,
    /// A symbolic link.
    Link,
    /// Another type, as named by the server.
    Other(String),
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// Name or path: any bytes except a line end.
    pub name: Vec<u8>,
    /// Type.
    pub kind: Option<EntryKind>,
    /// Size of the file.
    pub size_bytes: Option<u64>,
    /// Modification time, in seconds since 1970.
    pub modify_s: Option<i64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Permissions: letters of RFC 3659 section 7.5.5.
    pub permissions: Option<String>,
    /// Unique id of the file, equal for all its names.
    pub unique: Option<String>,
    /// Target of a link.
    pub target: Option<Vec<u8>>,
}

/// Facts that this crate writes.
pub const FACTS: [&str; 6] = ["Type", "Modify", "Size", "Perm", "UNIX.mode", "Unique"];

impl ListEntry {
    /// Creates an entry with only a name.
    #[must_use]
    pub fn named(name: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            kind: None,
            size_bytes: None,
            modify_s: None,
            mode: None,
            permissions: None,
            unique: None,
            target: None,
        }
    }

    /// Reads a line without its end and without the leading space of a control connection. Ignores
    /// unknown facts. A wrong known fact counts as absent, so that one odd file does not hide a
    /// directory.
    ///
    /// # Errors
    /// If the line has no name.
    pub fn parse(line: &[u8]) -> Result<Self, FtpError> {
        let wrong = || FtpError::malformed("listing", "`facts; name`", line);
        let cut = line
            .iter()
            .position(|&byte| byte == b' ')
            .ok_or_else(wrong)?;
        let (facts, name) = (&line[..cut], &line[cut + 1..]);
        let mut entry = Self::named(Path::new(name).map_err(|_| wrong())?.as_bytes());
        for fact in facts
            .split(|&byte| byte == b';')
            .filter(|fact| !fact.is_empty())
        {
            let equals = fact
                .iter()
                .position(|&byte| byte == b'=')
                .ok_or_else(wrong)?;
            entry.set(&fact[..equals], &fact[equals + 1..]);
        }
        Ok(entry)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        let text = || String::from_utf8(value.to_vec()).ok();
        match name.to_ascii_lowercase().as_slice() {
            b"type" => self.kind = Some(kind(value)),
            b"size" | b"sizd" => self.size_bytes = number(value),
            b"modify" => self.modify_s = parse_timestamp(value).ok(),
            b"perm" => self.permissions = text(),
            b"unique" => self.unique = text(),
            b"unix.mode" => {
                self.mode = text().and_then(|text| u32::from_str_radix(&text, 8).ok());
            }
            b"unix.slink" => self.target = Some(unescaped(value)),
            _ => {}
        }
    }

    /// Writes the line with the known facts that `include` selects.
    #[must_use]
    pub fn line(&self, include: impl Fn(&str) -> bool) -> Vec<u8> {
        let facts = [
            (
                "Type",
                self.kind.as_ref().map(|kind| kind.text().to_owned()),
            ),
            ("Modify", self.modify_s.map(write_timestamp)),
            ("Size", self.size_bytes.map(|size| size.to_string())),
            ("Perm", self.permissions.clone()),
            ("UNIX.mode", self.mode.map(|mode| format!("{mode:04o}"))),
            ("Unique", self.unique.clone()),
            ("UNIX.slink", self.target.as_deref().map(escaped)),
        ];
        let mut line = Vec::new();
        for (name, value) in facts {
            if let Some(value) = value.filter(|_| include(name)) {
                line.extend(format!("{name}={value};").bytes());
            }
        }
        line.push(b' ');
        line.extend_from_slice(&self.name);
        line
    }

    /// Returns `true` for an entry of the listed directory, `false` for the directory itself and
    /// its parent.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        let itself = matches!(self.kind, Some(EntryKind::Current | EntryKind::Parent));
        !itself && self.name != b"." && self.name != b".."
    }

    /// Returns `true` if the entry fits on one line. A name with a line end would become two lines
    /// with arbitrary content.
    #[must_use]
    pub fn fits_one_line(&self) -> bool {
        let broken = |text: &[u8]| text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        !self.name.is_empty() && !broken(&self.name) && !self.target.as_deref().is_some_and(broken)
    }

    /// Returns the name if it stays inside of its directory.
    ///
    /// # Errors
    /// If the name contains a slash or is `.` or `..`. A malicious server must not choose the path
    /// on the client.
    pub fn safe_name(&self) -> Result<&[u8], FtpError> {
        match &self.name[..] {
            name @ (b"." | b"..") => Err(FtpError::malformed("name", "one of a file", name)),
            name if name.contains(&b'/') => {
                Err(FtpError::malformed("name", "one without `/`", name))
            }
            name => Ok(name),
        }
    }
}

impl EntryKind {
    fn text(&self) -> &str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::Current => "cdir",
            Self::Parent => "pdir",
            Self::Link => "slink",
            Self::Other(text) => text,
        }
    }
}

fn kind(value: &[u8]) -> EntryKind {
    let known = [
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::Current,
        EntryKind::Parent,
        EntryKind::Link,
    ];
    known
        .into_iter()
        .find(|kind| kind.text().as_bytes().eq_ignore_ascii_case(value))
        .unwrap_or_else(|| match value.to_ascii_lowercase() {
            text if text.starts_with(b"os.unix=slink") => EntryKind::Link,
            _ => EntryKind::Other(excerpt(value)),
        })
}

/// Escapes a value, which must not contain space or semicolon. Globus servers percent-encode such
/// bytes.
fn escaped(value: &[u8]) -> String {
    let mut text = String::new();
    for &byte in value {
        match byte {
            b';' | b' ' | b'%' | 0..=31 | 127.. => text.push_str(&format!("%{byte:02X}")),
            _ => text.push(byte.into()),
        }
    }
    text
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, after @ ..] = rest {
        let code = after
            .get(..2)
            .filter(|code| *first == b'%' && code.iter().all(u8::is_ascii_hexdigit))
            .and_then(|code| std::str::from_utf8(code).ok())
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = EntryKind> {
        prop_oneof![
            Just(EntryKind::File),
            Just(EntryKind::Directory),
            Just(EntryKind::Current),
            Just(EntryKind::Parent),
            Just(EntryKind::Link)
        ]
    }

    proptest! {
        #[test]
        fn entries_round_trip_through_text(
            name in "[^\r\n\0]{1,30}", kind in prop::option::of(kinds()), size_bytes: Option<u64>,
            modify_s in prop::option::of(0_i64..250_000_000_000), mode in prop::option::of(0_u32..0o10000),
            permissions in prop::option::of("[a-z]{0,6}"), unique in prop::option::of("[0-9a-f-]{1,9}"),
            target: Option<Vec<u8>>,
        ) {
            let name = name.into_bytes();
            let entry = ListEntry { name, kind, size_bytes, modify_s, mode, permissions, unique, target };
            prop_assert_eq!(ListEntry::parse(&entry.line(|_| true)).unwrap(), entry);
        }

        #[test]
        fn no_line_makes_the_parser_panic(line: Vec<u8>) {
            let _ = ListEntry::parse(&line);
        }
    }

    #[test]
    fn names_outside_the_directory_are_rejected() {
        for name in ["..", ".", "../x", "/etc/passwd", "a/b"] {
            ListEntry::named(name).safe_name().unwrap_err();
        }
        assert_eq!(ListEntry::named("...").safe_name().unwrap(), b"...");
    }
}
