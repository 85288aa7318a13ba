//! Threads that write what a session receives: the network waits for no disk, except when all memory between them is full.
//!
//! A file belongs to one thread, and what is to be done with it comes in order: so nothing here needs a lock.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::chunks::Large;
use super::shared::Shared;
use super::verify;
use super::work::{Fetch, Item, Job};
use crate::error::Failure;
use crate::net::buffers::Block;
use crate::order::Existing;
use crate::threads;

/// How long a writer may have to do with other files before it lets go of one that its session has given back.
const LETTING_GO: Duration = Duration::from_secs(2);
/// How often it is seen whether it has.
const GLANCE: Duration = Duration::from_millis(5);

/// Bytes of a block that belong to a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    /// Their position in the file.
    pub(crate) offset: u64,
    /// Their place in the block.
    pub(crate) begin: usize,
    pub(crate) bytes: usize,
}

/// What a writer is to do.
#[derive(Debug)]
enum Task {
    /// Whether another session has given it back, too.
    Begin(u64, Job, bool, Ready),
    Write(Arc<Block>, Vec<Piece>),
    /// Some of it could not be written by the session.
    Spoil(u64, Errno),
    /// All bytes of it are there; what the server says that their Adler-32 is.
    Commit(Item, Option<u32>),
    /// None of its bytes count.
    Drop(u64),
}

/// The writers of a session.
#[derive(Debug)]
pub(crate) struct Writers {
    tasks: Vec<Sender<Task>>,
    /// Files that the session may write to by itself, too.
    open: BTreeMap<u64, Ready>,
}

/// Where a writer says that a file is open, for this time that it is begun: what came of it before is written by then.
type Ready = Arc<OnceLock<Direct>>;

#[derive(Debug)]
enum Direct {
    File(Arc<File>),
    Chunk(Arc<Large>),
}

impl Writers {
    /// Starts so many, or as many as there are threads for. They end when this is dropped, after what they were given.
    pub(crate) fn start<'s, 'o: 's>(
        scope: &'s std::thread::Scope<'s, '_>,
        shared: &'o Shared<'o>,
        count: usize,
    ) -> io::Result<Self> {
        let start = || -> io::Result<Sender<Task>> {
            let (sender, tasks) = channel();
            threads::start(scope, move || Writer::new(shared).run(&tasks))?;
            Ok(sender)
        };
        let mut tasks = vec![start()?];
        tasks.extend((1..count).map_while(|_| start().ok()));
        Ok(Self {
            tasks,
            open: BTreeMap::new(),
        })
    }

    pub(crate) fn begin(&mut self, item: &Item) {
        let (number, ready) = (item.number, Ready::default());
        self.open.insert(number, Arc::clone(&ready));
        let again = item.tries > 0;
        self.give(number, Task::Begin(number, item.job.clone(), again, ready));
    }

    /// The file, if it is open, for one who writes to it by himself. Nobody may have it when it is committed or discarded.
    pub(crate) fn file(&self, number: u64) -> Option<&File> {
        match self.open.get(&number)?.get()? {
            Direct::File(file) => Some(file),
            Direct::Chunk(large) => Some(&large.file),
        }
    }

    /// Some of it could not be written by him.
    pub(crate) fn spoil(&mut self, number: u64, errno: Errno) {
        self.open.remove(&number);
        self.give(number, Task::Spoil(number, errno));
    }

    /// Writes pieces of a block, each by the thread that has its file.
    pub(crate) fn write(&self, block: &Arc<Block>, pieces: Vec<Piece>) {
        if pieces.is_empty() {
            return;
        }
        let mut shares: Vec<Vec<Piece>> = Vec::new();
        shares.resize_with(self.tasks.len(), Vec::new);
        for piece in pieces {
            shares[self.index(piece.number)].push(piece);
        }
        for (tasks, share) in self.tasks.iter().zip(shares) {
            if !share.is_empty() {
                // A writer that is gone has panicked, which ends all.
                let _ = tasks.send(Task::Write(Arc::clone(block), share));
            }
        }
    }

    pub(crate) fn commit(&mut self, item: Item, checksum: Option<u32>) {
        self.open.remove(&item.number);
        self.give(item.number, Task::Commit(item, checksum));
    }

    pub(crate) fn discard(&mut self, number: u64) {
        self.open.remove(&number);
        self.give(number, Task::Drop(number));
    }

    fn give(&self, number: u64, task: Task) {
        let _ = self.tasks[self.index(number)].send(task);
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number % self.tasks.len() as u64).unwrap_or(0)
    }
}

/// A file that is being written.
enum Open {
    File(Arc<Fetch>, Arc<File>),
    Chunk(Arc<Large>),
    /// What its bytes cannot be written for, if that is not told yet.
    Failed(Option<Failure>),
}

