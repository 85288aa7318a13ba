//! Copies between two servers: bytes go from one to the other, and only commands pass by here.
//!
//! What is to be copied is looked for first, and directories are made; then pairs of sessions, used for nothing else, copy each a share.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use venturi_gridftp::client::{Pair, Side, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{Command, Entry, Kind, Mode, Path as There};

use super::crew::{self, Desk, Gone, Manner, Welcome};
use super::download::token;
use super::listing::{self, Lister};
use super::places::Root;
use super::session::{Answer, Question};
use super::shared::Shared;
use super::verify;
use crate::error::Failure;
use crate::net::url::Url;
use crate::order::Existing;
use crate::temporary::Token;

/// How often it is seen whether to stop.
const GLANCE: Duration = Duration::from_millis(100);
/// Commands that are under way at a time.
const ASKED_AHEAD: usize = 256;
/// How often a copy is tried.
const ATTEMPTS: u32 = 3;
/// How often two sessions are opened again.
const MOST_REOPENED: u32 = 100;
/// In the tags of answers: those of the destination.
const DESTINATION: u64 = 1 << 63;

/// A file to be copied, with what its copy is to have.
#[derive(Debug)]
struct Wanted {
    pair: Pair,
    modify_s: Option<i64>,
}

/// A server, and who answers for it.
#[derive(Clone, Copy)]
pub(crate) struct End<'d> {
    pub(crate) desk: &'d Desk,
    pub(crate) welcome: &'d Welcome,
    pub(crate) server: &'d Url,
}

/// The two servers.
pub(crate) struct Ends<'d> {
    pub(crate) source: End<'d>,
    pub(crate) destination: End<'d>,
}

impl<'d> End<'d> {
    /// What is there, for names.
    pub(crate) fn look(self) -> super::places::There<'d> {
        super::places::There {
            desk: self.desk,
            lister: self.lister(),
        }
    }

    fn lister(self) -> Lister {
        Lister::of(&self.welcome.features)
    }

    /// A path there, for messages.
    fn place(self, path: &There) -> std::path::PathBuf {
        let url = self.server.with_path(path.as_bytes().to_vec());
        url.to_string().into()
    }
}

/// Looks for what is to be copied, and makes directories.
struct Search<'d> {
    shared: &'d Shared<'d>,
    ends: &'d Ends<'d>,
    found: Vec<Wanted>,
    /// Directories at the destination that tell that a copy is not done.
    journals: Vec<There>,
    ways: HashMap<Vec<u8>, bool>,
}

/// Copies from server to server.
pub(crate) fn relay<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    manners: &(Manner, Manner),
    ends: &Ends<'_>,
    roots: &[Root],
) {
    let mut search = Search {
        shared,
        ends,
        found: Vec::new(),
        journals: Vec::new(),
        ways: HashMap::new(),
    };
    for root in roots {
        if shared.stop.asked() {
            break;
        }
        if let Err(Gone) = search.root(root) {
            shared.gone();
            break;
        }
    }
    let found = std::mem::take(&mut search.found);
    let pairs_of_sessions = shared.order.concurrency.unwrap_or(1) as usize;
    let mut shares: Vec<Vec<Wanted>> = Vec::new();
    shares.resize_with(pairs_of_sessions.min(found.len().max(1)), Vec::new);
    let count = shares.len();
    for (index, wanted) in found.into_iter().enumerate() {
        shares[index % count].push(wanted);
    }
    let after = Mutex::new(After::default());
    std::thread::scope(|inner| {
        for share in shares {
            let after = &after;
            inner.spawn(move || Line::new(scope, shared, manners, ends).carry_out(share, after));
        }
    });
    let after = after.into_inner().unwrap_or_default();
    let whole = shared.totals.failed.load(Ordering::Relaxed) == 0 && !shared.stop.asked();
    let mut commands: Vec<Command> = after.leftovers.into_iter().map(Command::Dele).collect();
    if whole {
        commands.extend(search.journals.into_iter().map(Command::Rmd));
    }
    if shared.order.preserve.times {
        let kept = after.times.into_iter();
        commands.extend(kept.map(|(path, time_s)| Command::Mfmt { time_s, path }));
    }
    tidy(ends.destination.desk, commands);
}

/// What is done at the destination when all is copied.
#[derive(Debug, Default)]
struct After {
    /// Copies, and when their sources were modified.
    times: Vec<(There, i64)>,
    /// What is left of copies that failed.
    leftovers: Vec<There>,
}

