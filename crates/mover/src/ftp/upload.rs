//! What is to be uploaded: trees here are gone through, directories made at the server before anything goes into them, and what is there
//! already is listed once for each directory.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use venturi_gridftp::{Command, Entry, Kind, Path as There, Reply, Site};

use super::crew::{Desk, Gone, Welcome, entry_of, reply_of};
use super::download::token;
use super::listing::{self, Lister};
use super::places::{Root, Spot};
use super::session::{Answer, Question};
use super::shared::Shared;
use super::verify;
use super::work::{Job, Known, Store};
use crate::error::{Failure, said};
use crate::order::Existing;
use crate::temporary::Token;

/// Directories that are being made at a time: their answers fill a path of 200 ms.
const ASKED_AHEAD: usize = 64;
/// Copies that the server is asked for at a time before they are begun.
const ROOTS_AHEAD: usize = 256;
/// Items that are given to the sessions at a time.
const BATCH: usize = 32;
/// Below so many files in a directory that is there, each is looked at by itself: the directory may have a million others.
const WORTH_A_LISTING: usize = 4;

/// Looks for all that is to be uploaded.
pub(crate) struct Upload<'d> {
    shared: &'d Shared<'d>,
    desk: &'d Desk,
    lister: Lister,
    cuts_names: bool,
    batch: Vec<Job>,
    made: Vec<Made>,
    /// Links, which are made when what they lead to is there.
    links: Vec<(PathBuf, There)>,
    /// Directories at the server that tell that a copy is not done.
    journals: Vec<There>,
    /// Directories above copies that were made, or found.
    ways: HashMap<Vec<u8>, bool>,
}

/// A directory at the server, and what its source has.
struct Made {
    path: There,
    mode: u32,
    modify_s: i64,
    /// Whether it is new: its mode is then ours to set.
    fresh: bool,
}

/// A directory that is being made.
struct Folder {
    from: PathBuf,
    to: There,
    token: Token,
    mode: u32,
    modify_s: i64,
    /// Directories that it is in, to know when a link leads back into one.
    above: Vec<(u64, u64)>,
    asked: Option<Receiver<(u64, Answer)>>,
}

/// What is at the server under a name.
enum Found {
    /// Nothing can be: the directory is ours and new.
    Nothing,
    /// These.
    Entries(HashMap<Vec<u8>, Entry>),
    /// This, or nothing.
    Told(Option<Box<Entry>>),
    /// It has to be asked for each.
    Unknown,
}

/// The directory at the server that tells that a tree is not done.
pub(crate) fn journal(from: &Spot, to: &Spot) -> Spot {
    to.join(token(from, to).journal().as_bytes())
}

impl<'d> Upload<'d> {
    pub(crate) fn new(shared: &'d Shared<'d>, desk: &'d Desk, welcome: &Welcome) -> Self {
        Self {
            shared,
            desk,
            lister: Lister::of(&welcome.features),
            cuts_names: Shared::cuts_names(&shared.server, &welcome.features),
            batch: Vec::new(),
            made: Vec::new(),
            links: Vec::new(),
            journals: Vec::new(),
            ways: HashMap::new(),
        }
    }

    /// Looks at all sources.
    pub(crate) fn look(&mut self, roots: &[Root]) {
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
        self.give_batch();
    }

    fn fail(&self, failure: &Failure) {
        self.shared.tell(failure);
    }

