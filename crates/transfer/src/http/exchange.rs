//! HTTP requests with kept connections, redirections and retries.
//!
//! A client belongs to one thread; its connections are tasks of the runtime of this thread. Secrets, such as a
//! token, go only to the server of the command line. A redirected request carries only the credentials of the
//! redirection, as dCache and XRootD expect. A redirection from https to http is an error.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::header::{EXPECT, HOST, LOCATION, PROXY_AUTHORIZATION, SERVER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::connect::{Connections, Dialer, HttpConnection, ServerProfile};
use super::outgoing::{OutgoingBody, ProgressBody};
use super::proxy::Proxy;
use super::request_error::{RequestError, broken};
use super::response::HttpResponse;
use super::retry::RetryState;
use super::target::{HttpServer, HttpTarget};
use super::wait::while_moving;

/// Maximum redirections of one request: a door redirects to a pool, and a pool may redirect again.
const MAX_REDIRECTS: usize = 8;
/// Timeout for the start of a response after the last byte of the request. The server may compute a checksum or
/// stage a file first.
pub(super) const TIMEOUT: Duration = Duration::from_secs(180);
/// Wait for `100 Continue` before a body is sent anyway. RFC 9110, section 10.1.1, does not define
/// the time; curl waits as long.
const WAIT_FOR_CONTINUE: Duration = Duration::from_secs(1);
/// Timeout for a response while another connection is kept; after it, kept connections are closed.
const OVERLAP_TIMEOUT: Duration = Duration::from_secs(1);
/// Wait for a spare connection after the response arrived.
const NEARLY: Duration = Duration::from_millis(20);
const AGENT: &str = concat!("venturi/", env!("CARGO_PKG_VERSION"));

/// Request to a server.
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    /// Creates the body of each attempt.
    pub(crate) body: &'a dyn Fn() -> OutgoingBody,
    /// True if the body waits for `100 Continue`. This is worth a round trip if the body is large
    /// and the server may redirect the request.
    pub(crate) expects: bool,
    /// Timeout for the start of the response after the last byte of the request.
    pub(crate) timeout: Duration,
}

impl HttpRequest<'_> {
    /// Return a request without a body.
    pub(crate) fn plain(method: Method, fields: HeaderMap) -> Self {
        Self {
            method,
            fields,
            body: &|| OutgoingBody::EMPTY,
            expects: false,
            timeout: TIMEOUT,
        }
    }
}

/// Requests of one thread.
pub(crate) struct HttpClient {
    pub(super) connections: Connections,
    /// Fields that only the server of the command line receives.
    secrets: HeaderMap,
}

impl HttpClient {
    pub(crate) fn new(dialer: Dialer, secrets: HeaderMap) -> Rc<Self> {
        Rc::new(Self {
            connections: Connections::new(dialer),
            secrets,
        })
    }

    /// Open a connection ahead of a request and return whether it is open. Requests report its errors.
    pub(super) async fn prepare(&self, server: &HttpServer) -> bool {
        let Ok(mut sender) = self.connections.open(server).await else {
            return false;
        };
        // The connection is ready as soon as its task runs.
        let ready = sender.ready().await.is_ok();
        if ready {
            self.connections.keep(server, sender);
        }
        ready
    }

    /// Wait for a request that the server may reject, and open a spare connection at the same time. XRootD 5.5
    /// closes a connection with each error, and a new TLS connection takes two round trips.
    pub(super) async fn with_spare<T>(
        &self,
        server: &HttpServer,
        pending: impl Future<Output = T>,
    ) -> T {
        let may_close = self
            .connections
            .manner(server)
            .is_none_or(|manner| manner == ServerProfile::Listed);
        if !server.tls || !may_close {
            return pending.await;
        }
        let pending = std::pin::pin!(pending);
        let spare = std::pin::pin!(async {
            // The request has its own connection by now.
            if !self.connections.has_kept(server) {
                self.prepare(server).await;
            }
        });
        match select(pending, spare).await {
            Either::Left((response, spare)) => {
                // Its handshake is shorter than a handshake and a response, so it is almost
                // finished or has failed.
                let _ = timeout(NEARLY, spare).await;
                response
            }
            Either::Right(((), pending)) => self.wait_with_kept(server, pending).await,
        }
    }

