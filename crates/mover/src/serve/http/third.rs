//! COPY between servers (HTTP-TPC), of which this one is the active: it pulls what `Source` names, or pushes to what `Destination` names.
//!
//! The answer is 202 at once, markers while it goes on, and a last line that says what came of it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use tokio::sync::mpsc;

use super::answer::{Answer, Asked, Refusal, is_here, patient};
use super::body::Reply;
use super::carry::carry_out;
use super::change::{DESTINATION, OVERWRITE, may_replace};
use super::conditions::Conditions;
use super::going::Going;
use crate::http::marker;
use crate::http::outgoing::{Blocks, Outgoing};
use crate::http::target::Target;
use crate::net::url::Url;
use crate::serve::host::Host;

const SOURCE: HeaderName = HeaderName::from_static("source");
/// Whose the other server is to be asked as; who sends it means a copy between servers.
pub(super) const CREDENTIAL: HeaderName = HeaderName::from_static("credential");
/// What begins the name of a field that is passed on.
const PASSED_ON: &str = "transferheader";
/// Fields that are passed on at most.
const MOST_PASSED_ON: usize = 32;
/// How often a marker is sent: FTS gives a transfer up after minutes without one.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long no byte may move at least: before the first and after the last one the other server may compute a checksum, or a disk take what came.
const PATIENCE: Duration = Duration::from_secs(180);
/// Lines that wait for their client.
const LINES: usize = 4;

/// Whether a COPY is one between servers.
pub(crate) fn is_remote(asked: &Asked) -> bool {
    if asked.fields.contains_key(SOURCE) {
        return true;
    }
    let place = asked
        .field(&DESTINATION)
        .and_then(|text| text.parse::<Uri>().ok());
    place.is_some_and(|uri| !is_here(asked, &uri))
}

/// Whether it is one that brings a file here.
pub(crate) fn is_pull(asked: &Asked) -> bool {
    asked.fields.contains_key(SOURCE)
}

/// What is to be copied.
pub(super) struct Job {
    pub(super) host: Arc<Host>,
    pub(super) path: Vec<u8>,
    pub(super) other: Target,
    /// For the other server, and for nobody that it may redirect us to.
    pub(super) fields: HeaderMap,
    pub(super) pull: bool,
    pub(super) may_replace: bool,
    pub(super) conditions: Arc<Conditions>,
}

/// How far a copy is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: Cell<u64>,
    /// Whether a disk of ours is at work.
    ours: Cell<bool>,
}

impl Progress {
    /// Waits for a disk of ours: as long as it takes, it is not the other server that is silent.
    pub(super) async fn of_ours<T>(&self, work: impl Future<Output = T>) -> T {
        self.ours.set(true);
        let done = work.await;
        self.ours.set(false);
        done
    }

    /// How long the other server has been silent after an interval: so long before it, when so many bytes had come.
    fn silence(&self, before: u64, silent: Duration) -> Duration {
        if self.bytes.get() > before || self.ours.get() {
            Duration::ZERO
        } else {
            silent + INTERVAL
        }
    }
}