struct Writer<'o> {
    shared: &'o Shared<'o>,
    open: HashMap<u64, Open>,
}

impl<'o> Writer<'o> {
    fn new(shared: &'o Shared<'o>) -> Self {
        Self {
            shared,
            open: HashMap::new(),
        }
    }

    fn run(mut self, tasks: &Receiver<Task>) {
        for task in tasks {
            match task {
                Task::Begin(number, job, again, ready) => self.begin(number, &job, again, &ready),
                Task::Write(block, pieces) => self.write(&block, &pieces),
                Task::Spoil(number, errno) => self.spoil(number, errno),
                Task::Commit(item, checksum) => self.commit(&item, checksum),
                Task::Drop(number) => drop(self.open.remove(&number)),
            }
        }
    }

    fn begin(&mut self, number: u64, job: &Job, again: bool, ready: &Ready) {
        // One that was begun before gets all its bytes again; of an unknown size, what came may be more than that.
        if let (Job::Fetch(fetch), Some(Open::File(_, file))) = (job, self.open.get(&number))
            && fetch.known.size.is_none()
        {
            let _ = rustix::fs::ftruncate(file, 0);
        }
        let open = self.open.entry(number).or_insert_with(|| match job {
            Job::Fetch(fetch) => match create(fetch, again) {
                Ok(file) => Open::File(Arc::clone(fetch), Arc::new(file)),
                Err(failure) => Open::Failed(Some(failure)),
            },
            Job::Chunk(large, _) => Open::Chunk(Arc::clone(large)),
            Job::Store(_) | Job::Part(..) | Job::Name(_) => {
                unreachable!("what is sent is not written here")
            }
        });
        // It is another one for each time that the file is begun.
        let _ = match open {
            Open::File(_, file) => ready.set(Direct::File(Arc::clone(file))),
            Open::Chunk(large) => ready.set(Direct::Chunk(Arc::clone(large))),
            Open::Failed(_) => Ok(()),
        };
    }

    fn write(&mut self, block: &Block, pieces: &[Piece]) {
        for piece in pieces {
            let Some(open) = self.open.get(&piece.number) else {
                continue;
            };
            let bytes = &block[piece.begin..piece.begin + piece.bytes];
            let file = match open {
                Open::File(_, file) => file,
                Open::Chunk(large) => &large.file,
                Open::Failed(_) => continue,
            };
            if let Err(error) = file.write_all_at(bytes, piece.offset) {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.spoil(piece.number, errno);
            }
        }
    }

    /// Some bytes of a file could not be written.
    fn spoil(&mut self, number: u64, errno: Errno) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let fetch = match open {
            Open::File(fetch, _) => fetch,
            Open::Chunk(large) => &large.fetch,
            Open::Failed(_) => return,
        };
        let failure = Failure::kernel(fetch.to.clone(), "bytes to be written", errno);
        // What ends all is told at once, for nothing is committed after it.
        let later = !failure.ends_all;
        if !later {
            self.shared.tell(&failure);
        }
        *open = Open::Failed(later.then_some(failure));
    }

    fn commit(&mut self, item: &Item, checksum: Option<u32>) {
        let result = match (&item.job, self.open.remove(&item.number)) {
            (_, Some(Open::Failed(failure))) => Err(failure),
            (Job::Fetch(fetch), Some(Open::File(_, file))) => {
                let whole = compare(fetch, &file, None, checksum);
                whole.and_then(|()| self.finish(fetch, &file)).map_err(Some)
            }
            (Job::Chunk(large, index), Some(Open::Chunk(_))) => {
                let range = Some(large.range(*index));
                let whole = compare(&large.fetch, &large.file, range, checksum);
                whole
                    .and_then(|()| self.finish_chunk(large, *index))
                    .map_err(Some)
            }
            _ => unreachable!("what is committed was begun"),
        };
        if let Err(failure) = result {
            let first = match &item.job {
                Job::Chunk(large, _) => large.fail(),
                job => {
                    let _ = std::fs::remove_file(&job.fetch().part);
                    true
                }
            };
            if let Some(failure) = failure.filter(|_| first) {
                self.shared.tell(&failure);
            }
        }
        self.shared.queue.settle();
    }

    fn finish(&self, fetch: &Fetch, file: &File) -> Result<(), Failure> {
        let size = self.name(fetch, file)?;
        self.shared.copied(|| fetch.to.clone(), size, "ftp");
        Ok(())
    }

    fn finish_chunk(&self, large: &Large, index: u64) -> Result<(), Failure> {
        let failed = |errno| Failure::kernel(large.fetch.to.clone(), "a record of it", errno);
        if large.mark(index).map_err(failed)? && !large.has_failed() {
            large.forget();
            let size = self.name(&large.fetch, &large.file)?;
            self.shared
                .copied(|| large.fetch.to.clone(), size, "ftp in chunks");
        }
        Ok(())
    }

    /// Gives a whole file its mode, its time and its name. Returns its size.
    fn name(&self, fetch: &Fetch, file: &File) -> Result<u64, Failure> {
        let order = self.shared.order;
        let failed = |expected| move |errno| Failure::kernel(fetch.to.clone(), expected, errno);
        let found = rustix::fs::fstat(file).map_err(failed("to see it"))?;
        let size = u64::try_from(found.st_size).unwrap_or_default();
        if let Some(mode) = fetch.known.mode.filter(|_| order.preserve.mode) {
            // Whose file it was is another one's question: bits that lend an identity are not kept.
            let mode = Mode::from_raw_mode(mode & 0o1777);
            if Mode::from_raw_mode(found.st_mode & 0o7777) != mode {
                rustix::fs::fchmod(file, mode).map_err(failed("to set the mode"))?;
            }
        }
        if let Some(modify_s) = fetch.known.modify_s.filter(|_| order.preserve.times) {
            rustix::fs::futimens(file, &times(modify_s)).map_err(failed("to set the times"))?;
        }
        if order.sync {
            rustix::fs::fsync(file).map_err(failed("to have it on stable storage"))?;
        }
        rename(&fetch.part, &fetch.to, order.existing)
            .map_err(failed("a name that it can have"))?;
        Ok(size)
    }
}

