//! COPY between servers (HTTP-TPC) with this server as active party: it pulls from `Source` or pushes to
//! `Destination`.
//!
//! The response is an immediate 202, then markers, then a final result line.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use tokio::sync::mpsc;

use super::body::ResponseBody;
use super::conditions::Conditions;
use super::modify::{DESTINATION, OVERWRITE, may_replace};
use super::response::{ErrorResponse, ParsedRequest, ResponseResult, is_local, patient};
use super::tpc_stream::execute;
use super::transfer_guard::TransferGuard;
use crate::http::marker;
use crate::http::outgoing::{Blocks, OutgoingBody};
use crate::http::target::HttpTarget;
use crate::net::url::Url;
use crate::serve::state::ServerState;

const SOURCE: HeaderName = HeaderName::from_static("source");
/// Credential for the other server; its presence marks a copy between servers.
pub(super) const CREDENTIAL: HeaderName = HeaderName::from_static("credential");
/// Prefix of forwarded header fields.
const FORWARD_PREFIX: &str = "transferheader";
/// Maximum number of forwarded fields.
const MAX_FORWARDED: usize = 32;
/// Interval of markers: FTS aborts a transfer after minutes without a marker.
const INTERVAL: Duration = Duration::from_secs(5);
/// Minimum timeout without progress: before the first and after the last byte the other server may compute a
/// checksum, or a disk may flush data.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum number of unsent lines.
const LINES: usize = 4;

/// Return whether a COPY is a copy between servers.
pub(crate) fn is_remote(request: &ParsedRequest) -> bool {
    if request.fields.contains_key(SOURCE) {
        return true;
    }
    let path = request
        .field(&DESTINATION)
        .and_then(|text| text.parse::<Uri>().ok());
    path.is_some_and(|uri| !is_local(request, &uri))
}

/// Return whether the request is a pull.
pub(crate) fn is_pull(request: &ParsedRequest) -> bool {
    request.fields.contains_key(SOURCE)
}

/// Copy request.
pub(super) struct TpcJob {
    pub(super) host: Arc<ServerState>,
    pub(super) path: Vec<u8>,
    pub(super) other: HttpTarget,
    /// Fields for the other server, not for servers to which it redirects.
    pub(super) fields: HeaderMap,
    pub(super) pull: bool,
    pub(super) may_replace: bool,
    pub(super) conditions: Arc<Conditions>,
}

/// Progress of a copy.
#[derive(Debug, Default)]
pub(super) struct TpcProgress {
    pub(super) bytes: Cell<u64>,
    /// True if a local disk is busy.
    ours: Cell<bool>,
}

impl TpcProgress {
    /// Wait for a local disk, which does not count as silence of the other server.
    pub(super) async fn wait_for_disk<T>(&self, work: impl Future<Output = T>) -> T {
        self.ours.set(true);
        let done = work.await;
        self.ours.set(false);
        done
    }

    /// Return the silence of the other server after an interval; `silent` and `before` are the
    /// silence and the bytes before the interval.
    fn silence(&self, before: u64, silent: Duration) -> Duration {
        if self.bytes.get() > before || self.ours.get() {
            Duration::ZERO
        } else {
            silent + INTERVAL
        }
    }
}

