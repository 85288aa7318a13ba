//! HTTP(S) and WebDAV client, and modules that it shares with the server.
//!
//! Read `exchange.rs` first (one request and its response; its connections are in `connect.rs`),
//! then `work.rs` (many files over few connections), `get.rs` and `put.rs`.

pub(crate) mod chunked_download;
pub(crate) mod connect;
pub(crate) mod copy_spec;
pub(crate) mod dav;
mod destination_dirs;
pub(crate) mod digest;
pub(crate) mod directory;
pub(crate) mod exchange;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod marker;
pub(crate) mod outgoing;
pub(crate) mod partial_download;
mod pattern;
mod prepare;
pub(crate) mod proxy;
pub(crate) mod put;
pub(crate) mod range;
mod range_allocator;
mod relay;
pub(crate) mod request_error;
pub(crate) mod response;
pub(crate) mod retry;
mod skip_check;
pub(crate) mod source;
pub(crate) mod target;
pub(crate) mod third_party;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod tree;
pub(crate) mod tree_journals;
pub(crate) mod wait;
pub(crate) mod work;

use std::ffi::OsString;
use std::path::Path;

use crate::error::CopyError;
use crate::inputs::{CopyInputs, CopyLocation, without_dots};
use crate::options::CopyOptions;
use crate::outcome::{self, CopyExit};
use crate::report::Report;
use crate::roots;
use crate::stop::CancelToken;
use crate::totals::CopyTotals;

/// Hint after an unfinished upload of a tree: the server keeps no journal.
const NESTS: &str = "The directory exists now, so the same command would copy into it: add --no-target-directory (-T) to resume this copy";

/// Executes a copy with at least one HTTP server.
///
/// # Errors
/// Locations that do not fit together; nothing was copied. Failures of single files are reported, and are part of the outcome.
pub(crate) fn execute(
    order: &CopyOptions,
    stop: &CancelToken,
    inputs: &CopyInputs,
) -> Result<CopyExit, CopyError> {
    let specs = specs(order, inputs)?;
    let (report, totals) = (Report::new(order.output, stop), CopyTotals::default());
    report.start(order);
    let result = std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        work::execute(order, stop, &report, &totals, specs)
    });
    result.map(|ended| {
        let outcome = match ended.any_response {
            true => outcome::end(stop, &totals, &report),
            false => outcome::unreached(stop, &totals, &report),
        };
        if matches!(outcome, CopyExit::Stopped | CopyExit::Failed) && ended.nests {
            report.print(NESTS);
        }
        outcome
    })
}

fn specs(order: &CopyOptions, inputs: &CopyInputs) -> Result<Vec<copy_spec::CopySpec>, CopyError> {
    let listed = |from: CopyLocation, to: CopyLocation, create_parents, into| copy_spec::CopySpec {
        from,
        to,
        listed: true,
        into,
        create_parents,
        alone: false,
        may_be_pattern: false,
    };
    match inputs {
        CopyInputs::Operands(sources, destination) => {
            let mut specs = Vec::new();
            let to = CopyLocation::read(destination)?;
            let sources = sources.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let sources: Vec<CopyLocation> = sources.into_iter().flatten().collect();
            if sources.len() > 1 {
                let rejected = |(expected, found, advice): (_, &str, _)| CopyError::Location {
                    location: crate::net::url::shown(destination).into(),
                    expected,
                    found: found.into(),
                    advice,
                };
                copy_spec::reject_several(order, &to).map_err(rejected)?;
            }
            let alone = sources.len() == 1;
            for from in sources {
                specs.push(copy_spec::CopySpec {
                    from,
                    to: to.clone(),
                    listed: false,
                    into: false,
                    create_parents: order.mkpath,
                    alone,
                    may_be_pattern: true,
                });
            }
            Ok(specs)
        }
        CopyInputs::Names(names, source, destination) => {
            let (from, to) = (
                CopyLocation::read(source)?,
                CopyLocation::read(destination)?,
            );
            Ok(names
                .iter()
                .map(|name| listed(below(&from, name), below(&to, name), true, false))
                .collect())
        }
        CopyInputs::Pairs(pairs) => {
            let pair = |(from, to): &(OsString, OsString)| {
                let (from, to) = (CopyLocation::read(from)?, CopyLocation::read(to)?);
                let into = roots::is_directory_as_written(order, to.bytes());
                Ok(listed(from, to, order.mkpath, into))
            };
            let specs = pairs
                .iter()
                .map(pair)
                .collect::<Result<Vec<_>, CopyError>>()?;
            roots::check_distinct(specs.iter().map(|start| {
                let (source, mut copy) = (start.from.shown(), start.to.shown());
                let name = source.file_name().filter(|_| start.into);
                copy.extend(name.map(Path::new));
                let contents = roots::is_contents(&source);
                (source.into(), copy.into(), contents)
            }))?;
            Ok(specs)
        }
    }
}

/// Returns a source, or the local matches of its pattern.
fn read(source: &OsString) -> Result<Vec<CopyLocation>, CopyError> {
    match CopyLocation::read(source)? {
        CopyLocation::Local(path) => {
            let found = crate::glob::expand(&path)?;
            if found.is_empty() {
                return Err(CopyError::Location {
                    location: path,
                    expected: "matches of the pattern",
                    found: "none".into(),
                    advice: "list the directory (`ls`)",
                });
            }
            Ok(found.into_iter().map(CopyLocation::Local).collect())
        }
        remote => Ok(vec![remote]),
    }
}

fn below(parent: &CopyLocation, name: &Path) -> CopyLocation {
    use std::os::unix::ffi::OsStrExt;
    match parent {
        CopyLocation::Local(path) => CopyLocation::Local(path.join(name)),
        CopyLocation::Remote(url) => {
            let mut path = url.path.clone();
            while path.last() == Some(&b'/') {
                path.pop();
            }
            path.push(b'/');
            path.extend_from_slice(name.as_os_str().as_bytes());
            CopyLocation::Remote(crate::net::url::Url {
                path: without_dots(&path),
                ..url.clone()
            })
        }
    }
}
