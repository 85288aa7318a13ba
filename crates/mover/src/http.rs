//! HTTP(S) and WebDAV: the client, and what it shares with the server.
//!
//! Read `exchange.rs` first (one request and its answer, whatever is between; its connections: `connect.rs`), then `work.rs` (many files over few connections), `get.rs`, `put.rs`.

mod ahead;
pub(crate) mod answer;
pub(crate) mod begin;
mod claims;
mod collections;
pub(crate) mod connect;
pub(crate) mod dav;
pub(crate) mod digest;
pub(crate) mod exchange;
pub(crate) mod fault;
pub(crate) mod folder;
pub(crate) mod get;
mod judge;
pub(crate) mod landing;
pub(crate) mod list;
pub(crate) mod marker;
pub(crate) mod outgoing;
mod pattern;
pub(crate) mod pieces;
pub(crate) mod proxy;
pub(crate) mod put;
pub(crate) mod range;
pub(crate) mod source;
pub(crate) mod target;
pub(crate) mod third;
mod through;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod tree;
pub(crate) mod trees;
pub(crate) mod tries;
pub(crate) mod wait;
pub(crate) mod work;

use std::ffi::OsString;
use std::path::Path;

use crate::error::Error;
use crate::given::{Given, Place, without_dots};
use crate::order::Order;
use crate::outcome::{self, Outcome};
use crate::report::Report;
use crate::roots;
use crate::stop::Stop;
use crate::totals::Totals;

/// Said at the end of a tree's upload that is not done: nothing at the server tells that it goes on.
const NESTS: &str = "The directory is there now, and another copy would come into it: say --no-target-directory (-T) with that command";

/// Carries out an order some of whose places are at servers of HTTP.
///
/// # Errors
/// If its places do not fit together: nothing was done then. What goes wrong with single files is told, and in the outcome.
pub(crate) fn carry_out(order: &Order, stop: &Stop, given: &Given) -> Result<Outcome, Error> {
    let begins = begins(order, given)?;
    let (report, totals) = (Report::new(order.output, stop), Totals::default());
    report.start(order);
    let result = std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        work::carry_out(order, stop, &report, &totals, begins)
    });
    result.map(|ended| {
        let outcome = match ended.answered {
            true => outcome::end(stop, &totals, &report),
            false => outcome::unreached(stop, &totals, &report),
        };
        if matches!(outcome, Outcome::Stopped | Outcome::Failed) && ended.nests {
            report.talk(NESTS);
        }
        outcome
    })
}

fn begins(order: &Order, given: &Given) -> Result<Vec<begin::Begin>, Error> {
    let listed = |from: Place, to: Place, make_way, into| begin::Begin {
        from,
        to,
        listed: true,
        into,
        make_way,
        alone: false,
        may_be_pattern: false,
    };
    match given {
        Given::Places(sources, destination) => {
            let mut begins = Vec::new();
            let to = Place::read(destination)?;
            let sources = sources.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let sources: Vec<Place> = sources.into_iter().flatten().collect();
            if sources.len() > 1 {
                let refused = |(expected, found, advice): (_, &str, _)| Error::Place {
                    place: crate::net::url::shown(destination).into(),
                    expected,
                    found: found.into(),
                    advice,
                };
                begin::refusal_of_several(order, &to).map_err(refused)?;
            }
            let alone = sources.len() == 1;
            for from in sources {
                begins.push(begin::Begin {
                    from,
                    to: to.clone(),
                    listed: false,
                    into: false,
                    make_way: order.mkpath,
                    alone,
                    may_be_pattern: true,
                });
            }
            Ok(begins)
        }
        Given::Names(names, source, destination) => {
            let (from, to) = (Place::read(source)?, Place::read(destination)?);
            Ok(names
                .iter()
                .map(|name| listed(below(&from, name), below(&to, name), true, false))
                .collect())
        }
        Given::Pairs(pairs) => {
            let pair = |(from, to): &(OsString, OsString)| {
                let (from, to) = (Place::read(from)?, Place::read(to)?);
                let into = roots::is_directory_as_written(order, to.bytes());
                Ok(listed(from, to, order.mkpath, into))
            };
            let begins = pairs.iter().map(pair).collect::<Result<Vec<_>, Error>>()?;
            roots::see_apart(begins.iter().map(|begin| {
                let (source, mut copy) = (begin.from.shown(), begin.to.shown());
                let name = source.file_name().filter(|_| begin.into);
                copy.extend(name.map(Path::new));
                let contents = roots::is_contents(&source);
                (source.into(), copy.into(), contents)
            }))?;
            Ok(begins)
        }
    }
}

/// A source, and what its pattern finds if it is of this host.
fn read(source: &OsString) -> Result<Vec<Place>, Error> {
    match Place::read(source)? {
        Place::Here(path) => {
            let found = crate::glob::expand(&path)?;
            if found.is_empty() {
                return Err(Error::Place {
                    place: path,
                    expected: "something of that pattern",
                    found: "nothing".into(),
                    advice: "see what is there (`ls`)",
                });
            }
            Ok(found.into_iter().map(Place::Here).collect())
        }
        there => Ok(vec![there]),
    }
}

fn below(place: &Place, name: &Path) -> Place {
    use std::os::unix::ffi::OsStrExt;
    match place {
        Place::Here(path) => Place::Here(path.join(name)),
        Place::There(url) => {
            let mut path = url.path.clone();
            while path.last() == Some(&b'/') {
                path.pop();
            }
            path.push(b'/');
            path.extend_from_slice(name.as_os_str().as_bytes());
            Place::There(crate::net::url::Url {
                path: without_dots(&path),
                ..url.clone()
            })
        }
    }
}
