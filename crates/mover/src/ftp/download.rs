//! What is to be downloaded: sources are looked at, directories listed and made here, files judged and given to the sessions while others are
//! still looked for.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags};
use venturi_gridftp::{Entry, Kind, Path as There};

use super::chunks::{LARGE_BYTES, Large};
use super::crew::{Desk, Gone, Welcome, entry_of, reply_of};
use super::listing::{Asked, Heard, Lister};
use super::places::{Root, Spot};
use super::session::Question;
use super::shared::Shared;
use super::verify;
use super::work::{Fetch, Job, Known};
use super::writer::times;
use crate::attributes::Facts;
use crate::error::{Failure, said};
use crate::journal::Journal;
use crate::order::Existing;
use crate::temporary::Token;

/// Questions that are under way at a time: their answers fill a path of 200 ms.
const ASKED_AHEAD: usize = 64;
/// Sources that are asked for at a time.
const ROOTS_AHEAD: usize = 256;
/// Items that are given to the sessions at a time.
const BATCH: usize = 32;
/// How often a directory is asked for again whose session was lost.
const MOST_TRIES: u32 = 3;

/// Looks for all that is to be downloaded.
pub(crate) struct Download<'d> {
    shared: &'d Shared<'d>,
    desk: &'d Desk,
    lister: Lister,
    cuts_names: bool,
    regions: bool,
    batch: Vec<Job>,
    /// Directories that were made or found here, in the order in which they were.
    made: Vec<Made>,
    trees: Vec<Tree>,
}

/// A directory here.
struct Made {
    path: PathBuf,
    known: Known,
}

/// A tree that is being copied.
struct Tree {
    journal: Option<Journal>,
    folder: OwnedFd,
}

/// A directory whose entries are to be copied.
struct Folder {
    from: There,
    to: PathBuf,
    token: Token,
    /// Whether nothing can be in its copy that we did not put there.
    fresh: bool,
    tries: u32,
    /// The first directory of the tree, and the length of its path: links within it stay links.
    root_bytes: usize,
    /// What the server calls the directories that it is in, to know when a link leads back into one.
    above: Vec<String>,
}

/// The names of a copy's temporary files follow from its two places.
pub(crate) fn token(from: &Spot, to: &Spot) -> Token {
    let absolute = |spot: &Spot| match spot.server {
        Some(_) => {
            let text = spot
                .shown()
                .to_string_lossy()
                .trim_end_matches('/')
                .to_owned();
            PathBuf::from(text)
        }
        None => {
            let path = spot.here();
            let path = std::path::absolute(&path).unwrap_or(path);
            path.components().collect()
        }
    };
    Token::new(&absolute(from), &absolute(to))
}

/// Whether a directory here is the unfinished copy of a source under this very name.
pub(crate) fn is_unfinished(from: &Spot, to: &Spot) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(to.here(), flags, Mode::empty());
    folder.is_ok_and(|folder| Journal::is_in(folder.as_fd(), token(from, to)))
}

impl<'d> Download<'d> {
    pub(crate) fn new(shared: &'d Shared<'d>, desk: &'d Desk, welcome: &Welcome) -> Self {
        Self {
            shared,
            desk,
            lister: Lister::of(&welcome.features),
            cuts_names: Shared::cuts_names(&shared.server, &welcome.features),
            regions: welcome.features.has("ERET"),
            batch: Vec::new(),
            made: Vec::new(),
            trees: Vec::new(),
        }
    }

    /// Looks at all sources.
    pub(crate) fn look(&mut self, roots: Vec<Root>) {
        let mut waiting = VecDeque::new();
        let mut roots = roots.into_iter();
        // Each turn sends questions or takes an answer.
        while !self.shared.stop.asked() {
            while waiting.len() < ROOTS_AHEAD
                && let Some(root) = roots.next()
            {
                match root.from.there() {
                    Ok(path) if !self.is_carried(&path) => {}
                    Ok(path) => {
                        let question = venturi_gridftp::Command::Mlst(Some(path.clone()));
                        let answer = self.desk.ask(Question::Command(question));
                        waiting.push_back((root, path, answer));
                    }
                    Err(error) => {
                        let advice = "give it another name first";
                        let shown = root.from.shown();
                        self.fail(&Failure::found(shown, "a path", error.to_string(), advice));
                    }
                }
            }
            let Some((root, path, answer)) = waiting.pop_front() else {
                break;
            };
            let reply = match reply_of(&answer) {
                Some(reply) => Ok(reply),
                None => self
                    .desk
                    .call(&venturi_gridftp::Command::Mlst(Some(path.clone()))),
            };
            match reply {
                Ok(reply) => match entry_of(&reply) {
                    Some(entry) => self.root(&root, path, &entry),
                    None => {
                        let found = reply.to_string();
                        let advice = "name one that is there";
                        let expected = "a file or directory";
                        self.fail(&Failure::found(root.from.shown(), expected, found, advice));
                    }
                },
                Err(Gone) => {
                    self.shared.gone();
                    break;
                }
            }
        }
        self.give_batch();
    }

