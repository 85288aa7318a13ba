//! Sources as they were written: what they are, and where their copies come to be.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::exchange::Exchange;
use super::fault::Fault;
use super::folder::Folder;
use super::get::Fetch;
use super::list::{self, Facts};
use super::pattern;
use super::put::{self, Store};
use super::target::{Server, Target};
use super::third::{self, Pass};
use super::tree;
use super::trees;
use super::work::{Context, Task};
use crate::error::Failure;
use crate::given::Place;
use crate::journal::Origin;
use crate::net::url::Url;
use crate::order::Order;
use crate::roots;

/// A source and where it goes, as it was written.
#[derive(Debug, Clone)]
pub(crate) struct Begin {
    pub(crate) from: Place,
    pub(crate) to: Place,
    /// Whether it is of a list: the destination is the name of the copy, whatever is there.
    pub(crate) listed: bool,
    /// Whether it is that of a directory even so.
    pub(crate) into: bool,
    /// Whether directories that lead to the copy are made.
    pub(crate) make_way: bool,
    /// Whether it is the only source, so that the destination may be its unfinished copy.
    pub(crate) alone: bool,
    /// Whether wildcards of the source are yet to be looked at.
    pub(crate) may_be_pattern: bool,
}

/// The same without the places.
#[derive(Debug, Clone, Copy)]
struct How {
    listed: bool,
    exact: bool,
    make_way: bool,
    alone: bool,
}

impl Begin {
    /// Who is asked.
    pub(crate) fn servers(&self) -> impl Iterator<Item = Server> {
        [&self.from, &self.to]
            .into_iter()
            .filter_map(|place| match place {
                Place::There(url) => Some(Target::from(url).server),
                Place::Here(_) => None,
            })
    }

    /// The collection of a server that the copy comes to be in, as far as that can be seen from how its place is written.
    pub(super) fn collection(&self, order: &Order) -> Option<Target> {
        let Place::There(to) = &self.to else {
            return None;
        };
        let to = Target::from(to);
        if self.is_exact(order) {
            return to.parent();
        }
        let into = to.decoded_path().ends_with(b"/");
        into.then(|| to.collection())
    }

    /// Whether the destination is the name of the copy in any case.
    fn is_exact(&self, order: &Order) -> bool {
        (self.listed && !self.into) || order.no_target_directory
    }
}

/// Begins a source.
pub(crate) async fn begin(cx: &Context<'_>, exchange: &Rc<Exchange>, begin: Begin) {
    let how = How {
        listed: begin.listed,
        exact: begin.is_exact(cx.order),
        make_way: begin.make_way,
        alone: begin.alone,
    };
    let result = match (begin.from, begin.to) {
        (Place::There(from), to) if begin.may_be_pattern && pattern::wild(&from.path) => {
            begin_matches(cx, exchange, from, to, how).await
        }
        (Place::There(from), Place::Here(to)) => {
            begin_fetch(cx, exchange, Target::from(&from), &to, how).await
        }
        (Place::Here(from), Place::There(to)) => {
            begin_store(cx, exchange, &from, Target::from(&to), how).await
        }
        (Place::There(from), Place::There(to)) => {
            begin_pass(cx, exchange, Target::from(&from), Target::from(&to), how).await
        }
        (Place::Here(from), Place::Here(_)) => Err(Failure::found(
            from,
            "a place of HTTP",
            "none",
            "copy it in a command of its own",
        )),
    };
    if let Err(failure) = result {
        cx.tell(&failure);
    }
}

/// Begins what a source with wildcards stands for.
async fn begin_matches(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    source: Url,
    to: Place,
    how: How,
) -> Result<(), Failure> {
    let shown = source.to_string();
    let found = pattern::expand(exchange, source).await?;
    if found.len() > 1 {
        refusal_of_several(cx.order, &to).map_err(|(expected, _, advice)| {
            let several = format!("{} that match {shown}", found.len());
            Failure::found(to.shown(), expected, several, advice)
        })?;
    }
    cx.expect(found.len() as u64);
    let alone = how.alone && found.len() == 1;
    let begin = |from| {
        Task::Begin(Begin {
            from: Place::There(from),
            to: to.clone(),
            listed: false,
            into: false,
            make_way: how.make_way,
            alone,
            may_be_pattern: false,
        })
    };
    cx.pool.push(found.into_iter().rev().map(begin));
    Ok(())
}

