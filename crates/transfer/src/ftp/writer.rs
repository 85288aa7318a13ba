//! Writer thread of a session: the network waits for the disk only if all blocks are full. Tasks are executed
//! in order, so no lock is needed. Several threads that create files in one directory would only wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::chunks::{ChunkedDownload, LARGE_BYTES};
use super::files::{Fetch, FtpMetadata};
use super::received;
use super::shared::Shared;
use super::work::{FtpDirection, Item};
use crate::error::Failure;
use crate::net::buffers::Block;
use crate::threads;

/// Data of a file in a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePart {
    pub(crate) number: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Offset in the block.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// Task of a writer.
#[derive(Debug)]
enum Task {
    /// True if another session started the item before.
    Start(u64, FtpDirection, bool, Ready),
    Write(Arc<Block>, Vec<FilePart>),
    /// The session has written this data itself.
    Reached(u64, Range<u64>),
    /// The session failed to write data itself.
    Spoil(u64, Errno),
    /// All data was received; with the Adler-32 of the server.
    Commit(Item, Option<u32>),
    /// Discard the data.
    Drop(u64),
    /// Download the file again with this metadata; or fail.
    Renew(Item, Option<FtpMetadata>),
}

/// Writer of a session.
#[derive(Debug)]
pub(crate) struct Writing {
    tasks: Sender<Task>,
    /// Files that the session can write itself.
    open: BTreeMap<u64, Ready>,
}

/// File for direct writes of the session, after all earlier data is written.
type Ready = Arc<OnceLock<Direct>>;

#[derive(Debug)]
enum Direct {
    File(Arc<File>),
    Chunk(Arc<ChunkedDownload>),
}

impl Writing {
    /// Starts the writer; it ends after its tasks when this is dropped.
    ///
    /// # Errors
    /// No thread available.
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

    pub(crate) fn start_item(&mut self, item: &Item) {
        let (number, ready) = (item.number, Ready::default());
        self.open.insert(number, Arc::clone(&ready));
        self.enqueue(Task::Start(
            number,
            item.job.clone(),
            item.is_retry(),
            ready,
        ));
    }

    /// Returns an open file for direct writes. It must not be in use when the item is committed or discarded.
    pub(crate) fn file(&self, number: u64) -> Option<&File> {
        match self.open.get(&number)?.get()? {
            Direct::File(file) => Some(file),
            Direct::Chunk(large) => Some(&large.file),
        }
    }

    /// Records data that the session has written itself.
    pub(crate) fn reached(&self, number: u64, written: Range<u64>) {
        let open = self.open.get(&number).and_then(|ready| ready.get());
        if matches!(open, Some(Direct::Chunk(large)) if large.in_order) {
            self.enqueue(Task::Reached(number, written));
        }
    }

    /// Reports a failed write of the session.
    pub(crate) fn spoil(&mut self, number: u64, errno: Errno) {
        self.open.remove(&number);
        self.enqueue(Task::Spoil(number, errno));
    }

    /// Writes parts of a block.
    pub(crate) fn write(&self, block: &Arc<Block>, file_parts: Vec<FilePart>) {
        if !file_parts.is_empty() {
            self.enqueue(Task::Write(Arc::clone(block), file_parts));
        }
    }

    pub(crate) fn commit(&mut self, item: Item, checksum: Option<u32>) {
        self.open.remove(&item.number);
        self.enqueue(Task::Commit(item, checksum));
    }

    pub(crate) fn discard(&mut self, number: u64) {
        self.open.remove(&number);
        self.enqueue(Task::Drop(number));
    }

    /// Downloads a changed file again.
    pub(crate) fn renew(&self, item: Item, known: Option<FtpMetadata>) {
        self.enqueue(Task::Renew(item, known));
    }

    fn enqueue(&self, task: Task) {
        // A writer that has ended has panicked, which ends the copy.
        let _ = self.tasks.send(task);
    }
}

