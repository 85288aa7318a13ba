//! What is to be downloaded: sources are looked at, directories listed and made here, files judged and given to the sessions while others are
//! still looked for.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use venturi_gridftp::{Command, Entry, Kind, Mode, Path as There, Reply};

use super::batch::{Batch, ROOTS_AHEAD};
use super::chunks::{self, LARGE_BYTES, Large};
use super::desk::{Desk, Gone, entry_of, reply_of};
use super::failures;
use super::files::{Fetch, Known};
use super::judge::{Present, Verdict, judge};
use super::listing::Lister;
use super::manner::Welcome;
use super::messages::{Answer, Question};
use super::names;
use super::places::{Root, Spot};
use super::shared::Shared;
use super::verify;
use super::work::Job;
use crate::error::{Failure, said};
use crate::journal::Origin;
use crate::roots::{self, make_way};
use tree::{Made, Tree};

mod tree;

/// Looks for all that is to be downloaded.
pub(crate) struct Download<'d> {
    shared: &'d Shared<'d>,
    desk: &'d Desk,
    lister: Lister,
    cuts_names: bool,
    regions: bool,
    /// Whether files come in one connection each, in order.
    in_order: bool,
    batch: Batch<'d>,
    /// Directories that were made or found here, in the order in which they were.
    made: Vec<Made>,
    trees: Vec<Tree>,
    /// Directories that roots were put into.
    around: BTreeSet<PathBuf>,
}

/// A source that the server is asked for.
struct Asked {
    root: Root,
    path: There,
    answer: Receiver<(u64, Answer)>,
}

/// Whether a directory here is the unfinished copy of a source under this very name.
pub(crate) fn is_unfinished(from: &Spot, to: &Spot) -> bool {
    roots::is_unfinished(&to.here(), names::token(from, to))
}

