//! Requests and responses: authentication, dispatch and errors.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, DATE, HOST, HeaderName, SERVER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use rustix::io::Errno;

use super::access::Identity;
use super::body::ResponseBody;
use super::issuers::{Operation, Scope};
use super::session::{HttpConnectionState, RequestGuard};
use super::{access, list, modify, read, third_party, write};
use crate::http::outgoing::OutgoingBody;
use crate::net::url::decoded;
use crate::serve::metrics;
use crate::serve::state::Permissions;

/// Interval of progress signals during local work.
const BEAT: std::time::Duration = std::time::Duration::from_secs(1);
/// Supported methods.
const METHODS: &str = "OPTIONS, GET, HEAD, PUT, DELETE, PROPFIND, PROPPATCH, MKCOL, COPY, MOVE";
/// RFC 4918, section 10.1: class 1, so no locks.
pub(crate) const DAV: HeaderName = HeaderName::from_static("dav");

/// Error response.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    /// One line of text for people.
    pub(crate) text: String,
    /// Boxed, because successful responses do not need it.
    pub(crate) fields: Box<HeaderMap>,
}

/// Response of a handler.
pub(crate) type ResponseResult = Result<Response<ResponseBody>, ErrorResponse>;

impl ErrorResponse {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            fields: Box::default(),
        }
    }
}

impl From<Errno> for ErrorResponse {
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

/// Request with a parsed head.
pub(crate) struct ParsedRequest {
    pub(crate) connection: Rc<HttpConnectionState>,
    pub(crate) method: Method,
    /// Decoded path from `/`.
    pub(crate) path: Vec<u8>,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Incoming,
    pub(crate) permissions: Permissions,
    pub(crate) user: String,
    /// Scope of a token; none permits all operations of the user.
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) active: RequestGuard,
    pub(crate) start: std::time::SystemTime,
}

impl ParsedRequest {
    /// Return a field as text.
    pub(crate) fn field(&self, name: &HeaderName) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }

    /// Check the scope of the token, if any.
    ///
    /// # Errors
    /// The scope does not include the operation.
    pub(crate) fn may(&self, operation: Operation, path: &[u8]) -> Result<(), ErrorResponse> {
        match &self.scope {
            Some(scope) if !scope.allows(operation, path) => Err(ErrorResponse::new(
                StatusCode::FORBIDDEN,
                "the scopes of the token do not include this operation at this path",
            )),
            _ => Ok(()),
        }
    }

    /// Check that the client may write.
    ///
    /// # Errors
    /// The client may not write.
    pub(crate) fn may_write(&self) -> Result<(), ErrorResponse> {
        if self.permissions.write {
            return Ok(());
        }
        let known = self.user != "anonymous" || !self.connection.host.settings.write;
        if known {
            return Err(ErrorResponse::new(
                StatusCode::FORBIDDEN,
                "the user has no write permission",
            ));
        }
        Err(unauthorized())
    }
}

/// Return the response to an unauthenticated client.
pub(crate) fn unauthorized() -> ErrorResponse {
    let mut rejection =
        ErrorResponse::new(StatusCode::UNAUTHORIZED, "expected a token or a password");
    let fields = &mut rejection.fields;
    fields.append(
        WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"venturi\""),
    );
    fields.append(
        WWW_AUTHENTICATE,
        HeaderValue::from_static("Basic realm=\"venturi\", charset=\"UTF-8\""),
    );
    rejection
}

/// Handle a request.
pub(crate) async fn respond(
    connection: &Rc<HttpConnectionState>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let is_head = request.method() == Method::HEAD;
    let active = RequestGuard::new(&connection.activity);
    let mut response = match parsed(connection, request, active).await {
        Ok(parsed) => dispatch(parsed).await,
        Err(rejection) => Err(rejection),
    }
    .unwrap_or_else(|rejection| declared(rejection, is_head));
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

async fn parsed(
    connection: &Rc<HttpConnectionState>,
    request: Request<Incoming>,
    active: RequestGuard,
) -> Result<ParsedRequest, ErrorResponse> {
    let (head, body) = request.into_parts();
    let hosts = head.headers.get_all(HOST).iter().count();
    // RFC 9112, section 3.2.
    if hosts > 1 || (hosts == 0 && head.version >= Version::HTTP_11) {
        return Err(ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "expected exactly one Host field",
        ));
    }
    let bad = || {
        ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "expected a path that starts with /, with %XX for special bytes",
        )
    };
    let path = match head.uri.path() {
        "*" => b"/".to_vec(),
        path => parse_path(path).ok_or_else(bad)?,
    };
    let mut memory = connection.memory.borrow_mut().take().unwrap_or_default();
    let permissions = access::permissions(&connection.host, &mut memory, &head.headers).await;
    let is_at_end = memory.is_at_end();
    *connection.memory.borrow_mut() = Some(memory);
    let Some(Identity {
        permissions,
        user,
        scope,
    }) = permissions
    else {
        metrics::add(&connection.host.metrics.logins_rejected, 1);
        let mut rejection = unauthorized();
        if is_at_end {
            let fields = &mut rejection.fields;
            fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Err(rejection);
    };
    Ok(ParsedRequest {
        connection: Rc::clone(connection),
        method: head.method,
        path,
        fields: head.headers,
        body,
        permissions,
        user,
        scope,
        active,
        start: std::time::SystemTime::now(),
    })
}

