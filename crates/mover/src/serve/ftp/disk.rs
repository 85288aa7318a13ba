//! What a session asks of the disk: at once where that cannot wait, else by another thread.

mod jobs;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use tokio::task::{JoinHandle, spawn_blocking};
use venturi_gridftp::Path;
use venturi_gridftp::server::{Answer, Begin, Refusal, Request};

use jobs::{alone, finish, more, name, refused, sent, sum};

use super::entry::{CHECKSUMS, algorithm, entry, hexadecimal};
use super::reading::Reading;
use super::writing::{Filled, Writing};
use crate::serve::host::{Host, Rights};
use crate::serve::root::listing::Listing;
use crate::serve::root::upload::{self, Upload};
use crate::serve::root::{Facts, Opened};

/// Entries of a directory that are asked for at a time.
const ENTRIES: usize = 500;
/// A file of this size is looked at without another thread when it was sent.
const AT_ONCE_BYTES: u64 = 1 << 20;
/// How long the answer to a wrong password takes.
const PAUSE: Duration = Duration::from_secs(1);

/// What is open, and what is being done.
#[derive(Debug)]
pub(super) struct Disk {
    host: Arc<Host>,
    open: Open,
    job: Option<JoinHandle<Done>>,
    listing: Option<Listing>,
    /// What is left to write when a file is whole.
    ending: Option<(Ending, Vec<Filled>)>,
    /// Whether the checksum of the open file has been asked for: given up after that, it is not what the client has.
    verified: bool,
    /// What this user may do.
    rights: Rights,
    /// There for as long as the session is: what takes long looks whether it is still wanted.
    wanted: Arc<()>,
}

#[derive(Debug)]
enum Open {
    Nothing,
    /// A file that is sent, and what it was when it was opened.
    Reading(Reading, Facts),
    Writing(Writing),
}

/// What is to be done when all that came is written.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Finish,
    Verify(String),
}

/// What a thread has done.
#[derive(Debug)]
enum Done {
    Answer(Answer),
    Opened(Opened),
    Began(Upload, bool, Answer),
    Listed(Option<Listing>, Answer),
    Login(Option<Rights>),
}

impl Disk {
    pub(super) fn new(host: Arc<Host>) -> Self {
        let rights = Rights {
            write: host.settings.write,
            third_party: false,
        };
        Self {
            host,
            open: Open::Nothing,
            job: None,
            listing: None,
            ending: None,
            verified: false,
            rights,
            wanted: Arc::default(),
        }
    }

    /// The file that is sent.
    pub(super) fn reading(&mut self) -> Option<&mut Reading> {
        match &mut self.open {
            Open::Reading(reading, _) => Some(reading),
            _ => None,
        }
    }

    /// The file that comes.
    pub(super) fn writing(&mut self) -> Option<&mut Writing> {
        match &mut self.open {
            Open::Writing(writing) => Some(writing),
            _ => None,
        }
    }

    /// Closes the file. What has come of it stays for a client that goes on, where it can be relied on; with what was not passed on, without which it
    /// might have a hole.
    pub(super) fn close(&mut self, any_bytes: bool, held: Vec<Filled>) {
        if let Open::Writing(writing) = &mut self.open
            && any_bytes
            && !self.verified
        {
            held.into_iter().for_each(|filled| writing.write(filled));
            if writing.failed().is_none() {
                writing.upload().keep();
            }
        }
        self.open = Open::Nothing;
        self.ending = None;
    }

    /// Does what is asked: the answer, or nothing yet.
    pub(super) fn ask(&mut self, request: Request) -> Option<Answer> {
        let host = Arc::clone(&self.host);
        match request {
            Request::Stat(path) => self.stat(path),
            Request::Read(path) => match host.root.read_at_once(path.as_bytes()) {
                Ok(Some(opened)) => Some(self.opened(opened)),
                Ok(None) => self.start(move || match host.root.read(path.as_bytes()) {
                    Ok(opened) => Done::Opened(opened),
                    Err(errno) => Done::Answer(refused(errno)),
                }),
                Err(errno) => Some(refused(errno)),
            },
            Request::Write {
                path,
                begin,
                checksum,
            } => self.begin(path, begin, checksum),
            Request::List { path, recursive } => {
                let writes = self.rights.write;
                self.start(move || match host.root.list(path.as_bytes(), recursive) {
                    Ok(listing) => more(&host, listing, writes),
                    // LIST of a file tells of the file.
                    Err(Errno::NOTDIR) if !recursive => Done::Answer(alone(&host, &path, writes)),
                    Err(errno) => Done::Answer(refused(errno)),
                })
            }
            Request::More => match self.listing.take() {
                Some(listing) => {
                    let writes = self.rights.write;
                    self.start(move || more(&host, listing, writes))
                }
                None => Some(Answer::Refused(Refusal::Internal)),
            },
            Request::Sent => self.sent(),
            request => self.change(request),
        }
    }

