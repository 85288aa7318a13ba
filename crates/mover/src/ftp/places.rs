//! What the places of an order mean where one end is a server: each source and the name of its copy, by the rules of local copies.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use venturi_gridftp::{Kind, Path};

use super::desk::Desk;
use super::listing;
use crate::error::Error;
use crate::given::{Given, Place};
use crate::glob;
use crate::net::url::Url;
use crate::order::Order;
use crate::roots::{self, Target};

/// A place at either end: a path there, and how messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    /// As it is written, a slash at its end included.
    pub(crate) bytes: Vec<u8>,
    /// The server; none: this host.
    pub(crate) server: Option<Url>,
}

/// A source and the name of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) from: Spot,
    pub(crate) to: Spot,
    /// Whether directories that lead to the copy are made.
    pub(crate) make_way: bool,
    /// Whether a link in the place of the copy of a directory is followed: where that is what was written.
    pub(crate) as_written: bool,
}

/// The servers that an order names: that of its sources and that of its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    pub(crate) source: Option<Url>,
    pub(crate) destination: Option<Url>,
}

impl Spot {
    pub(crate) fn read(text: &OsStr) -> Result<Self, Error> {
        Ok(match Place::read(text)? {
            Place::Here(path) => Self {
                bytes: path.into_os_string().into_vec(),
                server: None,
            },
            Place::There(url) => Self {
                bytes: url.path.clone(),
                server: Some(url),
            },
        })
    }

    /// Something below it.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut bytes = self.bytes.clone();
        if !bytes.ends_with(b"/") && !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self {
            bytes,
            server: self.server.clone(),
        }
    }

    /// Its last name; none where it ends in a slash or a dot, or is the root.
    pub(crate) fn name(&self) -> Option<Vec<u8>> {
        self.path().file_name().map(|name| name.as_bytes().to_vec())
    }

    /// Whether it stands for what is in it.
    pub(crate) fn is_contents(&self) -> bool {
        roots::is_contents(self.path())
    }

    fn path(&self) -> &std::path::Path {
        std::path::Path::new(OsStr::from_bytes(&self.bytes))
    }

    /// As a path of this host.
    pub(crate) fn here(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.bytes.clone()))
    }

    /// As a path of the server, without a slash at its end.
    ///
    /// # Errors
    /// A name that no command can carry.
    pub(crate) fn there(&self) -> Result<Path, Error> {
        let mut end = self.bytes.len();
        while end > 1 && self.bytes[end - 1] == b'/' {
            end -= 1;
        }
        Path::new(&self.bytes[..end]).map_err(|_| Error::Place {
            place: self.shown(),
            expected: "a path of at most 4096 bytes without line ends",
            found: "another".into(),
            advice: "give it another name first",
        })
    }

    /// For messages.
    pub(crate) fn shown(&self) -> PathBuf {
        match &self.server {
            Some(url) => url.with_path(self.bytes.clone()).to_string().into(),
            None => self.here(),
        }
    }
}

/// The servers of an order, which must be the same for all its places.
///
/// # Errors
/// If they are not, or one is of a kind that cannot be spoken to.
pub(crate) fn servers(given: &Given) -> Result<Servers, Error> {
    let pairs: Vec<(Spot, Spot)> = match given {
        Given::Places(sources, destination) => {
            let to = Spot::read(destination)?;
            let pair = |source: &OsString| Ok((Spot::read(source)?, to.clone()));
            sources.iter().map(pair).collect::<Result<_, Error>>()?
        }
        Given::Names(_, source, destination) => {
            vec![(Spot::read(source)?, Spot::read(destination)?)]
        }
        Given::Pairs(pairs) => pairs
            .iter()
            .map(|(from, to)| Ok((Spot::read(from)?, Spot::read(to)?)))
            .collect::<Result<_, Error>>()?,
    };
    let Some((from, to)) = pairs.first() else {
        return Ok(Servers {
            source: None,
            destination: None,
        });
    };
    let same = |a: &Option<Url>, b: &Option<Url>| match (a, b) {
        (Some(a), Some(b)) => a.is_same_server(b),
        (None, None) => true,
        _ => false,
    };
    for (other_from, other_to) in &pairs {
        if !same(&from.server, &other_from.server) || !same(&to.server, &other_to.server) {
            return Err(Error::Order {
                option: "SRC DST",
                expected: "sources of one server (or of this host), and copies at one; copy from each in turn",
                found: "several".into(),
            });
        }
    }
    Ok(Servers {
        source: from.server.clone(),
        destination: to.server.clone(),
    })
}