/// File that is being written.
enum Open {
    File(Arc<Fetch>, Arc<File>),
    Chunk(Arc<ChunkedDownload>),
    /// Failed file, with its failure if not reported yet.
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
                Task::Start(number, job, again, ready) => self.start(number, &job, again, &ready),
                Task::Write(block, file_parts) => self.write(&block, &file_parts),
                Task::Reached(number, written) => self.reached(number, written),
                Task::Spoil(number, errno) => self.spoil(number, errno),
                Task::Commit(item, checksum) => self.commit(&item, checksum),
                Task::Renew(item, known) => self.renew(&item, known),
                Task::Drop(number) => drop(self.open.remove(&number)),
            }
        }
    }

    fn start(&mut self, number: u64, job: &FtpDirection, again: bool, ready: &Ready) {
        // A repeated item receives all data again, or the rest; with an unknown size, old data could exceed the new file.
        if let (FtpDirection::Fetch(fetch), Some(Open::File(_, file))) =
            (job, self.open.get(&number))
            && fetch.known.size.is_none()
        {
            let _ = rustix::fs::ftruncate(file, 0);
        }
        let open = self.open.entry(number).or_insert_with(|| match job {
            FtpDirection::Fetch(fetch) => match received::create(fetch, again) {
                Ok(file) => Open::File(Arc::clone(fetch), Arc::new(file)),
                Err(failure) => Open::Failed(Some(failure)),
            },
            FtpDirection::Chunk(large, _) | FtpDirection::Rest(large) => {
                Open::Chunk(Arc::clone(large))
            }
            FtpDirection::Store(_)
            | FtpDirection::Part(..)
            | FtpDirection::Name(_)
            | FtpDirection::Again(..) => {
                unreachable!("its data does not pass through this host")
            }
        });
        // A new cell for each start of the file.
        let _ = match open {
            Open::File(_, file) => ready.set(Direct::File(Arc::clone(file))),
            Open::Chunk(large) => ready.set(Direct::Chunk(Arc::clone(large))),
            Open::Failed(_) => Ok(()),
        };
    }

    fn write(&mut self, block: &Block, file_parts: &[FilePart]) {
        for file_part in file_parts {
            let Some(open) = self.open.get(&file_part.number) else {
                continue;
            };
            let bytes = &block[file_part.start..file_part.start + file_part.bytes];
            let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            let written = match open {
                Open::File(_, file) => file.write_all_at(bytes, file_part.offset).map_err(errno),
                Open::Chunk(large) => {
                    let written = large.file.write_all_at(bytes, file_part.offset);
                    let range = file_part.offset..file_part.offset + file_part.bytes as u64;
                    written.map_err(errno).and_then(|()| large.reach(range))
                }
                Open::Failed(_) => continue,
            };
            if let Err(errno) = written {
                self.spoil(file_part.number, errno);
            }
        }
    }

    /// Records written data of a file.
    fn reached(&mut self, number: u64, written: Range<u64>) {
        if let Some(Open::Chunk(large)) = self.open.get(&number)
            && let Err(errno) = large.reach(written)
        {
            self.spoil(number, errno);
        }
    }

    /// Records failed writes of a file.
    fn spoil(&mut self, number: u64, errno: Errno) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let fetch = match open {
            Open::File(fetch, _) => fetch,
            Open::Chunk(large) => &large.fetch,
            Open::Failed(_) => return,
        };
        let failure = Failure::kernel(fetch.to.clone(), "writable data", errno);
        // A failure that ends the copy is reported immediately, because no commit follows.
        let later = !failure.ends_all;
        if !later {
            self.shared.report_failure(&failure);
        }
        *open = Open::Failed(later.then_some(failure));
    }

    fn commit(&mut self, item: &Item, checksum: Option<u32>) {
        let result = match (&item.job, self.open.remove(&item.number)) {
            (_, Some(Open::Failed(failure))) => Err(failure),
            (FtpDirection::Fetch(fetch), Some(Open::File(_, file))) => {
                let whole = received::compare(fetch, &file, None, checksum);
                whole.and_then(|()| self.finish(fetch, &file)).map_err(Some)
            }
            (FtpDirection::Chunk(large, index), Some(Open::Chunk(_))) => {
                let range = Some(large.range(*index));
                let whole = received::compare(&large.fetch, &large.file, range, checksum);
                whole
                    .and_then(|()| self.finish_chunk(large, *index))
                    .map_err(Some)
            }
            (FtpDirection::Rest(large), Some(Open::Chunk(_))) => {
                let whole = received::compare(&large.fetch, &large.file, None, checksum);
                // Otherwise another copy could resume the file.
                let whole = whole.inspect_err(|_| large.forget());
                whole.and_then(|()| self.finish_rest(large)).map_err(Some)
            }
            _ => unreachable!("only started files are committed"),
        };
        if let Err(failure) = result {
            let first = match &item.job {
                FtpDirection::Chunk(large, _) | FtpDirection::Rest(large) => large.fail(),
                job => {
                    let _ = std::fs::remove_file(&job.fetch().part);
                    true
                }
            };
            if let Some(failure) = failure.filter(|_| first) {
                self.shared.report_failure(&failure);
            }
        }
        self.shared.queue.complete();
    }

    /// Discards the data of a file, and downloads it again.
    fn renew(&self, item: &Item, known: Option<FtpMetadata>) {
        let FtpDirection::Again(fetch, chunks) = &item.job else {
            unreachable!("only downloads are repeated");
        };
        if let Some(large) = chunks {
            // Data of its chunks that still arrives goes to a file without a name.
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
                let expected = "a writable location";
                let failure = Failure::kernel(fetch.to.clone(), expected, errno);
                self.shared.report_failure(&failure);
                self.shared.queue.complete();
            }
        }
    }

    /// Returns the transfers for a file that is downloaded again.
    fn jobs(
        &self,
        fetch: Arc<Fetch>,
        before: Option<&ChunkedDownload>,
    ) -> Result<Vec<FtpDirection>, Errno> {
        let size = fetch.known.size.filter(|&size| size >= LARGE_BYTES);
        let (Some(size), Some(before)) = (size, before) else {
            return Ok(vec![FtpDirection::Fetch(fetch)]);
        };
        let location = self.shared.display_url(&fetch.from);
        let (source, record) = (location.to_string_lossy(), before.record());
        let (sync, in_order) = (self.shared.options.sync, before.in_order);
        let (large, missing) =
            ChunkedDownload::open(fetch, size, &source, record, (sync, in_order))?;
        Ok(FtpDirection::of(large, missing))
    }

    fn finish(&self, fetch: &Fetch, file: &File) -> Result<(), Failure> {
        let size = received::name(fetch, file, self.shared.options)?;
        self.shared.copied(|| fetch.to.clone(), size, "ftp");
        Ok(())
    }

    fn finish_rest(&self, large: &ChunkedDownload) -> Result<(), Failure> {
        large.forget();
        self.finish(&large.fetch, &large.file)
    }

    fn finish_chunk(&self, large: &ChunkedDownload, index: u64) -> Result<(), Failure> {
        let failed = |errno| Failure::kernel(large.fetch.to.clone(), "a chunk map", errno);
        if large.mark(index).map_err(failed)? && !large.has_failed() {
            large.forget();
            let size = received::name(&large.fetch, &large.file, self.shared.options)?;
            self.shared
                .copied(|| large.fetch.to.clone(), size, "ftp in chunks");
        }
        Ok(())
    }
}

impl FtpDirection {
    /// Returns the download of an item.
    ///
    /// # Panics
    /// For an upload.
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
