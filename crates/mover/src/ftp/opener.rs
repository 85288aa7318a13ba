//! A thread that opens the files that a session is to send, and reads the small ones: what cannot be opened never comes near the server.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;

use super::files::Source;
use super::files::Store;
use super::messages::Event;
use super::verify;
use super::work::{Item, Job};
use crate::attributes::Facts;
use crate::error::Failure;
use crate::threads;

/// A file of this size is read at once; a whole pipeline of them is some MB.
const READ_AT_ONCE_BYTES: u64 = 64 << 10;

/// The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Opener {
    items: Sender<Item>,
}

impl Opener {
    pub(crate) fn start<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        (follow, verify): (bool, bool),
        events: UnboundedSender<Event>,
    ) -> std::io::Result<Self> {
        let (items, received) = channel::<Item>();
        threads::start(scope, move || {
            for item in received {
                let opened = open(&item, follow, verify).map(Arc::new);
                if events.send(Event::Opened(item, opened)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { items })
    }

    pub(crate) fn open(&self, item: Item) {
        // The thread has only gone where the session has.
        let _ = self.items.send(item);
    }
}

fn open(item: &Item, follow: bool, verify: bool) -> Result<Source, Failure> {
    let store = item.job.store().expect("only uploads are opened");
    let (file, facts) = file(store, follow)?;
    let range = match &item.job {
        Job::Store(_) if store.goes_on.is_some_and(|found| !found.unchanged(&facts)) => {
            return Err(changed(store));
        }
        Job::Part(parts, _) | Job::Name(parts) if !parts.facts.unchanged(&facts) => {
            return Err(changed(store));
        }
        Job::Part(parts, index) => parts.range(*index),
        Job::Name(_) => facts.size..facts.size,
        _ => 0..facts.size,
    };
    let unreadable = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        unreadable(store, errno)
    };
    let content = match facts.size <= READ_AT_ONCE_BYTES {
        true => Some(content(&file, facts.size, store).map_err(unreadable)??),
        false => None,
    };
    let end = range.end;
    let checksum = (verify || item.may_be_there()).then(|| verify::of_file(&file, range));
    Ok(Source {
        checksum: checksum.transpose().map_err(unreadable)?,
        number: item.number,
        file,
        size: facts.size,
        end,
        facts,
        content,
    })
}

/// The file that is to be sent, and what it is.
///
/// # Errors
/// If it cannot be read, or is not what it was.
pub(crate) fn file(store: &Store, follow: bool) -> Result<(File, Facts), Failure> {
    let failure = |errno| unreadable(store, errno);
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let file = rustix::fs::open(&store.from, flags, Mode::empty()).map_err(failure)?;
    let facts = Facts::from(rustix::fs::fstat(&file).map_err(failure)?);
    if facts.kind != FileType::RegularFile || Some(facts.size) != store.known.size {
        return Err(changed(store));
    }
    Ok((file.into(), facts))
}

fn unreadable(store: &Store, errno: Errno) -> Failure {
    Failure::kernel(store.from.clone(), "a file that can be read", errno)
}

fn changed(store: &Store) -> Failure {
    let found = "something else of that name, or another size or time";
    let advice = "it was changed meanwhile; run the same command again";
    let expected = "the file that was listed";
    Failure::found(store.from.clone(), expected, found, advice)
}

/// All of a small file, if it is as large as it was.
fn content(mut file: &File, size: u64, store: &Store) -> std::io::Result<Result<Vec<u8>, Failure>> {
    let room = usize::try_from(size).expect("a small file");
    let mut bytes = Vec::with_capacity(room + 1);
    file.by_ref().take(size + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() == room {
        Ok(bytes)
    } else {
        Err(changed(store))
    })
}
