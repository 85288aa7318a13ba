//! One request and its answer, whatever is between: connections that are kept, redirections, attempts.
//!
//! One thread's: its connections are driven by tasks of its own runtime. Secrets, such as a token, go to the server that the order names, and to no other:
//! who is redirected to elsewhere gets there what the redirection itself carries, as dCache and XRootD do. From https nobody is led to http.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::header::{EXPECT, HOST, LOCATION, PROXY_AUTHORIZATION, SERVER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::answer::Answer;
use super::connect::{Connections, Dialer, Manner, Sender};
use super::fault::{Fault, broken};
use super::outgoing::{Outgoing, Told};
use super::proxy::Proxy;
use super::target::{Server, Target};
use super::tries::Tries;
use super::wait::while_moving;

/// Redirections of one request; a door leads to a pool, and that perhaps to another.
const MOST_REDIRECTIONS: usize = 8;
/// How long a server may take to begin an answer, after the last byte that we sent: it may have to compute a checksum first, or to find a file.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
/// How long a body is kept back for `100 Continue`; then it is sent (RFC 9110, section 10.1.1, leaves the time open; curl waits as long).
const WAIT_FOR_CONTINUE: Duration = Duration::from_secs(1);
/// How long an answer may take beside a kept connection before that is suspected of keeping it waiting.
const PATIENCE_BESIDE: Duration = Duration::from_secs(1);
/// How long a connection that is opened beside a question is waited for when the answer is there.
const NEARLY: Duration = Duration::from_millis(20);
const AGENT: &str = concat!("venturi/", env!("CARGO_PKG_VERSION"));

/// What is asked of a server.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    /// Makes the body, anew for each attempt.
    pub(crate) body: &'a dyn Fn() -> Outgoing,
    /// Whether the body waits until the server wants it: worth a round trip if it is large and the server may send us elsewhere.
    pub(crate) expects: bool,
    /// How long the server may take to begin an answer, after the last byte that we sent.
    pub(crate) patience: Duration,
}

impl Ask<'_> {
    /// One without a body.
    pub(crate) fn plain(method: Method, fields: HeaderMap) -> Self {
        Self {
            method,
            fields,
            body: &|| Outgoing::EMPTY,
            expects: false,
            patience: PATIENCE,
        }
    }
}

/// Requests of one thread.
pub(crate) struct Exchange {
    pub(super) connections: Connections,
    /// Fields that the server that the order names gets, and no other.
    secrets: HeaderMap,
}

impl Exchange {
    pub(crate) fn new(dialer: Dialer, secrets: HeaderMap) -> Rc<Self> {
        Rc::new(Self {
            connections: Connections::new(dialer),
            secrets,
        })
    }

    /// Opens a connection before there is a request, and whether there is one; what is wrong with it, requests are told.
    pub(super) async fn prepare(&self, server: &Server) -> bool {
        let Ok(mut sender) = self.connections.open(server).await else {
            return false;
        };
        // It is, as soon as its task has begun.
        let ready = sender.ready().await.is_ok();
        if ready {
            self.connections.keep(server, sender);
        }
        ready
    }

    /// Asks what a server may refuse, and opens another connection meanwhile for what is asked then: there are servers that close one with each
    /// refusal (XRootD 5.5), and over TLS a new one takes two round trips.
    pub(super) async fn with_spare<T>(&self, server: &Server, asked: impl Future<Output = T>) -> T {
        let may_close = self
            .connections
            .manner(server)
            .is_none_or(|manner| manner == Manner::Listed);
        if !server.tls || !may_close {
            return asked.await;
        }
        let asked = std::pin::pin!(asked);
        let spare = std::pin::pin!(async {
            // What is asked has taken its own by now.
            if !self.connections.has_kept(server) {
                self.prepare(server).await;
            }
        });
        match select(asked, spare).await {
            Either::Left((answer, spare)) => {
                // Its handshake is shorter than handshake and answer: it lacks a turn of ours, or it has failed.
                let _ = timeout(NEARLY, spare).await;
                answer
            }
            Either::Right(((), asked)) => self.beside(server, asked).await,
        }
    }