    fn root(&mut self, root: &Root, found: &Found) -> Result<(), Gone> {
        let order = self.shared.order;
        let from = root.from.here();
        let followed = order.follow || root.from.is_contents() || !order.recursive;
        let seen = match followed {
            true => fs::metadata(&from),
            false => fs::symlink_metadata(&from),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let advice = "name one that is there";
                let failure = Failure::found(from, "a file or directory", said(&error), advice);
                self.fail(&failure);
                return Ok(());
            }
        };
        let Some(to) = self.name(&root.to) else {
            return Ok(());
        };
        if root.make_way && !order.dry_run && !self.make_way(&to)? {
            return Ok(());
        }
        let token = token(&root.from, &root.to);
        if !seen.is_dir() {
            self.file(from, to, token, &seen, found)?;
            if self.batch.len() >= BATCH {
                self.give_batch();
            }
            return Ok(());
        }
        if !order.recursive {
            let advice = "say --recursive to copy directories";
            self.fail(&Failure::found(from, "a file", "a directory", advice));
            return Ok(());
        }
        let folder = self.folder(from, to, token, &seen, Vec::new());
        let journal = journal(&root.from, &root.to).there().ok();
        self.tree(folder, journal)
    }

    /// The path of a copy at the server; none, and told, if the server would not understand it.
    fn name(&self, spot: &Spot) -> Option<There> {
        let path = match spot.there() {
            Ok(path) => path,
            Err(error) => {
                let advice = "give it another name first";
                let failure = Failure::found(spot.shown(), "a path", error.to_string(), advice);
                self.fail(&failure);
                return None;
            }
        };
        self.is_carried(&path).then_some(path)
    }

    fn is_carried(&self, path: &There) -> bool {
        if !self.cuts_names || path.is_ascii() {
            return true;
        }
        let advice = "give it a name of ASCII letters, or use a server with certificates (gsiftp) or one of HTTP";
        let expected = "a name that the server understands";
        let found = "one with bytes above 127, which a Globus server drops from names on an open control connection";
        self.fail(&Failure::found(
            self.shared.place(path),
            expected,
            found,
            advice,
        ));
        false
    }

    /// Makes the directories that lead to a copy. Whether they are there.
    fn make_way(&mut self, to: &There) -> Result<bool, Gone> {
        let (parent, _) = to.split();
        if let Some(&there) = self.ways.get(parent.as_bytes()) {
            return Ok(there);
        }
        let mut there = self.desk.see(&parent)?.is_some();
        if !there && parent.as_bytes() != b"/" && parent != *to {
            there = self.make_way(&parent)?;
            if there {
                let reply = self.desk.call(&Command::Mkd(parent.clone()))?;
                there = reply.is_success() || self.desk.see(&parent)?.is_some();
                if !there {
                    self.not_made(&parent, &reply);
                }
            }
        }
        self.ways.insert(parent.as_bytes().to_vec(), there);
        Ok(there)
    }

    fn not_made(&self, path: &There, reply: &Reply) {
        let advice = "mend that at the server, then run the same command again";
        let expected = "a directory, or a place for one";
        let place = self.shared.place(path);
        self.fail(&Failure::found(place, expected, reply.to_string(), advice));
    }

    fn folder(
        &self,
        from: PathBuf,
        to: There,
        token: Token,
        seen: &fs::Metadata,
        above: Vec<(u64, u64)>,
    ) -> Folder {
        let ask = |to: &There| self.desk.ask(Question::Command(Command::Mkd(to.clone())));
        let asked = (!self.shared.order.dry_run).then(|| ask(&to));
        let mut above = above;
        above.push((seen.dev(), seen.ino()));
        Folder {
            from,
            to,
            token,
            mode: seen.mode(),
            modify_s: seen.mtime(),
            above,
            asked,
        }
    }

    /// Through a tree: directories are asked for ahead, and what is in one goes when it is there.
    fn tree(&mut self, root: Folder, journal: Option<There>) -> Result<(), Gone> {
        let mut todo = VecDeque::from([root]);
        let mut journal = journal;
        while let Some(folder) = todo.pop_front() {
            if self.shared.stop.asked() {
                return Ok(());
            }
            let Some(fresh) = self.await_folder(&folder)? else {
                continue;
            };
            if let Some(journal) = journal.take()
                && !self.shared.order.dry_run
            {
                // A name for the same command to find; that it is there already says the same.
                self.desk.call(&Command::Mkd(journal.clone()))?;
                self.journals.push(journal);
            }
            self.shared.totals.count(&self.shared.totals.directories);
            self.made.push(Made {
                path: folder.to.clone(),
                mode: folder.mode,
                modify_s: folder.modify_s,
                fresh,
            });
            self.contents(&folder, fresh, &mut todo)?;
        }
        Ok(())
    }

    /// Waits for a directory that was asked for. Whether it is new; none if there is no place for it, which is told.
    fn await_folder(&mut self, folder: &Folder) -> Result<Option<bool>, Gone> {
        let Some(asked) = &folder.asked else {
            return Ok(Some(self.desk.see(&folder.to)?.is_none()));
        };
        let reply = match reply_of(asked) {
            Some(reply) => reply,
            None => self.desk.call(&Command::Mkd(folder.to.clone()))?,
        };
        if reply.is_success() {
            return Ok(Some(true));
        }
        let there = self.desk.see(&folder.to)?;
        if there.is_some_and(|entry| matches!(entry.kind, Some(Kind::Directory | Kind::Current))) {
            return Ok(Some(false));
        }
        self.not_made(&folder.to, &reply);
        Ok(None)
    }

    fn contents(
        &mut self,
        folder: &Folder,
        fresh: bool,
        todo: &mut VecDeque<Folder>,
    ) -> Result<(), Gone> {
        let names = fs::read_dir(&folder.from).and_then(|entries| {
            let names = entries
                .map(|entry| Ok((entry.as_ref().map_err(clone_of)?.file_name(), entry?.path())));
            names.collect::<std::io::Result<Vec<_>>>()
        });
        let names = match names {
            Ok(names) => names,
            Err(error) => {
                let advice = "get the right to it, or leave it out, and run the same command again";
                let expected = "a directory that can be read";
                let failure = Failure::found(folder.from.clone(), expected, said(&error), advice);
                self.fail(&failure);
                return Ok(());
            }
        };
        let found = if fresh || self.shared.order.existing == Existing::Replace {
            Found::Nothing
        } else if names.len() < WORTH_A_LISTING {
            Found::Unknown
        } else {
            let entries = listing::whole(self.desk, self.lister, &folder.to)?;
            let named = entries.into_iter().map(|entry| (entry.name.clone(), entry));
            Found::Entries(named.collect())
        };
        for (name, from) in names {
            if self.shared.stop.asked() {
                return Ok(());
            }
            self.entry(folder, &name, from, &found, todo)?;
            if self.batch.len() >= BATCH {
                self.give_batch();
            }
        }
        self.give_batch();
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        from: PathBuf,
        found: &Found,
        todo: &mut VecDeque<Folder>,
    ) -> Result<(), Gone> {
        let order = self.shared.order;
        let seen = match order.follow {
            true => fs::metadata(&from),
            false => fs::symlink_metadata(&from),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let advice = "it went away meanwhile; run the same command again";
                let failure = Failure::found(from, "to see what it is", said(&error), advice);
                self.fail(&failure);
                return Ok(());
            }
        };
        let slash: &[u8] = if folder.to.as_bytes().ends_with(b"/") {
            b""
        } else {
            b"/"
        };
        let to = There::new([folder.to.as_bytes(), slash, name.as_bytes()].concat());
        let Ok(to) = to else {
            let advice = "give it another name first";
            let expected = "a name without line ends";
            self.fail(&Failure::found(from, expected, "another", advice));
            return Ok(());
        };
        if !self.is_carried(&to) {
            return Ok(());
        }
        if seen.is_dir() {
            if folder.above.contains(&(seen.dev(), seen.ino())) {
                let advice = "leave --follow out, or remove the link";
                let expected = "a directory to be copied";
                let found = "one that it is in, through a link";
                self.fail(&Failure::found(from, expected, found, advice));
                return Ok(());
            }
            let folder = self.folder(from, to, folder.token, &seen, folder.above.clone());
            todo.push_back(folder);
            // More than these are asked for when these are there.
            if todo.len() >= ASKED_AHEAD {
                self.give_batch();
            }
            return Ok(());
        }
        if seen.is_symlink() {
            self.links.push((from, to));
            return Ok(());
        }
        if !seen.is_file() {
            let reason = "it is neither file, directory nor link";
            self.shared.left_out(&from, reason);
            return Ok(());
        }
        self.file(from, to, folder.token, &seen, found)
    }

    /// A link stays one, where the server can make it. Servers of the Globus toolkit make links to what is there alone, and have them lead from
    /// the root on.
    fn link(&self, from: &Path, to: &There) -> Result<(), Gone> {
        let shared = self.shared;
        if shared.order.dry_run {
            return Ok(());
        }
        let target = fs::read_link(from).ok();
        let target = target.and_then(|target| There::new(target.as_os_str().as_bytes()).ok());
        let target = target.and_then(|target| target.normalised(&to.split().0).ok());
        let mut made = false;
        if let Some(target) = target {
            let there = self.desk.see(to)?;
            let leads = there.as_ref().and_then(|entry| entry.target.as_deref());
            if leads == Some(target.as_bytes()) {
                shared.kept(|| shared.place(to), 0);
                return Ok(());
            }
            if there.is_some() {
                self.desk.call(&Command::Dele(to.clone()))?;
            }
            let first = Command::Site(Site::SymlinkFrom(target));
            let second = Command::Site(Site::SymlinkTo(to.clone()));
            made =
                self.desk.call(&first)?.is_intermediate() && self.desk.call(&second)?.is_success();
        }
        if made {
            shared.totals.count(&shared.totals.links);
            if shared.report.tells_files() {
                shared.report.file(&shared.place(to), 0, "link", None);
            }
        } else {
            let reason = "a link, which the server does not make; --follow copies what it leads to";
            shared.left_out(from, reason);
        }
        Ok(())
    }

    fn file(
        &mut self,
        from: PathBuf,
        to: There,
        token: Token,
        seen: &fs::Metadata,
        found: &Found,
    ) -> Result<(), Gone> {
        let shared = self.shared;
        let size = seen.len();
        let (parent, name) = to.split();
        let there = match found {
            Found::Nothing => None,
            Found::Entries(entries) => entries.get(name).cloned(),
            Found::Told(entry) => entry.as_deref().cloned(),
            Found::Unknown => self.desk.see(&to)?,
        };
        if let Some(there) = there {
            if matches!(there.kind, Some(Kind::Directory | Kind::Current)) {
                let advice = "remove it, or name another destination";
                let place = shared.place(&to);
                self.fail(&Failure::found(
                    place,
                    "a file or nothing",
                    "a directory",
                    advice,
                ));
                return Ok(());
            }
            let keep = match shared.order.existing {
                Existing::Keep => true,
                Existing::Replace => false,
                Existing::Update if there.size_bytes != Some(size) => false,
                Existing::Update if shared.order.checksum => {
                    verify::is_same(self.desk, &to, &from)?
                }
                Existing::Update => there.modify_s == Some(seen.mtime()),
            };
            if keep {
                shared.kept(|| shared.place(&to), size);
                return Ok(());
            }
        }
        if shared.order.dry_run {
            shared.would_copy(|| shared.place(&to), size);
            return Ok(());
        }
        let part = token.part(name);
        let slash: &[u8] = if parent.as_bytes().ends_with(b"/") {
            b""
        } else {
            b"/"
        };
        let part = There::new([parent.as_bytes(), slash, part.as_bytes()].concat());
        let part = match part {
            Ok(part) => part,
            Err(error) => {
                let advice = "give it a shorter name first";
                let place = shared.place(&to);
                self.fail(&Failure::found(place, "a path", error.to_string(), advice));
                return Ok(());
            }
        };
        let known = Known {
            size: Some(size),
            modify_s: Some(seen.mtime()),
            mode: Some(seen.mode() & 0o7777),
        };
        self.batch.push(Job::Store(Arc::new(Store {
            from,
            to,
            part,
            known,
        })));
        Ok(())
    }

    fn give_batch(&mut self) {
        if !self.batch.is_empty() {
            let stop = self.shared.stop;
            self.shared
                .queue
                .push(self.batch.drain(..), || stop.asked());
        }
    }

    /// Gives directories their modes and times when all is in them, and takes the journals away if nothing has failed.
    pub(crate) fn finish(self, whole: bool) -> Result<(), Gone> {
        let order = self.shared.order;
        if order.dry_run || self.shared.stop.asked() {
            return Ok(());
        }
        for (from, to) in &self.links {
            self.link(from, to)?;
        }
        if whole {
            for journal in &self.journals {
                self.desk.call(&Command::Rmd(journal.clone()))?;
            }
        }
        // Answers are not waited for one by one; what a server does not set, it does not have.
        let mut asked = VecDeque::new();
        // The deepest first: what is done in one changes the time of the one that it is in.
        for made in self.made.iter().rev() {
            if order.preserve.mode && made.fresh && differs(made.mode, 0o755) {
                let (mode, path) = (made.mode & 0o7777, made.path.clone());
                let command = Command::Site(Site::Chmod { mode, path });
                asked.push_back(self.desk.ask(Question::Command(command)));
            }
            if order.preserve.times {
                let (time_s, path) = (made.modify_s, made.path.clone());
                let command = Command::Mfmt { time_s, path };
                asked.push_back(self.desk.ask(Question::Command(command)));
            }
            if asked.len() >= ASKED_AHEAD {
                asked.pop_front().map(|answers| reply_of(&answers));
            }
        }
        asked.iter().for_each(|answers| drop(reply_of(answers)));
        Ok(())
    }
}

/// Whether permission bits are others than those that servers give by themselves: only then they are worth a command.
pub(crate) fn differs(mode: u32, usual: u32) -> bool {
    mode & 0o7777 != usual
}

fn clone_of(error: &std::io::Error) -> std::io::Error {
    error.kind().into()
}
