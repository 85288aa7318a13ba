//! What is to be copied between two servers: trees of the one are gone through, and directories made at the other.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use venturi_gridftp::client::Pair;
use venturi_gridftp::{Command, Entry, Kind, Path as There};

use super::{End, Ends, Wanted};
use crate::error::Failure;
use crate::ftp::batch::ROOTS_AHEAD;
use crate::ftp::desk::{Desk, Gone, entry_of, reply_of};
use crate::ftp::failures;
use crate::ftp::files::Known;
use crate::ftp::judge::{Present, Verdict, judge};
use crate::ftp::listing::{self, Found};
use crate::ftp::messages::{Answer, Question};
use crate::ftp::names;
use crate::ftp::places::{Root, Spot};
use crate::ftp::shared::Shared;
use crate::ftp::verify;
use crate::ftp::ways::Ways;
use crate::net::url::Url;
use crate::order::Existing;
use crate::roots;
use crate::temporary::Token;

/// Looks for what is to be copied, and makes directories.
pub(super) struct Search<'d> {
    shared: &'d Shared<'d>,
    ends: &'d Ends<'d>,
    pub(super) found: Vec<Wanted>,
    /// Directories at the destination that tell that a copy is not done.
    pub(super) journals: Vec<There>,
    ways: Ways,
}

/// What both servers are asked of a source and of its copy.
#[derive(Default)]
struct Asked {
    source: Option<Receiver<(u64, Answer)>>,
    /// None: nothing needs be known.
    copy: Option<Receiver<(u64, Answer)>>,
}

/// A directory whose entries are to be copied.
struct Folder {
    from: There,
    to: There,
    /// What the server calls the directories that it is in, and itself, to know when a link leads back into one.
    above: Vec<String>,
}

impl<'d> Search<'d> {
    pub(super) fn new(shared: &'d Shared<'d>, ends: &'d Ends<'d>) -> Self {
        Self {
            shared,
            ends,
            found: Vec::new(),
            journals: Vec::new(),
            ways: Ways::default(),
        }
    }

    /// Looks at all sources. Of what they are, and of what is under the names of their copies, both servers are asked ahead.
    pub(super) fn look(&mut self, roots: &[Root]) {
        let mut waiting = roots.iter();
        let mut asked = VecDeque::new();
        for root in roots {
            while asked.len() < ROOTS_AHEAD
                && let Some(next) = waiting.next()
            {
                asked.push_back(self.ask(next));
            }
            if self.shared.stop.asked() {
                return;
            }
            let asked = asked.pop_front().unwrap_or_default();
            if let Err(Gone) = self.root(root, asked) {
                return self.shared.gone();
            }
        }
    }

    fn ask(&self, root: &Root) -> Asked {
        let see = |desk: &Desk, spot: &Spot| {
            let path = spot.there().ok()?;
            Some(desk.ask(Question::Command(Command::Mlst(Some(path)))))
        };
        // Who replaces needs not know what is there.
        let replaces = self.shared.order.existing == Existing::Replace;
        Asked {
            source: see(self.ends.source.desk, &root.from),
            copy: (!replaces)
                .then(|| see(self.ends.destination.desk, &root.to))
                .flatten(),
        }
    }

    fn root(&mut self, root: &Root, asked: Asked) -> Result<(), Gone> {
        let (shared, order) = (self.shared, self.shared.order);
        let destination = self.ends.destination;
        let (from, to) = match (root.from.there(), root.to.there()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => {
                let failure = failures::no_path(root.from.shown(), error.to_string());
                shared.tell(&failure);
                return Ok(());
            }
        };
        if let Some(failure) = itself(root, order.recursive) {
            shared.tell(&failure);
            return Ok(());
        }
        let entry = match asked.source.as_ref().and_then(reply_of) {
            Some(reply) => entry_of(&reply),
            None => self.ends.source.desk.see(&from)?,
        };
        let Some(entry) = entry else {
            shared.tell(&failures::nothing(root.from.shown(), "nothing"));
            return Ok(());
        };
        if root.make_way && !order.dry_run {
            let place = |path: &There| destination.place(path);
            if !self.ways.make(shared, destination.desk, &to, &place)? {
                return Ok(());
            }
        }
        let token = names::token(&root.from, &root.to);
        if !matches!(entry.kind, Some(Kind::Directory | Kind::Current)) {
            let found = match asked.copy.as_ref().map(reply_of) {
                Some(Some(reply)) => Found::Told(entry_of(&reply).map(Box::new)),
                Some(None) => Found::Unknown,
                None => Found::Nothing,
            };
            return self.file(&entry, from, to, token, &found);
        }
        if !order.recursive {
            shared.tell(&failures::not_recursive(root.from.shown()));
            return Ok(());
        }
        let journal = names::journal(&root.from, &root.to).there().ok();
        let above = entry.unique.into_iter().collect();
        self.tree(Folder { from, to, above }, token, journal)
    }

