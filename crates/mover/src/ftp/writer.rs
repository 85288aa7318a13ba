//! A thread that writes what a session receives: the network waits for no disk, except when all memory between them is full. What is to be done
//! comes in order, so that nothing here needs a lock. Several threads that make files in one directory would only wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::chunks::{LARGE_BYTES, Large};
use super::files::{Fetch, Known};
use super::received;
use super::shared::Shared;
use super::work::{Item, Job};
use crate::error::Failure;
use crate::net::buffers::Block;
use crate::threads;

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
    /// Whether another session had it before, too.
    Begin(u64, Job, bool, Ready),
    Write(Arc<Block>, Vec<Piece>),
    /// The session has written these bytes by itself.
    Reached(u64, Range<u64>),
    /// Some of it could not be written by the session.
    Spoil(u64, Errno),
    /// All bytes of it are there; what the server says that their Adler-32 is.
    Commit(Item, Option<u32>),
    /// None of its bytes count.
    Drop(u64),
    /// It comes as a new one, of which this is known; or it does not come any more.
    Renew(Item, Option<Known>),
}

/// What the writer of a session is given to do.
#[derive(Debug)]
pub(crate) struct Writing {
    tasks: Sender<Task>,
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

impl Writing {
    /// Starts the writer. It ends when this is dropped, after what it was given.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(crate) fn start<'s, 'o: 's>(
        scope: &'s std::thread::Scope<'s, '_>,
        shared: &'o Shared<'o>,
    ) -> io::Result<Self> {
        let (tasks, todo) = channel();
        threads::start(scope, move || Writer::new(shared).run(&todo))?;
        Ok(Self {
            tasks,
            open: BTreeMap::new(),
        })
    }

    pub(crate) fn begin(&mut self, item: &Item) {
        let (number, ready) = (item.number, Ready::default());
        self.open.insert(number, Arc::clone(&ready));
        self.give(Task::Begin(
            number,
            item.job.clone(),
            item.is_again(),
            ready,
        ));
    }

    /// The file, if it is open, for one who writes to it by himself. Nobody may have it when it is committed or discarded.
    pub(crate) fn file(&self, number: u64) -> Option<&File> {
        match self.open.get(&number)?.get()? {
            Direct::File(file) => Some(file),
            Direct::Chunk(large) => Some(&large.file),
        }
    }

    /// He has written these bytes. Where it comes in order that is noted down.
    pub(crate) fn reached(&self, number: u64, written: Range<u64>) {
        let open = self.open.get(&number).and_then(|ready| ready.get());
        if matches!(open, Some(Direct::Chunk(large)) if large.in_order) {
            self.give(Task::Reached(number, written));
        }
    }

    /// Some of it could not be written by him.
    pub(crate) fn spoil(&mut self, number: u64, errno: Errno) {
        self.open.remove(&number);
        self.give(Task::Spoil(number, errno));
    }

    /// Writes pieces of a block.
    pub(crate) fn write(&self, block: &Arc<Block>, pieces: Vec<Piece>) {
        if !pieces.is_empty() {
            self.give(Task::Write(Arc::clone(block), pieces));
        }
    }

    pub(crate) fn commit(&mut self, item: Item, checksum: Option<u32>) {
        self.open.remove(&item.number);
        self.give(Task::Commit(item, checksum));
    }

    pub(crate) fn discard(&mut self, number: u64) {
        self.open.remove(&number);
        self.give(Task::Drop(number));
    }

    /// Has a file that was changed come as a new one.
    pub(crate) fn renew(&self, item: Item, known: Option<Known>) {
        self.give(Task::Renew(item, known));
    }

