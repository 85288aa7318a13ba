//! A thread that opens the files that a session is to send, and reads the small ones: what cannot be opened never comes near the server.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use rustix::fs::{FileType, Mode, OFlags};
use tokio::sync::mpsc::UnboundedSender;

use super::sender::Source;
use super::session::Event;
use super::verify;
use super::work::{Item, Job};
use crate::attributes::Facts;
use crate::error::Failure;

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
    ) -> Self {
        let (items, received) = channel::<Item>();
        scope.spawn(move || {
            for item in received {
                let opened = open(&item, follow, verify).map(Arc::new);
                if events.send(Event::Opened(item, opened)).is_err() {
                    return;
                }
            }
        });
        Self { items }
    }

    pub(crate) fn open(&self, item: Item) {
        // The thread has only gone where the session has.
        let _ = self.items.send(item);
    }
}

fn open(item: &Item, follow: bool, verify: bool) -> Result<Source, Failure> {
    let Job::Store(store) = &item.job else {
        unreachable!("only uploads are opened");
    };
    let failure = |errno| Failure::kernel(store.from.clone(), "a file that can be read", errno);
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let file = rustix::fs::open(&store.from, flags, Mode::empty()).map_err(failure)?;
    let facts = Facts::from(rustix::fs::fstat(&file).map_err(failure)?);
    let changed = || {
        let found = "something else of that name, or another size";
        let advice = "it was changed meanwhile; run the same command again";
        Failure::found(
            store.from.clone(),
            "the file that was listed",
            found,
            advice,
        )
    };
    if facts.kind != FileType::RegularFile || Some(facts.size) != store.known.size {
        return Err(changed());
    }
    let mut file = File::from(file);
    let mut content = None;
    if facts.size <= READ_AT_ONCE_BYTES {
        let room = usize::try_from(facts.size).expect("a small file");
        let mut bytes = Vec::with_capacity(room + 1);
        let read = file.by_ref().take(facts.size + 1).read_to_end(&mut bytes);
        read.map_err(|error| {
            failure(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        })?;
        if bytes.len() != room {
            return Err(changed());
        }
        content = Some(bytes);
    }
    let unreadable = |error: std::io::Error| {
        failure(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
    };
    let checksum = verify.then(|| verify::of_file(&file, 0..facts.size));
    Ok(Source {
        checksum: checksum.transpose().map_err(unreadable)?,
        number: item.number,
        file,
        size: facts.size,
        facts,
        content,
    })
}
