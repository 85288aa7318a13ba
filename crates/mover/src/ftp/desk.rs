//! Where a session is asked: commands and listings, one after the other, and what will be asked first.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use venturi_gridftp::{Command, Entry, Path, Reply};

use super::messages::{Answer, Ask, Event, Post, Question};

/// How often something is asked again that a session was lost with.
const MOST_ASKED: u32 = 3;

/// Asks a session.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    events: UnboundedSender<Event>,
    post: Arc<Post>,
    foreseen: Arc<Mutex<Foreseen>>,
}

/// What was asked before anybody wanted to know, and where its answers come.
type Foreseen = VecDeque<(Question, Receiver<(u64, Answer)>)>;

impl Desk {
    pub(crate) fn new(events: UnboundedSender<Event>, post: Arc<Post>) -> Self {
        Self {
            events,
            post,
            foreseen: Arc::default(),
        }
    }

    /// Asks what will be asked first, in this order: the session sends it with its login, so that nobody waits a round trip for it. What is
    /// asked then has these answers, up to the first question that is none of them.
    pub(crate) fn foresee(&self, questions: impl IntoIterator<Item = Question>) {
        let asked = questions.into_iter().map(|question| {
            let (answer, answers) = channel();
            self.ask_for(question.clone(), 0, answer);
            (question, answers)
        });
        self.foreseen().extend(asked);
    }

    fn foreseen(&self) -> std::sync::MutexGuard<'_, Foreseen> {
        let foreseen = self.foreseen.lock();
        foreseen.unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers to a question that was foreseen. What stands before it will not be asked any more, except what made something: asked again,
    /// a server says that it was there before. If it was not foreseen, nothing is any more.
    fn take_foreseen(&self, wanted: &Question) -> Option<Receiver<(u64, Answer)>> {
        let mut foreseen = self.foreseen();
        let Some(at) = foreseen.iter().position(|(asked, _)| asked == wanted) else {
            foreseen.clear();
            return None;
        };
        let makes =
            |(asked, _): &(Question, _)| matches!(asked, Question::Command(Command::Mkd(_)));
        if foreseen.iter().take(at).any(makes) {
            return None;
        }
        foreseen
            .drain(..=at)
            .next_back()
            .map(|(_, answers)| answers)
    }

    /// Nothing more will be asked: the session may end when all is done.
    pub(crate) fn close(&self) {
        self.post.asked.store(false, Ordering::Relaxed);
        let _ = self.events.send(Event::Leave);
    }

    /// The session is to end what it has, and take no more.
    pub(crate) fn retire(&self) {
        self.post.retired.store(true, Ordering::Relaxed);
        let _ = self.events.send(Event::Leave);
    }

    /// Asks something; the answer comes later, after all that was asked before.
    pub(crate) fn ask(&self, question: Question) -> Receiver<(u64, Answer)> {
        if let Some(answers) = self.take_foreseen(&question) {
            return answers;
        }
        let (answer, answers) = channel();
        self.ask_for(question, 0, answer);
        answers
    }

    /// The same, with the answers to one place and a tag on each.
    pub(crate) fn ask_for(&self, question: Question, tag: u64, answer: Sender<(u64, Answer)>) {
        let ask = Ask {
            question,
            tag,
            answer,
        };
        if let Err(refused) = self.events.send(Event::Ask(ask))
            && let Event::Ask(ask) = refused.0
        {
            let _ = ask.answer.send((tag, Answer::Lost));
        }
    }

    /// Sends a command and waits for the reply.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn call(&self, command: &Command) -> Result<Reply, Gone> {
        for _ in 0..MOST_ASKED {
            let answers = self.ask(Question::Command(command.clone()));
            if let Some(reply) = reply_of(&answers) {
                return Ok(reply);
            }
        }
        Err(Gone)
    }

    /// Waits for the reply to a command that was asked before; if its session was lost, it is asked again.
    ///
    /// # Errors
    /// If the session is lost for good.
    pub(crate) fn hear(
        &self,
        answers: &Receiver<(u64, Answer)>,
        command: &Command,
    ) -> Result<Reply, Gone> {
        reply_of(answers).map_or_else(|| self.call(command), Ok)
    }

    /// What a path at the server is; none if there is nothing.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn see(&self, path: &Path) -> Result<Option<Entry>, Gone> {
        let reply = self.call(&Command::Mlst(Some(path.clone())))?;
        Ok(entry_of(&reply))
    }
}

/// Waits for the reply among answers; none if the session is lost.
pub(crate) fn reply_of(answers: &Receiver<(u64, Answer)>) -> Option<Reply> {
    answers.iter().find_map(|(_, answer)| match answer {
        Answer::Reply(reply) => Some(Some(reply)),
        Answer::Lost => Some(None),
        _ => None,
    })?
}

/// What the answer to MLST tells: the line between its first and its last.
pub(crate) fn entry_of(reply: &Reply) -> Option<Entry> {
    let line = reply.lines.get(1).filter(|_| reply.is_success())?;
    Entry::parse(line.trim_ascii_start()).ok()
}

/// The session is gone, and with it all that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;