    fn give(&self, task: Task) {
        // A writer that is gone has panicked, which ends all.
        let _ = self.tasks.send(task);
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
                Task::Reached(number, written) => self.reached(number, written),
                Task::Spoil(number, errno) => self.spoil(number, errno),
                Task::Commit(item, checksum) => self.commit(&item, checksum),
                Task::Renew(item, known) => self.renew(&item, known),
                Task::Drop(number) => drop(self.open.remove(&number)),
            }
        }
    }

    fn begin(&mut self, number: u64, job: &Job, again: bool, ready: &Ready) {
        // One that was begun before gets its bytes again, or the rest; of an unknown size, what came may be more than all.
        if let (Job::Fetch(fetch), Some(Open::File(_, file))) = (job, self.open.get(&number))
            && fetch.known.size.is_none()
        {
            let _ = rustix::fs::ftruncate(file, 0);
        }
        let open = self.open.entry(number).or_insert_with(|| match job {
            Job::Fetch(fetch) => match received::create(fetch, again) {
                Ok(file) => Open::File(Arc::clone(fetch), Arc::new(file)),
                Err(failure) => Open::Failed(Some(failure)),
            },
            Job::Chunk(large, _) | Job::Rest(large) => Open::Chunk(Arc::clone(large)),
            Job::Store(_) | Job::Part(..) | Job::Name(_) | Job::Again(..) => {
                unreachable!("it has no bytes that come here")
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
            let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            let written = match open {
                Open::File(_, file) => file.write_all_at(bytes, piece.offset).map_err(errno),
                Open::Chunk(large) => {
                    let written = large.file.write_all_at(bytes, piece.offset);
                    let range = piece.offset..piece.offset + piece.bytes as u64;
                    written.map_err(errno).and_then(|()| large.reach(range))
                }
                Open::Failed(_) => continue,
            };
            if let Err(errno) = written {
                self.spoil(piece.number, errno);
            }
        }
    }

    /// These bytes of a file are written.
    fn reached(&mut self, number: u64, written: Range<u64>) {
        if let Some(Open::Chunk(large)) = self.open.get(&number)
            && let Err(errno) = large.reach(written)
        {
            self.spoil(number, errno);
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
                let whole = received::compare(fetch, &file, None, checksum);
                whole.and_then(|()| self.finish(fetch, &file)).map_err(Some)
            }
            (Job::Chunk(large, index), Some(Open::Chunk(_))) => {
                let range = Some(large.range(*index));
                let whole = received::compare(&large.fetch, &large.file, range, checksum);
                whole
                    .and_then(|()| self.finish_chunk(large, *index))
                    .map_err(Some)
            }
            (Job::Rest(large), Some(Open::Chunk(_))) => {
                let whole = received::compare(&large.fetch, &large.file, None, checksum);
                // Another copy goes on nowhere then.
                let whole = whole.inspect_err(|_| large.forget());
                whole.and_then(|()| self.finish_rest(large)).map_err(Some)
            }
            _ => unreachable!("what is committed was begun"),
        };
        if let Err(failure) = result {
            let first = match &item.job {
                Job::Chunk(large, _) | Job::Rest(large) => large.fail(),
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

    /// Throws away what came of a file, and has it come as a new one.
    fn renew(&self, item: &Item, known: Option<Known>) {
        let Job::Again(fetch, chunks) = &item.job else {
            unreachable!("nothing else comes anew");
        };
        if let Some(large) = chunks {
            // What still comes of its chunks goes into a file without a name.
            large.forget();
        }
        if known.is_none() || chunks.is_some() {
            let _ = std::fs::remove_file(&fetch.part);
        }
        let jobs = known.map_or(Ok(Vec::new()), |known| {
            let fetch = Arc::new(Fetch {
                from: fetch.from.clone(),
                to: fetch.to.clone(),
                part: fetch.part.clone(),
                known,
                changes: fetch.changes + 1,
            });
            self.jobs(fetch, chunks.as_deref())
        });
        match jobs {
            Ok(jobs) => self.shared.queue.replace(jobs),
            Err(errno) => {
                let expected = "a place that can be written to";
                let failure = Failure::kernel(fetch.to.clone(), expected, errno);
                self.shared.tell(&failure);
                self.shared.queue.settle();
            }
        }
    }

    /// What is to be moved of a file that comes as a new one.
    fn jobs(&self, fetch: Arc<Fetch>, before: Option<&Large>) -> Result<Vec<Job>, Errno> {
        let size = fetch.known.size.filter(|&size| size >= LARGE_BYTES);
        let (Some(size), Some(before)) = (size, before) else {
            return Ok(vec![Job::Fetch(fetch)]);
        };
        let place = self.shared.place(&fetch.from);
        let (source, record) = (place.to_string_lossy(), before.record());
        let (sync, in_order) = (self.shared.order.sync, before.in_order);
        let (large, missing) = Large::open(fetch, size, &source, record, (sync, in_order))?;
        Ok(Job::of(large, missing))
    }

    fn finish(&self, fetch: &Fetch, file: &File) -> Result<(), Failure> {
        let size = received::name(fetch, file, self.shared.order)?;
        self.shared.copied(|| fetch.to.clone(), size, "ftp");
        Ok(())
    }

    fn finish_rest(&self, large: &Large) -> Result<(), Failure> {
        large.forget();
        self.finish(&large.fetch, &large.file)
    }

    fn finish_chunk(&self, large: &Large, index: u64) -> Result<(), Failure> {
        let failed = |errno| Failure::kernel(large.fetch.to.clone(), "a record of it", errno);
        if large.mark(index).map_err(failed)? && !large.has_failed() {
            large.forget();
            let size = received::name(&large.fetch, &large.file, self.shared.order)?;
            self.shared
                .copied(|| large.fetch.to.clone(), size, "ftp in chunks");
        }
        Ok(())
    }
}

impl Job {
    /// What a download is of.
    ///
    /// # Panics
    /// Of an upload.
    pub(crate) fn fetch(&self) -> &Arc<Fetch> {
        match self {
            Self::Fetch(fetch) | Self::Again(fetch, _) => fetch,
            Self::Chunk(large, _) | Self::Rest(large) => &large.fetch,
            Self::Store(_) | Self::Part(..) | Self::Name(_) => {
                unreachable!("an upload has no copy here")
            }
        }
    }
}

#[cfg(test)]
mod tests;
