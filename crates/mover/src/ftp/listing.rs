//! What is in a directory of a server.

use std::sync::mpsc::{Receiver, TryRecvError};

use venturi_gridftp::{Command, Entry, Features, Path, Reply};

use super::crew::{Desk, Gone};
use super::session::{Answer, Question};

/// How directories are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lister {
    /// MLSC: on the control connection, so that many can be asked for at once.
    Control,
    /// MLSD: over a data connection.
    Data,
}

impl Lister {
    pub(crate) fn of(features: &Features) -> Self {
        if features.has("MLSC") {
            Self::Control
        } else {
            Self::Data
        }
    }

    fn question(self, path: &Path) -> Question {
        match self {
            Self::Control => Question::Command(Command::Mlsc(Some(path.clone()))),
            Self::Data => Question::Listing(path.clone()),
        }
    }
}

/// A listing that was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    answers: Receiver<(u64, Answer)>,
    lister: Lister,
}

/// What of a listing has come.
#[derive(Debug)]
pub(crate) enum Heard {
    Entry(Entry),
    /// Nothing now; more will come.
    Nothing,
    /// All has.
    End(Reply),
}

impl Asked {
    pub(crate) fn new(desk: &Desk, lister: Lister, path: &Path) -> Self {
        Self {
            answers: desk.ask(lister.question(path)),
            lister,
        }
    }

    /// The next entry; waits for it unless `now` says not to.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn next(&mut self, now: bool) -> Result<Heard, Gone> {
        // Each turn takes an answer.
        loop {
            let answer = if now {
                match self.answers.try_recv() {
                    Err(TryRecvError::Empty) => return Ok(Heard::Nothing),
                    other => other.map_err(|_| Gone)?.1,
                }
            } else {
                self.answers.recv().map_err(|_| Gone)?.1
            };
            match answer {
                Answer::Reply(reply) => return Ok(Heard::End(reply)),
                Answer::Lost => return Err(Gone),
                Answer::Notice(_) => {}
                Answer::Line(line) => {
                    let line = match self.lister {
                        Lister::Control => line.strip_prefix(b" ").unwrap_or(&line),
                        Lister::Data => &line[..],
                    };
                    // A line that is no entry, such as the title of the reply, says nothing of a file.
                    if let Ok(entry) = Entry::parse(line)
                        && entry.is_inside()
                    {
                        return Ok(Heard::Entry(entry));
                    }
                }
            }
        }
    }
}

/// All entries of a directory; none of one that cannot be read.
///
/// # Errors
/// If the session is lost.
pub(crate) fn whole(desk: &Desk, lister: Lister, path: &Path) -> Result<Vec<Entry>, Gone> {
    let mut asked = Asked::new(desk, lister, path);
    let mut entries = Vec::new();
    loop {
        match asked.next(false)? {
            Heard::Entry(entry) => entries.push(entry),
            Heard::Nothing => {}
            Heard::End(_) => return Ok(entries),
        }
    }
}