    fn fail(&self, failure: &Failure) {
        self.shared.tell(failure);
    }

    fn is_carried(&self, path: &There) -> bool {
        let carried = !self.cuts_names || path.is_ascii();
        if !carried {
            let advice = "give it a name of ASCII letters, or use a server with certificates (gsiftp) or one of HTTP";
            let expected = "a name that the server understands";
            let found = "one with bytes above 127, which a Globus server drops from names on an open control connection";
            let place = self.shared.place(path);
            self.fail(&Failure::found(place, expected, found, advice));
        }
        carried
    }

    fn root(&mut self, root: &Root, from: There, entry: &Entry) {
        let known = known(entry);
        let to = root.to.here();
        let token = token(&root.from, &root.to);
        if root.make_way
            && !self.shared.order.dry_run
            && let Some(parent) = to.parent()
            && let Err(error) = fs::create_dir_all(parent)
        {
            let advice = "mend that and run the same command again";
            let expected = "a directory, or a place for one";
            return self.fail(&Failure::found(
                parent.to_owned(),
                expected,
                said(&error),
                advice,
            ));
        }
        match entry.kind {
            Some(Kind::Directory | Kind::Current) if !self.shared.order.recursive => {
                let advice = "say --recursive to copy directories";
                self.fail(&Failure::found(
                    root.from.shown(),
                    "a file",
                    "a directory",
                    advice,
                ));
            }
            Some(Kind::Directory | Kind::Current) => {
                self.tree(from, to, token, known, entry.unique.clone());
            }
            _ => {
                self.file(from, to, token, known, false);
                if self.batch.len() >= BATCH {
                    self.give_batch();
                }
            }
        }
    }

    fn tree(
        &mut self,
        from: There,
        to: PathBuf,
        token: Token,
        known: Known,
        unique: Option<String>,
    ) {
        let opened = self.open_tree(&to, token);
        let fresh = match opened {
            Ok(fresh) => fresh,
            Err(failure) => return self.fail(&failure),
        };
        self.made.push(Made {
            path: to.clone(),
            known,
        });
        self.shared.totals.count(&self.shared.totals.directories);
        let folder = Folder {
            root_bytes: from.as_bytes().len(),
            from,
            to,
            token,
            fresh,
            tries: 0,
            above: unique.into_iter().collect(),
        };
        self.walk(folder);
    }