/// What keeps several sources from going to a destination: expected, found, advice.
pub(super) fn refusal_of_several(
    order: &Order,
    to: &Place,
) -> Result<(), (&'static str, &'static str, &'static str)> {
    let slash = to.bytes().ends_with(b"/");
    let is_directory = match to {
        Place::Here(path) => path.is_dir(),
        // Nobody asks the server what is there.
        Place::There(_) if slash || order.no_target_directory => false,
        Place::There(_) => {
            let found = "a URL without a slash at its end";
            return Err((
                "a directory for several sources",
                found,
                "end it with a slash",
            ));
        }
    };
    let target = roots::Target {
        is_directory,
        is_there: is_directory,
        slash,
    };
    roots::refusal(order, target, true)
}

async fn begin_fetch(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    from: Target,
    to: &Path,
    how: How,
) -> Result<(), Failure> {
    see_no_collection(cx, exchange, &from).await?;
    let contents = cx.order.recursive && from.decoded_path().ends_with(b"/");
    let here = placed_here(cx, &from, to, how, contents)?;
    if !how.exact && !how.listed && !contents {
        cx.claim(here.copy.clone())?;
    }
    let parent = here.copy.parent().unwrap_or(Path::new(""));
    let makes_way = is_slashed(to) || how.make_way;
    if makes_way && !cx.order.dry_run {
        roots::make_way(parent, cx.order.sync).map_err(|error| {
            Failure::found(
                parent.to_owned(),
                "a directory, or a place for one",
                crate::error::said(&error),
                "mend that and run the same command again",
            )
        })?;
    }
    let would_make = cx.order.dry_run && makes_way && !parent.exists();
    let folder = Arc::new(match would_make && !parent.as_os_str().is_empty() {
        true => Folder::absent(parent.to_owned())?,
        false => Folder::open(parent)?,
    });
    if cx.order.recursive {
        let (_ahead, mut wanted) = (cx.prepare_tree(&from.server), None);
        let listed = list::as_written(exchange, &from, |files| {
            wanted = Some(cx.prepare(&from.server, files));
        });
        if let Some(entries) = listed.await.map_err(|fault| fault.at(&from))? {
            let (inner, fresh) = match here.is_itself(how) {
                true => (Folder::open(&here.copy)?, false),
                false => tree::made(cx, &folder, &here.name()?)?,
            };
            let token = trees::token(&from, &here.copy);
            let origin = cx.trees.begin(cx, token, &inner, fresh)?;
            tree::fill(cx, &from, (inner, fresh), origin, entries);
            Folder::release(cx, folder);
            return Ok(());
        }
    }
    let (origin, fresh) = (
        Origin::of(trees::token(&from, &here.copy)),
        !folder.is_there,
    );
    cx.pool.push([Task::Fetch(Box::new(Fetch {
        from,
        facts: None,
        folder,
        name: here.name()?,
        fresh,
        origin,
    }))]);
    Ok(())
}

/// Where a copy here comes to be.
struct Here {
    copy: PathBuf,
    /// Whether it is in the directory that was written, under the name of the source.
    inside: bool,
}

impl Here {
    /// Whether it is a directory that was written itself, which may be a link, or have no name (`.`).
    fn is_itself(&self, how: How) -> bool {
        !self.inside && !how.listed && self.copy.is_dir()
    }

    fn name(&self) -> Result<CString, Failure> {
        let name = self.copy.file_name().map(OsStr::as_bytes);
        let name = name.and_then(|name| CString::new(name).ok());
        let lacks = || Failure::found(self.copy.clone(), "the name of a copy", "none", "write one");
        name.ok_or_else(lacks)
    }
}

fn is_slashed(to: &Path) -> bool {
    to.as_os_str().as_bytes().ends_with(b"/")
}