impl<'d> Download<'d> {
    pub(crate) fn new(shared: &'d Shared<'d>, desk: &'d Desk, welcome: &Welcome) -> Self {
        Self {
            shared,
            desk,
            lister: Lister::of(&welcome.features),
            cuts_names: Shared::cuts_names(&shared.server, &welcome.features),
            // Data nodes that share a file share all of it.
            regions: welcome.features.has("ERET") && !shared.order.network.stripe,
            in_order: welcome.mode == Mode::Stream,
            batch: Batch::new(shared),
            made: Vec::new(),
            trees: Vec::new(),
            around: BTreeSet::new(),
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
                waiting.extend(self.ask(root));
            }
            let Some(asked) = waiting.pop_front() else {
                break;
            };
            let reply = match reply_of(&asked.answer) {
                Some(reply) => Ok(reply),
                None => self.desk.call(&Command::Mlst(Some(asked.path.clone()))),
            };
            match reply {
                Ok(reply) => self.answered(asked, &reply),
                Err(Gone) => {
                    self.shared.gone();
                    break;
                }
            }
        }
        self.batch.give();
    }

    fn ask(&self, root: Root) -> Option<Asked> {
        let path = match root.from.there() {
            Ok(path) => path,
            Err(error) => {
                let failure = failures::no_path(root.from.shown(), error.to_string());
                self.shared.tell(&failure);
                return None;
            }
        };
        self.is_carried(&path).then(|| {
            let question = Question::Command(Command::Mlst(Some(path.clone())));
            let answer = self.desk.ask(question);
            Asked { root, path, answer }
        })
    }

    fn is_carried(&self, path: &There) -> bool {
        self.shared.is_carried(path, self.cuts_names)
    }

    fn answered(&mut self, asked: Asked, reply: &Reply) {
        match entry_of(reply) {
            Some(entry) => self.root(&asked.root, asked.path, &entry),
            None => {
                let failure = failures::nothing(asked.root.from.shown(), reply.to_string());
                self.shared.tell(&failure);
            }
        }
    }

    fn root(&mut self, root: &Root, from: There, entry: &Entry) {
        let shared = self.shared;
        let known = Known::from(entry);
        let to = root.to.here();
        let token = names::token(&root.from, &root.to);
        let parent = to.parent().unwrap_or(Path::new("/"));
        if root.make_way
            && !shared.order.dry_run
            && let Err(error) = make_way(parent, shared.order.sync)
        {
            return shared.tell(&failures::no_folder(parent.to_owned(), said(&error)));
        }
        if shared.order.sync {
            self.around.insert(parent.join("."));
        }
        match entry.kind {
            Some(Kind::Directory | Kind::Current) if !shared.order.recursive => {
                shared.tell(&failures::not_recursive(root.from.shown()));
            }
            Some(Kind::Directory | Kind::Current) => {
                let copy = (to, token, root.as_written);
                self.tree(from, copy, known, entry.unique.clone());
            }
            _ => {
                self.file(from, to, Origin::of(token), known, false);
            }
        }
    }

    fn file(&mut self, from: There, to: PathBuf, origin: Origin, known: Known, fresh: bool) {
        let shared = self.shared;
        if !self.is_carried(&from) {
            return;
        }
        let there = match seen(&to, fresh) {
            Ok(there) => there,
            Err(failure) => return shared.tell(&failure),
        };
        // Where the session is lost it is fetched by another.
        let same = || verify::is_same(self.desk, &from, &to).unwrap_or(false);
        if judge(shared, || to.clone(), known, there, origin.reliable, same) != Verdict::Copy {
            return;
        }
        let Some(last) = to.file_name().map(OsStrExt::as_bytes) else {
            let advice = "name one";
            let failure = Failure::found(to, "the name of a copy", "none", advice);
            return shared.tell(&failure);
        };
        let beside =
            |made: std::ffi::CString| to.with_file_name(OsString::from_vec(made.into_bytes()));
        let (part, record) = (
            beside(origin.token.part(last)),
            beside(origin.token.progress(last)),
        );
        let fetch = Arc::new(Fetch {
            from,
            to,
            part,
            known,
            changes: 0,
        });
        match known.size {
            Some(size) if size >= LARGE_BYTES && self.goes_on(known) => {
                self.large(fetch, size, record);
            }
            _ => self.batch.push(Job::Fetch(fetch)),
        }
    }

    /// Whether a large file need not begin anew after a kill: the server sends parts, or all from some byte on of what is known to be the same file.
    fn goes_on(&self, known: Known) -> bool {
        self.regions || (self.in_order && known.modify_s.is_some())
    }

    /// Has a large file come in chunks, or all that is missing at its end.
    fn large(&mut self, fetch: Arc<Fetch>, size: u64, record: PathBuf) {
        let shared = self.shared;
        let source = shared.place(&fetch.from).to_string_lossy().into_owned();
        let to = fetch.to.clone();
        let how = (shared.order.sync, !self.regions);
        match Large::open(fetch, size, &source, record, how) {
            Ok((large, missing)) => {
                let chunks = chunks::count(size);
                let there = if large.in_order {
                    missing.first().copied().unwrap_or(0)
                } else {
                    chunks - missing.len() as u64
                };
                if there > 0 {
                    shared.report.chunks_kept(&to, there, chunks);
                }
                for job in Job::of(large, missing) {
                    self.batch.push(job);
                }
                self.batch.give();
            }
            Err(rustix::io::Errno::WOULDBLOCK) => shared.tell(&Failure::found(
                to,
                "a file that nobody writes to",
                "another copy of the same that is writing it",
                "wait for it to end",
            )),
            Err(errno) => {
                let expected = "a place that can be written to";
                shared.tell(&Failure::kernel(to, expected, errno));
            }
        }
    }

    /// Gives directories their times and modes when all is in them, has the names in them on stable storage if that was asked for, and takes the journals away if nothing has failed.
    pub(crate) fn finish(self, whole: bool) {
        if whole {
            for failure in self.trees.into_iter().filter_map(|tree| tree.close().err()) {
                self.shared.tell(&failure);
            }
        }
        let order = self.shared.order;
        if order.dry_run || self.shared.stop.asked() {
            return;
        }
        // The deepest first: what is done in one changes the time of the one that it is in.
        for made in self.made.iter().rev() {
            if let Err(failure) = made.give(order) {
                self.shared.tell(&failure);
            }
        }
        for folder in self.around {
            let synced = fs::File::open(&folder).and_then(|folder| folder.sync_all());
            if let Err(error) = synced {
                let expected = "to have what is in it on stable storage by name";
                let advice = "see what is wrong with its disk, then run the same command again";
                let failure = Failure::found(folder, expected, said(&error), advice);
                self.shared.tell(&failure);
            }
        }
    }
}

/// What is under the name of a copy, where something can be.
fn seen(to: &Path, fresh: bool) -> Result<Option<Present>, Failure> {
    if fresh {
        return Ok(None);
    }
    match fs::symlink_metadata(to) {
        Ok(there) => Ok(Some(Present::from(&there))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let advice = "mend that and run the same command again";
            let expected = "to see what is there";
            Err(Failure::found(
                to.to_owned(),
                expected,
                said(&error),
                advice,
            ))
        }
    }
}