/// Return the decoded path of a request in a normal form, so that paths can be compared. A slash at
/// its end stays.
pub(crate) fn parse_path(path: &str) -> Option<Vec<u8>> {
    let path = decoded(path.as_bytes())?;
    let mut names = path.split(|byte| *byte == b'/');
    // The part before the first slash.
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

/// Return whether a URI refers to this server by the name that the client uses.
pub(crate) fn is_local(request: &ParsedRequest, uri: &Uri) -> bool {
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
    let ours = request.field(&HOST).and_then(|host| {
        let scheme = if request.connection.secure {
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

async fn dispatch(request: ParsedRequest) -> ResponseResult {
    if let Some(operation) = operation(&request) {
        request.may(operation, &request.path)?;
    }
    match request.method.as_str() {
        "GET" | "HEAD" => read::get(request).await,
        "PUT" => write::put(request).await,
        "PROPFIND" => list::propfind(request).await,
        "PROPPATCH" => list::proppatch(request).await,
        "MKCOL" => modify::make(request).await,
        "DELETE" => modify::delete(request).await,
        "MOVE" => modify::rename(request).await,
        "COPY" if third_party::is_remote(&request) => third_party::copy(request).await,
        "COPY" => modify::copy(request).await,
        "OPTIONS" => Ok(options()),
        _ => {
            let mut rejection = ErrorResponse::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the method is not supported",
            );
            rejection
                .fields
                .insert(ALLOW, HeaderValue::from_static(METHODS));
            Err(rejection)
        }
    }
}

/// Return the operation of a request on its path; [`modify`] checks its `Destination`.
fn operation(request: &ParsedRequest) -> Option<Operation> {
    match request.method.as_str() {
        "COPY" if third_party::is_pull(request) => Some(Operation::Create),
        "GET" | "HEAD" | "PROPFIND" | "COPY" => Some(Operation::Read),
        "PUT" | "MKCOL" => Some(Operation::Create),
        "DELETE" | "MOVE" | "PROPPATCH" => Some(Operation::Modify),
        _ => None,
    }
}

fn options() -> Response<ResponseBody> {
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

/// Return a response without body.
pub(crate) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Plain(OutgoingBody::EMPTY));
    *response.status_mut() = status;
    response
}

fn declared(rejection: ErrorResponse, is_head: bool) -> Response<ResponseBody> {
    let text = Bytes::from(rejection.text + "\n");
    let body = if is_head {
        OutgoingBody::EMPTY
    } else {
        OutgoingBody::Whole(text)
    };
    let mut response = Response::new(ResponseBody::Plain(body));
    *response.status_mut() = rejection.status;
    *response.headers_mut() = *rejection.fields;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

/// Run blocking work on another thread and count it as progress of the connection, because the delay is local.
///
/// # Errors
/// The error of the work.
pub(crate) async fn patient<T: Send + 'static>(
    active: &RequestGuard,
    work: impl FnOnce() -> Result<T, ErrorResponse> + Send + 'static,
) -> Result<T, ErrorResponse> {
    counted(active, aside(work)).await
}

/// Run long work when a slot is free.
///
/// # Errors
/// The error of the work.
pub(crate) async fn in_turn<T: Send + 'static>(
    request: &ParsedRequest,
    work: impl FnOnce() -> Result<T, ErrorResponse> + Send + 'static,
) -> Result<T, ErrorResponse> {
    let _slot = counted(&request.active, request.connection.host.slow.acquire()).await;
    patient(&request.active, work).await
}

/// Wait for work, and count the wait as progress of the connection.
async fn counted<T>(active: &RequestGuard, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(BEAT, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => active.beat(),
        }
    }
}

/// Run blocking work on another thread.
///
/// # Errors
/// The error of the work.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorResponse> + Send + 'static,
) -> Result<T, ErrorResponse> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(ErrorResponse::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server failed",
        ))
    })
}
