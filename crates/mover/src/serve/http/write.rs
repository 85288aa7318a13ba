//! PUT: written under a temporary name, its checksum taken on the way, there when it is whole.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;

use super::answer::{Answer, Asked, Refusal, aside, empty, patient};
use super::conditions::{Conditions, etag};
use super::going::Going;
use super::issuers::Deed;
use crate::checksum::{Adler32, Algorithm};
use crate::error::is_not_taken;
use crate::http::digest;
use crate::http::put::MTIME;
use crate::serve::buffers::{Buffer, Buffers};
use crate::serve::host::Host;
use crate::serve::metrics;
use crate::serve::root::upload::{Begin, Upload};

/// An upload and what was taken of it.
struct Taken {
    upload: Upload,
    at: u64,
    sum: Adler32,
}

/// What came and is not written yet, in a buffer of the pool as soon as there is any.
struct Gathered {
    buffers: Buffers,
    buffer: Option<Buffer>,
    bytes: usize,
}

impl Gathered {
    fn new(buffers: &Buffers) -> Self {
        Self {
            buffers: buffers.clone(),
            buffer: None,
            bytes: 0,
        }
    }

    /// Takes what there is room for; gives the rest.
    fn take<'d>(&mut self, data: &'d [u8]) -> &'d [u8] {
        let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
        let (now, later) = data.split_at(data.len().min(buffer.len() - self.bytes));
        buffer[self.bytes..][..now.len()].copy_from_slice(now);
        self.bytes += now.len();
        later
    }

    fn is_full(&self) -> bool {
        let buffer = self.buffer.as_ref();
        buffer.is_some_and(|buffer| self.bytes == buffer.len())
    }

    /// Whether what has come is better written as it is: much of it, or more than there is room for where the pool is used up.
    fn is_worth_less_than(&mut self, data: &[u8]) -> bool {
        let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
        self.bytes == 0 && data.len() >= buffer.len() / 2
    }
}

impl AsRef<[u8]> for Gathered {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_deref();
        buffer.map_or(&[], |buffer| &buffer[..self.bytes])
    }
}

/// PUT.
pub(crate) async fn put(mut asked: Asked) -> Answer {
    asked.may_write()?;
    if asked.fields.contains_key(CONTENT_RANGE) {
        // RFC 9110, section 14.5: a server that took it for the whole would leave a piece under the file's name.
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "PUT of a range is not understood: send all of it",
        ));
    }
    if asked.path.ends_with(b"/") {
        return Err(Refusal::new(
            StatusCode::CONFLICT,
            "a directory is made by MKCOL",
        ));
    }
    let conditions = Arc::new(Conditions::of(&asked)?);
    let host = Arc::clone(&asked.connection.host);
    let (shared, path, held) = (
        Arc::clone(&host),
        asked.path.clone(),
        Arc::clone(&conditions),
    );
    let may_replace = asked.may(Deed::Modify, &asked.path);
    // What comes into being meanwhile is not replaced either.
    let replace = may_replace.is_ok() && !conditions.only_new();
    let (mut taken, is_new) = aside(move || {
        let there = shared.root.stat(&path).ok();
        held.hold(&shared.root)?;
        if there.is_some() {
            may_replace?;
        }
        // 409, not 404: what is missing is where it would go (RFC 4918, section 9.7.1).
        let upload = shared.root.upload(&path, Begin::New).map_err(within)?;
        Ok((
            Taken {
                upload,
                at: 0,
                sum: Adler32::default(),
            },
            there.is_none(),
        ))
    })
    .await?;
    let mut going = Going::new(&asked, "PUT");
    let result = receive(&mut asked, &mut going, &mut taken).await;
    let result = match result {
        Ok(()) => finish(&asked, &host, taken, (conditions, replace)).await,
        Err(refusal) => Err(refusal),
    };
    let status = match &result {
        Ok(_) if is_new => StatusCode::CREATED,
        Ok(_) => StatusCode::NO_CONTENT,
        Err(refusal) => refusal.status,
    };
    going.ended(status);
    let (facts, sum) = result?;
    let mut response = empty(status);
    let answer = response.headers_mut();
    answer.insert(ETAG, HeaderValue::try_from(etag(&facts)).expect("digits"));
    if digest::wanted(&asked.fields).is_some() {
        digest::tell(
            answer,
            &asked.fields,
            &(Algorithm::Adler32, sum.value().to_be_bytes().to_vec()),
        );
    }
    // Not all times are for all file systems: some keep the nearest that they have.
    if mtime(&asked) == Some(facts.modified_s) {
        answer.insert(MTIME, HeaderValue::from_static("accepted"));
    }
    Ok(response)
}