/// Where a source's copy here comes to be: into a directory, unless that is its unfinished copy, or what is in the source is meant.
fn placed_here(
    cx: &Context<'_>,
    from: &Target,
    to: &Path,
    how: How,
    contents: bool,
) -> Result<Here, Failure> {
    let slash = is_slashed(to);
    let into = !how.exact && !contents && (slash || to.is_dir());
    let goes_on = || {
        let may = cx.order.recursive && how.alone && !slash;
        may && roots::is_unfinished(to, trees::token(from, to))
    };
    let inside = into && !goes_on();
    let name = from.name();
    if inside && name.is_empty() {
        return Err(Failure::found(
            PathBuf::from(from.to_string()),
            "the name of a file",
            "none",
            "write it, or say --recursive to copy a directory",
        ));
    }
    let copy = match inside {
        true => to.join(OsStr::from_bytes(&name)),
        false => to.to_owned(),
    };
    Ok(Here { copy, inside })
}

/// Sees that what is written as a collection is none, unless collections are copied: its page is not what is in it.
async fn see_no_collection(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    from: &Target,
) -> Result<(), Failure> {
    if cx.order.recursive || !from.decoded_path().ends_with(b"/") {
        return Ok(());
    }
    match list::kind(exchange, from).await {
        Ok(Some(true)) => Err(Failure::found(
            PathBuf::from(from.to_string()),
            "a file",
            "a directory",
            "say --recursive (-r) to copy what is in it",
        )),
        Err(fault) if fault.is_of_connection() => Err(fault.at(from)),
        // A server without WebDAV has pages there, which are files like others.
        _ => Ok(()),
    }
}

async fn begin_store(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    from: &Path,
    to: Target,
    how: How,
) -> Result<(), Failure> {
    let at_source = |error: std::io::Error| {
        Failure::found(
            from.to_owned(),
            "a file or directory",
            crate::error::said(&error),
            "name one that is there",
        )
    };
    let order = cx.order;
    if order.recursive && !order.follow && !roots::is_contents(from) && from.is_symlink() {
        cx.left_out(
            from,
            "no file or directory: HTTP has nothing else; --follow copies what it leads to",
        );
        return Ok(());
    }
    let is_directory = std::fs::metadata(from).map_err(at_source)?.is_dir();
    let contents = is_directory && roots::is_contents(from);
    let resolved = if contents {
        std::fs::canonicalize(from).map_err(at_source)?
    } else {
        from.to_owned()
    };
    let name = resolved
        .file_name()
        .and_then(|name| CString::new(name.as_bytes()).ok());
    let name = name.ok_or_else(|| {
        Failure::found(
            from.to_owned(),
            "something that has a name",
            "none",
            "name another",
        )
    })?;
    if is_directory && !cx.order.recursive {
        return Err(Failure::found(
            from.to_owned(),
            "a file",
            "a directory",
            "say --recursive to copy directories",
        ));
    }
    let place = if contents {
        Placed::unseen(to)
    } else {
        placed(cx, exchange, to, name.to_bytes(), how, is_directory).await?
    };
    let folder = Arc::new(Folder::open(resolved.parent().unwrap_or(Path::new("")))?);
    let task = if is_directory {
        let to = place.to;
        Task::StoreTree { folder, name, to }
    } else {
        let there = place.there(cx, exchange).await;
        let job = Store {
            folder,
            name,
            to: place.to,
            there,
            make_way: how.make_way,
        };
        if cx.is_one {
            // The connections that are there are this thread's.
            put::store(cx, exchange, job).await;
            return Ok(());
        }
        Task::Store(Box::new(job))
    };
    cx.pool.push([task]);
    Ok(())
}

async fn begin_pass(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    from: Target,
    to: Target,
    how: How,
) -> Result<(), Failure> {
    see_apart(cx, &from, &to)?;
    see_no_collection(cx, exchange, &from).await?;
    let is_directory = cx.order.recursive
        && list::kind(exchange, &from)
            .await
            .map_err(|fault| fault.at(&from))?
            == Some(true);
    let contents = is_directory && from.decoded_path().ends_with(b"/");
    let place = if contents {
        Placed::unseen(to)
    } else {
        placed(cx, exchange, to, &from.name(), how, is_directory).await?
    };
    see_apart(cx, &from, &place.to)?;
    let task = if is_directory {
        let to = place.to;
        Task::PassTree { from, to }
    } else {
        let there = place.there(cx, exchange).await;
        let job = Pass {
            from,
            facts: None,
            to: place.to,
            there,
        };
        if cx.is_one {
            third::pass(cx, exchange, job).await;
            return Ok(());
        }
        Task::Pass(Box::new(job))
    };
    cx.pool.push([task]);
    Ok(())
}