/// Sends commands. Answers are not waited for one by one; what a server does not do stays as it is.
fn tidy(desk: &Desk, commands: Vec<Command>) {
    let mut asked = VecDeque::new();
    for command in commands {
        asked.push_back(desk.ask(Question::Command(command)));
        if asked.len() > ASKED_AHEAD {
            asked.pop_front().map(|answers| crew::reply_of(&answers));
        }
    }
    asked
        .iter()
        .for_each(|answers| drop(crew::reply_of(answers)));
}

impl Search<'_> {
    fn fail(&self, failure: &Failure) {
        self.shared.tell(failure);
    }

    fn root(&mut self, root: &Root) -> Result<(), Gone> {
        let (from, to) = match (root.from.there(), root.to.there()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => {
                let advice = "give it another name first";
                let shown = root.from.shown();
                self.fail(&Failure::found(shown, "a path", error.to_string(), advice));
                return Ok(());
            }
        };
        let Some(entry) = self.ends.source.desk.see(&from)? else {
            let advice = "name one that is there";
            let expected = "a file or directory";
            self.fail(&Failure::found(
                root.from.shown(),
                expected,
                "nothing",
                advice,
            ));
            return Ok(());
        };
        if root.make_way && !self.shared.order.dry_run {
            self.make_way(&to)?;
        }
        let token = token(&root.from, &root.to);
        if !matches!(entry.kind, Some(Kind::Directory | Kind::Current)) {
            let there = match self.shared.order.existing {
                Existing::Replace => None,
                _ => self.ends.destination.desk.see(&to)?,
            };
            self.file(&entry, from, to, token, there.as_ref());
            return Ok(());
        }
        if !self.shared.order.recursive {
            let advice = "say --recursive to copy directories";
            self.fail(&Failure::found(
                root.from.shown(),
                "a file",
                "a directory",
                advice,
            ));
            return Ok(());
        }
        let journal = super::upload::journal(&root.from, &root.to).there().ok();
        self.tree(from, to, token, journal)
    }

    fn make_way(&mut self, to: &There) -> Result<bool, Gone> {
        let (parent, _) = to.split();
        if parent.as_bytes() == b"/" || parent == *to {
            return Ok(true);
        }
        if let Some(&there) = self.ways.get(parent.as_bytes()) {
            return Ok(there);
        }
        let desk = self.ends.destination.desk;
        let there = desk.see(&parent)?.is_some()
            || (self.make_way(&parent)? && desk.call(&Command::Mkd(parent.clone()))?.is_success());
        self.ways.insert(parent.as_bytes().to_vec(), there);
        Ok(there)
    }

    fn tree(
        &mut self,
        from: There,
        to: There,
        token: Token,
        mut journal: Option<There>,
    ) -> Result<(), Gone> {
        let shared = self.shared;
        let (source, destination) = (self.ends.source, self.ends.destination);
        let mut todo = vec![(from, to)];
        while let Some((from, to)) = todo.pop() {
            if shared.stop.asked() {
                return Ok(());
            }
            let there = destination.desk.see(&to)?.is_some();
            if !there && !shared.order.dry_run {
                let reply = destination.desk.call(&Command::Mkd(to.clone()))?;
                if !reply.is_success() {
                    let advice = "mend that at the server, then run the same command again";
                    let expected = "a directory, or a place for one";
                    let place = destination.place(&to);
                    self.fail(&Failure::found(place, expected, reply.to_string(), advice));
                    continue;
                }
            }
            if let Some(journal) = journal.take()
                && !shared.order.dry_run
            {
                destination.desk.call(&Command::Mkd(journal.clone()))?;
                self.journals.push(journal);
            }
            shared.totals.count(&shared.totals.directories);
            let mut copies = HashMap::new();
            if there {
                let entries = listing::whole(destination.desk, destination.lister(), &to)?;
                copies.extend(entries.into_iter().map(|entry| (entry.name.clone(), entry)));
            }
            for entry in listing::whole(source.desk, source.lister(), &from)? {
                let below = |folder: &There, name: &[u8]| {
                    There::new([folder.as_bytes(), b"/", name].concat())
                };
                let paths = entry
                    .safe_name()
                    .and_then(|name| Ok((below(&from, name)?, below(&to, name)?)));
                let is_link = entry.kind == Some(Kind::Link) || entry.target.is_some();
                match (paths, &entry.kind) {
                    (Err(error), _) => {
                        let advice = "tell who runs the server; the rest goes on";
                        let place = shared.place(&from);
                        let expected = "names of what is in it";
                        self.fail(&Failure::found(place, expected, error.to_string(), advice));
                    }
                    (Ok((from, _)), _) if is_link && !shared.order.follow => {
                        let reason = "a link; --follow copies what it leads to";
                        shared.left_out(&shared.place(&from), reason);
                    }
                    (Ok(paths), Some(Kind::Directory)) => todo.push(paths),
                    (Ok((from, to)), Some(Kind::File) | None) => {
                        self.file(&entry, from, to, token, copies.get(&entry.name));
                    }
                    (Ok((from, _)), _) => {
                        let reason = "it is neither file nor directory";
                        shared.left_out(&shared.place(&from), reason);
                    }
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, entry: &Entry, from: There, to: There, token: Token, there: Option<&Entry>) {
        let shared = self.shared;
        let size = entry.size_bytes.unwrap_or(0);
        let place = || self.ends.destination.place(&to);
        for (end, path) in [(self.ends.source, &from), (self.ends.destination, &to)] {
            if Shared::cuts_names(end.server, &end.welcome.features) && !path.is_ascii() {
                let advice = "give it a name of ASCII letters, or use servers with certificates (gsiftp) or of HTTP";
                let expected = "a name that both servers understand";
                let found = "one with bytes above 127, which a Globus server drops from names on an open control connection";
                let shown = shared.place(&from);
                return self.fail(&Failure::found(shown, expected, found, advice));
            }
        }
        if let Some(there) = there {
            let keep = match shared.order.existing {
                Existing::Keep => true,
                Existing::Replace => false,
                Existing::Update if there.size_bytes != entry.size_bytes => false,
                Existing::Update if shared.order.checksum => {
                    let (source, destination) = (self.ends.source.desk, self.ends.destination.desk);
                    let same = verify::is_same_at((source, &from), (destination, &to));
                    matches!(same, Ok(Some(true)))
                }
                Existing::Update => there.modify_s == entry.modify_s,
            };
            if keep {
                return shared.kept(place, size);
            }
        }
        if shared.order.dry_run {
            return shared.would_copy(place, size);
        }
        let (parent, name) = to.split();
        let part = token.part(name);
        let slash: &[u8] = if parent.as_bytes().ends_with(b"/") {
            b""
        } else {
            b"/"
        };
        let temporary = There::new([parent.as_bytes(), slash, part.as_bytes()].concat());
        let Ok(temporary) = temporary else {
            let advice = "give it a shorter name first";
            return self.fail(&Failure::found(place(), "a path", "one too long", advice));
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
    }
}

/// Two sessions, one with each server, that copy one share.
struct Line<'s, 'o, 'd, 'e> {
    scope: &'s std::thread::Scope<'s, 'e>,
    shared: &'o Shared<'o>,
    manners: &'d (Manner, Manner),
    ends: &'d Ends<'d>,
}

impl<'s, 'o: 's, 'd, 'e> Line<'s, 'o, 'd, 'e> {
    fn new(
        scope: &'s std::thread::Scope<'s, 'e>,
        shared: &'o Shared<'o>,
        manners: &'d (Manner, Manner),
        ends: &'d Ends<'d>,
    ) -> Self {
        Self {
            scope,
            shared,
            manners,
            ends,
        }
    }

    /// Two sessions that are ready, and the address of the destination.
    fn open(&self) -> Result<(Desk, Desk, Welcome), String> {
        let (source, told) = crew::open(self.scope, self.shared, self.manners.0.clone(), true);
        let (destination, also) = crew::open(self.scope, self.shared, self.manners.1.clone(), true);
        let gone = || Err("the session ended".to_owned());
        let result = told.recv().unwrap_or_else(|_| gone());
        let other = also.recv().unwrap_or_else(|_| gone());
        match (result, other) {
            (Ok(_), Ok(welcome)) => Ok((source, destination, welcome)),
            (Err(reason), _) | (_, Err(reason)) => {
                source.retire();
                destination.retire();
                Err(reason)
            }
        }
    }

    fn carry_out(&self, share: Vec<Wanted>, after: &Mutex<After>) {
        let mut wanted: HashMap<u64, Wanted> = HashMap::new();
        let pairs: Vec<Pair> = share.iter().map(|wanted| wanted.pair.clone()).collect();
        wanted.extend(share.into_iter().map(|one| (one.pair.transfer, one)));
        if pairs.is_empty() {
            return;
        }
        let reason = match self.copy(pairs, &mut wanted, after) {
            Ok(()) => return,
            Err(reason) => reason,
        };
        if let Some(one) = wanted.values().next() {
            let advice = "see whether both servers are well, then run the same command again";
            let place = self.shared.place(&one.pair.from);
            let failure = Failure {
                ends_all: true,
                ..Failure::found(place, "a session with both servers", reason, advice)
            };
            self.shared.tell(&failure);
        }
    }

    fn copy(
        &self,
        pairs: Vec<Pair>,
        wanted: &mut HashMap<u64, Wanted>,
        after: &Mutex<After>,
    ) -> Result<(), String> {
        let extended = [
            self.ends.source.welcome.mode,
            self.ends.destination.welcome.mode,
        ];
        let mode = if extended == [Mode::Extended; 2] {
            Mode::Extended
        } else {
            Mode::Stream
        };
        let (mut source, mut destination, welcome) = self.open()?;
        let mut copies =
            ThirdParty::new(pairs, mode, welcome.pipelining, ATTEMPTS, welcome.address);
        let (answer, answers) = channel();
        let (mut generation, mut reopened) = (0_u64, 0);
        loop {
            while let Some(output) = copies.poll_output() {
                match output {
                    ThirdPartyOutput::Request {
                        side,
                        request,
                        command,
                    } => {
                        let (desk, bit) = match side {
                            Side::Source => (&source, 0),
                            Side::Destination => (&destination, DESTINATION),
                        };
                        let tag = bit | (generation << 40) | request;
                        desk.ask_for(Question::Command(command), tag, answer.clone());
                    }
                    ThirdPartyOutput::Reopen => {
                        reopened += 1;
                        self.shared.troubles.fetch_add(1, Ordering::Relaxed);
                        if reopened > MOST_REOPENED {
                            return Err("too many failures, one after the other".into());
                        }
                        source.retire();
                        destination.retire();
                        // Answers of the sessions before are of no meaning for these.
                        generation += 1;
                        (source, destination, _) = self.open()?;
                        copies.reopened();
                    }
                    ThirdPartyOutput::Done { transfer } => self.done(transfer, wanted, after),
                    ThirdPartyOutput::Failed {
                        transfer, reason, ..
                    } => self.failed(transfer, &reason, wanted, after),
                }
            }
            if copies.is_done() || self.shared.stop.asked() {
                source.retire();
                destination.retire();
                return Ok(());
            }
            let (tag, heard) = match answers.recv_timeout(GLANCE) {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err("no answers".into()),
            };
            if (tag & !DESTINATION) >> 40 != generation {
                continue;
            }
            let request = tag & ((1 << 40) - 1);
            match heard {
                Answer::Notice(reply) | Answer::Reply(reply) => {
                    copies.handle_reply(request, &reply);
                }
                Answer::Lost => copies.lost("the session was lost"),
                Answer::Line(_) => {}
            }
        }
    }

    fn done(&self, transfer: u64, wanted: &mut HashMap<u64, Wanted>, after: &Mutex<After>) {
        let Some(one) = wanted.remove(&transfer) else {
            return;
        };
        let size = one.pair.size_bytes.unwrap_or(0);
        let shared = self.shared;
        if shared.order.verify {
            let (source, destination) = (self.ends.source.desk, self.ends.destination.desk);
            let same = verify::is_same_at((source, &one.pair.from), (destination, &one.pair.to));
            if !matches!(same, Ok(Some(true))) {
                let advice = "remove the copy and run the same command again";
                let (place, expected) = (
                    self.ends.destination.place(&one.pair.to),
                    "the bytes of the source",
                );
                let found = "others, or a server that does not tell";
                return shared.tell(&Failure::found(place, expected, found, advice));
            }
        }
        shared.totals.moved_bytes.fetch_add(size, Ordering::Relaxed);
        let place = || self.ends.destination.place(&one.pair.to);
        shared.copied(place, size, "between servers");
        if let Some(modify_s) = one.modify_s
            && let Ok(mut after) = after.lock()
        {
            after.times.push((one.pair.to, modify_s));
        }
    }

    fn failed(
        &self,
        transfer: u64,
        reason: &str,
        wanted: &mut HashMap<u64, Wanted>,
        after: &Mutex<After>,
    ) {
        if let Some(one) = wanted.remove(&transfer) {
            let advice = "mend that at the servers, then run the same command again";
            let place = self.shared.place(&one.pair.from);
            let failure = Failure::found(place, "a copy at the other server", reason, advice);
            self.shared.tell(&failure);
            if let Ok(mut after) = after.lock() {
                after.leftovers.push(one.pair.temporary);
            }
        }
    }
}
