//! A request and its answer: who asks, what for, and what is said when it cannot be.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, DATE, HOST, HeaderName, SERVER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use rustix::io::Errno;

use super::access::Admitted;
use super::body::Reply;
use super::issuers::{Deed, Scope};
use super::session::{Active, Connection};
use super::{access, change, list, read, third, write};
use crate::http::outgoing::Outgoing;
use crate::net::url::decoded;
use crate::serve::host::Rights;
use crate::serve::metrics;

/// How often work of our own counts as progress.
const BEAT: std::time::Duration = std::time::Duration::from_secs(1);
/// What is understood.
const METHODS: &str = "OPTIONS, GET, HEAD, PUT, DELETE, PROPFIND, PROPPATCH, MKCOL, COPY, MOVE";
/// RFC 4918, section 10.1: class 1, so no locks.
pub(crate) const DAV: HeaderName = HeaderName::from_static("dav");

/// An answer that is not what was hoped for.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// A line for people.
    pub(crate) text: String,
    /// Boxed, since an answer that is well has nothing of it.
    pub(crate) fields: Box<HeaderMap>,
}

/// An answer.
pub(crate) type Answer = Result<Response<Reply>, Refusal>;

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            fields: Box::default(),
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        let status = match errno {
            Errno::NOENT | Errno::NOTDIR => StatusCode::NOT_FOUND,
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::LOOP => StatusCode::FORBIDDEN,
            Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => StatusCode::CONFLICT,
            Errno::BUSY => StatusCode::LOCKED,
            Errno::NOSPC | Errno::DQUOT => StatusCode::INSUFFICIENT_STORAGE,
            Errno::NAMETOOLONG | Errno::INVAL => StatusCode::BAD_REQUEST,
            Errno::MFILE | Errno::NFILE => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, crate::error::reason(errno))
    }
}

/// A request whose head is read.
pub(crate) struct Asked {
    pub(crate) connection: Rc<Connection>,
    pub(crate) method: Method,
    /// Without `%XX`, from `/` on.
    pub(crate) path: Vec<u8>,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Incoming,
    pub(crate) rights: Rights,
    pub(crate) user: String,
    /// What a token allows of that; none: all.
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) active: Active,
    pub(crate) start: std::time::SystemTime,
}

impl Asked {
    /// A field as text.
    pub(crate) fn field(&self, name: &HeaderName) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }

    /// Whether a token allows it, if there is one.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn may(&self, deed: Deed, path: &[u8]) -> Result<(), Refusal> {
        match &self.scope {
            Some(scope) if !scope.allows(deed, path) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "the token has no scope for that at this path",
            )),
            _ => Ok(()),
        }
    }

    /// Whether it is for changing something, and may.
    ///
    /// # Errors
    /// If it may not.
    pub(crate) fn may_write(&self) -> Result<(), Refusal> {
        if self.rights.write {
            return Ok(());
        }
        let known = self.user != "anonymous" || !self.connection.host.settings.write;
        if known {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "it may be read, not written",
            ));
        }
        Err(who())
    }
}

/// The answer to who has not said who it is.
pub(crate) fn who() -> Refusal {
    let mut refusal = Refusal::new(StatusCode::UNAUTHORIZED, "a token or a password is needed");
    let fields = &mut refusal.fields;
    fields.append(
        WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"venturi\""),
    );
    fields.append(
        WWW_AUTHENTICATE,
        HeaderValue::from_static("Basic realm=\"venturi\", charset=\"UTF-8\""),
    );
    refusal
}

/// Answers.
pub(crate) async fn answer(
    connection: &Rc<Connection>,
    request: Request<Incoming>,
) -> Response<Reply> {
    let is_head = request.method() == Method::HEAD;
    let active = Active::new(&connection.pulse);
    let mut response = match asked(connection, request, active).await {
        Ok(asked) => dispatch(asked).await,
        Err(refusal) => Err(refusal),
    }
    .unwrap_or_else(|refusal| told(refusal, is_head));
    let fields = response.headers_mut();
    fields.insert(
        SERVER,
        HeaderValue::from_static(concat!("venturi/", env!("CARGO_PKG_VERSION"))),
    );
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    fields.insert(
        DATE,
        HeaderValue::try_from(date).expect("letters and digits"),
    );
    response
}

async fn asked(
    connection: &Rc<Connection>,
    request: Request<Incoming>,
    active: Active,
) -> Result<Asked, Refusal> {
    let (head, body) = request.into_parts();
    let hosts = head.headers.get_all(HOST).iter().count();
    // RFC 9112, section 3.2.
    if hosts > 1 || (hosts == 0 && head.version >= Version::HTTP_11) {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "one Host is needed, and no more",
        ));
    }
    let bad = || {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "a path from / on is needed, with %XX for unusual bytes",
        )
    };
    let path = match head.uri.path() {
        "*" => b"/".to_vec(),
        path => path_of(path).ok_or_else(bad)?,
    };
    let mut memory = connection.memory.borrow_mut().take().unwrap_or_default();
    let rights = access::rights(&connection.host, &mut memory, &head.headers).await;
    let is_at_end = memory.is_at_end();
    *connection.memory.borrow_mut() = Some(memory);
    let Some(Admitted {
        rights,
        user,
        scope,
    }) = rights
    else {
        metrics::add(&connection.host.metrics.logins_refused, 1);
        let mut refusal = who();
        if is_at_end {
            let fields = &mut refusal.fields;
            fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Err(refusal);
    };
    Ok(Asked {
        connection: Rc::clone(connection),
        method: head.method,
        path,
        fields: head.headers,
        body,
        rights,
        user,
        scope,
        active,
        start: std::time::SystemTime::now(),
    })
}