/// COPY between servers.
pub(crate) async fn copy(request: ParsedRequest) -> ResponseResult {
    if !request.permissions.third_party {
        return Err(ErrorResponse::new(
            StatusCode::FORBIDDEN,
            "copies between servers need a user and a server with --third-party",
        ));
    }
    let pull = is_pull(&request);
    if pull {
        request.may_write()?;
        if request.fields.contains_key(DESTINATION) {
            return Err(ErrorResponse::new(
                StatusCode::BAD_REQUEST,
                "expected a Source or a Destination, not both",
            ));
        }
    }
    if request
        .field(&CREDENTIAL)
        .is_some_and(|kind| !kind.eq_ignore_ascii_case("none"))
    {
        return Err(ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "expected Credential: none; send a token in TransferHeaderAuthorization",
        ));
    }
    let field = if pull { SOURCE } else { DESTINATION };
    let other = request.field(&field);
    let other = other
        .and_then(|text| Url::parse(std::ffi::OsStr::new(text)).ok())
        .filter(|url| url.scheme.is_http());
    let other = other.ok_or_else(|| {
        ErrorResponse::new(StatusCode::BAD_REQUEST, "expected an http: or https: URL")
    })?;
    let conditions = Arc::new(Conditions::of(&request)?);
    let (host, shared_conditions) = (
        Arc::clone(&request.connection.host),
        Arc::clone(&conditions),
    );
    patient(&request.active, move || match pull {
        true => shared_conditions.check(&host.root),
        false => shared_conditions.check_source(&host.root),
    })
    .await?;
    let job = TpcJob {
        host: Arc::clone(&request.connection.host),
        path: request.path.clone(),
        other: HttpTarget::from(&other),
        fields: forwarded(&request.fields)?,
        pull,
        may_replace: if pull {
            may_replace(&request, &request.path) && !conditions.only_new()
        } else {
            request.field(&OVERWRITE) != Some("F")
        },
        conditions,
    };
    let guard = TransferGuard::new(&request, if pull { "PULL" } else { "PUSH" });
    let (sender, blocks) = mpsc::channel(LINES);
    let activity = Rc::clone(&request.connection.activity);
    tokio::task::spawn_local(report(job, guard, sender, activity));
    let mut response = Response::new(ResponseBody::Watched(
        OutgoingBody::Stream {
            blocks: Blocks::Coming(blocks),
            remaining: None,
            gate: None,
        },
        request.active,
    ));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// Forward `TransferHeaderX: v` as `X: v`, except for framing and host fields.
fn forwarded(fields: &HeaderMap) -> Result<HeaderMap, ErrorResponse> {
    let mut found = HeaderMap::new();
    for (name, value) in fields {
        let Some(name) = name.as_str().strip_prefix(FORWARD_PREFIX) else {
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
            Ok(name) if !framing.contains(&name.as_str()) && found.len() < MAX_FORWARDED => {
                let mut value = value.clone();
                value.set_sensitive(name == AUTHORIZATION);
                found.insert(name, value);
            }
            _ => {
                return Err(ErrorResponse::new(
                    StatusCode::BAD_REQUEST,
                    "this TransferHeader cannot be forwarded",
                ));
            }
        }
    }
    Ok(found)
}

/// Execute the copy and report its progress while the client is connected.
async fn report(
    job: TpcJob,
    mut guard: TransferGuard,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    activity: Rc<super::session::ConnectionActivity>,
) {
    let progress = Rc::new(TpcProgress::default());
    let line = |text: String| sender.send(Ok(Bytes::from(text)));
    let result = {
        let mut work = std::pin::pin!(execute(&job, &progress));
        let (mut before, mut silent) = (0, Duration::ZERO);
        loop {
            // The client disconnected; a new request must find the path free.
            let turn = tokio::select! {
                turn = tokio::time::timeout(INTERVAL, work.as_mut()) => turn,
                () = sender.closed() => break Err("the client disconnected".into()),
            };
            match turn {
                Ok(result) => break result,
                Err(_) => {
                    activity.beat();
                    silent = progress.silence(before, silent);
                    before = progress.bytes.get();
                    if silent > job.host.settings.stall_time.max(TIMEOUT) {
                        break Err(format!("no byte arrived for {} s", silent.as_secs()));
                    }
                    if line(marker::marker(now_s(), progress.bytes.get(), &[]))
                        .await
                        .is_err()
                    {
                        break Err("the client disconnected".into());
                    }
                }
            }
        }
    };
    guard.moved(progress.bytes.get());
    guard.ended(match result {
        Ok(()) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    });
    // A client that reads the last line finds the transfer in the log.
    drop(guard);
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
    fn waiting_for_the_local_disk_does_not_count_as_silence_of_the_other_server() {
        let progress = TpcProgress::default();
        let silent = progress.silence(0, TIMEOUT);
        assert_eq!(silent, TIMEOUT + INTERVAL);
        let mut work = Box::pin(progress.wait_for_disk(std::future::pending::<()>()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert_eq!(progress.silence(0, silent), Duration::ZERO);
    }
}