/// What is wrong is the directory.
pub(crate) fn within(errno: Errno) -> Refusal {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Refusal::new(
            StatusCode::CONFLICT,
            "the directory that it goes to is not there",
        ),
        errno => errno.into(),
    }
}

/// What is there may not be replaced.
pub(super) fn unreplaced(errno: Errno) -> Refusal {
    match errno {
        Errno::EXIST => Refusal::new(StatusCode::PRECONDITION_FAILED, "it is there already"),
        errno => errno.into(),
    }
}

async fn receive(asked: &mut Asked, going: &mut Going, taken: &mut Taken) -> Result<(), Refusal> {
    let told = asked
        .field(&CONTENT_LENGTH)
        .and_then(|text| text.parse::<u64>().ok());
    let buffers = going.host.buffers.clone();
    let mut gathered = Gathered::new(&buffers);
    loop {
        let frame = asked.body.frame().await;
        let ended = frame.is_none();
        if let Some(frame) = frame {
            let frame =
                frame.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            asked.connection.pulse.moved(data.len() as u64);
            metrics::add(&going.host.metrics.received_bytes, data.len() as u64);
            if gathered.is_worth_less_than(&data) {
                write(taken, data).await?;
                continue;
            }
            let mut rest = &data[..];
            while !rest.is_empty() {
                rest = gathered.take(rest);
                if gathered.is_full() {
                    let full = std::mem::replace(&mut gathered, Gathered::new(&buffers));
                    write(taken, Bytes::from_owner(full)).await?;
                }
            }
        }
        if ended && gathered.bytes > 0 {
            let rest = std::mem::replace(&mut gathered, Gathered::new(&buffers));
            write(taken, Bytes::from_owner(rest)).await?;
        }
        going.moved(taken.at);
        if ended {
            break;
        }
    }
    match told {
        Some(told) if told != taken.at => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "fewer bytes than were told",
        )),
        _ => Ok(()),
    }
}

/// Writes where waiting for a disk stops nobody else.
async fn write(taken: &mut Taken, bytes: Bytes) -> Result<(), Refusal> {
    let (at, mut sum) = (taken.at, taken.sum);
    let upload = taken.upload.share().map_err(Refusal::from)?;
    let length = bytes.len() as u64;
    let written = aside(move || {
        sum.update(&bytes);
        crate::bytes::put(&upload, &bytes, at)?;
        Ok(sum)
    });
    taken.sum = written.await?;
    taken.at += length;
    Ok(())
}

async fn finish(
    asked: &Asked,
    host: &Arc<Host>,
    taken: Taken,
    (conditions, replace): (Arc<Conditions>, bool),
) -> Result<(crate::serve::root::Facts, Adler32), Refusal> {
    let time = mtime(asked);
    let (host, sync) = (Arc::clone(host), asked.connection.host.settings.sync);
    let Taken { upload, sum, .. } = taken;
    patient(&asked.active, move || {
        if let Some(seconds) = time {
            match rustix::fs::futimens(upload.file(), &at_time(seconds)) {
                // Not every file system has times: the answer says whether it has this one.
                Err(errno) if is_not_taken(errno) => {}
                set => set?,
            }
        }
        if sync {
            // It takes long: what is there is looked at behind it.
            rustix::fs::fsync(upload.file())?;
        }
        conditions.hold(&host.root)?;
        let facts = upload.commit(sync, replace).map_err(unreplaced)?;
        host.web.known.keep(&facts, sum.value());
        Ok((facts, sum))
    })
    .await
}

/// The time that the client wants the file to have.
fn mtime(asked: &Asked) -> Option<i64> {
    asked.field(&MTIME)?.parse().ok()
}

fn at_time(seconds: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        },
    }
}
