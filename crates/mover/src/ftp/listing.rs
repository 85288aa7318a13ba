//! What is in a directory of a server.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};

use venturi_gridftp::{Command, Entry, Features, Kind, Path, Reply, parse_list, parse_timestamp};

use super::desk::{Desk, Gone, reply_of};
use super::messages::{Answer, Question};
use super::names::below;

/// How often a directory is asked for whose session is lost.
pub(crate) const MOST_TRIES: u32 = 4;

/// Files of a listing for people whose times are asked for at the same time.
const TIMES_AHEAD: usize = 128;

/// How directories are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lister {
    /// MLSC: on the control connection, so that many can be asked for at once.
    Control,
    /// MLSD: over a data connection.
    Data,
    /// LIST, where there is nothing else: over a data connection, for people; times are asked for.
    People,
}

impl Lister {
    pub(crate) fn of(features: &Features) -> Self {
        if features.has("MLSC") {
            Self::Control
        } else if features.lists() {
            Self::Data
        } else {
            Self::People
        }
    }

    fn question(self, path: &Path) -> Question {
        match self {
            Self::Control => Question::Command(Command::Mlsc(Some(path.clone()))),
            Self::Data | Self::People => Question::Listing(path.clone()),
        }
    }
}

type Answers = Receiver<(u64, Answer)>;

/// A listing that was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    answers: Answers,
    lister: Lister,
    desk: Desk,
    path: Path,
    /// Of a listing for people: its entries, when all have come.
    listed: Option<(VecDeque<Entry>, Reply)>,
    /// The first ones, with the question for their time.
    timing: VecDeque<(Entry, Option<Answers>)>,
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
            desk: desk.clone(),
            path: path.clone(),
            listed: None,
            timing: VecDeque::new(),
        }
    }

    /// Whether it is none, though the server is content: on the control connection that of an empty directory has a title and an end, if nothing
    /// between; a reply of one line is that of another command.
    fn lacks_lines(&self, reply: &Reply) -> bool {
        self.lister == Lister::Control && reply.is_success() && reply.lines.len() < 2
    }

    /// The next entry; waits for it unless `now` says not to.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn next(&mut self, now: bool) -> Result<Heard, Gone> {
        match self.lister {
            Lister::Control | Lister::Data => self.hear(now),
            Lister::People => self.next_with_time(),
        }
    }

    /// The next entry of a listing without times: of files the server is asked for them, of some ahead.
    fn next_with_time(&mut self) -> Result<Heard, Gone> {
        let all = match self.listed.take() {
            Some(all) => all,
            None => self.all()?,
        };
        let (listed, reply) = self.listed.insert(all);
        while self.timing.len() < TIMES_AHEAD
            && let Some(entry) = listed.pop_front()
        {
            let is_file = entry.kind == Some(Kind::File);
            let path = entry.safe_name().and_then(|name| below(&self.path, name));
            let path = path.ok().filter(|_| is_file);
            let asked = path.map(|path| self.desk.ask(Question::Command(Command::Mdtm(path))));
            self.timing.push_back((entry, asked));
        }
        let Some((mut entry, asked)) = self.timing.pop_front() else {
            return Ok(Heard::End(reply.clone()));
        };
        if let Some(asked) = asked {
            let reply = reply_of(&asked).ok_or(Gone)?;
            let told = reply.lines.last().filter(|_| reply.code == 213);
            entry.modify_s = told.and_then(|text| parse_timestamp(text.trim_ascii()).ok());
        }
        Ok(Heard::Entry(entry))
    }

    fn all(&mut self) -> Result<(VecDeque<Entry>, Reply), Gone> {
        let mut listed = VecDeque::new();
        loop {
            match self.hear(false)? {
                Heard::Entry(entry) => listed.push_back(entry),
                Heard::Nothing => {}
                Heard::End(reply) => return Ok((listed, reply)),
            }
        }
    }

    fn hear(&mut self, now: bool) -> Result<Heard, Gone> {
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
                Answer::Reply(reply) if self.lacks_lines(&reply) => {
                    return Ok(Heard::End(Reply::new(550, "a listing without lines")));
                }
                Answer::Reply(reply) => return Ok(Heard::End(reply)),
                Answer::Lost => return Err(Gone),
                Answer::Notice(_) => {}
                Answer::Line(line) => {
                    let entry = match self.lister {
                        Lister::Control => {
                            Entry::parse(line.strip_prefix(b" ").unwrap_or(&line)).ok()
                        }
                        Lister::Data => Entry::parse(&line).ok(),
                        Lister::People => parse_list(&line),
                    };
                    // A line that is no entry, such as the title of the reply, says nothing of a file.
                    if let Some(entry) = entry
                        && entry.is_inside()
                    {
                        return Ok(Heard::Entry(entry));
                    }
                }
            }
        }
    }
}

/// All entries of a directory; or why they are not all to be had, in the server's words.
///
/// # Errors
/// If the session is lost, again and again.
pub(crate) fn whole(
    desk: &Desk,
    lister: Lister,
    path: &Path,
) -> Result<Result<Vec<Entry>, Reply>, Gone> {
    let mut found = Err(Gone);
    for _ in 0..MOST_TRIES {
        found = once(desk, lister, path);
        if found.is_ok() {
            break;
        }
    }
    found
}

fn once(desk: &Desk, lister: Lister, path: &Path) -> Result<Result<Vec<Entry>, Reply>, Gone> {
    let mut asked = Asked::new(desk, lister, path);
    let mut entries = Vec::new();
    // Each turn takes an entry.
    loop {
        match asked.next(false)? {
            Heard::Entry(entry) => entries.push(entry),
            Heard::Nothing => {}
            Heard::End(reply) if reply.is_success() => return Ok(Ok(entries)),
            Heard::End(reply) => return Ok(Err(reply)),
        }
    }
}

/// What is known of the names in a directory.
pub(crate) enum Found {
    /// None is there: the directory is ours and new.
    Nothing,
    /// These are there, and no others.
    Entries(HashMap<Vec<u8>, Entry>),
    /// This one, or nothing, is.
    Told(Option<Box<Entry>>),
    /// Each has to be asked for.
    Unknown,
}

impl Found {
    /// What is in a directory. Of one that cannot be listed nothing is known: that is not the same as nothing.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn of(desk: &Desk, lister: Lister, path: &Path) -> Result<Self, Gone> {
        let named = |entry: Entry| (entry.name.clone(), entry);
        Ok(match whole(desk, lister, path)? {
            Ok(entries) => Self::Entries(entries.into_iter().map(named).collect()),
            Err(_) => Self::Unknown,
        })
    }

    /// What is there under a name.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn named(&self, desk: &Desk, path: &Path) -> Result<Option<Entry>, Gone> {
        match self {
            Self::Nothing => Ok(None),
            Self::Entries(entries) => Ok(entries.get(path.split().1).cloned()),
            Self::Told(entry) => Ok(entry.as_deref().cloned()),
            Self::Unknown => desk.see(path),
        }
    }
}