    /// Waits for an answer while another connection is kept, which is closed when that takes long: there are servers that serve one connection at a
    /// time, until it is closed.
    pub(super) async fn beside<T>(
        &self,
        server: &Server,
        mut asked: impl Future<Output = T> + Unpin,
    ) -> T {
        match timeout(PATIENCE_BESIDE, &mut asked).await {
            Ok(answer) => answer,
            Err(_) => {
                self.connections.close_kept(server);
                asked.await
            }
        }
    }

    /// How the server of a place is best asked; none of one that has not answered yet.
    pub(super) fn manner(&self, place: &Target) -> Option<Manner> {
        self.connections.manner(&place.server)
    }

    /// Asks once, and remembers a server that does not like such requests; none: ask it in another way.
    ///
    /// # Errors
    /// A fault that has nothing to do with the way.
    pub(super) async fn try_once(
        self: &Rc<Self>,
        place: &Target,
        ask: &Ask<'_>,
    ) -> Result<Option<Answer>, Fault> {
        match self
            .once(place, ask, &[StatusCode::RANGE_NOT_SATISFIABLE])
            .await
        {
            Err(Fault::Silence(_)) => {
                self.connections.remember(&place.server, Manner::Plain);
                Ok(None)
            }
            Err(Fault::Status { status, .. }) if matches!(status.as_u16(), 405 | 500 | 501) => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Asks, and asks again while it is worth it; what is no success is a fault, but for those in `also`.
    ///
    /// # Errors
    /// The last fault.
    pub(crate) async fn ask(
        self: &Rc<Self>,
        place: &Target,
        ask: &Ask<'_>,
        also: &[StatusCode],
    ) -> Result<Answer, Fault> {
        self.ask_as(&mut Tries::default(), place, ask, also).await
    }

    /// The same as one of the requests that a thing takes, whose tries are counted together.
    ///
    /// # Errors
    /// The last fault.
    pub(super) async fn ask_as(
        self: &Rc<Self>,
        tries: &mut Tries,
        place: &Target,
        ask: &Ask<'_>,
        also: &[StatusCode],
    ) -> Result<Answer, Fault> {
        loop {
            match self.once(place, ask, also).await {
                Ok(answer) => return Ok(answer),
                // Whom we found silent on a kept connection was asked on another; and there are those who begin all anew.
                Err(fault @ Fault::Silence(_)) => return Err(self.connections.judged(fault, None)),
                Err(fault) => tries.again(self, fault).await?,
            }
        }
    }

    /// Asks once; what is no success is a fault, but for those in `also`.
    ///
    /// # Errors
    /// The fault.
    pub(super) async fn once(
        self: &Rc<Self>,
        place: &Target,
        ask: &Ask<'_>,
        also: &[StatusCode],
    ) -> Result<Answer, Fault> {
        let answer = self.follow(place, ask).await?;
        let status = answer.head.status;
        if status.is_success() || also.contains(&status) {
            return Ok(answer);
        }
        Err(answer.refusal().await)
    }

    async fn follow(self: &Rc<Self>, place: &Target, ask: &Ask<'_>) -> Result<Answer, Fault> {
        let mut at = place.clone();
        for _ in 0..=MOST_REDIRECTIONS {
            let answer = self.asked(&at, ask, at.server == place.server).await?;
            if !is_redirection(&ask.method, answer.head.status) {
                let name = answer.field(&SERVER);
                if name.is_some_and(|name| name.starts_with("XrootD")) {
                    self.connections.remember(&place.server, Manner::Listed);
                } else if answer.head.status.is_success() {
                    self.connections.remember(&place.server, Manner::Full);
                }
                return Ok(answer);
            }
            let location = answer
                .head
                .headers
                .get(LOCATION)
                .and_then(|value| value.to_str().ok());
            let wrong = |found: String| Fault::Answer {
                expected: "a redirection to a place of HTTP",
                found,
            };
            let next = location.ok_or_else(|| wrong("one without a place".into()))?;
            let next = at.redirected(next).map_err(wrong)?;
            if at.server.tls && !next.server.tls {
                return Err(wrong(format!(
                    "one from https to {next}, where nothing is protected"
                )));
            }
            // A body that is still kept back keeps its connection from being used again.
            if !ask.expects {
                answer.finish().await;
            }
            at = next;
        }
        Err(Fault::Answer {
            expected: "an answer",
            found: format!("more than {MOST_REDIRECTIONS} redirections"),
        })
    }

    /// One request over one connection. One that was kept may have been closed or forgotten meanwhile: then a new one is taken, once.
    async fn asked(
        self: &Rc<Self>,
        at: &Target,
        ask: &Ask<'_>,
        is_ours: bool,
    ) -> Result<Answer, Fault> {
        if let Some(sender) = self.connections.kept(&at.server) {
            match self.over(sender, at, ask, is_ours).await {
                Err(Fault::Connection(_) | Fault::Silence(_)) => {}
                other => return other,
            }
        }
        let sender = self.connections.open(&at.server).await?;
        self.over(sender, at, ask, is_ours).await
    }

    async fn over(
        self: &Rc<Self>,
        mut sender: Sender,
        at: &Target,
        ask: &Ask<'_>,
        is_ours: bool,
    ) -> Result<Answer, Fault> {
        let moved = Rc::new(Cell::new(Instant::now()));
        let proxy = sender.proxy();
        let (request, opener) = self.request(at, ask, is_ours, proxy.as_deref(), &moved)?;
        // The gate opens by a 100, by its absence, and never when the answer is there before.
        let under_way = self.connections.under_way();
        let sent = sender.send_request(request);
        let answered = while_moving(self.connections.stop(), ask.patience, &moved, async {
            let mut sent = std::pin::pin!(sent);
            if let Some(opener) = opener {
                if let Ok(done) = timeout(WAIT_FOR_CONTINUE, sent.as_mut()).await {
                    return done;
                }
                opener.open();
            }
            sent.await
        });
        let answer = answered.await?.map_err(|error| broken(&error));
        if !answer.as_ref().is_err_and(Fault::is_of_connection) {
            self.connections.answered();
        }
        let answer = answer?;
        let (head, body) = answer.into_parts();
        Ok(Answer::new(
            (head, body),
            at.clone(),
            (sender, under_way),
            Rc::clone(self),
        ))
    }

    fn request(
        &self,
        at: &Target,
        ask: &Ask<'_>,
        is_ours: bool,
        proxy: Option<&Proxy>,
        moved: &Rc<Cell<Instant>>,
    ) -> Result<(Request<Told>, Option<Opener>), Fault> {
        let unfit = |_| Fault::Answer {
            expected: "a place that can be asked for",
            found: "signs that it must not have".into(),
        };
        let mut body = (ask.body)();
        let mut opener = None;
        if ask.expects {
            let (open, opened) = oneshot::channel();
            body = body.gated(opened);
            opener = Some(Opener::new(open));
        }
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(proxy.map_or_else(|| at.path.clone(), |_| at.url()))
            .body(Told::new(body, moved))
            .map_err(unfit)?;
        let host = HeaderValue::try_from(at.server.authority());
        let fields = request.headers_mut();
        fields.extend(ask.fields.clone());
        fields.insert(
            HOST,
            host.map_err(|_| Fault::Answer {
                expected: "the name of a host",
                found: "other signs".into(),
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
            request
                .headers_mut()
                .insert(EXPECT, HeaderValue::from_static("100-continue"));
            let opener = opener.clone();
            hyper::ext::on_informational(&mut request, move |told| {
                if told.status() == StatusCode::CONTINUE {
                    opener.open();
                }
            });
        }
        Ok((request, opener))
    }
}

fn is_redirection(method: &Method, status: StatusCode) -> bool {
    match status.as_u16() {
        301 | 302 | 307 | 308 => true,
        // What is there is to be read (RFC 9110, section 15.4.4), whatever was asked for.
        303 => *method == Method::GET || *method == Method::HEAD,
        _ => false,
    }
}

/// Opens the gate of a body, whoever comes first.
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
            // The body may be gone already.
            let _ = open.send(());
        }
    }
}