/// What is at an end, as far as names need it.
pub(crate) trait Look {
    /// Whether there is a directory, or something else; none: nothing.
    fn is_directory(&self, spot: &Spot) -> Result<Option<bool>, Error>;

    /// Sources of a pattern.
    fn expand(&self, spot: &Spot) -> Result<Vec<Spot>, Error>;
}

/// This host.
pub(crate) struct Here;

impl Look for Here {
    fn is_directory(&self, spot: &Spot) -> Result<Option<bool>, Error> {
        Ok(std::fs::metadata(spot.here())
            .ok()
            .map(|found| found.is_dir()))
    }

    fn expand(&self, spot: &Spot) -> Result<Vec<Spot>, Error> {
        let found = glob::expand(&spot.here())?;
        Ok(found
            .into_iter()
            .map(|path| Spot {
                bytes: path.into_os_string().into_vec(),
                server: None,
            })
            .collect())
    }
}

/// A server.
pub(crate) struct There<'d> {
    pub(crate) desk: &'d Desk,
    /// How directories are listed there.
    pub(crate) lister: listing::Lister,
}

impl Look for There<'_> {
    fn is_directory(&self, spot: &Spot) -> Result<Option<bool>, Error> {
        let found = self.desk.see(&spot.there()?);
        let found = found.map_err(|_| gone(spot))?;
        Ok(found.map(|entry| matches!(entry.kind, Some(Kind::Directory | Kind::Current))))
    }

    fn expand(&self, spot: &Spot) -> Result<Vec<Spot>, Error> {
        if !glob::wild(&spot.bytes) {
            return Ok(vec![spot.clone()]);
        }
        if self.is_directory(spot)?.is_some() {
            return Ok(vec![spot.clone()]);
        }
        let mut found = vec![Vec::new()];
        for name in spot.bytes.split(|byte| *byte == b'/').skip(1) {
            let mut next = Vec::new();
            for before in found {
                let folder: &[u8] = if before.is_empty() { b"/" } else { &before };
                if !glob::wild(name) {
                    next.push([&before[..], b"/", name].concat());
                    continue;
                }
                let folder = Path::new(folder).map_err(|_| gone(spot))?;
                let entries = listing::whole(self.desk, self.lister, &folder);
                // What cannot be read has nothing of the pattern, as in a shell.
                let entries = entries.map_err(|_| gone(spot))?.unwrap_or_default();
                let mut names: Vec<_> = entries
                    .into_iter()
                    .map(|entry| entry.name)
                    .filter(|found| glob::fits(name, found))
                    .map(|found| [&before[..], b"/", &found[..]].concat())
                    .collect();
                names.sort_unstable();
                next.extend(names);
            }
            found = next;
        }
        Ok(found
            .into_iter()
            .map(|bytes| Spot {
                bytes,
                server: spot.server.clone(),
            })
            .collect())
    }
}

fn gone(spot: &Spot) -> Error {
    Error::Place {
        place: spot.shown(),
        expected: "a session with the server",
        found: "that it is lost".into(),
        advice: "run the same command again",
    }
}