/// The path of a request: without `%XX`, and as it is written only once, so that paths can be compared. A slash at its end stays.
pub(crate) fn path_of(path: &str) -> Option<Vec<u8>> {
    let path = decoded(path.as_bytes())?;
    let mut names = path.split(|byte| *byte == b'/');
    // What is before the first slash.
    names.next().filter(|first| first.is_empty())?;
    let mut found = Vec::with_capacity(path.len());
    for name in names.filter(|name| !name.is_empty() && *name != b".") {
        found.push(b'/');
        found.extend_from_slice(name);
    }
    if found.is_empty() || path.ends_with(b"/") {
        found.push(b'/');
    }
    Some(found)
}

/// Whether a place is this server, as the client calls it.
pub(crate) fn is_here(asked: &Asked, uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else {
        return true;
    };
    let port = |uri: &Uri| {
        uri.port_u16()
            .unwrap_or(if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            })
    };
    let ours = asked.field(&HOST).and_then(|host| {
        let scheme = if asked.connection.secure {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{host}/").parse::<Uri>().ok()
    });
    ours.is_some_and(|ours| {
        ours.host()
            .is_some_and(|host| host.eq_ignore_ascii_case(authority.host()))
            && port(&ours) == port(uri)
    })
}

async fn dispatch(asked: Asked) -> Answer {
    if let Some(deed) = deed(&asked) {
        asked.may(deed, &asked.path)?;
    }
    match asked.method.as_str() {
        "GET" | "HEAD" => read::get(asked).await,
        "PUT" => write::put(asked).await,
        "PROPFIND" => list::propfind(asked).await,
        "PROPPATCH" => list::proppatch(asked).await,
        "MKCOL" => change::make(asked).await,
        "DELETE" => change::delete(asked).await,
        "MOVE" => change::rename(asked).await,
        "COPY" if third::is_remote(&asked) => third::copy(asked).await,
        "COPY" => change::copy(asked).await,
        "OPTIONS" => Ok(options()),
        _ => {
            let mut refusal =
                Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "that is not understood");
            refusal
                .fields
                .insert(ALLOW, HeaderValue::from_static(METHODS));
            Err(refusal)
        }
    }
}

/// What a request does with the place that it is for; with its `Destination`, [`change`] sees to that.
fn deed(asked: &Asked) -> Option<Deed> {
    match asked.method.as_str() {
        "COPY" if third::is_pull(asked) => Some(Deed::Create),
        "GET" | "HEAD" | "PROPFIND" | "COPY" => Some(Deed::Read),
        "PUT" | "MKCOL" => Some(Deed::Create),
        "DELETE" | "MOVE" | "PROPPATCH" => Some(Deed::Modify),
        _ => None,
    }
}

fn options() -> Response<Reply> {
    let mut response = empty(StatusCode::OK);
    let fields = response.headers_mut();
    fields.insert(ALLOW, HeaderValue::from_static(METHODS));
    fields.insert(DAV, HeaderValue::from_static("1"));
    fields.insert("ms-author-via", HeaderValue::from_static("DAV"));
    fields.insert(
        http::header::ACCEPT_RANGES,
        HeaderValue::from_static("bytes"),
    );
    response
}

/// An answer that is its status.
pub(crate) fn empty(status: StatusCode) -> Response<Reply> {
    let mut response = Response::new(Reply::Plain(Outgoing::EMPTY));
    *response.status_mut() = status;
    response
}

fn told(refusal: Refusal, is_head: bool) -> Response<Reply> {
    let text = Bytes::from(refusal.text + "\n");
    let body = if is_head {
        Outgoing::EMPTY
    } else {
        Outgoing::Whole(text)
    };
    let mut response = Response::new(Reply::Plain(body));
    *response.status_mut() = refusal.status;
    *response.headers_mut() = *refusal.fields;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

/// Has work done where waiting stops nobody else, and counts it as progress of the connection, however long it takes: it is us who are slow.
///
/// # Errors
/// What the work says.
pub(crate) async fn patient<T: Send + 'static>(
    active: &Active,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    counted(active, aside(work)).await
}

/// The same of work that may take long, when there is room for it.
///
/// # Errors
/// What the work says.
pub(crate) async fn in_turn<T: Send + 'static>(
    asked: &Asked,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let _room = counted(&asked.active, asked.connection.host.slow.acquire()).await;
    patient(&asked.active, work).await
}

/// Waits, which counts as progress of the connection.
async fn counted<T>(active: &Active, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(BEAT, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => active.beat(),
        }
    }
}

/// Has work done where waiting stops nobody else.
///
/// # Errors
/// What the work says.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server failed",
        ))
    })
}