    fn stat(&mut self, path: Path) -> Option<Answer> {
        let writes = self.rights.write;
        let answer = move |path: &Path, found: Result<Facts, Errno>| match found {
            Ok(facts) => Answer::Entry(entry(name(path), &facts, writes)),
            Err(errno) => refused(errno),
        };
        match self.host.root.stat_at_once(path.as_bytes()).transpose() {
            Some(found) => Some(answer(&path, found)),
            None => self.later(move |host| answer(&path, host.root.stat(path.as_bytes()))),
        }
    }

    /// Whether the file that was sent is what it was. A small one was read here, and so it is looked at here.
    fn sent(&mut self) -> Option<Answer> {
        let Open::Reading(reading, before) = &self.open else {
            return Some(Answer::Refused(Refusal::Internal));
        };
        let (file, before) = (reading.file(), *before);
        if before.bytes <= AT_ONCE_BYTES {
            return Some(sent(&file, &before));
        }
        self.later(move |_| sent(&file, &before))
    }

    /// Why the file that is sent cannot be read to its end: it may have been cut.
    pub(super) fn unread(&self) -> Refusal {
        match &self.open {
            Open::Reading(reading, before) => match sent(&reading.file(), before) {
                Answer::Refused(refusal) => refusal,
                _ => Refusal::Internal,
            },
            _ => Refusal::Internal,
        }
    }

    fn change(&mut self, request: Request) -> Option<Answer> {
        let slow = matches!(request, Request::Checksum { .. });
        let wanted = self.wanted();
        let work = move |host: &Host| {
            let root = &host.root;
            let changed = match request {
                Request::MakeDirectory(path) => root.make_directory(path.as_bytes()),
                Request::RemoveDirectory(path) => root.remove_directory(path.as_bytes()),
                Request::Delete(path) => root.remove_file(path.as_bytes()),
                Request::Rename { from, to } => root.rename(from.as_bytes(), to.as_bytes(), true),
                Request::SetModified { path, time_s } => root.set_modified(path.as_bytes(), time_s),
                Request::SetMode { path, mode } => root.set_mode(path.as_bytes(), mode),
                Request::Truncate { path, length } => root.truncate(path.as_bytes(), length),
                Request::Checksum {
                    algorithm: name,
                    offset,
                    length,
                    path,
                } => {
                    let algorithm = algorithm(&name).ok_or(Errno::INVAL);
                    let sum = algorithm
                        .and_then(|it| root.checksum(path.as_bytes(), it, offset, length, wanted));
                    return sum.map_or_else(refused, |sum| Answer::Checksum(hexadecimal(&sum)));
                }
                _ => Err(Errno::INVAL),
            };
            changed.map_or_else(refused, |()| Answer::Done)
        };
        if slow {
            self.in_turn(work)
        } else {
            self.later(work)
        }
    }

    /// Lets somebody in, or not. `known`: as whom his certificate stands for him.
    pub(super) fn login(
        &mut self,
        user: Vec<u8>,
        password: Vec<u8>,
        known: bool,
    ) -> Option<Answer> {
        if known {
            let rights = self.host.known();
            return Some(self.admitted(Some(rights)));
        }
        if let Some(rights) = self.host.anonymous(&user) {
            return Some(self.admitted(Some(rights)));
        }
        let host = Arc::clone(&self.host);
        self.job = Some(tokio::task::spawn_local(async move {
            let checked = spawn_blocking(move || host.user(&user, &password)).await;
            let rights = checked.ok().flatten();
            if rights.is_none() {
                tokio::time::sleep(PAUSE).await;
            }
            Done::Login(rights)
        }));
        None
    }

    fn admitted(&mut self, rights: Option<Rights>) -> Answer {
        let Some(rights) = rights else {
            return Answer::Refused(Refusal::LoginDenied);
        };
        self.rights = rights;
        Answer::Admitted {
            writes: rights.write,
            third_party: rights.third_party,
        }
    }

    fn begin(&mut self, path: Path, begin: Begin, checksum: Option<String>) -> Option<Answer> {
        let host = Arc::clone(&self.host);
        let how = match begin {
            Begin::New => upload::Begin::New,
            Begin::Restart { bytes } => upload::Begin::Behind { bytes },
            Begin::Marked { bytes } => upload::Begin::Kept { bytes },
            Begin::Region => upload::Begin::InPlace,
            Begin::Append => upload::Begin::AtEnd,
        };
        // The cheapest is taken as bytes come by; for others the file is read once more.
        let sums = checksum.as_deref() == Some(CHECKSUMS[0]) && begin == Begin::New;
        self.start(move || {
            let begun = host.root.upload(path.as_bytes(), how).and_then(|upload| {
                let answer = match begin {
                    Begin::Append => Answer::Size(upload.facts()?.bytes),
                    _ => Answer::Done,
                };
                Ok((upload, answer))
            });
            match begun {
                Ok((upload, answer)) => Done::Began(upload, sums, answer),
                Err(errno) => Done::Answer(refused(errno)),
            }
        })
    }