/// Sources and the names of their copies.
///
/// # Errors
/// If the places do not fit together.
pub(crate) fn resolve(
    order: &Order,
    given: &Given,
    source: &dyn Look,
    destination: &dyn Look,
    is_unfinished: impl Fn(&Spot, &Spot) -> bool,
) -> Result<Vec<Root>, Error> {
    let root = |from, to, make_way| Root {
        from,
        to,
        make_way,
        as_written: false,
    };
    match given {
        Given::Names(names, from, to) => {
            let (from, to) = (Spot::read(from)?, Spot::read(to)?);
            let below = |name: &PathBuf| name.as_os_str().as_bytes().to_vec();
            Ok(names
                .iter()
                .map(|name| root(from.join(&below(name)), to.join(&below(name)), true))
                .collect())
        }
        Given::Pairs(pairs) => {
            let pair = |(from, to): &(OsString, OsString)| {
                let (from, to) = (Spot::read(from)?, Spot::read(to)?);
                let contents = from.is_contents() && source.is_directory(&from)? == Some(true);
                let into = roots::is_directory_as_written(order, &to.bytes) && !contents;
                let to = match from.name() {
                    Some(name) if into => to.join(&name),
                    _ => to,
                };
                Ok(root(from, to, order.mkpath || into))
            };
            let roots = pairs.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
            roots::see_apart(roots.iter().map(|root| {
                let contents = root.from.is_contents();
                let [from, to] = [&root.from, &root.to].map(|spot| spot.path().into());
                (from, to, contents)
            }))?;
            Ok(roots)
        }
        Given::Places(sources, to) => {
            let mut found = Vec::new();
            for text in sources {
                let spot = Spot::read(text)?;
                let expanded = source.expand(&spot)?;
                if expanded.is_empty() {
                    return Err(Error::Place {
                        place: spot.shown(),
                        expected: "something of that pattern",
                        found: "nothing".into(),
                        advice: "see what is there (`ls`)",
                    });
                }
                found.extend(expanded);
            }
            placed(
                order,
                found,
                Spot::read(to)?,
                source,
                destination,
                is_unfinished,
            )
        }
    }
}

fn placed(
    order: &Order,
    sources: Vec<Spot>,
    to: Spot,
    source: &dyn Look,
    destination: &dyn Look,
    is_unfinished: impl Fn(&Spot, &Spot) -> bool,
) -> Result<Vec<Root>, Error> {
    let many = sources.len() > 1;
    let there = destination.is_directory(&to)?;
    let target = Target {
        is_directory: there == Some(true),
        is_there: there.is_some(),
        slash: to.bytes.ends_with(b"/"),
    };
    let refused = |(expected, found, advice): (&'static str, &str, &'static str)| Error::Place {
        place: to.shown(),
        expected,
        found: found.into(),
        advice,
    };
    roots::refusal(order, target, many).map_err(refused)?;
    let into = !order.no_target_directory && (target.is_directory || target.slash);
    let (mut roots, mut names) = (Vec::new(), HashSet::new());
    for from in sources {
        let contents = from.is_contents() && source.is_directory(&from)? == Some(true);
        let unfinished = into && !many && !target.slash && !contents && is_unfinished(&from, &to);
        let inside = into && !contents && !unfinished;
        let copy = match from.name() {
            Some(name) if inside => to.join(&name),
            _ => to.clone(),
        };
        if !names.insert(copy.bytes.clone()) && !contents {
            return Err(refused(roots::TWO_OF_ONE_NAME));
        }
        let make_way = order.mkpath || (target.slash && !contents);
        roots.push(Root {
            from,
            to: copy,
            make_way,
            as_written: !inside,
        });
    }
    Ok(roots)
}

/// Sees that a URL says nothing that would be passed over.
///
/// # Errors
/// A password for ssh.
pub(crate) fn see_login(url: &Url) -> Result<(), Error> {
    if url.scheme != crate::net::url::Scheme::Sshftp || url.password.is_none() {
        return Ok(());
    }
    Err(Error::Place {
        place: url.to_string().into(),
        expected: "no password",
        found: "one".into(),
        advice: "leave it out: ssh has a key, or asks for it",
    })
}