/// Sees that a copy within a server has a place of its own.
fn see_apart(cx: &Context<'_>, from: &Target, to: &Target) -> Result<(), Failure> {
    let server = |target: &Target| {
        let server = &target.server;
        (server.host.to_ascii_lowercase(), server.port)
    };
    if server(from) != server(to) {
        return Ok(());
    }
    // A query may name another version of the same file.
    if !cx.order.recursive && from.path != to.path {
        return Ok(());
    }
    let within = roots::within(&from.decoded_path(), &to.decoded_path());
    let found =
        within.and_then(|within| roots::itself(to.to_string().into(), within, cx.order.recursive));
    found.map_or(Ok(()), Err)
}

/// Where a thing goes.
struct Placed {
    to: Target,
    /// What a listing has there, if anything; none if it was not asked for, or is not believed.
    there: Option<Option<Facts>>,
}

impl Placed {
    fn unseen(to: Target) -> Self {
        Self { to, there: None }
    }

    /// What is there, if anything; none if the server has to be asked.
    async fn there(&self, cx: &Context<'_>, exchange: &Rc<Exchange>) -> Option<Option<Facts>> {
        match &self.there {
            Some(there) => Some(there.clone()),
            None => cx.collections.there(cx.order, exchange, &self.to).await,
        }
    }
}

/// Where a thing of that name goes, and no other of this copy.
async fn placed(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    to: Target,
    name: &[u8],
    how: How,
    is_directory: bool,
) -> Result<Placed, Failure> {
    if how.exact {
        return Ok(Placed::unseen(to));
    }
    let server = to.server.clone();
    let asked = place_of(cx, exchange, to, name, how, is_directory);
    let place = match cx.is_one {
        true => exchange.with_spare(&server, asked).await?,
        false => asked.await?,
    };
    if !how.listed {
        cx.claim(place.to.to_string().into())?;
    }
    Ok(place)
}

/// Where a thing of that name goes: into a collection, if the destination is one or is written as one, else to the destination itself.
async fn place_of(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    to: Target,
    name: &[u8],
    how: How,
    is_directory: bool,
) -> Result<Placed, Failure> {
    if to.decoded_path().ends_with(b"/") {
        let place = to.child(name);
        if cx.order.dry_run || to.decoded_path() == b"/" {
            return Ok(Placed::unseen(place));
        }
        // As with `cp DIR/`: it is made where it is not there. Whether the server lets us see that is another matter.
        let made = cx.collections.make(exchange, &to, how.make_way);
        // Of several a listing of all is asked for.
        let (made, there) = if cx.is_one && list::is_believed(cx.order) {
            let (made, seen) = tokio::join!(made, list::seen(exchange, &place));
            (made, seen.ok().map(|seen| seen.map(Facts::from)))
        } else {
            (made.await, None)
        };
        if let Some(fault) = made.err().filter(Fault::is_of_connection) {
            return Err(fault.at(&to));
        }
        return Ok(Placed { to: place, there });
    }
    // A file's name is taken as it stands where it is clear: asking costs a round trip, and a directory refuses to be written to.
    match list::seen(exchange, &to).await {
        Ok(Some(entry)) if entry.directory => Ok(Placed::unseen(to.child(name))),
        Err(fault) if fault.is_of_connection() => Err(fault.at(&to)),
        // A server without WebDAV has no directories to ask for.
        _ if is_directory => {
            cx.nests.store(!cx.order.dry_run, Ordering::Relaxed);
            Ok(Placed::unseen(to.collection()))
        }
        Ok(seen) => Ok(Placed {
            to,
            there: list::believed(cx.order, seen.map(Facts::from)),
        }),
        Err(_) => Ok(Placed::unseen(to)),
    }
}