    /// Wait for a response while another connection is kept. After a timeout close the kept connection, because
    /// some servers serve only one connection at a time.
    pub(super) async fn wait_with_kept<T>(
        &self,
        server: &HttpServer,
        mut pending: impl Future<Output = T> + Unpin,
    ) -> T {
        match timeout(OVERLAP_TIMEOUT, &mut pending).await {
            Ok(response) => response,
            Err(_) => {
                self.connections.close_kept(server);
                pending.await
            }
        }
    }

    /// Return the profile of a server; none before its first response.
    pub(super) fn manner(&self, target: &HttpTarget) -> Option<ServerProfile> {
        self.connections.manner(&target.server)
    }

    /// Send a request once; none if the server does not support such requests. Remember such a server.
    ///
    /// # Errors
    /// Errors that do not depend on the type of request.
    pub(super) async fn try_once(
        self: &Rc<Self>,
        target: &HttpTarget,
        prepared: &HttpRequest<'_>,
    ) -> Result<Option<HttpResponse>, RequestError> {
        match self
            .once(target, prepared, &[StatusCode::RANGE_NOT_SATISFIABLE])
            .await
        {
            Err(RequestError::Silence(_)) => {
                self.connections
                    .remember(&target.server, ServerProfile::Plain);
                Ok(None)
            }
            Err(RequestError::Status { status, .. })
                if matches!(status.as_u16(), 405 | 500 | 501) =>
            {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Send a request and retry it after temporary errors. Statuses other than success and `also` are errors.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(crate) async fn send(
        self: &Rc<Self>,
        target: &HttpTarget,
        prepared: &HttpRequest<'_>,
        also: &[StatusCode],
    ) -> Result<HttpResponse, RequestError> {
        self.send_with(&mut RetryState::default(), target, prepared, also)
            .await
    }

    /// Send a request as [`send`](Self::send), with attempts counted across several requests.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(super) async fn send_with(
        self: &Rc<Self>,
        attempts: &mut RetryState,
        target: &HttpTarget,
        prepared: &HttpRequest<'_>,
        also: &[StatusCode],
    ) -> Result<HttpResponse, RequestError> {
        loop {
            match self.once(target, prepared, also).await {
                Ok(response) => return Ok(response),
                // A silent kept connection was replaced already; the caller makes further attempts.
                Err(fault @ RequestError::Silence(_)) => {
                    return Err(self.connections.classify(fault, None));
                }
                Err(fault) => attempts.again(self, fault).await?,
            }
        }
    }

    /// Send a request once. Statuses other than success and `also` are errors.
    ///
    /// # Errors
    /// The error of the request.
    pub(crate) async fn once(
        self: &Rc<Self>,
        target: &HttpTarget,
        prepared: &HttpRequest<'_>,
        also: &[StatusCode],
    ) -> Result<HttpResponse, RequestError> {
        let response = self.follow(target, prepared).await?;
        let status = response.head.status;
        if status.is_success() || also.contains(&status) {
            return Ok(response);
        }
        Err(response.reason_to_stop().await)
    }

    async fn follow(
        self: &Rc<Self>,
        target: &HttpTarget,
        prepared: &HttpRequest<'_>,
    ) -> Result<HttpResponse, RequestError> {
        let mut at = target.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self
                .send_over_kept(&at, prepared, at.server == target.server)
                .await?;
            if !is_redirection(&prepared.method, response.head.status) {
                let name = response.field(&SERVER);
                if name.is_some_and(|name| name.starts_with("XrootD")) {
                    self.connections
                        .remember(&target.server, ServerProfile::Listed);
                } else if response.head.status.is_success() {
                    self.connections
                        .remember(&target.server, ServerProfile::Full);
                }
                return Ok(response);
            }
            let location = response
                .head
                .headers
                .get(LOCATION)
                .and_then(|value| value.to_str().ok());
            let wrong = |found: String| RequestError::UnexpectedResponse {
                expected: "a redirection to an HTTP URL",
                found,
            };
            let next = location.ok_or_else(|| wrong("a redirection without Location".into()))?;
            let next = at.redirected(next).map_err(wrong)?;
            if at.server.tls && !next.server.tls {
                return Err(wrong(format!(
                    "a redirection from https to the unprotected URL {next}"
                )));
            }
            // An unsent body prevents reuse of the connection.
            if !prepared.expects {
                response.finish().await;
            }
            at = next;
        }
        Err(RequestError::UnexpectedResponse {
            expected: "a response",
            found: format!("more than {MAX_REDIRECTS} redirections"),
        })
    }

    /// Send one request over one connection. A kept connection may be closed, so a new one replaces it once.
    async fn send_over_kept(
        self: &Rc<Self>,
        at: &HttpTarget,
        prepared: &HttpRequest<'_>,
        is_ours: bool,
    ) -> Result<HttpResponse, RequestError> {
        if let Some(sender) = self.connections.kept(&at.server) {
            match self.send_over(sender, at, prepared, is_ours).await {
                Err(RequestError::Connection(_) | RequestError::Silence(_)) => {}
                other => return other,
            }
        }
        let sender = self.connections.open(&at.server).await?;
        self.send_over(sender, at, prepared, is_ours).await
    }

    async fn send_over(
        self: &Rc<Self>,
        mut sender: HttpConnection,
        at: &HttpTarget,
        request: &HttpRequest<'_>,
        is_ours: bool,
    ) -> Result<HttpResponse, RequestError> {
        let moved = Rc::new(Cell::new(Instant::now()));
        let proxy = sender.proxy();
        let (prepared, opener) = self.build(at, request, is_ours, proxy.as_deref(), &moved)?;
        // The gate opens after `100 Continue` or its timeout, but not if the response arrives first.
        let in_flight = self.connections.in_flight();
        let sent = sender.send_request(prepared);
        let waiting = while_moving(self.connections.stop(), request.timeout, &moved, async {
            let mut sent = std::pin::pin!(sent);
            if let Some(opener) = opener {
                if let Ok(done) = timeout(WAIT_FOR_CONTINUE, sent.as_mut()).await {
                    return done;
                }
                opener.open();
            }
            sent.await
        });
        let response = waiting.await?.map_err(|error| broken(&error));
        if !response.as_ref().is_err_and(RequestError::is_of_connection) {
            self.connections.count_response();
        }
        let response = response?;
        let (head, body) = response.into_parts();
        Ok(HttpResponse::new(
            (head, body),
            at.clone(),
            (sender, in_flight),
            Rc::clone(self),
        ))
    }

    fn build(
        &self,
        at: &HttpTarget,
        request: &HttpRequest<'_>,
        is_ours: bool,
        proxy: Option<&Proxy>,
        moved: &Rc<Cell<Instant>>,
    ) -> Result<(Request<ProgressBody>, Option<Opener>), RequestError> {
        let unfit = |_| RequestError::UnexpectedResponse {
            expected: "a valid request URL",
            found: "invalid characters".into(),
        };
        let mut body = (request.body)();
        let mut opener = None;
        if request.expects {
            let (open, opened) = oneshot::channel();
            body = body.gated(opened);
            opener = Some(Opener::new(open));
        }
        let mut prepared = Request::builder()
            .method(&request.method)
            .uri(proxy.map_or_else(|| at.path.clone(), |_| at.url()))
            .body(ProgressBody::new(body, moved))
            .map_err(unfit)?;
        let host = HeaderValue::try_from(at.server.authority());
        let fields = prepared.headers_mut();
        fields.extend(request.fields.clone());
        fields.insert(
            HOST,
            host.map_err(|_| RequestError::UnexpectedResponse {
                expected: "a host name",
                found: "invalid characters".into(),
            })?,
        );
        fields.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(login) = proxy.and_then(Proxy::login) {
            fields.insert(PROXY_AUTHORIZATION, login.clone());
        }
        if is_ours {
            fields.extend(self.secrets.clone());
        }
        if let Some(opener) = &opener {
            prepared
                .headers_mut()
                .insert(EXPECT, HeaderValue::from_static("100-continue"));
            let opener = opener.clone();
            hyper::ext::on_informational(&mut prepared, move |reported| {
                if reported.status() == StatusCode::CONTINUE {
                    opener.open();
                }
            });
        }
        Ok((prepared, opener))
    }
}

fn is_redirection(method: &Method, status: StatusCode) -> bool {
    match status.as_u16() {
        301 | 302 | 307 | 308 => true,
        // The new location is read with GET (RFC 9110, section 15.4.4) after any first method.
        303 => *method == Method::GET || *method == Method::HEAD,
        _ => false,
    }
}

/// Opens the gate of a body once.
#[derive(Clone)]
struct Opener(Arc<std::sync::Mutex<Option<oneshot::Sender<()>>>>);

impl Opener {
    fn new(open: oneshot::Sender<()>) -> Self {
        Self(Arc::new(std::sync::Mutex::new(Some(open))))
    }

    fn open(&self) {
        let open = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(open) = open {
            // The body may have been dropped.
            let _ = open.send(());
        }
    }
}
