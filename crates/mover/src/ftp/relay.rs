//! Copies between two servers: bytes go from one to the other, and only commands pass by here.
//!
//! What is to be copied is looked for first, and directories are made; then pairs of sessions, used for nothing else, copy each a share.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use venturi_gridftp::client::Pair;
use venturi_gridftp::{Command, Path as There};

use super::desk::{Desk, reply_of};
use super::listing::Lister;
use super::manner::{Manner, Welcome};
use super::messages::Question;
use super::places::{self, Root};
use super::shared::Shared;
use crate::net::url::Url;
use crate::threads;
use line::Line;
use search::Search;

mod line;
mod search;

/// Commands that are under way at a time.
const ASKED_AHEAD: usize = 256;

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
    pub(crate) fn look(self) -> places::There<'d> {
        places::There {
            desk: self.desk,
            lister: self.lister(),
        }
    }

    fn lister(self) -> Lister {
        Lister::of(&self.welcome.features)
    }

    /// A path there, for messages.
    fn place(self, path: &There) -> PathBuf {
        let url = self.server.with_path(path.as_bytes().to_vec());
        url.to_string().into()
    }
}

/// Copies from server to server.
pub(crate) fn relay<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    manners: &(Manner, Manner),
    ends: &Ends<'_>,
    roots: &[Root],
) {
    let mut search = Search::new(shared, ends);
    search.look(roots);
    // What is left of copies that failed.
    let leftovers = Mutex::new(Vec::new());
    let shares = shares(shared, search.found);
    let (lines, shares) = (shares.len(), Mutex::new(shares));
    let next = || shares.lock().map_or(None, |mut shares| shares.pop());
    let carry_out = || {
        let line = Line {
            scope,
            shared,
            manners,
            ends,
        };
        while let Some(share) = next() {
            line.carry_out(share, &leftovers);
        }
    };
    std::thread::scope(|inner| {
        // As many as there are threads for, of which this is one.
        for started in 1..lines {
            if let Err(error) = threads::start(inner, carry_out) {
                shared
                    .report
                    .decision(&threads::fewer("pairs of sessions", started, &error));
                break;
            }
        }
        carry_out();
    });
    let leftovers = leftovers.into_inner().unwrap_or_default();
    let whole = shared.totals.failed.load(Ordering::Relaxed) == 0 && !shared.stop.asked();
    let journals = search.journals.into_iter().filter(|_| whole);
    let commands = leftovers.into_iter().map(Command::Dele);
    let commands = commands.chain(journals.map(Command::Rmd));
    // The answer to the last is behind those to all that was asked without waiting.
    tidy(ends.destination.desk, commands.chain([Command::Noop]));
}

/// As many shares as there are to be pairs of sessions.
fn shares(shared: &Shared<'_>, found: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let sessions = shared.order.concurrency.unwrap_or(1) as usize;
    let mut shares: Vec<Vec<Wanted>> = Vec::new();
    shares.resize_with(sessions.min(found.len()), Vec::new);
    let count = shares.len();
    for (index, wanted) in found.into_iter().enumerate() {
        shares[index % count].push(wanted);
    }
    shares
}

/// Sends commands. Answers are not waited for one by one; what a server does not do stays as it is.
fn tidy(desk: &Desk, commands: impl Iterator<Item = Command>) {
    let mut asked = VecDeque::new();
    for command in commands {
        asked.push_back(desk.ask(Question::Command(command)));
        if asked.len() > ASKED_AHEAD {
            asked.pop_front().map(|answers| reply_of(&answers));
        }
    }
    asked.iter().for_each(|answers| drop(reply_of(answers)));
}