    fn tree(&mut self, root: Folder, token: Token, mut journal: Option<There>) -> Result<(), Gone> {
        let (shared, destination) = (self.shared, self.ends.destination);
        let mut todo = vec![root];
        while let Some(folder) = todo.pop() {
            if shared.stop.asked() {
                return Ok(());
            }
            let Some(fresh) = self.make(&folder.to)? else {
                continue;
            };
            if let Some(journal) = journal.take()
                && !shared.order.dry_run
            {
                // A name for the same command to find; that it is there already says the same.
                destination.desk.call(&Command::Mkd(journal.clone()))?;
                self.journals.push(journal);
            }
            shared.totals.count(&shared.totals.directories);
            let copies = if fresh || shared.order.existing == Existing::Replace {
                Found::Nothing
            } else {
                Found::of(destination.desk, destination.lister(), &folder.to)?
            };
            self.contents(&folder, token, &copies, &mut todo)?;
        }
        Ok(())
    }

    /// Makes a directory, or finds it. Whether it is new; none if there is no place for it, which is told.
    fn make(&self, to: &There) -> Result<Option<bool>, Gone> {
        let destination = self.ends.destination;
        let fresh = destination.desk.see(to)?.is_none();
        if fresh && !self.shared.order.dry_run {
            let reply = destination.desk.call(&Command::Mkd(to.clone()))?;
            if !reply.is_success() {
                let failure = failures::no_folder(destination.place(to), reply.to_string());
                self.shared.tell(&failure);
                return Ok(None);
            }
        }
        Ok(Some(fresh))
    }

    fn contents(
        &mut self,
        folder: &Folder,
        token: Token,
        copies: &Found,
        todo: &mut Vec<Folder>,
    ) -> Result<(), Gone> {
        let (shared, source) = (self.shared, self.ends.source);
        for entry in self.entries(&folder.from)? {
            let paths = entry.safe_name().and_then(|name| {
                let from = names::below(&folder.from, name)?;
                Ok((from, names::below(&folder.to, name)?))
            });
            let is_link = entry.kind == Some(Kind::Link) || entry.target.is_some();
            match (paths, &entry.kind) {
                (Err(error), _) => {
                    let place = source.place(&folder.from);
                    shared.tell(&failures::no_name(place, error.to_string()));
                }
                (Ok((from, _)), _) if is_link && !shared.order.follow => {
                    let reason = "a link; --follow copies what it leads to";
                    shared.left_out(&source.place(&from), reason);
                }
                (Ok(paths), Some(Kind::Directory)) => self.directory(folder, entry, paths, todo),
                (Ok((from, to)), Some(Kind::File) | None) => {
                    self.file(&entry, from, to, token, copies)?;
                }
                (Ok((from, _)), _) => {
                    let reason = "it is neither file nor directory";
                    shared.left_out(&source.place(&from), reason);
                }
            }
        }
        Ok(())
    }

    /// What is in a directory of the source; nothing of one that cannot be read, which is told.
    fn entries(&self, from: &There) -> Result<Vec<Entry>, Gone> {
        let source = self.ends.source;
        let found = listing::whole(source.desk, source.lister(), from)?;
        Ok(found.unwrap_or_else(|reply| {
            let failure = failures::unreadable(source.place(from), reply.to_string());
            self.shared.tell(&failure);
            Vec::new()
        }))
    }

    fn directory(
        &self,
        folder: &Folder,
        entry: Entry,
        (from, to): (There, There),
        todo: &mut Vec<Folder>,
    ) {
        let mut above = folder.above.clone();
        if entry
            .unique
            .as_ref()
            .is_some_and(|unique| above.contains(unique))
        {
            let place = self.ends.source.place(&from);
            return self.shared.tell(&failures::circle(place));
        }
        above.extend(entry.unique);
        todo.push(Folder { from, to, above });
    }

    fn file(
        &mut self,
        entry: &Entry,
        from: There,
        to: There,
        token: Token,
        copies: &Found,
    ) -> Result<(), Gone> {
        let (shared, ends) = (self.shared, self.ends);
        let place = || ends.destination.place(&to);
        let pairs = [(ends.source, &from), (ends.destination, &to)];
        let cuts = |end: &End<'_>| Shared::cuts_names(end.server, &end.welcome.features);
        let cut = |(end, path): &(End<'_>, &There)| cuts(end) && !path.is_ascii();
        if let Some((end, path)) = pairs.into_iter().find(cut) {
            shared.tell(&failures::not_carried(end.place(path)));
            return Ok(());
        }
        let there = copies.named(ends.destination.desk, &to)?;
        let there = there.as_ref().map(Present::from);
        let same = || {
            let (source, destination) = (ends.source.desk, ends.destination.desk);
            let same = verify::is_same_at((source, &from), (destination, &to));
            matches!(same, Ok(Some(true)))
        };
        if judge(shared, place, Known::from(entry), there, true, same) != Verdict::Copy {
            return Ok(());
        }
        let Ok(temporary) = names::part(&to, token) else {
            shared.tell(&failures::no_path(place(), "one too long"));
            return Ok(());
        };
        self.found.push(Wanted {
            modify_s: entry.modify_s,
            pair: Pair {
                transfer: self.found.len() as u64,
                from,
                to,
                temporary,
                size_bytes: entry.size_bytes,
            },
        });
        Ok(())
    }
}

/// What keeps a copy within a server from its place.
fn itself(root: &Root, recursive: bool) -> Option<Failure> {
    let (from, to) = (root.from.server.as_ref()?, root.to.server.as_ref()?);
    let place = |url: &Url| (url.host.to_ascii_lowercase(), url.port);
    if place(from) != place(to) {
        return None;
    }
    let within = roots::within(&root.from.bytes, &root.to.bytes)?;
    roots::itself(root.to.shown(), within, recursive)
}
