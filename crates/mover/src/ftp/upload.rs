//! What is to be uploaded: trees here are gone through, directories made at the server before anything goes into them, and what is there
//! already is listed once for each directory.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use venturi_gridftp::{Command, Entry, Mode, Path as There, Site};

use super::batch::{Batch, FOLDERS_AHEAD, ROOTS_AHEAD};
use super::chunks::{LARGE_BYTES, SHARED_BYTES};
use super::desk::{Desk, Gone, entry_of, reply_of};
use super::failures;
use super::files::{Known, Store};
use super::judge::{Present, Verdict, judge};
use super::links::{self, Stored};
use super::listing::{Found, Lister};
use super::manner::Welcome;
use super::messages::Question;
use super::names;
use super::opener;
use super::parts::Parts;
use super::places::{Root, Spot};
use super::shared::Shared;
use super::verify;
use super::ways::Ways;
use super::work::Job;
use crate::attributes::Facts;
use crate::error::said;
use crate::order::Existing;
use crate::temporary::Token;
use alone::Alone;
use tree::Made;

mod alone;
mod tree;

/// Looks for all that is to be uploaded.
pub(crate) struct Upload<'d> {
    shared: &'d Shared<'d>,
    desk: &'d Desk,
    lister: Lister,
    cuts_names: bool,
    /// Whether the server takes parts of files.
    takes_parts: bool,
    /// A file of this size goes in chunks.
    large_bytes: u64,
    /// Whether files go over one connection each, in order.
    in_order: bool,
    batch: Batch<'d>,
    made: Vec<Made>,
    /// Files that are kept, and lack their modes.
    modes: Vec<(There, u32)>,
    /// Links, which are made when what they lead to is there.
    links: Vec<Stored>,
    ways: Ways,
    alone: Alone,
}

impl<'d> Upload<'d> {
    pub(crate) fn new(shared: &'d Shared<'d>, desk: &'d Desk, welcome: &Welcome) -> Self {
        Self {
            shared,
            desk,
            lister: Lister::of(&welcome.features),
            cuts_names: Shared::cuts_names(&shared.server, &welcome.features),
            // In MODE S only its size would tell whether a part is whole.
            takes_parts: welcome.mode == Mode::Extended && Parts::are_taken(&welcome.features),
            large_bytes: SHARED_BYTES,
            in_order: welcome.mode == Mode::Stream,
            batch: Batch::new(shared),
            made: Vec::new(),
            modes: Vec::new(),
            links: Vec::new(),
            ways: Ways::default(),
            alone: Alone::default(),
        }
    }

    /// Looks at all sources.
    pub(crate) fn look(&mut self, roots: &[Root]) {
        if !self.shared.order.dry_run
            && let Err(root) = self.alone.claim(roots)
        {
            let place = root.to.shown();
            return self.shared.tell(&failures::not_alone(place));
        }
        if let [root] = roots
            && !root.from.here().is_dir()
        {
            // One session has all of it.
            self.large_bytes = LARGE_BYTES;
        }
        // Who replaces needs not know what is there; of many the server is asked ahead.
        let replaces = self.shared.order.existing == Existing::Replace;
        let mut waiting = roots.iter();
        let mut asked = VecDeque::new();
        for root in roots {
            while !replaces
                && asked.len() < ROOTS_AHEAD
                && let Some(next) = waiting.next()
            {
                let question = next.to.there().map(|to| Command::Mlst(Some(to)));
                asked.push_back(question.map(|what| self.desk.ask(Question::Command(what))));
            }
            let found = match asked.pop_front() {
                None => Found::Nothing,
                Some(answer) => match answer.ok().as_ref().and_then(reply_of) {
                    Some(reply) => Found::Told(entry_of(&reply).map(Box::new)),
                    None => Found::Unknown,
                },
            };
            if self.shared.stop.asked() {
                break;
            }
            if let Err(Gone) = self.root(root, &found) {
                self.shared.gone();
                break;
            }
        }
        self.batch.give();
    }

