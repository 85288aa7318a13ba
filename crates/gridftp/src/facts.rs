//! What a server says of a file (RFC 3659 section 7): `Type=file;Size=3;Modify=20231114221320; name`.

use crate::{Error, Path, excerpt, number, parse_timestamp, write_timestamp};

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// The listed directory itself.
    Current,
    /// The one above it.
    Parent,
    /// A symbolic link.
    Link,
    /// Another one, as the server calls it.
    Other(String),
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, or path: any bytes but a line end.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Option<Kind>,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// When it was modified, in seconds since 1970.
    pub modify_s: Option<i64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// What may be done with it: letters of RFC 3659 section 7.5.5.
    pub permissions: Option<String>,
    /// The same text for the same file under another name.
    pub unique: Option<String>,
    /// Where a link leads.
    pub target: Option<Vec<u8>>,
}

/// Facts that this crate writes.
pub const FACTS: [&str; 6] = ["Type", "Modify", "Size", "Perm", "UNIX.mode", "Unique"];

impl Entry {
    /// An entry of which nothing is known but its name.
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

    /// Reads a line without its end, and without the space that stands before it on a control connection. Facts that are
    /// not known are read over; a known one that is wrong counts as absent, for one odd file may not hide a directory.
    ///
    /// # Errors
    /// A line without a name.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let wrong = || Error::malformed("listing", "`facts; name`", line);
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

    /// Writes the line, with those of the facts that are known and `wanted`.
    #[must_use]
    pub fn line(&self, wanted: impl Fn(&str) -> bool) -> Vec<u8> {
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
            if let Some(value) = value.filter(|_| wanted(name)) {
                line.extend(format!("{name}={value};").bytes());
            }
        }
        line.push(b' ');
        line.extend_from_slice(&self.name);
        line
    }

    /// Whether it is an entry of the listed directory, and neither that itself nor the one above.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        let itself = matches!(self.kind, Some(Kind::Current | Kind::Parent));
        !itself && self.name != b"." && self.name != b".."
    }

    /// Whether a line can tell it: a name with a line end in it would be two lines, of which the second may say anything.
    #[must_use]
    pub fn is_tellable(&self) -> bool {
        let broken = |text: &[u8]| text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        !self.name.is_empty() && !broken(&self.name) && !self.target.as_deref().is_some_and(broken)
    }

    /// A name that stands in its directory, and cannot lead out of it.
    ///
    /// # Errors
    /// A name with a slash, `.` or `..`: a server that lies may not choose where a client writes.
    pub fn safe_name(&self) -> Result<&[u8], Error> {
        match &self.name[..] {
            name @ (b"." | b"..") => Err(Error::malformed("name", "one of a file", name)),
            name if name.contains(&b'/') => Err(Error::malformed("name", "one without `/`", name)),
            name => Ok(name),
        }
    }
}

impl Kind {
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

fn kind(value: &[u8]) -> Kind {
    let known = [
        Kind::File,
        Kind::Directory,
        Kind::Current,
        Kind::Parent,
        Kind::Link,
    ];
    known
        .into_iter()
        .find(|kind| kind.text().as_bytes().eq_ignore_ascii_case(value))
        .unwrap_or_else(|| match value.to_ascii_lowercase() {
            text if text.starts_with(b"os.unix=slink") => Kind::Link,
            _ => Kind::Other(excerpt(value)),
        })
}

/// A value may hold neither space nor semicolon; servers of the Globus toolkit write such bytes as in an address.
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

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::File),
            Just(Kind::Directory),
            Just(Kind::Current),
            Just(Kind::Parent),
            Just(Kind::Link)
        ]
    }

    proptest! {
        #[test]
        fn an_entry_that_is_written_is_read_as_itself(
            name in "[^\r\n\0]{1,30}", kind in prop::option::of(kinds()), size_bytes: Option<u64>,
            modify_s in prop::option::of(0_i64..250_000_000_000), mode in prop::option::of(0_u32..0o10000),
            permissions in prop::option::of("[a-z]{0,6}"), unique in prop::option::of("[0-9a-f-]{1,9}"),
            target: Option<Vec<u8>>,
        ) {
            let name = name.into_bytes();
            let entry = Entry { name, kind, size_bytes, modify_s, mode, permissions, unique, target };
            prop_assert_eq!(Entry::parse(&entry.line(|_| true)).unwrap(), entry);
        }

        #[test]
        fn no_line_makes_the_parser_panic(line: Vec<u8>) {
            let _ = Entry::parse(&line);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["..", ".", "../x", "/etc/passwd", "a/b"] {
            Entry::named(name).safe_name().unwrap_err();
        }
        assert_eq!(Entry::named("...").safe_name().unwrap(), b"...");
    }
}