    /// All of the file has come; `held` is what of it is not passed on yet. The answer comes from [`poll`](Self::poll).
    pub(super) fn end(&mut self, request: Request, held: Vec<Filled>) {
        let ending = match request {
            Request::Verify { algorithm } => Ending::Verify(algorithm),
            _ => Ending::Finish,
        };
        match (&ending, self.writing()) {
            (Ending::Verify(_), Some(writing)) => {
                held.into_iter().for_each(|filled| writing.write(filled));
                self.ending = Some((ending, Vec::new()));
            }
            _ => self.ending = Some((ending, held)),
        }
    }

    /// An answer that has come, and whether anything has moved.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> (Option<Answer>, bool) {
        let moved = self.writing().is_some_and(|writing| writing.poll(cx));
        if let Some(answer) = self.poll_ending() {
            return (Some(answer), true);
        }
        let Some(job) = &mut self.job else {
            return (None, moved);
        };
        let Poll::Ready(done) = Pin::new(job).poll(cx) else {
            return (None, moved);
        };
        self.job = None;
        let answer = match done {
            Ok(Done::Answer(answer)) => answer,
            Ok(Done::Opened(opened)) => self.opened(opened),
            Ok(Done::Began(upload, sums, answer)) => {
                self.open = Open::Writing(Writing::new(upload, sums, Arc::clone(&self.host)));
                self.verified = false;
                answer
            }
            Ok(Done::Listed(listing, answer)) => {
                self.listing = listing;
                answer
            }
            Ok(Done::Login(rights)) => self.admitted(rights),
            // The thread panicked.
            Err(_) => Answer::Refused(Refusal::Internal),
        };
        (Some(answer), true)
    }

    /// Goes on with the end of a file as soon as all is written that was passed on.
    fn poll_ending(&mut self) -> Option<Answer> {
        if self.job.is_some() || !self.writing().is_none_or(|writing| writing.is_written()) {
            return None;
        }
        let (ending, held) = self.ending.take()?;
        let Open::Writing(writing) = &mut self.open else {
            return Some(Answer::Refused(Refusal::Internal));
        };
        if let Some(errno) = writing.failed() {
            self.open = Open::Nothing;
            return Some(refused(errno));
        }
        match ending {
            Ending::Verify(name) => {
                let known = writing.sum_of_all().filter(|_| name == CHECKSUMS[0]);
                let upload = writing.upload();
                let wanted = self.wanted();
                self.verified = true;
                match known {
                    Some(sum) => Some(Answer::Checksum(format!("{sum:08x}"))),
                    None => self.in_turn(move |_| {
                        sum(&upload, &name, wanted).map_or_else(refused, Answer::Checksum)
                    }),
                }
            }
            Ending::Finish => {
                let Open::Writing(writing) = std::mem::replace(&mut self.open, Open::Nothing)
                else {
                    return Some(Answer::Refused(Refusal::Internal));
                };
                let sync = self.host.settings.sync;
                self.later(move |_| {
                    finish(writing, &held, sync).map_or_else(refused, |()| Answer::Done)
                })
            }
        }
    }

    /// Whether the session is still there.
    fn wanted(&self) -> impl Fn() -> bool + Send + 'static {
        let session = Arc::downgrade(&self.wanted);
        move || session.strong_count() > 0
    }

    fn opened(&mut self, opened: Opened) -> Answer {
        if !opened.facts.is_file() {
            return Answer::Refused(Refusal::IsDirectory);
        }
        self.open = Open::Reading(Reading::new(opened.file), opened.facts);
        Answer::Size(opened.facts.bytes)
    }

    fn later(&mut self, work: impl FnOnce(&Host) -> Answer + Send + 'static) -> Option<Answer> {
        let host = Arc::clone(&self.host);
        self.start(move || Done::Answer(work(&host)))
    }

    /// The same when there is room for what may take long.
    fn in_turn(&mut self, work: impl FnOnce(&Host) -> Answer + Send + 'static) -> Option<Answer> {
        let host = Arc::clone(&self.host);
        self.job = Some(tokio::task::spawn_local(async move {
            let _room = host.slow.acquire().await;
            let shared = Arc::clone(&host);
            let done = spawn_blocking(move || work(&shared)).await;
            // Else the thread panicked.
            Done::Answer(done.unwrap_or(Answer::Refused(Refusal::Internal)))
        }));
        None
    }

    fn start(&mut self, work: impl FnOnce() -> Done + Send + 'static) -> Option<Answer> {
        self.job = Some(spawn_blocking(work));
        None
    }
}