    /// Makes the copy of a tree's first directory, with a journal in it. Whether it is new.
    fn open_tree(&mut self, to: &Path, token: Token) -> Result<bool, Failure> {
        let order = self.shared.order;
        let failure = |found: String| {
            let advice = "mend that and run the same command again";
            let expected = "a directory, or a place for one";
            Failure::found(to.to_owned(), expected, found, advice)
        };
        if order.dry_run {
            return Ok(!to.exists());
        }
        let fresh = make(to).map_err(|error| failure(said(&error)))?;
        let kernel = |errno| failure(crate::error::reason(errno));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(to, flags, Mode::empty()).map_err(kernel)?;
        let journal = Journal::open(folder.as_fd(), token, order.sync, fresh);
        let journal = journal.map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => Failure::found(
                to.to_owned(),
                "a copy that nobody works on",
                "another copy of the same that goes on",
                "wait for it to end",
            ),
            errno => kernel(errno),
        })?;
        self.trees.push(Tree {
            journal: Some(journal),
            folder,
        });
        Ok(fresh)
    }

    /// Through a tree: some directories are asked for ahead.
    fn walk(&mut self, root: Folder) {
        let mut todo = vec![root];
        let mut asked: VecDeque<(Asked, Folder)> = VecDeque::new();
        while !self.shared.stop.asked() {
            while asked.len() < ASKED_AHEAD
                && let Some(folder) = todo.pop()
            {
                asked.push_back((Asked::new(self.desk, self.lister, &folder.from), folder));
            }
            let Some((mut listing, folder)) = asked.pop_front() else {
                return;
            };
            if let Err(Gone) = self.folder(&mut listing, &folder, &mut todo) {
                if folder.tries >= MOST_TRIES {
                    return self.shared.gone();
                }
                todo.push(Folder {
                    tries: folder.tries + 1,
                    ..folder
                });
            }
        }
    }

    fn folder(
        &mut self,
        listing: &mut Asked,
        folder: &Folder,
        todo: &mut Vec<Folder>,
    ) -> Result<(), Gone> {
        // A listing that is asked for again tells the same names again.
        let mut seen = HashSet::new();
        loop {
            let heard = match listing.next(true)? {
                Heard::Nothing => {
                    // What is known goes to the sessions before we wait.
                    self.give_batch();
                    listing.next(false)?
                }
                other => other,
            };
            match heard {
                Heard::Entry(entry) => {
                    if folder.tries == 0 || seen.insert(entry.name.clone()) {
                        self.entry(folder, &entry, todo);
                    }
                }
                Heard::End(reply) if reply.is_success() => return Ok(()),
                Heard::End(reply) => {
                    let advice =
                        "get the right to it, or leave it out, and run the same command again";
                    let place = self.shared.place(&folder.from);
                    let expected = "a directory that can be read";
                    self.fail(&Failure::found(place, expected, reply.to_string(), advice));
                    return Ok(());
                }
                Heard::Nothing => {}
            }
            if self.batch.len() >= BATCH {
                self.give_batch();
            }
        }
    }

    fn entry(&mut self, folder: &Folder, entry: &Entry, todo: &mut Vec<Folder>) {
        let below = |name: &[u8]| {
            let slash: &[u8] = if folder.from.as_bytes().ends_with(b"/") {
                b""
            } else {
                b"/"
            };
            There::new([folder.from.as_bytes(), slash, name].concat())
        };
        let (name, from) = match entry.safe_name().and_then(|name| Ok((name, below(name)?))) {
            Ok(found) => found,
            Err(error) => {
                let advice = "tell who runs the server; the rest goes on";
                let place = self.shared.place(&folder.from);
                let expected = "names of what is in it";
                return self.fail(&Failure::found(place, expected, error.to_string(), advice));
            }
        };
        use std::os::unix::ffi::OsStrExt;
        let to = folder.to.join(std::ffi::OsStr::from_bytes(name));
        let known = known(entry);
        // Servers of the Globus toolkit call a link what it leads to, and tell where that is.
        let is_link = entry.kind == Some(Kind::Link) || entry.target.is_some();
        match &entry.kind {
            _ if is_link && !self.shared.order.follow => self.link(folder, entry, &from, to),
            Some(Kind::Link) => {
                let reason = "a link of which the server does not tell what it leads to";
                self.shared.left_out(&self.shared.place(&from), reason);
            }
            Some(Kind::Directory) => self.directory(folder, entry, from, to, todo),
            Some(Kind::Other(what)) => {
                let reason = format!("it is neither file nor directory, but `{what}`");
                self.shared.left_out(&self.shared.place(&from), &reason);
            }
            _ => self.file(from, to, folder.token, known, folder.fresh),
        }
    }

    fn directory(
        &mut self,
        folder: &Folder,
        entry: &Entry,
        from: There,
        to: PathBuf,
        todo: &mut Vec<Folder>,
    ) {
        let mut above = folder.above.clone();
        if let Some(unique) = &entry.unique {
            if above.contains(unique) {
                let advice = "leave --follow out, or remove the link";
                let expected = "a directory to be copied";
                let found = "one that it is in, through a link";
                let place = self.shared.place(&from);
                return self.fail(&Failure::found(place, expected, found, advice));
            }
            above.push(unique.clone());
        }
        let made = if self.shared.order.dry_run {
            Ok(!to.exists())
        } else {
            make(&to)
        };
        match made {
            Ok(fresh) => {
                self.shared.totals.count(&self.shared.totals.directories);
                self.made.push(Made {
                    path: to.clone(),
                    known: known(entry),
                });
                todo.push(Folder {
                    from,
                    to,
                    token: folder.token,
                    fresh,
                    tries: 0,
                    root_bytes: folder.root_bytes,
                    above,
                });
            }
            Err(error) => {
                let advice = "mend that and run the same command again";
                let expected = "a directory, or a place for one";
                self.fail(&Failure::found(to, expected, said(&error), advice));
            }
        }
    }

    /// A link within a tree stays one. Where it leads is told from the root on, which is another one here.
    fn link(&mut self, folder: &Folder, entry: &Entry, from: &There, to: PathBuf) {
        let shared = self.shared;
        let root = &folder.from.as_bytes()[..folder.root_bytes];
        let target = entry.target.as_deref();
        let Some(target) = target.and_then(|target| within(root, folder.from.as_bytes(), target))
        else {
            let reason = "a link out of the tree, or of which the server does not tell where it leads; --follow copies what is there";
            return shared.left_out(&shared.place(from), reason);
        };
        if fs::read_link(&to).is_ok_and(|there| there == target) {
            return shared.kept(|| to, 0);
        }
        if !shared.order.dry_run {
            // A directory is not replaced by a link: removing it fails.
            let _ = fs::remove_file(&to);
            if let Err(error) = std::os::unix::fs::symlink(target, &to) {
                let advice = "mend that and run the same command again";
                let expected = "a place for a link";
                return self.fail(&Failure::found(to, expected, said(&error), advice));
            }
        }
        shared.totals.count(&shared.totals.links);
        if shared.report.tells_files() {
            shared.report.file(&to, 0, "link", None);
        }
    }

    fn file(&mut self, from: There, to: PathBuf, token: Token, known: Known, fresh: bool) {
        let shared = self.shared;
        if !self.is_carried(&from) {
            return;
        }
        if !fresh {
            match self.judge(&from, &to, known) {
                Ok(true) => return shared.kept(|| to, known.size.unwrap_or(0)),
                Ok(false) => {}
                Err(failure) => return self.fail(&failure),
            }
        }
        if shared.order.dry_run {
            return shared.would_copy(|| to, known.size.unwrap_or(0));
        }
        let name = |made: std::ffi::CString| {
            to.with_file_name(std::ffi::OsString::from_vec(made.into_bytes()))
        };
        let Some(last) = to.file_name().map(|name| {
            use std::os::unix::ffi::OsStrExt;
            name.as_bytes().to_vec()
        }) else {
            let advice = "name one";
            return self.fail(&Failure::found(to, "the name of a copy", "none", advice));
        };
        let part = name(token.part(&last));
        let record = name(token.progress(&last));
        let fetch = Arc::new(Fetch {
            from,
            part,
            to,
            known,
        });
        match known.size {
            Some(size) if size >= LARGE_BYTES && self.regions => self.large(fetch, size, record),
            _ => self.batch.push(Job::Fetch(fetch)),
        }
    }

    /// Has a large file come in chunks.
    fn large(&mut self, fetch: Arc<Fetch>, size: u64, record: PathBuf) {
        let shared = self.shared;
        let source = shared.place(&fetch.from).to_string_lossy().into_owned();
        let to = fetch.to.clone();
        match Large::open(fetch, size, &source, record, shared.order.sync) {
            Ok((large, missing)) => {
                let chunks = size.div_ceil(super::chunks::CHUNK_BYTES);
                let there = chunks - missing.len() as u64;
                if there > 0 {
                    let reason = format!(
                        "{}: an earlier copy was stopped after {there} of {chunks} chunks",
                        to.display()
                    );
                    shared.report.decision(&crate::tune::Decision {
                        what: "chunks_kept",
                        value: there,
                        reason,
                    });
                }
                let large = Arc::new(large);
                let chunk = |index| Job::Chunk(Arc::clone(&large), index);
                self.batch.extend(missing.into_iter().map(chunk));
                self.give_batch();
            }
            Err(rustix::io::Errno::WOULDBLOCK) => self.fail(&Failure::found(
                to,
                "a file that nobody writes to",
                "another copy of the same that is writing it",
                "wait for it to end",
            )),
            Err(errno) => self.fail(&Failure::kernel(
                to,
                "a place that can be written to",
                errno,
            )),
        }
    }

    /// Whether what is there is whole, or is to be kept whatever it is.
    fn judge(&self, from: &There, to: &Path, known: Known) -> Result<bool, Failure> {
        let there = match fs::symlink_metadata(to) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                let advice = "mend that and run the same command again";
                let expected = "to see what is there";
                return Err(Failure::found(
                    to.to_owned(),
                    expected,
                    said(&error),
                    advice,
                ));
            }
        };
        if there.is_dir() {
            let advice = "remove it, or name another destination";
            return Err(Failure::found(
                to.to_owned(),
                "a file or nothing",
                "a directory",
                advice,
            ));
        }
        Ok(match self.shared.order.existing {
            Existing::Keep => true,
            Existing::Replace => false,
            Existing::Update if !there.is_file() || known.size != Some(there.len()) => false,
            Existing::Update if self.shared.order.checksum => {
                // Where the session is lost it is fetched by another.
                verify::is_same(self.desk, from, to).unwrap_or(false)
            }
            // Servers tell times in whole seconds.
            Existing::Update => known.modify_s == Some(there.mtime()),
        })
    }

    fn give_batch(&mut self) {
        if !self.batch.is_empty() {
            let stop = self.shared.stop;
            self.shared
                .queue
                .push(self.batch.drain(..), || stop.asked());
        }
    }

    /// Gives directories their times and modes when all is in them, and takes the journals away if nothing has failed.
    pub(crate) fn finish(mut self, whole: bool) {
        for tree in std::mem::take(&mut self.trees) {
            if whole && let Some(journal) = tree.journal {
                let _ = journal.close(tree.folder.as_fd());
            }
        }
        let preserve = self.shared.order.preserve;
        if self.shared.order.dry_run || self.shared.stop.asked() {
            return;
        }
        // The deepest first: what is done in one changes the time of the one that it is in.
        for made in self.made.iter().rev() {
            if let Err(errno) = give(made, preserve.mode, preserve.times) {
                let expected = "to set mode and times";
                self.fail(&Failure::kernel(made.path.clone(), expected, errno));
            }
        }
    }
}