/// COPY between servers.
pub(crate) async fn copy(asked: Asked) -> Answer {
    if !asked.rights.third_party {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "copies between servers are for users, where the server has --third-party",
        ));
    }
    let pull = is_pull(&asked);
    if pull {
        asked.may_write()?;
        if asked.fields.contains_key(DESTINATION) {
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "a Source or a Destination is needed, not both",
            ));
        }
    }
    if asked
        .field(&CREDENTIAL)
        .is_some_and(|kind| !kind.eq_ignore_ascii_case("none"))
    {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "Credential: none is understood; a token goes in TransferHeaderAuthorization",
        ));
    }
    let field = if pull { SOURCE } else { DESTINATION };
    let other = asked.field(&field);
    let other = other
        .and_then(|text| Url::parse(std::ffi::OsStr::new(text)).ok())
        .filter(|url| url.scheme.is_http());
    let other = other.ok_or_else(|| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "a place of http: or https: is needed",
        )
    })?;
    let conditions = Arc::new(Conditions::of(&asked)?);
    let (host, held) = (Arc::clone(&asked.connection.host), Arc::clone(&conditions));
    patient(&asked.active, move || match pull {
        true => held.hold(&host.root),
        false => held.hold_of_source(&host.root),
    })
    .await?;
    let job = Job {
        host: Arc::clone(&asked.connection.host),
        path: asked.path.clone(),
        other: Target::from(&other),
        fields: passed_on(&asked.fields)?,
        pull,
        may_replace: if pull {
            may_replace(&asked, &asked.path) && !conditions.only_new()
        } else {
            asked.field(&OVERWRITE) != Some("F")
        },
        conditions,
    };
    let going = Going::new(&asked, if pull { "PULL" } else { "PUSH" });
    let (sender, blocks) = mpsc::channel(LINES);
    let pulse = Rc::clone(&asked.connection.pulse);
    tokio::task::spawn_local(tell(job, going, sender, pulse));
    let mut response = Response::new(Reply::Watched(
        Outgoing::Stream {
            blocks: Blocks::Coming(blocks),
            left: None,
            gate: None,
        },
        asked.active,
    ));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// `TransferHeaderX: v` is sent as `X: v`; what says how a message is framed, or to whom it goes, is not.
fn passed_on(fields: &HeaderMap) -> Result<HeaderMap, Refusal> {
    let mut found = HeaderMap::new();
    for (name, value) in fields {
        let Some(name) = name.as_str().strip_prefix(PASSED_ON) else {
            continue;
        };
        let framing = [
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
            "te",
            "expect",
            "range",
        ];
        match name.parse::<HeaderName>() {
            Ok(name) if !framing.contains(&name.as_str()) && found.len() < MOST_PASSED_ON => {
                let mut value = value.clone();
                value.set_sensitive(name == AUTHORIZATION);
                found.insert(name, value);
            }
            _ => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "a TransferHeader that is not passed on",
                ));
            }
        }
    }
    Ok(found)
}

/// Carries it out and tells of it, as long as somebody listens.
async fn tell(
    job: Job,
    mut going: Going,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    pulse: Rc<super::session::Pulse>,
) {
    let progress = Rc::new(Progress::default());
    let line = |text: String| sender.send(Ok(Bytes::from(text)));
    let result = {
        let mut work = std::pin::pin!(carry_out(&job, &progress));
        let (mut before, mut silent) = (0, Duration::ZERO);
        loop {
            // Nobody is there who wants it any more: who asks again must find the place free.
            let turn = tokio::select! {
                turn = tokio::time::timeout(INTERVAL, work.as_mut()) => turn,
                () = sender.closed() => break Err("the client went away".into()),
            };
            match turn {
                Ok(result) => break result,
                Err(_) => {
                    pulse.beat();
                    silent = progress.silence(before, silent);
                    before = progress.bytes.get();
                    if silent > job.host.settings.stall_time.max(PATIENCE) {
                        break Err(format!("no byte came for {} s", silent.as_secs()));
                    }
                    if line(marker::marker(now_s(), progress.bytes.get(), &[]))
                        .await
                        .is_err()
                    {
                        break Err("the client went away".into());
                    }
                }
            }
        }
    };
    going.moved(progress.bytes.get());
    going.ended(match result {
        Ok(()) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    });
    // Whoever reads the last line finds the transfer in the log.
    drop(going);
    let last = match result {
        Ok(()) => format!(
            "{}{}",
            marker::marker(now_s(), progress.bytes.get(), &[]),
            marker::SUCCESS
        ),
        Err(reason) => marker::failure(&reason.chars().take(500).collect::<String>()),
    };
    let _ = line(last).await;
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_ours_that_takes_its_time_is_no_silence_of_the_other_server() {
        let progress = Progress::default();
        let silent = progress.silence(0, PATIENCE);
        assert_eq!(silent, PATIENCE + INTERVAL);
        let mut work = Box::pin(progress.of_ours(std::future::pending::<()>()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert_eq!(progress.silence(0, silent), Duration::ZERO);
    }
}
