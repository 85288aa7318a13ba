//! Thread that opens the files of uploads, and reads small ones: a file that cannot be opened causes no command.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;

use super::files::Source;
use super::files::UploadTask;
use super::messages::SessionEvent;
use super::verify;
use super::work::{FtpDirection, Item};
use crate::attributes::LocalMetadata;
use crate::error::Failure;
use crate::threads;

/// Maximum size of a file that is read completely; a full pipeline of them has some MB.
const READ_AT_ONCE_BYTES: u64 = 64 << 10;

/// Opener thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Opener {
    items: Sender<Item>,
}

impl Opener {
    pub(crate) fn start<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        (follow, verify): (bool, bool),
        events: UnboundedSender<SessionEvent>,
    ) -> std::io::Result<Self> {
        let (items, received) = channel::<Item>();
        threads::start(scope, move || {
            for item in received {
                let opened = open(&item, follow, verify).map(Arc::new);
                if events.send(SessionEvent::Opened(item, opened)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { items })
    }

    pub(crate) fn open(&self, item: Item) {
        // The thread ends only after the session.
        let _ = self.items.send(item);
    }
}

fn open(item: &Item, follow: bool, verify: bool) -> Result<Source, Failure> {
    let store = item.job.store().expect("only uploads are opened");
    let (file, source_metadata) = file(store, follow)?;
    let range = match &item.job {
        FtpDirection::Store(_)
            if store
                .resume_from
                .is_some_and(|found| !found.unchanged(&source_metadata)) =>
        {
            return Err(changed(store));
        }
        FtpDirection::Part(parts, _) | FtpDirection::Name(parts)
            if !parts.source_metadata.unchanged(&source_metadata) =>
        {
            return Err(changed(store));
        }
        FtpDirection::Part(parts, index) => parts.range(*index),
        FtpDirection::Name(_) => source_metadata.size..source_metadata.size,
        _ => 0..source_metadata.size,
    };
    let unreadable = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        unreadable(store, errno)
    };
    let content = match source_metadata.size <= READ_AT_ONCE_BYTES {
        true => Some(content(&file, source_metadata.size, store).map_err(unreadable)??),
        false => None,
    };
    let end = range.end;
    let checksum = (verify || item.may_be_complete()).then(|| verify::of_file(&file, range));
    Ok(Source {
        checksum: checksum.transpose().map_err(unreadable)?,
        number: item.number,
        file,
        size: source_metadata.size,
        end,
        source_metadata,
        content,
    })
}

/// Opens a file and returns its metadata.
///
/// # Errors
/// A file that cannot be read, or has changed.
pub(crate) fn file(store: &UploadTask, follow: bool) -> Result<(File, LocalMetadata), Failure> {
    let failure = |errno| unreadable(store, errno);
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let file = rustix::fs::open(&store.from, flags, Mode::empty()).map_err(failure)?;
    let source_metadata = LocalMetadata::from(rustix::fs::fstat(&file).map_err(failure)?);
    if source_metadata.kind != FileType::RegularFile
        || Some(source_metadata.size) != store.known.size
    {
        return Err(changed(store));
    }
    Ok((file.into(), source_metadata))
}

fn unreadable(store: &UploadTask, errno: Errno) -> Failure {
    Failure::kernel(store.from.clone(), "a readable file", errno)
}

fn changed(store: &UploadTask) -> Failure {
    let found = "another file type, size or time";
    let advice = "it changed during the copy; run the same command again";
    let expected = "the file as listed";
    Failure::found(store.from.clone(), expected, found, advice)
}

/// Reads a small file if its size has not changed.
fn content(
    mut file: &File,
    size: u64,
    store: &UploadTask,
) -> std::io::Result<Result<Vec<u8>, Failure>> {
    let length = usize::try_from(size).expect("a small file");
    let mut bytes = Vec::with_capacity(length + 1);
    file.by_ref().take(size + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(changed(store))
    })
}