fn give(made: &Made, mode: bool, time: bool) -> Result<(), rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&made.path, flags, Mode::empty())?;
    if let Some(mode) = made.known.mode.filter(|_| mode) {
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode & 0o1777))?;
    }
    if let Some(modify_s) = made.known.modify_s.filter(|_| time) {
        rustix::fs::futimens(&folder, &times(modify_s))?;
    }
    Ok(())
}

/// Makes a directory, or finds it. Whether it is new.
fn make(path: &Path) -> io::Result<bool> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = rustix::fs::stat(path)?;
            let facts = Facts::from(there);
            if facts.kind != FileType::Directory {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Where a link in `folder` leads, as seen from there; none if that is not below `root`. A target that is relative is taken as it is if it stays
/// below.
fn within(root: &[u8], folder: &[u8], target: &[u8]) -> Option<PathBuf> {
    let folder = There::new(folder).ok()?;
    let absolute = There::new(target).ok()?.normalised(&folder).ok()?;
    let root = There::new(root).ok()?.normalised(&There::root()).ok()?;
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    };
    let (root, at, goal) = (
        names(root.as_bytes()),
        names(folder.as_bytes()),
        names(absolute.as_bytes()),
    );
    if !goal.starts_with(&root) {
        return None;
    }
    let same = at.iter().zip(&goal).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(OsString::from(".."), at.len() - same);
    let down = goal[same..].iter().cloned().map(OsString::from_vec);
    let path: PathBuf = up.chain(down).collect();
    Some(if path.as_os_str().is_empty() {
        ".".into()
    } else {
        path
    })
}

fn known(entry: &Entry) -> Known {
    Known {
        size: entry.size_bytes,
        modify_s: entry.modify_s,
        mode: entry.mode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_within_a_tree_leads_to_the_same_place_of_the_copy() {
        let check = |root: &str, folder: &str, target: &str, expected: Option<&str>| {
            let found = within(root.as_bytes(), folder.as_bytes(), target.as_bytes());
            assert_eq!(found, expected.map(PathBuf::from), "{folder} {target}");
        };
        check("/r", "/r/a", "/r/b/c", Some("../b/c"));
        check("/r", "/r/a", "/r/a/c", Some("c"));
        check("/r", "/r/a/b", "/r", Some("../.."));
        check("/r", "/r", "/r", Some("."));
        check("/r", "/r/a", "../b", Some("../b"));
        check("/r", "/r/a", "../../etc/passwd", None);
        check("/r", "/r/a", "/etc/passwd", None);
        check("/r", "/r/a", "/root/b", None);
        check("/", "/a", "/etc", Some("../etc"));
    }
}