/// Sees that what is on the disk is what the server has.
fn compare(
    fetch: &Fetch,
    file: &File,
    range: Option<Range<u64>>,
    checksum: Option<u32>,
) -> Result<(), Failure> {
    let Some(checksum) = checksum else {
        return Ok(());
    };
    let range = range.map_or_else(|| Ok(0..file.metadata()?.len()), Ok);
    let found = range.and_then(|range| verify::of_file(file, range));
    let advice = "run the same command again; if it stays so, test memory and disk";
    match found {
        Ok(found) if found == checksum => Ok(()),
        Ok(_) => {
            let expected = "the bytes of the server";
            Err(Failure::found(fetch.to.clone(), expected, "others", advice))
        }
        Err(error) => {
            let (to, found) = (fetch.to.clone(), crate::error::said(&error));
            Err(Failure::found(to, "to read it again", found, advice))
        }
    }
}

impl Job {
    /// What a download is of.
    ///
    /// # Panics
    /// Of an upload.
    pub(crate) fn fetch(&self) -> &Fetch {
        match self {
            Self::Fetch(fetch) => fetch,
            Self::Chunk(large, _) => &large.fetch,
            Self::Store(_) | Self::Part(..) | Self::Name(_) => {
                unreachable!("an upload has no copy here")
            }
        }
    }
}

/// The time of change of a file, and that of access as it is.
pub(crate) fn times(modify_s: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: modify_s,
            tv_nsec: 0,
        },
    }
}

/// Makes a file under its temporary name, locked, so that two copies of the same do not mix. Where it was begun before, the writer of the
/// session that gave it back may be about to let go of it.
fn create(fetch: &Fetch, again: bool) -> Result<File, Failure> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |errno| match errno {
        Errno::WOULDBLOCK => Failure::found(
            fetch.to.clone(),
            "a file that nobody writes to",
            "another copy of the same that is writing it",
            "wait for it to end",
        ),
        errno => Failure::kernel(fetch.to.clone(), "a place that can be written to", errno),
    };
    let mode = Mode::from_raw_mode(fetch.known.mode.unwrap_or(0o666) & 0o777 | 0o600);
    let file = rustix::fs::open(&fetch.part, flags, mode).map_err(failed)?;
    // On a file system without locks two copies of the same at the same time are not told apart.
    let begin = Instant::now();
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        == Err(Errno::WOULDBLOCK)
    {
        if !again || begin.elapsed() > LETTING_GO {
            return Err(failed(Errno::WOULDBLOCK));
        }
        std::thread::sleep(GLANCE);
    }
    let there = rustix::fs::fstat(&file).map_err(failed)?;
    if there.st_size > 0 {
        rustix::fs::ftruncate(&file, 0).map_err(failed)?;
    }
    Ok(file.into())
}

fn rename(from: &Path, to: &Path, existing: Existing) -> Result<(), Errno> {
    let result = if existing == Existing::Keep {
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, from, here, to, RenameFlags::NOREPLACE)
    } else {
        rustix::fs::rename(from, to)
    };
    result.inspect_err(|_| {
        // It cannot be of use: what it was made for is not to be had.
        let _ = std::fs::remove_file(from);
    })
}

#[cfg(test)]
mod tests;