    fn root(&mut self, root: &Root, found: &Found) -> Result<(), Gone> {
        let (shared, order) = (self.shared, self.shared.order);
        let from = root.from.here();
        let followed = order.follow || root.from.is_contents() || !order.recursive;
        let seen = match followed {
            true => fs::metadata(&from),
            false => fs::symlink_metadata(&from),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                shared.tell(&failures::nothing(from, said(&error)));
                return Ok(());
            }
        };
        if !(seen.is_file() || seen.is_dir() || seen.is_symlink()) {
            shared.tell(&failures::no_file(from, seen.file_type()));
            return Ok(());
        }
        let Some(to) = self.name(&root.to) else {
            return Ok(());
        };
        if root.make_way && !order.dry_run {
            let place = |path: &There| shared.place(path);
            if !self.ways.make(shared, self.desk, &to, &place)? {
                return Ok(());
            }
        }
        let token = names::token(&root.from, &root.to);
        if seen.is_symlink() {
            // As in a tree.
            self.links.push(Stored { from, to, token });
            return Ok(());
        }
        if seen.is_file() {
            return self.file(from, to, token, &seen, found);
        }
        if !order.recursive {
            shared.tell(&failures::not_recursive(from));
            return Ok(());
        }
        let folder = self.folder(from, to, token, &seen, Vec::new());
        let journal = names::journal(&root.from, &root.to).there().ok();
        self.tree(folder, journal)
    }

    /// The path of a copy at the server; none, and told, if the server would not understand it.
    fn name(&self, spot: &Spot) -> Option<There> {
        match spot.there() {
            Ok(path) => self.is_carried(&path).then_some(path),
            Err(error) => {
                let failure = failures::no_path(spot.shown(), error.to_string());
                self.shared.tell(&failure);
                None
            }
        }
    }

    fn is_carried(&self, path: &There) -> bool {
        self.shared.is_carried(path, self.cuts_names)
    }

    fn file(
        &mut self,
        from: PathBuf,
        to: There,
        token: Token,
        seen: &fs::Metadata,
        found: &Found,
    ) -> Result<(), Gone> {
        let (shared, known) = (self.shared, Known::from(seen));
        let there = found.named(self.desk, &to)?;
        let present = there.as_ref().map(Present::from);
        // Where the session is lost it is sent by another.
        let same = || verify::is_same(self.desk, &to, &from).unwrap_or(false);
        let verdict = judge(shared, || shared.place(&to), known, present, true, same);
        if verdict == Verdict::Kept {
            self.mend_mode(there.as_ref(), to, seen.mode() & 0o7777);
            return Ok(());
        }
        if verdict == Verdict::Told {
            return Ok(());
        }
        let large = self.takes_parts && seen.len() >= self.large_bytes;
        let goes_on = match self.in_order && seen.len() >= LARGE_BYTES {
            true => rustix::fs::stat(&from).ok().map(Facts::from),
            false => None,
        };
        let last = (seen.len(), seen.mtime(), seen.mtime_nsec());
        let goes_on = goes_on.filter(|f| (f.size, f.modified.0, f.modified.1) == last);
        let of_version = |how| {
            let version = format!("{} {}.{}{how}", last.0, last.1, last.2);
            names::part_of_version(&to, token, &version)
        };
        // Chunks leave holes, and what comes in order has none: the one is not to be taken for the other.
        let part = match (large, goes_on) {
            (true, _) => of_version(""),
            (_, Some(_)) => of_version(" in order"),
            _ => names::part(&to, token),
        };
        let store = part.map(|part| Store {
            from,
            to: to.clone(),
            part,
            known,
            goes_on,
        });
        match store.map(Arc::new) {
            Ok(store) if large => return self.large(store, found),
            Ok(store) => self.batch.push(Job::Store(store)),
            Err(error) => {
                let place = shared.place(&to);
                shared.tell(&failures::no_path(place, error.to_string()));
            }
        }
        Ok(())
    }

    /// Has a large file go in chunks: those that the server does not have yet.
    fn large(&mut self, store: Arc<Store>, found: &Found) -> Result<(), Gone> {
        let shared = self.shared;
        let mut entry = self.part_there(&store.part, found)?;
        let (file, facts) =
            match opener::file(&store, shared.order.follow || !shared.order.recursive) {
                Ok(found) => found,
                Err(failure) => {
                    shared.tell(&failure);
                    return Ok(());
                }
            };
        let bytes = |entry: &Entry| entry.size_bytes.unwrap_or(0);
        if entry.as_ref().map_or(0, bytes) > facts.size {
            // What is too long no chunk mends.
            self.desk.call(&Command::Dele(store.part.clone()))?;
            entry = None;
        }
        let there = entry.as_ref().map_or(0, bytes);
        let source = (&file, facts.size);
        let present = verify::present(self.desk, shared.stop, &store, source, there);
        let chunks = Parts::count(facts.size);
        if !present.is_empty() {
            let place = shared.place(&store.to);
            shared
                .report
                .chunks_kept(&place, present.len() as u64, chunks);
        }
        let missing = chunks - present.len() as u64;
        let parts = Arc::new(Parts::new(store, facts, missing));
        if !present.is_empty() {
            parts.is_same(entry.as_ref());
        }
        for index in (0..chunks).filter(|index| !present.contains(index)) {
            self.batch.push(Job::Part(Arc::clone(&parts), index));
        }
        if missing == 0 {
            self.batch.push(Job::Name(parts));
        }
        self.batch.give();
        Ok(())
    }

    /// The temporary file at the server, if there is one.
    fn part_there(&self, part: &There, found: &Found) -> Result<Option<Entry>, Gone> {
        let replaces = self.shared.order.existing == Existing::Replace;
        match found {
            Found::Nothing if !replaces => Ok(None),
            Found::Entries(_) => found.named(self.desk, part),
            // Of what is to be replaced nobody has asked what there is.
            Found::Nothing | Found::Told(_) | Found::Unknown => self.desk.see(part),
        }
    }

    /// A file gets its mode after its name: whoever was killed between the two has left it with the server's.
    fn mend_mode(&mut self, there: Option<&Entry>, to: There, mode: u32) {
        let found = there.and_then(|there| there.mode);
        let is_other = found.is_some_and(|found| found & 0o7777 != mode);
        if is_other && self.shared.order.preserve.mode && differs(mode, 0o644) {
            self.modes.push((to, mode));
        }
    }

    /// Gives directories their modes and times when all is in them, and takes the journals away if nothing has failed.
    pub(crate) fn finish(self, whole: bool) -> Result<(), Gone> {
        let order = self.shared.order;
        if order.dry_run || self.shared.stop.asked() {
            return Ok(());
        }
        for link in &self.links {
            links::store(self.shared, self.desk, link)?;
        }
        let modes = self.modes.into_iter().chain(self.shared.modes());
        let files = modes.map(|(path, mode)| chmod(path, mode));
        // The deepest first: what is done in one changes the time of the one that it is in, and until all have their modes a copy is not done.
        let folders = self.made.into_iter().rev();
        let folders = folders.flat_map(|made| made.commands(order.preserve, whole));
        let (shared, desk) = (self.shared, self.desk);
        let hear = |(answers, command): (_, Command)| {
            let reply = desk.hear(&answers, &command)?;
            // Times that are not set are those of the copy.
            if let Command::Site(Site::Chmod { path, .. }) = &command {
                shared.see_mode(path, &reply);
            }
            Ok(())
        };
        // Answers are not waited for one by one.
        let mut asked = VecDeque::new();
        for command in files.chain(folders) {
            asked.push_back((desk.ask(Question::Command(command.clone())), command));
            if asked.len() >= FOLDERS_AHEAD {
                asked.pop_front().map_or(Ok(()), hear)?;
            }
        }
        asked.into_iter().try_for_each(hear)
    }
}

/// Sets a mode at a server.
pub(crate) fn chmod(path: There, mode: u32) -> Command {
    let mode = mode & 0o7777;
    Command::Site(Site::Chmod { mode, path })
}

/// Whether permission bits are others than those that servers give by themselves: only then they are worth a command.
pub(crate) fn differs(mode: u32, usual: u32) -> bool {
    mode & 0o7777 != usual
}
